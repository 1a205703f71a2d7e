"""The training loop: batches in; logs, evaluations and checkpoints out."""

import contextlib
import dataclasses
import faulthandler
import json
import math
import os
import signal
import time
import zlib
from collections.abc import Iterator
from typing import Any

from albert_tf.cluster.distribution import (
    broadcast,
    is_alone,
    is_chief,
    lost_workers,
    out_of_memory,
)
from albert_tf.cluster.environment import describe_environment
from albert_tf.cluster.matmul_rate import matmul_rate
from albert_tf.cluster.stops import (
    DIVERGED,
    TEMPORARY_FAILURE,
    Interruption,
    RunStopped,
)
from albert_tf.cluster.stragglers import Stragglers
from albert_tf.config import UserError
from albert_tf.inputs.input_pipeline import Batch, ReaderStalled, prefetch
from albert_tf.inputs.phases import DataPosition
from albert_tf.interchange.model_directory import initialize
from albert_tf.interchange.model_files import recover_directory
from albert_tf.modeling.models import AlbertModel
from albert_tf.optim.schedules import warm_up_warnings
from albert_tf.rundir.checkpoints import (
    Checkpoints,
    Restored,
    remove_leftovers,
)
from albert_tf.rundir.monitor import Monitor
from albert_tf.rundir.profiling import Profiler
from albert_tf.rundir.run_directory import claim, locked, record_changes
from albert_tf.training.job import Job, Progress, is_better, is_loss
from albert_tf.training.running_statistics import RunningMeans, SpikeDetector
from albert_tf.training.saving import Saving
from albert_tf.training.trainer import Trainer

# Model directories within the run directory: of the last step, and of the
# best evaluation.
MODEL = "model"
BEST_MODEL = "best_model"
# Limits after which a run counts as diverged: steps in a row without an
# update, and roll-backs without a finite evaluation between them.
_MAX_SKIPPED_IN_A_ROW = 10
_MAX_ROLL_BACKS = 3
# Records named in one log line; events.jsonl names all.
_MAX_NAMED_RECORDS = 8


class _RollBack(Exception):
    """Requests a return to the last checkpoint."""


def _diverged(problem: str, alternative: str = "") -> RunStopped:
    return RunStopped(
        f"{problem}. Lower --learning_rate or lengthen --num_warmup_steps, "
        f"and start in a new --run_dir{alternative}.",
        DIVERGED,
    )


def train(job: Job) -> dict[str, float]:
    """Trains to the last step and returns the last evaluation.

    Resumes from the newest good checkpoint. Writes checkpoints/, the logs,
    best_model/ and, at the end, model/.

    Raises:
        RunStopped: when a signal, a loss that is not finite, a full disk or a
            stalled reader ends the run early; its exit code says which.
        UserError: for settings that do not fit the job or the memory.
    """
    if job.best_metric not in job.metric_names:
        raise UserError(
            f"best_metric={job.best_metric!r} is not a metric of this job: "
            f"expected one of {', '.join(sorted(job.metric_names))}."
        )

    def build(**options: Any) -> AlbertModel:
        model = job.build_model(**options)
        if job.initial:
            job.log(initialize(model, job.initial))
        return model

    strategy, run_dir = job.environment.strategy, job.environment.run_dir
    job.trainer = Trainer.of_new_model(
        build,
        job.objective,
        strategy,
        job.config.optimizer,
        job.config.training,
        job.packed_lengths,
    )
    changes: dict[str, list] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(lost_workers(strategy))
        stack.enter_context(out_of_memory())
        if is_chief(strategy):
            stack.enter_context(locked(run_dir))
            # Only after all other checks: a corrected command may use the
            # same directory.
            changes = claim(
                run_dir,
                job.description(),
                extends=bool(job.environment.runtime.extend_to_steps),
            )
            remove_leftovers(run_dir)
            for name in (BEST_MODEL, MODEL):
                recover_directory(os.path.join(run_dir, name))
        loop = _Loop(job, changes)
        stack.enter_context(loop.interruption.handled())
        stack.enter_context(contextlib.closing(loop))
        return loop.run()


