"""--import: a module's head, kind, task and optimizer reach all programs."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags
from program_runner import new_flags, run_program
from training_fixtures import random_model

from albert_tf.config import FeatureConfig
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.modeling.heads import HEADS
from albert_tf.optim.optimizers import OPTIMIZERS
from albert_tf.prediction.predictor import Predictor
from albert_tf.tasks.catalog import TASKS

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["it is fine", "it is not"]
ROWS = (
    (HEADS, "mean_state"),
    (TASKS, "mean_states"),
    (OPTIMIZERS, "momentum_sgd"),
)


@pytest.fixture
def own_rows(documented_block, tmp_path, monkeypatch):
    """The name of a module that adds rows, which are removed at the end."""
    blocks = map(
        documented_block, ("A task with a head of its own", "An optimizer")
    )
    (tmp_path / "own_rows_of_test.py").write_text("\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    for table, name in ROWS:
        monkeypatch.setitem(table, name, None)
        monkeypatch.delitem(table, name)
    yield "own_rows_of_test"
    sys.modules.pop("own_rows_of_test", None)


@pytest.mark.slow
def test_a_module_adds_a_head_a_task_and_an_optimizer(
    own_rows, pretrained, tmp_path
):
    for split in ("train", "dev"):
        lines = ["text\tlabel", *["it is fine\tglad", "it is not\tsad"] * 4]
        (tmp_path / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    model = f"{tmp_path}/run/model"
    of_task = ("--task=mean_states", f"--data_dir={tmp_path}")

    def run(program, *flags):
        done = run_program(program, f"--import={own_rows}", *flags)
        assert done.status == 0, done.error
        return done.stdout

    run(
        *("finetune", *of_task, f"--init_from={pretrained}"),
        *(f"--run_dir={tmp_path}/run", "--optimizer=momentum_sgd"),
        *("--num_train_steps=1", "--train_batch_size=4", "--feature_cache="),
        "--max_seq_length=16",
    )
    printed = run(
        *("evaluate", *of_task, f"--model_dir={model}", "--feature_cache=")
    )
    assert "accuracy" in printed
    copy = (f"--to_path={tmp_path}/copy", "--to_format=model_directory")
    run("convert", f"--from_path={model}", *copy)
    run("export", f"--model_dir={model}", f"--export_dir={tmp_path}/export")
    predictor = Predictor(load_model_directory(model))
    for source in f"--export_dir={tmp_path}/export", f"--model_dir={model}":
        texts = (f"--text={text}" for text in TEXTS)
        lines = run("predict", "--mode=classify", source, *texts).splitlines()
        found = predictor.predict(TASKS["mean_states"].kind, TEXTS)
        for line, ours in zip(map(json.loads, lines), found, strict=True):
            assert line["probabilities"] == pytest.approx(
                ours.fields["probabilities"], rel=1e-5
            )
    printed = run(
        *("count_parameters", "--heads=mean_state"),
        *("--num_labels=2", "--hidden_size=96"),
    )
    assert re.search(r"head mean_state +194 ", printed)
    for table, name in ROWS:
        del table[name]
    export = f"--export_dir={tmp_path}/other"
    error = run_program("export", f"--model_dir={model}", export).error
    assert "model='AlbertForMeanStates' is not one of" in error
    assert "needs --import" in error
    of_model = (f"--model_dir={model}", f"--data_dir={tmp_path}")
    error = run_program("evaluate", *of_model).error
    assert "model='AlbertForMeanStates' is not one of" in error
    error = run_program("evaluate", *of_model, "--task=mean_states").error
    assert "should be one of" in error and "your own needs --import" in error


def test_a_kind_of_ones_own_predicts_in_the_mode_of_its_class(
    own_rows, tiny_tokenizer, tmp_path
):
    importlib.import_module(own_rows)
    model = random_model("mean_state", max_position_embeddings=24)
    task = TaskRecord("mean_states", FeatureConfig(max_seq_length=24))
    save_model_directory(
        str(tmp_path), model, tiny_tokenizer, max_seq_length=24, task=task
    )
    predictor = Predictor(str(tmp_path))
    expected = [found.label for found in predictor.classify(TEXTS)]
    flags = f"--import={own_rows}", f"--model_dir={tmp_path}"
    texts = [f"--text={text}" for text in TEXTS]
    done = run_program("predict", *flags, "--mode=classify", *texts)
    assert done.status == 0, done.error
    lines = map(json.loads, done.stdout.splitlines())
    assert [line["label"] for line in lines] == expected
    error = run_program("predict", *flags, "--mode=rate", *texts).error
    assert "classification by the mean state, which is --mode=clas" in error


# Flags that name a model, of whatever class.
MODELS = {"model_dir", "init_from", "from_path"}


@pytest.mark.parametrize(
    "program", sorted(path.stem for path in (ROOT / "bin").glob("*.py"))
)
def test_programs_that_read_models_know_rows_of_ones_own(program):
    module = importlib.import_module(f"bin.{program}")
    if not hasattr(module, "main"):
        return
    with new_flags():
        module.define_flags()
        defined = set(flags.FLAGS)
    assert "import" in defined or not MODELS & defined


@pytest.mark.slow
def test_a_model_of_ones_own_is_indexed(own_rows, tiny_tokenizer, tmp_path):
    importlib.import_module(own_rows)
    save_model_directory(
        *(f"{tmp_path}/model", random_model("mean_state"), tiny_tokenizer),
        max_seq_length=24,
    )
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS))
    of_index = f"--index_dir={tmp_path}/index", f"--model_dir={tmp_path}/model"
    done = run_program(
        *("search", f"--import={own_rows}", *of_index),
        *(f"--index_texts={tmp_path}/texts.txt", "--query=fine"),
    )
    assert done.status == 0, done.error
    assert "it is fine" in done.stdout


def test_modules_that_cannot_be_imported(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, code in (
        ("right_of_test", ""),
        ("syntax_of_test", "x = 1\ny = = 2\n"),
        ("name_of_test", "x = 1\ny = absent\n"),
        ("needs_of_test", "import absent_of_test.part\n"),
        ("fails_of_test", "assert not 1, 'a\\nb'\n"),
    ):
        (tmp_path / f"{name}.py").write_text(code)
    for name, message in (
        (
            "absent_of_test",
            "there is no module absent_of_test; expected a name",
        ),
        ("right_of_test.py", "there is no module right_of_test.py; expect"),
        ("syntax_of_test", "syntax_of_test.py:2: invalid syntax"),
        ("name_of_test", "name_of_test.py:2: NameError: name 'absent' is not"),
        ("needs_of_test", "needs_of_test.py:1: ModuleNotFoundError: No module"),
        ("fails_of_test", "fails_of_test.py:1: AssertionError: a b"),
    ):
        error = run_program("count_parameters", f"--import={name}").error
        assert error.startswith(f"count_parameters: --import={name}: ")
        assert message in error and "\n" not in error


# Prints the number of a preset's layers in a worker process.
PROGRAM = """
import concurrent.futures
import multiprocessing

from bin import own_rows


def layers_of(name):
    from albert_tf.config import preset

    return preset(name)["num_hidden_layers"]


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        print(pool.submit(layers_of, "shallow").result())
"""


def test_worker_processes_have_the_rows(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "preset_of_test.py").write_text(
        "from albert_tf.config import PRESETS\n"
        'PRESETS["shallow"] = {"num_hidden_layers": 2}\n'
    )
    done = subprocess.run(
        [sys.executable, "program.py", "--import=preset_of_test"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "2\n", done.stderr
