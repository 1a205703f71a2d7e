"""The logs of a run: JSON lines, TensorBoard, the console."""

import json

import pytest
import tensorflow as tf
from pretraining_runs import events
from tensorboard.plugins.hparams import metadata

from albert_tf.config import UserError
from albert_tf.rundir import throughput
from albert_tf.rundir.event_file import tag
from albert_tf.rundir.monitor import Monitor


def make(run_dir, start_step=0, **options):
    return Monitor(str(run_dir), num_steps=20, start_step=start_step, **options)


def lines(run_dir, name="metrics.jsonl"):
    return [
        json.loads(line) for line in (run_dir / name).read_text().splitlines()
    ]


def series(run_dir, split, name):
    """Returns (step, value) of each point that TensorBoard shows."""
    return [
        (event.step, tf.make_ndarray(event.tensor_proto).item())
        for event in events(run_dir, split).Tensors(name)
    ]


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(throughput, "time", clock)
    return clock


def test_training_scalars_reach_every_log(tmp_path, clock):
    monitor = make(tmp_path, peak_flops=1000.0)
    # The first step compiles.
    clock.now += 60
    monitor.throughput.wait(30)
    monitor.advance(loss=1.0, sequences=4, tokens=40, flops=200)
    monitor.throughput.begin()
    for step in (5, 10):
        for _ in range(5):
            clock.now += 2
            monitor.throughput.wait(0.5)
            monitor.advance(loss=1.0, sequences=4, tokens=40, flops=200)
        monitor.log_training(
            step, {"loss": 1 / step}, {"a/b/c/kernel": step / 20}
        )
    monitor.log_evaluation(10, {"accuracy": 0.5, "pearson": float("nan")})
    monitor.close()
    spread = [f"trust_ratio_{name}" for name in ("min", "median", "max")]
    ratios = [*spread, "trust_ratio/a/b/c/kernel"]
    # A rate is a clock time: another file has it.
    assert lines(tmp_path) == [
        *(
            {"step": step, "split": "train", "loss": 1 / step}
            | dict.fromkeys(ratios, step / 20)
            for step in (5, 10)
        ),
        {"step": 10, "split": "eval", "accuracy": 0.5, "pearson": None},
    ]
    rates = {
        "sequences_per_second": 2.0,
        "tokens_per_second": 20.0,
        "flops_per_second": 100.0,
        "share_of_ceiling": 0.1,
        "data_wait_share": 0.25,
    }
    timing = lines(tmp_path, "timing.jsonl")
    assert [line.pop("unix_time") > 1.7e9 for line in timing] == [True, True]
    assert timing == [
        {"step": step, "split": "train", **rates} for step in (5, 10)
    ]
    ratio = series(tmp_path, "train", "trust_ratio_b/c")
    assert ratio == [(5, 0.25), (10, 0.5)]
    for name, value in rates.items():
        found = series(tmp_path, "train", f"speed/{name}")
        assert found == [(5, pytest.approx(value)), (10, pytest.approx(value))]
    assert series(tmp_path, "eval", "accuracy/accuracy") == [(10, 0.5)]
    assert set(events(tmp_path, "train").Tags()["tensors"]) == {
        "loss/loss",
        "trust_ratio_b/c",
        *(f"updates/{name}" for name in spread),
        *(f"speed/{name}" for name in rates),
    }


def test_the_steps_of_the_call_that_compiles_are_not_timed(tmp_path, clock):
    monitor = make(tmp_path)
    for _ in range(2):
        clock.now += 60
        # Four steps in a call; only the first call begins to measure.
        for _ in range(4):
            monitor.advance(loss=1.0, sequences=15)
        monitor.throughput.begin()
    rates = monitor.log_training(8, {}, {})
    monitor.close()
    assert rates["sequences_per_second"] == 1.0
    assert monitor.throughput.seconds_left(8) == 120.0


def test_rates_exclude_evaluations(tmp_path, clock):
    monitor = make(tmp_path)
    monitor.throughput.begin()
    monitor.advance(1.0, sequences=100)
    monitor.throughput.wait(3)
    clock.now += 50
    monitor.log_evaluation(1, {"accuracy": 0.5})
    monitor.advance(1.0, sequences=6)
    clock.now += 2
    rates = monitor.log_training(2, {}, {})
    monitor.close()
    (line,) = lines(tmp_path, "timing.jsonl")
    assert line["sequences_per_second"] == 3
    assert line["data_wait_share"] == 0
    assert line.items() >= rates.items()
    # Unknown is not 0.
    assert "tokens_per_second" not in line
    assert "share_of_ceiling" not in line


