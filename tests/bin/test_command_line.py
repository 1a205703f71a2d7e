"""What every program shares."""

import os
import platform
import subprocess
import sys

import pytest

from bin import command_line
from bin.command_line import format_table
from bin.results_table import results_table


def test_format_table():
    table = format_table([["a", "1"], ["long name", "23"]], ["what", "n"])
    assert table == (
        "what        n\n---------  --\na           1\nlong name  23"
    )


def test_results_table_holds_what_was_measured():
    table = results_table(
        {"r1": {"accuracy": 0.5, "majority_class_accuracy": 0.25, "loss": 1.0}}
    )
    (row,) = table.splitlines()[2:]
    assert row.split() == [
        *("accuracy", "50.0%", "25.0%"),
        *("majority", "class", "r1"),
    ]


def test_results_table_has_the_rows_of_every_run():
    evaluation = {
        "masked_lm_accuracy": 0.2,
        "most_frequent_token_accuracy": 0.07,
        "sentence_order_accuracy": 0.6,
        "majority_order_accuracy": 0.51,
    }
    table = results_table({"r1": evaluation, "r2": evaluation})
    rows = [row.split() for row in table.splitlines()[2:]]
    assert [(row[0], row[2], row[3], row[-1]) for row in rows] == [
        ("masked-LM", "20.0%", "7.0%", "r1"),
        ("sentence-order", "60.0%", "51.0%", "r1"),
        ("masked-LM", "20.0%", "7.0%", "r2"),
        ("sentence-order", "60.0%", "51.0%", "r2"),
    ]


def test_results_table_says_where_there_was_no_sentence_objective():
    masked_lm = {
        "masked_lm_accuracy": 0.2,
        "most_frequent_token_accuracy": 0.07,
    }
    nsp = {
        "next_sentence_accuracy": 0.6,
        "majority_next_sentence_accuracy": 0.51,
    }
    classifier = {
        "loss": 1.0,
        "accuracy": 0.5,
        "macro_f1": 0.25,
        "majority_class_accuracy": 0.25,
        "majority_class_macro_f1": 0.1,
        "loss_mismatched": 1.5,
        "accuracy_mismatched": 0.4,
    }
    questions = {"exact": 50.0, "best_f1": 61.5, "step": 3, "split": "eval"}
    numbers = {"pearson": None, "mean_squared_error": 2.0}
    numbers["mean_guess_mean_squared_error"] = 3.0
    table = results_table(
        {
            "r1": masked_lm,
            "r2": {**masked_lm, **nsp},
            "r3": classifier,
            "r4": questions,
            "r5": numbers,
        }
    )
    rows = [row.split("  ") for row in table.splitlines()[2:]]
    rows = [[cell.strip() for cell in row if cell] for row in rows]
    assert [(row[0], row[1], row[2], row[-1]) for row in rows] == [
        ("masked-LM accuracy", "20.0%", "7.0%", "r1"),
        ("sentence objective", "none", "-", "r1"),
        ("masked-LM accuracy", "20.0%", "7.0%", "r2"),
        ("next-sentence accuracy", "60.0%", "51.0%", "r2"),
        ("accuracy", "50.0%", "25.0%", "r3"),
        ("macro_f1", "0.2500", "0.1000", "r3"),
        ("accuracy_mismatched", "40.0%", "-", "r3"),
        ("exact", "50.0000", "-", "r4"),
        ("best_f1", "61.5000", "-", "r4"),
        ("pearson", "not defined", "-", "r5"),
        ("mean_squared_error", "2.0000", "3.0000", "r5"),
    ]
    assert "has seen the answers" in rows[8]


def test_progress_in_a_log_is_a_line_now_and_then(capsys, monkeypatch):
    with command_line.progress("documents") as show:
        show(1)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(command_line, "_LOG_SECONDS", 0.0)
    seconds = iter([0.0, 1.0, 1.0, 3.0, 3.0, 5.0, 5.0])
    monkeypatch.setattr(command_line.time, "monotonic", seconds.__next__)
    with command_line.progress("documents") as show:
        show(30, instances=17)
        show(36)
        show(50, 130)
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "30 documents, 17 instances, 0 documents/s",
        "36 documents, 2 documents/s",
        "50 of 130 documents, 4 documents/s, 00:20 left",
    ]
    assert shown.err == ""


