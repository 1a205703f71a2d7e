"""The programs: what they print and write, and mistakes in their flags.

test_documents.py runs them from text to predictions.
"""

import json
import os
import re
import shlex
import shutil
import zipfile
from unittest import mock

import numpy as np
import pytest
from absl.flags import FLAGS
from pretraining_runs import flags_of
from program_runner import run_program
from training_fixtures import write_task

from albert_tf.config import (
    FeatureConfig,
    FinetuneConfig,
    ModelConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.interchange import model_directory
from albert_tf.interchange.export import exported_weights, saved_model
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.jobs import task_evaluation
from albert_tf.jobs.task_evaluation import TaskEvaluation
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.kinds.base import Prediction, ScoredExamples
from albert_tf.tasks.recipes import RECIPES, with_recipe
from albert_tf.tasks.splits import folded
from bin import command_line, evaluate, finetune, tasks
from data_prep.pretraining import pretraining_data

COLUMNS = ["text=review", "label=verdict"]


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


@pytest.mark.slow
def test_a_finished_run_is_left_and_other_settings_are_refused(
    finished, small_config, shards_dir, tmp_path
):
    run_dir = shutil.copytree(finished[0], tmp_path / "run")
    flags = shlex.join(flags_of(small_config, shards_dir, run_dir))
    printed = program(f"pretrain {flags} --report").stdout
    report = (run_dir / "report.html").read_text()
    assert "Held-out text with masks" in report
    assert "pipeline_tag: fill-mask" in (run_dir / "README.md").read_text()
    assert f"{run_dir} has been trained to its end, step 12." in printed
    assert "masked-LM accuracy" in printed
    line = refused(f"pretrain {flags} --train_data=")
    assert (
        "--train_data=[]: it is required, and may not have an empty part"
        in line
    )
    line = refused(f"pretrain {flags} --learning_rate=0.5")
    assert "learning_rate: 0.5 here, 0.01 there" in line

    again = (
        f"pretrain --train_data={shards_dir} --eval_data={shards_dir} "
        f"--run_dir={tmp_path}/again --num_train_steps=3"
    )
    program(f"{again} --config_json={run_dir}/config.json")
    written = json.loads((tmp_path / "again/config.json").read_text())
    assert written["config"]["training"]["train_batch_size"] == 8
    printed = program(f"show_results --run_dirs={run_dir}").stdout
    assert "sentence-order accuracy" in printed


@pytest.mark.slow
def test_a_task_of_glue(tmp_path, pretrained, sentences):
    """Seeds, an ensemble, a zip, its score, a baseline, an export."""
    data = tmp_path / "RTE"
    data.mkdir()
    rows = [
        f"{n}\t{sentences[n]}\t{sentences[n + 1]}\t{'not_' * (n % 2)}entailment"
        for n in range(12)
    ]
    write_task(data, rows, header="index\ta\tb\tlabel")
    unlabelled = [row.rpartition("\t")[0] for row in ("index\ta\tb\t", *rows)]
    (data / "test.tsv").write_text("\n".join(unlabelled) + "\n")
    task = f"--task=RTE --data_dir={data}"
    runs, cache = tmp_path / "rte", tmp_path / "features"
    flags = f"{task} --feature_cache={cache}"
    done = program(
        f"finetune {flags} --init_from={pretrained} --run_dir={runs} "
        "--num_runs=2 --max_seq_length=32 --num_train_steps=2 --noreport "
        "--train_batch_size=4"
    )
    source = "Settings for a model 32 wide and 12 examples: learning_rate="
    assert source in done.stdout
    results = json.loads((runs / "results.json").read_text())
    assert [run["seed"] for run in results["runs"]] == [12345, 12346]
    median = results["summary"]["accuracy"]["median"]
    assert re.search(rf"accuracy +{median:.4f}", done.stdout)
    # Features of both splits, and what TF-IDF predicts.
    assert len(list(cache.iterdir())) == 3
    assert f"The median run, {results['median_run']}:\n" in done.stdout
    verdicts = {run["run_dir"]: run["verdict"] for run in results["runs"]}
    verdict = "\n".join(verdicts[results["median_run"]])
    assert "TF-IDF with a linear model" in verdict
    assert f"{verdict}\n" in done.stdout

    out, archive = tmp_path / "rte_out", tmp_path / "glue.zip"
    done = program(
        f"evaluate {flags} --model_dir={runs}/run-1,{runs}/run-2 "
        f"--output_dir={out} --errors=1"
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["majority_class_accuracy"] == 0.5
    assert re.search(rf"accuracy .* {metrics['accuracy']:.4f}\n", done.stdout)
    assert "ensemble" in done.stdout
    assert "The worst of" in done.stdout
    assert len((out / "predictions.jsonl").read_text().splitlines()) == 12
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
    assert "accuracy" in program(f"baseline {flags}").stdout
    assert len(list(cache.iterdir())) == 4
    line = refused(f"evaluate {flags} --model_dir={runs}")
    assert f"{runs} holds several runs; name one of them, such as " in line
    submission = f"--submission={tmp_path}/no/glue.zip"
    line = refused(f"{test} {submission}")
    assert f"{submission}: there is no directory {tmp_path}/no." in line
    printed = program(f"show_results --run_dirs={runs}/run-1").stdout
    assert re.search(r"accuracy +\d+\.\d% +50\.0% +majority", printed)
    assert re.search(r"accuracy +\d+\.\d% +\d+\.\d% +TF-IDF", printed)

    export = tmp_path / "export"
    done = program(
        f"export --model_dir={runs}/run-1 --export_dir={export} {task} "
        "--precision=int8"
    )
    assert re.search(r"metric +float32 +int8", done.stdout)
    readme = (export / "1/README.md").read_text()
    assert "| RTE dev, int8 | accuracy 0." in readme


@pytest.mark.slow
def test_predictions_go_where_they_are_wanted(
    tmp_path, pretrained, export_dir, monkeypatch
):
    # Lines of progress at once, but not between the predictions.
    monkeypatch.setattr(command_line, "_LOG_SECONDS", 0.0)
    done = program(
        f"predict --mode=fill-mask --model_dir={pretrained} --top_k=3 "
        "--text='The [MASK] of it.'"
    )
    assert len(json.loads(done.stdout)["masks"][0]) == 3
    done = program(
        f"predict --mode=classify --export_dir={export_dir} --input=-",
        stdin="one\nÉcole 😀\n",
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["text"] for answer in answers] == ["one", "École 😀"]
    program(
        f"predict --mode=embed --export_dir={export_dir} --text=one "
        f"--text=two --output={tmp_path}/vectors.npy"
    )
    vectors = np.load(tmp_path / "vectors.npy")
    assert vectors.dtype == np.float32
    assert len(vectors) == 2 and np.isfinite(vectors).all()


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


CLASSIFY = "predict --mode=classify"
EVALUATE = "evaluate --data_dir={t} --model_dir={t}/none"
VOCAB = "train_vocab --output_dir={t}/out --input={t}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (VOCAB + "/none.txt", "none.txt"),
        (VOCAB + "/empty.txt", "The input has no text .first: .*empty.txt"),
        (
            "extend_vocab --output_dir={t} --input={t} --model_dir=a "
            "--num_new_tokens=9",
            "exists; choose a new directory for --output_dir",
        ),
        (CLASSIFY + " --model_dir=a", "--text or --in"),
        (
            CLASSIFY + " --model_dir=a --input={t}/utf16.txt",
            "utf16.txt is UTF-16, expected UTF-8",
        ),
        (
            CLASSIFY + " --model_dir=a --export_dir=b --text=x",
            "the model with either --model_dir or --export_dir",
        ),
        (
            CLASSIFY + " --model_dir=a --text=x --output=x.npy",
            "--output=x.npy: arrays are written for --mode=embed",
        ),
        # Forms that are not written, and one that is, but not compressed.
        (
            CLASSIFY + " --model_dir=a --text=x --output=x.xlsx",
            r"--output=x.xlsx: expected a name that ends in .jsonl, .+\.npy, "
            r"also compressed \(.gz, .+\), or has no ending",
        ),
        ("search --index_dir=a --query=b --output=x.csv", "ends in .jsonl, "),
        ("report --run_dir={t} --output=x.html.gz", "ends in .html, or has no"),
        (
            "predict --mode=tag --model_dir=a --text=x --output=x.csv",
            "the predictions of --mode=tag are lists, and tables are written "
            "for sentence-order, classify, rate, answer; name a .jsonl",
        ),
        (
            CLASSIFY + " --model_dir=a --text=x --columns=text=a",
            "--columns and --quoting are for an --input that is a table",
        ),
        (
            "predict --mode=tag --model_dir=a --text=x --pairs",
            "--pairs is for --mode=classify and rate; tag is neither",
        ),
        (CLASSIFY + " --model_dir=a --input={t}/empty.txt", "empty.txt is emp"),
        (CLASSIFY + " --model_dir=a --input={t}/empty.jsonl", "onl is empty"),
        (
            "pretrain --train_data={t}/no --eval_data={t}/no --run_dir={t}/run",
            "no is not a directory of shards",
        ),
        # Flags that absl refuses, or that go with others only.
        ("pretrain --trian_data=x", "Did you mean"),
        (
            "finetune",
            "flag --data_dir is required; flag --init_from is required",
        ),
        ("baseline --data_dir=a", "--task is required; --columns alone is"),
        ("baseline --data_dir={t}/no --columns=text=a,label=b", "/no does not"),
        ("score --task=AX", r"CoLA\|SST-2\|MRPC"),
        (
            EVALUATE + " --task=custom --output_dir={t}/out",
            "--task=custom needs --columns",
        ),
        (
            "baseline --task=RTE --data_dir=a --columns=text=a",
            "--columns=text=a is for --task=custom; the columns of RTE are",
        ),
        (
            "build_pretraining_data --input={t} --tokenizer={t} "
            "--output_dir={t}/out --near_duplicate_threshold=0.9",
            "--near_duplicate_threshold is for --remove_duplicates=near_doc",
        ),
        ("report --run_dir={t}/no", "no is not a run directory, nor a dir"),
        (
            "report --run_dir={t}/folds",
            "folds holds several runs; name one of them, such as "
            "{t}/folds/fold-1",
        ),
        (
            CLASSIFY + " --model_dir={t}/folds,{t}/model --text=x",
            "model does not exist. One model is read; bin.evaluate scores sev",
        ),
        (
            "report --run_dir={t}/model --task=RTE --data_dir=a",
            "model is not a run directory; a model directory is the model/ in",
        ),
        (
            "report --run_dir={t}/finetune",
            "finetune is a fine-tuning run: give its --data_dir",
        ),
        (
            "report --run_dir={t}/pretrain --task=RTE --data_dir=a",
            "pretrain is a pretraining run; --task and --data_dir are for fi",
        ),
        (
            "baseline --task=RTE --data_dir=a --quoting=none",
            "--quoting is for your own files .--task=classification, "
            "multilabel, entities or custom",
        ),
        (
            "baseline --task=classification --data_dir=a --label_separator=;",
            "--label_separator is for several labels; classification has one.",
        ),
        (
            "baseline --task=multilabel --data_dir=a --label_separator=",
            "--label_separator is empty.",
        ),
        (
            "baseline --task=custom --data_dir=a --quoting=csv "
            "--columns=word=0,tag=1",
            "--quoting=csv: a file of words has no quoted fields.",
        ),
        (
            EVALUATE + " --task=pretraining --skip_bad_rows",
            "--skip_bad_rows is for tasks, not for pretraining.",
        ),
        (
            EVALUATE + " --task=RACE --submission=c.zip",
            "--submission=c.zip is for GLUE; RACE has files of its own",
        ),
        (
            EVALUATE + " --task=RTE --null_threshold=1",
            "--null_threshold is for questions that may have no answer",
        ),
        (
            "export --model_dir=a --export_dir=b --task=SST-2",
            "--task and --data_dir go together; give both",
        ),
        # Numbers that NumPy and the graph could not hold.
        (f"convert --seed={2**32}", r"range \[0, 4294967295\]"),
        (f"export --micro_batch_tokens={2**31}", r"range \[1, 2147483647\]"),
    ],
)
def test_mistakes(tmp_path, command, message):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "utf16.txt").write_bytes("Tea.".encode("utf-16"))
    for job in ("pretrain", "finetune"):
        (tmp_path / job).mkdir()
        (tmp_path / job / "config.json").write_text(json.dumps({"job": job}))
    (tmp_path / "folds" / "fold-1").mkdir(parents=True)
    (tmp_path / "folds" / "fold-1" / "metrics.jsonl").write_text("")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "albert"}')
    before = sorted(os.listdir(tmp_path))
    line = refused(command.format(t=tmp_path))
    assert re.search(message.replace("{t}", str(tmp_path)), line), line
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("record", "flags", "expected"),
    [
        (TaskRecord("MRPC", FeatureConfig()), [], ("MRPC", [])),
        (
            TaskRecord("custom", FeatureConfig(), columns=COLUMNS),
            [],
            ("custom", COLUMNS),
        ),
        # The columns of a task that finds them itself are found again.
        (
            TaskRecord("classification", FeatureConfig(), columns=COLUMNS),
            [],
            ("classification", []),
        ),
        (
            TaskRecord("classification", FeatureConfig(), columns=COLUMNS),
            ["--columns=text=a,number=b"],
            ("custom", ["text=a", "number=b"]),
        ),
        (
            TaskRecord("multilabel", FeatureConfig(), label_separator="|"),
            [],
            ("multilabel", [], "|"),
        ),
        (
            TaskRecord("multilabel", FeatureConfig(), label_separator="|"),
            ["--label_separator=;"],
            ("multilabel", [], ";"),
        ),
        (TaskRecord("MRPC", FeatureConfig()), ["--task=RTE"], ("RTE", [])),
        (
            TaskRecord("mood", FeatureConfig()),
            [],
            "a was fine-tuned for mood, which is not among CoLA, ",
        ),
        (None, [], "a has no record of a task (task.json); give --task."),
    ],
)
def test_the_task_of_a_model(monkeypatch, record, flags, expected):
    monkeypatch.setattr(
        model_directory, "load_task_record", lambda path: record
    )
    found = []

    def main():
        task = tasks.chosen("a")
        separator = filter(None, [task.label_separator])
        found.append((task.name, FLAGS.columns, *separator))

    given = ["--data_dir=a", "--model_dir=a", *flags]
    done = run_program("evaluate", *given, main=main)
    if isinstance(expected, str):
        assert expected in done.error
    else:
        assert found == [expected]


