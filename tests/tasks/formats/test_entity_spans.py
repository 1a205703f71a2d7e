"""Entities by character offsets: JSON lines, and back from predictions."""

import json
import re

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.token_classification import (
    EntityClassification,
    TokenClassification,
)

COLUMNS = ["text=text", "entities=entities"]


def read(tmp_path, *lines, columns=COLUMNS, split="train", **reading):
    path = tmp_path / f"{split}.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    task = custom_task(columns, Reading(**reading))
    return task.read(str(tmp_path), split, str)


def entity(start, end, label, **others):
    return {"start": start, "end": end, "label": label, **others}


def test_entities_are_tags_of_words(tmp_path):
    text = "Mia Bo, of Ulm."
    entities = [entity(11, 14, "LOC", id=7), entity(0, 6, "PER", text="Mia Bo")]
    (example,) = read(tmp_path, {"text": text, "entities": entities})
    assert example.words == ("Mia", "Bo", ",", "of", "Ulm", ".")
    assert example.tags == ("B-PER", "I-PER", "O", "O", "B-LOC", "O")
    assert [text[start:end] for start, end in example.spans] == [*example.words]


@pytest.mark.parametrize(
    "values",
    [
        [[0, 3, "PER"], [4, 7, "PER"]],
        [{"start_offset": 0, "end_offset": 3, "label": "PER"}, [4, 7, "PER"]],
        [{"start": 0, "end": 3, "labels": ["PER"]}, [4, 7, "PER"]],
        # Blanks at the ends do not count.
        [[0, 4, "PER"], [3, 7, " PER"]],
    ],
)
def test_entities_of_spacy_doccano_and_label_studio(tmp_path, values):
    (example,) = read(tmp_path, {"text": "Mia Ulm", "entities": values})
    assert example.tags == ("B-PER", "B-PER")


def test_offsets_count_characters(tmp_path):
    """Not bytes or UTF-16; a byte-order mark, emoji and accents are some."""
    text = "\ufeff\U0001f469\u200d\U0001f680 Andre\u0301 \u2764\ufe0fUlm"
    names = ["Andre\u0301", "Ulm"]
    spans = [[text.index(n), text.index(n) + len(n), "X"] for n in names]
    (example,) = read(tmp_path, {"text": text, "entities": spans})
    assert [
        word
        for word, tag in zip(example.words, example.tags, strict=True)
        if tag == "B-X"
    ] == names


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            [0, 1, "X"],
            "expected entities that begin and end with words or punctuation, "
            r'got \[0, 1, "X"\], .M.\. --skip_bad_rows',
        ),
        # Some programs count to the last character.
        (entity(0, 2, "X"), r".*'Mi' \(an end is the offset after the last"),
        (entity(3, 3, "X"), r".*within .* in 7 characters \(an end is the off"),
        (entity(4, 8, "X"), "expected entities within the text, got .* in 7 c"),
        (entity(3, 4, "X"), "expected entities within the text"),
        (entity(-1, 3, "X"), "expected entities with start, end and label"),
        (entity(0.5, 3, "X"), "expected entities with start, end and label"),
        (entity(0, 3, ""), "expected entities with start, end and label"),
        ({"start": 0, "end": 3}, "expected entities with start, end and label"),
        ("Mia", "expected entities with start, end and label, got .Mia"),
        (
            entity(0, 3, "X", text="Ulm"),
            "expected the text of an entity at its offsets, which count "
            "characters, got 'Mia' in place of 'Ulm'",
        ),
        (entity(0, 7, "Y"), "expected entities that do not overlap, got .*"),
    ],
)
def test_entities_that_do_not_fit(tmp_path, value, message):
    good = {"text": "Mia Ulm", "entities": []}
    bad = good | {"entities": [[4, 7, "LOC"], value]}
    with pytest.raises(UserError, match=f"train.jsonl:2: {message}"):
        read(tmp_path, good, bad)
    assert len(read(tmp_path, good, bad, skip_bad_rows=True)) == 1


def test_an_entity_may_be_listed_twice(tmp_path):
    twice = [[0, 3, "PER"], entity(0, 3, "PER")]
    (example,) = read(tmp_path, {"text": "Mia Ulm", "entities": twice})
    assert example.tags == ("B-PER", "O")


def test_offsets_beyond_an_emoji_may_be_those_of_javascript(tmp_path):
    line = {"text": "\U0001f680 Mia", "entities": [[3, 6, "PER"]]}
    message = r"got \[3, 6, .PER.\] in 5 characters \(an emoji is one"
    with pytest.raises(UserError, match=message):
        read(tmp_path, line)


