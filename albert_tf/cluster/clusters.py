"""Clusters: who the workers of a job are, and whether they are there.

Needs no TensorFlow until a worker asks SLURM, so that the process that starts
workers is light.
"""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from albert_tf.cluster.stops import TEMPORARY_FAILURE, RunStopped
from albert_tf.config import UserError

_VARIABLE = "TF_CONFIG"
# What TensorFlow's own examples take.
_PORT = 2222
_PROBE_SECONDS = 1.0
# Kills a process that is stuck where Python does not run: TensorFlow waits for
# its peers with the interpreter locked, so no thread and no handler of a
# signal in that process would do. When the pipe closes there is nothing to do.
_WATCHDOG = """
import os, select, signal, sys
process, seconds, line = sys.argv[1:]
if not select.select([sys.stdin], [], [], float(seconds))[0]:
    print(line, file=sys.stderr, flush=True)
    os.kill(int(process), signal.SIGKILL)
"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The workers of a job, as one of them knows them.

    Attributes:
        workers: `host:port` of each; the first one is the chief.
        index: which of them this process is.
    """

    workers: tuple[str, ...]
    index: int

    def tf_config(self) -> str:
        """Returns what TensorFlow wants to find in TF_CONFIG."""
        return json.dumps(
            {
                "cluster": {"worker": list(self.workers)},
                "task": {"type": "worker", "index": self.index},
            }
        )


def _given(argument: str) -> Cluster:
    text = _variable(
        _VARIABLE,
        'Every worker needs it: {"cluster": {"worker": ["host:2222", ...]}, '
        '"task": {"type": "worker", "index": 0}}; or see --cluster.',
    )
    try:
        config = json.loads(text)
        jobs, task = dict(config["cluster"]), config["task"]
        # A chief is the first worker by another name.
        chiefs = list(jobs.pop("chief", ()))
        workers = tuple(chiefs + list(jobs.pop("worker", ())))
        index = int(task["index"])
        if task["type"] == "worker":
            index += len(chiefs)
        elif task["type"] != "chief":
            raise ValueError(f"a task of type {task['type']!r} trains nothing")
        if jobs:
            raise ValueError(f"a job of {', '.join(jobs)} is not known here")
        if not 0 <= index < len(workers):
            raise ValueError(f"there is no worker {index} among {len(workers)}")
        for worker in workers:
            _host_and_port(worker)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        said = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UserError(f"{_VARIABLE}={text} is not usable: {said}.") from None
    return Cluster(workers, index)


def _local(argument: str) -> Cluster:
    raise UserError(
        f"cluster=local:{argument}: the programs in bin/ start the processes; "
        f"each then has a {_VARIABLE} of its own and cluster=tf_config."
    )


def _jobset(argument: str) -> Cluster:
    if not argument.isdigit() or int(argument) < 1:
        raise UserError(
            "cluster=jobset needs the number of workers, the completions of "
            "the job, which Kubernetes tells no pod: --cluster=jobset:8."
        )
    hint = "Is this a pod of a JobSet whose job has completionMode: Indexed?"
    index = _variable("JOB_COMPLETION_INDEX", hint)
    subdomain = _variable(
        "JOBSET_NAME", "Give it to the container in env:, the JobSet's name."
    )
    # <jobset>-<replicated job>-<number of the job>-<index>
    own = socket.gethostname().partition(".")[0]
    job, _, number = own.rpartition("-")
    if number != index or int(index) >= int(argument):
        raise UserError(
            f"cluster=jobset:{argument}: the pod {own!r} with "
            f"JOB_COMPLETION_INDEX={index} is not one of {argument} indexed "
            "workers."
        )
    return Cluster(
        tuple(
            f"{job}-{worker}.{subdomain}:{_PORT}"
            for worker in range(int(argument))
        ),
        int(index),
    )


def _slurm(argument: str) -> Cluster:
    for name in ("PROCID", "STEP_NUM_TASKS", "STEP_NODELIST"):
        _variable(f"SLURM_{name}", "Start the program by srun.")
    tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=_PORT,
        # SLURM itself hands out GPUs (--gpus-per-task): these numbers only
        # keep TensorFlow from counting and assigning them.
        gpus_per_node=tasks,
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    workers = resolver.cluster_spec().as_dict()["worker"]
    return Cluster(tuple(workers), resolver.get_task_info()[1])


