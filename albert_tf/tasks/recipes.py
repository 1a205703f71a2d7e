"""RECIPES: the settings that fine-tuning starts from, one row each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.config import (
    TASK_SETTINGS,
    FinetuneConfig,
    ModelConfig,
    given_settings,
    override,
)
from albert_tf.tasks.base import Task
from albert_tf.tasks.kinds.texts import TextKind

# The width of the smallest model of the paper, and of released weights.
PAPER_WIDTH = 768
# Up to so many examples a small model needs more epochs, and can take a higher
# rate.
FEW_EXAMPLES = 20_000
_MANY_RATE, _FEW_RATE, _FEW_TEXTS_RATE = 1e-4, 3e-4, 5e-4
# The width of models that take the rates for few examples; wider ones, in
# proportion, take less.
_NARROW = 128
_BATCH_SIZE = 32
# For a task that the paper has no settings for, with models of its sizes.
_OTHER_TASK = {
    "learning_rate": 2e-5,
    "num_train_epochs": 3.0,
    "train_batch_size": _BATCH_SIZE,
}
# The factor for adapters of small models, whose rates are high already.
_SMALL_LORA_FACTOR = 3.0


# Settings of the length of training; a recipe's warm-up is for its own length.
_LENGTHS = {"num_train_epochs", "num_train_steps"}


class Recipe(NamedTuple):
    """Settings by name, and where they come from, in words.

    Low-rank adapters learn at `lora_factor` times the rate; that of the paper's
    rates is usual (arXiv:2106.09685 takes 2e-4 to 5e-4 for RoBERTa). Dev is
    evaluated in every epoch of `num_examples`; 0: as the flags' default is.
    """

    settings: Mapping[str, Any]
    source: str
    num_examples: int = 0
    lora_factor: float = 10.0


def _with_own(settings: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Returns a recipe's settings with the task's own in their place."""
    replaced = set(task.settings)
    if not _LENGTHS.isdisjoint(replaced):
        replaced |= {*_LENGTHS, "num_warmup_steps"}
    kept = {n: v for n, v in settings.items() if n not in replaced}
    return kept | dict(task.settings)


def _paper(
    task: Task, changes: Mapping[str, Any], examples: Sequence[Any]
) -> Recipe:
    settings = _with_own({**task.paper_settings, **changes}, task)
    source = f"of the paper for {task.name}"
    return Recipe(settings, source, len(examples))


def _fitting(
    task: Task,
    model: ModelConfig,
    examples: Sequence[Any],
    *,
    ngrams: bool = True,
) -> Recipe:
    """Returns the paper's for models of its sizes, others for small ones.

    Heads of small models read n-grams beside the states, if `ngrams`.
    (RESULTS.md, "Settings of fine-tuning for small models", has the search.)
    """
    width = model.hidden_size
    if width >= PAPER_WIDTH:
        if task.paper_settings:
            # Models of version 2 were pretrained without dropout.
            has_dropout = model.hidden_dropout_prob > 0
            changes = {} if has_dropout else task.settings_v2
            return _paper(task, changes, examples)
        other = _with_own(_OTHER_TASK, task)
        return Recipe(other, f"for a model {width} wide", len(examples))
    few = len(examples) <= FEW_EXAMPLES
    is_text = isinstance(task.kind, TextKind)
    is_pair = is_text and task.kind.are_pairs(examples)
    rate = _MANY_RATE
    if few:
        rate = _FEW_TEXTS_RATE if is_text and not is_pair else _FEW_RATE
        # Above _FEW_RATE the states of a model that was pretrained for longer
        # are lost in the first steps.
        rate = min(rate * _NARROW / width, _FEW_RATE)
    settings: dict[str, Any] = {
        "learning_rate": float(f"{rate:.2g}"),
        "num_train_epochs": 5.0 if few else 3.0,
        "train_batch_size": _BATCH_SIZE,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout_prob": 0.1,
    }
    if is_text:
        pooling = "pair_mean" if is_pair else "mean"
        settings["pooling"] = pooling + ("_ngrams" if ngrams else "")
    # The length follows from the task's texts, not from the model.
    if "max_seq_length" in task.paper_settings:
        settings["max_seq_length"] = task.paper_settings["max_seq_length"]
    return Recipe(
        _with_own(settings, task),
        f"for a model {width} wide and {len(examples):,} examples",
        len(examples),
        _SMALL_LORA_FACTOR,
    )


# Functions of the task, the architecture, and the training examples.
RECIPES: dict[str, Callable[[Task, ModelConfig, Sequence[Any]], Recipe]] = {
    "auto": _fitting,
    # This one compares models: n-grams would hide much of what they have
    # learned.
    "encoder": lambda task, model, examples: _fitting(
        task, model, examples, ngrams=False
    ),
    "v1": lambda task, model, examples: _paper(task, {}, examples),
    "v2": lambda task, model, examples: _paper(
        task, task.settings_v2, examples
    ),
    "none": lambda task, model, examples: Recipe({}, ""),
}


def with_recipe(
    config: FinetuneConfig, model_changes: Mapping[str, Any], recipe: Recipe
) -> tuple[FinetuneConfig, dict[str, Any], str]:
    """Returns settings with those of the recipe that were not given.

    The defaults, then the recipe's, then what was given (`given_settings`).

    Args:
        config: settings of fine-tuning.
        model_changes: given settings of the architecture (TASK_SETTINGS).
        recipe: its settings are of both.

    Returns:
        The configuration, the changes to the architecture, and a line on the
        settings of the recipe that are used; empty without any.
    """
    given = given_settings(config)
    replaced = {*given, *model_changes}
    if not _LENGTHS.isdisjoint(given):
        replaced |= {*_LENGTHS, "num_warmup_steps"}
    if not {"warmup_proportion", "num_warmup_steps"}.isdisjoint(given):
        replaced.add("num_warmup_steps")
    settings = dict(recipe.settings)
    if recipe.num_examples:
        defaults = {"train_batch_size": config.training.train_batch_size}
        batch_size = (defaults | settings | given)["train_batch_size"]
        rows = recipe.num_examples * (1 + config.finetuning.double_unordered)
        # The best evaluation's model is kept.
        steps = min(-(-rows // batch_size), 500)
        settings.setdefault("eval_steps", steps)
    known = {n: v for n, v in settings.items() if n not in replaced}
    if config.finetuning.lora_rank and "learning_rate" in known:
        rate = known["learning_rate"] * recipe.lora_factor
        known["learning_rate"] = float(f"{rate:g}")
    changes = {n: v for n, v in known.items() if n not in TASK_SETTINGS}
    # A given setting also decides others, such as those of another run.
    if given.get("num_train_epochs"):
        changes |= {"num_train_steps": 0}
    if given.get("num_warmup_steps") == 0:
        changes |= {"warmup_proportion": 0.0}
    elif "num_warmup_steps" in replaced:
        changes |= {"num_warmup_steps": 0}
    changes = {n: v for n, v in changes.items() if n not in given}
    of_model = {n: v for n, v in known.items() if n in TASK_SETTINGS}
    values = ", ".join(f"{name}={value}" for name, value in known.items())
    line = f"Settings {recipe.source}: {values}." if values else ""
    if known.get("pooling", "first") != "first":
        line += " Other libraries hold heads of --pooling=first alone."
    return override(config, changes), {**of_model, **model_changes}, line
