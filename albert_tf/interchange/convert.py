"""Converts models between the formats of libraries: `convert`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from albert_tf.config import (
    PART_LENGTHS,
    FeatureConfig,
    Log,
    ModelConfig,
    listed,
    lookup,
    override,
    require,
    to_dict,
)
from albert_tf.interchange.formats import (
    FORMATS,
    REPLACEABLE,
    Format,
    format_at,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    find_initial_weights,
    load_fitting_tokenizer,
    stored_task_record,
)
from albert_tf.interchange.model_files import (
    TASK_FILE,
    TaskRecord,
    replacing_directory,
)
from albert_tf.io import files, hub
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.heads.pooling import is_own_pooling
from albert_tf.modeling.models import (
    AlbertForPretraining,
    AlbertModel,
    model_class,
)
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.conversion import convert_weights
from albert_tf.modeling.weights.pretrained import StoredModel
from albert_tf.modeling.weights.stored_weights import has_pooler


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
    tokenizer: str = "",
    overwrite: bool = False,
    log: Log = print,
    **options: Any,
) -> None:
    """Writes the model at `from_path` to the directory `to_path`.

    Nothing is written in case of an error. bin/convert.py describes the
    options, which are those of `converted`.

    Raises:
        UserError: naming each weight that is missing, unexpected, misshapen
            or damaged; for a source, target, head, tokenizer or change that
            does not fit.
    """
    target = lookup(FORMATS, to_format, "to_format")
    to_path = _separate_path(to_path, from_path, tokenizer)
    _check_replaceable(to_path, to_format, overwrite)
    loaded = converted(
        from_path, to_format, tokenizer=tokenizer, log=log, **options
    )
    with replacing_directory(
        to_path, target.last, replaces=REPLACEABLE
    ) as directory:
        target.write(directory, loaded)
    log(f"Wrote {to_path}: {to_format}, {type(loaded.model).__name__}.")


def converted(
    from_path: str,
    to_format: str,
    *,
    head: str = "",
    labels: Sequence[str] = (),
    tokenizer: str = "",
    changes: Mapping[str, object] | None = None,
    merge: str = "equal",
    allow_missing: bool = False,
    log: Log = print,
) -> LoadedModel:
    """Returns the model at `from_path` as a format has it, and its task.

    `head` is a key of `models_by_head`, `changes` are settings of the
    architecture, and `log` takes a line for each thing that is more than a
    copy. Errors are those of `convert`.
    """
    target = lookup(FORMATS, to_format, "to_format")
    require(
        not target.package or find_spec(target.package) is not None,
        f"to_format={to_format} needs the package {target.package}: "
        f"pip install {target.package}.",
    )
    source = find_initial_weights(from_path)
    log(f"From the {source.origin} {source.source}.")
    tokenizer = tokenizer or source.tokenizer_path
    vocabulary = load_fitting_tokenizer(tokenizer, source.config)
    config = override(source.config, changes or {})
    kind = _class(source, head, target, config)
    model, lines = _read(source, kind, target, head, labels, allow_missing)
    if config != model.config:
        old, kwargs = model, model.get_config() | {"config": config}
        model = kind.from_config(kwargs)
        lines += convert_weights(old, model, merge)
    limit = config.max_position_embeddings
    length = min(source.description.max_seq_length, limit)
    loaded = LoadedModel(model, vocabulary, length)
    lines += target.not_stored(loaded)
    task = stored_task_record(source)
    own_head = not head or kind.__name__ in source.description.kinds
    if task and own_head:
        loaded = dataclasses.replace(loaded, task=_shortened(task, length))
    if task and not (own_head and target.stores_task):
        lines.append(
            f"Not stored: {TASK_FILE}, the settings of {task.task}"
            f"{_own_settings(task)}."
        )
    for line in lines:
        log(line)
    return loaded


def _own_settings(task: TaskRecord) -> str:
    """Returns the settings of a task that a form does not store.

    The length is among the properties of the model.
    """
    values = {"columns": ",".join(task.columns), "pairs": task.pairs}
    defaults = FeatureConfig()
    for name, value in to_dict(task.features).items():
        if name != "max_seq_length" and value != getattr(defaults, name):
            values[name] = value
    found = [f"{name}={value}" for name, value in values.items() if value]
    return f": {', '.join(found)}" if found else ""


def _separate_path(to_path: str, from_path: str, tokenizer: str) -> str:
    """Returns the path to write, apart from the files that are read."""
    require(
        bool(from_path and to_path), "from_path and to_path must not be empty."
    )
    require(
        not hub.is_on_hub(to_path),
        f"to_path={to_path} is on the Hugging Face hub; push_to_hub uploads a "
        "model there.",
    )
    remote = files.is_remote(to_path)
    to_path = to_path.rstrip("/") if remote else os.path.abspath(to_path)
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
    return to_path


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
        f"{to_path} holds {listed(others)}, which no conversion writes "
        "or replaces; move it, or choose another --to_path.",
    )
    require(
        not names or overwrite or format_at(to_path, names) == to_format,
        f"{to_path} exists and is not of the format {to_format}: "
        f"{listed(names)}. --overwrite replaces it.",
    )


def _class(
    source: StoredModel, head: str, target: Format, config: ModelConfig
) -> type[AlbertModel]:
    """Returns the model class of a head, by default that of the source.

    `config` is the architecture to write.
    """
    if not head:
        source.description.require_kind()
    possible = [
        name
        for name, kind in models_by_head().items()
        if kind.__name__ in source.description.kinds
    ]
    require(
        bool(head) or len(possible) == 1,
        f"{source.source} may have any of the heads {', '.join(possible)}; "
        "choose one with --head.",
    )
    kind = lookup(
        models_by_head(), head or possible[0], "head", extensible=True
    )
    for name, head_class in kind.head_classes().items():
        is_own = is_own_pooling(head_class.reads, config)
        pooling = f" with pooling={config.pooling}" * is_own
        message = (
            f"{target.library} has no head {name}{pooling}, so it cannot hold "
            f"an {kind.__name__}; --head=none takes the encoder alone"
        )
        common = override(config, {"pooling": ModelConfig().pooling})
        if target.supports(head_class, common):
            message += ", and fine-tuning with --pooling=first makes one"
        require(target.supports(head_class, config), f"{message}.")
    return kind


def _read(
    source: StoredModel,
    kind: type[AlbertModel],
    target: Format,
    head: str,
    labels: Sequence[str],
    allow_missing: bool,
) -> tuple[AlbertModel, list[str]]:
    """Returns the source's model, of a class that may have other heads."""
    new_heads = source.missing_heads(kind)
    heads = " and ".join(new_heads)
    require(
        allow_missing or not new_heads,
        f"{source.source} has no head {heads}; --allow_missing initialises "
        "one.",
    )
    require(
        bool(labels) or not (new_heads and kind.takes_labels()),
        f"A new head {heads} needs names of its classes: --labels.",
    )
    require(
        allow_missing
        or not target.always_pooler
        or has_pooler(source.weights)
        or kind.reads_pooled_output(source.config),
        f"{source.source} has no pooler, and every model of {target.library} "
        "has one; --allow_missing initialises it.",
    )
    model, lines = pretrained.restore_model(
        kind,
        source,
        labels=labels if new_heads and labels else None,
        allow_missing=allow_missing,
        drop_other_heads=bool(head),
        **({"pooler": True} if target.always_pooler else {}),
    )
    if labels:
        model.labels = labels
    return model, lines


def _shortened(task: TaskRecord, max_seq_length: int) -> TaskRecord:
    shorter = min(task.features.max_seq_length, max_seq_length)
    lengths = {"max_seq_length": shorter}
    if shorter < task.features.max_seq_length:
        # A question leaves its paragraph room, and windows overlap.
        for name in PART_LENGTHS:
            lengths[name] = min(getattr(task.features, name), shorter // 2)
    return dataclasses.replace(task, features=override(task.features, lengths))
