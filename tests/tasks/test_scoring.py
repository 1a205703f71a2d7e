"""Scores of prediction files against gold files, and errors in them."""

import json
import math

import numpy as np
import pytest
from question_fixtures import glue_table, race_json, squad_json

from albert_tf.config import UserError
from albert_tf.tasks.scoring import score


def table(path, *rows):
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    return str(path)


def glue(tmp_path, task, labels, predictions):
    """Returns a gold file of labels, and a table in another order."""
    name, content = glue_table(task, labels)
    (tmp_path / name).write_text(content)
    given = [(str(n), str(label)) for n, label in enumerate(predictions)]
    rows = ("index", "prediction"), *reversed(given)
    return str(tmp_path / name), table(tmp_path / f"{task}.tsv", *rows)


# A program may pad labels with spaces.
NAMES = ("neutral", "entailment ", " contradiction", "neutral")
NUMBERS = [0.0, 1.5, 5.0, 3.0], [1.0, 1.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("task", "labels", "predictions", "metrics"),
    [
        # 2 of 3 ones are found, and 2 of 3 that are predicted are right.
        ("MRPC", "110100", "101100", {"accuracy": 4 / 6, "f1": 2 / 3}),
        ("MNLI", NAMES, NAMES[::-1], {"accuracy": 0.5}),
        (
            "STS-B",
            *NUMBERS,
            {
                "pearson": np.corrcoef(*NUMBERS)[0, 1],
                # Equal predictions share their mean rank.
                "spearman": np.corrcoef([1, 2, 4, 3], [1.5, 1.5, 3, 4])[0, 1],
            },
        ),
        # tp 2, tn 2, fp 1, fn 1: (4 - 1) / √(3·3·3·3).
        ("CoLA", "110100", "101100", {"matthews_correlation": 1 / 3}),
        ("CoLA", "111000", "111111", {"matthews_correlation": 0.0}),
    ],
)
def test_metrics_of_glue(tmp_path, task, labels, predictions, metrics):
    found = score(task, *glue(tmp_path, task, labels, predictions))
    assert found.metrics == pytest.approx(metrics)
    assert found.warnings == []


def test_an_undefined_correlation(tmp_path):
    found = score("STS-B", *glue(tmp_path, "STS-B", [0, 1], [2, 2]))
    assert np.isnan(found.metrics["pearson"])
    assert found.warnings[0].startswith("pearson is not defined for these num")
    found = score("STS-B", *glue(tmp_path, "STS-B", [1], [2]))
    assert np.isnan(found.metrics["spearman"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("id", "label")], ":1: expected the columns .*, got 'id, label'"),
        ([("0", "1", "2")], ":2: expected an index .*, got '0.t1.t2'"),
        ([("2", "1")], ":2: expected an index from 0 to 1, .*, got '2.t1'"),
        ([("9" * 5000, "1")], ":2: .*, got '9{76}\\.{3}"),
        ([("0", "1"), ("0", "1")], ":3: .* once, .* got '0.t1'"),
        ([("0", "yes"), ("1", "1")], ":2: expected one of 0, 1 as the label"),
        ([("1", "1")], "1 of 2 examples have no prediction: 0"),
    ],
)
def test_submissions_that_do_not_fit(tmp_path, rows, message):
    gold, predictions = glue(tmp_path, "MRPC", "10", "")
    head = [("index", "prediction")] if rows[0][0] != "id" else []
    table(tmp_path / "MRPC.tsv", *head, *rows)
    with pytest.raises(UserError, match=message) as raised:
        score("MRPC", gold, predictions)
    assert str(raised.value).startswith(predictions)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("task", ["MRPC", "SQuAD1.1", "RACE"])
def test_gold_files_of_ones_own(tmp_path, task):
    gold = tmp_path / "dev.csv.gz"
    with pytest.raises(UserError) as raised:
        score(task, str(gold), "p.tsv")
    assert str(raised.value) == (
        f"{gold}: expected the benchmark's own file: GLUE's .tsv, SQuAD's "
        ".json or RACE's folder. bin.evaluate scores a model on other files."
    )


def squad(tmp_path, predictions, name="predictions.json"):
    answers = [{"text": "red", "answer_start": 0}]
    rows = [
        {"id": str(n), "question": "?", "answers": answers * (n < 5)}
        for n in range(6)
    ]
    gold = tmp_path / "gold.json"
    gold.write_text(squad_json(*rows, context="red"))
    (tmp_path / name).write_text(json.dumps(predictions))
    return str(gold), str(tmp_path / name)


def test_missing_and_superfluous_predictions(tmp_path):
    given = {"0": "red", "5": "", "x": "red", "y": "red"}
    found = score("SQuAD2.0", *squad(tmp_path, given))
    assert found.metrics["exact"] == pytest.approx(100 * 2 / 6)
    assert found.warnings == [
        "4 of 6 questions have no prediction and score 0: 1, 2, 3 and 1 "
        "others.",
        "2 predictions are of no question here and do not count: x, y.",
    ]


