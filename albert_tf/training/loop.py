"""The outer loop: batches in; log, evaluation and checkpoints out."""

import contextlib
import dataclasses
import faulthandler
import json
import math
import os
import time
import zlib
from collections.abc import Iterator
from typing import Any

from albert_tf.cluster.distribution import (
    agreed,
    is_alone,
    is_chief,
    lost_workers,
    out_of_memory,
)
from albert_tf.cluster.environment import describe_environment, markdown_table
from albert_tf.cluster.matmul_rate import matmul_rate
from albert_tf.cluster.stops import (
    DIVERGED,
    TEMPORARY_FAILURE,
    RunStopped,
)
from albert_tf.cluster.stragglers import Stragglers
from albert_tf.config import RuntimeConfig, TrainingConfig, UserError
from albert_tf.inputs.input_pipeline import Batch, ReaderStalled, prefetch
from albert_tf.inputs.phases import Place
from albert_tf.interchange.model_directory import recover_directory
from albert_tf.rundir.checkpoints import Checkpoints, remove_leftovers
from albert_tf.rundir.monitor import Monitor
from albert_tf.rundir.profiling import Profiler
from albert_tf.rundir.run_directory import claim, locked, record_changes
from albert_tf.training.interruption import Interruption, exit_code
from albert_tf.training.job import Job, Progress, is_better, is_loss
from albert_tf.training.loss_watch import LossWatch
from albert_tf.training.means import RunningMeans
from albert_tf.training.saving import Saving
from albert_tf.training.trainer import Trainer

# Model directories within the run directory: of the end, of the best
# evaluation.
MODEL = "model"
BEST_MODEL = "best_model"
# Steps without an update, or roll-backs without a checkpoint between them,
# after which a run has no hope.
_MOST_SKIPPED_IN_A_ROW = 10
_MOST_ROLL_BACKS = 3
# Records that a line names; a file has them all.
_NAMED_RECORDS = 8


class _RollBack(Exception):
    """The run is to go back to its last checkpoint."""


def train(
    trainer: Trainer,
    job: Job,
    *,
    run_dir: str,
    config: TrainingConfig,
    runtime: RuntimeConfig,
    description: dict,
) -> dict[str, float]:
    """Trains to the last step and returns the last evaluation.

    Goes on from the newest good checkpoint. Writes checkpoints/, the log,
    best_model/ and, at the end, model/.

    Raises:
        RunStopped: when a signal, a loss that is not finite, a full disk or a
            reader that hangs ends it before; its exit code says which.
        UserError: for settings that do not fit the job or the memory.
    """
    if job.best_metric not in job.measures:
        raise UserError(
            f"best_metric={job.best_metric!r} is not measured; this job has "
            f"{', '.join(sorted(job.measures))}."
        )
    changes: dict[str, list] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(lost_workers(trainer.strategy))
        stack.enter_context(out_of_memory())
        if is_chief(trainer.strategy):
            stack.enter_context(locked(run_dir))
            # Only now that everything fits: a corrected command may use the
            # same directory.
            changes = claim(
                run_dir, description, extends=bool(runtime.extend_to_steps)
            )
            remove_leftovers(run_dir)
            for name in (BEST_MODEL, MODEL):
                recover_directory(os.path.join(run_dir, name))
        loop = _Loop(trainer, job, run_dir, config, runtime, description)
        loop.changes = changes
        loop.interruption = stack.enter_context(Interruption())
        stack.enter_context(contextlib.closing(loop))
        return loop.run()


