"""Converts models between the formats of libraries: `convert`."""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from albert_tf.config import lookup, override, require
from albert_tf.interchange.formats import (
    FORMATS,
    REPLACEABLE,
    Format,
    format_at,
)
from albert_tf.interchange.model_directory import (
    InitialWeights,
    LoadedModel,
    check_vocab_size,
    find_initial_weights,
)
from albert_tf.interchange.model_files import (
    TASK_FILE,
    read_task_record,
    replacing_directory,
)
from albert_tf.io import files
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import (
    AlbertForPretraining,
    AlbertModel,
    model_class,
    models,
)
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.conversion import convert_weights
from albert_tf.modeling.weights.stored_weights import (
    heads_in,
    load_stored_weights,
)
from albert_tf.text.tokenizer import load_tokenizer


def models_by_head() -> dict[str, type[AlbertModel]]:
    """Returns the model classes by the values of `head`."""
    return {
        "none": AlbertModel,
        "pretraining": AlbertForPretraining,
        **{n: model_class(n) for n, head in HEADS.items() if head.model_name},
    }


def convert(
    from_path: str,
    to_path: str,
    to_format: str,
    *,
    head: str = "",
    labels: Sequence[str] = (),
    tokenizer: str = "",
    changes: Mapping[str, object] | None = None,
    merge: str = "equal",
    allow_missing: bool = False,
    overwrite: bool = False,
    log: Callable[[str], None] = print,
) -> None:
    """Writes the model at `from_path` to the directory `to_path`.

    Nothing is written in case of an error. bin/convert.py describes the
    options; `head` is a key of `models_by_head`, `changes` are settings of the
    architecture, and `log` takes a line for each thing that is more than a
    copy.

    Raises:
        UserError: naming each weight that is missing, unexpected, misshapen
            or damaged; for a source, target, head, tokenizer or change that
            does not fit.
    """
    target = lookup(FORMATS, to_format, "to_format")
    require(
        bool(from_path and to_path), "from_path and to_path must not be empty."
    )
    remote = files.is_remote(to_path)
    to_path = to_path.rstrip("/") if remote else os.path.abspath(to_path)
    _check_separate(to_path, from_path, tokenizer)
    _check_replaceable(to_path, to_format, overwrite)
    require(
        not target.package or find_spec(target.package) is not None,
        f"to_format={to_format} needs the package {target.package}: "
        f"pip install {target.package}.",
    )
    source = find_initial_weights(from_path)
    log(f"From the {source.kind} {source.source}.")
    tokenizer = tokenizer or source.tokenizer_path
    vocabulary = load_tokenizer(tokenizer)
    check_vocab_size(source.config, vocabulary, tokenizer)
    possible = _possible_heads(source)
    require(
        bool(head) or len(possible) == 1,
        f"{source.source} may have any of the heads {', '.join(possible)}; "
        "choose one with --head.",
    )
    kind = lookup(
        models_by_head(), head or possible[0], "head", extensible=True
    )
    for name, head_class in kind.head_classes().items():
        require(
            target.supports(head_class),
            f"{target.library} has no head {name}, so {to_format} cannot hold "
            f"an {kind.__name__}; --head=none takes the encoder alone.",
        )
    model = _read(source, kind, labels, bool(head), target, allow_missing, log)
    model = _changed(model, changes or {}, merge, log)
    length = model.config.max_position_embeddings
    if source.description:
        length = min(source.description.max_seq_length, length)
    loaded = LoadedModel(model, vocabulary, length)
    for line in target.not_stored(loaded):
        log(line)
    described, task = source.description, None
    if source.directory and described and described.ours:
        task = read_task_record(
            source.directory, source.config.max_position_embeddings
        )
    own_head = not head or (described and described.kind == kind.__name__)
    if task and own_head and target.stores_task:
        shorter = min(task.features.max_seq_length, length)
        features = override(task.features, {"max_seq_length": shorter})
        task = dataclasses.replace(task, features=features)
        loaded = dataclasses.replace(loaded, task=task)
    elif task:
        log(f"Not stored: {TASK_FILE}, the settings of {task.task}.")
    with replacing_directory(
        to_path, target.last, replaces=REPLACEABLE
    ) as directory:
        target.write(directory, loaded)
    log(f"Wrote {to_path}: {to_format}, {type(model).__name__}.")


