"""The program: its mistakes, and the file and tables that it writes."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from program_runner import run_program

from bin import benchmark

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--stages=reading,baking"], "stages='baking' is not one of data_"),
        (["--data_dir=glue"], "--task and --data_dir go together; give both."),
        (["--against=jax"], "against='jax' is not one of transformers, keras"),
        (
            ["--preset=tiny", "--max_seq_length=256"],
            "--max_seq_length=256 is more than the 128 tokens that "
            "--preset=tiny reads.",
        ),
        (["--output=no/such/place/b.json"], "--output: "),
        (
            ["--stages=reading,serving", "--precision=float16"],
            "precision=float16 is not measured for serving; float32 and",
        ),
    ],
)
def test_mistakes_are_reported_at_once_in_one_line(flags, message):
    error = run_program("benchmark", *flags).error
    assert error.startswith(f"benchmark: {message}")
    assert "\n" not in error


def test_the_model_has_every_piece_of_a_larger_vocabulary(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += map(str, range(30_000))
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))

    def main():
        work = benchmark._workspace(str(tmp_path)).work
        assert work.model.vocab_size == len(pieces)

    flags = [f"--tokenizer={tmp_path}/vocab.txt", f"--output={tmp_path}/out"]
    assert run_program("benchmark", *flags, main=main).status == 0


@pytest.mark.slow
def test_results_are_printed_and_written(tmp_path, sentences):
    output, work = tmp_path / "results.json", tmp_path / "work"
    work.mkdir()
    (tmp_path / "text.txt").write_text("\n".join(sentences))
    flags = [
        # With fresh processes, for the stage and for each side.
        "--stages=featurisation,recomputation",
        f"--input={tmp_path}/text.txt",
        "--vocab_size=200",
        "--max_seq_length=48",
        "--preset=tiny",
        "--optimizer=adamw",
        # Enough that activations outweigh the weights.
        "--batch_size=32",
        "--repeats=1",
        f"--work_dir={work}",
        f"--output={output}",
    ]
    # Memory is measured with the kernels that users have (see bin/test).
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "bin.benchmark", *flags],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert os.listdir(work) == []
    assert "Traceback" not in done.stderr and "cuda" not in done.stderr
    results = json.loads(output.read_text())
    assert list(results) == ["command", "machine", "settings", "stages"]
    assert results["machine"]["packages"]["numpy"] == np.__version__
    assert "-m bin.benchmark" in results["command"]
    assert results["settings"]["data"]["max_seq_length"] == 48
    assert results["settings"]["optimizer"] == "adamw"
    assert list(results["stages"]) == ["featurisation", "recomputation"]
    for name, stage in results["stages"].items():
        assert f"{name}: {stage['measures']}." in done.stdout
        for one in stage["results"]:
            assert one["name"] in done.stdout
    memory = {
        one["name"]: one["median"]
        for one in results["stages"]["recomputation"]["results"]
    }
    assert len(memory) == 18
    for remat in ("selective", "full"):
        assert 0 < memory[f"{remat} to none, tensors"] < 1
    # Two million weights of four bytes, and their gradients.
    assert 16 < memory["none, tensors"] < memory["none, resident"]
