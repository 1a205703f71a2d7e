"""The model card of a run: what its log says of its model, and the file."""

import os
from collections.abc import Callable
from typing import Any

from albert_tf.config import Log, optional_page
from albert_tf.interchange.model_card import (
    CARD_FILE,
    CardFacts,
    is_unedited,
    model_card,
)
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.io import files
from albert_tf.rundir import run_results
from albert_tf.rundir.run_directory import recorded_run
from albert_tf.training.run_state import MODEL

# Settings of a run that a card reports, by section of its configuration.
_REPORTED = {
    "optimizer": ("optimizer", "learning_rate", "num_warmup_steps"),
    "training": ("num_train_steps", "train_batch_size", "precision", "seed"),
}
# Parts of the names of a log's metrics that say nothing of the model by itself,
# or have seen the answers.
_NOT_REPORTED = (
    "loss",
    "thresh",
    "temperature",
    "best_",
    "majority_",
    "mean_guess_",
    "most_frequent_",
)


def write_card(run_dir: str, load: Callable[[], LoadedModel], log: Log) -> None:
    """Writes README.md into a run directory, the card of the model in it.

    One that somebody has written or edited stays. Whatever fails is logged:
    the run itself is complete.
    """
    path = os.path.join(run_dir, CARD_FILE)
    with optional_page(path, log, "the model is complete"):
        if files.isfile(path):
            with files.open(path, "r") as file:
                if not is_unedited(file.read()):
                    log(f"{path} was edited, and stays as it is.")
                    return
        facts = CardFacts(
            os.path.basename(os.path.normpath(run_dir)),
            path=os.path.join(run_dir, MODEL),
            **facts_of_run(run_dir),
        )
        files.write(path, model_card(load(), facts).encode())


def facts_of_run(run_dir: str) -> dict[str, Any]:
    """Returns the metrics and settings of a run, as fields of CardFacts."""
    metrics = {
        name: value
        for name, value in run_results.result(run_dir).items()
        if isinstance(value, float)
        and not any(word in name for word in _NOT_REPORTED)
    }
    recorded = recorded_run(run_dir)["config"]
    training = {
        name: recorded[section][name]
        for section, names in _REPORTED.items()
        for name in names
    }
    return {"metrics": metrics, "training": training}
