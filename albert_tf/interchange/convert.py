"""A model in the form of another library.

Main entry: `convert`. Where models come from, `find_initial_weights` knows;
where they go to is a row of TARGETS.
"""

import dataclasses
import functools
import os
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)

from albert_tf.config import UserError, lookup, override
from albert_tf.interchange import google_tf1, keras_hub
from albert_tf.interchange.model_directory import (
    FILES,
    MODEL_FILES,
    TOKENIZER_FILES,
    InitialWeights,
    check_vocab_size,
    find_initial_weights,
    replacing_directory,
    save_model_directory,
)
from albert_tf.interchange.task_record import TASK_FILE, read_task_record
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.modeling.heads import HEADS, Head
from albert_tf.modeling.models import (
    AlbertForPretraining,
    AlbertModel,
    model_class,
    models,
)
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.conversion import convert_weights
from albert_tf.modeling.weights.names import file_groups
from albert_tf.modeling.weights.stored_weights import (
    fill_model,
    heads_in,
    stored_arrays,
)
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import Tokenizer

# The released checkpoints' name.
_CHECKPOINT = "model.ckpt-best"


def models_by_head() -> dict[str, type[AlbertModel]]:
    """Returns the model classes by the values of `head`.

    "none" for the encoder alone, "pretraining", or a row of HEADS.
    """
    return {
        "none": AlbertModel,
        "pretraining": AlbertForPretraining,
        **{n: model_class(n) for n, head in HEADS.items() if head.model_name},
    }


@dataclasses.dataclass(frozen=True)
class Target:
    """A form that models can be written in.

    Attributes:
        library: whose it is, for messages.
        write: writes a directory, as `save_model_directory` does.
        files: the names of what it writes.
        lacks: whether there is no such head.
        pooler: whether all its models have a pooler; else it is as the
            source has it.
        left_out: gives a line for each thing that has no place there, from
            model, tokenizer and max_seq_length.
        prepare: raises UserError where something needed is not installed.
        keeps_task: whether `write` takes the `task` that a model is of.
    """

    library: str
    write: Callable[..., None]
    files: frozenset[str]
    left_out: Callable[..., Iterator[str]]
    lacks: Callable[[type[Head]], bool] = lambda head: False
    pooler: bool = True
    prepare: Callable[[], object] = lambda: None
    keeps_task: bool = False


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
    say: Callable[[str], None] = print,
) -> None:
    """Writes the model at `from_path` to the directory `to_path`.

    Nothing is written when anything is wrong.

    Args:
        from_path: what `find_initial_weights` finds.
        to_path: made, or replaced where it holds a model of that form.
        to_format: a row of TARGETS.
        head: a key of `models_by_head`; by default the source's.
        labels: names of the classes; by default the source's.
        tokenizer: a vocabulary's directory or file, by default the source's.
        changes: settings of the architecture that become others.
        merge: how several weights become one, see `convert_weights`.
        allow_missing: whether weights that the source has not may be
            initialised, from Keras' global seed.
        overwrite: whether to replace a model of another form at `to_path`.
        say: is given a line for each thing that is more than a copy.

    Raises:
        UserError: naming each weight that is missing, unexpected, misshapen
            or damaged; for a source, target, head, tokenizer or change that
            does not fit.
    """
    if to_format not in TARGETS:
        raise UserError(
            f"to_format={to_format!r} is not one of {', '.join(TARGETS)}."
        )
    target = TARGETS[to_format]
    if not from_path or not to_path:
        raise UserError("from_path and to_path must not be empty.")
    to_path = _absolute(to_path)
    _check_apart(to_path, from_path, tokenizer)
    _check_free(to_path, to_format, overwrite)
    target.prepare()
    source = find_initial_weights(from_path)
    say(f"From the {source.kind} {source.source}.")
    vocabulary = _tokenizer_of(source, tokenizer)
    kind = _kind_of(source, head)
    _check_heads(kind, target, to_format)
    model = _read(source, kind, labels, bool(head), target, allow_missing, say)
    model = _changed(model, changes or {}, merge, say)
    length = min(_max_seq_length(source), model.config.max_position_embeddings)
    for line in target.left_out(model, vocabulary, length):
        say(line)
    options = {}
    task = source.directory and read_task_record(
        source.directory, source.config.max_position_embeddings
    )
    if task and not head:
        if target.keeps_task:
            shorter = min(task.features.max_seq_length, length)
            options["task"] = dataclasses.replace(
                task,
                features=override(task.features, {"max_seq_length": shorter}),
            )
        else:
            say(
                f"Has no place there: {TASK_FILE}, how the model answers "
                f"{task.task}."
            )
    target.write(
        to_path,
        model,
        vocabulary,
        max_seq_length=length,
        replaces=_REPLACEABLE,
        **options,
    )
    say(f"Wrote {to_path}: {to_format}, {type(model).__name__}.")


