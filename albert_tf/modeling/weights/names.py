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

from albert_tf.config import (
    ModelConfig,
    UserError,
    listed,
    require,
    shares_whole_groups,
    sharing_plan,
)
from albert_tf.modeling.heads.base import Head

# The forms of files: which of the two names in a row they have.
COLUMN = {"google": 0, "huggingface": 1}
_BLOCK_PREFIX = {
    "google": "bert/encoder/transformer/group_{group}/inner_group_{inner}/",
    "huggingface": "albert.encoder.albert_layer_groups.{group}"
    ".albert_layers.{inner}.",
}
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
)
_POOLER = (("pooler", "bert/pooler/dense", "albert.pooler"),)
# The pooler's weights may be new, as those of a head, under this name.
POOLER = "pooler"
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
# The group of a layer in other libraries, for some depths another one than
# layer * groups // layers: two of them divide in floating point, and those of
# KerasHub are of equal size.
_THEIR_GROUP = {
    "google": lambda layer, layers, groups: int(layer / layers * groups),
    "huggingface": lambda layer, layers, groups: int(layer / (layers / groups)),
    "keras_hub": lambda layer, layers, groups: layer // (layers // groups),
}
OWNERS = {"google": "google-research/albert", "huggingface": "transformers"}


@dataclasses.dataclass(frozen=True)
class NamedWeight:
    """A variable of a model, as files of one form have it.

    Attributes:
        variable: the weight.
        head: the name of its head, or POOLER; empty for the encoder's.
        name: the name in files; empty where their code has no such head.
        is_transposed: whether files have it as `[out, in]`.
        dense: the dense layer that has it as kernel, or None.
        owner: its head, or None.
    """

    variable: keras.Variable
    head: str
    name: str
    is_transposed: bool = False
    dense: keras.layers.Dense | None = None
    owner: Head | None = None

    @property
    def adapted(self) -> keras.layers.Dense | None:
        """The layer whose low-rank adapter (LoRA) is added to it."""
        has_adapter = self.dense is not None and self.dense.lora_enabled
        return self.dense if has_adapter else None

    def value(self, *, adapters: bool = True) -> np.ndarray:
        """Returns the value in files, float32, with `adapters` that it has."""
        value, layer = _float32(self.variable), self.adapted
        if layer is not None and adapters:
            # Keras would add them in the layer's precision.
            delta = _float32(layer.lora_kernel_a) @ _float32(
                layer.lora_kernel_b
            )
            value = value + np.float32(layer.lora_alpha / layer.lora_rank) * (
                delta
            )
        if self.owner is None:
            return value
        return self.owner.value_in_files(self.variable, value)

    def transposed(self, value: np.ndarray) -> np.ndarray:
        """Returns a value of ours as files have it, or back."""
        return value.T if self.is_transposed else value


def _float32(variable: keras.Variable) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable), np.float32)


def _named(
    part: object, head: str, name: str, form: str
) -> Iterator[NamedWeight]:
    """Yields the weights of a variable, dense layer or normalisation."""
    dense = None
    if isinstance(part, keras.layers.Dense):
        dense = part
        # With an adapter `part.kernel` is their sum, and no variable.
        weights = {
            variable.name: variable
            for variable in part.weights
            if variable.name in ("kernel", "bias")
        }
    elif isinstance(part, keras.layers.LayerNormalization):
        weights = {"gamma": part.gamma, "beta": part.beta}
    else:
        yield NamedWeight(part, head, name)
        return
    for ours, variable in weights.items():
        is_kernel = ours == "kernel"
        if form == "huggingface":
            ending = "weight" if ours in ("kernel", "gamma") else "bias"
            theirs, is_transposed = f"{name}.{ending}", is_kernel
        elif name.endswith("output_*"):
            theirs = name[:-1] + ("weights" if is_kernel else "bias")
            is_transposed = is_kernel
        else:
            theirs, is_transposed = name and f"{name}/{ours}", False
        yield NamedWeight(
            variable,
            head,
            theirs,
            is_transposed,
            dense if is_kernel else None,
        )


def _wrong_layer(config: ModelConfig, groups: int, form: str) -> int | None:
    """Returns the first layer that files of `form` give another group."""
    layers = config.num_hidden_layers
    for layer in range(layers):
        theirs = _THEIR_GROUP[form](layer, layers, groups)
        if theirs != layer * groups // layers:
            return layer
    return None


