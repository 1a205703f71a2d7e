"""The programs, from text to predictions, and mistakes in their flags."""

import json
import os
import pathlib
import re
import shlex
import zipfile

import numpy as np
import pytest
from program_runner import run_program

from albert_tf.config import FinetuneConfig, override, to_dict
from albert_tf.tasks.examples import (
    ChoiceExample,
    Example,
    Question,
    WordsExample,
)
from bin import finetune, predict, tasks

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(command, stdin=""):
    name, *flags = shlex.split(command)
    done = run_program(name, *flags, stdin=stdin)
    assert done.status == 0, (done.error, done.stderr)
    return done


def refused(command):
    """Returns the one line that a program prints of a mistake."""
    name, *flags = shlex.split(command)
    done = run_program(name, *flags)
    assert done.status == 1
    (line,) = done.error.splitlines()
    return line


def books(directory, sentences):
    """Two files of invented text, one of them Markdown."""
    directory.mkdir()
    for name, first in (("one.txt", 0), ("two.md", 300)):
        part = sentences[first : first + 300]
        paragraphs = [" ".join(part[n : n + 5]) for n in range(0, 300, 5)]
        text = "# Title: made up\n\n" + "\n\n".join(paragraphs)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def glue(tmp_path, model, sentences):
    """A task of GLUE: seeds, an ensemble, a zip, its score, a baseline."""
    data = tmp_path / "RTE"
    data.mkdir()
    for split, header in (
        ("train", "index\ta\tb\tlabel"),
        ("dev", "index\ta\tb\tlabel"),
        ("test", "index\ta\tb"),
    ):
        rows = [header]
        for number in range(12):
            row = f"{number}\t{sentences[number]}\t{sentences[number + 1]}"
            label = ("entailment", "not_entailment")[number % 2]
            rows.append(row if split == "test" else f"{row}\t{label}")
        (data / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    task = f"--task=RTE --data_dir={data}"
    runs, cache = tmp_path / "rte", tmp_path / "features"
    flags = f"{task} --feature_cache={cache}"
    done = program(
        f"finetune {flags} --init_from={model} --run_dir={runs} --num_runs=2 "
        "--max_seq_length=32 --num_train_steps=2 --train_batch_size=4"
    )
    assert "Settings of the paper for RTE: learning_rate=3e-05, " in done.stdout
    results = json.loads((runs / "results.json").read_text())
    assert [run["seed"] for run in results["runs"]] == [12345, 12346]
    median = results["summary"]["accuracy"]["median"]
    assert re.search(rf"accuracy +{median:.4f}", done.stdout)
    assert len(list(cache.iterdir())) == 2

    out, archive = tmp_path / "rte_out", tmp_path / "glue.zip"
    done = program(
        f"evaluate {flags} --model_dir={runs}/run-1,{runs}/run-2 "
        f"--output_dir={out} --errors=1"
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert "ensemble" in done.stdout
    assert "The worst of" in done.stdout
    scored = program(
        f"score --task=RTE --gold={data}/dev.tsv "
        f"--predictions={out}/RTE-dev.tsv"
    )
    assert json.loads(scored.stdout)["accuracy"] == metrics["accuracy"]
    test = f"evaluate {flags} --split=test --model_dir={runs}/run-1"
    done = program(f"{test} --errors=2 --submission={archive}")
    assert "The examples have no labels" in done.stdout
    assert "worst" not in done.stdout
    assert zipfile.ZipFile(archive).namelist() == ["RTE.tsv"]
    line = refused(f"evaluate {task} --split=eval --model_dir={runs}/run-1")
    assert "RTE has no split 'eval'; it has train, dev, test." in line
    assert "accuracy" in program(f"baseline {task}").stdout
    line = refused(f"evaluate {flags} --model_dir={runs}")
    assert f"{runs} holds several runs; name one of them, such as " in line
    submission = f"--submission={tmp_path}/no/glue.zip"
    line = refused(f"{test} {submission}")
    assert f"{submission}: there is no directory {tmp_path}/no." in line


@pytest.mark.slow
def test_from_text_to_an_answer(tmp_path, sentences):
    """Every program once, each on what the one before has left."""
    text = books(tmp_path / "books", sentences)
    flags = f"--input={text} --skip_header_lines=2"
    vocab, shards = tmp_path / "vocab", tmp_path / "shards"
    program(f"train_vocab {flags} --output_dir={vocab} --vocab_size=150")
    program(
        f"build_pretraining_data {flags} --tokenizer={vocab} "
        f"--output_dir={shards} --max_seq_length=32 --eval_fraction=0.3 "
        "--document_separator=blank_line --sentence_splitter=punkt"
    )
    run_dir = tmp_path / "run"
    data = f"--train_data={shards} --eval_data={shards}"
    pretrain = (
        f"pretrain --preset=tiny {data} --run_dir={run_dir} "
        "--num_train_steps=6 --train_batch_size=4 --max_eval_steps=2 "
        "--strategy=mirrored --num_replicas=2"
    )
    done = program(pretrain)
    assert "masked-LM accuracy" in done.stdout
    assert "Traceback" not in done.stderr
    # The very same command again: nothing is left to do.
    again = program(pretrain).stdout
    assert f"{run_dir} has been trained to its end, step 6." in again
    line = refused(f"{pretrain} --train_data=")
    assert "--train_data=[]: it is empty, or has an empty part" in line
    line = refused(f"{pretrain} --learning_rate=0.5")
    assert "learning_rate: 0.5 here, 0.002 there" in line

    again = f"pretrain {data} --run_dir={tmp_path}/again --num_train_steps=1"
    program(f"{again} --config_json={run_dir}/config.json")
    written = json.loads((tmp_path / "again/config.json").read_text())
    assert written["config"]["training"]["train_batch_size"] == 4
    line = refused(f"{again} --config_json={run_dir}/model/config.json")
    assert "is not the config.json of a pretrain run" in line

    model = run_dir / "model"
    done = program(
        f"predict --mode=fill-mask --model_dir={model} --top_k=3 "
        "--text='The [MASK] of it.'"
    )
    assert len(json.loads(done.stdout)["masks"][0]) == 3

    task = tmp_path / "task"
    task.mkdir()
    rows = [f"{s}\t{n % 2}" for n, s in enumerate(sentences[:24])]
    for split in ("train", "dev"):
        (task / f"{split}.tsv").write_text(
            "\n".join(["text\tlabel", *rows]) + "\n"
        )
    classifier, out = tmp_path / "classifier", tmp_path / "evaluation"
    flags = f"--task=classification --data_dir={task}"
    program(
        f"finetune {flags} --init_from={run_dir} --run_dir={classifier} "
        "--max_seq_length=32 --num_train_steps=4 --train_batch_size=4"
    )
    done = program(
        f"evaluate {flags} --model_dir={classifier}/model --output_dir={out}"
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["majority_class_accuracy"] == 0.5
    assert f"{metrics['accuracy']:.4f}" in done.stdout
    glue(tmp_path, model, sentences)
    assert len((out / "predictions.jsonl").read_text().splitlines()) == 24
    program(
        f"evaluate --task=pretraining --data_dir={shards} --model_dir={model}"
    )
    done = program(
        f"predict --mode=classify --model_dir={classifier}/model --input=-",
        stdin="one\n\nÉcole 😀\n",
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == ["one", "", "École 😀"]
    done = program(
        f"export --model_dir={classifier}/model --export_dir={tmp_path}/export "
        f"{flags} --precision=int8"
    )
    assert re.search(r"metric +float32 +int8", done.stdout)
    readme = (tmp_path / "export/1/README.md").read_text()
    assert "| classification dev, int8 | accuracy 0." in readme
    program(
        f"predict --mode=embed --export_dir={tmp_path}/export --text=one "
        f"--text=two --output={tmp_path}/vectors.npy"
    )
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.dtype == np.float32
    assert len(vectors) == 2 and np.isfinite(vectors).all()
    done = program(f"show_results --run_dirs={run_dir},{classifier}")
    assert "sentence-order accuracy" in done.stdout
    assert re.search(r"accuracy +\d+\.\d% +50\.0% +majority", done.stdout)


def test_scores_are_json_and_warnings_are_not(tmp_path):
    gold, predictions = tmp_path / "dev.tsv", tmp_path / "STS-B.tsv"
    rows = ["header", *("\t" * 7 + f"A\tB\t{n}" for n in range(3))]
    gold.write_text("\n".join(rows))
    rows = ["index\tprediction", *(f"{n}\t2.5" for n in range(3))]
    predictions.write_text("\n".join(rows))
    output = tmp_path / "score.json"
    done = program(
        f"score --task=STS-B --gold={gold} --predictions={predictions} "
        f"--output={output}"
    )
    # JSON has no NaN.
    expected = {"pearson": None, "spearman": None}
    assert json.loads(done.stdout) == expected
    assert json.loads(output.read_text()) == expected
    assert "pearson is not defined for these numbers" in done.stderr


CLASSIFY = "predict --mode=classify --model_dir={t}"
EVALUATE = "evaluate --data_dir={t} --model_dir={t}/none"
SCORE = "score --predictions={t}/empty.txt --gold={t}"
VOCAB = "train_vocab --output_dir={t}/out --input={t}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (VOCAB + "/none.txt", "none.txt"),
        (VOCAB + "/empty.txt", "1 of 1 .*empty"),
        (VOCAB + "/latin1.txt", "latin1.txt.*UTF-8"),
        (CLASSIFY, "--text or --in"),
        (
            CLASSIFY + " --input={t}/latin1.txt",
            "line 1: byte 3 is not UTF-8",
        ),
        (
            CLASSIFY + " --input={t}/utf16.txt",
            "utf16.txt is UTF-16, expected UTF-8",
        ),
        ("show_results --run_dirs={t}", "not a run directory"),
        (
            SCORE + "/empty.txt --task=SQuAD2.0",
            "empty.txt is empty; expected a JSON",
        ),
        (
            SCORE + "/none.tsv --task=RTE",
            "none.tsv: No such file or directory; download GLUE",
        ),
        (
            "pretrain --train_data={t}/no --eval_data={t}/no --run_dir={t}/run",
            "no is not a directory of shards",
        ),
        (
            "finetune --task=classification --data_dir={t} --run_dir={t}/run "
            "--init_from={t}/none",
            "none does not exist",
        ),
        (
            "export --model_dir={t} --export_dir={t}/export",
            "not a model directory",
        ),
        (EVALUATE + " --task=pretraining", "none is not a model directory"),
        # Flags that absl refuses, or that go with others only.
        ("pretrain --preset=giant", r"tiny\|mini\|small\|base\|large"),
        ("pretrain --precision=float8", r"float32\|bfloat16"),
        ("pretrain --trian_data=x", "Did you mean"),
        ("pretrain --num_train_steps=many", "many"),
        ("finetune", "--task must have a value"),
        ("score --task=AX", r"CoLA\|SST-2\|MRPC"),
        (EVALUATE + " --task=custom", "--task=custom needs --columns"),
        (
            "baseline --task=RTE --data_dir=a --columns=text=a",
            "--columns=text=a is for --task=custom; the columns of RTE are",
        ),
        (
            EVALUATE + " --task=RACE --submission=c.zip",
            "--submission=c.zip is for GLUE; RACE has files of its own",
        ),
        ("export --model_dir=a --export_dir=b stray", "'stray'"),
        (
            CLASSIFY + " --export_dir=b --text=x",
            "the model with either --model_dir or --export_dir",
        ),
        (
            CLASSIFY + " --text=x --output=x.npy",
            "--output=x.npy: arrays are written for --mode=embed",
        ),
        (
            "predict --mode=classify --export_dir={t} --text=x",
            "is no export: expected",
        ),
        (
            "export --model_dir=a --export_dir=b --task=SST-2",
            "--task and --data_dir go together; give both",
        ),
    ],
)
def test_mistakes(tmp_path, command, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin1.txt").write_bytes("caf\xe9".encode("latin1"))
    (tmp_path / "utf16.txt").write_bytes("Tea.".encode("utf-16"))
    before = sorted(os.listdir(tmp_path))
    line = refused(command.format(t=tmp_path))
    assert re.search(message, line), line
    assert sorted(os.listdir(tmp_path)) == before


def test_a_line_of_each_mode_of_prediction():
    for mode, line, expected in (
        ("rate", "a\tb c", Example(("a", "b c"), None)),
        ("answer", "a?\tb c", Question("7", "a?", "b c", None, "text 7")),
        ("tag", "a b", WordsExample(("a", "b"), None)),
        ("choose", "a\tb\tc", ChoiceExample("a", ("b", "c"), None, id="7")),
    ):
        kind, tabs = predict.ANSWERS[mode]
        example = kind.example(*predict._split([line], tabs), 7)
        assert (example, example.location) == (expected, "text 7")
        assert not kind.has_label(example)


def settings(*flags, config_json):
    """Returns the settings of fine-tuning, and how the program ends."""
    found = {}

    def main():
        config, changes = finetune.settings(tasks.chosen())
        for part in to_dict(config).values():
            found.update(part)
        found.update(changes)

    given = ["--data_dir=a", "--init_from=b", "--run_dir=c", *flags]
    given.append(f"--config_json={config_json}")
    return found, run_program("finetune", *given, main=main)


@pytest.fixture
def recorded(tmp_path):
    """The config.json of a run of 60 steps, 6 of them warm-up."""
    changes = {"num_train_steps": 60, "num_warmup_steps": 6}
    changes |= {"learning_rate": 0.003, "warmup_proportion": 0.1}
    config = to_dict(override(FinetuneConfig(), changes))
    model = {"hidden_dropout_prob": 0.05, "hidden_size": 7}
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"job": "finetune", "config": config, "model": model})
    )
    return path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {}),
        # What was counted from the steps of then does not hold for others.
        (
            ["--num_train_epochs=2"],
            {
                "num_train_epochs": 2.0,
                "num_train_steps": 0,
                "num_warmup_steps": 0,
            },
        ),
        (
            ["--num_train_steps=30"],
            {"num_train_steps": 30, "num_warmup_steps": 0},
        ),
        (
            ["--warmup_proportion=0.2"],
            {"warmup_proportion": 0.2, "num_warmup_steps": 0},
        ),
        (["--num_warmup_steps=4"], {"num_warmup_steps": 4}),
        (
            ["--num_warmup_steps=0"],
            {"num_warmup_steps": 0, "warmup_proportion": 0.0},
        ),
        (["--hidden_dropout_prob=0.2"], {"hidden_dropout_prob": 0.2}),
        (["--seed=3", "--num_runs=2"], {"seed": 3}),
    ],
)
def test_flags_go_before_the_settings_of_a_run(recorded, given, expected):
    found, done = settings("--task=RTE", *given, config_json=recorded)
    assert done.status == 0, done.error
    expected = {
        "num_train_steps": 60,
        "num_warmup_steps": 6,
        "warmup_proportion": 0.1,
        "learning_rate": 0.003,
        "hidden_dropout_prob": 0.05,
    } | expected
    assert {name: found[name] for name in expected} == expected
    # The size of the model is that of --init_from.
    assert "hidden_size" not in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--recipe=v2"], "--recipe=v2 and --config_json both say where"),
        (
            ["--num_train_steps=3", "--num_train_epochs=2"],
            "--num_train_steps=3 and --num_train_epochs=2.0 set the same",
        ),
        (
            ["--num_warmup_steps=3", "--warmup_proportion=0.2"],
            "--num_warmup_steps=3 and --warmup_proportion=0.2 set the same",
        ),
        ([], "config.json is not the config.json of a finetune run"),
    ],
)
def test_flags_that_contradict_one_another(recorded, given, message):
    if not given:
        recorded.write_text('{"job": "pretrain", "config": {}}')
    _, done = settings("--task=RTE", *given, config_json=recorded)
    assert message in done.error
