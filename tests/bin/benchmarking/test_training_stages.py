"""How turns are compared; steps of fixed duration."""

import itertools
from types import SimpleNamespace

import pytest

from bin.benchmarking import harness, machine, training_stages
from bin.benchmarking.side import JOBS
from bin.benchmarking.training_stages import (
    DataWait,
    Memory,
    Peak,
    Training,
    Turn,
)


@pytest.fixture
def clock(monkeypatch):
    """A stand-in for `time` that only moves when a side works."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(training_stages, "time", clock)
    monkeypatch.setattr(harness, "time", clock)
    monkeypatch.setattr(
        "albert_tf.cluster.matmul_rate.matmul_rate", lambda dtype: 1000.0
    )
    return clock


def fake_side(clock, log, seconds, first=50.0):
    """Returns a side whose variants take so many seconds for each job."""

    class Fake:
        @classmethod
        def variants(cls, work):
            return tuple(seconds)

        def __init__(self, work, batch, variant):
            self.variant = variant
            self.seconds = dict(zip(JOBS, seconds[variant], strict=True))
            self.flops = dict.fromkeys(self.seconds, 300)
            self.does = dict.fromkeys(self.seconds, f"is {variant}")
            self.called = set()

        def __getattr__(self, job):
            return lambda: self.work(job)

        def work(self, job):
            log.append((self.variant, job))
            clock.now += self.seconds[job] + first * (job not in self.called)
            self.called.add(job)

    return Fake


def test_all_fast_variants_make_the_same_number_of_steps(
    work, clock, monkeypatch
):
    log = []
    # Seconds of train_step, forward and states.
    ours = {"ours": (0.25, 2.0, 2.0)}
    theirs = {
        "slow": (8.0, 2.0, 5.0),
        "quick": (3.0, 4.0, 4.0),
        "middle": (4.4, 3.1, 9.0),
    }
    sides = {
        "ours": fake_side(clock, log, ours),
        "theirs": fake_side(clock, log, theirs),
    }
    monkeypatch.setattr(training_stages, "_SIDES", sides)
    stage = Training(SimpleNamespace(work=work, sides=["ours", "theirs"]))
    ready = stage.sides()
    log.clear()
    turns = {name: side() for name, side in ready.items()}
    ceiling, *keys = turns
    assert turns[ceiling] == 1000.0
    # Up to 1.5 times the seconds of the fastest variant.
    assert keys == [
        ("train_step", "ours", "ours"),
        ("train_step", "theirs", "quick"),
        ("train_step", "theirs", "middle"),
        ("forward", "ours", "ours"),
        ("forward", "theirs", "slow"),
        ("states", "ours", "ours"),
        ("states", "theirs", "slow"),
        ("states", "theirs", "quick"),
    ]
    # Two seconds of the fastest side, but at least three steps.
    steps = {"train_step": 8, "forward": 3, "states": 3}
    assert log == [
        (variant, job) for job, _, variant in keys for _ in range(steps[job])
    ]
    quick = turns["train_step", "theirs", "quick"]
    assert quick == Turn(3.0, 300, 53.0, "is quick")


def test_the_rounds_decide_which_variant_is_fastest(work):
    def turns(a, b):
        return {
            "matrix multiplication": 1.0,
            ("forward", "theirs", "a"): Turn(a, 1, 9.0, "a"),
            ("forward", "theirs", "b"): Turn(b, 1, 9.0, "b"),
        }

    # The mean of a is less, and so is its best; the median of b is.
    rounds = [turns(1.0, 2.9), turns(3.0, 2.8), turns(3.2, 3.0)]
    selected = Training(SimpleNamespace()).select(rounds)
    assert [one["forward", "theirs"].does for one in selected] == ["b"] * 3


def test_training_has_rates_shares_and_ratios(work):
    stage = Training(SimpleNamespace(work=work))
    turns = {
        "matrix multiplication": 8e9,
        ("train_step", "ours"): Turn(0.5, 2 * 10**9, 9.0, "fast"),
        ("train_step", "theirs"): Turn(0.8, 3 * 10**9, 7.0, "slow"),
    }
    found = {one[:2]: one[2] for one in stage.measurements(turns)}
    assert found == pytest.approx(
        {
            ("matrix multiplication", "GFLOP/s"): 8,
            # 4 sequences of 32 tokens in half a second.
            ("training, ours", "sequences/s"): 8,
            ("training, ours", "tokens/s"): 256,
            ("training, ours", "GFLOP/s"): 4,
            ("training, ours", "% of the ceiling"): 50,
            ("training, theirs", "sequences/s"): 5,
            ("training, theirs", "tokens/s"): 160,
            ("training, theirs", "GFLOP/s"): 3.75,
            ("training, theirs", "% of the ceiling"): 46.875,
            ("training, ours to theirs", "times"): 1.6,
            ("training, ours, first call", "s"): 9,
            ("training, theirs, first call", "s"): 7,
        }
    )


def test_memory_is_the_least_of_the_fast_variants(work, monkeypatch):
    peaks = {
        ("ours", "as set"): Peak(3 * 2**20, 1.0, "ours"),
        ("keras_hub", "graph"): Peak(5 * 2**20, 2.0, "graph"),
        ("keras_hub", "XLA"): Peak(4 * 2**20, 2.9, "XLA"),
    }

    def fresh(cores, function, name, work, variant):
        assert function is training_stages.peak_of_side and cores == [1]
        return peaks[name, variant]

    monkeypatch.setattr(machine, "in_fresh_process", fresh)
    stage = Memory(
        SimpleNamespace(work=work, sides=["ours", "keras_hub"], cores=[1])
    )

    turns = {name: side() for name, side in stage.sides().items()}
    assert list(stage.measurements(turns)) == [
        ("ours, resident at the peak", "MiB", 3.0),
        ("keras_hub, resident at the peak", "MiB", 4.0),
        ("ours to keras_hub", "times", 0.75),
    ]
    assert stage.notes(turns) == ["ours: ours.", "keras_hub: XLA."]
    # Too slow, or without steps of training.
    peaks["keras_hub", "XLA"] = Peak(4 * 2**20, 3.1, "XLA")
    assert stage.sides()["keras_hub"]().does == "graph"
    peaks["keras_hub", "graph"] = None
    assert stage.sides()["keras_hub"]().does == "XLA"


def test_waiting_is_a_share_of_the_time(work, clock, monkeypatch):
    trained = []

    def batches(*given):
        try:
            for number in itertools.count(1):
                clock.now += 0.5
                yield number
        finally:
            trained.append("closed")

    def train_on(batch):
        clock.now += 3.0
        trained.append(batch)

    monkeypatch.setattr("albert_tf.inputs.prefetch.prefetch", batches)
    stage = DataWait(SimpleNamespace(work=work, ceiling=2.0))
    turn = stage.turn(SimpleNamespace(train_on=train_on), None)
    # As many as warm the pipeline up, and then for about five seconds.
    assert trained == [*range(1, 17), "closed"]
    # 8 batches of 4 in 28 seconds, 4 of them without a batch.
    assert {one[:2]: one[2] for one in turn} == pytest.approx(
        {
            ("training on records", "sequences/s"): 32 / 28,
            ("training on records", "% of the ceiling"): 100 * 16 / 28,
            ("waiting for batches", "%"): 100 * 4 / 28,
        }
    )
