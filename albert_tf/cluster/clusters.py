"""Clusters: the addresses of a job's workers, and waiting for them.

Imports TensorFlow for SLURM only, so that the process that starts workers is
light.
"""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable

from albert_tf.cluster.stops import TEMPORARY_FAILURE, RunStopped
from albert_tf.config import UserError, lookup, require

_VARIABLE = "TF_CONFIG"
_EXAMPLE = (
    '{"cluster": {"worker": ["host:2222", ...]}, '
    '"task": {"type": "worker", "index": 0}}'
)
# The port of TensorFlow's examples.
_PORT = 2222
_PROBE_SECONDS = 1.0
# Kills a process that hangs outside of Python: TensorFlow waits for its peers
# with the interpreter locked, so no thread and no signal handler of that
# process can run. Ends when its pipe is closed.
_WATCHDOG = """
import os, select, signal, sys
process, seconds, line = sys.argv[1:]
if not select.select([sys.stdin], [], [], float(seconds))[0]:
    print(line, file=sys.stderr, flush=True)
    os.kill(int(process), signal.SIGKILL)
"""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The `host:port` of each worker, the chief first, and this one's index."""

    workers: tuple[str, ...]
    index: int

    def tf_config(self) -> str:
        """Returns the value of TF_CONFIG for TensorFlow."""
        return json.dumps(
            {
                "cluster": {"worker": list(self.workers)},
                "task": {"type": "worker", "index": self.index},
            }
        )


def _tf_config(argument: str) -> Cluster:
    text = _variable(
        _VARIABLE, f"Every worker needs it: {_EXAMPLE}; or see --cluster."
    )
    try:
        config = json.loads(text)
        jobs, task = dict(config["cluster"]), config["task"]
        # TensorFlow calls the first worker chief or worker 0.
        chiefs = tuple(jobs.pop("chief", ()))
        workers = (*chiefs, *jobs.pop("worker", ()))
        index = {"chief": 0, "worker": len(chiefs)}[task["type"]]
        index += int(task["index"])
        for worker in workers:
            _host_and_port(worker)
        if jobs or not 0 <= index < len(workers):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(
            f"{_VARIABLE}={text} is not usable: expected {_EXAMPLE}, with no "
            "jobs but worker and chief, every address as host:port and the "
            "task one of them."
        ) from None
    return Cluster(workers, index)


def _local(argument: str) -> Cluster:
    raise UserError(
        f"cluster=local:{argument}: the programs in bin/ start the processes; "
        f"each then has a {_VARIABLE} of its own and cluster=tf_config."
    )


def _jobset(argument: str) -> Cluster:
    require(
        argument.isdecimal() and int(argument) > 0,
        "cluster=jobset needs the number of workers, the completions of the "
        "job, which a pod cannot find out: --cluster=jobset:8.",
    )
    hint = "Is this a pod of a JobSet whose job has completionMode: Indexed?"
    index = _variable("JOB_COMPLETION_INDEX", hint)
    subdomain = _variable(
        "JOBSET_NAME", "Give it to the container in env:, the JobSet's name."
    )
    # <jobset>-<replicated job>-<number of the job>-<index>
    own = socket.gethostname().partition(".")[0]
    job, _, number = own.rpartition("-")
    require(
        number == index and int(index) < int(argument),
        f"cluster=jobset:{argument}: the pod {own!r} with "
        f"JOB_COMPLETION_INDEX={index} is not one of {argument} indexed "
        "workers.",
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
        # SLURM itself assigns GPUs (--gpus-per-task): these numbers only
        # keep TensorFlow from doing so.
        gpus_per_node=tasks,
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    workers = resolver.cluster_spec().as_dict()["worker"]
    return Cluster(tuple(workers), resolver.get_task_info()[1])


# A row makes the cluster from the environment and the text after the colon.
CLUSTERS: dict[str, Callable[[str], Cluster]] = {
    "tf_config": _tf_config,
    "local": _local,
    "jobset": _jobset,
    "slurm": _slurm,
}


def find_cluster(name: str) -> Cluster:
    """Returns the cluster; "" is that of TF_CONFIG."""
    kind, _, argument = (name or "tf_config").partition(":")
    return lookup(CLUSTERS, kind, "cluster")(argument)


def local_size(name: str) -> int:
    """Returns the N of `local:N`; 0 for other clusters."""
    kind, _, number = name.partition(":")
    if kind != "local":
        return 0
    require(
        number.isdecimal() and 1 <= int(number) <= 64,
        f"cluster={name!r}: local:N starts N processes, 1 to 64.",
    )
    return int(number)


def local_clusters(number: int) -> list[Cluster]:
    """Returns a cluster on free ports of this machine, for each worker."""
    with contextlib.ExitStack() as stack:
        # All at once, or one port could be given twice.
        ports = [
            stack.enter_context(socket.create_server(("localhost", 0)))
            for _ in range(number)
        ]
        workers = tuple(f"localhost:{port.getsockname()[1]}" for port in ports)
    return [Cluster(workers, index) for index in range(number)]


def wait_for_workers(cluster: Cluster, seconds: float) -> None:
    """Returns once every worker accepts connections at its address.

    TensorFlow would wait forever, ignore signals and not name the missing
    worker. Until all are there, this process listens at its own address.

    Raises:
        RunStopped: when one is missing after `seconds`, or the port is taken.
    """
    missing = [
        worker
        for index, worker in enumerate(cluster.workers)
        if index != cluster.index
    ]
    deadline = time.monotonic() + seconds
    with _listening(cluster):
        while missing := [w for w in missing if not _is_reachable(w)]:
            if time.monotonic() > deadline:
                raise RunStopped(
                    f"worker {cluster.index} of {len(cluster.workers)} has "
                    f"waited {seconds:g} seconds for {', '.join(missing)}: "
                    "no answer. Start every worker, or give more "
                    "--cluster_timeout_secs.",
                    TEMPORARY_FAILURE,
                )
            time.sleep(0.2)


def _listening(cluster: Cluster) -> socket.socket:
    address = cluster.workers[cluster.index]
    dual = socket.has_dualstack_ipv6()
    try:
        # Only the connection is tested: nothing is accepted.
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


def _is_reachable(worker: str) -> bool:
    try:
        socket.create_connection(
            _host_and_port(worker), timeout=_PROBE_SECONDS
        ).close()
    except OSError:
        return False
    return True


def _host_and_port(worker: str) -> tuple[str, int]:
    host, colon, port = worker.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{worker!r} is not host:port")
    return host.strip("[]"), int(port)


def _variable(name: str, hint: str) -> str:
    if not os.environ.get(name):
        raise UserError(f"The variable {name} is not set. {hint}")
    return os.environ[name]


def start_watchdog(seconds: float, line: str) -> subprocess.Popen:
    """Returns a process that kills this one by SIGKILL after some seconds.

    It prints the line then. Leaving its context ends the watch.
    """
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", "-c", _WATCHDOG),
            *(str(os.getpid()), str(seconds), line),
        ],
        stdin=subprocess.PIPE,
        # It must not receive signals for the process group.
        process_group=0,
    )
