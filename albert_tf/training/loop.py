"""The training loop: batches in; logs, evaluations and checkpoints out."""

import contextlib
import faulthandler
import math
import os
import signal
import time
import zlib
from collections.abc import Iterator

from albert_tf.cluster.distribution import (
    all_gather,
    broadcast,
    is_alone,
    is_chief,
    lost_workers,
    out_of_memory,
)
from albert_tf.cluster.stops import TEMPORARY_FAILURE, Interruption, RunStopped
from albert_tf.cluster.stragglers import Stragglers
from albert_tf.config import UserError
from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.prefetch import InputStalled, prefetch
from albert_tf.interchange.model_files import recover_directory
from albert_tf.io.object_stores import LASTING
from albert_tf.optim.schedules import warm_up_warnings
from albert_tf.rundir.checkpoints import remove_leftovers
from albert_tf.rundir.profiling import Profiler
from albert_tf.rundir.run_directory import claim, locked
from albert_tf.training.actions import evaluate, finish_if_due, log_step
from albert_tf.training.job import Job
from albert_tf.training.run_state import BEST_MODEL, MODEL, RunState
from albert_tf.training.skipped_steps import RollBack, handle_skipped
from albert_tf.training.trainer import StepResult


def train(job: Job) -> dict[str, float]:
    """Trains to the last step and returns the evaluation of the model.

    Resumes from the newest good checkpoint. Writes checkpoints/, the logs and
    model/, which is that of the best evaluation (of jobs in `KEEP_THE_BEST`)
    or of the last step, beside which best_model/ is the best.

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

    strategy, run_dir = job.strategy, job.run_dir
    changes: dict[str, list] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(lost_workers(strategy))
        stack.enter_context(out_of_memory())
        # Builds the model: what does not fit it is found before the directory
        # is claimed.
        loop = _Loop(job)
        if is_chief(strategy):
            stack.enter_context(locked(run_dir))
            # This comes after all other checks: a corrected command may use
            # the same directory.
            changes = claim(
                run_dir,
                job.description(),
                extends=bool(job.runtime.extend_to_steps),
            )
            remove_leftovers(run_dir)
            for name in (BEST_MODEL, MODEL):
                recover_directory(os.path.join(run_dir, name))
        stack.enter_context(loop.interruption.handled())
        stack.enter_context(contextlib.closing(loop))
        return loop.run(changes)


class _Loop:
    """One process's part of a run, from a checkpoint to the end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.trainer = job.trainer
        self.config = job.config.training
        self.runtime = job.runtime
        self.interruption = Interruption()
        self.state = RunState(job)
        self.profiler = Profiler(
            self.runtime.profile_steps,
            os.path.join(job.run_dir, "tensorboard"),
            writes=is_chief(self.trainer.strategy),
        )
        # Pairs of a source's number and a depth.
        self.compiled: set[tuple[int, int | None]] = set()
        self.stragglers = Stragglers(
            self.trainer.strategy, self.config.precision
        )

    def run(self, changes: dict[str, list]) -> dict[str, float]:
        state = self.state
        state.resume(changes)
        for line in self._warnings():
            state.log(line)
        if self.config.on_nonfinite == "rollback" and not state.step:
            # The target of a roll-back before the first regular checkpoint.
            state.save(needed=True)
        while not state.progress.finished:
            try:
                self._train()
            except RollBack:
                state.roll_back()
        if state.take_best():
            # A run that was killed after its last checkpoint lacks it.
            state.save_model(MODEL, needed=True)
            with (
                self.trainer.averaged_weights(),
                self._reading("A batch of the held-out data"),
            ):
                self.job.conclude(state.step)
        # A barrier: a worker that leaves early counts as lost. A signal since
        # the last step is for the runs that follow this one, too.
        received = float(self.interruption.received is not None)
        if any(all_gather(self.trainer.strategy, received)):
            raise self._stopped(
                f"{self.job.run_dir} is complete; the same command goes on"
            )
        return state.progress.evaluation

    def close(self) -> None:
        """Closes the logs."""
        self.profiler.close()
        self.state.close()

    def _warnings(self) -> Iterator[str]:
        """Yields warnings of the job, and of settings without effect."""
        last = self.config.num_train_steps
        yield from self.job.warnings
        yield from warm_up_warnings(self.job.config.optimizer, last)
        if (step := min(self.profiler.steps, default=0)) >= last:
            yield (
                f"profile_steps starts at step {step}, beyond "
                f"num_train_steps={last}: it has no effect."
            )

    def _train(self) -> None:
        source = prefetch(
            self._batches,
            self._step_ranges(self.state.step),
            timeout=self.runtime.data_timeout_secs,
            give_up=self._stops_at_once,
        )
        with contextlib.closing(source):
            while not self.state.progress.finished:
                call, batches = self._next(source)
                if call.start in self._changes_of_batches():
                    # The losses do not compare with those before.
                    self.state.spikes.losses = []
                with self._compiling(call.start), self.profiler.profiled(call):
                    results = self.trainer.train_steps(
                        batches,
                        self.job.depths.at(call.start),
                        loss_limit=self.state.spikes.limit(),
                        stop_requested=self.interruption.received is not None,
                    )
                for batch, result in zip(batches, results, strict=True):
                    self._record_step(batch, result)
                # The first call compiles, and is not timed.
                self.state.monitor.throughput.begin()
                self._act(results[-1])

    def _changes_of_batches(self) -> set[int]:
        """Returns the steps where masks, shards or depth change."""
        return {*self.job.sources.starts, *self.job.depths.starts}

    def _step_ranges(self, step: int) -> Iterator[range]:
        """Yields the steps of each call of the trainer.

        They end where an action is due, since actions happen between calls.
        """
        config = self.config
        intervals = [
            config.log_steps,
            config.eval_steps,
            config.save_checkpoints_steps,
        ]
        fixed = sorted(
            {
                *self._changes_of_batches(),
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
        sources = self.job.sources
        rows = self.trainer.rows(sources.at(call.start).batch_size)
        passed_over = self.state.progress.passed_over
        return call, [sources.batch(step, passed_over, rows) for step in call]

    def _next(self, source: Iterator) -> tuple[range, list[Batch]]:
        state = self.state
        begin = time.monotonic()
        with self._reading(f"The batch of step {state.step + 1}"):
            try:
                item = next(source)
            except InputStalled:
                if not self._stops_at_once():
                    raise
                if state.step not in state.checkpoints.steps():
                    state.save(needed=True)
                raise self._stopped() from None
        state.monitor.throughput.wait(time.monotonic() - begin)
        return item

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Ends the run where reading hangs or fails in the context.

        Nothing is saved: a run that resumed from a step whose evaluation is
        missing would leave it out.
        """
        try:
            yield
        except InputStalled:
            faulthandler.dump_traceback(all_threads=True)
            raise RunStopped(
                f"{what} was not read within "
                f"{self.runtime.data_timeout_secs:g} seconds (see above where "
                "it hangs): is the disk or the network of the data there? "
                "Start the same command again.",
                TEMPORARY_FAILURE,
            ) from None
        except OSError as error:
            if error.errno in LASTING:
                raise
            raise RunStopped(
                f"{what} cannot be read: {error.filename}: {error.strerror}. "
                "Start the same command again.",
                TEMPORARY_FAILURE,
            ) from None

    @contextlib.contextmanager
    def _compiling(self, step: int) -> Iterator[None]:
        """Logs a call that compiles the step, which may take minutes.

        It is the first call of the process, of a source or of a depth.
        """
        key = (self.job.sources.number(step), self.job.depths.at(step))
        if key in self.compiled:
            yield
            return
        self.compiled.add(key)
        self.state.log(
            "Compiling the training step for "
            f"{self.trainer.describe_devices()} (first call) ..."
        )
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        self.state.log(f"The first call took {seconds:.1f} seconds.")

    def _record_step(self, batch: Batch, result: StepResult) -> None:
        state, progress = self.state, self.state.progress
        numbers = self.job.sources.record_numbers(
            state.step, progress.passed_over
        )
        progress.records_crc32 = zlib.crc32(
            numbers.tobytes(), progress.records_crc32
        )
        state.monitor.advance(
            loss=result.loss,
            sequences=len(numbers),
            # An example of multiple choice has the tokens of every choice.
            tokens=len(numbers) * math.prod(batch["input_ids"].shape[1:]),
            **self.job.flops(state.step, batch),
        )
        state.step += 1
        if result.skipped:
            handle_skipped(state, result)
            return
        progress.skipped_in_a_row = 0
        state.window.add(result.sums)
        state.spikes.add(result.loss)

    def _act(self, result: StepResult) -> None:
        """Does what is due after a step with this result."""
        state = self.state
        if self._is_due(self.config.log_steps):
            log_step(state, self.stragglers, result)
        with self._reading(f"A batch of the evaluation at step {state.step}"):
            better = self._is_due(self.config.eval_steps) and evaluate(state)
        finish_if_due(state)
        self._save_or_stop(better, bool(result.stop_requests))

    def _is_due(self, interval: int) -> bool:
        """Returns whether an interval or the run ends; 0: no interval does."""
        step = self.state.step
        last = step == self.config.num_train_steps
        return last or (interval > 0 and step % interval == 0)

    def _save_or_stop(self, better: bool, stop_requested: bool) -> None:
        """Saves a checkpoint where one is due, and stops after a signal."""
        state, finished = self.state, self.state.progress.finished
        stop = stop_requested or self._stops_at_once()
        due = self._is_due(self.config.save_checkpoints_steps)
        needed = stop or finished or (better and state.keeps_best)
        if needed or better or due:
            state.save(best=better, needed=needed)
        if stop and not finished:
            # A launcher ends the remaining workers once one has ended: none
            # may end before the chief has saved.
            broadcast(self.trainer.strategy, 0.0)
            raise self._stopped()

    def _stopped(self, done: str = "") -> RunStopped:
        received = self.interruption.received
        name = received.name if received else "Another worker's signal"
        saved = (
            f"saved at step {self.state.step}; the same command resumes the run"
        )
        return RunStopped(
            f"{name}: {done or saved}.",
            128 + (received or signal.SIGTERM),
        )

    def _stops_at_once(self) -> bool:
        """Returns whether a signal ends the run without another step.

        Several workers stop together: the all-reduced `stop_requests` of a
        step report the signal to each.
        """
        here = self.interruption.received is not None
        return here and is_alone(self.trainer.strategy)
