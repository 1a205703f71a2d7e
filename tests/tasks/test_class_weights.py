"""Weights of classes in the loss: scikit-learn's, PyTorch's mean."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from albert_tf.config import FeatureConfig, UserError
from albert_tf.inputs.length_buckets import TaskBatches
from albert_tf.modeling.heads import HEADS
from albert_tf.tasks.class_weights import class_weights, imbalance
from albert_tf.tasks.examples import Example, MultiLabelExample, WordsExample
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.token_classification import TokenClassification

CONFIG = FeatureConfig(max_seq_length=12)
LABELS = ["air", "land", "sea"]


def weighted_batch(kind, examples, labels, text, tokenizer, rows):
    """Returns a batch with weights of classes, padded to `rows`."""
    features = kind.features(
        examples, tokenizer, CONFIG, labels=labels, training=True
    )
    features, weights = kind.class_weighted(features, labels, text)
    batches = TaskBatches(features, batch_size=rows, seed=0, widths=(12,))
    return batches.batch(0), weights


def test_a_class_of_most_examples_is_reported():
    assert imbalance(LABELS, np.array([6, 4, 39]), ["--one"]) == ""
    assert imbalance(LABELS, np.array([6, 4, 40]), []) == ""
    assert imbalance(LABELS, np.array([6, 4, 40]), ["--one", "--two"]) == (
        "40 of the 50 training examples are of the class 'sea'; if the others "
        "are missed, try --one and --two."
    )


def test_balanced_weights_are_scikit_learns():
    ids = np.repeat([0, 1, 2], [7, 1, 4])
    found = class_weights("balanced", LABELS, np.bincount(ids))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=ids)
    np.testing.assert_allclose(found, expected)
    # A class without examples counts neither for itself nor for the others.
    found = class_weights("balanced", LABELS, np.array([7, 0, 1]))
    np.testing.assert_allclose(found, [8 / 14, 1, 4])


def test_weights_by_name():
    labels = ["a:b", "c, d", "e"]
    found = class_weights('a:b:0.5,"c, d: 2"', labels, np.ones(3))
    assert found.tolist() == [0.5, 2, 1]


def test_blanks_before_a_quoted_name():
    found = class_weights('e:3, "c, d:2"', ["c, d", "e"], np.ones(2))
    assert found.tolist() == [2, 3]


def test_a_name_with_a_comma_needs_quotes():
    with pytest.raises(UserError, match="got 'c'. A label with a comma is qu"):
        class_weights("c, d:2", ["c, d", "e"], np.ones(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sea:2,air:1,sea:3", "'sea:2,air:1,sea:3' names 'sea' twice."),
        (
            "Balanced",
            "expected balanced, or label:weight for some of air, land",
        ),
        ("sea:2,\nair:1", r"='sea:2,.nair:1': expected a single line.$"),
        ("ship:2", "for some of air, land, sea, got 'ship:2'.$"),
        (
            "sea:0",
            "^class_weights: expected a number above 0 for 'sea', got '0'",
        ),
        ("sea:much", "expected a number above 0 for 'sea', got 'much'.$"),
    ],
)
def test_weights_that_are_none(text, message):
    with pytest.raises(UserError, match=message):
        class_weights(text, LABELS, np.ones(3))


def test_the_loss_is_the_weighted_sum_by_the_sum_of_weights(tiny_tokenizer):
    examples = [Example(("the",), label) for label in ("sea", "air", "sea")]
    batch, weights = weighted_batch(
        Classification(), examples, LABELS, "sea:3", tiny_tokenizer, 4
    )
    assert weights == {"air": 1, "land": 1, "sea": 3}
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    nll = -logs[np.arange(4), batch["label_ids"]]
    by_row = np.where(batch["label_ids"] == 2, 3.0, 1.0)
    # The last row is padding.
    total = (nll * by_row)[:3].sum()
    pair = HEADS["classification"].loss({"logits": logits}, batch)
    np.testing.assert_allclose(pair, (total, 7), rtol=1e-5)


def test_tags_weigh_at_the_first_piece_of_a_word(tiny_tokenizer):
    examples = [WordsExample(("the", "zqxj", "of"), ("O", "B-X", "O"))]
    batch, weights = weighted_batch(
        TokenClassification(),
        examples,
        ["B-X", "O"],
        "balanced",
        tiny_tokenizer,
        2,
    )
    assert weights == {"B-X": 1.5, "O": 0.75}
    row = batch["label_weights"][0]
    assert row[row > 0].tolist() == [0.75, 1.5, 0.75]
    assert not batch["label_weights"][1].any()


def test_several_labels_weigh_where_a_text_has_them(tiny_tokenizer):
    kind = MultiLabelClassification()
    examples = [
        MultiLabelExample(("the",), labels)
        for labels in (("sea",), ("air", "sea"), ("sea",), ())
    ]
    given, _ = weighted_batch(
        kind, examples, ["air", "sea"], "air:5", tiny_tokenizer, 4
    )
    assert given["label_weights"].tolist() == [[1, 1], [5, 1], [1, 1], [1, 1]]
    found, weights = weighted_batch(
        kind, examples, ["air", "sea"], "balanced", tiny_tokenizer, 5
    )
    for number, name in enumerate(["air", "sea"]):
        ids = found["label_ids"][:4, number]
        expected = compute_class_weight("balanced", classes=np.arange(2), y=ids)
        np.testing.assert_allclose(
            found["label_weights"][:4, number], expected[ids], rtol=1e-6
        )
        logged = [weights[f"no {name}"], weights[name]]
        assert logged == pytest.approx(expected)
    assert not found["label_weights"][4].any()


def test_numbers_have_no_classes():
    message = "^class_weights='balanced': regression has no classes to weigh.$"
    with pytest.raises(UserError, match=message):
        Regression().class_weighted(None, [], "balanced")