@pytest.mark.parametrize(
    ("program_name", "flags", "number"),
    [
        ("evaluate", [], 10),
        ("evaluate", ["--split=dev"], 4),
        ("export", ["--export_dir=b"], 10),
    ],
)
def test_a_fold_is_evaluated_on_what_its_run_held_out(
    monkeypatch, tmp_path, program_name, flags, number
):
    train, dev = (
        [f"{name} {n}\t{n % 2}" for n in range(number_of_rows)]
        for name, number_of_rows in (("train", 30), ("dev", 4))
    )
    write_task(tmp_path, train, dev)
    task = folded(CLASSIFICATION, 3, 2, 0)
    held_out = task.read(str(tmp_path), "dev", str)
    recorded = {
        "job": "finetune",
        "held_out": task.division(str(tmp_path)),
        "dev_examples": [examples_digest(held_out)],
    }
    (tmp_path / "config.json").write_text(json.dumps(recorded))
    found = []

    def evaluate_task(model_dirs, task, data_dir, *, split, **_):
        found.append(len(task.read(data_dir, split)))
        raise UserError("enough")

    monkeypatch.setattr(task_evaluation, "evaluate_task", evaluate_task)
    monkeypatch.setattr(
        exported_weights, "PRECISIONS", {"float32": mock.MagicMock()}
    )
    done = run_program(
        program_name,
        "--task=classification",
        f"--data_dir={tmp_path}",
        f"--model_dir={tmp_path}",
        *flags,
    )
    assert done.error == f"{program_name}: enough"
    assert found == [number]
    assert ("fold 2, --folds=3" in done.stdout) == (number == 10)


