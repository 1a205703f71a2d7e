"""Fine-tuning runs: what they write, refuse and resume."""

import dataclasses
import errno
import gzip
import json
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from huggingface_hub import ModelCard
from pretraining_runs import PowerCut, contents, cut_power, lines_of
from program_runner import run_program
from safetensors.numpy import load_file
from training_fixtures import write_task

from albert_tf.cluster.stops import RunStopped
from albert_tf.config import (
    FeatureConfig,
    FinetuneConfig,
    RuntimeConfig,
    UserError,
    override,
)
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.interchange.model_files import read_task_record
from albert_tf.jobs import finetune, finetuning_job
from albert_tf.jobs.evaluate import evaluate_pretrained
from albert_tf.jobs.finetune import run_finetuning
from albert_tf.jobs.run_reports import finetuning_report
from albert_tf.jobs.task_evaluation import evaluate_task
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.report.page import Table
from albert_tf.rundir.checkpoints import Checkpoints
from albert_tf.rundir.run_results import read_comparison, title
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION, custom_task
from albert_tf.tasks.duplicates import duplicates_line
from albert_tf.tasks.feature_building import examples_digest
from albert_tf.tasks.recipes import RECIPES
from albert_tf.tasks.splits import folded
from albert_tf.training.run_state import RunState
from albert_tf.training.trainer import StepResult, Trainer

