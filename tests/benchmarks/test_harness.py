"""Rounds, fresh processes and the table."""

import functools
import os

from benchmarks import harness
from benchmarks.harness import Stage


def test_sides_take_turns_and_are_compared_with_the_first(
    workspace, in_process
):
    order, speeds = [], iter((5.0, 1.0, 2.0))

    def turn(name):
        order.append(name)
        return {"s": next(speeds) if name == "ours" else 10.0}

    def sides(workspace):
        return {n: functools.partial(turn, n) for n in ("ours", "theirs")}

    rows = harness.run_stage(Stage("nothing", sides), workspace, 3)
    assert rows == [
        {"measure": "s", "side": "ours", "values": [5, 1, 2], "ratios": []},
        {
            "measure": "s",
            "side": "theirs",
            "values": [10, 10, 10],
            "ratios": [2, 10, 5],
        },
    ]
    # Every other round is reversed.
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    last = harness.table(rows).splitlines()[3]
    assert last.split() == [
        "s",
        "theirs",
        "10",
        "10",
        "to",
        "10",
        "5",
        "2",
        "to",
        "10",
    ]


def test_a_fresh_process_has_the_cores_that_it_is_to_have():
    before = os.sched_getaffinity(0)
    core = max(before)
    found = harness.in_fresh_process([core], os.sched_getaffinity, 0)
    assert found == {core}
    assert os.sched_getaffinity(0) == before
