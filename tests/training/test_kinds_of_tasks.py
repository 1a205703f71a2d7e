"""Every kind of task, from its files to a model that answers again."""

import json
import os
import shutil

import numpy as np
import pytest
from pretraining_runs import events, lines_of
from training_fixtures import NO_DROPOUT

from albert_tf.config import FinetuneConfig, UserError, override
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.jobs.finetune import run_finetuning
from albert_tf.jobs.task_evaluation import evaluate_task
from albert_tf.prediction.predictor import Predictor
from albert_tf.rundir.run_results import read_comparison
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.prediction_files import prediction_files
from albert_tf.tasks.scoring import score

SEA, LAND = ["bada", "gule", "mizo"], ["tepu", "rika", "sovu"]


def words(rng, count, among=LAND):
    return [str(word) for word in rng.choice(among, size=count)]


def write_table(path, header, rows):
    lines = ["\t".join(header), *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def pairs(rng, path):
    """The label is wet where the second text is of the sea."""
    rows = []
    for number in range(60):
        second = words(rng, 2, SEA if number % 2 else LAND)
        label = "wet" if number % 2 else "dry"
        rows.append([" ".join(words(rng, 2)), " ".join(second), label])
    write_table(path.with_suffix(".tsv"), ["a", "b", "verdict"], rows)


def several(rng, path):
    """Labels for words of the sea, and of the land."""
    rows = []
    for number in range(60):
        parts = {"wet": words(rng, 2, SEA), "dry": words(rng, 2)}
        names = [n for bit, n in enumerate(parts) if number >> bit & 1]
        text = ["the", *(word for n in names for word in parts[n])]
        rows.append([" ".join(rng.permutation(text)), "|".join(names)])
    write_table(path.with_suffix(".tsv"), ["text", "labels"], rows)


def numbers(rng, path):
    """A price, by the number of words of the sea, of six."""
    rows = []
    for number in range(60):
        wet = number % 7
        text = [*words(rng, wet, SEA), *words(rng, 6 - wet)]
        price = str(300_000 + 100_000 * wet)
        rows.append([" ".join(rng.permutation(text)), price])
    write_table(path.with_suffix(".tsv"), ["text", "price"], rows)


def choices(rng, path):
    """The right one of three options is of the sea."""
    rows = []
    for number in range(60):
        options = [" ".join(words(rng, 2)) for _ in range(3)]
        options[number % 3] = " ".join(words(rng, 2, SEA))
        rows.append(
            ["The " + " ".join(words(rng, 3)), *options, "abc"[number % 3]]
        )
    header = ["context", "a", "b", "c", "right"]
    write_table(path.with_suffix(".tsv"), header, rows)


def tags(rng, path):
    """Words of the sea are entities."""
    lines = []
    for _ in range(40):
        for word in words(rng, 6, SEA + LAND):
            lines.append(f"{word} x {'B-WET' if word in SEA else 'O'}")
        lines.append("")
    path.with_suffix(".conll").write_text("\n".join(lines))


def questions(rng, path, answerable=True):
    """The answer is the only word of the sea, if there is one."""
    paragraphs = []
    for number in range(60):
        text = words(rng, 8)
        place = int(rng.integers(8))
        answers = []
        if answerable or number % 2:
            text[place] = "Gule"
            start = len(" ".join(text[:place])) + (place > 0)
            answers = [{"text": "Gule", "answer_start": start}]
        asked = {"id": f"q{number}", "question": "Where?", "answers": answers}
        paragraphs.append({"context": " ".join(text), "qas": [asked]})
    content = {"version": "x", "data": [{"paragraphs": paragraphs}]}
    path.with_suffix(".json").write_text(json.dumps(content))


def doubtful_questions(rng, path):
    questions(rng, path, answerable=False)


# Writer of the files, --columns or the task, a metric and its minimum.
CHOICES = "context=context,choice=a,choice=b,choice=c,label=right"
KINDS = {
    "pairs": (pairs, "text=a,text=b,label=verdict", "accuracy", 0.95),
    "several": (several, "text=text,labels=labels", "micro_f1", 0.9),
    "numbers": (numbers, "text=text,number=price", "pearson", 0.9),
    "choices": (choices, CHOICES, "accuracy", 0.95),
    "tags": (tags, "word=0,tag=-1", "f1", 0.6),
    "questions": (questions, "SQuAD1.1", "f1", 90.0),
    "doubtful_questions": (doubtful_questions, "SQuAD2.0", "best_f1", 85.0),
}
# Kinds with batches of several widths.
BUCKETED = ("pairs", "several")


@pytest.fixture(scope="module")
def finished(request, tmp_path_factory, pretrained):
    """A run of the kind that the test asks for."""
    write, name, *measure = KINDS[request.param]
    root = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(3)
    for split in ("train", "dev"):
        write(rng, root / split)
    reading = Reading(label_separator="|")
    task = TASKS.get(name) or custom_task(name.split(","), reading)
    config = override(
        FinetuneConfig(),
        {
            "max_seq_length": 48,
            "max_query_length": 8,
            "max_choice_length": 8,
            "doc_stride": 8,
            # Twice the rate fails: one seed in ten does not learn `pairs`.
            "learning_rate": 1e-3,
            "num_train_steps": 200,
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "log_steps": 100,
            "eval_steps": 100,
            # Each width is another trace.
            "padding": "bucket" if request.param in BUCKETED else "max",
        },
    )
    evaluation = run_finetuning(
        config,
        task,
        data_dir=str(root),
        run_dir=str(root / "run"),
        initial=find_initial_weights(pretrained),
        recipe="none",
    )
    return task, str(root), evaluation, measure


@pytest.mark.slow
@pytest.mark.parametrize("finished", KINDS, indirect=True)
def test_it_learns_and_its_model_answers_alike(finished, tmp_path):
    task, root, evaluation, (metric, least) = finished
    assert evaluation[metric] >= least
    _, verdict = read_comparison(os.path.join(root, "run"))
    labels = list(task.labels)
    compared = metric.removeprefix("best_")
    if task.kind.head == "multi_label":
        compared = task.kind.metric_names({}, labels)[0]
    assert [line for line in verdict if line.startswith(f"{compared} ")]
    model = os.path.join(root, "run", "model")
    alone = evaluate_task([model], task, root, split="dev", batch_size=5)
    expected = dict(evaluation)
    del expected["loss"]
    # The model keeps what was chosen on dev, and now answers by it.
    loaded = load_model_directory(model)
    assert loaded.task.label_separator == task.label_separator
    record = loaded.features
    assert record.temperature == expected.pop("temperature", 1)
    if "best_f1_thresh" in expected:
        assert record.null_threshold == expected["best_f1_thresh"]
        assert alone.metrics["f1"] == pytest.approx(expected["best_f1"])
        expected = {name: expected[name] for name in ("best_f1",)}
    if "threshold" in expected:
        assert alone.metrics["micro_f1"] == pytest.approx(
            expected["best_micro_f1"]
        )
        expected = {
            name: value for name, value in expected.items() if "average" in name
        }
    for name, value in expected.items():
        assert alone.metrics[name] == pytest.approx(value, rel=1e-4), name

    together = evaluate_task(
        [model, os.path.join(root, "run")],
        task,
        root,
        split="dev",
        batch_size=7,
    )
    assert together.members == [together.members[0]] * 2
    assert together.metrics == pytest.approx(alone.metrics, rel=1e-4)
    predictions = alone.predictions()
    assert len(predictions) == len(alone.scored.examples)
    predictor = Predictor(load_model_directory(model), batch_size=3)
    again = list(predictor.predict(task.kind, alone.scored.examples))
    assert [p.fields["prediction"] for p in again] == (
        [p.fields["prediction"] for p in predictions]
        if task.kind.head != "regression"
        else pytest.approx([p.fields["prediction"] for p in predictions], 1e-4)
    )
    files = prediction_files(task, "dev", alone.scored, predictions)
    lines = files["predictions.jsonl"].decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {**p.fields, "location": p.location} for p in predictions
    ]
    if "predictions.json" in files:
        # They score as measured.
        path = tmp_path / "predictions.json"
        path.write_bytes(files["predictions.json"])
        official = score(task.name, os.path.join(root, "dev.json"), str(path))
        for name, value in official.metrics.items():
            assert alone.metrics[name] == pytest.approx(value), name
    figures = events(os.path.join(root, "run"), "eval").Tensors("answers")
    assert [figure.step for figure in figures] == [100, 200]


