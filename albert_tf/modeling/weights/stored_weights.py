"""Weights stored in a file: read lazily, loaded into models, written.

Names and shapes are known at once and values are read on demand, so that a
file that does not fit is refused before its data are read.
"""

import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import keras
import numpy as np

from albert_tf.config import ModelConfig, require
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.weights.names import (
    COLUMN,
    OWNERS,
    NamedWeight,
    named_weights,
    repeated_names,
)

# Names in one message: those of a large model, not those of a hostile file.
_MAX_LISTED = 500
# Names of the encoder's weights begin so.
_ENCODER_PREFIX = {"google": "bert/", "huggingface": "albert."}
# The head whose weights are tied to the embeddings.
_MASKED_LM = "masked_lm"
_PROJECTION = "albert.encoder.embedding_hidden_mapping_in."


@dataclasses.dataclass(frozen=True)
class StoredWeights:
    """The weights of a file.

    Attributes:
        source: the file, for messages.
        form: whose names they carry, "google" or "huggingface".
        shapes: by name.
        read: returns the float32 array of a name; raises UserError when it is
            damaged.
        check_tied: raises UserError where the masked-LM head has weights of
            its own for what is one weight here.
    """

    source: str
    form: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]
    check_tied: Callable[[], None] = lambda: None

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever the file is called."""
        digest = hashlib.sha256()
        for name in sorted(self.shapes):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.read(name)).tobytes())
        return digest.hexdigest()


def to_float32(values: np.ndarray) -> np.ndarray:
    """Returns float32 values; of uint16 those of bfloat16 with these bits.

    Values beyond float32 become infinite, and are refused as such.
    """
    if values.dtype == np.uint16:
        return (values.astype("<u4") << 16).view("<f4")
    with np.errstate(over="ignore"):
        return values.astype("<f4", copy=False)


def heads_in(
    stored: StoredWeights, config: ModelConfig, declared: Iterable[str] = ()
) -> set[str]:
    """Returns the heads declared beside a file, and others it has weights of.

    `config` is its architecture. Heads may share names, as classification and
    regression do: then only those that are declared count.
    """
    column = 1 + COLUMN[stored.form]
    # The beginnings of the names of each head's weights.
    stems = {
        name: {
            str(row[column])
            for row in head.names_in_files(config)
            if row[column]
        }
        for name, head in HEADS.items()
    }

    def is_stored(stem: str) -> bool:
        if stem.endswith("*"):
            return any(name.startswith(stem[:-1]) for name in stored.shapes)
        prefixes = (f"{stem}/", f"{stem}.")
        return any(n == stem or n.startswith(prefixes) for n in stored.shapes)

    taken = set().union(*(stems.get(head, ()) for head in declared))
    found = {
        head
        for head, of_head in stems.items()
        if not of_head & taken and any(map(is_stored, of_head))
    }
    return found.union(declared)


def has_pooler(stored: StoredWeights) -> bool:
    """Returns whether a file has the weights of a pooler.

    transformers leaves them out where its class does not read them.
    """
    return any("pooler" in re.split("[./]", name) for name in stored.shapes)


def stored_arrays(model: keras.Model, form: str) -> dict[str, np.ndarray]:
    """Returns the model's weights, float32, as files of `form` have them."""
    values = {}
    for row in named_weights(model, form):
        require(
            bool(row.name),
            f"{OWNERS[form]} has no head {row.head}; --head=none takes the "
            "encoder alone.",
        )
        values[row.name] = row.transposed(row.value())
    config, width = model.config, model.config.hidden_size
    if not model.encoder.projection and form == "huggingface":
        # transformers maps E to H even where they are equal.
        values[_PROJECTION + "weight"] = np.eye(width, dtype=np.float32)
        values[_PROJECTION + "bias"] = np.zeros(width, np.float32)
    require(
        form != "google"
        or not model.encoder.projection
        or config.embedding_size != width,
        "google-research/albert has no projection where embedding_size equals "
        f"hidden_size, {width}; this model has one.",
    )
    return values


def needs_projection(config: ModelConfig, stored: StoredWeights) -> bool | None:
    """Returns whether E equals H and the file's projection changes anything.

    None where the file has none. (transformers always has a projection.)
    """
    width = config.hidden_size
    weight, bias = _PROJECTION + "weight", _PROJECTION + "bias"
    shapes = stored.shapes.get(weight), stored.shapes.get(bias)
    if config.embedding_size != width or shapes != ((width, width), (width,)):
        return None
    is_identity = np.array_equal(stored.read(weight), np.eye(width))
    return not is_identity or bool(stored.read(bias).any())