# How the workers learn of each other: a row makes the cluster out of the
# environment and of what stands behind the colon.
CLUSTERS: dict[str, Callable[[str], Cluster]] = {
    "tf_config": _given,
    "local": _local,
    "jobset": _jobset,
    "slurm": _slurm,
}


def find_cluster(name: str) -> Cluster:
    """Returns the cluster; "" is that of TF_CONFIG.

    Raises:
        UserError: for an unknown name, or an environment that is not that of
            such a cluster.
    """
    kind, _, argument = (name or "tf_config").partition(":")
    if kind not in CLUSTERS:
        raise UserError(
            f"cluster={name!r} is not one of {', '.join(CLUSTERS)}."
        )
    return CLUSTERS[kind](argument)


def local_size(name: str) -> int:
    """Returns how many processes `local:N` asks for; 0 for other clusters.

    Raises:
        UserError: where N is no number of processes.
    """
    kind, _, number = name.partition(":")
    if kind != "local":
        return 0
    if not number.isdigit() or not 1 <= int(number) <= 64:
        raise UserError(
            f"cluster={name!r}: local:N starts N processes, 1 to 64."
        )
    return int(number)


def local_clusters(number: int) -> list[Cluster]:
    """Returns a cluster on free ports of this machine, for each worker."""
    with contextlib.ExitStack() as stack:
        # All at once, or the same port would be given twice.
        ports = [
            stack.enter_context(socket.create_server(("localhost", 0)))
            for _ in range(number)
        ]
        workers = tuple(f"localhost:{port.getsockname()[1]}" for port in ports)
    return [Cluster(workers, index) for index in range(number)]


def wait_for_workers(cluster: Cluster, seconds: float) -> None:
    """Returns once every worker answers at its address.

    TensorFlow would wait without end, deaf to signals, and could not say for
    whom. Until all are there, this process answers at its own address.

    Raises:
        RunStopped: when one is missing after `seconds`, or this process's
            port is taken; the same command may succeed later.
    """
    missing = [
        worker
        for index, worker in enumerate(cluster.workers)
        if index != cluster.index
    ]
    deadline = time.monotonic() + seconds
    with _answering(cluster):
        while missing := [worker for worker in missing if not _answers(worker)]:
            if time.monotonic() > deadline:
                raise RunStopped(
                    f"worker {cluster.index} of {len(cluster.workers)} has "
                    f"waited {seconds:g} seconds for {', '.join(missing)}: "
                    "no answer. Start every worker, or give more "
                    "--cluster_timeout_secs.",
                    TEMPORARY_FAILURE,
                )
            time.sleep(0.2)


def _answering(cluster: Cluster) -> socket.socket:
    address = cluster.workers[cluster.index]
    dual = socket.has_dualstack_ipv6()
    try:
        # Nothing is accepted: to be connected to is the whole answer.
        return socket.create_server(
            ("", _host_and_port(address)[1]),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            dualstack_ipv6=dual,
            backlog=2 * len(cluster.workers),
        )
    except OSError as error:
        raise RunStopped(
            f"worker {cluster.index} cannot be reached at {address}: "
            f"{error.strerror or error}. Is an earlier run still at it?",
            TEMPORARY_FAILURE,
        ) from None


def _answers(worker: str) -> bool:
    try:
        socket.create_connection(
            _host_and_port(worker), timeout=_PROBE_SECONDS
        ).close()
    except OSError:
        return False
    return True


def _host_and_port(worker: str) -> tuple[str, int]:
    host, colon, port = worker.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{worker!r} is not host:port")
    return host.strip("[]"), int(port)


def _variable(name: str, hint: str) -> str:
    if not os.environ.get(name):
        raise UserError(f"The variable {name} is not set. {hint}")
    return os.environ[name]


@contextlib.contextmanager
def killed_after(seconds: float, line: str) -> Iterator[None]:
    """Kills this process, with a line, if the context takes longer."""
    watchdog = start_watchdog(seconds, line)
    try:
        yield
    finally:
        watchdog.stdin.close()
        watchdog.wait()


def start_watchdog(seconds: float, line: str) -> subprocess.Popen:
    """Returns the process that kills this one if it lives so much longer.

    SIGKILL, which nothing can hold up. Closing its `stdin` ends the watch.
    """
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", "-c", _WATCHDOG),
            *(str(os.getpid()), str(seconds), line),
        ],
        stdin=subprocess.PIPE,
        # Signals for the group are not meant for it.
        process_group=0,
    )
