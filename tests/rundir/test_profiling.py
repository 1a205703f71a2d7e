"""Profiles of a few steps."""

import contextlib
import itertools

import pytest
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.rundir.profiling import Profiler


@pytest.fixture
def calls(monkeypatch):
    made = []

    @contextlib.contextmanager
    def trace(name, step_num, _r):
        made.append(f"> {name} {step_num}")
        yield
        made.append(f"< {name} {step_num}")

    module = tf.profiler.experimental
    monkeypatch.setattr(module, "start", lambda path: made.append(path))
    monkeypatch.setattr(module, "stop", lambda: made.append("stop"))
    monkeypatch.setattr(module, "Trace", trace)
    return made


def pass_through(profiler, boundaries, calls):
    for start, stop in itertools.pairwise(boundaries):
        with profiler.profiled(range(start, stop)):
            pass
    calls.append("close")
    profiler.close()


ONE = ["d", "> train 2", "< train 2"]


@pytest.mark.parametrize(
    ("steps", "boundaries", "expected"),
    [
        ("2,4", range(9), [*ONE, "> train 3", "< train 3", "stop", "close"]),
        # Several steps per call; runs that resume or end within the profile.
        ("2, 4", [0, 2, 4, 6], [*ONE, "stop", "close"]),
        ("2,4", [3, 4, 5], ["d", "> train 3", "< train 3", "stop", "close"]),
        ("2,4", [0, 1, 2, 3], [*ONE, "close", "stop"]),
    ],
)
def test_profiled_steps(calls, steps, boundaries, expected):
    profiler = Profiler(steps, "d")
    assert profiler.steps == (2, 4)
    pass_through(profiler, boundaries, calls)
    assert calls == expected


def test_only_the_chief_profiles(calls):
    profiler = Profiler("2,4", "d", writes=False)
    pass_through(profiler, range(9), calls)
    # All make the same calls.
    assert profiler.steps == (2, 4)
    assert calls == ["close"]


@pytest.mark.parametrize("steps", ["10", "3,3", "-1,4"])
def test_errors(steps):
    with pytest.raises(UserError, match=f"profile_steps='{steps}' must be two"):
        Profiler(steps, "d")


def test_a_profile_is_written(tmp_path):
    profiler = Profiler("1,2", str(tmp_path))
    for step in range(3):
        with profiler.profiled(range(step, step + 1)):
            tf.matmul(tf.ones((8, 8)), tf.ones((8, 8)))
    (recording,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    content = recording.read_bytes()
    assert b"MatMul" in content
    assert b"train" in content
