"""Multiple choice: contexts with each choice."""

import dataclasses

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks import feature_building
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice, letter
from albert_tf.tasks.metrics import scalar

KIND = MultipleChoice()
EXAMPLES = [
    ChoiceExample("the of and the", ("of", "the and"), 1, "f, 1", "q1", "high"),
    ChoiceExample("and", ("the of and of", "the"), 0, "f, 2", "q2", "middle"),
    ChoiceExample("and", ("", "of of"), None, "f, 3", "q3", "high"),
]
SCORES = list(np.array([[0.25, 0.75], [0.1, 0.9], [0.5, 0.5]]))


def features(tokenizer, examples, length=32, choice=8):
    config = FeatureConfig(max_seq_length=length, max_choice_length=choice)
    return KIND.features(examples, tokenizer, config, labels=[], training=True)


def naive(tokenizer, example, length, choice):
    """Returns ids and segments of each choice, truncated by the token."""
    rows = []
    for text in example.choices:
        context, ids = tokenizer.encode(example.context), tokenizer.encode(text)
        while len(ids) > choice:
            ids = ids[1:]
        while len(context) + len(ids) + 3 > length:
            context = context[:-1]
        first = [tokenizer.cls_id, *context, tokenizer.sep_id]
        second = [*ids, tokenizer.sep_id]
        rows.append((first + second, [0] * len(first) + [1] * len(second)))
    return rows


@pytest.mark.parametrize(("length", "choice"), [(32, 8), (9, 2), (8, 4)])
def test_rows(tiny_tokenizer, length, choice):
    found = features(tiny_tokenizer, EXAMPLES, length, choice)
    batch = found.batch(np.arange(3), length)
    assert batch["input_ids"].shape == (3, 2, length)
    for number, example in enumerate(EXAMPLES):
        expected = naive(tiny_tokenizer, example, length, choice)
        for which, (ids, segments) in enumerate(expected):
            rest = length - len(ids)
            row = batch["input_ids"][number, which].tolist()
            assert row == ids + [tiny_tokenizer.pad_id] * rest
            row = batch["segment_ids"][number, which].tolist()
            assert row == segments + [0] * rest
            assert batch["input_mask"][number, which].sum() == len(ids)
    # 0 without a label.
    assert batch["label_ids"].tolist() == [1, 0, 0]
    assert batch["label_ids"].dtype == np.int32
    assert (len(found), found.choices) == (3, 2)
    assert found.example_numbers.tolist() == [0, 1, 2]


def test_truncated_examples(tiny_tokenizer):
    # Each counts once, for a choice, the context or both.
    assert features(tiny_tokenizer, EXAMPLES, 64, 20).truncated == []
    # The second example alone has a choice of so many tokens.
    longest = max(
        len(tiny_tokenizer.encode(choice)) for choice in EXAMPLES[1].choices
    )
    found = features(tiny_tokenizer, EXAMPLES, 64, longest - 1)
    assert found.truncated == [1]
    assert features(tiny_tokenizer, EXAMPLES, 8, 1).truncated == [0, 1, 2]


def test_a_choice_length_without_room_for_contexts(tiny_tokenizer):
    message = (
        "max_choice_length=13 leaves the context no room within "
        "max_seq_length=16; lower the former, for example to 8."
    )
    with pytest.raises(UserError, match=message):
        features(tiny_tokenizer, EXAMPLES, 16, 13)


def test_another_number_of_choices(tiny_tokenizer, monkeypatch):
    more = ChoiceExample("the", ("of", "and", "the"), None, "f, 4")
    KIND.check(EXAMPLES)
    # The chunks in which features are built do not matter.
    monkeypatch.setattr(feature_building, "_CHUNK", 3)
    builder = feature_building.FeatureBuilder(
        KIND, tiny_tokenizer, FeatureConfig(), []
    )
    message = "^f, 4: expected 2 choices as at f, 1, got 3.$"
    with pytest.raises(UserError, match=message):
        builder.build([*EXAMPLES, more], training=True)
    message = (
        "^2 of 5 examples are bad: expected 2 choices as at f, 1 "
        r"\(2: f, 4, got 3; f, 4, got 3\).$"
    )
    with pytest.raises(UserError, match=message):
        builder.build([*EXAMPLES, more, more], training=True)


def test_metrics_of_all_and_of_each_part():
    of_no_part = dataclasses.replace(EXAMPLES[1], part="")
    examples = [*EXAMPLES[:2], of_no_part]
    scores = [*SCORES[:2], np.array([0.9, 0.1])]
    found = KIND.compute_metrics(
        ScoredExamples(examples, scores, FeatureConfig(), []),
        {"accuracy": scalar.accuracy},
    )
    assert found == pytest.approx(
        {
            "accuracy": 2 / 3,
            "majority_class_accuracy": 2 / 3,
            "accuracy_high": 1.0,
            "accuracy_middle": 0.0,
        }
    )


def test_predictions():
    found = KIND.predictions(
        ScoredExamples(EXAMPLES, SCORES, FeatureConfig(), [])
    )
    assert found[0].fields == {
        "id": "q1",
        "context": "the of and the",
        "choices": ["of", "the and"],
        "label": "B",
        "prediction": "B",
        "probabilities": [0.25, 0.75],
    }
    assert [p.fields["label"] for p in found] == ["B", "A", None]
    assert [p.fields["prediction"] for p in found] == ["B", "B", "A"]
    assert [p.location for p in found] == ["f, 1", "f, 2", "f, 3"]
    # Wrong by as much as the answer was likelier than the right one.
    assert [p.error for p in found] == pytest.approx([0.0, 0.8, 0.0])


def test_classes_are_letters():
    examples = [EXAMPLES[0], EXAMPLES[1], EXAMPLES[1]]
    scored = ScoredExamples(
        examples, [*SCORES[:2], SCORES[1]], FeatureConfig(), []
    )
    figure = KIND.figure(scored)
    assert figure.labels == ["A", "B"]
    # Gold choices by predicted ones.
    assert figure.counts.tolist() == [[0, 2], [0, 1]]
    assert KIND.constant_prediction(scored) == "B"
    # After Z numbers.
    assert [letter(n) for n in (25, 26)] == ["Z", "26"]
