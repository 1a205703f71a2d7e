"""Run directories: ownership, changed settings and the lock."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from albert_tf.config import (
    EmbeddingConfig,
    FinetuneConfig,
    ModelConfig,
    PretrainConfig,
    RuntimeConfig,
    UserError,
    differences,
    listed,
    override,
    require,
    setting_fields,
    to_dict,
    without_removed,
)
from albert_tf.io import files, locks
from albert_tf.io.json_files import read_json, write_json

CONFIG = "config.json"
_LOCK = "lock"
# Key of the settings that changed after the start, in config.json.
_CHANGES = "changes"
_IN_USE_HINT = "End that job first, or give another --run_dir."
# The class of the settings of each job, as in config.json.
CONFIGS: dict[str, type] = {
    "pretrain": PretrainConfig,
    "finetune": FinetuneConfig,
    "embeddings": EmbeddingConfig,
}
# The work of each job, for messages.
_WORK = {
    "pretrain": "pretraining",
    "finetune": "fine-tuning",
    "embeddings": "training embeddings",
}
# Key of the numbers of examples, which earlier versions did not record.
NUM_EXAMPLES = "num_examples"
# Inputs that have a digest in config.json, for messages.
_WITH_DIGESTS = {
    "train_examples": "the training data",
    "train_data": "the training data",
    "learned_pairs": "the training data",
    "dev_examples": "the dev data",
    "eval_data": "the held-out data",
    "held_out_pairs": "the held-out data",
    "tokenizer": "the tokenizer",
    "init_from": "--init_from",
}
_STEPS = "config.training.num_train_steps"
_OF_STEPS = (
    "config.optimizer.num_warmup_steps",
    "config.finetuning.num_train_epochs",
    "config.embeddings.num_train_epochs",
)
# The most differences that a message lists.
_MOST_DIFFERENCES = 5


def recorded_run(run_dir: str) -> dict[str, Any]:
    """Returns the config.json of a run."""
    return read_json(os.path.join(run_dir, CONFIG))


def extended(config: Any, runtime: RuntimeConfig) -> Any:
    """Returns the configuration with `extend_to_steps` applied.

    Raises:
        UserError: when that is not more than the steps of the run.
    """
    steps = config.training.num_train_steps
    if not runtime.extend_to_steps:
        return config
    require(
        runtime.extend_to_steps > steps,
        f"extend_to_steps={runtime.extend_to_steps} is not more than the "
        f"{steps} steps of the run.",
    )
    return override(config, {"num_train_steps": runtime.extend_to_steps})


def claim(
    run_dir: str, description: dict, *, extends: bool = False
) -> dict[str, list]:
    """Creates the run directory, or checks that it holds the same run.

    `description`, everything that determines the run, is its `config.json`; a
    setting that an earlier version's lacks has its default. num_train_steps
    may grow if the command `extends` the run.

    Returns:
        The changed settings: by name, the value in `config.json` and the new
        one, for `record_changes`.

    Raises:
        UserError: when the directory holds another job, another configuration
            (with the first differences) or something else, or cannot be
            written; when a run that does not exist is to be extended.
    """
    path = os.path.join(run_dir, CONFIG)
    with _as_user_error(run_dir):
        if files.isfile(path):
            return _changes(run_dir, description, read_json(path), extends)
        _refuse_foreign(run_dir)
        require(
            not extends,
            f"extend_to_steps is for a started run, and {run_dir} "
            "holds none; give --num_train_steps.",
        )
        files.makedirs(run_dir)
        write_json(path, description)
    return {}


def _changes(
    run_dir: str, description: dict, recorded: dict, extends: bool
) -> dict[str, list]:
    """Returns the allowed changes; raises UserError for others."""
    job = description["job"]
    theirs = _WORK.get(recorded.get("job", ""), "another program")
    require(
        recorded.get("job") == job,
        f"{run_dir} holds a run of {theirs}, and this is {_WORK[job]}; choose "
        "another --run_dir.",
    )
    recorded.pop(_CHANGES, None)
    config_type = CONFIGS[job]
    # An earlier version's lacks the settings that came since.
    defaults = {"config": to_dict(config_type())}
    if "model" in description:
        defaults["model"] = to_dict(ModelConfig())
    if NUM_EXAMPLES in description:
        defaults[NUM_EXAMPLES] = description[NUM_EXAMPLES]
    recorded = _completed(recorded, defaults)
    recorded["config"] = {
        name: without_removed(section)
        for name, section in recorded["config"].items()
    }
    before, after = (
        whole["config"]["training"]["num_train_steps"]
        for whole in (recorded, description)
    )
    fields = setting_fields(config_type)
    changes = {}
    for section, ours in description["config"].items():
        theirs = recorded["config"][section]
        for name, new in ours.items():
            may_change = fields[name].metadata["may_change"]
            if extends and name == "num_train_steps":
                may_change = True
            if may_change and theirs[name] != new:
                changes[name] = [theirs[name], new]
                theirs[name] = new
    lines = differences(description, recorded)
    if extends and after < before:
        lines = [f"it has {before} steps already"]
    if lines:
        hint = "" if extends else _extension(lines, before, after)
        raise UserError(
            f"{run_dir} holds a run of another configuration "
            f"({_first(lines)}); give the same settings and data to resume "
            f"it{hint}, or another --run_dir."
        )
    return changes


def _extension(lines: list[str], before: int, after: int) -> str:
    """Returns advice to resume with --extend_to_steps; "" where it fails."""
    names = {line.partition(":")[0] for line in lines}
    if after < before and names == {_STEPS}:
        return f", or add --extend_to_steps={before}"
    # Steps, warm-up and epochs decide one another.
    if after > before and names <= {_STEPS, *_OF_STEPS}:
        return f", the same with --extend_to_steps={after} to extend it"
    return ""


def _first(lines: list[str]) -> str:
    """Returns the first of many differences.

    The task, how dev is held out, what has a digest, numbers of examples, then
    the settings; digests not where the first two change them.
    """
    first: tuple[str, ...] = ("task: ", "held_out")
    are_others = any(line.startswith(first) for line in lines)
    found = []
    for line in lines:
        name = _WITH_DIGESTS.get(line.partition(":")[0])
        if not name:
            found.append(line)
        elif not are_others:
            found.append(f"{name} changed since the run began")
    first += (*_WITH_DIGESTS.values(), NUM_EXAMPLES)
    found.sort(key=lambda line: [not line.startswith(f) for f in first])
    return listed(found, _MOST_DIFFERENCES, separator="; ", longest=None)


def _completed(values: dict, defaults: dict) -> dict:
    """Returns `values` with `defaults` for what they lack."""
    completed = {**defaults, **values}
    for name, default in defaults.items():
        if isinstance(default, dict):
            completed[name] = _completed(completed[name], default)
    return completed


def record_changes(
    run_dir: str, description: dict, changes: dict[str, list], step: int
) -> None:
    """Rewrites config.json with the result of `claim`, and the step before."""
    path = os.path.join(run_dir, CONFIG)
    with _as_user_error(run_dir):
        earlier = read_json(path).get(_CHANGES, [])
        change = {"after_step": step, "settings": changes}
        write_json(path, {**description, _CHANGES: [*earlier, change]})


@contextlib.contextmanager
def locked(run_dir: str) -> Iterator[None]:
    """Keeps every other job off a run directory, which is made if missing.

    Raises:
        UserError: when another job holds it (see `locks.locked`), or it
            cannot be written.
    """
    with contextlib.ExitStack() as stack:
        with _as_user_error(run_dir):
            _refuse_foreign(run_dir)
            files.makedirs(run_dir)
            lock = locks.locked(os.path.join(run_dir, _LOCK), _IN_USE_HINT)
            stack.enter_context(lock)
        yield


def check_usable(run_dir: str) -> None:
    """Raises UserError where it is known early that a job cannot use it.

    On a disk: another job holds it, or it is not a run directory.
    """
    if not files.is_remote(run_dir):
        with _as_user_error(run_dir):
            _refuse_foreign(run_dir)
    locks.check_free(os.path.join(run_dir, _LOCK), _IN_USE_HINT)


@contextlib.contextmanager
def _as_user_error(run_dir: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{run_dir} cannot be used as run directory: {error.strerror}. "
            "Give a --run_dir that can be written."
        ) from None


def _refuse_foreign(run_dir: str) -> None:
    """Raises UserError for a path that is not a run directory."""
    if not files.exists(run_dir):
        return
    names = files.listdir(run_dir) if files.isdir(run_dir) else [""]
    # A job that was killed before it wrote config.json left only these.
    if CONFIG not in names and any(
        name != _LOCK and files.unfinished(name) != CONFIG for name in names
    ):
        raise UserError(
            f"{run_dir} exists and is not a run directory (it has no "
            f"{CONFIG}); give another --run_dir."
        )
