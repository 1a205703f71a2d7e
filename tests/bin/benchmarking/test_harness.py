"""The alternating loop, fresh processes, and every stage on a tiny corpus."""

import functools
import json
import os
from typing import ClassVar

import pytest

from bin.benchmark import STAGES
from bin.benchmarking import harness, machine
from bin.benchmarking.harness import Stage

NAMES = ("ours", "theirs")


class MadeUp(Stage):
    name = "made_up"
    description = "nothing"
    fresh_process = False

    order: ClassVar[list] = []

    def sides(self):
        speeds = [5.0, 1.0, 2.0]

        def turn(name):
            self.order.append(name)
            return speeds.pop(0) if name == "ours" else 10.0

        return {name: functools.partial(turn, name) for name in NAMES}

    def measurements(self, turns):
        yield "speed", "things/s", turns["ours"]
        yield "ratio", "times", turns["ours"] / turns["theirs"]

    def notes(self, turns):
        return [f"Began with {turns['ours']:g}."]


def test_a_stage_has_median_minimum_and_maximum_of_rounds(workspace, capsys):
    found = harness.run_stage(MadeUp(workspace), 3)
    speed, ratio = found.pop("results")
    assert found == {"measures": "nothing", "notes": ["Began with 5."]}
    assert speed == {
        "name": "speed",
        "unit": "things/s",
        "median": 2.0,
        "min": 1.0,
        "max": 5.0,
        "values": [5.0, 1.0, 2.0],
    }
    assert ratio["values"] == [0.5, 0.1, 0.2]
    # Every other round is reversed.
    assert MadeUp.order == [*NAMES, *NAMES[::-1], *NAMES]
    assert "made_up: 2 of 3" in capsys.readouterr().out


def test_a_table_has_a_row_for_every_result():
    result = {"name": "speed", "unit": "things/s"}
    result |= {"median": 1234.5, "min": 0.12345, "max": 99.94}
    row = harness.stage_table([result]).splitlines()[2]
    assert row.split() == ["speed", "1,234", "0.123", "99.9", "things/s"]


@pytest.mark.slow
def test_every_stage_runs_on_a_tiny_corpus(workspace, in_process):
    """Except those that test_benchmark or files of their own run."""
    workspace.ceiling = 1000.0
    elsewhere = {"recomputation", "featurisation", "finetuning", "serving"}
    found = {}
    for name, stage in STAGES.items():
        if name in elsewhere:
            continue
        measured = harness.run_stage(stage(workspace), 1)
        json.dumps(measured)
        found[name] = {
            (one["name"], one["unit"]): one["median"]
            for one in measured["results"]
        }
        assert min(found[name].values()) >= 0
    assert {name: len(results) for name, results in found.items()} == {
        "data_preparation": 43,
        "reading": 20,
        "training": 16,
        "memory": 1,
        "data_wait": 3,
    }
    reading = found["reading"]
    for kind, rest in (("dynamic", "masking"), ("static", "the rest")):
        name = f"{kind}, batches of 8"
        parts = ("reading", "parsing", rest)
        assert sum(reading[f"{name}, {part}", "%"] for part in parts) >= 99
        ratio = reading[f"{name}, to training at the ceiling", "times"]
        rate = reading[name, "sequences/s"]
        assert ratio == pytest.approx(rate / workspace.ceiling)


def test_a_fresh_process_has_the_cores_it_was_given():
    before = os.sched_getaffinity(0)
    core = machine.available_cores()[-1]
    found = machine.in_fresh_process([core], os.sched_getaffinity, 0)
    assert found == {core}
    assert os.sched_getaffinity(0) == before


def test_one_logical_cpu_of_every_core_comes_first(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1, 0, 2, 5})
    siblings = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 5: "5"}
    monkeypatch.setattr(machine, "_siblings", siblings.__getitem__)
    assert machine.available_cores() == [0, 2, 5, 1, 3]