LABELS = {"sea": ["bada", "gule", "mizo"], "land": ["tepu", "rika", "sovu"]}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    rng = np.random.default_rng(0)
    rows = {
        split: [
            f"The {' '.join(rng.choice(LABELS[label], size=5))}.\t{label}"
            for label in [*LABELS] * (count // 2) + [*LABELS][: count % 2]
        ]
        for split, count in (("train", 160), ("dev", 41))
    }
    return write_task(tmp_path_factory.mktemp("task"), **rows)


def config(**changes):
    return override(
        FinetuneConfig(),
        {
            "max_seq_length": 24,
            "learning_rate": 3e-3,
            "num_train_epochs": 6.0,
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "log_steps": 20,
            "eval_steps": 0,
            # Each width is another trace.
            "padding": "max",
            **changes,
        },
    )


def run(
    data_dir,
    pretrained,
    run_dir,
    task=CLASSIFICATION,
    *,
    initial=None,
    model_changes=None,
    recipe="none",
    runtime=None,
    report=None,
    log=print,
    **changes,
):
    return run_finetuning(
        config(**changes),
        task,
        data_dir=str(data_dir),
        run_dir=str(run_dir),
        initial=initial or find_initial_weights(pretrained),
        model_changes=model_changes,
        recipe=recipe,
        runtime=runtime,
        report=report,
        log=log,
    )


def recorded(run_dir):
    with open(f"{run_dir}/config.json") as file:
        return json.load(file)


@pytest.fixture(scope="module")
def finished(data_dir, pretrained, tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("runs") / "classifier"
    return str(run_dir), run(data_dir, pretrained, run_dir)


def test_it_learns_beyond_the_majority_class(finished):
    run_dir, evaluation = finished
    assert evaluation["accuracy"] > 0.95
    assert evaluation["majority_class_accuracy"] == pytest.approx(21 / 41)
    # 6 epochs of 160 examples in batches of 16, a tenth of them warm-up.
    written = recorded(run_dir)
    assert written["config"]["training"]["num_train_steps"] == 60
    assert written["config"]["optimizer"]["num_warmup_steps"] == 6
    assert written["labels"] == ["land", "sea"]


def test_what_is_not_set_is_the_recipes(data_dir, pretrained, monkeypatch):
    """Calls the function that the program calls."""
    # config.json is the description of the job.
    monkeypatch.setattr(finetune, "train", lambda job: job.description())
    log = []
    task = dataclasses.replace(CLASSIFICATION, settings={"max_seq_length": 512})
    found = run_finetuning(
        override(FinetuneConfig(), {"num_train_epochs": 2.0, "seed": 3}),
        task,
        data_dir=str(data_dir),
        run_dir="none",
        initial=find_initial_weights(pretrained),
        log=log.append,
    )
    initial = find_initial_weights(pretrained).config
    expected = RECIPES["auto"](
        task, initial, task.read(str(data_dir), "train")
    ).settings
    optimizer, training = (
        found["config"][name] for name in ("optimizer", "training")
    )
    assert optimizer["learning_rate"] == expected["learning_rate"] != 2e-5
    # Two epochs of 160 examples in batches of 32, not the recipe's five.
    assert (training["num_train_steps"], training["seed"]) == (10, 3)
    assert found["model"]["pooling"] == expected["pooling"] == "mean_ngrams"
    lengths = found["config"]["features"]["max_seq_length"]
    assert lengths == initial.max_position_embeddings < 512
    # A context and a choice share them; otherwise neither would be left.
    choices = found["config"]["features"]["max_choice_length"]
    assert choices == lengths // 2 < FeatureConfig().max_choice_length
    assert f"max_seq_length={lengths}: the model has no more positions." in log


def test_texts_of_dev_that_are_in_training_are_reported_first(
    data_dir, pretrained, monkeypatch
):
    monkeypatch.setattr(finetune, "train", lambda job: job)
    log = []
    job = run(data_dir, pretrained, "none", log=log.append)
    dev = job.data.evaluated[""].examples
    train = job.data.examples["train"]
    line = duplicates_line(job.task.kind, train, dev, "dev")
    assert line in log
    assert re.match(r"WARNING: \d+ of 41 dev examples ", line)


@pytest.mark.slow
def test_the_columns_of_the_training_file_are_recorded(finished, data_dir):
    run_dir, _ = finished
    record = read_task_record(f"{run_dir}/model", 32)
    header = Path(data_dir, "train.tsv").read_text().splitlines()[0]
    text, label = header.split("\t")
    assert record.columns == (f"text={text}", f"label={label}")
    assert "held_out" not in recorded(run_dir)


@pytest.mark.slow
def test_folds_of_one_file_are_not_repeated(data_dir, pretrained, tmp_path):
    lines = Path(data_dir, "train.tsv").read_text().splitlines()[:60]
    table = tmp_path / "reviews.tsv.gz"
    table.write_bytes(gzip.compress("\n".join(lines).encode()))
    run_dir = tmp_path / "runs"

    def cross_validate():
        return run_program(
            "finetune",
            "--task=classification",
            f"--data_dir={table}",
            f"--init_from={pretrained}",
            f"--run_dir={run_dir}",
            "--folds=2",
            "--num_train_steps=2",
            "--max_seq_length=24",
            "--padding=max",
            "--feature_cache=",
            "--noreport",
        )

    done = cross_validate()
    assert done.status == 0, done.error
    assert re.search(r"on dev +mean +deviation +fold 1 +fold 2", done.stdout)
    results = json.loads((run_dir / "results.json").read_text())
    values = results["summary"]["accuracy"]["values"]
    assert results["summary"]["accuracy"]["mean"] == pytest.approx(
        np.mean(values)
    )
    for fold in (1, 2):
        held_out = {"folds": 2, "fold": fold, "seed": 0}
        assert recorded(run_dir / f"fold-{fold}")["held_out"] == held_out
    # Without a flag, or the dev examples would be others than the fold's.
    page = finetuning_report(
        str(run_dir / "fold-2"), CLASSIFICATION, str(table)
    )
    assert page.title == "fold-2: fine-tuning on classification"
    # The directory looks like after a kill during the second.
    before = contents(run_dir / "fold-1")
    shutil.rmtree(run_dir / "fold-2")
    again = cross_validate()
    assert contents(run_dir / "fold-1") == before
    assert json.loads((run_dir / "results.json").read_text()) == results
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]


def test_the_same_weights_under_another_path_are_the_same_run(
    finished, data_dir, pretrained
):
    run_dir, evaluation = finished
    assert run(data_dir, f"{pretrained}/", run_dir) == evaluation


@pytest.mark.slow
def test_a_pooling_is_trained_and_kept(data_dir, pretrained, tmp_path):
    changes = {"pooling": "mean_max"}
    evaluation = run(
        data_dir, pretrained, tmp_path / "run", model_changes=changes
    )
    assert evaluation["accuracy"] > 0.95
    assert recorded(tmp_path / "run")["model"]["pooling"] == "mean_max"
    again = evaluate_task(
        [str(tmp_path / "run")],
        CLASSIFICATION,
        str(data_dir),
        split="dev",
        batch_size=16,
    )
    assert again.metrics["accuracy"] == evaluation["accuracy"]


def test_a_run_with_one_evaluation_has_one_model(finished):
    run_dir, evaluation = finished
    assert sorted(os.listdir(run_dir)) == [
        "baseline.json",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "model",
        "tensorboard",
        "timing.jsonl",
    ]
    (line,) = lines_of(Path(run_dir), "eval")
    assert line == {"step": 60, "split": "eval", **evaluation}
    assert title(run_dir) == run_dir


def test_it_is_compared_with_a_simple_model(finished):
    run_dir, evaluation = finished
    metrics, (sentence, *_) = read_comparison(run_dir)
    # Words of the sea and the land tell the label.
    assert metrics == {"tfidf_accuracy": 1.0, "tfidf_macro_f1": 1.0}
    assert sentence.startswith(f"accuracy {evaluation['accuracy']:.1%} ")
    assert "TF-IDF with a linear model (100.0%; " in sentence


@pytest.mark.slow
def test_a_comparison_or_report_that_fails_leaves_the_model(
    data_dir, pretrained, tmp_path, monkeypatch
):
    def fail(*args, **options):
        raise MemoryError("too large")

    monkeypatch.setattr(finetuning_job, "compare_with_baseline", fail)
    monkeypatch.setattr(finetuning_job, "finetuning_page", fail)
    lines = []
    run(
        data_dir,
        pretrained,
        tmp_path / "run",
        num_train_steps=1,
        report=[],
        log=lines.append,
    )
    reason = "(MemoryError: too large); the model is complete."
    assert lines[-2:] == [
        f"The comparison with a simple model failed {reason}",
        f"WARNING: {tmp_path}/run/report.html was not written {reason}",
    ]
    assert (tmp_path / "run/model/model.safetensors").is_file()
    assert read_comparison(str(tmp_path / "run")) == ({}, [])
    assert (tmp_path / "run/README.md").is_file()


@pytest.fixture
def jobs(monkeypatch):
    """The jobs of runs; nothing is trained."""
    found = []
    monkeypatch.setattr(finetune, "train", found.append)
    return found


@pytest.mark.parametrize(
    ("changes", "extended_to", "expected"),
    [
        # The warm-up stays a tenth of 60 steps.
        ({}, 80, (80, 6)),
        ({"num_train_steps": 7, "num_warmup_steps": 3}, 0, (7, 3)),
    ],
)
def test_steps_and_warm_up_of_a_run(
    jobs, data_dir, pretrained, tmp_path, changes, extended_to, expected
):
    runtime = RuntimeConfig(extend_to_steps=extended_to)
    run(data_dir, pretrained, tmp_path, runtime=runtime, **changes)
    config = jobs[0].config
    found = config.training.num_train_steps, config.optimizer.num_warmup_steps
    assert found == expected


def test_initial_weights_that_have_learned_dev_examples(
    jobs, data_dir, pretrained, tmp_path
):
    shutil.copytree(pretrained, tmp_path / "before/model")
    dev = CLASSIFICATION.read(str(data_dir), "dev")
    (tmp_path / "before/config.json").write_text(
        json.dumps({"job": "finetune", "dev_examples": [examples_digest(dev)]})
    )
    initial = find_initial_weights(str(tmp_path / "before/model"))
    log = []
    for task in (CLASSIFICATION, folded(CLASSIFICATION, 4, 1, 0)):
        assert not any("was fine-tuned on" in line for line in log)
        run(
            *(data_dir, pretrained, tmp_path / "run", task),
            initial=initial,
            log=log.append,
        )
    (line,) = (line for line in log if "was fine-tuned on" in line)
    assert line.startswith(
        f"{tmp_path}/before/model was fine-tuned on 40 of these 40 dev "
    )


def test_texts_longer_than_those_of_pretraining(jobs, pretrained, tmp_path):
    texts = ["a\tx", "a\ty", "a a a a\tx", "a a a a a\ty"]
    weights = find_initial_weights(pretrained)
    shorter = dataclasses.replace(weights.description, max_seq_length=5)
    lines = {}
    for length, description in ((5, shorter), (64, weights.description)):
        lines[length] = []
        run(
            write_task(tmp_path, texts),
            pretrained,
            tmp_path / str(length),
            initial=dataclasses.replace(weights, description=description),
            log=lines[length].append,
        )
    expected = (
        "2 of 4 training sequences are longer than 5 tokens, the longest "
        f"input that the weights of {weights.source} were trained on, so the "
        "position embeddings beyond are untrained."
    )
    assert [line for line in lines[5] if line.startswith(expected)]
    assert not [line for line in lines[64] if "untrained" in line]


@pytest.mark.slow
def test_interrupted_and_resumed_is_the_same_run(
    pretrained, tmp_path, monkeypatch
):
    """Has texts of two lengths: sums must not depend on the past.

    Dropout is on.
    """
    rng = np.random.default_rng(1)
    words = [word for part in LABELS.values() for word in part]
    rows = [
        f"{' '.join(rng.choice(words, size=rng.choice([2, 19])))}\t{n % 2}"
        for n in range(60)
    ]
    settings = {
        "max_seq_length": 32,
        "num_train_steps": 8,
        "train_batch_size": 2,
        "log_steps": 5,
        "save_checkpoints_steps": 3,
        "padding": "bucket",
        "model_changes": {"hidden_dropout_prob": 0.1},
    }
    data_dir = write_task(tmp_path, rows, rows[:10])
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run(data_dir, pretrained, whole, **settings)
    with monkeypatch.context() as patch:
        cut_power(patch, after=5)
        with pytest.raises(PowerCut):
            run(data_dir, pretrained, cut, **settings)
    run(data_dir, pretrained, cut, **settings)
    for name in ("metrics.jsonl", "model/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name


LORA = {"lora_rank": 2, "lora_alpha": 4.0, "num_train_steps": 6}
LORA |= {"learning_rate": 0.03, "eval_steps": 3, "save_checkpoints_steps": 3}
LORA |= {"calibrate": False}


@pytest.fixture(scope="module")
def adapted(data_dir, pretrained, tmp_path_factory):
    """A finished run with adapters for a model of the hub, and its log."""
    run_dir, lines = tmp_path_factory.mktemp("runs") / "lora", []
    initial = dataclasses.replace(
        find_initial_weights(pretrained), hub_name="owner/name@0123"
    )
    options = {"initial": initial, "log": lines.append}
    run(data_dir, pretrained, run_dir, **options, **LORA)
    return run_dir, "\n".join(lines)


@pytest.mark.slow
def test_the_model_records_the_one_it_began_with(adapted):
    loaded = load_model_directory(str(adapted[0]))
    assert loaded.task.base_model == "owner/name@0123"


@pytest.mark.slow
def test_adapters_alone_are_trained_and_kept_in_checkpoints(adapted):
    run_dir, log = adapted
    # Two layers with factors of 32 x 2, and 32 x 2 + 2 of the head.
    assert "LoRA of rank 2: 322 of " in log
    (path, *_) = sorted((run_dir / "checkpoints").iterdir())
    # Each with two moments of the optimizer.
    names = "\n".join(load_file(path))
    for factor in ("lora_kernel_a", "lora_kernel_b", "classifier"):
        assert factor in names
    assert "embeddings" not in names and "intermediate" not in names
    assert path.stat().st_size < 20_000


@pytest.mark.slow
def test_the_model_of_a_run_has_its_adapters_merged(adapted, pretrained):
    run_dir, _ = adapted
    merged = AlbertForClassification.from_pretrained(str(run_dir / "model"))
    base = AlbertForClassification.from_pretrained(
        pretrained, labels=["land", "sea"], allow_missing=True
    )
    before = base.encoder.blocks[0].attention.query.kernel.numpy()
    base.load_adapters(str(run_dir / "adapters"))
    ids = {"input_ids": np.array([[2, 9, 50, 7, 3], [2, 30, 31, 32, 3]])}
    np.testing.assert_allclose(
        merged(ids)["logits"], base(ids)["logits"], atol=1e-5
    )
    after = merged.encoder.blocks[0].attention.query.kernel.numpy()
    assert np.abs(after - before).max() > 1e-4
    with pytest.raises(UserError, match="weights have these adapters already"):
        merged.load_adapters(str(run_dir / "adapters"))
    np.testing.assert_array_equal(
        merged.encoder.embeddings.word_embeddings.numpy(),
        base.encoder.embeddings.word_embeddings.numpy(),
    )


@pytest.mark.slow
def test_a_run_with_adapters_resumes_to_the_same_bytes(
    adapted, data_dir, pretrained, tmp_path, monkeypatch
):
    cut = tmp_path / "cut"
    with monkeypatch.context() as patch:
        cut_power(patch, after=4)
        with pytest.raises(PowerCut):
            run(data_dir, pretrained, cut, **LORA)
    run(data_dir, pretrained, cut, **LORA)
    for name in (
        "metrics.jsonl",
        "model/model.safetensors",
        "adapters/adapter_model.safetensors",
        "adapters/adapter_config.json",
    ):
        expected = (adapted[0] / name).read_bytes()
        assert (cut / name).read_bytes() == expected, name


def test_classes_weigh_in_training_alone(jobs, data_dir, pretrained, tmp_path):
    lines = []
    settings = {"class_weights": "sea:3", "log": lines.append}
    run(data_dir, pretrained, tmp_path / "run", **settings)
    assert "Class weights: land 1, sea 3." in lines
    data = jobs[0].data
    weights = data.features.batch(np.arange(2), 24)["example_weights"]
    # The rows are of the sea and of the land in turn.
    np.testing.assert_array_equal(weights, [3, 1])
    held_out = data.evaluated[""].features.batch(np.arange(2), 24)
    assert "example_weights" not in held_out
    written = jobs[0].description()
    assert written["config"]["finetuning"]["class_weights"] == "sea:3"


CHOICES = [{"x": "the of", "a": "of", "b": "and", "l": "a"}] * 4
QUESTIONS = [
    {
        "context": "the of and " * 8,
        "question": "of?",
        "answers": {"text": ["and"], "answer_start": [7]},
    }
] * 4


@pytest.mark.parametrize(
    ("task", "rows", "given", "expected"),
    [
        (TASKS["SQuAD1.1"], QUESTIONS, {}, (12, 12, 128)),
        (TASKS["SQuAD1.1"], QUESTIONS, {"doc_stride": 20}, (12, 20, 128)),
        (
            custom_task(["context=x", "choice=a", "choice=b", "label=l"]),
            CHOICES,
            {},
            (64, 128, 12),
        ),
        (CLASSIFICATION, None, {}, (64, 128, 128)),
    ],
)
def test_lengths_that_are_not_given_follow_max_seq_length(
    jobs, data_dir, pretrained, tmp_path, task, rows, given, expected
):
    if rows:
        data_dir = tmp_path
        lines = "\n".join(map(json.dumps, rows))
        for split in ("train", "dev"):
            (tmp_path / f"{split}.jsonl").write_text(lines)
    run(data_dir, pretrained, tmp_path / "run", task=task, **given)
    (job,) = jobs
    found = job.config.features
    assert (
        found.max_query_length,
        found.doc_stride,
        found.max_choice_length,
    ) == expected


BY_ACCURACY = (
    "--best_metric=macro_f1 (the best model is that of the highest accuracy, "
    "which rare classes hardly change)."
)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, f"--class_weights=balanced and {BY_ACCURACY}"),
        ({"class_weights": "balanced"}, BY_ACCURACY),
        ({"best_metric": "macro_f1"}, "--class_weights=balanced."),
        ({"class_weights": "balanced", "best_metric": "macro_f1"}, None),
    ],
)
def test_what_helps_rare_classes(jobs, pretrained, tmp_path, settings, advice):
    rows = [f"The bada{n}.\t{'sea' if n % 8 else 'land'}" for n in range(40)]
    data = write_task(tmp_path, train=rows, dev=rows[:9])
    lines = []
    run(data, pretrained, tmp_path / "run", log=lines.append, **settings)
    found = [line for line in lines if "are of the class 'sea'" in line]
    assert [line.partition(", try ")[2] for line in found] == [advice] * (
        advice is not None
    )


