"""One table: where each weight sits in our model, in Google's checkpoints
and in Hugging Face's files.

Kernels are `[in, out]` here and with Google, `[out, in]` with Hugging Face;
the rows that end in `output_*` are `[out, in]` with Google as well.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence

import keras
import numpy as np

from albert_tf.config import ModelConfig, UserError, shares_whole_groups
from albert_tf.modeling.weights.stored_weights import StoredWeights

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
    ("regression.classifier", "output_*", "classifier"),
    ("multiple_choice.classifier", "output_*", "classifier"),
    # google-research/albert labels no tokens.
    ("token_classification.classifier", None, "classifier"),
    ("span.classifier", "cls/squad/output_*", "qa_outputs"),
    # transformers has no such head for ALBERT; the names are of its manner.
    ("answerable_span.start", "start_logits/dense", "start_logits.dense"),
    (
        "answerable_span.end_hidden",
        "end_logits/dense_0",
        "end_logits.dense_0",
    ),
    (
        "answerable_span.end_layer_norm",
        "end_logits/LayerNorm",
        "end_logits.LayerNorm",
    ),
    ("answerable_span.end", "end_logits/dense_1", "end_logits.dense_1"),
    (
        "answerable_span.answer_hidden",
        "answer_class/dense_0",
        "answer_class.dense_0",
    ),
    ("answerable_span.answer", "answer_class/dense_1", "answer_class.dense_1"),
)
# How others find the group of a layer: in floating point, which for some
# depths is another one than layer * groups // layers.
_THEIR_GROUP = {
    "google": lambda layer, layers, groups: int(layer / layers * groups),
    "huggingface": lambda layer, layers, groups: int(layer / (layers / groups)),
}
_OWNERS = {"google": "google-research/albert", "huggingface": "transformers"}
# Weights of the encoder start so.
_ENCODER_PREFIX = {"google": "bert/", "huggingface": "albert."}
# Names in one message: those of a large model, not those of a hostile file.
_MOST_LISTED = 500
_MAPPING_IN = "albert.encoder.embedding_hidden_mapping_in."


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

    def named(ending: str) -> str | None:
        return None if google is None else google + ending

    if isinstance(part, keras.layers.Dense):
        kernel, bias = named("/kernel"), named("/bias")
        transposed = google is not None and google.endswith("output_*")
        if transposed:
            kernel, bias = (google[:-1] + s for s in ("weights", "bias"))
        yield NamedWeight(
            part.kernel, head, kernel, huggingface + ".weight", transposed, True
        )
        if part.use_bias:
            yield NamedWeight(part.bias, head, bias, huggingface + ".bias")
    elif isinstance(part, keras.layers.LayerNormalization):
        for variable, theirs, ending in (
            (part.gamma, "/gamma", ".weight"),
            (part.beta, "/beta", ".bias"),
        ):
            yield NamedWeight(
                variable, head, named(theirs), huggingface + ending
            )
    else:
        yield NamedWeight(part, head, google, huggingface)


def _attribute(root: object, path: str) -> object | None:
    return functools.reduce(
        lambda part, name: getattr(part, name, None), path.split("."), root
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

    Files know groups only: modes that share but a part of a block are
    written with one group per layer, repeating what is shared. So are groups
    that others would spread over the layers in another way.

    Raises:
        UserError: when they would read one group per layer wrongly as well.
    """
    counts = [config.num_hidden_layers]
    if shares_whole_groups(config):
        counts.insert(0, config.num_hidden_groups)
    for groups in counts:
        if _wrong_layer(config, groups, form) is None:
            return groups
    layer = _wrong_layer(config, groups, form)
    raise UserError(
        f"{_OWNERS[form]} cannot read {groups} groups of "
        f"{config.num_hidden_layers} layers: by its division in floating "
        f"point layer {layer} would use the weights of another one."
    )


def check_groups(config: ModelConfig, form: str, source: str) -> None:
    """Raises UserError for a division into groups that others do otherwise.

    The weights of such a file were trained in their division, which is not
    ours.
    """
    layer = _wrong_layer(config, config.num_hidden_groups, form)
    if layer is not None:
        raise UserError(
            f"{source}: {_OWNERS[form]} spreads num_hidden_groups="
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
    groups = file_groups(config, form)
    rows: list[NamedWeight] = []
    for attribute, google, huggingface in _TRUNK + _HEADS:
        part = _attribute(model, attribute)
        if part is not None:
            owner = attribute.split(".")[0]
            head = "" if owner == "encoder" else owner
            rows += _expand(part, head, google, huggingface)
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
                    "",
                    (_GROUP + google).format(**names),
                    (_HF_LAYER + huggingface).format(**names),
                )
    covered = {id(row.variable) for row in rows}
    for variable in model.weights:
        if id(variable) not in covered and "seed" not in variable.path:
            raise AssertionError(f"{variable.path} has no name in files")
    return rows


