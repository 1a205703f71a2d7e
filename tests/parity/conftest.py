"""What the comparisons share: the table of the largest differences.

Every comparison hands its numbers to `record_difference`. They travel with
the test reports, also between the processes of pytest-xdist, and the process
that gathers the reports prints one table and writes it to parity.md.
"""

import importlib.metadata
import os
import platform
import shlex
import sys

import pytest

from albert_tf.cluster.environment import cpu_model

# torch would import Triton, and that after TensorFlow is a segmentation fault
# (Triton 3.7.1, TensorFlow 2.21).
sys.modules.setdefault("triton", None)

LIBRARIES = (
    "tensorflow",
    "keras",
    "torch",
    "transformers",
    "tokenizers",
    "sentencepiece",
    "safetensors",
    "jax",
    "keras-hub",
    "numpy",
    "hypothesis",
)
_PROPERTY = "largest_differences"


@pytest.fixture
def record_difference(request):
    """record(subject, what, value, bound), to be called for every case.

    It keeps the largest value of each (subject, what), and asserts that the
    value is at most the bound, which NaN is not.
    """
    rows = {}
    request.node.user_properties.append((_PROPERTY, rows))

    def record(subject, what, value, bound):
        # Reports carry plain numbers alone.
        add_row(rows, (subject, what), (float(value), float(bound), 1))
        assert value <= bound, f"{subject}, {what}: {value} exceeds {bound}"

    return record


def add_row(rows, key, row):
    """Merges (value, bound, cases) into what `rows` has for the key."""
    if key in rows:
        value, bound, cases = rows[key]
        # NaN, which no comparison is true of, stays.
        largest = row[0] if row[0] > value or row[0] != row[0] else value
        row = (largest, min(bound, row[1]), cases + row[2])
    rows[key] = row


def pytest_terminal_summary(terminalreporter, config):
    """Prints the table and writes it, with what it was made by."""
    stats = terminalreporter.stats
    rows = {}
    for reports in stats.values():
        for report in reports:
            # Each test has three reports; the last one knows everything.
            if getattr(report, "when", None) == "teardown":
                found = dict(report.user_properties).get(_PROPERTY, {})
                for key, row in found.items():
                    add_row(rows, key, row)
    if not rows:
        return
    failed = [
        f"{report.nodeid} FAILED"
        for category in ("failed", "error")
        for report in stats.get(category, ())
    ]
    left_out = [
        f"{report.nodeid} left out: {report.longrepr[2]}"
        for report in stats.get("skipped", ())
    ]
    text = "\n".join(
        [
            "# Largest differences from other libraries",
            "",
            *table(rows),
            "",
            *(f"- {line}" for line in failed + left_out + made_by(config)),
            "",
        ]
    )
    terminalreporter.write_line(f"\n{text}")
    path = config.rootpath / "parity.md"
    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
    terminalreporter.write_line(f"Written to {path}.")


def table(rows):
    """The lines of a Markdown table, columns aligned."""
    lines = [("subject", "what", "largest difference", "bound", "cases")]
    for (subject, what), (value, bound, cases) in sorted(rows.items()):
        number = f"{value:.1e}" if value else "0"
        limit = f"{bound:.0e}" if bound else "0"
        lines.append((subject, what, number, limit, str(cases)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return [
        "| "
        + " | ".join(
            cell.ljust(width) for cell, width in zip(line, widths, strict=True)
        )
        + " |"
        for line in lines
    ]


def made_by(config):
    """Lines: the command, the machine, the versions."""
    arguments = shlex.join(config.invocation_params.args)
    versions = [
        f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES
    ]
    return [
        f"Command: bin/test --parity (python -m pytest {arguments})",
        f"Machine: {cpu_model()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}, {', '.join(versions)}",
    ]
