"""Strategies, rows of replicas and processes, and lost workers."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.cluster import distribution
from albert_tf.cluster.clusters import local_clusters
from albert_tf.cluster.distribution import (
    all_gather,
    broadcast,
    distribute_rows,
    is_alone,
    is_chief,
    local_rows,
    lost_workers,
    make_strategy,
    out_of_memory,
)
from albert_tf.cluster.stops import TEMPORARY_FAILURE, RunStopped
from albert_tf.config import RuntimeConfig, UserError

# A worker: prints what it computes, then works until another is lost.
WORKER = """
import json, sys, time
from bin.command_line import load_tensorflow
load_tensorflow()
import numpy as np
import tensorflow as tf
from albert_tf.config import RuntimeConfig
from albert_tf.cluster.distribution import *
from albert_tf.cluster.stops import RunStopped

strategy = make_strategy(
    RuntimeConfig(strategy="multi_worker", cluster_timeout_secs=60.0)
)

rows = local_rows(7, strategy)
found = {
    "rows": list(rows),
    "chief": is_chief(strategy),
    "alone": is_alone(strategy),
    "broadcast": broadcast(strategy, 0.1 if is_chief(strategy) else 0.7),
    "speeds": all_gather(strategy, 1.0 if is_chief(strategy) else 4.0),
}
values = np.arange(8 * 3, dtype=np.float32).reshape(8, 3)

@tf.function
def total(batch):
    def of_replica(batch):
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", tf.reduce_sum(batch["x"] ** 2, 0))
    return strategy.run(of_replica, args=(batch,))

found["total"] = total(
    distribute_rows(strategy, {"x": values[rows.start : rows.stop]})
).numpy().tolist()
stacked = np.stack([values, 2 * values])
found["stacked"] = distribute_rows(
    strategy, {"x": stacked[:, rows.start : rows.stop]}, axis=1
)["x"].values[0].numpy().tolist()
print(json.dumps(found), flush=True)

try:
    with lost_workers(strategy):
        while True:
            broadcast(strategy, 1.0)
            print("going", flush=True)
            time.sleep(0.05)
except RunStopped as stopped:
    print(stopped, flush=True)
    sys.exit(stopped.exit_code)
