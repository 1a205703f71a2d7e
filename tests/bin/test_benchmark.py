"""The benchmark: what it measures, and what it writes down; no timings."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from albert_tf.config import MaskingConfig, ModelConfig, PretrainingDataConfig
from bin import benchmark
from bin.benchmark import STAGES, Measured, Stage

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(*flags, status=0):
    done = subprocess.run(
        [sys.executable, "-m", "bin.benchmark", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def text(tmp_path, sentences):
    directory = tmp_path / "text"
    directory.mkdir()
    for number in range(4):
        part = sentences[number * 200 : (number + 1) * 200]
        paragraphs = [" ".join(part[n : n + 5]) for n in range(0, 200, 5)]
        (directory / f"{number}.txt").write_text("\n\n".join(paragraphs))
    return directory


@pytest.fixture
def place(tmp_path, text, tiny_directory):
    directory = tmp_path / "place"
    directory.mkdir()
    return benchmark.Workplace(
        str(directory),
        inputs=[str(text)],
        tokenizer_dir=str(tiny_directory),
        vocab_size=200,
        config=PretrainingDataConfig(
            record_kind="static", dupe_factor=2, max_seq_length=32
        ),
        masking=MaskingConfig(),
        model=ModelConfig(),
        batch_size=1,
    )


def test_stages_are_rows_under_their_names():
    assert list(STAGES) == ["data_preparation", "reading", "recomputation"]
    for name, stage in STAGES.items():
        assert stage.name == name
        assert stage.measures and not stage.measures.endswith(".")


def test_a_stage_gives_median_least_and_largest(place, capsys):
    values = iter([5.0, 1.0, 2.0])

    def repeat(given):
        assert given is place
        value = next(values)
        yield Measured("speed", "things/s", value)
        yield Measured("share", "%", 10 * value)

    stage = Stage("made_up", "nothing", repeat)
    measures = benchmark.run_stage(stage, place, 3)
    assert measures == [
        {
            "name": "speed",
            "unit": "things/s",
            "median": 2.0,
            "min": 1.0,
            "max": 5.0,
        },
        {
            "name": "share",
            "unit": "%",
            "median": 20.0,
            "min": 10.0,
            "max": 50.0,
        },
    ]
    assert "made_up: 2 of 3" in capsys.readouterr().out


def test_a_table_has_a_row_for_every_measure():
    measure = {"name": "speed", "unit": "things/s"}
    measure |= {"median": 1234.5, "min": 0.12345, "max": 99.94}
    row = benchmark.stage_table([measure]).splitlines()[2]
    assert row.split() == ["speed", "1,234", "0.123", "99.9", "things/s"]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="cannot pin here"
)
def test_a_fresh_process_has_the_cores_it_was_given():
    before = os.sched_getaffinity(0)
    core = benchmark.available_cores()[-1]
    (found, pid), seconds = benchmark.in_fresh_process([core], _where)
    assert found == {core}
    assert pid != os.getpid()
    assert seconds > 0
    assert os.sched_getaffinity(0) == before


def _where():
    return os.sched_getaffinity(0), os.getpid()


def test_a_system_that_cannot_pin_measures_all_the_same(monkeypatch):
    for name in ("sched_setaffinity", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    assert benchmark.available_cores() == list(range(os.cpu_count() or 1))
    with benchmark.pinned([0]):
        pass
    result, _ = benchmark.in_fresh_process([0], abs, -3)
    assert result == 3
    assert benchmark.describe_machine()["can_pin"] is False


def test_one_logical_cpu_of_every_core_comes_first(monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: {3, 1, 0, 2, 5}, raising=False
    )
    siblings = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 5: "5"}
    monkeypatch.setattr(benchmark, "_siblings", siblings.__getitem__)
    assert benchmark.available_cores() == [0, 2, 5, 1, 3]


def test_the_machine_is_described():
    machine = benchmark.describe_machine()
    json.dumps(machine)
    assert machine["cpu"]
    assert 1 <= machine["usable_cores"] <= machine["usable_cpus"]
    assert machine["memory_bytes"] > 10**8
    packages = machine["packages"]
    assert packages["numpy"] == __import__("numpy").__version__
    assert packages["tensorflow"] == __import__("tensorflow").__version__


def test_data_preparation_compares_two_workers_with_one(place, monkeypatch):
    monkeypatch.setattr(benchmark, "in_fresh_process", _in_this_process)
    place.cores = [0, 1]
    measured = {m.name: m for m in STAGES["data_preparation"].repeat(place)}
    # No worker runs in this process, so both are of one kind here.
    one, two = measured["one worker"], measured["two workers"]
    assert one.unit == two.unit == "instances/s"
    ratio = measured["two workers to one"].value
    assert ratio == pytest.approx(two.value / one.value)
    for name in ("one worker", "two workers"):
        share = measured[f"{name}, planning of the whole"]
        phases = [
            measured[f"{name}, {phase}"].value
            for phase in ("planning", "records", "shards")
        ]
        assert share.unit == "%"
        assert share.value == pytest.approx(100 * phases[0] / sum(phases))
    shares = [m.value for n, m in measured.items() if ", of the steps" in n]
    assert len(shares) == 9
    assert sum(shares) == pytest.approx(100)
    of_steps = measured["one worker, of what the steps allow"].value
    steps = measured["all steps alone"].value
    assert of_steps == pytest.approx(100 * one.value / steps)
    assert os.listdir(place.directory) == []


def _in_this_process(cores, function, *args, **kwargs):
    if "workers" in kwargs:
        assert kwargs["workers"] == len(cores)
        kwargs["workers"] = 1
    return function(*args, **kwargs), 10.0


def test_two_workers_are_left_out_on_one_core(place, monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "in_fresh_process", _in_this_process)
    place.cores = [0]
    names = [m.name for m in STAGES["data_preparation"].repeat(place)]
    assert "one worker" in names
    assert not [name for name in names if "two workers" in name]
    said = capsys.readouterr().out
    assert "two workers: left out, this process may use one core." in said


def test_a_workplace_makes_what_is_not_given(place, tmp_path, monkeypatch):
    asked = []

    @contextlib.contextmanager
    def quiet(unit):
        yield asked.append

    def build(directory, *, workers, progress):
        os.makedirs(os.path.join(directory, "train"))
        text = "A word of text in it.\n" * 50
        for name in ("a", "b"):
            path = pathlib.Path(directory, "train", f"{name}.txt")
            path.write_text(text)

    monkeypatch.setattr("data_prep.sample_corpus.build_sample_corpus", build)
    monkeypatch.setattr(benchmark.command_line, "progress", quiet)
    bare = benchmark.Workplace(
        place.directory,
        model=place.model,
        batch_size=1,
        inputs=[],
        tokenizer_dir=None,
        vocab_size=26,
        config=dataclasses.replace(
            place.config, document_separator="blank_line"
        ),
        masking=place.masking,
    )
    assert sorted(os.listdir(bare.inputs[0])) == ["a.txt", "b.txt"]
    summary = os.path.join(bare.tokenizer_dir, "vocab_summary.json")
    with open(summary) as file:
        assert json.load(file)["settings"]["vocab_size"] == 26


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--stages=reading,baking"],
            "benchmark: --stages names 'baking', which is none of "
            "data_preparation, reading, recomputation.",
        ),
        (
            ["--input=no/such/place"],
            "benchmark: The input 'no/such/place' does not exist.",
        ),
        (
            ["--output=no/such/place/b.json"],
            f"benchmark: --output: {ROOT}/no/such/place is no directory that "
            "can be written to.",
        ),
    ],
)
def test_mistakes_are_told_at_once_in_one_line(flags, said):
    assert program(*flags, status=1).stderr.strip() == said


@pytest.mark.slow
def test_every_stage_of_a_tiny_corpus(tmp_path, text):
    output, work = tmp_path / "figures.json", tmp_path / "work"
    work.mkdir()
    done = program(
        f"--input={text}",
        "--vocab_size=200",
        "--max_seq_length=48",
        "--dupe_factor=2",
        "--preset=tiny",
        "--repeats=1",
        f"--work_dir={work}",
        f"--output={output}",
    )
    assert os.listdir(work) == []
    assert "Traceback" not in done.stderr
    assert "cuda" not in done.stderr
    figures = json.loads(output.read_text())
    assert set(figures) == {"command", "machine", "settings", "stages"}
    assert "-m bin.benchmark" in figures["command"]
    assert figures["settings"]["data"]["max_seq_length"] == 48
    assert list(figures["stages"]) == list(STAGES)
    for name, stage in figures["stages"].items():
        assert f"{name}: {stage['measures']}." in done.stdout
        assert stage["results"]
        for measure in stage["results"]:
            assert list(measure) == ["name", "unit", "median", "min", "max"]
            assert 0 <= measure["min"] <= measure["median"] <= measure["max"]
            assert measure["name"] in done.stdout
    of_reading = figures["stages"]["reading"]["results"]
    names = [m["name"] for m in of_reading if m["unit"] == "sequences/s"]
    assert names == [
        f"{kind}, batches of {size}"
        for kind in ("dynamic", "static")
        for size in (64, 256)
    ]
    of_steps = {
        m["name"]: m["median"]
        for m in figures["stages"]["recomputation"]["results"]
    }
    assert of_steps["kept, gradient norm"] == pytest.approx(
        of_steps["computed again, gradient norm"], rel=1e-4
    )
    assert 0 < of_steps["computed again to kept, tensors"] < 1
    # Two million weights of four bytes, and their gradients.
    assert 16 < of_steps["kept, tensors"] < of_steps["kept, resident"]