def test_a_constant_prediction_that_is_right_is_none():
    job = mock.MagicMock()
    job.config.optimizer.learning_rate = 0.1
    warn = finetuning_job.FinetuningJob._warn_if_not_learning
    warn(job, 9, "", "sea", {"accuracy": 1.0})
    assert not job.log.called
    warn(job, 9, "", "sea", {"accuracy": 0.9})
    assert "get the same answer at step 9: sea." in job.log.call_args.args[0]


@pytest.mark.slow
def test_a_constant_prediction_is_reported(data_dir, pretrained, tmp_path):
    """Large second models end like this where the rate is too high for them."""
    settings = {"learning_rate": 0.5, "num_train_steps": 6}
    weights = find_initial_weights(pretrained)
    shapes = {
        name: shape
        for name, shape in weights.weights.shapes.items()
        if "position" not in name
    }
    broken = dataclasses.replace(
        weights, weights=dataclasses.replace(weights.weights, shapes=shapes)
    )
    with pytest.raises(UserError, match="missing: albert.embeddings.posi"):
        run(data_dir, pretrained, tmp_path / "run", initial=broken, **settings)
    # The corrected command may use the same directory.
    lines = []
    evaluation = run(
        data_dir,
        pretrained,
        tmp_path / "run",
        num_warmup_steps=1,
        log=lines.append,
        **settings,
    )
    assert evaluation["accuracy"] in (pytest.approx(20 / 41), 21 / 41)
    (line,) = (line for line in lines if "same answer" in line)
    assert re.match(
        "All dev examples get the same answer at step 6: (sea|land).* if the "
        "learning rate is high, with --learning_rate=0.25;",
        line,
    )


