"""Fine-tuning: a task's head on a pretrained encoder.

python -m bin.finetune --task=SST-2 --data_dir=glue/SST-2 \\
    --init_from=runs/tiny --run_dir=runs/sst2
python -m bin.finetune --task=custom \\
    --columns=text=premise,text=hypothesis,label=verdict \\
    --data_dir=mytask --init_from=runs/tiny --run_dir=runs/mytask
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from albert_tf.config import (
    TASK_SETTINGS,
    FinetuneConfig,
    ModelConfig,
    RuntimeConfig,
    UserError,
    as_default,
    override,
    require,
    shown_metric,
)
from albert_tf.rundir.run_results import read_comparison, title
from albert_tf.tasks.base import Task
from albert_tf.tasks.recipes import RECIPES
from albert_tf.tasks.splits import folded
from bin import command_line, own_rows, tasks, training_programs

if TYPE_CHECKING:
    from albert_tf.jobs.repeated_runs import RepeatedRuns

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    tasks.define_flags("Task to learn.")
    tasks.define_feature_flags()
    flags.DEFINE_enum(
        "recipe",
        "auto",
        list(RECIPES),
        "Source of settings without a flag. auto: the paper's for models of "
        "its sizes, for narrower ones what they were found to need; encoder: "
        "the same, with heads that read the model's states alone, to compare "
        "models; v1, v2: the paper's Table 14, for the first or the second "
        "models; none: the defaults below.",
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        f"{command_line.TOKENIZER_HELP} Default: that beside --init_from.",
    )
    flags.DEFINE_integer(
        "num_runs",
        1,
        "Number of runs, with the seeds --seed, --seed + 1 and so on, in "
        "RUN_DIR/run-1 and so on; reports the median, the range and all "
        "values.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "folds",
        0,
        "Cross-validation: divide the training examples into so many parts, "
        "stratified by class and with equal texts in one, and make a run for "
        "each of them as dev, in RUN_DIR/fold-1 and so on; reports the mean, "
        "the standard deviation and all values. 0: none.",
        lower_bound=0,
    )
    training_programs.define_flags()
    command_line.define_settings(
        FinetuneConfig(),
        leave_out=["null_threshold", "word_boundaries", "temperature"],
    )
    command_line.define_settings(
        ModelConfig(),
        only=TASK_SETTINGS,
        default="that of the recipe, or else of --init_from",
    )
    command_line.required("data_dir", "init_from", "run_dir")


def main() -> None:
    task = tasks.chosen()
    _check_repetition()
    first = ""
    if FLAGS.folds or FLAGS.num_runs > 1:
        name = "fold-1" if FLAGS.folds else "run-1"
        first = os.path.join(FLAGS.run_dir, name)
    training_programs.load_tensorflow(first)
    from albert_tf.cluster.environment import usable_cpus
    from albert_tf.interchange.model_directory import find_initial_weights
    from albert_tf.jobs.finetune import run_finetuning
    from albert_tf.jobs.repeated_runs import cross_validate, repeat

    initial = find_initial_weights(FLAGS.init_from)
    initial = initial.with_tokenizer(FLAGS.tokenizer)
    config, model_changes, recipe = settings()

    def run(
        config: FinetuneConfig, run_dir: str, task: Task = task
    ) -> dict[str, float]:
        return run_finetuning(
            config,
            task,
            data_dir=FLAGS.data_dir,
            run_dir=run_dir,
            initial=initial,
            model_changes=model_changes,
            recipe=recipe,
            runtime=command_line.with_flags(RuntimeConfig()),
            workers=usable_cpus(),
            cache_dir=FLAGS.feature_cache,
            report=training_programs.report_notes(),
        )

    def run_fold(fold: int, run_dir: str) -> dict[str, float]:
        print(f"Fold {fold} of {FLAGS.folds}, in {run_dir}:")
        return run(
            config, run_dir, folded(task, FLAGS.folds, fold, FLAGS.split_seed)
        )

    if FLAGS.folds:
        found = cross_validate(
            run_fold, folds=FLAGS.folds, run_dir=FLAGS.run_dir
        )
        _print_results(found, ("mean", "deviation"), "fold")
    elif FLAGS.num_runs > 1:
        found = repeat(
            run, config, num_runs=FLAGS.num_runs, run_dir=FLAGS.run_dir
        )
        _print_results(found, ("median", "spread"), "run")
    else:
        evaluation = run(config, FLAGS.run_dir)
        metrics, verdict = read_comparison(FLAGS.run_dir)
        training_programs.print_evaluation(
            evaluation | metrics, verdict, title(FLAGS.run_dir)
        )


def _check_repetition() -> None:
    """Raises UserError for --num_runs and --folds that cannot be."""
    require(
        FLAGS.folds != 1 and not (FLAGS.folds and FLAGS.num_runs > 1),
        f"--folds={FLAGS.folds} and --num_runs={FLAGS.num_runs}: expected two "
        "folds or more, and no more than one run of each.",
    )
    require(
        not (FLAGS.folds and FLAGS.dev_fraction),
        f"--folds={FLAGS.folds} and --dev_fraction={FLAGS.dev_fraction} both "
        "choose the dev examples; give one.",
    )
    for name in ("num_runs", "folds"):
        if FLAGS[name].value > 1 and FLAGS.strategy == "multi_worker":
            raise UserError(
                f"--{name}={FLAGS[name].value} makes runs one after another, "
                "for each of which the workers would have to meet anew; start "
                "each on its own, with its --seed and --run_dir."
            )


def _print_results(
    results: "RepeatedRuns", statistics: Sequence[str], name: str
) -> None:
    """Prints the metrics of several runs, whose directories have a name."""
    from albert_tf.jobs.repeated_runs import RESULTS_FILE

    rows = []
    for metric, row in results.summary().items():
        numbers = *(row[statistic] for statistic in statistics), *row["values"]
        rows.append([metric, *map(shown_metric, numbers)])
    titles = [
        f"fold {n}" if name == "fold" else f"seed {run.seed}"
        for n, run in enumerate(results.runs, start=1)
    ]
    header = ["on dev", *statistics, *titles]
    print(f"\n{command_line.format_table(rows, header)}\n")
    median = results.median_run()
    if median.verdict:
        print(f"The median run, {median.run_dir}:")
    for line in median.verdict:
        print(line)
    print(
        f"All results are in {os.path.join(FLAGS.run_dir, RESULTS_FILE)}, the "
        f"models in {os.path.join(results.runs[0].run_dir, 'model')} and so on."
    )


def settings() -> tuple[FinetuneConfig, dict[str, Any], str]:
    """Returns the settings, the changes to the architecture, and the recipe.

    The settings are the defaults or those of --config_json, then the flags;
    the flags alone count as given.

    Raises:
        UserError: for flags that contradict one another.
    """
    config, model_changes, recipe = FinetuneConfig(), {}, FLAGS.recipe
    given = command_line.given_settings(config)
    for one, other in (
        ("num_train_steps", "num_train_epochs"),
        ("num_warmup_steps", "warmup_proportion"),
    ):
        require(
            not (given.get(one) and given.get(other)),
            f"--{one}={given.get(one)} and --{other}={given.get(other)} set "
            "the same length; give one.",
        )
    if FLAGS.config_json:
        require(
            not FLAGS["recipe"].present,
            f"--recipe={FLAGS.recipe} and --config_json both say where "
            "settings come from; give one.",
        )
        recipe = "none"
        recorded, model = training_programs.recorded_config(
            "finetune", FinetuneConfig
        )
        config = as_default(recorded)
        model_changes = {k: model[k] for k in TASK_SETTINGS if k in model}
    model_changes |= command_line.given_settings(ModelConfig())
    return override(config, given), model_changes, recipe


if __name__ == "__main__":
    command_line.run(define_flags, main)
