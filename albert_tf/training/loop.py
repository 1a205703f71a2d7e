"""The outer loop: batches in; log, evaluation and checkpoints out."""

import json
import os
import statistics
from collections.abc import Callable
from typing import Protocol

from albert_tf.config import TrainingConfig
from albert_tf.training.checkpoints import Checkpoints
from albert_tf.training.input_pipeline import Batch, prefetch
from albert_tf.training.monitor import Monitor
from albert_tf.training.trainer import RunningMeans, Trainer, check_finite


class Batches(Protocol):
    """Batches by step (see input_pipeline.py)."""

    def batch(self, step: int) -> Batch:
        """Returns the global batch of a step."""


def train(
    trainer: Trainer,
    batches: Batches,
    evaluate: Callable[[], dict[str, float]],
    *,
    run_dir: str,
    config: TrainingConfig,
    description: dict,
) -> dict[str, float]:
    """Trains to the last step and returns the last evaluation.

    Goes on from the newest good checkpoint. At a step that calls for several
    actions the checkpoint is written last, so that the log holds all of a
    restored step.
    """
    checkpoints = Checkpoints(
        os.path.join(run_dir, "checkpoints"),
        trainer.variables(),
        config.keep_checkpoint_max,
    )
    restored, problems = checkpoints.restore_latest()
    start = restored.step if restored else 0
    state = restored.state if restored else {}
    window = RunningMeans(state.get("window"))
    evaluation = state.get("evaluation", {})
    monitor = Monitor(
        run_dir,
        num_steps=config.num_train_steps,
        start_step=start,
        batch_size=config.train_batch_size,
    )
    for problem in problems:
        monitor.say(problem)
    if start:
        monitor.say(f"Going on from step {start} of {run_dir}.")
    else:
        monitor.text(
            "configuration", f"```\n{json.dumps(description, indent=2)}\n```"
        )
    steps = range(start, config.num_train_steps)
    try:
        source = prefetch(batches.batch, steps)
        for done, batch in enumerate(source, start=start + 1):
            last = done == config.num_train_steps
            results = trainer.train_step(batch)
            window.add(results)
            monitor.advance()
            if done % config.log_steps == 0 or last:
                means = window.means()
                check_finite(means, done)
                for name in ("gradient_norm", "learning_rate"):
                    means[name] = float(results[name])
                ratios = trainer.trust_ratios()
                means.update(summarize_trust_ratios(ratios))
                rate = monitor.rate(done)
                monitor.scalars("train", done, means, sequences_per_second=rate)
                monitor.details(
                    "train",
                    done,
                    {f"trust_ratio/{path}": r for path, r in ratios.items()},
                )
                window = RunningMeans()
            if last or (config.eval_steps and done % config.eval_steps == 0):
                evaluation = evaluate()
                check_finite(evaluation, done)
                monitor.scalars("eval", done, evaluation)
                monitor.rate(done)
            if last or done % config.save_checkpoints_steps == 0:
                # Nothing that has diverged is ever saved.
                check_finite(window.means(), done)
                monitor.flush()
                checkpoints.save(
                    done, {"window": window.sums, "evaluation": evaluation}
                )
    finally:
        monitor.close()
    return evaluation


def summarize_trust_ratios(ratios: dict[str, float]) -> dict[str, float]:
    """Returns `trust_ratio_min`, `_median` and `_max`; nothing of nothing."""
    if not ratios:
        return {}
    return {
        "trust_ratio_min": min(ratios.values()),
        "trust_ratio_median": statistics.median(ratios.values()),
        "trust_ratio_max": max(ratios.values()),
    }