class _Loop:
    """One process's part of a run, from a checkpoint to the end."""

    def __init__(self, job: Job, changes: dict[str, list]) -> None:
        """Prepares the run; `changes` are the chief's result of `claim`."""
        self.job = job
        self.changes = changes
        self.trainer = trainer = job.trainer
        self.config = config = job.config.training
        self.run_dir = job.environment.run_dir
        self.runtime = job.environment.runtime
        self.interruption = Interruption()
        self.is_chief = is_chief(trainer.strategy)
        self.checkpoints = Checkpoints(
            os.path.join(self.run_dir, "checkpoints"),
            trainer.variables(),
            config.keep_checkpoint_max,
        )
        self.profiler = Profiler(
            self.runtime.profile_steps,
            os.path.join(self.run_dir, "tensorboard"),
            writes=self.is_chief,
        )
        # Pairs of a phase's number and a depth.
        self.compiled: set[tuple[int, int | None]] = set()
        self.monitor: Monitor | None = None
        # The monitor is replaced at every restore.
        self.saving = Saving(
            job, self.checkpoints, log=lambda line: self.monitor.log(line)
        )
        self.stragglers = Stragglers(trainer.strategy, config.precision)
        # Of all replicas, as the throughput that it is compared with.
        self.peak_flops = (
            matmul_rate(config.precision) * trainer.num_devices()
            if self.is_chief
            else None
        )

    def run(self) -> dict[str, float]:
        """Trains to the end and returns the last evaluation."""
        self._resume()
        if self.config.on_nonfinite == "rollback" and not self.step:
            # The target of a roll-back before the first regular checkpoint.
            self._save(needed=True)
        while not self.progress.finished:
            try:
                self._train()
            except _RollBack:
                self._roll_back()
        # Also in a run that was killed after its last checkpoint.
        self.saving.model(MODEL, self.progress.evaluation, needed=True)
        # A barrier: a worker that leaves early counts as lost.
        broadcast(self.trainer.strategy, 0.0)
        return self.progress.evaluation

    def close(self) -> None:
        """Closes the logs."""
        self.profiler.close()
        if self.monitor:
            self.monitor.close()

    # Resuming, changed settings and roll-backs.

    def _resume(self) -> None:
        problems: list[str] = []
        restored = None
        if self.is_chief:
            restored, problems = self.checkpoints.restore_latest()
        step = broadcast(
            self.trainer.strategy, restored.step if restored else -1
        )
        if step >= 0 and not self.is_chief:
            restored = self.checkpoints.restore(int(step))
        self._set_state(restored)
        self._apply_changes(resumed=restored is not None)
        log = self.monitor.log
        for line in (*self._warnings(), *problems):
            log(line)
        if self.progress.finished:
            log(
                f"{self.run_dir} has been trained to its end, step {self.step}."
            )
        elif restored:
            log(f"Resuming from step {self.step} of {self.run_dir}.")
        if not restored and self.monitor.lines_cut:
            log(f"{self.run_dir} has no checkpoint: the run begins again.")
        if not restored or self.changes:
            text = json.dumps(self.job.description(), indent=2)
            self.monitor.log_text(
                "configuration", f"```\n{text}\n```", step=self.step
            )

    def _set_state(self, restored: Restored | None) -> None:
        """Sets everything beside the variables to a checkpoint's state."""
        self.step = restored.step if restored else 0
        self.progress = Progress(**restored.state) if restored else Progress()
        if self.step >= self.config.num_train_steps:
            # Also after a kill between an extension's checkpoint and its
            # record in config.json.
            self.progress.finished = True
        self.window = RunningMeans(self.progress.window)
        self.spikes = SpikeDetector(
            self.config.max_loss_spike, self.progress.losses
        )
        if self.monitor:
            self.monitor.close()
        self.monitor = Monitor(
            self.run_dir,
            num_steps=self.config.num_train_steps,
            start_step=self.step,
            written=self.progress.log,
            peak_flops=self.peak_flops,
            description=self.job.description(),
            writes=self.is_chief,
        )
        self.monitor.log_text(
            "environment", describe_environment(), step=self.step
        )

    def _apply_changes(self, *, resumed: bool) -> None:
        """Applies and records the settings that changed since the last start.

        They are recorded last: a job that is killed before repeats all of it
        with the same result.
        """
        changes = self.changes
        lengths = changes.get("num_train_steps")
        if broadcast(self.trainer.strategy, float(lengths is not None)):
            patience = self.config.early_stopping_patience
            if patience and self.progress.without_better >= patience:
                self.progress.without_better = 0
            self.progress.finished = False
            if resumed:
                best = self.progress.best.get("step") == self.step
                self._save(best=best, needed=True)
        if not changes:
            return
        record_changes(self.run_dir, self.job.description(), changes, self.step)
        changed = ", ".join(
            f"{name}={new} (before: {old})"
            for name, (old, new) in changes.items()
        )
        self.monitor.log(f"From step {self.step + 1} on: {changed}.")
        if "eval_steps" in changes:
            self.monitor.log(
                "best_model and early stopping depend on eval_steps: they use "
                "the evaluations that are made."
            )
        if lengths:
            old, new = lengths
            rate = self.trainer.learning_rate
            last = max(self.step - 1, 0)
            self.monitor.log(
                f"The schedule is now that of {new} steps: the learning rate "
                f"was {rate(last, old):.4g} at step {last + 1}, is "
                f"{rate(self.step, new):.4g} at step {self.step + 1} and "
                f"{rate(new - 1, new):.4g} at step {new}."
            )

    def _warnings(self) -> Iterator[str]:
        """Yields warnings of the job, and of settings without effect."""
        last = self.config.num_train_steps
        yield from self.job.warnings
        yield from warm_up_warnings(self.job.config.optimizer, last)
        for name, step in (
            ("depth_schedule", self.job.depths.starts[-1]),
            ("profile_steps", min(self.profiler.steps, default=0)),
        ):
            if step >= last:
                yield (
                    f"{name} starts at step {step}, beyond "
                    f"num_train_steps={last}: it has no effect."
                )

    def _roll_back(self) -> None:
        bad_step, before = self.step, self.progress
        if before.roll_backs >= _MAX_ROLL_BACKS:
            raise _diverged(
                f"The run has diverged: after {before.roll_backs} roll-backs "
                f"step {bad_step} is not finite either"
            )
        last = self.checkpoints.steps()[-1]
        self._set_state(self.checkpoints.restore(last))
        passed_over = bad_step - self.step
        self.progress.passed_over = before.passed_over + passed_over
        self.progress.roll_backs = before.roll_backs + 1
        self.monitor.log(
            f"Back to step {self.step}; the examples of the {passed_over} "
            f"steps up to {bad_step} are left out."
        )

    # Steps.

    def _train(self) -> None:
        """Trains from `step` until the run is finished."""
        source = prefetch(
            self._batches,
            self._calls(self.step),
            timeout=self.runtime.data_timeout_secs,
            give_up=self._stops_waiting,
        )
        with contextlib.closing(source):
            while not self.progress.finished:
                call, batches = self._next(source)
                self.profiler.before(call.start)
                with self._compiling(call.start):
                    results = self.trainer.train_steps(
                        batches,
                        self.job.depths.at(call.start),
                        loss_limit=self.spikes.limit(),
                        stop_requested=self.interruption.received is not None,
                    )
                self.profiler.after(call.stop)
                for batch, result in zip(batches, results, strict=True):
                    self._account(batch, result)
                self._act(results[-1])

    def _calls(self, step: int) -> Iterator[range]:
        """Yields the steps of each call; actions happen between calls."""
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

    def _batches(self, call: range) -> tuple[range, list[Batch]]:
        phases = self.job.phases
        rows = self.trainer.rows(phases.source(call.start).batch_size)
        passed_over = self.progress.passed_over
        return call, [
            phases.batch(DataPosition(step, passed_over), rows) for step in call
        ]

    def _next(self, source: Iterator) -> tuple[range, list[Batch]]:
        begin = time.monotonic()
        try:
            item = next(source)
        except ReaderStalled:
            if self._stops_waiting():
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
        self.monitor.throughput.wait(waited)
        self.stragglers.waited(waited)
        return item

    @contextlib.contextmanager
    def _compiling(self, step: int) -> Iterator[None]:
        """Logs a call that compiles the step, which may take minutes.

        It is the first call of the process, of a phase or of a depth.
        """
        key = (self.job.phases.number(step), self.job.depths.at(step))
        if key in self.compiled:
            yield
            return
        self.compiled.add(key)
        self.monitor.log(
            f"Compiling the training step for {self.trainer.devices()} "
            "(first call) ..."
        )
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        self.monitor.log(f"The first call took {seconds:.1f} seconds.")

    def _account(self, batch: Batch, result: dict[str, float]) -> None:
        """Adds the results of one step to the progress and the logs."""
        progress = self.progress
        position = DataPosition(self.step, progress.passed_over)
        numbers = self.job.phases.record_numbers(position)
        progress.records_crc32 = zlib.crc32(
            numbers.tobytes(), progress.records_crc32
        )
        self.step += 1
        self.monitor.advance(
            loss=result["loss"],
            sequences=len(numbers),
            # Of every choice in multiple choice.
            tokens=len(numbers) * math.prod(batch["input_ids"].shape[1:]),
            flops=self.job.flops(position.step, batch),
        )
        if not result["skipped"]:
            progress.skipped_in_a_row = 0
            self.window.add(result)
            self.spikes.add(result["loss"])
            return
        progress.skipped_steps += 1
        if result["nonfinite"]:
            self._handle_nonfinite(position, result)
        elif math.isfinite(result["loss"] + result["gradient_norm"]):
            self._skip(
                f"the loss {result['loss']:.4g} of step {self.step} is a "
                f"spike (--max_loss_spike={self.config.max_loss_spike:g})"
            )

    def _handle_nonfinite(
        self, position: DataPosition, result: dict[str, float]
    ) -> None:
        """Stops, skips or rolls back, as `on_nonfinite` demands."""
        name = "loss" if not math.isfinite(result["loss"]) else "gradient_norm"
        records = self.job.phases.record_names(position)
        self.monitor.log_event(
            {"step": self.step, name: str(result[name]), "records": records}
        )
        listed = ", ".join(records[:_MAX_NAMED_RECORDS])
        if len(records) > _MAX_NAMED_RECORDS:
            listed += f" and {len(records) - _MAX_NAMED_RECORDS} more"
        problem = (
            f"{name} is {result[name]} at step {self.step}; its batch: "
            f"{listed} (all in {self.run_dir}/events.jsonl)"
        )
        if self.config.on_nonfinite == "stop":
            raise _diverged(
                f"{problem}. The run has diverged and the update of this step "
                "was discarded",
                "; or resume with --on_nonfinite=skip or rollback added to "
                "this command",
            )
        if self.config.on_nonfinite == "rollback":
            self.monitor.log(f"{problem}.")
            raise _RollBack
        self._skip(problem)

    def _skip(self, problem: str) -> None:
        self.monitor.log(f"{problem}: skipped.")
        self.progress.skipped_in_a_row += 1
        if self.progress.skipped_in_a_row >= _MAX_SKIPPED_IN_A_ROW:
            raise _diverged(
                f"{self.progress.skipped_in_a_row} steps in a row were "
                f"skipped, the last one step {self.step}: the run has diverged"
            )

    # Actions between calls.

    def _act(self, result: dict[str, float]) -> None:
        """Logs, evaluates, saves and stops as the step demands."""
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
            best = self.progress.best
            self.monitor.log(
                f"{self.job.best_metric} has not improved in {patience} "
                f"evaluations: the run ends at step {step}. "
                + (
                    f"The best model, of step {best['step']:.0f}, is in "
                    f"{self.run_dir}/{BEST_MODEL}."
                    if best
                    else f"It was never defined; there is no {BEST_MODEL}."
                )
            )
        stop = bool(result["stop_requested"]) or self._stops_waiting()
        due = step % config.save_checkpoints_steps == 0
        if better or due or stop or self.progress.finished:
            self._save(best=better, needed=stop or self.progress.finished)
        if stop and not self.progress.finished:
            # A launcher ends the remaining workers once one has ended: none
            # may end before the chief has saved.
            broadcast(self.trainer.strategy, 0.0)
            raise self._stopped()

    def _stopped(self) -> RunStopped:
        received = self.interruption.received
        name = received.name if received else "Another worker's signal"
        return RunStopped(
            f"{name}: saved at step {self.step}; the same command resumes the "
            "run.",
            128 + (received or signal.SIGTERM),
        )

    def _stops_waiting(self) -> bool:
        """Returns whether a signal ends the run while it waits for data.

        Several workers stop together, after a step.
        """
        here = self.interruption.received is not None
        return here and is_alone(self.trainer.strategy)

    def _log(self, result: dict[str, float]) -> None:
        means = self.window.means()
        losses = [target.loss for target in self.trainer.objective.targets]
        if set(losses) <= set(means):
            means["loss"] = sum(means[name] for name in losses)
        for name in ("gradient_norm", "learning_rate", "loss_scale"):
            if name in result:
                means[name] = result[name]
        means["weight_norm"] = self.trainer.weight_norm()
        means["skipped_steps"] = self.progress.skipped_steps
        means["records_crc32"] = self.progress.records_crc32
        self.monitor.log_training(self.step, means, self.trainer.trust_ratios())
        for line in self.stragglers.compare():
            self.monitor.log(line)
        self.monitor.throughput.restart()
        self.window = RunningMeans()

    def _evaluate(self, last: bool) -> bool:
        """Returns whether the model is the best so far, and saved as such."""
        with self.trainer.averaged_weights():
            metrics = self.job.evaluate(self.step)
            text = self.job.samples()
        for name, value in metrics.items():
            if not math.isfinite(value) and is_loss(name):
                raise _diverged(
                    f"{name} is {value} in the evaluation at step "
                    f"{self.step}: the run has diverged"
                )
        self.progress.evaluation = metrics
        self.progress.roll_backs = 0
        self.monitor.log_scalars("eval", self.step, metrics)
        if text:
            self.monitor.log_text(
                "predictions", text, step=self.step, split="eval"
            )
        if self.is_chief:
            for name, png in self.job.figures().items():
                self.monitor.log_figure(name, png, split="eval", step=self.step)
        metric, best = self.job.best_metric, self.progress.best
        value = metrics[metric]
        # NaN: a correlation of constant predictions.
        if math.isnan(value) or (
            best and not is_better(metric, value, best["value"])
        ):
            self.progress.without_better += 1
            return False
        self.progress.without_better = 0
        if not self.saving.model(BEST_MODEL, metrics, needed=last):
            return False
        self.progress.best = {"step": self.step, "value": value}
        return True

    def _save(self, *, best: bool = False, needed: bool = False) -> None:
        if not self.is_chief:
            return
        self.monitor.flush()
        self.progress.window = self.window.sums
        self.progress.losses = self.spikes.losses
        self.progress.log = self.monitor.written()
        self.saving.checkpoint(
            self.step,
            dataclasses.asdict(self.progress),
            best=best,
            needed=needed,
        )
