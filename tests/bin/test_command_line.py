"""What all programs share: flags, exit statuses, progress, tables."""

import errno
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest
from program_runner import run_program

from albert_tf.config import PretrainingDataConfig, TrainingConfig, UserError
from bin import command_line
from bin.show_results import results_table

RUN = ("--train_data=a", "--eval_data=b", "--run_dir=c")


def test_format_table():
    table = command_line.format_table(
        [["a", 1], ["long name", "23"]], ["what", "n"]
    )
    assert table == (
        "what        n\n---------  --\na           1\nlong name  23"
    )


MASKED_LM = {"masked_lm_accuracy": 0.2, "most_frequent_token_accuracy": 0.07}
RUNS = {
    "sop": MASKED_LM
    | {"sentence_order_accuracy": 0.6, "majority_order_accuracy": 0.51},
    "single": MASKED_LM,
    "mnli": {
        "loss": 1.0,
        "accuracy": 0.5,
        "majority_class_accuracy": 0.25,
        "tfidf_accuracy": 0.4,
        "loss_mismatched": 1.5,
        "accuracy_mismatched": 0.4,
    },
    "squad": {
        "f1": 60.0,
        "best_f1": 61.5,
        "majority_class_exact": 50.0,
        "majority_class_f1": 50.0,
        "step": 3,
        "split": "eval",
    },
    "sts": {
        "pearson": None,
        "mean_squared_error": 2.0,
        "mean_guess_mean_squared_error": 3.0,
    },
}
ROWS = """
masked-LM accuracy|20.0%|7.0%|most frequent token|sop
sentence-order accuracy|60.0%|51.0%|more frequent order|sop
masked-LM accuracy|20.0%|7.0%|most frequent token|single
sentence objective|none|-|-|single
accuracy|50.0%|25.0%|majority class|mnli
accuracy|50.0%|40.0%|TF-IDF|mnli
accuracy_mismatched|40.0%|-|-|mnli
f1|60.0000|50.0000|no answer|squad
best_f1|61.5000|-|has seen the answers|squad
pearson|not defined|-|-|sts
mean_squared_error|2.0000|3.0000|the mean|sts
"""


def test_results_table_has_each_metric_beside_its_baseline():
    rows = [
        "|".join(filter(None, map(str.strip, row.split("  "))))
        for row in results_table(RUNS).splitlines()[2:]
    ]
    assert rows == ROWS.split("\n")[1:-1]


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


def test_text_that_the_output_cannot_encode_is_printed_with_escapes():
    program = r"""
from bin import command_line
command_line.run(lambda: None, lambda: print("caf\xe9 \u0142 \ud800"))
"""
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert found.stdout == b"caf\xe9 \\u0142 \\ud800\n"
    assert not found.stderr


def test_a_killed_worker_is_one_line():
    def main():
        raise BrokenProcessPool

    assert run_program("pretrain", *RUN, main=main).error == (
        "pretrain: a worker process was killed, most likely for lack of "
        "memory; start the same command again."
    )


@pytest.mark.parametrize("size", ["auto", 3])
def test_flags_are_settings(size):
    def main():
        given = command_line.given_settings(TrainingConfig())
        assert given == {"micro_batch_size": size}

    flags = [*RUN, f"--micro_batch_size={size}", "--num_replicas=3"]
    assert run_program("pretrain", *flags, main=main).status == 0


@pytest.mark.parametrize("flag", ["seed", "random_seed"])
def test_the_seed_of_shards_has_the_name_of_every_seed(flag):
    def main():
        given = command_line.given_settings(PretrainingDataConfig())
        assert given == {"random_seed": 5}

    done = run_program("build_pretraining_data", f"--{flag}=5", main=main)
    assert done.status == 0


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (
            "--micro_batch_size=most",
            "flag --micro_batch_size=most: it must be a whole number or auto",
        ),
        ("--cluster=local:2", "needs --strategy=multi_worker"),
        ("shards", "'shards' is not a flag; flags look like --name=value."),
    ],
)
def test_wrong_flags_are_one_line(flag, message):
    done = run_program("pretrain", *RUN, flag, main=lambda: None)
    assert done.status == 1
    (line,) = done.error.splitlines()
    assert message in line


