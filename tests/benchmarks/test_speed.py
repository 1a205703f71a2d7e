"""The program: its mistakes, and the file and tables that it writes."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from program_runner import run_program

from benchmarks import speed

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--stages=reading,baking"], "stages='baking' is not one of data_"),
        (["--data_dir=glue"], "--task and --data_dir go together; give both."),
        (["--against=jax"], "against='jax' is not one of keras_hub, transf"),
        (
            ["--preset=tiny", "--max_seq_length=256"],
            "--max_seq_length=256 is more than the 128 tokens that "
            "--preset=tiny reads; give it more with "
            "--max_position_embeddings.",
        ),
    ],
)
def test_mistakes_are_reported_at_once_in_one_line(flags, message):
    error = run_program("benchmarks.speed", *flags).error
    assert error.startswith(f"speed: {message}")
    assert "\n" not in error


def test_the_model_has_every_piece_of_a_larger_vocabulary(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += map(str, range(30_000))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))

    def main():
        work = speed._workspace(str(tmp_path)).work
        assert work.model.vocab_size == len(pieces)

    flags = [f"--tokenizer={tmp_path}/vocab.txt", f"--output={tmp_path}/out"]
    assert run_program("benchmarks.speed", *flags, main=main).status == 0


@pytest.mark.slow
def test_results_are_printed_and_written(tmp_path, sentences):
    output, work = tmp_path / "results.json", tmp_path / "work"
    work.mkdir()
    (tmp_path / "text.txt").write_text("\n".join(sentences))
    flags = [
        # The stage and each side run in fresh processes.
        "--stages=featurisation",
        f"--input={tmp_path}/text.txt",
        "--vocab_size=200",
        "--max_seq_length=48",
        "--repeats=1",
        f"--work_dir={work}",
        f"--output={output}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(work) == []
    assert "Traceback" not in done.stderr and "cuda" not in done.stderr
    results = json.loads(output.read_text())
    assert list(results) == ["command", "machine", "stages"]
    assert f"| numpy | {np.__version__} |" in results["machine"]
    assert "-m benchmarks.speed" in results["command"]
    stage = results["stages"]["featurisation"]
    assert f"featurisation: {stage['measures']}." in done.stdout
    for row in stage["results"]:
        assert row["measure"] in done.stdout