@pytest.mark.parametrize(
    ("labels", "changes", "message"),
    [
        ("xxx", {}, "one label only, 'x'"),
        ("xyz", {}, "dev.tsv:2: expected one of x, y as the label, got 'z'"),
        ("xyx", {"max_seq_length": 96}, "max_seq_length=96 exceeds.*=64"),
        ("xyx", {"num_train_epochs": 0.0}, "num_train_epochs are both 0"),
        (
            "xyx",
            {"steps_per_loop": 2, "padding": "bucket"},
            "steps_per_loop=2 needs batches of one width; give --padding=max",
        ),
        ("xyx", {"best_metric": "f1"}, "expected one of accuracy, loss, macro"),
    ],
)
def test_user_errors(tmp_path, pretrained, labels, changes, message):
    """Trains on two examples with these labels, and one dev example."""
    rows = [f"a\t{label}" for label in labels]
    directory = write_task(tmp_path, rows[:2], rows[2:])
    with pytest.raises(UserError, match=message):
        run(directory, pretrained, tmp_path / "run", **changes)
    assert not (tmp_path / "run" / "config.json").exists()


def test_evaluate_pretrained(pretrained, finished, shards_dir):
    settings = {"split": "eval", "batch_size": 16, "seed": 1}
    metrics = evaluate_pretrained(pretrained, shards_dir, **settings)
    # Untrained: close to a uniform guess over 200 pieces.
    assert metrics["masked_lm_loss"] == pytest.approx(np.log(200), rel=0.1)
    with pytest.raises(
        UserError, match="holds an AlbertForClassification, which"
    ):
        evaluate_pretrained(f"{finished[0]}/model", shards_dir, **settings)