def file_groups(config: ModelConfig, form: str = "huggingface") -> int:
    """Returns the number of layer groups that files of the model have.

    Files have groups only: modes that share a part of a block are written with
    one group per layer, which repeats shared weights; so are groups that the
    other library would assign to other layers.

    Raises:
        UserError: when it would do so with one group per layer too.
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
    """Raises UserError where files of `form` give a layer another group."""
    layer = _wrong_layer(config, config.num_hidden_groups, form)
    if layer is not None:
        raise UserError(
            f"{source}: {OWNERS[form]} spreads num_hidden_groups="
            f"{config.num_hidden_groups} over num_hidden_layers="
            f"{config.num_hidden_layers} by a division in floating point that "
            f"gives layer {layer} another group than here; the model cannot "
            "be read."
        )


def _file_applications(
    config: ModelConfig, form: str
) -> Iterator[tuple[int, int, int]]:
    """Yields group, inner group and first application of each block."""
    groups = file_groups(config, form)
    for group in range(groups):
        # The first layer of the group: the least i with i * groups // layers
        # equal to it.
        layer = -(-group * config.num_hidden_layers // groups)
        for inner in range(config.inner_group_num):
            yield group, inner, layer * config.inner_group_num + inner


def file_blocks(
    model: keras.Model, form: str
) -> Iterator[tuple[int, int, keras.layers.Layer]]:
    """Yields group, inner group and block of every block in files of `form`."""
    encoder = model.encoder
    for group, inner, number in _file_applications(model.config, form):
        yield group, inner, encoder.blocks[encoder.applications[number]]


def repeated_names(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yields the names of copies in transformers' files, each with the first.

    They repeat weights where `file_groups` has to.
    """
    plan = sharing_plan(config)
    first: dict[tuple, str] = {}
    for group, inner, number in _file_applications(config, "huggingface"):
        prefix = _BLOCK_PREFIX["huggingface"].format(group=group, inner=inner)
        attention, feed_forward = plan[number]
        for part, _, name in BLOCK:
            in_attention = part.startswith("attention.")
            key = part, attention if in_attention else feed_forward
            known = first.setdefault(key, prefix + name)
            if known != prefix + name:
                for ending in (".weight", ".bias"):
                    yield prefix + name + ending, known + ending


def named_weights(
    model: keras.Model, form: str = "huggingface"
) -> list[NamedWeight]:
    """Returns every weight of the model with its name in files of `form`.

    A shared weight that they repeat appears once per repetition; the factors
    of an adapter (LoRA) have no names.

    Raises:
        UserError: for a quantized model, whose weights are no such numbers.
    """
    quantized = sorted(
        {
            f"{x.path} ({x.quantization_mode})"
            for x in model._flatten_layers()
            if x.quantization_mode
        }
    )
    require(
        not quantized,
        f"The model is quantized, in {listed(quantized, 1, longest=None)}, and "
        "files of this form hold float32 weights: save it as Keras does, "
        "model.save('model.keras'), or write the model that was quantized.",
    )
    rows: list[NamedWeight] = []

    def add(layer: object, table: tuple, head: str, prefix: str) -> None:
        for attribute, *names in table:
            part = operator.attrgetter(attribute)(layer)
            name = names[COLUMN[form]] or ""
            if part is not None:
                rows.extend(_named(part, head, name and prefix + name, form))

    add(model.encoder, _ENCODER, "", "")
    add(model.encoder, _POOLER, POOLER, "")
    for name, head in model.heads.items():
        add(head, head.names_in_files(model.config), name, "")
    rows = [
        dataclasses.replace(row, owner=model.heads.get(row.head))
        for row in rows
    ]
    for group, inner, block in file_blocks(model, form):
        prefix = _BLOCK_PREFIX[form].format(group=group, inner=inner)
        add(block, BLOCK, "", prefix)
    named = {id(row.variable) for row in rows}
    for layer in filter(None, {row.adapted for row in rows}):
        named |= {id(layer.lora_kernel_a), id(layer.lora_kernel_b)}
    for variable in model.weights:
        if id(variable) not in named:
            raise AssertionError(f"{variable.path} has no name in files")
    return rows
