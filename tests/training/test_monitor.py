"""The log of a run: metrics.jsonl and what TensorBoard reads."""

import json

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from albert_tf.training.monitor import Monitor


def make(run_dir, start_step=0):
    return Monitor(
        str(run_dir), num_steps=20, start_step=start_step, batch_size=4
    )


def lines(run_dir):
    return [
        json.loads(line)
        for line in (run_dir / "metrics.jsonl").read_text().splitlines()
    ]


def test_scalars_reach_both_logs(tmp_path):
    monitor = make(tmp_path)
    monitor.text("configuration", "a = 1")
    for step in (5, 10):
        monitor.scalars("train", step, {"loss": 1 / step}, rate=step)
    monitor.scalars("eval", 10, {"accuracy": 0.5})
    monitor.details("train", 10, {"trust_ratio/a/kernel": 0.25})
    monitor.close()
    # A rate is a clock time: the screen and TensorBoard have it.
    assert lines(tmp_path) == [
        {"step": 5, "split": "train", "loss": 0.2},
        {"step": 10, "split": "train", "loss": 0.1},
        {"step": 10, "split": "eval", "accuracy": 0.5},
    ]
    # Summaries are tensors; 0 keeps all of them.
    events = EventAccumulator(
        str(tmp_path / "tensorboard/train"), {"tensors": 0}
    )
    events.Reload()
    assert sorted(events.Tags()["tensors"]) == [
        "configuration",
        "loss",
        "rate",
        "trust_ratio/a/kernel",
    ]
    (detail,) = events.Tensors("trust_ratio/a/kernel")
    assert (detail.step, tf.make_ndarray(detail.tensor_proto)) == (10, 0.25)
    assert [event.step for event in events.Tensors("loss")] == [5, 10]
    values = [tf.make_ndarray(e.tensor_proto) for e in events.Tensors("rate")]
    assert values == pytest.approx([5, 10])


def test_what_json_cannot_hold_is_null(tmp_path):
    monitor = make(tmp_path)
    monitor.scalars("train", 1, {"loss": float("nan"), "norm": float("inf")})
    monitor.close()
    assert lines(tmp_path) == [
        {"step": 1, "split": "train", "loss": None, "norm": None}
    ]


def test_a_resumed_log_is_cut_back_to_its_step(tmp_path):
    monitor = make(tmp_path)
    for step in (5, 10, 15):
        monitor.scalars("train", step, {"loss": 0.0})
    monitor.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 20, "spl')
    monitor = make(tmp_path, start_step=10)
    monitor.scalars("train", 15, {"loss": 1.0})
    monitor.close()
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [
        (5, 0.0),
        (10, 0.0),
        (15, 1.0),
    ]


def test_plain_lines_where_there_is_no_terminal(tmp_path, capsys):
    monitor = make(tmp_path)
    monitor.advance()
    monitor.scalars("train", 1, {"loss": 0.25}, sequences_per_second=8.0)
    monitor.close()
    shown = capsys.readouterr()
    assert shown.out == (
        "step 1/20  train  loss 0.25  sequences_per_second 8\n"
    )
    assert shown.err == ""
