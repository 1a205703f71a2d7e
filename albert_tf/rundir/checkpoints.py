"""The checkpoints of a run: which there are, which stay, which is taken.

A checkpoint is one file, `step-<N>`, which has its name only when it is whole
(see variables_file.py), on a disk as in a bucket. Nothing else says which
checkpoints there are, so a stop at any moment leaves either the new one or
what was there before.
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
    check_variables,
    fill_variables,
    read_about,
    write_variables,
)

_NAME = re.compile(r"step-(\d+)")
_DAMAGED = ".damaged"
# Names of files in a run directory and among its checkpoints.
_OF_A_RUN = re.compile(r"step-\d+|\w+\.jsonl?")


class SaveFailed(Exception):
    """A checkpoint that could not be written; told in one line."""


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held beside the variables."""

    step: int
    state: dict


def remove_leftovers(directory: str) -> None:
    """Removes what processes that were killed had begun to write.

    Only of files that a run consists of: others may be somebody's.
    """
    for name in files.listdir(directory):
        if _OF_A_RUN.fullmatch(files.unfinished(name)):
            files.remove(os.path.join(directory, name))


class Checkpoints:
    """The checkpoints of a run.

    Args:
        directory: made when first saved to.
        variables: by path; all are saved, and restoring needs them all.
        keep: how many of the newest to keep, beside the newest best one.
        writes: False in a worker that is not the chief, which reads only:
            `save` leaves all to the chief.
    """

    def __init__(
        self,
        directory: str,
        variables: dict[str, tf.Variable],
        keep: int,
        *,
        writes: bool = True,
    ) -> None:
        self.directory = directory
        self.keep = keep
        self.writes = writes
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
                # Whether it is whole is asked when it is restored.
                continue
        return None

    def save(self, step: int, state: dict, *, best: bool = False) -> None:
        """Saves the variables and `state` (JSON), and removes old ones.

        Raises:
            SaveFailed: when the directory cannot be written, as when the
                disk is full. The checkpoints that were there stay.
        """
        if not self.writes:
            return
        about = {"step": step, "best": best, "state": state}
        try:
            files.makedirs(self.directory)
            write_variables(self._path(step), self._variables, about)
            self._prune()
        except OSError as error:
            raise SaveFailed(
                f"The checkpoint of step {step} could not be saved in "
                f"{self.directory}: {error.strerror}."
            ) from None

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
        """Restores the newest good checkpoint.

        Returns:
            What it held, or None when the run has no checkpoint yet; and a
            line for each damaged one that was passed over and set aside.

        Raises:
            UserError: when there are checkpoints and none is good: a run
                never starts afresh over lost work. When one cannot be read
                or is of another model.
        """
        if self.writes and files.isdir(self.directory):
            remove_leftovers(self.directory)
        problems = []
        for step in reversed(self.steps()):
            try:
                restored = self._restore(step)
            except Damaged as error:
                problems.append(self._set_aside(self._path(step), str(error)))
                continue
            if self.writes:
                # A process that was killed after its save has not come to it.
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
            about = check_variables(path)
            if about["step"] != step:
                raise Damaged(f"it is the checkpoint of step {about['step']}")
            fill_variables(path, self._variables)
        except OSError as error:
            if error.errno == errno.EIO:
                raise Damaged(f"reading it fails ({error.strerror})") from None
            # It may be whole all the same: to go back further is no remedy.
            raise UserError(
                f"{path} cannot be read: {error.strerror}."
            ) from None
        return Restored(step, about["state"])

    def _set_aside(self, path: str, problem: str) -> str:
        """Returns a line that tells what was done with a damaged one."""
        if not self.writes:
            return f"{path}: {problem}; passed over."
        aside = path + _DAMAGED
        files.replace(path, aside)
        return f"{path}: {problem}; set aside as {aside}."
