"""One table: the name of each weight in our model, in Google's checkpoints
and in Hugging Face's files. Heads declare theirs (Head.weight_names).

Kernels are `[in, out]` here and with Google, `[out, in]` with Hugging Face;
the rows that end in `output_*` are `[out, in]` with Google as well.
"""

import dataclasses
import operator
from collections.abc import Iterator

import keras
import numpy as np

from albert_tf.config import ModelConfig, UserError, shares_whole_groups

_GROUP = "bert/encoder/transformer/group_{group}/inner_group_{inner}/"
_HF_LAYER = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."

# (attribute of the encoder, Google's name, Hugging Face's name). A row whose
# attribute is a layer stands for its kernel and bias, or gamma and beta.
_ENCODER = (
    *(
        (
            f"embeddings.{table}",
            f"bert/embeddings/{table}",
            f"albert.embeddings.{table}.weight",
        )
        for table in (
            "word_embeddings",
            "token_type_embeddings",
            "position_embeddings",
        )
    ),
    (
        "embeddings.layer_norm",
        "bert/embeddings/LayerNorm",
        "albert.embeddings.LayerNorm",
    ),
    (
        "projection",
        "bert/encoder/embedding_hidden_mapping_in",
        "albert.encoder.embedding_hidden_mapping_in",
    ),
    ("pooler", "bert/pooler/dense", "albert.pooler"),
)
BLOCK = (
    ("attention.query", "attention_1/self/query", "attention.query"),
    ("attention.key", "attention_1/self/key", "attention.key"),
    ("attention.value", "attention_1/self/value", "attention.value"),
    ("attention.output_dense", "attention_1/output/dense", "attention.dense"),
    ("attention.layer_norm", "LayerNorm", "attention.LayerNorm"),
    ("feed_forward.intermediate", "ffn_1/intermediate/dense", "ffn"),
    (
        "feed_forward.output_dense",
        "ffn_1/intermediate/output/dense",
        "ffn_output",
    ),
    ("feed_forward.layer_norm", "LayerNorm_1", "full_layer_layer_norm"),
)
# How others find the group of a layer: in floating point, which for some
# depths is another one than layer * groups // layers.
_THEIR_GROUP = {
    "google": lambda layer, layers, groups: int(layer / layers * groups),
    "huggingface": lambda layer, layers, groups: int(layer / (layers / groups)),
}
OWNERS = {"google": "google-research/albert", "huggingface": "transformers"}


@dataclasses.dataclass(frozen=True)
class NamedWeight:
    """A variable of a model with its names elsewhere.

    Attributes:
        variable: the weight.
        head: the name of its head; empty for the encoder's.
        google: the name in Google's checkpoints; None where that code has no
            such head.
        huggingface: the name in Hugging Face's files.
        google_transposed: whether Google's is `[out, in]`.
        huggingface_transposed: whether Hugging Face's is `[out, in]`.
    """

    variable: keras.Variable
    head: str
    google: str | None
    huggingface: str
    google_transposed: bool = False
    huggingface_transposed: bool = False

    def laid_out(self, value: np.ndarray, form: str) -> np.ndarray:
        """Returns a value of ours as files of `form` have it, or back."""
        return value.T if getattr(self, form + "_transposed") else value


def _expand(
    part: object, head: str, google: str | None, huggingface: str
) -> Iterator[NamedWeight]:
    """Yields the weights of a variable, dense layer or normalisation."""
    transposed = (google or "").endswith("output_*")
    if isinstance(part, keras.layers.Dense):
        rows = [(part.kernel, "kernel", "weight", True)]
        if part.use_bias:
            rows.append((part.bias, "bias", "bias", False))
    elif isinstance(part, keras.layers.LayerNormalization):
        rows = [
            (part.gamma, "gamma", "weight", False),
            (part.beta, "beta", "bias", False),
        ]
    else:
        yield NamedWeight(part, head, google, huggingface)
        return
    for variable, ours, theirs, is_kernel in rows:
        name = google and f"{google}/{ours}"
        if google and transposed:
            name = google[:-1] + ("weights" if is_kernel else "bias")
        yield NamedWeight(
            variable,
            head,
            name,
            f"{huggingface}.{theirs}",
            google_transposed=is_kernel and transposed,
            huggingface_transposed=is_kernel,
        )


def _wrong_layer(config: ModelConfig, groups: int, form: str) -> int | None:
    """Returns the first layer whose group others take for another one."""
    layers = config.num_hidden_layers
    for layer in range(layers):
        theirs = _THEIR_GROUP[form](layer, layers, groups)
        if theirs != layer * groups // layers:
            return layer
    return None


def file_groups(config: ModelConfig, form: str = "huggingface") -> int:
    """Returns the number of layer groups that files of the model have.

    Files know groups only: modes that share but a part of a block are written
    with one group per layer, repeating what is shared; so are groups that
    others would spread over the layers in another way, unless they misread that
    as well.
    """
    counts = [config.num_hidden_layers]
    if shares_whole_groups(config):
        counts.insert(0, config.num_hidden_groups)
    for groups in counts:
        layer = _wrong_layer(config, groups, form)
        if layer is None:
            return groups
    raise UserError(
        f"{OWNERS[form]} cannot read {groups} groups of "
        f"{config.num_hidden_layers} layers: by its division in floating "
        f"point layer {layer} would use the weights of another one."
    )


def check_groups(config: ModelConfig, form: str, source: str) -> None:
    """Raises UserError for groups that others spread in another way."""
    layer = _wrong_layer(config, config.num_hidden_groups, form)
    if layer is not None:
        raise UserError(
            f"{source}: {OWNERS[form]} spreads num_hidden_groups="
            f"{config.num_hidden_groups} over num_hidden_layers="
            f"{config.num_hidden_layers} by a division in floating point that "
            f"gives layer {layer} another group than here; the model cannot "
            "be read."
        )


def named_weights(
    model: keras.Model, form: str = "huggingface"
) -> list[NamedWeight]:
    """Returns every weight of the model with its names elsewhere.

    A shared weight that files of `form` repeat appears once per repetition.
    """
    config, encoder = model.config, model.encoder
    rows: list[NamedWeight] = []
    for attribute, google, huggingface in _ENCODER:
        part = operator.attrgetter(attribute)(encoder)
        if part is not None:
            rows += _expand(part, "", google, huggingface)
    for name, head in model.heads.items():
        for attribute, google, huggingface in head.weight_names:
            part = getattr(head, attribute)
            rows += _expand(part, name, google, huggingface)
    groups = file_groups(config, form)
    for group in range(groups):
        # The first layer of the group: the least i with i * groups // layers
        # equal to it.
        layer = -(-group * config.num_hidden_layers // groups)
        for inner in range(config.inner_group_num):
            number = layer * config.inner_group_num + inner
            block = encoder.blocks[encoder.applications[number]]
            numbers = {"group": group, "inner": inner}
            for attribute, google, huggingface in BLOCK:
                rows += _expand(
                    operator.attrgetter(attribute)(block),
                    "",
                    (_GROUP + google).format(**numbers),
                    (_HF_LAYER + huggingface).format(**numbers),
                )
    named = {id(row.variable) for row in rows}
    for variable in model.weights:
        if id(variable) not in named:
            raise AssertionError(f"{variable.path} has no name in files")
    return rows