@pytest.mark.slow
@pytest.mark.parametrize("finished", ["choices"], indirect=True)
def test_examples_have_choices_of_their_own_number(finished):
    _, root, _, _ = finished
    model = load_model_directory(os.path.join(root, "run", "model"))
    examples = [
        ChoiceExample("The sovu", ("bada", *others), None, f"text {number}")
        for number, others in enumerate([("tepu",), ("tepu", "rika")], start=1)
    ]
    for batch_size in (1, 2):
        predictor = Predictor(model, batch_size=batch_size)
        found = list(predictor.predict(MultipleChoice(), examples))
        assert [len(f.fields["probabilities"]) for f in found] == [2, 3]
        assert found[0].fields["prediction"] == "A"


@pytest.mark.slow
@pytest.mark.parametrize("finished", ["doubtful_questions"], indirect=True)
def test_members_answer_by_their_own_thresholds(finished, tmp_path):
    task, root, _, _ = finished
    models = []
    for threshold in (-100.0, 100.0):
        models.append(str(tmp_path / str(threshold)))
        shutil.copytree(os.path.join(root, "run", "model"), models[-1])
        path = tmp_path / str(threshold) / "task.json"
        record = json.loads(path.read_text())
        record["features"]["null_threshold"] = threshold
        path.write_text(json.dumps(record))
    found = evaluate_task(models, task, root, split="dev", batch_size=16)
    never, always = found.members
    assert never["NoAns_exact"] == 100
    assert never["HasAns_exact"] == 0
    assert always["NoAns_exact"] == 0
    assert found.scored.config.null_threshold == 0
    (given,) = {
        evaluate_task(
            [model], task, root, split="dev", batch_size=16, null_threshold=1.0
        ).metrics["exact"]
        for model in models
    }
    assert never["exact"] <= given <= 100


