"""The report of a run that has ended, from its directory and its data."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import (
    FinetuneConfig,
    PretrainConfig,
    from_dict,
    require,
)
from albert_tf.inputs.input_pipeline import PretrainingBatches, check_shards
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.jobs.evaluate import NUM_SAMPLES, held_out_samples
from albert_tf.jobs.finetuning_data import held_out_examples, read_examples
from albert_tf.jobs.pretraining_verdict import pretraining_verdict
from albert_tf.jobs.task_evaluation import task_evaluator
from albert_tf.prediction.predictor import Predictor
from albert_tf.records.shards import open_shards
from albert_tf.report.finetuning_page import (
    PREDICTION_BATCH,
    FinetunedRun,
    finetuning_page,
)
from albert_tf.report.page import Page
from albert_tf.report.pretraining_page import (
    PretrainedRun,
    pretraining_page,
    shards_row,
)
from albert_tf.report.sample_predictions import MaskedSample
from albert_tf.rundir.recorded_division import (
    RecordedDivision,
    divided_as_in_training,
)
from albert_tf.rundir.run_directory import recorded_run
from albert_tf.rundir.run_results import result
from albert_tf.tasks.base import Task
from albert_tf.tasks.feature_building import FeatureBuilder, examples_digest
from albert_tf.tasks.splits import TRAIN, folded


def finetuning_report(
    run_dir: str,
    task: Task,
    data_dir: str,
    *,
    workers: int = 1,
    cache_dir: str = "",
) -> Page:
    """Returns the report of a fine-tuning run, a fold's too.

    Raises:
        UserError: for a run of another task, or of other data.
    """
    recorded = recorded_run(run_dir)
    require(
        recorded.get("task") == task.name,
        f"{run_dir} is a run of {recorded.get('task', recorded['job'])}; "
        f"expected one of {task.name}.",
    )
    division = recorded.get("held_out") or {}
    if "folds" in division:
        task = folded(task, **division)
    else:
        recorded_division = RecordedDivision.of_run(run_dir, recorded)
        task = divided_as_in_training(
            task, [recorded_division], data_dir, print
        )
    examples = read_examples(task, data_dir, print)
    _check_data(recorded, examples, data_dir)
    loaded = load_model_directory(run_dir)
    settings = from_dict(FinetuneConfig, recorded["config"], run_dir)
    builder = FeatureBuilder(
        task.kind,
        loaded.tokenizer,
        settings.features,
        loaded.labels or [],
        workers,
        cache_dir,
        print,
    )
    held_out = held_out_examples(settings, task, examples, builder)
    features = {TRAIN: builder.build(examples[TRAIN], training=True)}
    for suffix, split in task.evaluated.items():
        examples[split] = held_out[suffix].examples
        features[split] = held_out[suffix].features
    evaluator = task_evaluator(task, loaded.model)
    scored = {s: part.score(evaluator)[1] for s, part in held_out.items()}
    predictor = Predictor(loaded, PREDICTION_BATCH)
    return finetuning_page(
        FinetunedRun(run_dir, task, examples, features, scored, predictor)
    )


def _check_data(
    recorded: Mapping[str, Any],
    examples: Mapping[str, Sequence[Any]],
    data_dir: str,
) -> None:
    """Raises UserError for held-out examples that are not the run's."""
    _, *held_out = examples.values()
    digests = list(map(examples_digest, held_out))
    require(
        digests == recorded["dev_examples"],
        f"{data_dir} has other dev examples than those of the run; give the "
        "--data_dir, and the flags on how to read it, of the run.",
    )


def pretraining_report(run_dir: str, data: str = "") -> Page:
    """Returns the report of a pretraining run.

    `data`, a directory of shards or a glob, is read for samples of held-out
    text; empty: without them.
    """
    recorded = recorded_run(run_dir)
    config = from_dict(PretrainConfig, recorded["config"], run_dir)
    samples: list[MaskedSample] = []
    rows = []
    if data:
        with open_shards(data, "eval") as shards:
            rows = [shards_row(shards, "eval")]
            batches = PretrainingBatches(
                shards,
                masking_config=config.masking,
                batch_size=NUM_SAMPLES,
                seed=config.training.seed,
                training=False,
            )
            loaded = load_model_directory(run_dir)
            check_shards(config.model, shards, loaded.tokenizer)
            samples = held_out_samples(loaded.tokenizer, batches, loaded.model)
    verdict = pretraining_verdict(
        result(run_dir), config, initialized=bool(recorded["init_from"])
    )
    run = PretrainedRun(run_dir, verdict, config.model, samples, rows)
    return pretraining_page(run)
