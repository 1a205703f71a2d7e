"""Who takes turns when, and what is made of the times; a clock of our own."""

import numpy as np
import pytest

from albert_tf.config import ModelConfig, TrainingConfig
from albert_tf.jobs.workload import Workload
from bin.benchmarking import step_benchmark
from bin.benchmarking.peers import SideKind
from bin.benchmarking.step_benchmark import Prepared, Round, Turn

WORK = Workload(
    model=ModelConfig(vocab_size=20),
    batch_size=2,
    seq_length=8,
    num_predictions=2,
    training=TrainingConfig(),
)


class Clock:
    """A clock that only moves when a side works."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_benchmark, "time", clock)
    return clock


class FakeSide:
    """Takes so many seconds for a step, and more for the first."""

    flops = {"train_step": 300, "forward": 100, "states": 110}  # noqa: RUF012

    def __init__(self, name, clock, seconds, log, compiling=0.0):
        self.name, self.clock, self.log = name, clock, log
        self.seconds = seconds
        self.compiling = dict.fromkeys(seconds, compiling)

    def _work(self, job):
        self.log.append((self.name, job))
        self.clock.now += self.seconds[job] + self.compiling.pop(job, 0.0)

    def train_step(self):
        self._work("train_step")
        return 1.0

    def forward(self):
        self._work("forward")
        return np.zeros(1)

    def states(self):
        self._work("states")
        return np.zeros(1)


def test_variants_that_are_far_slower_are_given_up(clock):
    seconds = {
        "slow": {"train_step": 8.0, "forward": 2.0, "states": 5.0},
        "quick": {"train_step": 3.0, "forward": 4.0, "states": 4.0},
        "middle": {"train_step": 4.4, "forward": 3.1, "states": 9.0},
    }
    batches = []

    def make(work, batch, variant):
        assert work is WORK
        batches.append(batch)
        return FakeSide(variant, clock, seconds[variant], [], compiling=50.0)

    said = []
    kind = SideKind("fake", (), lambda work: list(seconds), make)
    found = step_benchmark.prepare(kind, WORK, say=said.append)
    # Up to 1.5 times the least.
    assert {job: [o.variant for o in ones] for job, ones in found.items()} == {
        "train_step": ["quick", "middle"],
        "forward": ["slow"],
        "states": ["slow", "quick"],
    }
    assert found["train_step"][0].first_seconds == pytest.approx(53.0)
    assert found["train_step"][0].seconds == pytest.approx(3.0)
    assert found["forward"][0].first_seconds == pytest.approx(52.0)
    assert found["forward"][0].side.name == "slow"
    assert "fake, quick, training: 3 s a step" in said
    assert batches[0]["input_ids"].shape == (2, 8)


def test_a_variant_that_does_a_job_as_another_work_is_not_taken_for_it(clock):
    def make(work, batch, variant):
        seconds = {"train_step": 3.0, "forward": 4.0, "states": 4.0}
        if variant == "other":
            seconds = dict.fromkeys(seconds, 1.0)
        side = FakeSide(variant, clock, seconds, [])
        if variant == "other":
            side.flops = {"forward": 100, "states": 110}
        return side

    kind = SideKind("fake", (), lambda work: ["other", "same"], make)
    found = step_benchmark.prepare(kind, WORK, say=lambda line: None)
    assert {job: [o.variant for o in ones] for job, ones in found.items()} == {
        "train_step": ["same"],
        "forward": ["other"],
        "states": ["other"],
    }


def test_only_the_jobs_that_are_asked_for_are_done(clock):
    log = []
    seconds = {"train_step": 1.0, "forward": 1.0, "states": 1.0}
    kind = SideKind(
        "fake",
        (),
        lambda work: ["only"],
        lambda *given: FakeSide("fake", clock, seconds, log),
    )
    found = step_benchmark.prepare(
        kind, WORK, ["train_step"], lambda line: None
    )
    assert list(found) == ["train_step"]
    assert {job for _, job in log} == {"train_step"}


def test_sides_take_turns_of_as_many_steps(clock, monkeypatch):
    monkeypatch.setattr(step_benchmark, "matmul_rate", lambda dtype: 1000.0)
    log = []
    prepared = {}
    for name, step in (("ours", 0.25), ("theirs", 0.5), ("others", 1.0)):
        seconds = {
            "train_step": step,
            "forward": 10 * step,
            "states": 20 * step,
        }
        side = FakeSide(name, clock, seconds, log)
        prepared[name] = {
            job: [Prepared("only", side, 9.0, seconds[job])] for job in seconds
        }
    # A second way to do one job.
    quicker = FakeSide("quicker", clock, {"train_step": 0.375}, log)
    prepared["theirs"]["train_step"].append(
        Prepared("other", quicker, 9.0, 0.4375)
    )
    rounds = list(step_benchmark.measure_rounds(prepared, "float32", 2))
    # Two seconds of the fastest, but three steps at least.
    order = ["ours", "theirs", "others"]
    trained = ["ours", "theirs", "quicker", "others"]
    first = [(name, "train_step") for name in trained for _ in range(8)]
    first += [(name, "forward") for name in order for _ in range(3)]
    first += [(name, "states") for name in order for _ in range(3)]
    order = ["theirs", "others", "ours"]
    trained = ["theirs", "quicker", "others", "ours"]
    second = [(name, "train_step") for name in trained for _ in range(8)]
    second += [(name, "forward") for name in order for _ in range(3)]
    second += [(name, "states") for name in order for _ in range(3)]
    assert log == first + second
    for one in rounds:
        assert one.ceiling == 1000.0
        turns = one.turns["train_step"]
        assert turns["ours"] == {"only": Turn(0.25, 300)}
        assert turns["theirs"] == {
            "only": Turn(0.5, 300),
            "other": Turn(0.375, 300),
        }
        assert turns["others"] == {"only": Turn(1.0, 300)}
        assert list(turns) == ["ours", "theirs", "others"]
        forward = one.turns["forward"]["others"]["only"]
        assert forward == Turn(10.0, 100)
        states = one.turns["states"]["ours"]["only"]
        assert states == Turn(5.0, 110)


def test_the_rounds_decide_which_variant_is_fastest():
    def of(*seconds):
        variants = {
            name: Turn(s, 1) for name, s in zip("ab", seconds, strict=True)
        }
        return Round(1.0, {"forward": {"theirs": variants}})

    # The mean of a is less, and so is its best; the median of b is.
    rounds = [of(1.0, 2.9), of(3.0, 2.8), of(3.2, 3.0)]
    assert step_benchmark.fastest_variants(rounds) == {
        "forward": {"theirs": "b"}
    }