@pytest.mark.slow
def test_choices_in_micro_batches(tmp_path, pretrained):
    """Micro-batches are of examples: the choices of one stay together."""
    for split in ("train", "dev"):
        choices(np.random.default_rng(3), tmp_path / split)
    settings = {
        "max_seq_length": 32,
        "max_choice_length": 8,
        "learning_rate": 2e-3,
        "num_train_steps": 3,
        "train_batch_size": 7,
        "log_steps": 1,
    }

    def losses(name, **changes):
        run_finetuning(
            override(FinetuneConfig(), {**settings, **changes}),
            custom_task(CHOICES.split(",")),
            data_dir=str(tmp_path),
            run_dir=str(tmp_path / name),
            initial=find_initial_weights(pretrained),
            # Or which example has which dropout would differ.
            model_changes=NO_DROPOUT,
            recipe="none",
        )
        lines = lines_of(tmp_path / name, "train", "eval")
        return [line["loss"] for line in lines]

    whole = losses("whole")
    assert len(whole) == 4
    parts = losses("parts", micro_batch_size=3)
    assert parts == pytest.approx(whole, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("finished", ["pairs"], indirect=True)
@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        (
            "RTE",
            "0\tx\ty\tentailment",
            "run/model has the labels dry, wet; RTE has entailment, not_en",
        ),
        (
            "STS-B",
            "0\t1\t2\t3\t4\t5\t6\ta\tb\t3.0",
            "has no regression head; fine-tune one for STS-B",
        ),
    ],
)
def test_a_model_of_other_labels_or_another_kind(
    finished, tmp_path, task, row, message
):
    _, root, _, _ = finished
    model = os.path.join(root, "run", "model")
    (tmp_path / "dev.tsv").write_text(f"header\n{row}\n")
    with pytest.raises(UserError, match=message):
        evaluate_task(
            [model], TASKS[task], str(tmp_path), split="dev", batch_size=4
        )