def test_an_export_tells_of_the_data_once(monkeypatch):
    def evaluate_task(*_, log=print, **__):
        log("Held out.")
        return mock.Mock(metrics={"accuracy": 1.0})

    monkeypatch.setattr(task_evaluation, "evaluate_task", evaluate_task)
    rows = {name: mock.MagicMock() for name in ("float32", "int8")}
    monkeypatch.setattr(exported_weights, "PRECISIONS", rows)
    monkeypatch.setattr(saved_model, "export_saved_model", mock.Mock())
    given = "--task=RTE --data_dir=a --model_dir=a --export_dir=b"
    done = run_program("export", *given.split(), "--precision=int8")
    assert done.stdout.count("Held out.") == 1
    assert "float32    int8" in done.stdout


def test_the_threshold_of_predictions_is_among_the_metrics(
    monkeypatch, tmp_path
):
    """Else bin.score could not score these predictions as they are."""
    task = TASKS["SQuAD2.0"]
    scored = ScoredExamples([], [], FeatureConfig(null_threshold=-2.5), [])
    metrics = {"f1": 50.0, "best_f1": 60.0}
    results = iter([metrics, {}])
    monkeypatch.setattr(
        task_evaluation,
        "evaluate_task",
        lambda *_, **__: TaskEvaluation(task, scored, next(results), [{}]),
    )
    given = ["--task=SQuAD2.0", "--data_dir=a", "--model_dir=a"]
    for _ in range(2):
        done = run_program("evaluate", *given, f"--output_dir={tmp_path}")
        assert done.status == 0, done.error
        # A split without answers leaves those of dev.
        written = json.loads((tmp_path / "metrics.json").read_text())
        assert written == {**metrics, "null_threshold": -2.5}


