"""Requests, latencies and ratios of the stage that measures serving."""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from albert_tf.config import UserError
from bin.benchmarking import serving_stage
from bin.benchmarking.serving_stage import Serving


@pytest.mark.slow
def test_our_side_answers_requests_of_each_kind(
    workspace, in_process, monkeypatch
):
    threads = "tensorflow.config.threading.set_intra_op_parallelism_threads"
    monkeypatch.setattr(threads, lambda number: None)
    monkeypatch.setattr(serving_stage, "_CALLS", (1, 1))
    monkeypatch.setattr(serving_stage, "_CLIENT_SECONDS", 0.01)
    stage = Serving(workspace)
    turns = {name: turn() for name, turn in stage.sides().items()}
    names = [name for name, _, _ in stage.measurements(turns)]
    assert names[:2] == ["1 x 10 words, ours, p50", "1 x 10 words, ours, p99"]
    assert names[-3:] == [
        f"16 clients, ours, {measure}" for measure in ("requests", "p50", "p99")
    ]
    assert "32 x paragraphs, ours, p50" in names


def test_requests_have_the_texts_of_the_corpus():
    paragraphs = [("a b c", "1.txt"), ("d", "1.txt")]
    workspace = SimpleNamespace(first_paragraphs=paragraphs)
    texts = serving_stage._texts(SimpleNamespace(workspace=workspace))
    assert texts[1, 10] == ["a b c d a b c d a b"]
    assert [len(text.split()) for text in texts[8, 100]] == [100] * 8
    assert texts[32, 0] == ["a b c", "d"] * 16


def test_clients_call_at_the_same_time(monkeypatch):
    # So long that no client ends before the last one has started.
    monkeypatch.setattr(serving_stage, "_CLIENT_SECONDS", 60)
    together = threading.Barrier(serving_stage._CLIENTS)
    calls = []

    def answer(request):
        # Passes only when all clients wait in a call.
        together.wait(timeout=30)
        calls.append(request)
        together.abort()

    with pytest.raises(threading.BrokenBarrierError):
        serving_stage._seconds_of_clients(answer, ["text"])
    assert calls


def test_requests_of_clients_are_counted_until_the_last_has_ended(monkeypatch):
    monkeypatch.setattr(serving_stage, "_CALLS", (1, 1))
    monkeypatch.setattr(serving_stage, "_CLIENT_SECONDS", 0.1)
    turn = serving_stage._turn(lambda texts: time.sleep(0.2), {(1, 10): []})
    (_, _, rate), *_ = turn["16 clients"]
    # Each client makes at most five of them a second.
    assert rate <= 16 * 5


def test_ratios_are_to_the_best_variant_of_a_peer():
    def turn(milliseconds, rate):
        return {
            "1 x 10 words": [("p50", "ms", milliseconds), ("p99", "ms", 99.0)],
            "16 clients": [("requests", "/s", rate), ("p50", "ms", 7.0)],
        }

    turns = {
        "ours": turn(2.0, 300.0),
        "transformers, eager": turn(8.0, 100.0),
        "transformers, compiled": turn(5.0, 150.0),
        "ONNX Runtime": turn(1.0, 600.0),
    }
    stage = Serving(SimpleNamespace())
    ratios = [m for m in stage.measurements(turns) if m[1] == "times"]
    assert ratios == [
        ("1 x 10 words, transformers to ours", "times", 2.5),
        ("1 x 10 words, ONNX Runtime to ours", "times", 0.5),
        ("16 clients, ours to transformers", "times", 2.0),
        ("16 clients, ours to ONNX Runtime", "times", 0.5),
    ]


def test_another_model_is_not_compared(workspace, monkeypatch):
    wrong = {
        "ours": lambda texts: np.full((len(texts), 2), 0.5),
        "peer": lambda texts: np.full((len(texts), 2), [0.4, 0.6]),
    }
    monkeypatch.setattr(serving_stage, "_answers", lambda stage: wrong)
    with pytest.raises(UserError, match=r"peer answers otherwise .*, by 0\.1:"):
        Serving(workspace).sides()