@pytest.mark.parametrize("character", ["\ufeff", "\u200b"])
def test_invisible_characters_of_a_word_are_shown(tmp_path, character):
    line = {"text": f"{character}Mia \U0001f680", "entities": [[1, 4, "PER"]]}
    message = (
        "got [1, 4, \"PER\"], 'Mia' (the word is "
        f"{character + 'Mia'!r}, with an invisible character)"
    )
    assert ascii(character)[1:-1] in message
    with pytest.raises(UserError, match=re.escape(message)):
        read(tmp_path, line)


def test_other_faults_of_lines(tmp_path):
    for line, message in (
        ({"text": " ", "entities": []}, "jsonl:1: the text has no words"),
        ({"text": "a", "entities": {}}, "jsonl:1: expected a list of entities"),
        ({"text": "a"}, "jsonl:1: expected the column 'entities', got text"),
    ):
        with pytest.raises(UserError, match=message):
            read(tmp_path, line)
    (example,) = read(tmp_path, {"text": "a"}, split="test")
    assert example.tags is None


@pytest.mark.parametrize("name", ["entities", "spans", "label", "labels"])
def test_the_column_without_columns(tmp_path, name):
    line = json.dumps({"id": 1, "text": "Mia", name: [[0, 3, "PER"]]})
    (tmp_path / "train.jsonl").write_text(line)
    (example,) = TASKS["entities"].read(str(tmp_path), "train", str)
    assert example.tags == ("B-PER",)
    (tmp_path / "dev.jsonl").write_text('{"text": "a", "tags": []}')
    message = "dev.jsonl:1: expected 'text' and one of entities, spans, labels,"
    with pytest.raises(UserError, match=message):
        TASKS["entities"].read(str(tmp_path), "dev", str)


def test_every_type_has_both_tags(tmp_path):
    kind = EntityClassification()
    line = {"text": "Mia sits", "entities": [[0, 3, "PER"]]}
    assert kind.labels(read(tmp_path, line)) == ["B-PER", "I-PER", "O"]
    message = "train.jsonl:1 and what follows: no training example has an enti"
    with pytest.raises(UserError, match=message):
        kind.labels(read(tmp_path, line | {"entities": []}))


def test_predicted_entities_are_training_data(tmp_path):
    config = EntityClassification().config_to_save(
        FeatureConfig(), {"temperature": 1.5}
    )
    assert config.temperature == 1.5
    kind = TokenClassification().for_model(config)
    labels = ["B-LOC", "B-PER", "I-PER", "O"]
    example = kind.example(("Mia Bo\u0301, \u2764\ufe0fUlm!",), 1)
    assert example.words == ("Mia", "Bo\u0301", ",", "\u2764\ufe0f", "Ulm", "!")
    ids = [1, 2, 3, 3, 0, 3]
    scores = np.full((6, 4), 0.1) + 0.5 * np.eye(4)[ids]
    scores[1, 2] = 0.8
    (found,) = kind.predictions(
        ScoredExamples([example], [scores], config, labels)
    )
    assert found.fields["entities"] == [
        entity(0, 7, "PER", text="Mia Bo\u0301", score=pytest.approx(0.7)),
        entity(11, 14, "LOC", text="Ulm", score=pytest.approx(0.6)),
    ]
    (again,) = read(tmp_path, found.fields)
    assert again.tags == tuple(found.fields["prediction"])
    assert again.words == example.words


def test_an_exports_words_have_offsets():
    """It reads them by the settings of its model, which a client lacks."""
    kind = TokenClassification()
    text = "Ulm, Ulm"

    def call(signature, text):
        words = np.array([[b"Ulm", b",", b"Ulm"], [b"a", b"", b""]])
        probabilities = np.tile([0.2, 0.8], (2, 3, 1))
        return {"words": words, "probabilities": probabilities}

    examples = [kind.example((t,), 1) for t in (text, "a")]
    found, _ = kind.exported_predictions(call, examples, ["O", "B-X"])
    assert [e["start"] for e in found.fields["entities"]] == [0, 3, 5]
    longer = [kind.example((t,), 7) for t in (f"{text} b", "a")]
    message = "text 7: an export reads the first 3 of these 4 words; divide"
    with pytest.raises(UserError, match=message):
        kind.exported_predictions(call, longer, ["O", "B-X"])
    spaced = WordsExample(("Ulm", "a b"), None, "a.conllu:1", "Ulm a b")
    with pytest.raises(UserError, match="a.conllu:1: an export divides words"):
        kind.exported_predictions(call, [spaced], ["O", "B-X"])


def test_words_of_conll_have_no_offsets():
    kind = TokenClassification()
    example = kind.example(("Mia sits.",), 1)
    assert example.words == ("Mia", "sits.")
    (found,) = kind.predictions(
        ScoredExamples([example], [np.eye(2)], FeatureConfig(), ["NN", "VB"])
    )
    assert "entities" not in found.fields
