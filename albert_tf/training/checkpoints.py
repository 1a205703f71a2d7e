"""Checkpoints that are whole or do not exist.

A checkpoint is a directory `step-<N>` with a `tf.train.Checkpoint` of a
dictionary keyed by variable path (Keras saves slots by position, which can
restore into the wrong slot without a word), and a manifest with the size and
checksum of each file. It is written aside and renamed when complete.
"""

import dataclasses
import hashlib
import os
import re
import shutil

import tensorflow as tf

from albert_tf.config import UserError, read_json, write_json

_NAME = re.compile(r"step-(\d+)")
_MANIFEST = "manifest.json"
_DAMAGED = ".damaged"


@dataclasses.dataclass(frozen=True)
class Restored:
    """What a checkpoint held beside the variables."""

    step: int
    state: dict


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Checkpoints:
    """The checkpoints of a run.

    Args:
        directory: made when first saved to.
        variables: by path; all are saved, and restoring needs them all.
        keep: how many of the newest to keep.
    """

    def __init__(
        self, directory: str, variables: dict[str, tf.Variable], keep: int
    ) -> None:
        self.directory = directory
        self.keep = keep
        # A slash would end a name in a checkpoint's object graph.
        self._objects = tf.train.Checkpoint(
            variables={
                path.replace("/", "."): variable
                for path, variable in variables.items()
            }
        )

    def steps(self) -> list[int]:
        """Returns the steps that have a checkpoint, oldest first."""
        if not os.path.isdir(self.directory):
            return []
        found = (_NAME.fullmatch(name) for name in os.listdir(self.directory))
        return sorted(int(match[1]) for match in found if match)

    def _path(self, step: int) -> str:
        return os.path.join(self.directory, f"step-{step}")

    def save(self, step: int, state: dict) -> None:
        """Saves the variables and `state` (JSON) and prunes old ones."""
        os.makedirs(self.directory, exist_ok=True)
        temporary = os.path.join(self.directory, "writing")
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        self._objects.write(os.path.join(temporary, "variables"))
        files = {}
        for name in sorted(os.listdir(temporary)):
            path = os.path.join(temporary, name)
            with open(path, "rb") as file:
                os.fsync(file.fileno())
            files[name] = {
                "num_bytes": os.path.getsize(path),
                "sha256": _sha256(path),
            }
        write_json(
            os.path.join(temporary, _MANIFEST),
            {"step": step, "files": files, "state": state},
        )
        target = self._path(step)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(temporary, target)
        for old in self.steps()[: -self.keep]:
            shutil.rmtree(self._path(old))

    def restore_latest(self) -> tuple[Restored | None, list[str]]:
        """Restores the newest good checkpoint.

        Returns:
            What it held, or None when the run has no checkpoint yet; and a
            line for each damaged one that was passed over and set aside.

        Raises:
            UserError: when there are checkpoints and none is good: a run
                never starts afresh over lost work.
        """
        steps = self.steps()
        problems = []
        for step in reversed(steps):
            path = self._path(step)
            problem, state = self._check(path)
            if problem is None:
                self._objects.read(
                    os.path.join(path, "variables")
                ).assert_consumed()
                return Restored(step, state), problems
            aside = path + _DAMAGED
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            problems.append(f"{path}: {problem}; set aside as {aside}.")
        damaged = self._damaged()
        if damaged:
            raise UserError(
                f"No checkpoint in {self.directory} is good: "
                f"{' '.join(problems) or ', '.join(damaged)} "
                "Start in a new --run_dir."
            )
        return None, problems

    def _damaged(self) -> list[str]:
        """Returns the names of what was set aside, now or earlier."""
        if not os.path.isdir(self.directory):
            return []
        return sorted(
            name
            for name in os.listdir(self.directory)
            if name.endswith(_DAMAGED)
        )

    def _check(self, path: str) -> tuple[str | None, dict]:
        """Returns what is wrong with a checkpoint, and its state."""
        try:
            manifest = read_json(os.path.join(path, _MANIFEST))
            for name, expected in manifest["files"].items():
                file = os.path.join(path, name)
                if not os.path.isfile(file):
                    return f"{name} is missing", {}
                size = os.path.getsize(file)
                if size != expected["num_bytes"]:
                    return (
                        f"{name} has {size} bytes and not "
                        f"{expected['num_bytes']}",
                        {},
                    )
                if _sha256(file) != expected["sha256"]:
                    return f"{name} has changed since it was written", {}
            return None, manifest["state"]
        except UserError as error:
            return str(error), {}
        except KeyError as error:
            return f"{_MANIFEST} has no {error}", {}
