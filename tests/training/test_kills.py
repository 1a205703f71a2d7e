"""Runs that are killed many times end like an undisturbed run.

As a program of its own this file serves the test: it imports TensorFlow once,
which takes seconds, and starts bin.pretrain in a fork of itself.
"""

import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from pretraining_runs import ROOT, assert_same_run, flags_of
from tensorflow_forks import FORKS

from albert_tf.cluster.clusters import local_clusters
from albert_tf.cluster.stops import TEMPORARY_FAILURE
from albert_tf.config import override
from albert_tf.interchange import model_directory
from albert_tf.io import files
from albert_tf.modeling import kernels
from albert_tf.rundir.monitor import Monitor
from albert_tf.training import evaluator, loop, run_state
from bin import command_line
from bin import pretrain as program

STEPS = 60
# Where a process kills itself: the location, and the number of visits since the
# step of its turn. Elsewhere the test kills it from outside.
CHECKPOINTS = [
    # Half of one of the dozens of pieces that a checkpoint is written in.
    ("half a checkpoint", 40),
    ("a checkpoint without its name", 1),
]
LAST = ("a checkpoint before others go", 1)
EVALUATION = ("evaluation", 2)
BEST = ("half a best model", 1)
LOGGED = ("evaluation logged", 1)
LOG = ("half the log, cut back", 1)
OUTSIDE = [("start-up", 0), ("first step", 0), ("step", 0)]


# What runs in the forked process.