def test_pairs_are_trained_on_in_both_orders(jobs, pretrained, tmp_path):
    rows = [
        f"bada\ttepu{' rika' * n}\t{'no' if n % 2 else 'yes'}" for n in range(6)
    ]
    run(
        write_task(tmp_path, rows, header="a\tb\tlabel"),
        pretrained,
        tmp_path / "run",
        custom_task(["text=a", "text=b", "label=label"]),
        double_unordered=True,
        num_train_epochs=1.0,
        train_batch_size=4,
    )
    examples = jobs[0].data.examples
    once, swapped = examples["train"][:6], examples["train"][6:]
    assert [e.texts[::-1] for e in once] == [e.texts for e in swapped]
    assert [e.label for e in once] == [e.label for e in swapped]
    # An epoch is of both orders; dev examples come once.
    assert jobs[0].config.training.num_train_steps == 3
    assert len(examples["dev"]) == 6


def test_ordered_pairs_are_not_doubled(pretrained, tmp_path):
    header, row = "index\ta\tb\tlabel", "0\tbada\tgule\tentailment"
    data_dir = write_task(tmp_path, [row], header=header)
    message = "the labels of RTE depend on their order"
    with pytest.raises(UserError, match=message):
        run(data_dir, pretrained, tmp_path, TASKS["RTE"], double_unordered=True)


