"""Strategies, rows of replicas and processes, and lost workers."""

import contextlib
import os
import signal
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_forks import FORKS

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
from bin.command_line import load_tensorflow

VALUES = np.arange(8 * 3, dtype=np.float32).reshape(8, 3)


def work(tf_config, sender):
    """Sends what a worker computes, then works until another is lost."""
    os.environ["TF_CONFIG"] = tf_config
    load_tensorflow()
    strategy = make_strategy(
        RuntimeConfig(strategy="multi_worker", cluster_timeout_secs=60.0)
    )
    rows = local_rows(7, strategy)
    found = {
        "rows": rows,
        "chief": is_chief(strategy),
        "alone": is_alone(strategy),
        "broadcast": broadcast(strategy, 0.1 if is_chief(strategy) else 0.7),
        "speeds": all_gather(strategy, 1.0 if is_chief(strategy) else 4.0),
    }

    @tf.function
    def total(batch):
        def of_replica(batch):
            context = tf.distribute.get_replica_context()
            return context.all_reduce("sum", tf.reduce_sum(batch["x"] ** 2, 0))

        return strategy.run(of_replica, args=(batch,))

    values = {"x": VALUES[rows.start : rows.stop]}
    found["total"] = total(distribute_rows(strategy, values)).numpy().tolist()
    stacked = {"x": np.stack([values["x"], 2 * values["x"]])}
    spread = distribute_rows(strategy, stacked, axis=1)
    found["stacked"] = spread["x"].values[0].numpy().tolist()
    sender.send(found)
    try:
        with lost_workers(strategy):
            broadcast(strategy, 1.0)
            sender.send("going")
            while True:
                broadcast(strategy, 1.0)
                time.sleep(0.05)
    except RunStopped as stopped:
        sender.send(str(stopped))
        sys.exit(stopped.exit_code)


@contextlib.contextmanager
def two_workers():
    """Yields (process, what it sends) of the workers of one cluster."""
    workers = []
    try:
        for cluster in local_clusters(2):
            receiver, sender = FORKS.Pipe(duplex=False)
            process = FORKS.Process(
                target=work, args=(cluster.tf_config(), sender)
            )
            process.start()
            sender.close()
            workers.append((process, receiver))
        yield workers
    finally:
        for process, receiver in workers:
            process.kill()
            process.join()
            receiver.close()


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


@pytest.mark.slow
def test_two_workers_compute_the_numbers_of_one_until_one_is_lost():
    with two_workers() as workers:
        for index, share in enumerate((VALUES[:4], VALUES[4:])):
            _, receiver = workers[index]
            assert receiver.recv() == {
                "rows": range(4 * index, 4 * index + 4),
                "chief": index == 0,
                "alone": False,
                # The very bits of the chief's.
                "broadcast": 0.1,
                "speeds": [1.0, 4.0],
                "total": (VALUES**2).sum(0).tolist(),
                "stacked": [share.tolist(), (2 * share).tolist()],
            }
            assert receiver.recv() == "going"
        (chief, _), (survivor, receiver) = workers
        os.kill(chief.pid, signal.SIGSTOP)
        assert receiver.poll(60)
        last = receiver.recv()
        survivor.join(60)
        assert survivor.exitcode == 75
        # A worker that does not handle it is terminated.
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(chief.pid, number)
        chief.join(60)
        assert chief.exitcode == -signal.SIGTERM
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
