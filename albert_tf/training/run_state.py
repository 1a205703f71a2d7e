"""The state of a run: resumed from a checkpoint, rolled back and saved."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterator

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.cluster.environment import describe_environment
from albert_tf.cluster.matmul_rate import matmul_rate
from albert_tf.cluster.stops import WRITING_FAILED, RunStopped
from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.rundir.checkpoints import Checkpoints, Restored
from albert_tf.rundir.monitor import Monitor
from albert_tf.rundir.run_directory import CONFIG, record_changes
from albert_tf.rundir.run_results import KEEP_THE_BEST
from albert_tf.training.job import Job, Progress
from albert_tf.training.running_statistics import RunningMeans, SpikeDetector

# Model directories within the run directory: the result, and, where that is of
# the last step, the model of the best evaluation.
MODEL = "model"
BEST_MODEL = "best_model"
# Failures to write in a row after which the run ends.
_MAX_FAILURES = 3
# Measured once for all runs of a process: it takes a quarter of a second.
_peak_flops = functools.cache(matmul_rate)


class RunState:
    """The step, progress, statistics and logs of a run in this process.

    A restore replaces them, the logs too. A checkpoint or model that cannot be
    written is logged and the run continues; it ends with RunStopped where the
    file is needed, writing failed too often or the run directory is gone.
    """

    def __init__(self, job: Job) -> None:
        trainer, config = job.trainer, job.config.training
        self.job = job
        self.keeps_best = job.name in KEEP_THE_BEST
        self.best_model = MODEL if self.keeps_best else BEST_MODEL
        self.step, self.progress = 0, Progress()
        self._run_dir = job.run_dir
        self._is_chief = is_chief(trainer.strategy)
        self.checkpoints = Checkpoints(
            os.path.join(self._run_dir, "checkpoints"),
            trainer.variables(),
            config.keep_checkpoint_max,
        )
        self._failures = 0
        self.monitor: Monitor | None = None
        # All replicas count, as in the throughput that it is compared with.
        self._peak_flops = (
            _peak_flops(config.precision) * trainer.num_devices()
            if self._is_chief
            else None
        )

    def log(self, line: str) -> None:
        """Prints a line."""
        self.monitor.log(line)

    def close(self) -> None:
        """Closes the logs."""
        if self.monitor:
            self.monitor.close()

    def resume(self, changes: dict[str, list]) -> None:
        """Restores the newest good checkpoint, and applies changed settings.

        `changes` are the chief's result of `claim`.
        """
        run_dir = self._run_dir
        restored = self._restore_latest()
        if self.job.log is print:
            # A closed pipe must not end the run, as by `print`.
            self.job.log = self.log
        self._apply(changes, resumed=restored is not None)
        if self.progress.finished:
            self.log(
                f"{run_dir} has been trained to its end, step {self.step}."
            )
        elif restored:
            self.log(f"Resuming from step {self.step} of {run_dir}.")
        if not restored and self.monitor.lines_cut:
            self.log(f"{run_dir} has no checkpoint: the run begins again.")

    def take_best(self) -> bool:
        """Restores the model of the best evaluation, if it is the result.

        `step` and `progress.evaluation` become those of that evaluation; the
        logs stay. Returns, on all workers, whether the trainer has the model:
        its checkpoint may be damaged, while model/ is what was written then.
        """
        best = self.progress.best
        if not self.keeps_best or best.get("step", self.step) == self.step:
            return True
        step, restored = int(best["step"]), None
        path = os.path.join(self._run_dir, MODEL)
        if self._is_chief:
            try:
                restored = self.checkpoints.restore(step)
            except UserError as error:
                if not files.isdir(path):
                    raise
                self.log(f"{error} {path} stays as it is.")
        restored = self._on_all_workers(restored)
        last = self.job.config.training.num_train_steps
        self.log(
            f"{path} is of step {step} of {last}, the best by "
            f"{self.job.best_metric}."
        )
        self.step = step
        self.progress.evaluation = (
            restored.state["evaluation"]
            if restored
            else self.progress.best_evaluation
        )
        return restored is not None

    def _on_all_workers(self, restored: Restored | None) -> Restored | None:
        """Restores, on the other workers, what the chief has restored."""
        step = broadcast(
            self.job.trainer.strategy, restored.step if restored else -1
        )
        if step >= 0 and not self._is_chief:
            return self.checkpoints.restore(int(step))
        return restored

    def roll_back(self) -> None:
        """Restores the last checkpoint, and passes over the batches since.

        Raises:
            UserError: when the checkpoints were removed, or none is good.
        """
        bad_step, before = self.step, self.progress
        if not self._restore_latest():
            raise UserError(
                f"{self.checkpoints.directory} has no checkpoint to roll back "
                f"to from step {bad_step}: start the same command again."
            )
        passed_over = bad_step - self.step
        self.progress.passed_over = before.passed_over + passed_over
        self.progress.roll_backs = before.roll_backs + 1
        self.log(
            f"Back to step {self.step}; the examples of the {passed_over} "
            f"steps up to {bad_step} are left out."
        )

    def _restore_latest(self) -> Restored | None:
        """Restores the chief's newest good checkpoint on all workers.

        The others do not look for it: they may see an older directory.
        """
        restored, problems = None, list[str]()
        if self._is_chief:
            restored, problems = self.checkpoints.restore_latest()
        restored = self._on_all_workers(restored)
        self._set(restored)
        for line in problems:
            self.log(line)
        return restored

    def save(self, *, best: bool = False, needed: bool = False) -> None:
        """Saves a checkpoint, if this is the chief."""
        self.progress.roll_backs = 0
        if not self._is_chief:
            return
        self.monitor.flush()
        self.progress.window = self.window.sums
        self.progress.losses = self.spikes.losses
        self.progress.log = self.monitor.written()
        failure = (
            f"The checkpoint of step {self.step} could not be saved in "
            f"{self._run_dir}"
        )
        with self._writing(failure, needed):
            self._check_directory()
            state = dataclasses.asdict(self.progress)
            self.checkpoints.save(self.step, state, best=best)
            self._failures = 0

    def save_model(self, name: str, *, needed: bool) -> bool:
        """Writes a model directory; returns, on all workers, the success."""
        trainer, written = self.job.trainer, False
        path = os.path.join(self._run_dir, name)
        if self._is_chief:
            with self._writing(f"{path} could not be written", needed):
                self._check_directory()
                with trainer.averaged_weights():
                    self.job.export(path, self.progress.evaluation)
                written = True
        return bool(broadcast(trainer.strategy, float(written)))

    @contextlib.contextmanager
    def _writing(self, failure: str, needed: bool) -> Iterator[None]:
        """Logs an OSError in the context, or ends the run."""
        try:
            yield
            return
        except OSError as error:
            problem = f"{failure}: {error.strerror or error}."
        self._failures += 1
        if needed or self._failures >= _MAX_FAILURES:
            steps = self.checkpoints.steps()
            raise RunStopped(
                f"{problem} The last good checkpoint is of step "
                f"{steps[-1] if steps else 'none'}; make room and start the "
                "same command again.",
                WRITING_FAILED,
            )
        self.log(f"{problem} The run continues and tries again later.")

    def _check_directory(self) -> None:
        # Saving would create a new one, with half of a run in it.
        path = os.path.join(self._run_dir, CONFIG)
        try:
            files.open(path).close()
        except FileNotFoundError:
            raise RunStopped(
                f"{path} is gone: the run directory was removed or emptied "
                "during the run. Start again with an empty --run_dir.",
                WRITING_FAILED,
            ) from None

    def _set(self, restored: Restored | None) -> None:
        """Sets everything beside the variables to a checkpoint's state."""
        config = self.job.config.training
        description = self.job.description()
        self.step = restored.step if restored else 0
        self.progress = Progress(**restored.state) if restored else Progress()
        if self.step >= config.num_train_steps:
            # The checkpoint may not say so, after a kill between an
            # extension's checkpoint and its record in config.json.
            self.progress.finished = True
        self.window = RunningMeans(self.progress.window)
        self.spikes = SpikeDetector(config.max_loss_spike, self.progress.losses)
        self.close()
        self.monitor = Monitor(
            self._run_dir,
            num_steps=config.num_train_steps,
            start_step=self.step,
            written=self.progress.log,
            peak_flops=self._peak_flops,
            description=description,
            writes=self._is_chief,
        )
        for name, text in (
            ("environment", describe_environment()),
            ("configuration", f"```\n{json.dumps(description, indent=2)}\n```"),
        ):
            self.monitor.log_text(name, text, step=self.step)

    def _apply(self, changes: dict[str, list], *, resumed: bool) -> None:
        """Applies and records the settings that changed since the last start.

        They are recorded last: a job that is killed before repeats all of it
        with the same result.
        """
        length_changes = float("num_train_steps" in changes)
        if broadcast(self.job.trainer.strategy, length_changes):
            patience = self.job.config.training.early_stopping_patience
            if patience and self.progress.without_better >= patience:
                self.progress.without_better = 0
            self.progress.finished = False
            if resumed:
                best = self.progress.best.get("step") == self.step
                self.save(best=best, needed=True)
        if changes:
            record_changes(
                self._run_dir, self.job.description(), changes, self.step
            )
        for line in self._changed_settings(changes):
            self.log(line)

    def _changed_settings(self, changes: dict[str, list]) -> Iterator[str]:
        if changes:
            changed = ", ".join(
                f"{name}={new} (before: {old})"
                for name, (old, new) in changes.items()
            )
            yield f"From step {self.step + 1} on: {changed}."
        if "eval_steps" in changes:
            yield (
                f"{self.best_model} and early stopping depend on eval_steps: "
                "they use the evaluations that are made."
            )
        if "num_train_steps" in changes:
            old, new = changes["num_train_steps"]
            rate = self.job.trainer.learning_rate
            last = max(self.step - 1, 0)
            yield (
                f"The schedule is now that of {new} steps: the learning rate "
                f"was {rate(last, old):.4g} at step {last + 1}, is "
                f"{rate(self.step, new):.4g} at step {self.step + 1} and "
                f"{rate(new - 1, new):.4g} at step {new}."
            )