def test_shards_are_built_by_as_many_workers_as_are_wanted(monkeypatch):
    given = {}

    def build(*_, workers, **others):
        given["workers"] = workers
        raise UserError("enough")

    monkeypatch.setattr(pretraining_data, "build_pretraining_data", build)
    flags = ("--input=a", "--tokenizer=b", "--output_dir=c", "--workers=3")
    assert run_program("build_pretraining_data", *flags).error
    assert given == {"workers": 3}


def test_text_that_changes_before_a_vocabulary_is_trained(
    tmp_path, monkeypatch
):
    path = tmp_path / "a.txt"
    path.write_text("One.\n")

    def train(lines, *_, **options):
        path.write_text("Two.\n")
        list(lines)

    monkeypatch.setattr("data_prep.vocabulary.train_vocabulary", train)
    command = f"train_vocab --input={path} --output_dir={tmp_path}/out"
    assert "a.txt has changed since it was first read" in refused(command)


def test_the_worst_errors(capsys):
    errors = {"a": 0.25, "b": 0.0, "c": 0.5}
    found = [
        Prediction({"text": t}, f"at {t[0]}", e) for t, e in errors.items()
    ]
    evaluate._print_errors(found, 9)
    lines = ["The worst of 2 errors:", "at c (off by 0.5)"]
    lines += ["    text: c", "at a (off by 0.25)", "    text: a"]
    assert capsys.readouterr().out.split("\n")[1:-1] == lines
    evaluate._print_errors(found, 1)
    assert "at a" not in capsys.readouterr().out