def _names_of_heads(form: str) -> dict[str, set[str]]:
    """Returns what names of a head's weights begin with, by head."""
    names: dict[str, set[str]] = {}
    for attribute, google, huggingface in _HEADS:
        name = google if form == "google" else huggingface
        if name is not None:
            names.setdefault(attribute.split(".")[0], set()).add(name)
    return names


def _begins(name: str, stem: str) -> bool:
    if stem.endswith("*"):
        return name.startswith(stem[:-1])
    return name == stem or name.startswith((f"{stem}/", f"{stem}."))


def heads_in(stored: StoredWeights, said: Iterable[str] = ()) -> set[str]:
    """Returns the heads that a file has weights of.

    Where heads share names, as classification and regression do, it is the
    one that the file is said to have.

    Args:
        stored: the file.
        said: the heads of the class that is named beside it.
    """
    stems = _names_of_heads(stored.form)
    found = {
        head
        for head, of_head in stems.items()
        if any(_begins(n, stem) for n in stored.shapes for stem in of_head)
    }
    return {
        head
        for head in found
        if head in said
        or not any(stems[head] & stems.get(other, set()) for other in said)
    }


def stored_arrays(model: keras.Model, form: str) -> dict[str, np.ndarray]:
    """Returns the model's weights, float32, as files of `form` have them.

    Raises:
        UserError: when the other side has no place for a weight.
    """
    values = {}
    for row in named_weights(model, form):
        name = getattr(row, form)
        if name is None:
            raise UserError(
                f"{_OWNERS[form]} has no head {row.head}; --head=none takes "
                "the encoder alone."
            )
        value = keras.ops.convert_to_numpy(row.variable)
        values[name] = row.laid_out(np.asarray(value, np.float32), form)
    width = model.config.hidden_size
    if not model.encoder.projection and form == "huggingface":
        # transformers maps E to H even where they are equal.
        values[_MAPPING_IN + "weight"] = np.eye(width, dtype=np.float32)
        values[_MAPPING_IN + "bias"] = np.zeros(width, np.float32)
    if model.encoder.projection and form == "google":
        _refuse_equal_widths(model.config)
    return values


def _refuse_equal_widths(config: ModelConfig) -> None:
    if config.embedding_size == config.hidden_size:
        raise UserError(
            "google-research/albert has no projection where embedding_size "
            f"equals hidden_size, {config.hidden_size}; this model has one."
        )


def _has_mapping(config: ModelConfig, stored: StoredWeights) -> bool:
    """Returns whether the file maps E to H though they are equal."""
    width = config.hidden_size
    return (
        config.embedding_size == width
        and stored.shapes.get(_MAPPING_IN + "weight") == (width, width)
        and stored.shapes.get(_MAPPING_IN + "bias") == (width,)
    )


def _has_identity(config: ModelConfig, stored: StoredWeights) -> bool:
    """Returns whether such a mapping is there and changes nothing."""
    if not _has_mapping(config, stored):
        return False
    weight, bias = (stored.read(_MAPPING_IN + n) for n in ("weight", "bias"))
    return np.array_equal(weight, np.eye(len(weight))) and not bias.any()


def needs_projection(config: ModelConfig, stored: StoredWeights) -> bool:
    """Returns whether E equals H and the file has a mapping all the same.

    That is so with transformers, which maps where the original does not. A
    mapping that changes nothing needs none.
    """
    return _has_mapping(config, stored) and not _has_identity(config, stored)


@dataclasses.dataclass(frozen=True)
class Filled:
    """What became of a model's weights.

    Attributes:
        used: names in the file that were read.
        fresh: paths of variables that keep their initial values.
        unused: names in the file that nothing needed.
    """

    used: list[str]
    fresh: list[str]
    unused: list[str]

    def lines(self) -> list[str]:
        """Returns what is worth saying, for people."""
        lines = []
        if self.fresh:
            lines.append(f"Initialised: {', '.join(self.fresh)}.")
        if self.unused:
            lines.append(f"Not needed: {listed(self.unused)}.")
        return lines


