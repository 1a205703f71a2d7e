"""The benchmark: what it measures, and what it writes down; no timings."""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

from albert_tf.config import (
    FeatureConfig,
    MaskingConfig,
    ModelConfig,
    PretrainingDataConfig,
    TrainingConfig,
    UserError,
)
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.examples import Example
from bin.benchmarking import (
    data_stages,
    finetuning_stages,
    machine,
    measures,
    training_stages,
    workplace,
)
from bin.benchmarking.finetuning_benchmark import FeatureTimes
from bin.benchmarking.finetuning_benchmark import Round as FinetuningRound
from bin.benchmarking.finetuning_benchmark import Turn as FinetuningTurn
from bin.benchmarking.measures import Measured, Stage
from bin.benchmarking.stages import STAGES
from bin.benchmarking.step_benchmark import Prepared, Round, Turn

ROOT = pathlib.Path(__file__).resolve().parents[2]


WORK = Workload(
    model=ModelConfig(),
    batch_size=4,
    seq_length=32,
    num_predictions=5,
    training=TrainingConfig(),
)


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
    return workplace.Workplace(
        str(directory),
        inputs=[str(text)],
        tokenizer_dir=str(tiny_directory),
        vocab_size=200,
        config=PretrainingDataConfig(
            record_kind="static", dupe_factor=2, max_seq_length=32
        ),
        masking=MaskingConfig(),
        features=FeatureConfig(max_seq_length=32),
        work=WORK,
        peers=[],
    )


def test_stages_are_rows_under_their_names():
    assert list(STAGES) == [
        "data_preparation",
        "reading",
        "training",
        "memory",
        "recomputation",
        "data_wait",
        "featurisation",
        "finetuning",
    ]
    for name, stage in STAGES.items():
        assert stage.name == name
        assert stage.measures and not stage.measures.endswith(".")


def test_a_stage_gives_median_least_and_largest(place, capsys):
    values = iter([5.0, 1.0, 2.0])

    def measure(given):
        assert given is place
        value = next(values)
        yield Measured("speed", "things/s", value)
        yield Measured("share", "%", 10 * value)
        place.note(f"It went at {value:g}.")

    place.note("Of the stage before.")
    stage = Stage("made_up", "nothing", measures.repeated(measure))
    assert measures.run_stage(stage, place, 3) == {
        "measures": "nothing",
        "notes": ["It went at 5.", "It went at 1.", "It went at 2."],
        "results": [
            {
                "name": "speed",
                "unit": "things/s",
                "median": 2.0,
                "min": 1.0,
                "max": 5.0,
                "values": [5.0, 1.0, 2.0],
            },
            {
                "name": "share",
                "unit": "%",
                "median": 20.0,
                "min": 10.0,
                "max": 50.0,
                "values": [50.0, 10.0, 20.0],
            },
        ],
    }
    assert "made_up: 2 of 3" in capsys.readouterr().out


def test_a_table_has_a_row_for_every_measure():
    measure = {"name": "speed", "unit": "things/s"}
    measure |= {"median": 1234.5, "min": 0.12345, "max": 99.94}
    row = measures.stage_table([measure]).splitlines()[2]
    assert row.split() == ["speed", "1,234", "0.123", "99.9", "things/s"]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="cannot pin here"
)
def test_a_fresh_process_has_the_cores_it_was_given():
    before = os.sched_getaffinity(0)
    core = machine.available_cores()[-1]
    found, seconds = machine.in_fresh_process([core], os.sched_getaffinity, 0)
    assert found == {core}
    assert seconds > 0
    assert os.sched_getaffinity(0) == before
    assert machine.in_fresh_process([core], os.getpid)[0] != os.getpid()