class Victim:
    """Records the location of its process in a file, and kills it at one."""

    def __init__(self, path, fatal, number, from_step):
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.fatal = fatal if number else None
        self.left, self.from_step = number, from_step
        self.step = -1
        self.began = False

    def at(self, where):
        line = json.dumps({"step": self.step, "where": where})
        os.pwrite(self.descriptor, line.ljust(100).encode(), 0)
        if where == self.fatal and self.step >= self.from_step:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self):
        """Patches the program so that it calls `at` at every location."""
        self.at("start-up")
        # Measuring it would be a second of every start.
        run_state._peak_flops = lambda precision: 1e9
        # Compiling and optimizing would be a quarter of what is left.
        kernels._traced = lambda function, xla: kernels.of_tensors(
            tf.function(function, autograph=False)
        )
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )
        plain_open, plain_replace = files.open, files.replace
        plain_evaluation = evaluator.Evaluator.evaluation_step
        plain_evaluation_log = Monitor.log_evaluation
        plain_write = model_directory.pretrained.write_model_files

        @contextlib.contextmanager
        def profiled(_, call):
            self.step = call.start
            self.at("step" if self.began else "first step")
            self.began = True
            yield
            self.step = call.stop
            self.at("between steps")

        def evaluation_step(*args, **options):
            self.at("evaluation")
            return plain_evaluation(*args, **options)

        def log_evaluation(*args):
            plain_evaluation_log(*args)
            self.at(LOGGED[0])

        def open_file(path, mode="rb"):
            file = plain_open(path, mode)
            what = what_is(path)
            if mode == "wb" and what:
                plain = file.write

                def write(content):
                    content = memoryview(content).cast("B")
                    plain(content[: len(content) // 2])
                    file.flush()
                    self.at(what)
                    plain(content[len(content) // 2 :])

                file.write = write
            return file

        def replace(source, target):
            saved = os.path.basename(os.path.dirname(target)) == "checkpoints"
            if saved:
                self.at("a checkpoint without its name")
            plain_replace(source, target)
            if saved:
                self.at("a checkpoint before others go")

        def write_model_files(directory, *args, **options):
            plain_write(directory, *args, **options)
            if os.path.basename(directory).startswith("best_model"):
                self.at(BEST[0])

        loop.Profiler.profiled = profiled
        evaluator.Evaluator.evaluation_step = evaluation_step
        Monitor.log_evaluation = log_evaluation
        files.open, files.replace = open_file, replace
        model_directory.pretrained.write_model_files = write_model_files


def what_is(path):
    directory, name = os.path.split(path)
    if name.startswith("metrics.jsonl"):
        return LOG[0]
    if os.path.basename(directory) == "checkpoints":
        return "half a checkpoint"
    return None


def serve():
    """Forks for each line of the input; prints pid and exit status."""
    gc.freeze()  # the forks share these objects
    for line in sys.stdin:
        order = json.loads(line)
        process = os.fork()
        if not process:
            run_program(order)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_program(order):
    """Runs `python -m bin.pretrain` in this process."""
    output = os.open(
        order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    for descriptor, file in enumerate((os.open(os.devnull, 0), output, output)):
        os.dup2(file, descriptor)
    Victim(order["place"], *order["fatal"]).watch()
    sys.argv = [program.__file__, *order["flags"]]
    command_line.run(program.define_flags, program.main)


if __name__ == "__main__":
    serve()


# What runs in the test.


class Server:
    """Starts the program in forks of a process that has TensorFlow."""

    def __init__(self, directory):
        self.place = directory / "place"
        self.output = directory / "output"
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, flags, fatal=("", 0, 0)):
        """Returns the number of the process."""
        self.place.write_text("")
        order = {
            "flags": flags,
            "place": str(self.place),
            "output": str(self.output),
            "fatal": fatal,
        }
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def status(self):
        """Returns the exit status of the process, when it has ended."""
        return int(self.process.stdout.readline())

    def where(self):
        """Returns the step, and where the process is or was."""
        with contextlib.suppress(ValueError):
            place = json.loads(self.place.read_text())
            return place["step"], place["where"]
        return -1, ""

    def wait_until(self, process, reached):
        while not reached(*self.where()):
            assert os.path.exists(f"/proc/{process}"), self.read_output()
            time.sleep(0.002)

    def read_output(self):
        return self.output.read_text()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def kill_plan(rng):
    """Returns (step, where, number) for every kill, in the order of the run.

    The steps are drawn from the whole run but its end, which a process may
    reach before it is killed.
    """
    moments = [*CHECKPOINTS, EVALUATION, LOGGED, *OUTSIDE]
    rng.shuffle(moments)
    steps = rng.sample(range(10, STEPS - 20), len(moments))
    plan = [(s, *m) for s, m in zip(sorted(steps), moments, strict=True)]
    # Lines after the last checkpoint are certain here, and so is that they
    # are cut off; and that the first evaluation is the best so far.
    logged = [where for _, where, _ in plan].index(LOGGED[0])
    plan.insert(logged + 1, (-1, *LOG))
    # At the end there is no later save that could remove the others.
    return [(0, *BEST), *plan, (STEPS, *LAST)]


def kill_from_outside(server, process, step, where, rng):
    """Kills at a random moment of the start, or of the time after a step."""
    if where == "step":
        server.wait_until(
            process, lambda at, now: at >= step and now != "first step"
        )
        time.sleep(rng.uniform(0.0, 0.05))
    else:
        server.wait_until(process, lambda _, now: now == where)
        time.sleep(rng.uniform(0.0, 0.5))
    os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def killed_config(small_config):
    """Dropout, a moving average, evaluations between checkpoints."""
    return override(
        small_config,
        {
            "num_hidden_layers": 1,
            "num_train_steps": STEPS,
            "train_batch_size": 7,
            "ema_decay": 0.9,
            "max_loss_spike": 3.0,
            "log_steps": 3,
            "eval_steps": 10,
            "max_eval_steps": 4,
            "eval_batch_size": 8,
            "save_checkpoints_steps": 7,
            "keep_checkpoint_max": 2,
        },
    )


@pytest.mark.slow
def test_killed_at_every_place(killed_config, shards_dir, tmp_path):
    """SIGKILL at any moment; the same command ends the same run, to a byte."""
    flags, whole = (
        flags_of(killed_config, shards_dir, tmp_path / name)
        for name in ("cut", "whole")
    )
    rng = random.Random(1)
    hits = []
    with contextlib.closing(Server(tmp_path)) as server:
        for step, where, number in kill_plan(rng):
            process = server.start(flags, (where, number, step))
            if not number:
                kill_from_outside(server, process, step, where, rng)
            status = server.status()
            assert status == -signal.SIGKILL, server.read_output()
            hits.append((*server.where(), "itself" if number else "outside"))
            print(
                "{:>3}  {:5} {:30} by {}".format(len(hits), *hits[-1]),
                flush=True,
            )
        for undisturbed in (flags, whole):
            server.start(undisturbed)
            assert server.status() == 0, server.read_output()
    ends = f"has been trained to its end, step {STEPS}."
    assert ends in server.read_output()
    places = [where for _, where, _ in hits]
    assert len(hits) == 10
    assert sum(p in ("start-up", "first step") for p in places) >= 2
    for where, _ in (*CHECKPOINTS, EVALUATION, BEST, LOGGED, LOG, LAST):
        assert where in places
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def run_worker(tf_config, order):
    os.environ["TF_CONFIG"] = tf_config
    run_program(order)


def start_workers(flags, output):
    """Returns the processes of the two workers of a cluster."""
    workers = []
    for cluster in local_clusters(2):
        order = {
            "flags": [*flags, "--strategy=multi_worker", "--cluster=tf_config"],
            "place": os.devnull,
            "output": str(output),
            "fatal": ("", 0, 0),
        }
        arguments = (cluster.tf_config(), order)
        workers.append(FORKS.Process(target=run_worker, args=arguments))
        workers[-1].start()
    return workers


def statuses(workers):
    for worker in workers:
        worker.join()
    return [worker.exitcode for worker in workers]


@pytest.mark.slow
def test_a_worker_is_killed(killed_config, shards_dir, tmp_path):
    """The other ends; started again, they end with the same bytes."""
    changes = {"train_batch_size": 8, "num_train_steps": 16}
    # LAMB's update has much more to trace.
    config = override(killed_config, {**changes, "optimizer": "adamw"})
    output = tmp_path / "output"

    def start(name):
        flags = flags_of(config, shards_dir, tmp_path / name)
        return start_workers(flags, output)

    assert statuses(start("whole")) == [0, 0], output.read_text()
    workers = start("cut")
    # The first, so that much of the run is left to be killed in.
    while not list((tmp_path / "cut/checkpoints").glob("step-?")):
        assert workers[1].is_alive(), output.read_text()
        time.sleep(0.01)
    workers[1].kill()
    lost = [TEMPORARY_FAILURE, -signal.SIGKILL]
    assert statuses(workers) == lost, output.read_text()
    assert "pretrain: a worker was lost" in output.read_text()
    assert statuses(start("cut")) == [0, 0], output.read_text()
    assert "Resuming from step" in output.read_text()
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