def _check_apart(to_path: str, from_path: str, tokenizer: str) -> None:
    """Raises UserError where writing could touch what is read."""
    if _within(to_path, from_path) or _within(from_path, to_path):
        read = from_path
    elif tokenizer and _within(tokenizer, to_path):
        read = tokenizer
    else:
        return
    raise UserError(
        f"to_path={to_path} and {read}, which is read, lie within each other; "
        "write to another directory."
    )


def _absolute(path: str) -> str:
    """Returns a path from the root; a bucket's has no other form."""
    if files.is_remote(path):
        return path.rstrip("/")
    return os.path.abspath(path)


def _within(path: str, directory: str) -> bool:
    """Returns whether a path is a directory or lies in it, links followed."""
    if files.is_remote(path) != files.is_remote(directory):
        return False
    whole = os.path.normpath if files.is_remote(path) else os.path.realpath
    directory = whole(directory)
    return directory == os.path.commonpath([whole(path), directory])


def _check_free(to_path: str, to_format: str, overwrite: bool) -> None:
    """Raises UserError where writing would destroy something."""
    if not files.lexists(to_path):
        return
    if not files.isdir(to_path) or os.path.islink(to_path):
        raise UserError(
            f"{to_path} is a file or a link; name a directory, or what does "
            "not exist."
        )
    names = files.listdir(to_path)
    if others := sorted(set(names) - _REPLACEABLE):
        raise UserError(
            f"{to_path} holds {', '.join(others[:3])}, which no conversion "
            "writes and so none replaces; move it, or choose another --to_path."
        )
    if names and not overwrite and _format_at(to_path, names) != to_format:
        raise UserError(
            f"{to_path} exists and holds something else than {to_format}: "
            f"{', '.join(names[:3])}. --overwrite replaces it."
        )


def _format_at(directory: str, names: Sequence[str]) -> str | None:
    """Returns the row of TARGETS that a directory holds, and nothing else."""
    if not set(MODEL_FILES) - set(names):
        # Files of the same names: ours says what transformers cannot.
        values = read_json(os.path.join(directory, pretrained.CONFIG_FILE))
        form = "model_directory" if "albert_tf" in values else "huggingface"
        return form if TARGETS[form].files.issuperset(names) else None
    for form in ("google_tf1", "keras_hub"):
        if TARGETS[form].files.issuperset(names):
            return form
    return None


def _tokenizer_of(source: InitialWeights, given: str) -> Tokenizer:
    """Returns the tokenizer of the source, or the one given instead."""
    place = given or source.tokenizer_place
    tokenizer = load_tokenizer(place)
    check_vocab_size(source.config, tokenizer, place)
    return tokenizer


def _heads_in(source: InitialWeights) -> tuple[str, ...]:
    """Returns the keys of `models_by_head` that the source may have."""
    if source.description is None:
        return google_tf1.head_of(source.stored.shapes) or ("none",)
    kind = models()[source.description.kind]
    return tuple(n for n, other in models_by_head().items() if other is kind)


def _kind_of(source: InitialWeights, head: str) -> type[AlbertModel]:
    found = _heads_in(source)
    if not head and len(found) > 1:
        raise UserError(
            f"{source.source} may have any of the heads {', '.join(found)}; "
            "say with --head which it is."
        )
    name = head or found[0]
    return lookup(models_by_head(), name, "head")


def _check_heads(
    kind: type[AlbertModel], target: Target, to_format: str
) -> None:
    for name, head in kind.head_classes().items():
        if target.lacks(head):
            raise UserError(
                f"{target.library} has no head {name}, so {to_format} cannot "
                f"hold an {kind.__name__}; --head=none takes the encoder "
                "alone."
            )


def _read(
    source: InitialWeights,
    kind: type[AlbertModel],
    labels: Sequence[str],
    other_heads: bool,
    target: Target,
    allow_missing: bool,
    say: Callable[[str], None],
) -> AlbertModel:
    """Returns the source's model, of a class that may have other heads."""
    classes = models_by_head()
    declared = {h for n in _heads_in(source) for h in classes[n].head_names}
    held = declared | heads_in(source.stored, declared)
    new_heads = tuple(name for name in kind.head_names if name not in held)
    if new_heads and not allow_missing:
        raise UserError(
            f"{source.source} has no head {' and '.join(new_heads)}; "
            "--allow_missing initialises one."
        )
    arguments: dict = {"pooler": True, "head_options": {}}
    if source.description:
        arguments = pretrained.constructor_arguments(
            source.description, source.stored
        )
        if kind.__name__ != source.description.kind:
            arguments["head_options"] = {}
    arguments["labels"] = _labels(source, kind, labels, new_heads)
    needed = kind.reads_pooled_output()
    if target.pooler and not (arguments["pooler"] or needed or allow_missing):
        raise UserError(
            f"{source.source} has no pooler, and every model of "
            f"{target.library} has one; --allow_missing initialises it. What "
            "the source has of heads does not read it."
        )
    arguments["pooler"] |= target.pooler or needed
    model = kind(source.config, **arguments)
    filled = fill_model(
        model,
        source.stored,
        new_heads=new_heads,
        drop_other_heads=other_heads,
        allow_missing=allow_missing,
    )
    for line in filled.lines():
        say(line)
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
    if new_heads:
        raise UserError(
            f"A new head {' and '.join(new_heads)} needs names of its "
            "classes: --labels."
        )
    if source.description:
        return source.description.labels
    number, *_ = source.stored.shapes["output_weights"]
    return [f"LABEL_{n}" for n in range(number)]


