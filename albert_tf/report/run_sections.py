"""What the reports of all runs have: curves, settings, machine; the file."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.cluster.environment import environment, source_commit
from albert_tf.config import Log, ModelConfig, optional_page, to_dict
from albert_tf.io import files
from albert_tf.report.figures import Line, draw_lines
from albert_tf.report.page import (
    Code,
    Figure,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
    to_html,
)
from albert_tf.rundir.run_directory import CONFIGS, recorded_run
from albert_tf.rundir.run_results import METRICS_FILE, log_lines

REPORT_FILE = "report.html"
# Points of a curve; more do not fit into a figure.
_MAX_POINTS = 500


def write_report(run_dir: str, make_page: Callable[[], Page], log: Log) -> None:
    """Writes report.html into a run directory.

    Whatever fails is logged: the run itself is complete.
    """
    path = os.path.join(run_dir, REPORT_FILE)
    with optional_page(path, log, "the model is complete"):
        files.write(path, to_html(make_page()).encode())
        log(f"The report is in {path}.")


def curves(run_dir: str, names: Mapping[str, Sequence[str]]) -> Iterator[Part]:
    """Yields a figure of each group of scalars in metrics.jsonl.

    The groups are by their titles; a scalar may be one of training, of
    evaluation or of both.
    """
    lines = list(log_lines(os.path.join(run_dir, METRICS_FILE)))
    for title, group in names.items():
        drawn = {
            f"{name} ({split})": [line]
            for name in group
            for split in ("train", "eval")
            if len((line := _line(lines, name, split))[0])
        }
        if any(len(x) > 1 for ((x, _),) in drawn.values()):
            name = f"{title.lower().replace(' ', '_')}.png"
            yield Figure(
                draw_lines(drawn, "step"),
                f"{title[0].upper()}{title[1:]}.",
                name,
            )


def _line(lines: Iterable[Mapping[str, Any]], name: str, split: str) -> Line:
    points = [
        (line["step"], line[name])
        for line in lines
        if line["split"] == split and line.get(name) is not None
    ]
    every = -(-len(points) // _MAX_POINTS) or 1
    # The last point stays.
    kept = points[::-1][::every][::-1]
    x, y = np.array(kept, np.float64).reshape(-1, 2).T
    return x, y


def settings_section(run_dir: str) -> Section:
    """Returns the settings of a run that differ from their defaults."""
    recorded = recorded_run(run_dir)
    defaults = to_dict(CONFIGS[recorded["job"]]())
    sections = dict(recorded["config"])
    if "model" in recorded:
        sections["model"] = recorded["model"]
        defaults["model"] = to_dict(ModelConfig())
    rows = [
        [name, value, defaults[section].get(name, "")]
        for section, values in sections.items()
        for name, value in values.items()
        if value != defaults[section].get(name)
    ]
    table = Table(
        ["setting", "value", "default"],
        [
            [name, _shown(value), _shown(default)]
            for name, value, default in rows
        ],
        "What differs from the defaults; config.json has all of them.",
    )
    return Section("Settings", [table])


def machine_section(notes: Sequence[str]) -> Section:
    """Returns the versions and the machine of this process.

    `notes` are the command, if there is any, and lines about it.
    """
    found = environment()
    if commit := source_commit():
        found["commit"] = commit
    table = Table(["name", "value"], list(found.items()))
    command = [Code(line) for line in notes[:1]]
    others = [Paragraph(line) for line in notes[1:]]
    return Section("Command and machine", [*command, *others, table])


def _shown(value: Any) -> str:
    if value == "":
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