def fill_model(
    model: keras.Model,
    stored: StoredWeights,
    *,
    new_heads: tuple[str, ...] = (),
    drop_other_heads: bool = False,
    allow_missing: bool = False,
) -> Filled:
    """Gives the model the weights of a file, all or none.

    Args:
        model: to fill.
        stored: the file.
        new_heads: heads of the model that keep their initial weights.
        drop_other_heads: whether the file may hold heads that the model has
            not, or that are new.
        allow_missing: whether weights that the file has not keep their
            initial values.

    Raises:
        UserError: naming every weight that is missing, unexpected, has
            another shape, is not finite, or is repeated with another value.
    """
    form = stored.form
    rows = [
        row for row in named_weights(model, form) if row.head not in new_heads
    ]
    names = {getattr(row, form) for row in rows}
    unused = [name for name in sorted(stored.shapes) if name not in names]
    if not model.encoder.projection and _has_identity(model.config, stored):
        unused = [name for name in unused if not name.startswith(_MAPPING_IN)]
    unexpected = [
        name
        for name in unused
        if not drop_other_heads or name.startswith(_ENCODER_PREFIX[form])
    ]
    if allow_missing:
        rows = [row for row in rows if getattr(row, form) in stored.shapes]
    assign_weights(rows, stored, unexpected)
    filled = {id(row.variable) for row in rows}
    fresh = {
        row.variable.path
        for row in named_weights(model, form)
        if id(row.variable) not in filled
    }
    used = sorted({getattr(row, form) for row in rows})
    return Filled(used, sorted(fresh), unused)


def assign_weights(
    rows: list[NamedWeight],
    stored: StoredWeights,
    unexpected: list[str] | tuple[str, ...] = (),
) -> None:
    """Gives every row's variable its value, all or none.

    Names and shapes are compared before anything is read.

    Args:
        rows: what to fill.
        stored: the file.
        unexpected: names in it that should not be there.

    Raises:
        UserError: naming every weight that is missing, unexpected, has
            another shape, is not finite, or is repeated with another value.
    """
    form = stored.form
    missing = sorted(
        {
            str(getattr(row, form) or f"{row.variable.path} (no name there)")
            for row in rows
            if getattr(row, form) not in stored.shapes
        }
    )
    faults = [f"missing: {listed(missing)}"] if missing else []
    if unexpected:
        faults.append(f"unexpected: {listed(unexpected)}")
    for row in rows:
        name = getattr(row, form)
        if name in stored.shapes:
            faults += _shape_faults(row, stored.shapes[name], form)
    if not faults:
        values, faults = _read(rows, stored)
    if faults:
        raise UserError(
            f"{stored.source} does not fit the model: {listed(faults, '; ')}."
        )
    for variable, value in values:
        variable.assign(value)


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Returns names for a message; of very many the first ones."""
    shown = separator.join(names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown}{separator}and {more} more" if more > 0 else shown


def _shape_faults(
    row: NamedWeight, shape: tuple[int, ...], form: str
) -> list[str]:
    transposed = getattr(row, form + "_transposed")
    needed = tuple(row.variable.shape)
    if transposed:
        needed = needed[::-1]
    if tuple(shape) == needed:
        return []
    fault = (
        f"{getattr(row, form)} has shape {list(shape)} and the model needs "
        f"{list(needed)}"
    )
    if tuple(shape) == needed[::-1]:
        fault += " (its axes are swapped)"
    return [fault]


def _read(
    rows: list[NamedWeight], stored: StoredWeights
) -> tuple[list[tuple[keras.Variable, np.ndarray]], list[str]]:
    """Returns the values of the variables, in our layout, and the faults."""
    faults: list[str] = []
    found: dict[int, tuple[keras.Variable, np.ndarray, str]] = {}
    for row in rows:
        name = getattr(row, stored.form)
        value = np.asarray(stored.read(name), np.float32)
        value = row.laid_out(value, stored.form)
        if not np.isfinite(value).all():
            faults.append(f"{name} holds NaN or infinity")
        elif id(row.variable) not in found:
            found[id(row.variable)] = (row.variable, value, name)
        elif not np.array_equal(found[id(row.variable)][1], value):
            other = found[id(row.variable)][2]
            faults.append(f"{name} should equal {other}: they share a weight")
    return [(variable, value) for variable, value, _ in found.values()], faults