# A run that unlearns: the labels of dev are the wrong ones.
UNLEARNING = {
    "num_train_steps": 8,
    "eval_steps": 2,
    "log_steps": 1,
    "save_checkpoints_steps": 1,
    "keep_checkpoint_max": 1,
    "learning_rate_decay": "constant",
    "warmup_proportion": 0.0,
    "learning_rate": 1e-2,
    "ema_decay": 0.2,
}


@pytest.fixture(scope="module")
def wrong_dir(data_dir, tmp_path_factory):
    train, dev = (
        Path(data_dir, f"{split}.tsv").read_text().splitlines()[1:]
        for split in ("train", "dev")
    )
    other = {"sea": "land", "land": "sea"}
    wrong = [re.sub(r"\w+$", lambda label: other[label[0]], x) for x in dev]
    return write_task(tmp_path_factory.mktemp("wrong"), train, wrong)


@pytest.fixture(scope="module")
def unlearned(wrong_dir, pretrained, tmp_path_factory):
    """Directory and evaluation of a run that is best at step 6 of 8.

    Its accuracy is that of step 4, and its loss is lower.
    """
    run_dir = tmp_path_factory.mktemp("runs") / "unlearned"
    return run_dir, run(wrong_dir, pretrained, run_dir, **UNLEARNING)


@pytest.fixture(scope="module")
def shorter(wrong_dir, pretrained, tmp_path_factory):
    """Directory and evaluation of one that ends at step 6."""
    run_dir = tmp_path_factory.mktemp("runs") / "shorter"
    settings = UNLEARNING | {"num_train_steps": 6}
    return run_dir, run(wrong_dir, pretrained, run_dir, **settings)


@pytest.mark.slow
def test_the_model_is_that_of_the_best_evaluation(unlearned, shorter):
    """The same as that of a run which ends there."""
    run_dir, evaluation = unlearned
    assert shorter[1] == evaluation
    for name in ("model/model.safetensors", "baseline.json"):
        expected = (shorter[0] / name).read_bytes()
        assert (run_dir / name).read_bytes() == expected, name
    found = [line["accuracy"] for line in lines_of(run_dir, "eval")]
    assert evaluation["accuracy"] == found[1] == found[2] == max(found)
    assert found[2] > max(found[0], found[3])
    assert "best_model" not in os.listdir(run_dir)
    assert title(str(run_dir)) == f"{run_dir}, step 6 of 8"