"""


@contextlib.contextmanager
def two_workers():
    """Yields processes that are the workers of one cluster."""
    processes = []
    try:
        for cluster in local_clusters(2):
            environment = {
                **os.environ,
                "TF_CONFIG": cluster.tf_config(),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            }
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER],
                    stdout=subprocess.PIPE,
                    env=environment,
                    text=True,
                )
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.stdout.close()
            process.wait()


def mirrored(number):
    return make_strategy(
        RuntimeConfig(strategy="mirrored", num_replicas=number)
    )


def test_one_process_feeds_all_rows():
    two = mirrored(2)
    for batch_size, padded in ((8, 8), (7, 8), (1, 2)):
        assert local_rows(batch_size, two) == range(padded)
    one = make_strategy(RuntimeConfig())
    assert local_rows(7, one) == range(7)
    for strategy in (one, two):
        assert is_alone(strategy)
        assert is_chief(strategy)
        assert broadcast(strategy, 0.3) == 0.3
        assert all_gather(strategy, 2.0) == [2.0]


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_go_to_the_replicas_in_order(axis):
    values = np.arange(4 * 4 * 3).reshape(4, 4, 3)
    rows = {"x": values, "name": values.astype(bytes)}
    strategy = mirrored(2)
    for name, spread in distribute_rows(strategy, rows, axis).items():
        shares = strategy.experimental_local_results(spread)
        np.testing.assert_array_equal(
            [share.numpy() for share in shares], np.split(rows[name], 2, axis)
        )


def test_strategies_of_different_size_live_in_one_process():
    for number in (2, 1, 2):
        strategy = mirrored(number)
        batch = distribute_rows(strategy, {"x": np.ones((4, 1), np.float32)})

        def of_replica(batch):
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.reduce_sum(batch["x"]))

        result = tf.function(
            lambda batch, strategy=strategy, of_replica=of_replica: (
                strategy.run(of_replica, args=(batch,))
            )
        )(batch)
        assert strategy.experimental_local_results(result)[0] == 4.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_replicas": 2}, "num_replicas=2: .*default has 1 device; --str"),
        ({"strategy": "mirrored", "num_replicas": 9}, "has 2 CPU devices"),
        ({"strategy": "multi_worker", "num_replicas": 2}, "has 1 device for"),
        (
            {"strategy": "multi_worker", "cluster": "local:2"},
            "the programs in bin/ start the processes",
        ),
        ({"strategy": "tpu", "tpu": "none-such"}, "cannot be used"),
    ],
)
def test_invalid_strategies(changes, message):
    with pytest.raises(UserError, match=message) as error:
        make_strategy(RuntimeConfig(**changes))
    assert "\n" not in str(error.value)


def test_invisible_gpus_are_an_error(monkeypatch):
    monkeypatch.setattr(
        distribution, "unseen_gpus", lambda visible: f"sees {visible} of 8"
    )
    for name in ("mirrored", "multi_worker"):
        with pytest.raises(UserError, match="^sees 0 of 8$"):
            make_strategy(RuntimeConfig(strategy=name, num_replicas=1))


def test_an_unavailable_tpu_is_a_temporary_failure(monkeypatch):
    def unavailable(resolver):
        raise tf.errors.UnavailableError(None, None, "Socket closed")

    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", unavailable
    )
    with pytest.raises(RunStopped) as stopped:
        make_strategy(RuntimeConfig(strategy="tpu", tpu="grpc://10.0.0.2:8470"))
    assert stopped.value.exit_code == 75
    assert str(stopped.value) == (
        "tpu='grpc://10.0.0.2:8470' does not answer (UnavailableError: Socket "
        "closed): start the same command again."
    )


def test_multi_worker_must_be_created_first(monkeypatch):
    (cluster,) = local_clusters(1)
    monkeypatch.setenv("TF_CONFIG", cluster.tf_config())
    assert tf.constant(1.0) + 1.0 == 2.0
    with pytest.raises(UserError, match="must be made once in a process, bef"):
        make_strategy(RuntimeConfig(strategy="multi_worker"))


def test_errors_of_a_single_process_are_not_changed():
    with (
        pytest.raises(tf.errors.UnavailableError, match="Socket closed"),
        lost_workers(mirrored(2)),
    ):
        raise tf.errors.UnavailableError(None, None, "Socket closed")


# The chief leads the others' operations; TensorFlow notices the two in
# different ways. SIGTERM terminates a worker that does not handle it.
@pytest.mark.parametrize(
    ("number", "lost"),
    [(signal.SIGTERM, 1), (signal.SIGSTOP, 0)],
)
@pytest.mark.slow
def test_two_workers_compute_the_numbers_of_one_until_one_is_lost(number, lost):
    values = np.arange(8 * 3, dtype=np.float32).reshape(8, 3)
    with two_workers() as processes:
        for index, share in enumerate((values[:4], values[4:])):
            found = json.loads(processes[index].stdout.readline())
            assert found == {
                "rows": list(range(4 * index, 4 * index + 4)),
                "chief": index == 0,
                "alone": False,
                # The very bits of the chief's.
                "broadcast": 0.1,
                "speeds": [1.0, 4.0],
                "total": (values**2).sum(0).tolist(),
                "stacked": [share.tolist(), (2 * share).tolist()],
            }
            assert processes[index].stdout.readline() == "going\n"
        processes[lost].send_signal(number)
        begin = time.monotonic()
        survivor = processes[1 - lost]
        out, _ = survivor.communicate(timeout=60)
        assert survivor.returncode == 75
        assert time.monotonic() - begin < 60
        ended = processes[lost].poll()
        assert ended == (-number if number == signal.SIGTERM else None)
    last = out.splitlines()[-1]
    assert last.startswith("a worker was lost (")
    assert last.endswith("every worker ends; start the whole job again.")


@pytest.fixture
def watched(monkeypatch):
    """Arguments of watchdogs, none of which is started."""
    started = []
    monkeypatch.setattr(
        distribution, "start_watchdog", lambda *given: started.append(given)
    )
    return started


def test_the_message_of_a_lost_worker(monkeypatch, watched):
    message = (
        "Graph execution error:\n\nat node x\n{{function_node x}} Collective "
        "ops is aborted by: Reset\n\t [[{{node x}}]]"
    )
    monkeypatch.setattr(distribution, "is_alone", lambda strategy: False)
    with pytest.raises(RunStopped) as stopped, lost_workers(mirrored(1)):
        raise tf.errors.UnavailableError(None, None, message)
    assert stopped.value.exit_code == 75
    assert str(stopped.value) == (
        "a worker was lost (UnavailableError: Collective ops is aborted by: "
        "Reset): every worker ends; start the whole job again."
    )
    assert len(watched) == 1


def test_a_lost_tpu_is_a_temporary_failure(watched):
    # There is none here to make one of.
    strategy = object.__new__(tf.distribute.TPUStrategy)
    with pytest.raises(RunStopped) as stopped, lost_workers(strategy):
        raise tf.errors.AbortedError(None, None, "Socket closed")
    assert stopped.value.exit_code == TEMPORARY_FAILURE
    assert str(stopped.value) == (
        "the TPU was lost (AbortedError: Socket closed): start the same "
        "command again."
    )
    line = "not ended 30 seconds after the TPU was lost; killed."
    assert watched == [(30.0, line)]


def test_out_of_memory():
    message = (
        "Graph execution error:\n\nat node x\n{{function_node y}} OOM when "
        "allocating tensor with shape[512,12,512,512]\n\t [[{{node z}}]]"
    )
    with (
        pytest.raises(
            UserError,
            match=r"^memory has run out \(OOM when allocating tensor with "
            r"shape\[512,12,512,512\]\): give a smaller --micro_batch_size, ",
        ),
        out_of_memory(),
    ):
        raise tf.errors.ResourceExhaustedError(None, None, message)
