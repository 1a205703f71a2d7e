"""The ledger of an experiment's directory: units that have ended.

A unit that has ended is a file of its own, which appears at once when it is
complete, so that any number of processes may share the directory. Entries are
enough for a report and to go on from; what units wrote may be deleted.
"""

import dataclasses
import json
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from albert_tf.config import listed, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from experiments.units import TEXT, Figures, Unit

FINISHED, DIVERGED = "finished", "diverged"
# A unit whose needs diverged.
SKIPPED = "not run"
# What is read of an entry.
_READ = (
    *("unit", "kind", "status", "settings", "figures"),
    *("seconds", "finished", "processor", "versions"),
)
_ADVICE = "Remove this record, and its job runs again."
_PACKAGES = ("tensorflow", "keras", "numpy")
# Marks a unit's directory as whole.
_WHOLE = "whole"
# The seconds for which a unit ran before it was interrupted.
_EARLIER = "seconds.json"


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Entries of the units that have ended, in `directory`/results."""

    directory: str

    def unit_directory(self, unit: Unit) -> str:
        """Returns where a unit works."""
        return os.path.join(self.directory, "units", unit.name)

    def lock(self, unit: Unit) -> str:
        """Returns the lock file that whoever runs a unit holds."""
        return os.path.join(self.directory, "units", f"{unit.name}.lock")

    def _path(self, unit: Unit) -> str:
        return os.path.join(self.directory, "results", f"{unit.name}.json")

    def entry(self, unit: Unit) -> dict[str, Any] | None:
        """Returns what is recorded of a unit; None: it has not ended."""
        path = self._path(unit)
        return _read(path) if files.isfile(path) else None

    def figures(self, unit: Unit) -> Figures | None:
        """Returns a unit's figures; None: it has not ended, or not well."""
        entry = self.entry(unit)
        if entry is None or entry["status"] != FINISHED:
            return None
        return entry["figures"]

    def mark_whole(self, unit: Unit) -> None:
        """Marks that a unit's directory has all that its program writes."""
        files.write(os.path.join(self.unit_directory(unit), _WHOLE), b"")

    def has_output(self, unit: Unit) -> bool:
        """Returns whether all that a finished unit wrote is still there."""
        return files.isfile(os.path.join(self.unit_directory(unit), _WHOLE))

    def earlier_seconds(self, unit: Unit) -> float:
        """Returns for how long a unit ran before it was interrupted."""
        path = os.path.join(self.unit_directory(unit), _EARLIER)
        return read_json(path)["seconds"] if files.isfile(path) else 0.0

    def write_earlier_seconds(self, unit: Unit, seconds: float) -> None:
        """Writes for how long a unit has run, before it is resumed."""
        path = os.path.join(self.unit_directory(unit), _EARLIER)
        write_json(path, {"seconds": seconds})

    def record(
        self,
        unit: Unit,
        status: str,
        figures: Figures,
        seconds: float,
        **computed: Any,
    ) -> None:
        """Records the end of a unit, with all that decides its figures.

        `computed` is how: on how many cores, with which flags beside.
        """
        files.makedirs(os.path.join(self.directory, "results"))
        write_json(
            self._path(unit),
            {
                "unit": unit.name,
                "kind": unit.kind,
                "status": status,
                "settings": unit.settings,
                "needs": {role: u.name for role, u in unit.needs.items()},
                "figures": figures,
                "seconds": seconds,
                **computed,
                "finished": datetime.now(UTC).isoformat(" ", "seconds"),
                **_circumstances(),
            },
        )

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yields all entries, in the order of their end."""
        results = os.path.join(self.directory, "results")
        names = files.listdir(results) if files.isdir(results) else []
        found = [
            _read(os.path.join(results, name))
            for name in names
            if name.endswith(".json")
        ]
        yield from sorted(found, key=lambda e: (e["finished"], e["unit"]))

    def recorded_text(self, unit: Unit) -> str | None:
        """Returns the fingerprint that its kind has recorded of its text.

        None: the kind has not read the text yet, or without a fingerprint.
        """

        def text_of(settings: Mapping[str, Any]) -> list[Any]:
            return [settings.get(n) for n in ("input", "skip_header_lines")]

        found = (
            entry["figures"].get(TEXT)
            for entry in self.entries()
            if entry["kind"] == unit.kind
            and text_of(entry["settings"]) == text_of(unit.settings)
        )
        return next(filter(None, found), None)

    def write_lines(self) -> str:
        """Writes all entries as JSON lines; returns the path."""
        path = os.path.join(self.directory, "results.jsonl")
        lines = (json.dumps(entry) + "\n" for entry in self.entries())
        files.write(path, "".join(lines).encode())
        return path


def _read(path: str) -> dict[str, Any]:
    """Returns an entry; raises UserError for a damaged one."""
    entry = read_json(path, advice=_ADVICE)
    missing = [name for name in _READ if name not in entry]
    require(not missing, f"{path} has no {listed(missing)}. {_ADVICE}")
    return entry


def _circumstances() -> dict[str, Any]:
    # TensorFlow takes seconds to import, which `environment` does.
    from albert_tf.cluster.environment import (
        cpu_model,
        source_commit,
        usable_cpus,
    )

    return {
        "commit": source_commit(),
        "host": socket.gethostname(),
        "processor": cpu_model(),
        "processors": usable_cpus(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }
