"""Prediction files, as the benchmarks' scorers read them."""

import itertools
import json
import zipfile

import numpy as np
import pytest
from question_fixtures import glue_table

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import CLASSIFICATION
from albert_tf.tasks.examples import Answer, ChoiceExample, Example, Question
from albert_tf.tasks.glue import GLUE_TASKS
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.span_answers import QuestionScores
from albert_tf.tasks.prediction_files import (
    add_to_submission,
    prediction_files,
)
from albert_tf.tasks.scoring import SCORED_TASKS, score

CONFIG = FeatureConfig()


def files_of(task, split, examples, scores):
    labels = list(task.labels) or task.kind.labels(examples)
    scored = ScoredExamples(examples, scores, CONFIG, labels)
    predictions = task.kind.predictions(scored)
    found = prediction_files(task, split, scored, predictions)
    return {name: content.decode() for name, content in found.items()}


@pytest.mark.parametrize("name", sorted({*GLUE_TASKS} & {*SCORED_TASKS}))
def test_tables_of_glue_score_like_the_model(write, tmp_path, name):
    task, rng = TASKS[name], np.random.default_rng(1)
    labels, classes = [*task.labels] * 10, len(task.labels)
    scores = list(rng.dirichlet(np.ones(classes or 1), size=len(labels)))
    if not labels:
        labels = [f"{number:.3f}" for number in rng.uniform(0, 5, 30)]
        scores = rng.uniform(-1, 6, 30).tolist()
    gold = write(*glue_table(name, labels))
    examples = task.read(str(tmp_path), "dev")
    found = files_of(task, "dev", examples, scores)
    assert found.keys() == {"predictions.jsonl", f"{name}-dev.tsv"}
    table = write("table.tsv", found[f"{name}-dev.tsv"])
    measured = task.kind.compute_metrics(
        ScoredExamples(examples, scores, CONFIG, task.labels), task.metrics
    )
    again = score(name, gold, table).metrics
    assert again.keys() == task.metrics.keys()
    assert again == {n: measured[n] for n in again}
    # Or any table would do.
    assert not {0.0, 1.0} & set(again.values())


def test_the_table_of_numbers():
    examples = [Example(("a", "b"), None)] * 3 + [Example(("a", "b"), "2.50")]
    scores = [-0.5, 5.2, 3.14159, 0.0]
    found = files_of(TASKS["STS-B"], "test", examples, scores)
    assert found["STS-B.tsv"] == (
        "index\tprediction\n0\t0.0000\n1\t5.0000\n2\t3.1416\n3\t0.0000\n"
    )
    # Numbers themselves are not clipped.
    lines = [*map(json.loads, found["predictions.jsonl"].splitlines())]
    assert [line["prediction"] for line in lines] == scores
    assert [line["label"] for line in lines] == [None] * 3 + [2.5]


@pytest.mark.parametrize(
    ("task", "split", "name"),
    [
        ("MNLI", "test", "MNLI-m.tsv"),
        ("MNLI", "test_mismatched", "MNLI-mm.tsv"),
        ("MNLI", "dev_mismatched", "MNLI-dev_mismatched.tsv"),
        ("AX", "test", "AX.tsv"),
    ],
)
def test_names_of_the_tables(task, split, name):
    labels = TASKS[task].labels
    row = np.eye(len(labels))[1]
    found = files_of(TASKS[task], split, [Example(("a", "b"), None)], [row])
    assert found.keys() == {"predictions.jsonl", name}
    assert found[name] == f"index\tprediction\n0\t{labels[1]}\n"


def test_lines_of_any_task():
    # JSON lines may have "\ud800"; UTF-8 has no such character.
    texts = "Grüße\n☺", "b\ud800"
    examples = [Example(texts, "x", "d/dev.tsv:7"), Example(("a",), "y")]
    found = files_of(CLASSIFICATION, "dev", examples, [np.eye(2)[0]] * 2)
    assert found.keys() == {"predictions.jsonl"}
    text = found["predictions.jsonl"]
    assert "Grüße\\n☺" in text and text.endswith("\n")
    first, second = map(json.loads, text.splitlines())
    assert first["location"] == "d/dev.tsv:7"
    assert first["texts"] == ["Grüße\n☺", "b\ud800"]
    assert (second["text"], second["prediction"]) == ("a", "x")


