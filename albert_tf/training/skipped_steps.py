"""Steps that changed no weight: reported, skipped, rolled back or the end."""

import math

from albert_tf.cluster.stops import DIVERGED, RunStopped
from albert_tf.training.run_state import RunState
from albert_tf.training.trainer import StepResult

# Limits after which a run counts as diverged: steps in a row without an
# update, and roll-backs to one checkpoint.
_MAX_SKIPPED_IN_A_ROW = 10
_MAX_ROLL_BACKS = 3
# Records named in one log line; events.jsonl names all.
_MAX_NAMED_RECORDS = 8


class RollBack(Exception):
    """Requests a return to the last checkpoint."""


def diverged(problem: str, alternative: str = "") -> RunStopped:
    """Returns the end of a run that has diverged."""
    return RunStopped(
        f"{problem}. Lower --learning_rate or lengthen --num_warmup_steps, "
        f"and start in a new --run_dir{alternative}.",
        DIVERGED,
    )


def handle_skipped(state: RunState, result: StepResult) -> None:
    """Counts and logs a step that changed nothing, or ends the run.

    Raises:
        RollBack: when a value is not finite and `on_nonfinite` demands it.
        RunStopped: when `on_nonfinite` demands it, or the run has diverged.
    """
    settings, progress = state.job.config.training, state.progress
    progress.skipped_steps += 1
    if result.nonfinite:
        problem = _report_nonfinite(state, result)
        if settings.on_nonfinite == "stop":
            raise diverged(
                f"{problem}. The run has diverged and the update of this step "
                "was discarded",
                "; or resume with --on_nonfinite=skip or rollback added to "
                "this command",
            )
        if settings.on_nonfinite == "rollback":
            state.log(f"{problem}.")
            if progress.roll_backs >= _MAX_ROLL_BACKS:
                raise diverged(
                    f"The run has diverged: after {progress.roll_backs} "
                    f"roll-backs step {state.step} is not finite either"
                )
            raise RollBack
    elif math.isfinite(result.loss + result.gradient_norm):
        problem = (
            f"the loss {result.loss:.4g} of step {state.step} is a spike "
            f"(--max_loss_spike={settings.max_loss_spike:g})"
        )
    else:
        # An overflow, which a smaller loss scale will cure.
        return
    state.log(f"{problem}: skipped.")
    progress.skipped_in_a_row += 1
    if progress.skipped_in_a_row >= _MAX_SKIPPED_IN_A_ROW:
        raise diverged(
            f"{progress.skipped_in_a_row} steps in a row were skipped, the "
            f"last one step {state.step}: the run has diverged"
        )


def _report_nonfinite(state: RunState, result: StepResult) -> str:
    """Writes the records of the step to events.jsonl; returns a message."""
    name = "gradient_norm" if math.isfinite(result.loss) else "loss"
    value = getattr(result, name)
    records = state.job.sources.record_names(
        state.step - 1, state.progress.passed_over
    )
    state.monitor.log_event(
        {"step": state.step, name: str(value), "records": records}
    )
    listed = ", ".join(records[:_MAX_NAMED_RECORDS])
    if len(records) > _MAX_NAMED_RECORDS:
        listed += f" and {len(records) - _MAX_NAMED_RECORDS} more"
    return (
        f"{name} is {value} at step {state.step}; its batch: {listed} "
        f"(all in {state.job.run_dir}/events.jsonl)"
    )
