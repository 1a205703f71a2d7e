"""What a run keeps, checkpoints and models, and disks without room for it."""

import os
from collections.abc import Callable, Mapping

from albert_tf.cluster.distribution import broadcast, is_chief
from albert_tf.cluster.stops import WRITING_FAILED, RunStopped
from albert_tf.io import files
from albert_tf.rundir.checkpoints import Checkpoints, SaveFailed
from albert_tf.rundir.run_directory import CONFIG
from albert_tf.training.trainer import Trainer

# Failures without a checkpoint between them: then there will be no room.
_MOST_FAILURES = 3


class Saving:
    """Writes a run's checkpoints and model directories.

    What cannot be written is said, and the run goes on without, but not for
    ever, and not where it would end without.
    """

    def __init__(
        self,
        trainer: Trainer,
        checkpoints: Checkpoints,
        run_dir: str,
        export: Callable[[str, Mapping[str, float]], None],
        *,
        log: Callable[[str], None],
    ) -> None:
        """Takes what is written, and where.

        Args:
            trainer: whose weights these are.
            checkpoints: where they are kept.
            run_dir: where model directories go.
            export: writes a model directory at a path, of a model that was
                evaluated so.
            log: takes one line.
        """
        self._trainer = trainer
        self._checkpoints = checkpoints
        self._run_dir = run_dir
        self._export = export
        self._log = log
        self._failures = 0

    def checkpoint(
        self, step: int, state: dict, *, best: bool, needed: bool
    ) -> None:
        """Saves a checkpoint; see Checkpoints.save.

        Raises:
            RunStopped: when that fails and the checkpoint is needed, or
                failed too often before, or the run directory is gone.
        """
        try:
            self._check_directory()
            self._checkpoints.save(step, state, best=best)
        except SaveFailed as error:
            self._failed(str(error), needed)
        except OSError as error:
            said = f"{self._run_dir} cannot be read: {error.strerror or error}."
            self._failed(said, needed)
        else:
            self._failures = 0

    def model(
        self, name: str, evaluation: Mapping[str, float], *, needed: bool
    ) -> bool:
        """Writes a model directory and returns whether that went well.

        All workers learn it, or some would end and others train on.

        Raises:
            RunStopped: as for `checkpoint`.
        """
        path = os.path.join(self._run_dir, name)
        written = True
        try:
            self._check_directory()
            if is_chief(self._trainer.strategy):
                with self._trainer.averaged_weights():
                    self._export(path, evaluation)
        except OSError as error:
            said = f"{path} could not be written: {error.strerror or error}."
            self._failed(said, needed)
            written = False
        return bool(broadcast(self._trainer.strategy, float(written)))

    def _check_directory(self) -> None:
        """Raises RunStopped if the run directory is gone.

        What is saved would make it anew, with half of a run in it. Other
        faults of the disk are OSErrors, as those of saving.
        """
        path = os.path.join(self._run_dir, CONFIG)
        if not is_chief(self._trainer.strategy):
            return
        try:
            with files.open(path):
                pass
        except FileNotFoundError:
            raise RunStopped(
                f"{path} is gone: the run directory was removed, or emptied, "
                "while the run was at work, and what it had kept with it. "
                "Start the command again with a --run_dir that is empty.",
                WRITING_FAILED,
            ) from None

    def _failed(self, said: str, needed: bool) -> None:
        self._failures += 1
        if needed or self._failures >= _MOST_FAILURES:
            steps = self._checkpoints.steps()
            raise RunStopped(
                f"{said} The last good checkpoint is of step "
                f"{steps[-1] if steps else 'none'}; make room and start the "
                "same command again.",
                WRITING_FAILED,
            )
        self._log(f"{said} The run goes on; the next one is tried at its time.")