def test_a_resumed_log_is_truncated_to_its_step(tmp_path):
    monitor = make(tmp_path)
    for step in (5, 10, 15):
        monitor.log_training(step, {"loss": float(step)}, {})
        monitor.log_event({"step": step, "what": "spike"})
    monitor.close()
    for name in ("metrics.jsonl", "timing.jsonl"):
        with open(tmp_path / name, "a") as file:
            file.write('{"step": 20, "spl')
    monitor = make(tmp_path, start_step=10)
    # TensorBoard drops what was not made again, too.
    monitor.log_training(12, {"loss": 1.0}, {})
    monitor.close()
    expected = [(5, 5.0), (10, 10.0), (12, 1.0)]
    assert [(x["step"], x["loss"]) for x in lines(tmp_path)] == expected
    timing = lines(tmp_path, "timing.jsonl")
    assert [line["step"] for line in timing] == [5, 10, 12]
    assert series(tmp_path, "train", "loss/loss") == expected
    # What happened stays on record.
    found = lines(tmp_path, "events.jsonl")
    assert [line["step"] for line in found] == [5, 10, 15]


def without_the_middle(text):
    return "".join(text.splitlines(keepends=True)[i] for i in (0, 1, 5))


def with_a_damaged_line(text):
    first, second, third, *rest = text.splitlines(keepends=True)
    return "".join([first, second, third[:9] + "\0\0\n", *rest])


@pytest.mark.parametrize(
    ("damage", "steps", "hole"),
    [
        # A line break that is missing is added.
        (lambda text: text.rstrip("\n"), [2, 4, 6, 8, 10, 12], None),
        (lambda text: text[:-9], [2, 4, 6, 8, 10], "10 to 12"),
        (without_the_middle, [2, 4, 12], "4 to 12"),
        (with_a_damaged_line, [2, 4, 8, 10, 12], "4 to 8"),
    ],
)
def test_a_damaged_log_is_repaired_and_missing_lines_reported(
    tmp_path, capsys, damage, steps, hole
):
    monitor = make(tmp_path)
    for step in range(2, 13, 2):
        monitor.log_training(step, {"loss": float(step)}, {})
        monitor.log_event({"step": step, "loss": "nan"})
    written = monitor.written()
    monitor.close()
    for name in ("metrics.jsonl", "events.jsonl"):
        path = tmp_path / name
        path.write_text(damage(path.read_text()))
    capsys.readouterr()
    monitor = make(tmp_path, start_step=12, written=written)
    monitor.log_training(14, {"loss": 1.0}, {})
    monitor.log_event({"step": 14, "loss": "inf"})
    monitor.close()
    for name in ("metrics.jsonl", "events.jsonl"):
        assert [x["step"] for x in lines(tmp_path, name)] == [*steps, 14]
    printed = capsys.readouterr().out
    # The number of events is not known.
    assert printed.count("WARNING") == (hole is not None)
    assert hole is None or (
        f"{tmp_path}/metrics.jsonl is not as this run left it at step 12: it "
        f"has {len(steps)} of 6 lines; the longest stretch without one is "
        f"from step {hole}." in printed
    )


def test_a_restarted_run_hides_events_of_the_first_attempt(tmp_path):
    for value in (1.0, 2.0):
        monitor = make(tmp_path)
        monitor.log_text("configuration", f"try {value}")
        monitor.log_training(5, {"loss": value}, {})
        monitor.close()
    assert series(tmp_path, "train", "loss/loss") == [(5, 2.0)]
    assert series(tmp_path, "train", "configuration") == [(0, b"try 2.0")]


def test_a_log_that_cannot_be_truncated(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match="metrics.jsonl cannot be truncated"):
        make(tmp_path, start_step=1)


def test_tensorboard_groups_scalars():
    """TensorBoard groups by the first slash and elides up to the last."""
    for name, expected in {
        "masked_lm_loss": "loss/masked_lm_loss",
        "weight_norm": "updates/weight_norm",
        "f1": "measures/f1",
        "trust_ratio_min": "updates/trust_ratio_min",
        "a/loss": "a/loss",
    }.items():
        assert tag(name) == expected
    for path, title in {
        "encoder/embeddings/word_embeddings": "_embeddings/word_embeddings",
        "encoder/pooler/kernel": "/pooler",
        "encoder/block_3/feed_forward_3/output/kernel": (
            "_block_3/feed_forward_3.output"
        ),
        "masked_lm/transform/kernel": "_masked_lm/transform",
    }.items():
        assert tag(f"trust_ratio/albert/{path}") == f"trust_ratio{title}"


