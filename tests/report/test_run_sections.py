"""Curves, settings and the file of a report."""

import json

import pytest

from albert_tf.config import FinetuneConfig, ModelConfig, override, to_dict
from albert_tf.report import run_sections
from albert_tf.report.page import Page
from albert_tf.report.run_sections import (
    curves,
    settings_section,
    write_report,
)


def test_a_report_that_fails_is_logged(tmp_path):
    def fail():
        raise MemoryError("too large")

    lines = []
    write_report(str(tmp_path), fail, lines.append)
    assert lines == [
        f"WARNING: {tmp_path}/report.html was not written (MemoryError: too "
        "large); the model is complete."
    ]
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_gone_is_logged(tmp_path):
    lines = []
    write_report(f"{tmp_path}/no", lambda: Page("T", [], []), lines.append)
    assert "No such file or directory" in lines[0]


def test_a_report_is_written(tmp_path):
    lines = []
    write_report(str(tmp_path), lambda: Page("Tea", [], []), lines.append)
    assert lines == [f"The report is in {tmp_path}/report.html."]
    assert "<h1>Tea</h1>" in (tmp_path / "report.html").read_text()


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A function that returns the lines that are drawn of a log."""
    found = []
    monkeypatch.setattr(
        run_sections, "draw_lines", lambda lines, _: found.append(lines) or b""
    )

    def drawn(log, names):
        text = "".join(f"{json.dumps(line)}\n" for line in log)
        (tmp_path / "metrics.jsonl").write_text(text)
        figures = list(curves(str(tmp_path), names))
        assert len(figures) == len(found)
        return found

    return drawn


def test_curves_of_training_and_evaluation(drawn):
    log = [
        {"step": 5, "split": "train", "loss": 2.0, "rate": 1.0},
        {"step": 5, "split": "eval", "loss": 3.0, "f1": None},
        {"step": 9, "split": "train", "loss": 1.0},
    ]
    (lines,) = drawn(log, {"Loss": ["loss"], "F1": ["f1"], "Rate": ["rate"]})
    ((x, y),) = lines["loss (train)"]
    assert (x.tolist(), y.tolist()) == ([5, 9], [2, 1])
    ((x, y),) = lines["loss (eval)"]
    assert (x.tolist(), y.tolist()) == ([5], [3])


def test_long_curves_are_thinned_and_keep_their_end(drawn):
    log = [{"step": n, "split": "train", "loss": 1.0} for n in range(1203)]
    (lines,) = drawn(log, {"Loss": ["loss"]})
    ((x, _),) = lines["loss (train)"]
    assert len(x) == 401
    assert x[-1] == 1202


def test_settings_that_differ(tmp_path):
    config = override(FinetuneConfig(), {"learning_rate": 0.01})
    model = override(ModelConfig(), {"pooling": "mean"})
    content = {
        "job": "finetune",
        "config": to_dict(config),
        "model": to_dict(model),
    }
    (tmp_path / "config.json").write_text(json.dumps(content))
    (table,) = settings_section(str(tmp_path)).parts
    assert table.rows == [
        ["learning_rate", "0.01", "2e-05"],
        ["pooling", "mean", "first"],
    ]