def program(text, *arguments):
    """Runs a program whose `main` is `text`; returns what it leaves."""
    script = (
        "import os, sys\n"
        "from albert_tf.config import RuntimeConfig, TrainingConfig\n"
        "from albert_tf.cluster.stops import RunStopped\n"
        "from bin import command_line\n"
        "def define():\n"
        "    command_line.define_settings(RuntimeConfig())\n"
        "    command_line.define_settings(TrainingConfig())\n"
        f"def main():\n    {text}\n"
        "command_line.run(define, main)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_run_that_is_stopped_says_why_and_ends_with_its_code():
    done = program("raise RunStopped('no disk left', 74)")
    assert done.returncode == 74
    assert done.stderr == "-c: no disk left\n"


def test_gpus_that_are_not_used_are_named(tmp_path, monkeypatch):
    nvidia_smi = tmp_path / "nvidia-smi"
    nvidia_smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: 1)'\n")
    nvidia_smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # A TensorFlow in name only, that says why and sees none.
    done = program(
        "from unittest import mock; tf = mock.MagicMock(); "
        "sys.modules['tensorflow'] = tf; "
        "tf.config.list_physical_devices = "
        "lambda kind: os.write(2, b'Cannot dlopen.\\n') and []; "
        "command_line.load_tensorflow()"
    )
    assert done.returncode == 0, done.stderr
    reason, warning = done.stderr.splitlines()
    assert reason == "Cannot dlopen."
    assert warning.startswith("WARNING: NVIDIA GPUs of this machine: ")
    assert "visible to TensorFlow: 0. Install the CUDA libraries" in warning


def test_a_killed_worker_is_one_line():
    text = (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "    import signal\n"
        "    ProcessPoolExecutor(1).submit(\n"
        "        signal.raise_signal, signal.SIGKILL\n"
        "    ).result()"
    )
    done = program(text)
    assert (done.returncode, done.stderr) == (
        1,
        "-c: a worker process was killed, most likely for lack of memory; "
        "start the same command again.\n",
    )


def test_flags_of_the_runtime():
    text = "print(command_line.given_runtime())"
    done = program(text, "--strategy=mirrored", "--num_replicas=3")
    assert "strategy='mirrored', num_replicas=3, cluster=''" in done.stdout


@pytest.mark.parametrize(("given", "value"), [("auto", "'auto'"), ("3", "3")])
def test_a_number_or_a_word(given, value):
    text = "print(command_line.given_settings(TrainingConfig()))"
    done = program(text, f"--micro_batch_size={given}")
    assert done.stdout == f"{{'micro_batch_size': {value}}}\n"


@pytest.mark.parametrize("flag", ["seed", "random_seed"])
def test_the_seed_of_shards_has_the_name_of_every_seed(flag):
    script = (
        "from albert_tf.config import PretrainingDataConfig as Config\n"
        "from bin import command_line\n"
        "command_line.run(\n"
        "    lambda: command_line.define_settings(Config()),\n"
        "    lambda: print(command_line.given_settings(Config())),\n"
        ")\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, f"--{flag}=5"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{'random_seed': 5}\n"


def test_neither_a_number_nor_the_word():
    done = program("pass", "--micro_batch_size=most")
    assert done.returncode == 1
    assert (
        "flag --micro_batch_size=most: it must be a whole number or auto"
        in (done.stderr)
    )


def test_a_local_cluster_runs_the_program_once_for_each_worker():
    text = (
        "print(command_line.given_runtime().cluster, os.environ['TF_CONFIG'])"
    )
    flags = ("--strategy=multi_worker", "--cluster=local:2")
    done = program(text, *flags)
    assert done.returncode == 0, done.stderr
    lines = sorted(
        line.split('"task"')[1:] for line in done.stdout.splitlines()
    )
    assert [line[0].count('"index": 0') for line in lines] == [1, 0]
    assert done.stdout.count("tf_config {") == 2


def test_a_local_cluster_ends_as_its_workers_do():
    flags = ("--strategy=multi_worker", "--cluster=local:2")
    done = program("raise RunStopped('a worker was lost', 75)", *flags)
    assert done.returncode == 75
    assert "-c: a worker was lost\n" in done.stderr


def test_a_local_cluster_needs_its_strategy():
    for flags, said in (
        (["--cluster=local:2"], "needs --strategy=multi_worker"),
        (["--cluster=local:none"], "local:N starts N processes, 1 to 64"),
    ):
        done = program("pass", *flags)
        assert done.returncode == 1
        assert said in done.stderr


ARENAS = """
import ctypes, os, threading
from bin import command_line

os.cpu_count = lambda: 2
command_line._limit_arenas()
library = ctypes.CDLL(None)
together = threading.Barrier(12)

def hold():
    # Each takes memory while all others live: threads that may have arenas
    # of their own get them.
    library.malloc(64)
    together.wait()

threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.malloc_stats()
"""


@pytest.mark.skipif(
    "glibc" not in platform.libc_ver(), reason="arenas are glibc's"
)
@pytest.mark.parametrize("setting", [None, "5"])
def test_memory_lies_in_one_arena_per_core(setting):
    environment = {k: v for k, v in os.environ.items() if "MALLOC" not in k}
    if setting:
        environment["MALLOC_ARENA_MAX"] = setting
    done = subprocess.run(
        [sys.executable, "-c", ARENAS],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    # The user's own setting goes first.
    assert done.stderr.count("Arena ") == int(setting or 2)