def test_hparams_are_written_with_the_first_evaluation(tmp_path):
    optimizer = {"optimizer": "lamb", "learning_rate": 0.5, "xla": False}
    description = {
        "job": "finetune",
        "task": "MRPC",
        "config": {"optimizer": optimizer, "data": ["a", "b"]},
        "model": {"hidden_size": 8},
        "init_from": "left out",
    }
    monitor = make(tmp_path, description=description)
    monitor.log_training(5, {"loss": 1.0}, {"a": 0.5})
    assert not (tmp_path / "tensorboard" / "events").exists()
    for step in (5, 10):
        monitor.log_evaluation(step, {"loss": 1.0, "accuracy": step / 20})
    monitor.close()
    found = events(tmp_path)
    content = {
        tag: found.SummaryMetadata(tag).plugin_data.content
        for tag in (metadata.EXPERIMENT_TAG, metadata.SESSION_START_INFO_TAG)
    }
    experiment = metadata.parse_experiment_plugin_data(
        content[metadata.EXPERIMENT_TAG]
    )
    first = [i.name for i in experiment.hparam_infos if i.differs]
    assert first == ["task", "optimizer", "learning_rate", "hidden_size"]
    # No trust ratio of a variable.
    assert [(m.name.group, m.name.tag) for m in experiment.metric_infos] == [
        ("eval", "loss/loss"),
        ("eval", "accuracy/accuracy"),
    ]
    start = metadata.parse_session_start_info_plugin_data(
        content[metadata.SESSION_START_INFO_TAG]
    )
    values = {
        name: getattr(value, value.WhichOneof("kind"))
        for name, value in start.hparams.items()
    }
    assert values == optimizer | {
        "task": "MRPC",
        "data": "['a', 'b']",
        "hidden_size": 8,
    }
    assert {i.name for i in experiment.hparam_infos} == set(values)


def test_other_workers_write_and_print_nothing(tmp_path, capsys):
    monitor = make(tmp_path, writes=False, description={"config": {"a": 1}})
    monitor.log_text("configuration", "a")
    monitor.advance(loss=1.0, sequences=4)
    monitor.log_training(1, {"loss": 1.0}, {"a": 1.0})
    monitor.log_evaluation(1, {"loss": 1.0})
    monitor.log_event({"step": 1})
    monitor.log("something")
    monitor.flush()
    monitor.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_plain_lines_without_a_terminal(tmp_path, capsys, clock):
    monitor = make(tmp_path)
    monitor.advance(loss=0.5, sequences=8)
    monitor.throughput.begin()
    # Nothing is known of the pace yet.
    monitor.log_training(1, {"loss": 0.5}, {})
    clock.now += 15
    monitor.advance(loss=0.5, sequences=8)
    monitor.log_training(2, {"loss": 0.25, "weight_norm": 2.0}, {"a": 1.0})
    monitor.log_evaluation(2, {"loss": 0.75, "perplexity": 2.0})
    monitor.close()
    shown = capsys.readouterr()
    assert shown.out == (
        "step 1/20  train  loss 0.5\n"
        "step 2/20  train  loss 0.25  sequences_per_second 0.5333  "
        "time_left 0:04:30\n"
        "step 2/20  eval  loss 0.75  perplexity 2\n"
    )
    assert shown.err == ""


def test_a_bar_on_a_terminal(tmp_path, capsys, clock, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monitor = make(tmp_path, start_step=3)
    monitor.advance(loss=0.5, sequences=8)
    monitor.throughput.begin()
    clock.now += 15
    monitor.advance(loss=0.5, sequences=8)
    monitor.log_training(5, {"masked_lm_loss": 0.25}, {})
    monitor.advance(loss=0.375, sequences=16)
    monitor.close()
    shown = capsys.readouterr()
    last = shown.err.replace("\n", "\r").strip("\r").split("\r")[-1]
    assert last.startswith("step 6/20 |")
    for part in ("loss 0.375", "0.5333 sequences/s", "0:01:45 left"):
        assert part in last
    assert "masked_lm_loss 0.25" in shown.out
