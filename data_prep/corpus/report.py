"""Faults and counts of reading a corpus: `CorpusReport`.

Faults have names that begin with `bad/` and are counted in lines; they are
reported, and too large a share of bad lines stops the job. Events like
`long_lines_parted` are counted and harm nothing.
"""

import dataclasses
from collections import Counter
from typing import NamedTuple

from albert_tf.config import UserError


class Fault(NamedTuple):
    """A row of FAULTS: its name in a message, what is done, its remedy."""

    name: str
    treatment: str
    remedy: str


FAULTS = {
    "bad/not_utf8": Fault(
        "not UTF-8",
        "kept with U+FFFD for such bytes",
        "convert the files (iconv -f WINDOWS-1252 -t UTF-8)",
    ),
    "bad/control_characters": Fault(
        "control characters",
        "kept with blanks for them",
        "remove binary data",
    ),
    "bad/not_json": Fault(
        "not JSON",
        "left out",
        "write one JSON object on each line (of an array jq -c '.[]' does)",
    ),
    "bad/no_text_field": Fault(
        "without a string as text",
        "left out",
        "name the column that has it with --text_column",
    ),
    "bad/empty_documents": Fault(
        "empty documents", "left out", "remove empty documents"
    ),
    "bad/damaged_archive": Fault(
        "cut or damaged archive",
        "read up to the damage",
        "fetch the damaged files again",
    ),
}


@dataclasses.dataclass
class CorpusReport:
    """Counts of reading files; one report per file or one for many.

    Attributes:
        counts: `lines`, `documents`, `characters`, `bad_lines`, lines per
            fault (see FAULTS) and harmless events. A line with several
            faults is one bad line. An empty file is one bad line too.
        first_locations: the first location of each fault: "path, line 3".
    """

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    first_locations: dict[str, str] = dataclasses.field(default_factory=dict)

    def merge(self, other: "CorpusReport") -> None:
        """Adds the report of files that come after those of this one."""
        self.counts.update(other.counts)
        for reason, location in other.first_locations.items():
            self.first_locations.setdefault(reason, location)

    @property
    def bad_fraction(self) -> float:
        """The share of bad lines among all lines."""
        return self.counts["bad_lines"] / max(1, self.counts["lines"])

    def describe_faults(self) -> str:
        """Returns the share of bad lines, every fault and what was done.

        Empty where there are none.
        """
        if not self.counts["bad_lines"]:
            return ""
        treated = [
            f"{found}, {FAULTS[reason].treatment}"
            for reason, found in self._faults().items()
        ]
        return f"{self._share()}: {'; '.join(treated)}"

    def _share(self) -> str:
        return (
            f"Bad lines: {self.counts['bad_lines']} of {self.counts['lines']} "
            f"({100 * self.bad_fraction:.3g}%)"
        )

    def _faults(self) -> dict[str, str]:
        """Returns the number and the first location of each fault."""
        return {
            reason: f"{self.counts[reason]} {FAULTS[reason].name} "
            f"(first: {location})"
            for reason, location in self.first_locations.items()
        }

    def check(
        self, max_bad_fraction: float, skip_header_lines: int = 0
    ) -> None:
        """Raises UserError if the share of bad lines is above the allowed.

        `skip_header_lines` is that of the files, for the message.
        """
        if self.bad_fraction <= max_bad_fraction:
            return
        empty = self.first_locations.keys() == {"bad/empty_documents"}
        if empty and not self.counts["documents"]:
            where = ""
            if skip_header_lines:
                where = (
                    f" behind the {skip_header_lines} lines that "
                    "--skip_header_lines leaves out of each file"
                )
            raise UserError(
                f"The input has no text{where} (first: "
                f"{self.first_locations['bad/empty_documents']})."
            )
        remedies = ", ".join(
            FAULTS[reason].remedy for reason in self.first_locations
        )
        raise UserError(
            f"{self._share()}: {', '.join(self._faults().values())}; "
            f"max_bad_fraction={max_bad_fraction:g} is allowed. Either "
            f"{remedies}, or raise --max_bad_fraction."
        )
