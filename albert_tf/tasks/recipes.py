"""RECIPES: the settings that fine-tuning starts from, one row each."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from albert_tf.config import ModelConfig
from albert_tf.tasks.base import Task
from albert_tf.tasks.kinds.texts import TextKind

# The width of the smallest model of the paper, and of released weights.
PAPER_WIDTH = 768
# Up to so many examples a small model needs more epochs, and can take a higher
# rate.
FEW_EXAMPLES = 20_000
_MANY_RATE, _FEW_RATE, _FEW_TEXTS_RATE = 1e-4, 3e-4, 5e-4
_BATCH_SIZE = 32


class Recipe(NamedTuple):
    """Settings by name, and where they come from, in words."""

    settings: Mapping[str, Any]
    source: str


def _paper(task: Task, changes: Mapping[str, Any]) -> Recipe:
    return Recipe({**task.settings, **changes}, f"of the paper for {task.name}")


def _fitting(task: Task, model: ModelConfig, read: Callable) -> Recipe:
    """Returns the paper's for models of its sizes, others for small ones.

    `read` returns the training examples, on whose number the settings depend.
    (RESULTS.md, "Settings of fine-tuning for small models", has the search.)
    """
    width = model.hidden_size
    if width >= PAPER_WIDTH:
        return _paper(task, task.settings_v2)
    examples = read()
    few = len(examples) <= FEW_EXAMPLES
    settings: dict[str, Any] = {
        "learning_rate": _FEW_RATE if few else _MANY_RATE,
        "num_train_epochs": 5.0 if few else 3.0,
        "train_batch_size": _BATCH_SIZE,
        # Once in an epoch: the best model is kept.
        "eval_steps": min(-(-len(examples) // _BATCH_SIZE), 500),
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout_prob": 0.1,
    }
    if isinstance(task.kind, TextKind):
        if task.kind.are_pairs(examples):
            settings["pooling"] = "pair_mean"
        else:
            settings["pooling"] = "mean"
            if few:
                settings["learning_rate"] = _FEW_TEXTS_RATE
    # What follows from the task's texts, not from the model.
    if "max_seq_length" in task.settings:
        settings["max_seq_length"] = task.settings["max_seq_length"]
    return Recipe(
        settings, f"for a model {width} wide and {len(examples):,} examples"
    )


# Functions of the task, the architecture, and a function that reads the
# training examples.
RECIPES: dict[str, Callable[[Task, ModelConfig, Callable], Recipe]] = {
    "auto": _fitting,
    "v1": lambda task, model, read: _paper(task, {}),
    "v2": lambda task, model, read: _paper(task, task.settings_v2),
    "none": lambda task, model, read: Recipe({}, ""),
}
