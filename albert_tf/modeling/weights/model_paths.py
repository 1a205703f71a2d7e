"""What the path of a model means: `local_model`."""

import os

from albert_tf.config import UserError, require
from albert_tf.io import files, hub
from albert_tf.modeling.weights import (
    adapters,
    keras_hub_preset,
    pretrained,
    sentence_modules,
)
from albert_tf.modeling.weights.weights_file import (
    GRAPH,
    INDEX_SUFFIX,
    foreign_weights,
)
from albert_tf.text import tokenizer

# Files that are downloaded of a model; large ones are in several.
FILES = (
    *(pretrained.CONFIG_FILE, pretrained.WEIGHTS_FILE),
    *(f"{pretrained.WEIGHTS_FILE}{INDEX_SUFFIX}", "model-*-of-*.safetensors"),
    *tokenizer.HUB_FILES,
    *sentence_modules.HUB_FILES,
    *keras_hub_preset.HUB_FILES,
    # The settings of a task, where this library wrote the model.
    "task.json",
    # Beside a model it is refused.
    adapters.CONFIG_FILE,
)
_TORCH_FILES = (
    *("pytorch_model.bin", f"pytorch_model.bin{INDEX_SUFFIX}"),
    "pytorch_model-*-of-*.bin",
)
# One of these is in a model's directory.
_WEIGHTS = {
    name + suffix
    for name in (pretrained.WEIGHTS_FILE, "pytorch_model.bin")
    for suffix in ("", INDEX_SUFFIX)
} | {keras_hub_preset.WEIGHTS_FILE}
_ADAPTER_FILES = (adapters.CONFIG_FILE, adapters.WEIGHTS_FILE)

# Converts a model on the hub, whatever the form of its weights.
_CONVERT = (
    'python -c "import transformers as t; n, d = {!r}, {!r}; '
    "t.AutoTokenizer.from_pretrained(n).save_pretrained(d); getattr(t, "
    "t.AutoConfig.from_pretrained(n).architectures[0]).from_pretrained(n{})"
    '.save_pretrained(d)"'
)


def local_model(path: str) -> str:
    """Returns the model directory that a path means.

    That is the one of a run directory, or it is downloaded from the hub. Any
    other path is returned as it is.

    Raises:
        UserError: where the hub has no such model, or not in a form that is
            read here, and for a directory of several models.
    """
    directory = _from_hub(path) if hub.is_on_hub(path) else _in_run(path)
    _check_contents(directory, path if hub.is_on_hub(path) else directory)
    return directory


def _from_hub(path: str) -> str:
    # Torch's are downloaded where the repository has no others.
    for names in (FILES, (*FILES, *_TORCH_FILES)):
        directory = hub.download(path, names)
        present = os.listdir(directory) if os.path.isdir(directory) else []
        if pretrained.CONFIG_FILE in present and _WEIGHTS.intersection(present):
            return directory
        if adapters.CONFIG_FILE in present:
            # Refused by `_check_contents`.
            return directory
    raise _not_a_model(hub.parse(path))


def _in_run(path: str) -> str:
    """Returns the model directory of a run directory, else the path."""
    inner = os.path.join(path, "model")
    if _has_model(inner):
        return inner
    # Written by `bin.finetune --num_runs` and `--folds`.
    for name in ("run-1", "fold-1"):
        first = os.path.join(path, name)
        require(
            not files.isdir(os.path.join(first, "model")),
            f"{path} holds several runs; name one of them, such as {first}.",
        )
    return path


def _has_model(directory: str) -> bool:
    return files.isfile(os.path.join(directory, pretrained.CONFIG_FILE))


def _check_contents(directory: str, name: str) -> None:
    """Raises UserError for what may be taken for a model directory.

    A directory of models, such as the checkpoints of transformers' Trainer or
    the snapshots in the cache of the hub, and one of adapters. `name` is what
    messages call it.
    """
    sentence_modules.refuse_inner_encoder(directory)
    adapters_file = os.path.join(directory, adapters.CONFIG_FILE)
    has_adapters = files.isfile(adapters_file)
    if _has_model(directory):
        require(
            not has_adapters,
            f"{name} holds adapters beside the model, which transformers adds "
            "to it; let them and their adapter_config.json have a directory "
            "of their own (in Python load_adapters adds them).",
        )
        return
    require(
        not has_adapters,
        f"{name} holds adapters of a model, not the model: in Python "
        "from_pretrained opens that, and its load_adapters adds these.",
    )
    found = []
    for parent in (directory, os.path.join(directory, "snapshots")):
        if files.isdir(parent):
            paths = [os.path.join(parent, n) for n in files.listdir(parent)]
            found += [path for path in paths if _has_model(path)]
    # By their numbers, of which the last may be the best.
    found.sort(key=lambda path: (len(path), path))
    require(
        not found,
        f"{directory} has no {pretrained.CONFIG_FILE}, but {len(found)} of its "
        f"directories have; name one of them, such as {''.join(found[-1:])}.",
    )


def local_adapters(path: str) -> str:
    """Returns the directory of adapters, which are downloaded from the hub."""
    if not hub.is_on_hub(path):
        return path
    directory = hub.download(path, _ADAPTER_FILES)
    if files.exists(os.path.join(directory, adapters.WEIGHTS_FILE)):
        return directory
    return hub.download(path, (*_ADAPTER_FILES, "adapter_model.bin"))


def hub_name(path: str, directory: str) -> str:
    """Returns `owner/name@commit` of a model that was downloaded."""
    return f"{hub.parse(path).repository}@{os.path.basename(directory)}"


def _not_a_model(model: hub.HubModel) -> UserError:
    """Returns the error for a repository without a model to read."""
    names = hub.contents(model).names
    foreign = foreign_weights(names)
    is_graph = foreign is not None and foreign.fault == GRAPH
    if pretrained.CONFIG_FILE not in names or not foreign or is_graph:
        needed = f"{pretrained.CONFIG_FILE} and {pretrained.WEIGHTS_FILE}"
        return UserError(
            f"{model} holds {', '.join(names[:8]) or 'no files'}; a model "
            f"needs {needed}."
        )
    target = model.repository.partition("/")[2]
    option = foreign.option
    if model.revision:
        option += f", revision={model.revision!r}"
    command = _CONVERT.format(model.repository, target, option)
    return UserError(
        f"{model} has no {pretrained.WEIGHTS_FILE}: its {foreign.name} "
        f"{foreign.fault}. One of its pull requests may have been converted "
        f"({hub.SCHEME}{model.repository}@refs/pr/1); or, if you trust it, "
        f"{command} in an environment with torch and transformers 4 writes the "
        f"directory {target}."
    )
