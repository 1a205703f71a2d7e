"""Saving of checkpoints and models, also when the disk is full."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.cluster.stops import WRITING_FAILED, RunStopped
from albert_tf.io import files
from albert_tf.rundir.checkpoints import Checkpoints
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.training.job import Job

# Model directories within the run directory: of the last step, and of the
# best evaluation.
MODEL = "model"
BEST_MODEL = "best_model"
# Failures in a row after which the run ends.
_MAX_FAILURES = 3


class Saving:
    """Writes a run's checkpoints and model directories.

    A failure is logged and the run continues; it ends with RunStopped where the
    file is needed, writing failed too often or the run directory is gone.
    """

    def __init__(
        self, job: Job, checkpoints: Checkpoints, log: Callable[[str], None]
    ) -> None:
        self._job = job
        self._run_dir = job.environment.run_dir
        self._checkpoints = checkpoints
        self._log = log
        self._failures = 0

    def checkpoint(
        self, step: int, state: dict, *, best: bool, needed: bool
    ) -> None:
        """Saves a checkpoint (Checkpoints.save); only the chief calls it."""
        failure = (
            f"The checkpoint of step {step} could not be saved in "
            f"{self._run_dir}"
        )
        with self._reporting(failure, needed):
            self._check_directory()
            self._checkpoints.save(step, state, best=best)
            self._failures = 0

    def model(
        self, name: str, evaluation: Mapping[str, float], *, needed: bool
    ) -> bool:
        """Writes a model directory; returns, on all workers, the success."""
        path = os.path.join(self._run_dir, name)
        written = False
        with self._reporting(f"{path} could not be written", needed):
            self._check_directory()
            if is_chief(self._job.trainer.strategy):
                with self._job.trainer.averaged_weights():
                    self._job.export(path, evaluation)
            written = True
        return bool(broadcast(self._job.trainer.strategy, float(written)))

    def _check_directory(self) -> None:
        # Saving would create it again, with half of a run in it.
        if not is_chief(self._job.trainer.strategy):
            return
        path = os.path.join(self._run_dir, CONFIG)
        try:
            with files.open(path):
                pass
        except FileNotFoundError:
            raise RunStopped(
                f"{path} is gone: the run directory was removed or emptied "
                "during the run. Start again with an empty --run_dir.",
                WRITING_FAILED,
            ) from None

    @contextlib.contextmanager
    def _reporting(self, failure: str, needed: bool) -> Iterator[None]:
        """Logs an error in the context, or ends the run."""
        try:
            yield
            return
        except OSError as error:
            problem = f"{failure}: {error.strerror or error}."
        self._failures += 1
        if needed or self._failures >= _MAX_FAILURES:
            steps = self._checkpoints.steps()
            raise RunStopped(
                f"{problem} The last good checkpoint is of step "
                f"{steps[-1] if steps else 'none'}; make room and start the "
                "same command again.",
                WRITING_FAILED,
            )
        self._log(f"{problem} The run continues and tries again later.")