def _changed(
    model: AlbertModel,
    changes: Mapping[str, object],
    merge: str,
    say: Callable[[str], None],
) -> AlbertModel:
    """Returns the model in another shape, itself where nothing changes."""
    config = override(model.config, changes)
    if config == model.config:
        return model
    other = type(model)(
        config,
        labels=model.labels,
        pooler=model.encoder.pooler is not None,
        head_options=model.head_options,
    )
    for line in convert_weights(model, other, merge):
        say(line)
    return other


def _max_seq_length(source: InitialWeights) -> int:
    if source.description:
        return source.description.max_seq_length
    return source.config.max_position_embeddings


def _nothing_left_out(*_: object) -> Iterator[str]:
    return iter(())


def _length_left_out(model: AlbertModel, max_seq_length: int) -> Iterator[str]:
    longest = model.config.max_position_embeddings
    if max_seq_length != longest:
        yield (
            f"Has no place there: max_seq_length={max_seq_length}; it comes "
            f"back as {longest}."
        )


def _left_out_by_transformers(
    model: AlbertModel, tokenizer: Tokenizer, max_seq_length: int
) -> Iterator[str]:
    config = model.config
    groups = file_groups(config)
    if config.sharing != "all" or groups != config.num_hidden_groups:
        yield (
            f"Has no place there: sharing={config.sharing} of "
            f"num_hidden_groups={config.num_hidden_groups}; it comes back as "
            f"sharing=all of num_hidden_groups={groups}."
        )
    yield from _length_left_out(model, max_seq_length)


def _left_out_by_google(
    model: AlbertModel, tokenizer: Tokenizer, max_seq_length: int
) -> Iterator[str]:
    labels = model.labels or []
    if labels != [f"LABEL_{n}" for n in range(len(labels))]:
        yield f"Have no place there: the names of the classes, {labels}."
    for name, value in model.head_options.items():
        yield f"Has no place there: {name}={value}."
    yield from _length_left_out(model, max_seq_length)


def _google_lacks(head: type[Head]) -> bool:
    names = [google for _, google, _ in head.weight_names]
    return not names or None in names


def _write_google_tf1(
    directory: str,
    model: AlbertModel,
    tokenizer: Tokenizer,
    *,
    max_seq_length: int,
    replaces: Collection[str],
) -> None:
    """Writes a checkpoint with the names of the released folders.

    The vocabulary keeps our name: the original's flags name its path.
    """
    arrays = stored_arrays(model, "google")
    values = google_tf1.config_to_json(
        model.config, file_groups=file_groups(model.config, "google")
    )
    index = f"{_CHECKPOINT}.index"
    with replacing_directory(
        directory, last=index, replaces=replaces
    ) as temporary:
        tokenizer.save(temporary, model.config.max_position_embeddings)
        write_json(os.path.join(temporary, google_tf1.CONFIG_FILE), values)
        google_tf1.write_checkpoint(
            os.path.join(temporary, _CHECKPOINT), arrays
        )


TARGETS: dict[str, Target] = {
    "model_directory": Target(
        library="albert_tf",
        write=save_model_directory,
        files=FILES,
        left_out=_nothing_left_out,
        pooler=False,
        keeps_task=True,
    ),
    "huggingface": Target(
        library="transformers",
        write=functools.partial(save_model_directory, own_settings=False),
        files=FILES - {TASK_FILE},
        left_out=_left_out_by_transformers,
        lacks=lambda head: head.transformers_model == "AlbertModel",
        pooler=False,
    ),
    "google_tf1": Target(
        library="google-research/albert",
        write=_write_google_tf1,
        files=frozenset(
            (
                *TOKENIZER_FILES,
                google_tf1.CONFIG_FILE,
                "checkpoint",
                f"{_CHECKPOINT}.index",
                f"{_CHECKPOINT}.data-00000-of-00001",
            )
        ),
        left_out=_left_out_by_google,
        lacks=_google_lacks,
    ),
    "keras_hub": Target(
        library="KerasHub's AlbertBackbone",
        write=keras_hub.save_preset,
        files=keras_hub.FILES,
        left_out=keras_hub.left_out,
        lacks=lambda head: True,
        prepare=keras_hub.imported,
    ),
}
# Models of any form, and nothing else.
_REPLACEABLE = frozenset().union(*(target.files for target in TARGETS.values()))