class _Loop:
    """One run of the outer loop, from a checkpoint to its end."""

    interruption: Interruption
    # What `claim` returned; of the chief.
    changes: dict[str, list]

    def __init__(
        self,
        trainer: Trainer,
        job: Job,
        run_dir: str,
        config: TrainingConfig,
        runtime: RuntimeConfig,
        description: dict,
    ) -> None:
        self.trainer = trainer
        self.job = job
        self.config = config
        self.runtime = runtime
        self.run_dir = run_dir
        self.description = description
        self.is_chief = is_chief(trainer.strategy)
        self.checkpoints = Checkpoints(
            os.path.join(run_dir, "checkpoints"),
            trainer.variables(),
            config.keep_checkpoint_max,
            writes=self.is_chief,
        )
        self.profiler = Profiler(
            runtime.profile_steps,
            os.path.join(run_dir, "tensorboard"),
            writes=self.is_chief,
        )
        self.step = 0
        self.progress = Progress()
        # Pairs of a phase's number and a depth.
        self.compiled: set[tuple[int, int | None]] = set()
        self.window = RunningMeans()
        self.watch = LossWatch(config.max_loss_spike)
        self.monitor: Monitor | None = None
        self.saving = Saving(
            trainer,
            self.checkpoints,
            run_dir,
            job.export,
            # Of the monitor that there is then.
            say=lambda line: self.monitor.say(line),
        )
        self.stragglers = Stragglers(trainer.strategy, config.precision)
        # The rates are of all replicas, and so is what they are held against.
        self.ceiling = (
            matmul_rate(config.precision) * trainer.num_devices()
            if self.is_chief
            else None
        )

    def run(self) -> dict[str, float]:
        """Trains to the end."""
        self._restore()
        if self.config.on_nonfinite == "rollback" and not self.step:
            # There is always something to go back to.
            self._save()
        while not self.progress.finished:
            try:
                self._train()
            except _RollBack:
                self._roll_back()
        # The model is written again where a run was killed just before.
        self.saving.model(MODEL, self.progress.evaluation, needed=True)
        # No worker leaves before the last one is here: the others would take
        # it for lost.
        agreed(self.trainer.strategy, 0.0)
        return self.progress.evaluation

    def close(self) -> None:
        """Closes the log."""
        self.profiler.close()
        if self.monitor:
            self.monitor.close()

    # Where the run stands.

    def _restore(self) -> None:
        problems: list[str] = []
        restored = None
        if self.is_chief:
            restored, problems = self.checkpoints.restore_latest()
        step = agreed(self.trainer.strategy, restored.step if restored else -1)
        if step >= 0 and not self.is_chief:
            restored = self.checkpoints.restore(int(step))
        self._take_up(restored)
        self._change(restored is not None)
        for line in (*self.job.remarks, *self._unreached(), *problems):
            self.monitor.say(line)
        if self.progress.finished:
            self.monitor.say(
                f"{self.run_dir} has been trained to its end, step {self.step}."
            )
        elif restored:
            self.monitor.say(
                f"Going on from step {self.step} of {self.run_dir}."
            )
        if not restored and self.monitor.lines_cut:
            self.monitor.say(
                f"{self.run_dir} has no checkpoint: the run begins again."
            )
        if not restored or self.changes:
            text = json.dumps(self.description, indent=2)
            self.monitor.text(
                "configuration", f"```\n{text}\n```", step=self.step
            )

    def _change(self, begun: bool) -> None:
        """Takes up settings that have changed since the run was last at work.

        They are recorded last: a job that is killed before that does all of
        it once more, with the same result.
        """
        changes = self.changes
        lengths = changes.get("num_train_steps")
        if agreed(self.trainer.strategy, float(lengths is not None)):
            patience = self.config.early_stopping_patience
            if patience and self.progress.without_better >= patience:
                self.progress.without_better = 0
            self.progress.finished = False
            if begun:
                best = self.progress.best.get("step") == self.step
                self._save(best=best, needed=True)
        if not changes:
            return
        record_changes(self.run_dir, self.description, changes, self.step)
        changed = ", ".join(
            f"{name}={new} (before: {old})"
            for name, (old, new) in changes.items()
        )
        self.monitor.say(f"From step {self.step + 1} on: {changed}.")
        if "eval_steps" in changes:
            self.monitor.say(
                "best_model and early stopping depend on eval_steps: they go "
                "by the evaluations that are made."
            )
        if lengths:
            self.monitor.say(self._rates(*lengths))

    def _rates(self, old: int, new: int) -> str:
        """Returns what a longer run means for the learning rate."""
        rate = self.trainer.learning_rate
        last = max(self.step - 1, 0)
        return (
            f"The schedule is now that of {new} steps: the learning rate was "
            f"{rate(last, old):.4g} at step {last + 1}, is "
            f"{rate(self.step, new):.4g} at step {self.step + 1} and "
            f"{rate(new - 1, new):.4g} at step {new}."
        )

    def _unreached(self) -> Iterator[str]:
        """Yields a line for each setting that is for later steps only."""
        last = self.config.num_train_steps
        for name, step in (
            ("depth_schedule", self.job.depths.starts[-1]),
            ("profile_steps", min(self.profiler.steps, default=0)),
        ):
            if step >= last:
                yield (
                    f"{name} has something to do after step {step}, but the "
                    f"run ends with step {last}."
                )

    def _take_up(self, restored: Any) -> None:
        """Sets everything beside the variables to a checkpoint's."""
        self.step = restored.step if restored else 0
        self.progress = Progress(**restored.state) if restored else Progress()
        if self.step >= self.config.num_train_steps:
            # Also where a job was killed that had begun to extend it.
            self.progress.finished = True
        self.window = RunningMeans(self.progress.window)
        self.watch = LossWatch(self.config.max_loss_spike, self.progress.losses)
        if self.monitor:
            self.monitor.close()
        self.monitor = Monitor(
            self.run_dir,
            num_steps=self.config.num_train_steps,
            start_step=self.step,
            written=self.progress.log,
            ceiling=self.ceiling,
            writes=self.is_chief,
        )
        self.monitor.compare(self.description)
        self.monitor.text(
            "environment",
            markdown_table(describe_environment()),
            step=self.step,
        )

    def _roll_back(self) -> None:
        bad_step, before = self.step, self.progress
        if before.roll_backs >= _MOST_ROLL_BACKS:
            raise RunStopped(
                f"The run has diverged: after {before.roll_backs} roll-backs "
                f"step {bad_step} is not finite either. Lower --learning_rate "
                "or lengthen --num_warmup_steps, and start in a new --run_dir.",
                DIVERGED,
            )
        last = self.checkpoints.steps()[-1]
        self._take_up(self.checkpoints.restore(last))
        passed_over = bad_step - self.step
        self.progress.passed_over = before.passed_over + passed_over
        self.progress.roll_backs = before.roll_backs + 1
        self.monitor.say(
            f"Back to step {self.step}; the examples of the {passed_over} "
            f"steps up to {bad_step} are left out."
        )

    # Steps.

    def _train(self) -> None:
        """Trains from `step` until the run is finished."""
        source = prefetch(
            self._make,
            self._calls(self.step),
            timeout=self.runtime.data_timeout_secs,
            give_up=self._gives_up_waiting,
        )
        with contextlib.closing(source):
            while not self.progress.finished:
                call, batches = self._next(source)
                self.profiler.before(call.start)
                with self._compiling(call.start):
                    results = self.trainer.train_steps(
                        batches,
                        self.job.depths.at(call.start),
                        loss_limit=self.watch.limit(),
                        stop_requested=self.interruption.received is not None,
                    )
                self.profiler.after(call.stop)
                for batch, result in zip(batches, results, strict=True):
                    self._account(batch, result)
                self._act(results[-1])

    @contextlib.contextmanager
    def _compiling(self, step: int) -> Iterator[None]:
        """Reports a call that compiles the step, which may take minutes.

        That is the first one, and the first of a phase or a depth.
        """
        made = (self.job.phases.number(step), self.job.depths.at(step))
        if made in self.compiled:
            yield
            return
        self.compiled.add(made)
        self.monitor.say(
            f"Compiling the training step for {self.trainer.devices()} "
            "(first call) ..."
        )
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        self.monitor.say(f"The first call took {seconds:.1f} seconds.")

    def _next(self, source: Iterator) -> tuple[range, list[Batch]]:
        begin = time.monotonic()
        try:
            item = next(source)
        except ReaderStalled:
            if self._gives_up_waiting():
                if self.step not in self.checkpoints.steps():
                    self._save(needed=True)
                raise self._stopped() from None
            faulthandler.dump_traceback(all_threads=True)
            raise RunStopped(
                f"The batch of step {self.step + 1} was not read within "
                f"{self.runtime.data_timeout_secs:g} seconds (see above where "
                "it hangs): is the disk or the network of --train_data there? "
                "Start the same command again.",
                TEMPORARY_FAILURE,
            ) from None
        waited = time.monotonic() - begin
        self.monitor.waited(waited)
        self.stragglers.waited(waited)
        return item

    def _calls(self, step: int) -> Iterator[range]:
        """Yields the steps of each call; actions come between calls."""
        config = self.config
        intervals = [
            config.log_steps,
            config.eval_steps,
            config.save_checkpoints_steps,
        ]
        fixed = sorted(
            {
                *self.job.phases.starts,
                *self.job.depths.starts,
                *self.profiler.steps,
                config.num_train_steps,
            }
        )
        while step < config.num_train_steps:
            stops = [step + config.steps_per_loop]
            stops += [(step // n + 1) * n for n in intervals if n]
            stops += [stop for stop in fixed if stop > step][:1]
            yield range(step, min(stops))
            step = min(stops)

    def _make(self, call: range) -> tuple[range, list[Batch]]:
        phases = self.job.phases
        rows = self.trainer.rows(phases.source(call.start).batch_size)
        passed_over = self.progress.passed_over
        return call, [
            phases.batch(Place(step, passed_over), rows) for step in call
        ]

    def _account(self, batch: Batch, result: dict[str, float]) -> None:
        """Takes in the scalars of one step."""
        place = Place(self.step, self.progress.passed_over)
        numbers = self.job.phases.record_numbers(place)
        progress = self.progress
        progress.records_crc32 = zlib.crc32(
            numbers.tobytes(), progress.records_crc32
        )
        self.step += 1
        self.monitor.advance(
            loss=result["loss"],
            sequences=len(numbers),
            # Of all choices, where there are any.
            tokens=len(numbers) * math.prod(batch["input_ids"].shape[1:]),
            flops=self.job.flops(place.step, batch),
        )
        if not result["skipped"]:
            progress.skipped_in_a_row = 0
            self.window.add(result)
            self.watch.add(result["loss"])
            return
        progress.skipped_steps += 1
        if result["nonfinite"]:
            self._not_finite(place, result)
        elif math.isfinite(result["loss"]) and math.isfinite(
            result["gradient_norm"]
        ):
            self._skipped(
                f"the loss {result['loss']:.4g} of step {self.step} is a "
                f"spike (--max_loss_spike={self.config.max_loss_spike:g})"
            )

    def _not_finite(self, place: Place, result: dict[str, float]) -> None:
        """Does what `on_nonfinite` says."""
        what = "loss" if not math.isfinite(result["loss"]) else "gradient_norm"
        names = self.job.phases.record_names(place)
        listed = ", ".join(names[:_NAMED_RECORDS])
        if len(names) > _NAMED_RECORDS:
            listed += f" and {len(names) - _NAMED_RECORDS} more"
        self.monitor.event(
            {"step": self.step, what: str(result[what]), "records": names}
        )
        said = (
            f"{what} is {result[what]} at step {self.step}; its batch: "
            f"{listed} (all in {self.run_dir}/events.jsonl)"
        )
        if self.config.on_nonfinite == "stop":
            raise RunStopped(
                f"{said}. The run has diverged and nothing of this step is "
                "kept. Lower --learning_rate or lengthen --num_warmup_steps, "
                "and start in a new --run_dir; or go on with "
                "--on_nonfinite=skip or rollback added to this command.",
                DIVERGED,
            )
        if self.config.on_nonfinite == "rollback":
            self.monitor.say(f"{said}.")
            raise _RollBack
        self._skipped(said)

    def _skipped(self, said: str) -> None:
        self.monitor.say(f"{said}: skipped.")
        self.progress.skipped_in_a_row += 1
        if self.progress.skipped_in_a_row >= _MOST_SKIPPED_IN_A_ROW:
            raise RunStopped(
                f"{self.progress.skipped_in_a_row} steps in a row were "
                f"skipped, the last one step {self.step}: the run has "
                "diverged. Lower --learning_rate or lengthen "
                "--num_warmup_steps, and start in a new --run_dir.",
                DIVERGED,
            )

    # What is done between calls.

    def _act(self, result: dict[str, float]) -> None:
        config, step = self.config, self.step
        last = step == config.num_train_steps
        if last or step % config.log_steps == 0:
            self._log(result)
        better = False
        if last or (config.eval_steps and step % config.eval_steps == 0):
            better = self._evaluate(last)
        patience = config.early_stopping_patience
        early = bool(patience) and self.progress.without_better >= patience
        self.progress.finished = last or early
        if early and not last:
            self.monitor.say(
                f"{self.job.best_metric} has not improved in {patience} "
                f"evaluations: the run ends at step {step}. {self._best()}"
            )
        stop = self._must_stop(result)
        due = step % config.save_checkpoints_steps == 0
        if better or due or stop or self.progress.finished:
            self._save(best=better, needed=stop or self.progress.finished)
        if stop and not self.progress.finished:
            # What starts workers ends those that are left when one has gone:
            # none may go before the chief has saved.
            agreed(self.trainer.strategy, 0.0)
            raise self._stopped()

    def _best(self) -> str:
        best = self.progress.best
        if not best:
            return "It was never defined; there is no best_model."
        return (
            f"The best model, of step {best['step']:.0f}, is in "
            f"{self.run_dir}/best_model."
        )

    def _stopped(self) -> RunStopped:
        received = self.interruption.received
        name = received.name if received else "Another worker's signal"
        return RunStopped(
            f"{name}: saved at step {self.step}; the same command goes on.",
            exit_code(received or 15),
        )

    def _gives_up_waiting(self) -> bool:
        """Returns whether a signal ends the run while it waits for data.

        Several workers end together, after a step.
        """
        here = self.interruption.received is not None
        return here and is_alone(self.trainer.strategy)

    def _must_stop(self, result: dict[str, float]) -> bool:
        """Returns whether a signal ends the run; on all workers alike."""
        return bool(result["stop_requested"]) or self._gives_up_waiting()

    def _log(self, result: dict[str, float]) -> None:
        means = self.window.means()
        losses = self.trainer.objective.loss_names
        if set(losses) <= set(means):
            means["loss"] = sum(means[name] for name in losses)
        for name in ("gradient_norm", "learning_rate", "loss_scale"):
            if name in result:
                means[name] = result[name]
        means["weight_norm"] = self.trainer.weight_norm()
        means["skipped_steps"] = self.progress.skipped_steps
        means["records_crc32"] = self.progress.records_crc32
        self.monitor.log(self.step, means, self.trainer.trust_ratios())
        for line in self.stragglers.compare():
            self.monitor.say(line)
        self.monitor.restart_clock()
        self.window = RunningMeans()

    def _evaluate(self, last: bool) -> bool:
        """Returns whether the model is the best so far, and kept as such."""
        with self.trainer.averaged_weights():
            measures = self.job.evaluate(self.step)
            text = self.job.samples() if self.job.samples else None
        for name, value in measures.items():
            if not math.isfinite(value) and is_loss(name):
                raise RunStopped(
                    f"{name} is {value} in the evaluation at step "
                    f"{self.step}: the run has diverged. Lower "
                    "--learning_rate or lengthen --num_warmup_steps, and "
                    "start in a new --run_dir.",
                    DIVERGED,
                )
        self.progress.evaluation = measures
        self.progress.roll_backs = 0
        self.monitor.scalars("eval", self.step, measures)
        if text:
            self.monitor.text("predictions", text, step=self.step, split="eval")
        if self.job.pictures and self.is_chief:
            for name, png in self.job.pictures().items():
                self.monitor.image(name, png, split="eval", step=self.step)
        metric = self.job.best_metric
        best = self.progress.best
        value = measures[metric]
        # Of a correlation where all answers are equal.
        undefined = math.isnan(value)
        if undefined or (best and not is_better(metric, value, best["value"])):
            self.progress.without_better += 1
            return False
        self.progress.without_better = 0
        if not self.saving.model(BEST_MODEL, measures, needed=last):
            return False
        self.progress.best = {"step": self.step, "value": value}
        return True

    def _save(self, *, best: bool = False, needed: bool = False) -> None:
        if not self.is_chief:
            return
        self.monitor.flush()
        self.progress.window = self.window.sums
        self.progress.losses = self.watch.losses
        self.progress.log = self.monitor.written()
        self.saving.checkpoint(
            self.step,
            dataclasses.asdict(self.progress),
            best=best,
            needed=needed,
        )