@pytest.mark.slow
def test_the_best_model_after_kills(
    unlearned, wrong_dir, pretrained, tmp_path, monkeypatch
):
    whole, evaluation = unlearned
    run_dir = tmp_path / "run"

    def fail(*args, **options):
        raise PowerCut

    def killed(patch_run):
        with monkeypatch.context() as patch, pytest.raises(PowerCut):
            patch_run(patch)
            run(wrong_dir, pretrained, run_dir, **UNLEARNING)

    # Before the checkpoint of the best evaluation, whose model is written.
    killed(lambda patch: patch.setattr(Checkpoints, "save", fail_at(6, fail)))
    killed(lambda patch: cut_power(patch, after=2))
    # Before the model is written once more, and before it is compared.
    killed(lambda patch: patch.setattr(RunState, "take_best", fail))
    killed(
        lambda patch: patch.setattr(finetuning_job, "write_comparison", fail)
    )
    assert run(wrong_dir, pretrained, run_dir, **UNLEARNING) == evaluation
    assert contents(run_dir) == contents(whole)


def fail_at(step, fail):
    """`Checkpoints.save`, which fails at a step."""
    save = Checkpoints.save
    return lambda self, at, *args, **options: (
        fail() if at == step else save(self, at, *args, **options)
    )


@pytest.mark.slow
def test_an_extended_run_knows_its_best(
    unlearned, wrong_dir, pretrained, tmp_path
):
    run_dir = tmp_path / "run"
    shutil.copytree(unlearned[0], run_dir)
    runtime = RuntimeConfig(extend_to_steps=11)
    evaluation = run(
        wrong_dir, pretrained, run_dir, runtime=runtime, **UNLEARNING
    )
    steps = [line["step"] for line in lines_of(run_dir, "eval")]
    assert steps == [2, 4, 6, 8, 10, 11]
    assert evaluation == unlearned[1]
    for name in ("model/model.safetensors", "baseline.json"):
        before = (unlearned[0] / name).read_bytes()
        assert (run_dir / name).read_bytes() == before, name
    assert title(str(run_dir)) == f"{run_dir}, step 6 of 11"


@pytest.mark.slow
def test_the_report_after_a_killed_extension_is_its_own(
    data_dir, pretrained, tmp_path, monkeypatch
):
    report = tmp_path / "run/report.html"

    def start(write, runtime=None):
        monkeypatch.setattr(finetuning_job, "write_report", write)
        changes = {"num_train_steps": 1, "report": [], "runtime": runtime}
        run(data_dir, pretrained, tmp_path / "run", **changes)

    start(lambda *_: report.write_text("of one step"))
    longer = RuntimeConfig(extend_to_steps=2)
    with pytest.raises(PowerCut):
        start(mock.Mock(side_effect=PowerCut), longer)
    start(lambda *_: report.write_text("of two steps"), longer)
    assert report.read_text() == "of two steps"


@pytest.mark.slow
def test_a_damaged_checkpoint_of_the_best_leaves_the_model(
    unlearned, wrong_dir, pretrained, tmp_path, capsys
):
    run_dir = tmp_path / "run"
    shutil.copytree(unlearned[0], run_dir)
    (run_dir / "checkpoints/step-6").write_bytes(b"damaged")
    before = contents(unlearned[0])
    found = run(wrong_dir, pretrained, run_dir, **UNLEARNING)
    assert found == unlearned[1]
    del before["checkpoints/step-6"]
    assert contents(run_dir) == before
    assert f"{run_dir}/model stays as it is." in capsys.readouterr().out


@pytest.fixture
def invented(monkeypatch):
    """Gives a function that invents evaluations; nothing is computed."""

    def train_steps(self, batches, depth=None, **controls):
        result = StepResult(
            sums={},
            loss=1.0,
            gradient_norm=1.0,
            learning_rate=0.1,
            skipped=0.0,
            nonfinite=0.0,
            stop_requests=0.0,
            loss_scale=1.0,
        )
        return [result] * len(batches)

    def accuracies(*values):
        left = iter(values)
        for name, method in (
            ("evaluate", lambda *_: {"loss": 1.0, "accuracy": next(left)}),
            ("conclude", lambda *_: None),
        ):
            monkeypatch.setattr(finetuning_job.FinetuningJob, name, method)

    monkeypatch.setattr(Trainer, "train_steps", train_steps)
    return accuracies


@pytest.mark.parametrize(
    ("where", "name", "message"),
    [
        (
            finetuning_job,
            "save_model_directory",
            "run/model could not be written",
        ),
        (Checkpoints, "save", "checkpoint of step 2 could not be saved"),
    ],
)
def test_a_best_model_that_cannot_be_written_ends_the_run(
    invented, wrong_dir, pretrained, tmp_path, monkeypatch, where, name, message
):
    invented(0.5)
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(where, name, mock.Mock(side_effect=full))
    with pytest.raises(RunStopped, match=message) as raised:
        run(wrong_dir, pretrained, tmp_path / "run", **UNLEARNING)
    assert raised.value.exit_code == 74
    assert [x["step"] for x in lines_of(tmp_path / "run", "eval")] == [2]