def settings(*flags, config_json, hidden_size=768):
    """Returns the settings of fine-tuning, and how the program ends."""
    found = {}
    model = override(
        ModelConfig(), {"hidden_size": hidden_size, "num_attention_heads": 2}
    )

    def main():
        task = tasks.chosen()
        config, changes, name = finetune.settings()
        is_small = hidden_size < 768
        examples = task.read(FLAGS.data_dir, "train") if is_small else []
        recipe = RECIPES[name](task, model, examples)
        config, changes, line = with_recipe(config, changes, recipe)
        print(line)
        for part in to_dict(config).values():
            found.update(part)
        found.update(changes)

    given = ["--data_dir=a", "--init_from=b", "--run_dir=c", *flags]
    if config_json:
        given.append(f"--config_json={config_json}")
    return found, run_program("finetune", *given, main=main)


@pytest.mark.parametrize(
    ("flag", "warm_up"),
    [
        ("--seed=1", "num_warmup_steps=200"),
        ("--warmup_proportion=0.1", ""),
        ("--num_warmup_steps=0", ""),
        ("--num_train_steps=30", ""),
        ("--hidden_dropout_prob=0.2", "num_warmup_steps=200"),
    ],
)
def test_what_is_printed_of_a_recipe_is_used(flag, warm_up):
    used, done = settings("--task=RTE", flag, config_json="")
    (line,) = (
        line for line in done.stdout.split("\n") if "of the paper" in line
    )
    found = re.findall(r"(\w+)=([^ ,]+)", line.removesuffix("."))
    assert ("num_warmup_steps=200" in line) == bool(warm_up)
    assert {name: str(used[name]) for name, _ in found} == dict(found)


