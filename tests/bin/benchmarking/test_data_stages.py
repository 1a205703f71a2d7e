"""What is timed is what a build and training do; no timings are tested."""

import os
from types import SimpleNamespace

import pytest

from albert_tf.records.shards import open_shards
from albert_tf.records.tfrecord import read_records
from bin.benchmarking import data_stages
from bin.benchmarking.data_stages import (
    BuildTimes,
    DataPreparation,
    measure_build,
    measure_steps,
)

STEPS = [
    "reading text",
    "splitting sentences",
    "tokenising",
    "cutting segments",
    "arranging",
    "masking",
    "serialising",
    "writing parts",
    "writing shards",
]


def steps(workspace, name="steps"):
    directory = os.path.join(workspace.directory, name)
    os.mkdir(directory)
    return measure_steps(workspace, directory)


def test_the_steps_make_the_records_of_a_build(workspace, text):
    shards_dir = os.path.join(workspace.directory, "shards")
    times = measure_build(workspace, shards_dir, workers=1)
    of_steps, num_instances = steps(workspace)
    with open_shards(shards_dir, "train") as shards:
        assert times.num_instances == num_instances == len(shards)
        records = list(shards.read(range(len(shards))))
    file = os.path.join(workspace.directory, "steps/train.tfrecord")
    assert list(read_records(file)) == records
    assert times.text_bytes == sum(f.stat().st_size for f in text.iterdir())
    phases = (times.planning, times.records, times.shards)
    assert sum(phases) == pytest.approx(times.seconds)
    # Python with NumPy alone needs tens of megabytes.
    assert 10**7 < times.peak_bytes < 10**11
    assert list(of_steps) == STEPS
    assert min(of_steps.values()) > 0


def test_steps_take_a_sample_spread_over_the_corpus(workspace, monkeypatch):
    _, whole = steps(workspace)
    monkeypatch.setattr(data_stages, "_SAMPLE_BYTES", 3000)
    monkeypatch.setattr(data_stages, "_SAMPLE_FILES", 2)
    _, part = steps(workspace, "again")
    assert 0 < part < whole
    sample = data_stages._sample(workspace)
    assert {d.name.partition(".")[0] for d in sample} == {"0", "2"}


def test_builds_are_compared_with_their_steps_and_the_ceiling():
    one = BuildTimes(4.0, 1.0, 2.0, 1.0, 100, 10**6, 10**8, 0)
    two = BuildTimes(2.0, 1.0, 0.5, 0.5, 100, 10**6, 10**8, 10**7)
    turns = {"one worker": (one, 5.0), "two workers": (two, 4.0)}
    turns["all steps alone"] = (({"masking": 1.0, "b": 3.0}, 100), 6.0)
    stage = DataPreparation(SimpleNamespace(ceiling=50.0))
    found = {one[0]: one for one in stage.measurements(turns)}
    for name, unit, value in (
        ("one worker, with start-up", "instances/s", 20),
        ("one worker, of text", "MB/s", 0.25),
        ("one worker, planning of the whole", "%", 25),
        ("one worker, to training at the ceiling", "times", 0.5),
        ("two workers to one", "times", 2),
        ("two workers to one, once planned", "times", 3),
        ("two workers, peak memory of the larger", "MB", 10),
        ("masking alone", "instances/s", 100),
        ("masking, of the steps", "%", 25),
        ("all steps alone", "instances/s", 25),
        ("one worker, of what the steps allow", "%", 100),
    ):
        assert found[name] == (name, unit, pytest.approx(value))


def test_two_workers_are_left_out_on_one_core(capsys):
    stage = DataPreparation(SimpleNamespace(cores=[0]))
    assert list(stage.sides()) == ["one worker", "all steps alone"]
    said = capsys.readouterr().out
    assert "two workers: left out, this process may use one core." in said