def test_a_system_that_cannot_pin_measures_all_the_same(monkeypatch):
    for name in ("sched_setaffinity", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    assert machine.available_cores() == list(range(os.cpu_count() or 1))
    with machine.pinned([0]):
        pass
    result, _ = machine.in_fresh_process([0], abs, -3)
    assert result == 3
    assert machine.describe_machine()["can_pin"] is False


def test_one_logical_cpu_of_every_core_comes_first(monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: {3, 1, 0, 2, 5}, raising=False
    )
    siblings = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3", 5: "5"}
    monkeypatch.setattr(machine, "_siblings", siblings.__getitem__)
    assert machine.available_cores() == [0, 2, 5, 1, 3]


def test_the_machine_is_described():
    described = machine.describe_machine()
    json.dumps(described)
    assert described["cpu"]
    assert 1 <= described["usable_cores"] <= described["usable_cpus"]
    assert described["memory_bytes"] > 10**8
    packages = described["packages"]
    assert packages["numpy"] == __import__("numpy").__version__
    assert packages["tensorflow"] == __import__("tensorflow").__version__


def test_data_preparation_compares_two_workers_with_one(place, monkeypatch):
    monkeypatch.setattr(data_stages, "in_fresh_process", _in_this_process)
    place.ceiling_sequences = 1000.0
    place.cores = [0, 1]
    measured = {m.name: m for m in one_round(place)}
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
    of_ceiling = measured["one worker, to training at the ceiling"]
    assert of_ceiling.unit == "times"
    assert of_ceiling.value == pytest.approx(one.value / 1000)
    assert os.listdir(place.directory) == []


def one_round(place, stage="data_preparation"):
    (figures,) = STAGES[stage].rounds(place, 1)
    return list(figures)


def _in_this_process(cores, function, *args, **kwargs):
    if "workers" in kwargs:
        assert kwargs["workers"] == len(cores)
        kwargs["workers"] = 1
    return function(*args, **kwargs), 10.0


def test_two_workers_are_left_out_on_one_core(place, monkeypatch, capsys):
    monkeypatch.setattr(data_stages, "in_fresh_process", _in_this_process)
    place.ceiling_sequences = 1000.0
    place.cores = [0]
    names = [m.name for m in one_round(place)]
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
    monkeypatch.setattr(workplace.command_line, "progress", quiet)
    bare = workplace.Workplace(
        place.directory,
        work=WORK,
        peers=[],
        inputs=[],
        tokenizer_dir=None,
        vocab_size=26,
        config=dataclasses.replace(
            place.config, document_separator="blank_line"
        ),
        masking=place.masking,
        features=FeatureConfig(),
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
            "data_preparation, reading, training, memory, recomputation, "
            "data_wait, featurisation, finetuning.",
        ),
        (
            ["--task=SST-2"],
            "benchmark: --task and --data_dir go together; give both.",
        ),
        (
            ["--task=SST-2", "--data_dir=no/such"],
            "benchmark: no/such/train.tsv: No such file or directory; download "
            "GLUE's own file.",
        ),
        (
            ["--data_dir=glue"],
            "benchmark: --task and --data_dir go together; give both.",
        ),
        (
            ["--against=jax"],
            "benchmark: against='jax' is not one of transformers, keras_hub.",
        ),
        (
            ["--preset=tiny", "--max_seq_length=256"],
            "benchmark: --max_seq_length=256 is more than the 128 tokens that "
            "--preset=tiny reads.",
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


def test_a_round_of_training_is_told_in_rates_shares_and_ratios():
    one = Round(
        ceiling=8e9,
        turns={
            "train_step": {
                "ours": {"": Turn(seconds=0.5, flops=2 * 10**9)},
                "theirs": {
                    "a": Turn(seconds=0.7, flops=10**9),
                    "b": Turn(seconds=0.8, flops=3 * 10**9),
                },
            },
            "forward": {
                "ours": {"": Turn(0.1, 10**8)},
                "theirs": {"a": Turn(0.05, 10**8)},
            },
        },
    )
    variants = {
        "train_step": {"ours": "", "theirs": "b"},
        "forward": {"ours": "", "theirs": "a"},
    }
    told = {
        (m.name, m.unit): m.value
        for m in training_stages._of_round(one, WORK, variants)
    }
    expected = {
        ("matrix multiplication", "GFLOP/s"): 8,
        # 4 sequences of 32 tokens in half a second.
        ("training, ours", "sequences/s"): 8,
        ("training, ours", "tokens/s"): 256,
        ("training, ours", "GFLOP/s"): 4,
        ("training, ours", "% of the ceiling"): 50,
        ("training, theirs", "GFLOP/s"): 3.75,
        ("training, ours to theirs", "times"): 1.6,
        ("forward, ours", "sequences/s"): 40,
        ("forward, theirs", "% of the ceiling"): 25,
        ("forward, ours to theirs", "times"): 0.5,
    }
    assert {key: told[key] for key in expected} == pytest.approx(expected)
    assert len(told) == 1 + 2 * (2 * 4 + 1)


def test_the_first_calls_are_told_once():
    chosen = {
        "train_step": {"ours": Prepared("", None, 9.0, 1.0)},
        "forward": {"ours": Prepared("", None, 2.0, 1.0)},
    }
    assert list(training_stages._first_calls(chosen)) == [
        Measured("training, ours, first call", "s", 9.0),
        Measured("forward, ours, first call", "s", 2.0),
    ]


def test_peaks_are_the_least_of_the_fast_variants_in_fresh_processes(
    place, monkeypatch
):
    peers = [training_stages.PEERS["keras_hub"]]
    place.peers = tuple(peers)
    asked = []

    def fresh(cores, function, name, work, *more):
        assert cores == place.cores and work is WORK
        asked.append((function.__name__, name, *more))
        if function is training_stages._fast_variants:
            variants = ["only"] if name == "ours" else ["graph", "XLA"]
            return {v: f"what {name} does, {v}" for v in variants}, 1.0
        mib = {"only": 3, "graph": 5, "XLA": 4}[more[0]]
        return mib * 2**20, 1.0

    monkeypatch.setattr(training_stages, "in_fresh_process", fresh)
    (figures,) = STAGES["memory"].rounds(place, 1)
    assert list(figures) == [
        Measured("ours, resident at the peak", "MiB", 3.0),
        Measured("keras_hub, resident at the peak", "MiB", 4.0),
        Measured("ours to keras_hub", "times", 0.75),
    ]
    assert asked == [
        ("_fast_variants", "ours"),
        ("_fast_variants", "keras_hub"),
        ("_peak", "ours", "only"),
        ("_peak", "keras_hub", "graph"),
        ("_peak", "keras_hub", "XLA"),
    ]
    assert place.notes == [
        "ours: what ours does, only.",
        "keras_hub: what keras_hub does, graph.",
        "keras_hub: what keras_hub does, XLA.",
    ]


def test_waiting_is_a_share_of_the_time(place, monkeypatch):
    monkeypatch.setattr(place, "shards", lambda kind: f"{kind} shards")

    def fresh(cores, function, shards, work, masking, repeats):
        assert (shards, work, repeats) == ("dynamic shards", WORK, 2)
        return [(100, 4.0, 1.0), (100, 2.0, 0.0)], 1.0

    monkeypatch.setattr(training_stages, "in_fresh_process", fresh)
    place.ceiling_sequences = 200.0
    rounds = [list(one) for one in STAGES["data_wait"].rounds(place, 2)]
    assert rounds[0] == [
        Measured("training on records", "sequences/s", 25.0),
        Measured("training on records", "% of the ceiling", 12.5),
        Measured("waiting for batches", "%", 25.0),
    ]
    assert rounds[1][2].value == 0.0


def test_fine_tuning_is_told_in_rates_shares_and_ratios():
    one = FinetuningRound(
        200.0,
        {
            "training": {
                "padded": FinetuningTurn(30, 3.0, 300, 0.5),
                "by length": FinetuningTurn(80, 2.0, 100, 0.25),
            }
        },
    )
    assert list(finetuning_stages._of_round(one)) == [
        Measured("matrix multiplication", "GFLOP/s", 2e-7),
        Measured("training, padded", "rows/s", 10.0),
        Measured("training, padded, tokens of padding", "%", 50.0),
        Measured("training, padded", "% of the ceiling", 50.0),
        Measured("training, by length", "rows/s", 40.0),
        Measured("training, by length, tokens of padding", "%", 25.0),
        Measured("training, by length", "% of the ceiling", 25.0),
        Measured("training, by length to padded", "times", 4.0),
    ]


def test_features_are_told_for_ten_thousand_examples():
    times = FeatureTimes(num_examples=400, num_sequences=1000, seconds=2.0)
    assert list(finetuning_stages._of_features("features", times)) == [
        Measured("features", "examples/s", 200.0),
        Measured("features", "sequences/s", 500.0),
        Measured("features, of 10,000 examples", "s", 50.0),
    ]


def test_fine_tuning_is_measured_on_paragraphs_where_no_task_is_given(
    place, monkeypatch
):
    monkeypatch.setattr(workplace, "_EXAMPLES", 7)
    given = place.task_work
    assert [e.label for e in given.examples] == [
        *("even", "odd") * 3,
        "even",
    ]
    assert all(len(e.texts) == 1 and e.texts[0] for e in given.examples)
    assert given.labels == ["even", "odd"]
    assert given.work.model.vocab_size == given.tokenizer.vocab_size
    assert given.features.max_seq_length == 32


def test_fine_tuning_is_measured_on_the_first_examples_of_a_task(
    place, monkeypatch
):
    monkeypatch.setattr(workplace, "_EXAMPLES", 2)
    place._task = TASKS["SST-2"]
    place._examples = [Example((word,), "1") for word in "abc"]
    given = place.task_work
    assert [e.texts for e in given.examples] == [("a",), ("b",)]
    assert given.labels == ["0", "1"]


def test_text_without_paragraphs_is_no_examples(place, tmp_path):
    (tmp_path / "one.txt").write_text("Only this.\n")
    place._inputs = [str(tmp_path / "one.txt")]
    with pytest.raises(UserError) as error:
        _ = place.task_work
    assert str(error.value) == (
        f"{tmp_path}/one.txt: too little text; fine-tuning is measured on two "
        "paragraphs and more."
    )


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
        "--optimizer=adamw",
        # Enough that what is kept outweighs the weights.
        "--batch_size=32",
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
            assert list(measure) == [
                *("name", "unit", "median", "min", "max", "values")
            ]
            assert 0 <= measure["min"] <= measure["median"] <= measure["max"]
            assert measure["name"] in done.stdout
    of_reading = figures["stages"]["reading"]["results"]
    names = [m["name"] for m in of_reading if m["unit"] == "sequences/s"]
    assert names == [
        f"{kind}, batches of {size}"
        for kind in ("dynamic", "static")
        for size in (64, 256)
    ]
    of_training = {
        (m["name"], m["unit"]): m["median"]
        for m in figures["stages"]["training"]["results"]
    }
    rate = of_training["training, ours", "sequences/s"]
    tokens = of_training["training, ours", "tokens/s"]
    assert tokens == pytest.approx(48 * rate)
    share = of_training["training, ours", "% of the ceiling"]
    assert 0 < share < 200
    (note, *_) = figures["stages"]["training"]["notes"]
    assert note.startswith("training, ours: float32, ADAMW")
    assert figures["settings"]["optimizer"] == "adamw"
    of_tasks = {
        m["name"]: m["median"]
        for m in figures["stages"]["finetuning"]["results"]
    }
    # The paragraphs are longer than 48 tokens, nearly all of them.
    by_length = of_tasks["training, by length, tokens of padding"]
    padded = of_tasks["training, padded, tokens of padding"]
    assert 0 <= by_length <= padded < 50
    assert of_tasks["evaluation, by length to padded"] > 0
    assert len(figures["stages"]["featurisation"]["results"]) == 6
    of_steps = {
        m["name"]: m["median"]
        for m in figures["stages"]["recomputation"]["results"]
    }
    for remat in ("selective", "full"):
        assert of_steps[f"{remat}, gradient norm"] == pytest.approx(
            of_steps["none, gradient norm"], rel=1e-4
        )
        assert 0 < of_steps[f"{remat} to none, tensors"] < 1
    # Two million weights of four bytes, and their gradients.
    assert 16 < of_steps["none, tensors"] < of_steps["none, resident"]