def _check_separate(to_path: str, from_path: str, tokenizer: str) -> None:
    """Raises UserError where writing could touch the files that are read."""
    overlaps = ""
    if _within(to_path, from_path) or _within(from_path, to_path):
        overlaps = from_path
    elif tokenizer and _within(tokenizer, to_path):
        overlaps = tokenizer
    require(
        not overlaps,
        f"to_path={to_path} and {overlaps}, which is read, contain each "
        "other; write to another directory.",
    )


def _within(path: str, directory: str) -> bool:
    """Returns whether a path is a directory or in it, following links."""
    if files.is_remote(path) != files.is_remote(directory):
        return False
    real = os.path.normpath if files.is_remote(path) else os.path.realpath
    directory = real(directory)
    return directory == os.path.commonpath([real(path), directory])


def _check_replaceable(to_path: str, to_format: str, overwrite: bool) -> None:
    if not files.exists(to_path) and not os.path.islink(to_path):
        return
    require(
        files.isdir(to_path) and not os.path.islink(to_path),
        f"{to_path} is a file or a link; name a directory or a new path.",
    )
    # A killed upload to a bucket may have left temporary files.
    names = [
        name
        for name in files.listdir(to_path)
        if files.unfinished(name) not in REPLACEABLE
    ]
    others = sorted(set(names) - REPLACEABLE)
    require(
        not others,
        f"{to_path} holds {', '.join(others[:3])}, which no conversion writes "
        "or replaces; move it, or choose another --to_path.",
    )
    require(
        not names or overwrite or format_at(to_path, names) == to_format,
        f"{to_path} exists and is not of the format {to_format}: "
        f"{', '.join(names[:3])}. --overwrite replaces it.",
    )


def _possible_heads(source: InitialWeights) -> tuple[str, ...]:
    """Returns the keys of `models_by_head` that the source may be."""
    if source.description:
        kind = models()[source.description.kind]
        return tuple(n for n, row in models_by_head().items() if row is kind)
    held = heads_in(source.stored)
    if "sentence_order" in held:
        held = held - {"masked_lm"} | {"pretraining"}
    # The original gives heads of one output the variables of a classifier.
    if source.stored.shapes.get("output_weights", ())[:1] != (1,):
        held -= {"regression", "multiple_choice"}
    return tuple(name for name in models_by_head() if name in held) or ("none",)


def _read(
    source: InitialWeights,
    kind: type[AlbertModel],
    labels: Sequence[str],
    other_heads: bool,
    target: Format,
    allow_missing: bool,
    log: Callable[[str], None],
) -> AlbertModel:
    """Returns the source's model, of a class that may have other heads."""
    possible = [models_by_head()[row] for row in _possible_heads(source)]
    declared = {name for row in possible for name in row.head_names}
    held = heads_in(source.stored, declared)
    new_heads = tuple(
        name
        for name in kind.head_names
        if name not in held and HEADS[name].weight_names
    )
    require(
        allow_missing or not new_heads,
        f"{source.source} has no head {' and '.join(new_heads)}; "
        "--allow_missing initialises one.",
    )
    arguments: dict = {"pooler": True}
    if source.description:
        arguments = pretrained.constructor_arguments(
            kind, source.description, source.stored
        )
    arguments["labels"] = _labels(source, kind, labels, new_heads)
    require(
        arguments["pooler"] or allow_missing or not target.always_pooler,
        f"{source.source} has no pooler, and every model of {target.library} "
        "has one; --allow_missing initialises it.",
    )
    arguments["pooler"] |= target.always_pooler
    model = kind(source.config, **arguments)
    for line in load_stored_weights(
        model,
        source.stored,
        new_heads=new_heads,
        drop_other_heads=other_heads,
        allow_missing=allow_missing,
    ):
        log(line)
    return model


def _labels(
    source: InitialWeights,
    kind: type[AlbertModel],
    given: Sequence[str],
    new_heads: tuple[str, ...],
) -> list[str] | None:
    """Returns the names of the classes, None where there are none."""
    if given:
        return list(given)
    if not kind.takes_labels():
        return None
    require(
        not new_heads,
        f"A new head {' and '.join(new_heads)} needs names of its classes: "
        "--labels.",
    )
    if source.description:
        return source.description.labels
    number = source.stored.shapes.get("output_weights", (2,))[0]
    return [f"LABEL_{n}" for n in range(number)]


def _changed(
    model: AlbertModel,
    changes: Mapping[str, object],
    merge: str,
    log: Callable[[str], None],
) -> AlbertModel:
    """Returns the model with another architecture, itself if it is equal."""
    config = override(model.config, changes)
    if config == model.config:
        return model
    other = type(model).from_config(model.get_config() | {"config": config})
    for line in convert_weights(model, other, merge):
        log(line)
    return other
