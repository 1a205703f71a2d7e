"""One table: where each weight sits in our model, in Google's checkpoints
and in Hugging Face's files.

Kernels are `[in, out]` here and with Google, `[out, in]` with Hugging Face;
the two rows marked so are `[out, in]` with Google as well.
"""

import dataclasses
import functools
from collections.abc import Iterator

import keras
import numpy as np

from albert_tf.config import UserError

_BERT = "bert/"
_GROUP = "bert/encoder/transformer/group_{group}/inner_group_{inner}/"
_HF_LAYER = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."

# (attribute of the model, Google's name, Hugging Face's name). A row whose
# attribute is a layer stands for its kernel and bias, or gamma and beta.
_TRUNK = (
    (
        "encoder.embeddings.word_embeddings",
        _BERT + "embeddings/word_embeddings",
        "albert.embeddings.word_embeddings.weight",
    ),
    (
        "encoder.embeddings.token_type_embeddings",
        _BERT + "embeddings/token_type_embeddings",
        "albert.embeddings.token_type_embeddings.weight",
    ),
    (
        "encoder.embeddings.position_embeddings",
        _BERT + "embeddings/position_embeddings",
        "albert.embeddings.position_embeddings.weight",
    ),
    (
        "encoder.embeddings.layer_norm",
        _BERT + "embeddings/LayerNorm",
        "albert.embeddings.LayerNorm",
    ),
    (
        "encoder.projection",
        _BERT + "encoder/embedding_hidden_mapping_in",
        "albert.encoder.embedding_hidden_mapping_in",
    ),
    ("encoder.pooler", _BERT + "pooler/dense", "albert.pooler"),
)
_BLOCK = (
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
_HEADS = (
    (
        "masked_lm.transform",
        "cls/predictions/transform/dense",
        "predictions.dense",
    ),
    (
        "masked_lm.layer_norm",
        "cls/predictions/transform/LayerNorm",
        "predictions.LayerNorm",
    ),
    (
        "masked_lm.output_bias",
        "cls/predictions/output_bias",
        "predictions.bias",
    ),
    # Google: output_weights [2, H] and output_bias.
    (
        "sentence_order.classifier",
        "cls/seq_relationship/output_*",
        "sop_classifier.classifier",
    ),
    ("classification.classifier", "output_*", "classifier"),
)


@dataclasses.dataclass(frozen=True)
class NamedWeight:
    """A variable of a model with its names elsewhere."""

    variable: keras.Variable
    google: str
    huggingface: str
    google_transposed: bool = False
    huggingface_transposed: bool = False

    @property
    def in_encoder(self) -> bool:
        """Whether the weight belongs to the encoder rather than a head."""
        return self.huggingface.startswith("albert.")


def _expand(part: object, google: str, huggingface: str) -> Iterator:
    """Yields the weights of a variable, dense layer or normalisation."""
    if isinstance(part, keras.layers.Dense):
        if google.endswith("output_*"):
            kernel, bias = (google[:-1] + s for s in ("weights", "bias"))
            transposed = True
        else:
            kernel, bias = google + "/kernel", google + "/bias"
            transposed = False
        yield NamedWeight(
            part.kernel, kernel, huggingface + ".weight", transposed, True
        )
        yield NamedWeight(part.bias, bias, huggingface + ".bias")
    elif isinstance(part, keras.layers.LayerNormalization):
        yield NamedWeight(
            part.gamma, google + "/gamma", huggingface + ".weight"
        )
        yield NamedWeight(part.beta, google + "/beta", huggingface + ".bias")
    else:
        yield NamedWeight(part, google, huggingface)


def _attribute(root: object, path: str) -> object | None:
    return functools.reduce(
        lambda part, name: getattr(part, name, None), path.split("."), root
    )


def file_groups(model: keras.Model) -> int:
    """Returns the number of layer groups that files of the model have.

    Files know groups only: modes that share but a part of a block are
    written with one group per layer, repeating what is shared.
    """
    config = model.config
    if config.sharing == "all":
        return config.num_hidden_groups
    return config.num_hidden_layers


def named_weights(model: keras.Model) -> list[NamedWeight]:
    """Returns every weight of the model with its names elsewhere.

    A shared weight that files repeat appears once per repetition.
    """
    config, encoder = model.config, model.encoder
    groups = file_groups(model)
    rows: list[NamedWeight] = []
    for attribute, google, huggingface in _TRUNK + _HEADS:
        part = _attribute(model, attribute)
        if part is not None:
            rows += _expand(part, google, huggingface)
    for group in range(groups):
        # The first layer of the group: the least i with i * groups // layers
        # equal to it.
        layer = -(-group * config.num_hidden_layers // groups)
        for inner in range(config.inner_group_num):
            place = layer * config.inner_group_num + inner
            block = encoder.blocks[encoder.applications[place]]
            names = {"group": group, "inner": inner}
            for attribute, google, huggingface in _BLOCK:
                rows += _expand(
                    _attribute(block, attribute),
                    (_GROUP + google).format(**names),
                    (_HF_LAYER + huggingface).format(**names),
                )
    covered = {id(row.variable) for row in rows}
    for variable in model.weights:
        if id(variable) not in covered and "seed" not in variable.path:
            raise AssertionError(f"{variable.path} has no name in files")
    return rows


def assign_weights(
    rows: list[NamedWeight],
    values: dict[str, np.ndarray],
    *,
    source: str,
    form: str,
) -> None:
    """Gives every row's variable its value, all or none.

    Args:
        rows: what to fill.
        values: arrays by the names of `form`.
        source: where they come from, for messages.
        form: "google" or "huggingface".

    Raises:
        UserError: naming every weight that is missing, has another shape,
            is not finite, or is repeated with another value.
    """
    missing, faults = [], []
    found: dict[int, tuple[keras.Variable, np.ndarray, str]] = {}
    for row in rows:
        name = getattr(row, form)
        if name not in values:
            missing.append(name)
            continue
        value = values[name]
        if value.dtype.kind not in "fi" and value.dtype.name != "bfloat16":
            faults.append(f"{name} holds {value.dtype.name}, not numbers")
            continue
        if getattr(row, form + "_transposed"):
            value = value.T
        if tuple(value.shape) != tuple(row.variable.shape):
            faults.append(
                f"{name} has shape {list(values[name].shape)} and the model "
                f"needs {list(row.variable.shape)}"
                + (" transposed" if value is not values[name] else "")
            )
        elif not np.isfinite(value).all():
            faults.append(f"{name} holds NaN or infinity")
        elif id(row.variable) in found and not np.array_equal(
            found[id(row.variable)][1], value
        ):
            other = found[id(row.variable)][2]
            faults.append(f"{name} should equal {other}: they share a weight")
        else:
            found[id(row.variable)] = (row.variable, value, name)
    if missing:
        faults.insert(0, f"missing: {', '.join(missing)}")
    if faults:
        raise UserError(
            f"{source} does not fit the model: {'; '.join(faults)}."
        )
    for variable, value, _ in found.values():
        variable.assign(value.astype(np.float32, copy=False))
