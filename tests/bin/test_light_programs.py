"""Programs answer --helpshort at once, and some need no TensorFlow."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from question_fixtures import squad_json

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted(
    path.stem
    for path in (ROOT / "bin").glob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
# Runs every command of argv[1] in a fork of its own and prints its exit
# status and the heavy modules that it has loaded, before the fork or after.
RUN = """
import json, os, runpy, sys
import bin.command_line
import pytest
for program, *flags in json.loads(sys.argv[1]):
    if os.fork():
        os.wait()
        continue
    sys.argv = [program, *flags]
    try:
        runpy.run_module(f"bin.{program}", run_name="__main__")
    except SystemExit as end:
        heavy = {"tensorflow", "keras", "sklearn"} & set(sys.modules)
        print("ended:", program, end.code, sorted(heavy), flush=True)
    os._exit(0)
"""


def run(commands):
    """Returns {program: "exit status and heavy modules"} and the output."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    ends = {line[1]: line[2] for line in lines if line[:1] == ["ended:"]}
    return ends, done.stdout + done.stderr


@pytest.mark.slow
def test_helpshort_of_every_program_loads_no_tensorflow():
    ends, output = run([[name, "--helpshort"] for name in PROGRAMS])
    assert ends == dict.fromkeys(PROGRAMS, "1 []"), output
    for name in PROGRAMS:
        assert f"\n{name}:\n" in output
    # Flags of settings and of shared modules are the program's too.
    for text in ("Default: 0.00176.", "\n  --run_dir:", "\n  --columns:"):
        assert text in output


def test_a_vocabulary_is_trained_without_tensorflow(tmp_path, sentences):
    (tmp_path / "text.txt").write_text("\n".join(sentences), encoding="utf-8")
    flags = [f"--input={tmp_path}/text.txt", f"--output_dir={tmp_path}/vocab"]
    ends, output = run([["train_vocab", *flags, "--vocab_size=200"]])
    assert ends == {"train_vocab": "None []"}, output
    assert (tmp_path / "vocab" / "spiece.model").is_file()


def test_shards_of_a_task_are_built_without_tensorflow(
    tmp_path, tiny_directory
):
    rows = [f"bada {n}\t{n % 2}\n" for n in range(20)]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tlabel\n{''.join(rows)}")
    flags = [
        "--task=classification",
        f"--data_dir={tmp_path}",
        f"--tokenizer={tiny_directory}",
        f"--output_dir={tmp_path}/shards",
        "--max_seq_length=16",
    ]
    ends, output = run([["build_finetuning_data", *flags]])
    assert ends == {"build_finetuning_data": "None []"}, output
    assert (tmp_path / "shards" / "metadata.json").is_file()


def test_a_baseline_is_of_labelled_examples(tmp_path):
    answered = {"id": "a", "question": "Which?", "answers": []}
    (tmp_path / "train.json").write_text(squad_json(answered))
    del answered["answers"]
    (tmp_path / "dev.json").write_text(squad_json(answered))
    flags = ["--task=SQuAD2.0", f"--data_dir={tmp_path}"]
    _, output = run([["baseline", *flags]])
    assert "has no answers, and no empty list of them; dev exam" in output


@pytest.mark.slow
def test_what_reads_a_bucket_is_silent_about_tensorflow():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bin.baseline"),
            *("--task=classification", "--data_dir=ram://none"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "baseline: ram://none does not exist, or is an empty directory.\n"
    )
