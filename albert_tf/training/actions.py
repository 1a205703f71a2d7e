"""Actions between calls of the trainer: logs, evaluation, early stopping.

A call makes a group of steps, up to `steps_per_loop` of them in one program.
"""

import math

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.cluster.stragglers import Stragglers
from albert_tf.rundir.run_results import is_better_evaluation
from albert_tf.training.job import is_loss
from albert_tf.training.run_state import RunState
from albert_tf.training.running_statistics import RunningMeans
from albert_tf.training.skipped_steps import diverged
from albert_tf.training.trainer import StepResult


def log_step(
    state: RunState, stragglers: Stragglers, result: StepResult
) -> None:
    """Logs the means since the last logged step, and a step's result."""
    trainer = state.job.trainer
    means = state.window.means()
    losses = [term.loss for term in trainer.training_loss.terms]
    if set(losses) <= set(means):
        means["loss"] = sum(means[name] for name in losses)
    means["gradient_norm"] = result.gradient_norm
    means["learning_rate"] = result.learning_rate
    if state.job.config.training.precision == "float16":
        means["loss_scale"] = result.loss_scale
    means["weight_norm"] = trainer.weight_norm()
    means["skipped_steps"] = state.progress.skipped_steps
    means["records_crc32"] = state.progress.records_crc32
    rates = state.monitor.log_training(
        state.step, means, trainer.trust_ratios()
    )
    for line in stragglers.compare(rates.get("data_wait_share", 0.0)):
        state.log(line)
    state.monitor.throughput.restart()
    state.window = RunningMeans()


def evaluate(state: RunState) -> bool:
    """Evaluates; returns whether the model is the best so far, and saved."""
    job, step, monitor = state.job, state.step, state.monitor
    progress = state.progress
    with job.trainer.averaged_weights():
        metrics = job.evaluate(step)
        text = job.samples(step)
    for name, value in metrics.items():
        if not math.isfinite(value) and is_loss(name):
            raise diverged(
                f"{name} is {value} in the evaluation at step {step}: the "
                "run has diverged"
            )
    progress.evaluation = metrics
    monitor.log_evaluation(step, metrics)
    if text:
        monitor.log_text("predictions", text, step=step, split="eval")
    if is_chief(job.trainer.strategy):
        for name, png in job.figures().items():
            monitor.log_figure(name, png, step=step)
    if not job.depths.is_whole(step - 1):
        # The saved model would apply blocks that are not trained yet.
        return False
    metric, best = job.best_metric, progress.best
    value = metrics[metric]
    # NaN: a correlation of constant predictions.
    better = not math.isnan(value) and (
        not best
        or job.held_out_digest(step) != job.held_out_digest(int(best["step"]))
        or is_better_evaluation(metric, metrics, progress.best_evaluation)
    )
    # Unlike machines may differ in the last digits.
    if not broadcast(job.trainer.strategy, float(better)):
        progress.without_better += 1
        return False
    progress.without_better = 0
    last = step == job.config.training.num_train_steps
    if not state.save_model(state.best_model, needed=last or state.keeps_best):
        return False
    progress.best = {"step": step}
    progress.best_evaluation = metrics
    return True


def finish_if_due(state: RunState) -> None:
    """Sets `progress.finished` where the run ends, early perhaps."""
    job, step, progress = state.job, state.step, state.progress
    config = job.config.training
    last = step == config.num_train_steps
    patience = config.early_stopping_patience
    early = bool(patience) and progress.without_better >= patience
    progress.finished = last or early
    if early and not last:
        state.log(
            f"{job.best_metric} has not improved in {patience} "
            f"evaluations: the run ends at step {step}. {_where_best_is(state)}"
        )


def _where_best_is(state: RunState) -> str:
    best, name = state.progress.best, state.best_model
    if best:
        return (
            f"The best model, of step {best['step']:.0f}, is in "
            f"{state.job.run_dir}/{name}."
        )
    if state.keeps_best:
        return f"It was never defined: {name} is of the last step."
    return f"It was never defined; there is no {name}."