def copies_are_equal(config: ModelConfig, stored: StoredWeights) -> bool:
    """Returns whether the weights that a file repeats are the same in it."""
    return all(
        np.array_equal(stored.read(name), stored.read(first))
        for name, first in repeated_names(config)
        if stored.shapes.keys() >= {name, first}
    )


def load_stored_weights(
    model: keras.Model,
    stored: StoredWeights,
    *,
    new_heads: tuple[str, ...] = (),
    drop_other_heads: bool = False,
    allow_missing: bool = False,
) -> list[str]:
    """Loads the weights of a file into a model, all or none.

    Returns a line for weights that keep their initial values and one for
    weights of the file that nothing needs, if there are any.

    Args:
        new_heads: heads of the model that keep their initial weights, POOLER
            among them.
        drop_other_heads: whether the file may hold heads that the model has
            not, or that are new.
        allow_missing: whether weights that the file lacks keep their initial
            values.

    Raises:
        UserError: see `assign_weights`.
    """
    every = named_weights(model, stored.form)
    rows = [row for row in every if row.head not in new_heads]
    unused = sorted(stored.shapes.keys() - {row.name for row in rows})
    if (
        not model.encoder.projection
        and needs_projection(model.config, stored) is False
    ):
        unused = [n for n in unused if not n.startswith(_PROJECTION)]
    unexpected = [
        name
        for name in unused
        if not drop_other_heads or name.startswith(_ENCODER_PREFIX[stored.form])
    ]
    if allow_missing:
        rows = [row for row in rows if row.name in stored.shapes]
    if any(row.head == _MASKED_LM for row in rows):
        stored.check_tied()
    assign_weights(rows, stored, unexpected)
    filled = {id(row.variable) for row in rows}
    fresh = {r.variable.path for r in every if id(r.variable) not in filled}
    lines = []
    if fresh:
        lines.append(f"Initialised: {', '.join(sorted(fresh))}.")
    if unused:
        lines.append(f"Not needed: {listed(unused)}.")
    return lines


def assign_weights(
    rows: list[NamedWeight],
    stored: StoredWeights,
    unexpected: Sequence[str] = (),
) -> None:
    """Assigns every row's variable its value, all or none.

    Names and shapes are compared before anything is read. `unexpected` are
    names in the file that should not be there.

    Raises:
        UserError: naming every weight that is missing, unexpected, misshapen,
            not finite, or repeated with another value.
    """
    missing, faults = set(), []
    for row in rows:
        if row.name not in stored.shapes:
            missing.add(row.name or f"{row.variable.path} (no name there)")
            continue
        shape, needed = list(stored.shapes[row.name]), list(row.variable.shape)
        if row.is_transposed:
            needed.reverse()
        if shape != needed:
            hint = " (its axes are swapped)" * (shape == needed[::-1])
            if "position_embeddings" in row.name:
                hint = " (bin.convert --max_position_embeddings changes that)"
            faults.append(
                f"{row.name} has shape {shape} and the model needs {needed}"
                f"{hint}"
            )
    if unexpected:
        faults.insert(0, f"unexpected: {listed(unexpected)}")
    if missing:
        faults.insert(0, f"missing: {listed(sorted(missing))}")
    found: dict[int, tuple[np.ndarray, NamedWeight]] = {}
    for row in () if faults else rows:
        value = row.transposed(stored.read(row.name))
        first, other = found.setdefault(id(row.variable), (value, row))
        if not np.isfinite(value).all():
            faults.append(f"{row.name} holds NaN or infinity")
        elif not np.array_equal(first, value):
            faults.append(
                f"{row.name} should equal {other.name}: they share a weight"
            )
    require(
        not faults,
        f"{stored.source} does not fit the model: {listed(faults, '; ')}.",
    )
    for value, row in found.values():
        row.variable.assign(value)


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Returns names for a message; of very many the first ones."""
    shown = separator.join(names[:_MAX_LISTED])
    more = len(names) - _MAX_LISTED
    return f"{shown}{separator}and {more} more" if more > 0 else shown