def test_a_small_model_gets_other_settings_which_flags_replace(tmp_path):
    write_task(tmp_path, ["A sea.\tsea", "A land.\tland"])
    flags = [
        "--task=classification",
        f"--data_dir={tmp_path}",
        "--pooling=first",
        "--num_train_steps=7",
    ]
    used, done = settings(*flags, config_json="", hidden_size=128)
    assert done.status == 0, done.error
    narrow = {"hidden_size": 128, "num_attention_heads": 2}
    expected = RECIPES["auto"](
        CLASSIFICATION,
        override(ModelConfig(), narrow),
        [Example(("A sea.",), "sea")] * 2,
    ).settings
    assert used["learning_rate"] == expected["learning_rate"] > 2e-5
    assert used["pooling"] == "first"
    assert used["num_train_steps"] == 7
    (line,) = (x for x in done.stdout.split("\n") if "128 wide" in x)
    assert f"learning_rate={expected['learning_rate']}" in line
    assert "pooling" not in line and "num_train" not in line


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
    ("given", "changed"),
    [
        ({}, {}),
        # What was counted from the steps of then does not hold for others.
        (
            {"num_train_epochs": 2.0},
            {"num_train_steps": 0, "num_warmup_steps": 0},
        ),
        ({"num_train_steps": 30}, {"num_warmup_steps": 0}),
        ({"warmup_proportion": 0.2}, {"num_warmup_steps": 0}),
        ({"num_warmup_steps": 4}, {}),
        ({"num_warmup_steps": 0}, {"warmup_proportion": 0.0}),
        ({"hidden_dropout_prob": 0.2, "seed": 3}, {}),
        ({"pooling": "mean_max"}, {}),
    ],
)
def test_flags_go_before_the_settings_of_a_run(recorded, given, changed):
    flags = [f"--{name}={value}" for name, value in given.items()]
    found, done = settings("--task=RTE", *flags, config_json=recorded)
    assert done.status == 0, done.error
    expected = {
        "num_train_steps": 60,
        "num_warmup_steps": 6,
        "warmup_proportion": 0.1,
        "learning_rate": 0.003,
        "hidden_dropout_prob": 0.05,
        **given,
        **changed,
    }
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
