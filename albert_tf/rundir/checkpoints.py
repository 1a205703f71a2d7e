"""Checkpoint listing, retention and restore.

A checkpoint is one file, `step-<N>`, which gets its name when it is complete
(see variables_file.py), on a disk as in a bucket. There is no other index, so
a kill at any moment leaves either the new checkpoint or the previous state.
"""

import dataclasses
import errno
import os
import re

import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.rundir.variables_file import (
    Damaged,
    read_about,
    read_variables,
    write_variables,
)

_NAME = re.compile(r"step-(\d+)")
_DAMAGED = ".damaged"
# Files of a run directory and of its checkpoints.
_OF_A_RUN = re.compile(r"step-\d+|\w+\.(jsonl?|html|md)")


@dataclasses.dataclass(frozen=True)
class Restored:
    """The step and state of a restored checkpoint."""

    step: int
    state: dict


def remove_leftovers(directory: str) -> None:
    """Removes incomplete files that killed processes of a run left."""
    for name in files.listdir(directory):
        if _OF_A_RUN.fullmatch(files.unfinished(name)):
            files.remove(os.path.join(directory, name))


class Checkpoints:
    """The checkpoints of a run, the `keep` newest and the newest best.

    The variables, by path, are saved and must all be in a restored file. Only
    the chief saves, and restores the latest.
    """

    def __init__(
        self, directory: str, variables: dict[str, tf.Variable], keep: int
    ) -> None:
        self.directory = directory
        self.keep = keep
        self._variables = variables

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first."""
        found = (_NAME.fullmatch(name) for name in self._names())
        return sorted(int(match[1]) for match in found if match)

    def best_step(self) -> int | None:
        """Returns the newest step that was saved as the best one so far."""
        for step in reversed(self.steps()):
            try:
                if read_about(self._path(step))["best"]:
                    return step
            except Damaged:
                continue  # Reported when it is restored.
        return None

    def save(self, step: int, state: dict, *, best: bool = False) -> None:
        """Saves the variables and `state` (JSON), and removes old files.

        Raises:
            OSError: as on a full disk; existing checkpoints stay.
        """
        about = {"step": step, "best": best, "state": state}
        files.makedirs(self.directory)
        write_variables(self._path(step), self._variables, about)
        self._prune()

    def restore(self, step: int) -> Restored:
        """Restores the checkpoint of a step.

        Raises:
            UserError: when it is missing, damaged, or of another model.
        """
        try:
            return self._restore(step)
        except Damaged as error:
            raise UserError(
                f"{self._path(step)} is damaged: {error}."
            ) from None

    def restore_latest(self) -> tuple[Restored | None, list[str]]:
        """Restores the newest good checkpoint, if the run has any yet.

        Returns it, and a line for each damaged one, which is renamed.

        Raises:
            UserError: when there are checkpoints and none is good (a run
                never silently restarts from nothing), or when one cannot be
                read or is of another model.
        """
        if files.isdir(self.directory):
            remove_leftovers(self.directory)
        problems = []
        for step in reversed(self.steps()):
            try:
                restored = self._restore(step)
            except Damaged as error:
                path, aside = self._path(step), f"{self._path(step)}{_DAMAGED}"
                files.replace(path, aside)
                problems.append(f"{path}: {error}; set aside as {aside}.")
                continue
            # A process may have been killed between save and pruning.
            self._prune()
            return restored, problems
        damaged = [name for name in self._names() if name.endswith(_DAMAGED)]
        if problems or damaged:
            left = f"nothing but {', '.join(damaged)} is left."
            raise UserError(
                f"No checkpoint in {self.directory} is good: "
                f"{' '.join(problems) or left} Start in a new --run_dir."
            )
        return None, problems

    def _names(self) -> list[str]:
        if not files.isdir(self.directory):
            return []
        return files.listdir(self.directory)

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, f"step-{step}")

    def _prune(self) -> None:
        best = self.best_step()
        for step in self.steps()[: -self.keep]:
            if step != best:
                files.remove(self._path(step))

    def _restore(self, step: int) -> Restored:
        path = self._path(step)
        try:
            about = read_variables(path, self._variables)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Damaged(f"reading it fails ({error.strerror})") from None
            # The file may be good: an older one would be no remedy.
            raise UserError(
                f"{path} cannot be read: {error.strerror}."
            ) from None
        if about["step"] != step:
            raise Damaged(f"it is the checkpoint of step {about['step']}")
        return Restored(step, about["state"])