def test_outputs_that_are_not_finite_are_a_diverged_run(
    data_dir, pretrained, tmp_path
):
    """The update before the evaluation was too large, its gradient finite."""
    settings = {"learning_rate": 1e36, "eval_steps": 1, "num_train_steps": 2}
    with pytest.raises(RunStopped, match="at step 1: the run has d") as raised:
        run(data_dir, pretrained, tmp_path / "run", **settings)
    assert raised.value.exit_code == 17
    assert "Lower --learning_rate" in str(raised.value)


def test_early_stopping_ends_with_the_best(
    invented, wrong_dir, pretrained, tmp_path, capsys
):
    invented(0.5, 0.6, 0.7, 0.6)
    settings = UNLEARNING | {"early_stopping_patience": 1}
    settings |= {"num_train_steps": 10}
    run_dir = tmp_path / "run"
    found = run(wrong_dir, pretrained, run_dir, **settings)
    assert found["accuracy"] == 0.7
    assert (
        "has not improved in 1 evaluations: the run ends at step 8. The best "
        f"model, of step 6, is in {run_dir}/model."
    ) in capsys.readouterr().out
    assert title(str(run_dir)) == f"{run_dir}, step 6 of 10"


def test_without_a_best_evaluation_the_last_step_is_the_model(
    invented, wrong_dir, pretrained, tmp_path, capsys
):
    """A correlation of answers that are all alike is not defined."""
    invented(np.nan)
    settings = UNLEARNING | {"early_stopping_patience": 1}
    run_dir = tmp_path / "run"
    found = run(wrong_dir, pretrained, run_dir, **settings)
    assert np.isnan(found["accuracy"])
    assert (
        "the run ends at step 2. It was never defined: model is of the last "
        "step."
    ) in capsys.readouterr().out
    assert (run_dir / "model/model.safetensors").is_file()
    assert title(str(run_dir)) == str(run_dir)


def test_the_temperature_is_that_of_the_evaluation(finished):
    run_dir, evaluation = finished
    with open(f"{run_dir}/model/task.json") as file:
        record = json.load(file)
    assert record["features"]["temperature"] == evaluation["temperature"]
    # Nearly all answers are right, so the probabilities may be bolder.
    assert 0.01 < evaluation["temperature"] < 1


@pytest.mark.slow
def test_probabilities_without_a_temperature(adapted):
    run_dir, _ = adapted
    for evaluation in lines_of(run_dir, "eval"):
        assert "temperature" not in evaluation
    record = json.loads((run_dir / "model/task.json").read_text())
    assert record["features"]["temperature"] == 1


@pytest.mark.slow
def test_a_run_ends_with_a_report(data_dir, pretrained, tmp_path, monkeypatch):
    """The page is of the best model, after the run too, with equal answers."""
    page = finetuning_job.finetuning_page
    pages = []
    monkeypatch.setattr(
        finetuning_job,
        "finetuning_page",
        lambda run: pages.append(page(run)) or pages[0],
    )
    lines = []
    run(
        data_dir,
        pretrained,
        tmp_path,
        report=["python -m bin.finetune", "Settings of a recipe."],
        log=lines.append,
        num_train_steps=30,
        eval_steps=10,
    )
    assert lines[-1] == f"The report is in {tmp_path}/report.html."
    text = (tmp_path / "report.html").read_text()
    for part in ("python -m bin.finetune<", "Settings of a recipe.", "TF-IDF"):
        assert part in text
    card = ModelCard((tmp_path / "README.md").read_text())
    assert card.data.pipeline_tag == "text-classification"
    best = max(line["accuracy"] for line in lines_of(tmp_path, "eval"))
    metrics = {r.metric_name: r.metric_value for r in card.data.eval_results}
    assert metrics["accuracy"] == pytest.approx(best, abs=1e-6)
    assert f'from_pretrained("{tmp_path}/model")' in card.text
    assert f"--model_dir={tmp_path}/model --text=" in card.text
    later = finetuning_report(str(tmp_path), CLASSIFICATION, str(data_dir))
    titles = [section.title for section in later.sections]
    assert titles == [section.title for section in pages[0].sections]
    assert "Words that decided" in titles
    for name in ("Answers", "Calibration", "Worst mistakes", "Data"):
        ours, again = (
            next(s for s in page.sections if s.title == name)
            for page in (pages[0], later)
        )
        tables = [
            [p for p in s.parts if isinstance(p, Table)] for s in (ours, again)
        ]
        assert tables[0] == tables[1], name
    other = dataclasses.replace(CLASSIFICATION, name="other")
    with pytest.raises(UserError, match="is a run of classification; expected"):
        finetuning_report(str(tmp_path), other, str(data_dir))