def test_the_best_threshold(tmp_path):
    given = {str(n): "red" for n in range(6)}
    # Whole numbers are numbers, too.
    odds = {str(n): n - 4 for n in range(6)}
    _, path = squad(tmp_path, odds, "null_odds.json")
    found = score("SQuAD2.0", *squad(tmp_path, given), null_odds=path)
    assert found.metrics["exact"] == pytest.approx(100 * 5 / 6)
    assert found.metrics["best_exact"] == 100.0
    assert "they are no results" in found.warnings[-1]
    with pytest.raises(UserError, match="null_odds is for SQuAD2.0, and not"):
        score("SQuAD1.1", *squad(tmp_path, given), null_odds=path)


def test_gold_files_without_answers(tmp_path):
    gold, predictions = squad(tmp_path, {"0": "red"})
    with open(gold, "w") as file:
        file.write(squad_json({"id": "a", "question": "?"}))
    message = r"qas\[0\] \(id \"a\"\) has no 'answers'; a gold file"
    with pytest.raises(UserError, match=message):
        score("SQuAD2.0", gold, predictions)


def race(tmp_path, predictions, answers="ABCD"):
    for level, letters in (("middle", answers[:1]), ("high", answers[1:])):
        directory = tmp_path / "dev" / level
        directory.mkdir(parents=True)
        (directory / "1.txt").write_text(race_json(level, letters))
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(predictions))
    return str(tmp_path / "dev"), str(path)


def test_levels_of_race(tmp_path):
    given = {"middle-0": "A", "high-0": "B", "high-2": "A", "x-0": "C"}
    gold, predictions = race(tmp_path, given)
    found = score("RACE", gold, predictions)
    expected = {"accuracy": 0.5, "accuracy_middle": 1, "accuracy_high": 1 / 3}
    assert found.metrics == pytest.approx(expected)
    assert found.warnings == [
        "1 of 4 questions have no prediction and score 0: high-1.",
        "1 predictions are of no question here and do not count: x-0.",
    ]
    found = score("RACE-middle", gold, predictions).metrics
    assert found == {"accuracy": 1.0, "accuracy_middle": 1.0}


@pytest.mark.parametrize(
    ("files", "value", "message"),
    [
        (squad, [], r"expected an object, got \[\]"),
        (squad, {"0": ["red" * 99]}, r'a string for \'0\', got \["(red)+…'),
        (race, {"high-0": "E"}, "one of A, B, C, D for 'high-0', got \"E\""),
    ],
)
def test_predictions_of_another_form(tmp_path, files, value, message):
    task = {squad: "SQuAD2.0", race: "RACE"}[files]
    gold, predictions = files(tmp_path, value)
    with pytest.raises(UserError, match=message) as raised:
        score(task, gold, predictions)
    assert str(raised.value).startswith(predictions)


@pytest.mark.parametrize(
    ("value", "shown"), [(True, "true"), ("1", '"1"'), (math.nan, "NaN")]
)
def test_null_odds_that_are_no_numbers(tmp_path, value, shown):
    gold, predictions = squad(tmp_path, {"0": "red"})
    _, odds = squad(tmp_path, {"0": value}, "null_odds.json")
    with pytest.raises(
        UserError, match=f"expected a finite number for '0', got {shown}"
    ):
        score("SQuAD2.0", gold, predictions, null_odds=odds)


def test_thresholds_of_null_odds(tmp_path):
    gold, predictions = squad(tmp_path, {"0": "red"})
    _, odds = squad(tmp_path, {"0": 1.5}, "null_odds.json")
    with pytest.raises(UserError, match="null_threshold=2.0 applies to null"):
        score("SQuAD2.0", gold, predictions, threshold=2.0)
    with pytest.raises(UserError, match="nan: expected a finite number"):
        score("SQuAD2.0", gold, predictions, null_odds=odds, threshold=math.nan)
    options = {"null_odds": odds, "threshold": 2.0}
    answered = score("SQuAD2.0", gold, predictions, **options)
    # The default is 1, as in the script.
    none = score("SQuAD2.0", gold, predictions, null_odds=odds)
    assert answered.metrics["HasAns_exact"] == 20.0
    options["threshold"] = 1.2
    # Nobody is told of a threshold of their own.
    assert len(score("SQuAD2.0", gold, predictions, **options).warnings) == 2
    assert none.metrics["HasAns_exact"] == 0.0
    assert none.warnings[1] == (
        "1 answers count as none: their null odds exceed the official "
        "script's threshold, 1: 0; give your own with --null_threshold "
        "(bin.evaluate's is null_threshold in metrics.json)."
    )
