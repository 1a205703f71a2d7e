"""The suite of tasks: what is run, and the table of what has been run."""

import json
import pathlib

import pytest
from program_runner import run_program

from benchmarks import task_suite


@pytest.fixture
def suite(tmp_path, monkeypatch):
    (tmp_path / "suite" / "tasks").mkdir(parents=True)
    commands = []

    def run(command, check):
        assert check
        flags = dict(f.removeprefix("--").split("=", 1) for f in command[3:])
        commands.append(flags)
        comparison = {
            "metric": "accuracy" if "SST-2" in flags["run_dir"] else "f1",
            "model": 0.8 + int(flags["seed"]) / 100,
            "baseline": 0.825,
            "low": -0.01,
            "high": 0.02,
        }
        run_dir = pathlib.Path(flags["run_dir"])
        run_dir.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"comparisons": [comparison]})
        (run_dir / "baseline.json").write_text(content)

    monkeypatch.setattr(task_suite.subprocess, "run", run)

    def call(*flags):
        commands.clear()
        result = run_program(
            "benchmarks.task_suite",
            *("--books=b", "--medical=m", "--glue=g", "--squad=s"),
            f"--output_dir={tmp_path}/suite",
            "--init_from=small",
            *flags,
        )
        assert result.status == 0, result.error
        return list(commands), result.stdout

    return call


def test_a_task_has_no_settings_but_the_seed(suite, tmp_path):
    (first, second), _ = suite("--only=SST-2", "--only=entities")
    assert first == {
        "task": "SST-2",
        "data_dir": "g/SST-2",
        "init_from": "small",
        "run_dir": f"{tmp_path}/suite/runs/SST-2/1",
        "seed": "1",
    }
    assert (second["task"], second["columns"]) == ("custom", "word=0,tag=1")
    assert second["data_dir"] == f"{tmp_path}/suite/tasks/entities"


def test_what_has_been_run_is_not_run_again(suite):
    suite("--only=SST-2")
    commands, _ = suite("--only=SST-2", "--num_seeds=2")
    assert [command["seed"] for command in commands] == ["2"]


def test_the_minutes_of_an_interrupted_run_are_not_known(suite, tmp_path):
    (tmp_path / "suite/runs/SST-2/1").mkdir(parents=True)
    _, table = suite("--only=SST-2")
    assert "| -1.0 to 2.0 | - |" in table


def test_the_table_counts_medians_above_the_simple_model(suite):
    _, table = suite("--only=SST-2", "--only=entities", "--num_seeds=3")
    assert (
        "| SST-2, accuracy | 82.0 | 81.0, 82.0, 83.0 | 82.5 | -1.0 to 2.0 |"
        in table
    )
    assert "| entities, f1 | 0.820 | 0.810, 0.820, 0.830 | 0.825 |" in table
    assert "Above the simple model: 0 of 2." in table