QUESTIONS = [
    Question("q1", "Who?", "Red, green.", (Answer("Red", 0),), "1"),
    Question("q2", "What?", "Red, green.", (Answer("green", 5),), "2"),
    Question("q3", "Why?", "Red, green.", (), "3"),
]


SPANS = [
    QuestionScores(((0, 3, 2.0), (5, 10, 1.0)), -1.0),
    QuestionScores(((0, 3, 2.0),), 0.5),
    QuestionScores(((5, 10, 0.0),), 2.0),
]


def test_files_of_squad_2():
    found = files_of(TASKS["SQuAD2.0"], "dev", QUESTIONS, SPANS)
    answers = json.loads(found["predictions.json"])
    assert answers == {"q1": "Red", "q2": "", "q3": ""}
    odds = json.loads(found["null_odds.json"])
    assert odds == {"q1": -1.0, "q2": 0.5, "q3": 2.0}
    nbest = json.loads(found["nbest_predictions.json"])
    assert [row["text"] for row in nbest["q1"]] == ["Red", "green", ""]
    assert len(found) == 4
    # Version 1.1 has no null odds.
    of_version_1 = files_of(TASKS["SQuAD1.1"], "dev", QUESTIONS, SPANS)
    assert found.keys() - of_version_1.keys() == {"null_odds.json"}


def test_letters_of_choices():
    examples = [
        ChoiceExample("a", tuple("bcd"), label, "", f"high{label}.txt-0")
        for label in (0, 1, 2)
    ]
    scores = [np.eye(3)[n] for n in (2, 1, 0)]
    found = files_of(TASKS["RACE"], "test", examples, scores)
    assert found.keys() == {"predictions.jsonl", "answers.json"}
    assert json.loads(found["answers.json"]) == {
        "high0.txt-0": "C",
        "high1.txt-0": "B",
        "high2.txt-0": "A",
    }


# A zip of several tasks' files.


def entries(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_submission_grows(tmp_path):
    path = str(tmp_path / "submission.zip")
    assert add_to_submission(path, "RTE.tsv", b"one") == ["RTE.tsv"]
    found = add_to_submission(path, "CoLA.tsv", b"two")
    assert found == ["CoLA.tsv", "RTE.tsv"]
    assert entries(path) == {"CoLA.tsv": b"two", "RTE.tsv": b"one"}
    add_to_submission(path, "RTE.tsv", b"three")
    assert entries(path) == {"CoLA.tsv": b"two", "RTE.tsv": b"three"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["submission.zip"]


def test_submissions_are_reproducible(tmp_path):
    files = {"b.tsv": b"x" * 9999, "a.tsv": b"y", "c.tsv": b""}
    made = set()
    for number, order in enumerate(itertools.permutations(files)):
        path = tmp_path / f"{number}.zip"
        for name in order:
            add_to_submission(str(path), name, files[name])
        made.add(path.read_bytes())
    assert len(made) == 1
    # They are compressed.
    assert path.stat().st_size < 999


def test_files_that_are_no_zips(tmp_path):
    path = tmp_path / "submission.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("RTE.tsv", b"index\tprediction\n0\tentailment\n" * 9)
    content = path.read_bytes()
    others = [b"", b"index\tprediction\n", b"PK\x03\x04"]
    for position in range(len(content)):
        turned = bytearray(content)
        turned[position] ^= 1 << position % 8
        others.append(bytes(turned))
    refused = []
    for other in others:
        path.write_bytes(other)
        try:
            add_to_submission(str(path), "QQP.tsv", b"")
        except UserError as error:
            assert str(error) == (
                f"{path} exists and is no zip file; name another."
            )
            assert path.read_bytes() == other
            refused.append(other)
    assert refused[:3] == others[:3]
    assert len(refused) > 33