def program(text, *arguments):
    """Runs a program whose `main` is `text`; returns what it leaves."""
    script = (
        "import os, sys\n"
        "from albert_tf.config import RuntimeConfig\n"
        "from albert_tf.cluster.stops import RunStopped\n"
        "from bin import command_line\n"
        "def define(): command_line.define_settings(RuntimeConfig())\n"
        f"def main():\n    {text}\n"
        "command_line.run(define, main)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_paths_may_begin_in_the_home_directory(monkeypatch):
    """Shells leave ~ behind = as it is."""
    monkeypatch.setenv("HOME", "/home/a\\1")
    done = run_program(
        "predict",
        "--mode=classify",
        "--model_dir=~/model",
        "--input=~/a,~/b/~,~c,~",
        "--text=~/",
        main=lambda: print(
            *(
                command_line.FLAGS[n].value
                for n in ("model_dir", "input", "text")
            )
        ),
    )
    home = "/home/a\\1"
    assert done.stdout == f"{home}/model {home}/a,{home}/b/~,~c,~ ['~/']\n"


def test_paths_in_a_flagfile_may_begin_in_the_home_directory(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", "/home/a")
    flagfile = tmp_path / "flags"
    flagfile.write_text("--model_dir=~/model\n")
    done = run_program(
        "predict",
        f"--flagfile={flagfile}",
        main=lambda: print(command_line.FLAGS.model_dir),
    )
    assert done.stdout == "/home/a/model\n"


def test_the_folder_of_an_output_is_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.json"
    given = "--task=RTE", "--gold=no", "--predictions=no", f"--output={path}"
    assert "no: No such file" in run_program("score", *given).error
    assert os.listdir(tmp_path) == []
    done = run_program("score", *given, main=lambda: path.write_text("{}"))
    assert done.status == 0, done.error
    assert path.exists()


def test_a_local_cluster_runs_the_program_once_for_each_worker():
    text = (
        # It is one write: the other worker writes, too.
        "print(command_line.with_flags(RuntimeConfig()).cluster + ' ' + "
        "os.environ['TF_CONFIG']); raise RunStopped('a worker was lost', 75)"
    )
    flags = ("--strategy=multi_worker", "--cluster=local:2")
    done = program(text, *flags)
    assert done.stdout.count("tf_config {") == 2
    for index in (0, 1):
        assert done.stdout.count(f'"index": {index}') == 1
    # It ends as its workers do.
    assert done.returncode == 75
    assert "-c: a worker was lost\n" in done.stderr


def test_gpus_that_are_not_used_are_named(tmp_path, monkeypatch):
    nvidia_smi = tmp_path / "nvidia-smi"
    nvidia_smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A100 (UUID: 1)'\n")
    nvidia_smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # A TensorFlow in name only, that logs a reason and sees none.
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


@pytest.mark.slow
def test_tensorflow_is_loaded_without_what_only_keras_asks_for():
    done = program(
        "command_line.load_tensorflow(); import keras; "
        "print({'sklearn', 'matplotlib'} & {*sys.modules}); "
        "import sklearn, matplotlib; print(keras.backend.backend())"
    )
    assert (done.stdout, done.returncode) == ("set()\ntensorflow\n", 0)


@pytest.mark.parametrize(
    ("error", "status"),
    [("RunStopped('saved', 143)", 143), ("KeyboardInterrupt", 130)],
)
def test_a_status_does_not_depend_on_a_reader(error, status):
    # This is `program 2>&1 | tee log`, where Ctrl-C ends tee first.
    program = (
        "from albert_tf.cluster.stops import RunStopped\n"
        "from bin import command_line\n"
        "def main(argv):\n"
        "    print('a line')\n"
        f"    raise {error}\n"
        "command_line._guarded(['pretrain'], main)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    assert done.returncode == status


def no_room(path=None):
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def ended_by(error, capsys):
    """Returns the status of a program in which an error is raised, its line."""

    def main(_):
        raise error

    with pytest.raises(SystemExit) as exit:
        command_line._guarded(["convert"], main)
    return exit.value.code, capsys.readouterr().err


def test_a_full_disk_has_a_status_of_its_own(capsys):
    line = "convert: a/b: No space left on device\n"
    assert ended_by(no_room("a/b"), capsys) == (74, line)
    error = UserError("a cannot be written.")
    error.__context__ = no_room("a/b")
    line = "convert: a cannot be written.\n"
    assert ended_by(error, capsys) == (74, line)
    denied = PermissionError(errno.EACCES, "Permission denied", "a/b")
    message = "convert: a/b: Permission denied"
    assert ended_by(denied, capsys) == (message, "")


def test_standard_output_on_a_full_disk():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bin.count_parameters"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.stderr == (
        "count_parameters: standard output: No space left on device\n"
    )
    assert done.returncode == 74
