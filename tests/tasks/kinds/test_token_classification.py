"""Words as rows of sub-tokens, and the tag of each word."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.token_classification import TokenClassification
from albert_tf.text.tokenizer import SentencePieceTokenizer

KIND = TokenClassification()
LABELS = ["B-A", "I-A", "O"]


@pytest.fixture(scope="module")
def tokenizer(make_model):
    """Every letter is a piece, and the space before a word is one of it."""
    scores = dict.fromkeys(["▁a", "▁b", "▁c", "a", "b", "c"], -1.0)
    return SentencePieceTokenizer(make_model({"▁": -9.0, **scores}))


def features(tokenizer, examples, length=8):
    config = FeatureConfig(max_seq_length=length)
    return KIND.features(
        examples, tokenizer, config, labels=LABELS, training=False
    )


def pieces(tokenizer, found, row):
    return tokenizer.pieces(found.row(row, "input_ids"))


def test_tags_that_are_numbers_are_warned_of():
    def warnings(*tags):
        example = WordsExample(("a",) * len(tags), tags, "a:1")
        return KIND.warnings([example], training=True)

    (line,) = warnings("0", "3", "0")
    assert line.startswith("0, 3: tags that are numbers name no entities, so ")
    assert warnings("O", "B-A") == warnings("0", "NN") == []


def test_labels_are_at_first_sub_tokens(tokenizer):
    example = WordsExample(("abc", "b", "ca"), ("O", "B-A", "I-A"), "")
    found = features(tokenizer, [example], length=10)
    assert pieces(tokenizer, found, 0) == [
        *("[CLS]", "▁a", "b", "c", "▁b", "▁c", "a", "[SEP]")
    ]
    rows = {name: found.row(0, name).tolist() for name in found.sequences}
    del rows["input_ids"]
    assert rows == {
        "segment_ids": [0] * 8,
        "label_ids": [0, 2, 0, 0, 0, 1, 0, 0],
        "label_weights": [0, 1, 0, 0, 1, 1, 0, 0],
    }
    assert all(v.dtype == np.int32 for v in found.sequences.values())
    batch = found.batch(np.array([0]), 10)
    assert batch["input_ids"][0, 8:].tolist() == [tokenizer.pad_id] * 2
    assert batch["label_weights"].sum() == 3


def test_words_without_pieces_are_not_lost(tokenizer):
    # An accent without its letter is normalised to nothing.
    found = features(tokenizer, [WordsExample(("a", "\u0301", "b"), None)])
    assert pieces(tokenizer, found, 0)[1:-1] == ["▁a", "<unk>", "▁b"]
    # What has no tags has labels nevertheless, for one form of all batches.
    assert found.row(0, "label_weights").tolist() == [0, 1, 1, 1, 0]
    assert found.row(0, "label_ids").tolist() == [0] * 5


def test_long_sentences_are_split_between_words(tokenizer):
    short = WordsExample(("a",), None, "")
    words = ("abc", "ab", "ab", "abc", "a", "abcabcabc", "a")
    found = features(tokenizer, [short, WordsExample(words, None, "")])
    assert found.example_numbers.tolist() == [0, 1, 1, 1, 1]
    assert [pieces(tokenizer, found, row)[1:-1] for row in range(1, 5)] == [
        ["▁a", "b", "c", "▁a", "b"],
        # A row has as many words as there is room for.
        ["▁a", "b", "▁a", "b", "c", "▁a"],
        # Six pieces of the nine find room.
        ["▁a", "b", "c", "a", "b", "c"],
        ["▁a"],
    ]
    weights = [found.row(row, "label_weights") for row in range(1, 5)]
    assert [row.sum() for row in weights] == [2, 3, 1, 1]
    assert found.truncated == [1]


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.lists(st.text("abc", min_size=1, max_size=9), min_size=1), min_size=1
    ),
    st.integers(8, 20),
    st.integers(0, 99),
)
def test_every_word_gets_the_probabilities_of_its_first_piece(
    tokenizer, sentences, length, seed
):
    examples = [WordsExample(tuple(words), None, "") for words in sentences]
    found = features(tokenizer, examples, length)
    assert found.lengths.max() <= length
    # Padded on the right by different amounts.
    rng = np.random.default_rng(seed)
    logits = [
        rng.normal(size=(n + rng.integers(3), 3)).astype(np.float32)
        for n in found.lengths
    ]
    scores = KIND.scores(found, {"logits": logits}, FeatureConfig())
    # Walk the tokens: a word begins where a piece begins with a blank.
    expected = [[] for _ in examples]
    for row, number in enumerate(found.example_numbers):
        for position, piece in enumerate(pieces(tokenizer, found, row)):
            if piece.startswith("▁"):
                powers = [math.exp(x) for x in logits[row][position]]
                expected[number].append([p / sum(powers) for p in powers])
    for words, score, rows in zip(sentences, scores, expected, strict=True):
        assert score.shape == (len(words), 3)
        assert score.dtype == np.float32
        np.testing.assert_allclose(score, rows, rtol=1e-5)


def test_labels():
    def labels(text):
        words = tuple(text.split())
        return KIND.labels([WordsExample(words, words, "t.txt:1")])

    assert labels("O B-A I-A") == LABELS
    for tags, message in (
        ("O O", "the training examples have one tag only, 'O'"),
        ("O B-A DT", "the tag 'DT' is neither O nor begins with B-"),
    ):
        message = f"^t.txt:1 and what follows: {message}"
        with pytest.raises(UserError, match=message):
            labels(tags)


def test_an_unknown_tag(tokenizer):
    example = WordsExample(("a", "b"), ("O", "B-B"), "t.txt:7")
    message = "^t.txt:7: expected one of B-A, .* as the tag, got 'B-B' for 'b'."
    with pytest.raises(UserError, match=message):
        features(tokenizer, [example])


EXAMPLES = [
    WordsExample(("Mia", "B.", "sits"), ("B-A", "I-A", "O"), "one"),
    WordsExample(("Ulm",), ("B-A",), "two"),
]
SCORES = [
    np.array([[0.7, 0.2, 0.1], [0.5, 0.25, 0.25], [0, 0, 1]], np.float32),
    np.array([[0.6, 0.3, 0.1]], np.float32),
]


def test_metrics():
    scored = ScoredExamples(EXAMPLES, SCORES, FeatureConfig(), LABELS)
    # Found: two entities of a word and one more; the gold ones: two.
    assert KIND.compute_metrics(scored, {}) == pytest.approx(
        {
            "precision": 1 / 3,
            "recall": 1 / 2,
            "f1": 2 / 5,
            "accuracy": 3 / 4,
            "majority_class_accuracy": 1 / 2,
        }
    )
    table = KIND.table(scored)
    assert table.rows == [["A", "0.3333", "0.5000", "0.4000", "2"]]


def test_metric_names():
    names = ("f1", "precision", "recall", "accuracy")
    assert KIND.metric_names({}, LABELS) == names
    names = ("accuracy", "macro_f1")
    assert KIND.metric_names({}, ["DT", "NN", "O"]) == names


def test_metrics_of_tags_without_entities_are_scikit_learns():
    """Most words may have one tag, of which accuracy is nearly the share."""
    rng, labels = np.random.default_rng(7), ["DT", "NN", "O", "VB"]
    rows = [rng.integers(3, size=(2, n)) for n in (3, 1, 8)]
    examples = [
        WordsExample(("a",) * len(gold), tuple(labels[n] for n in gold))
        for gold, _ in rows
    ]
    scores = [np.eye(4, dtype=np.float32)[given] for _, given in rows]
    scored = ScoredExamples(examples, scores, FeatureConfig(), labels)
    expected = f1_score(*np.concatenate(rows, axis=1), average="macro")
    assert KIND.compute_metrics(scored, {})["macro_f1"] == expected
    sampled = KIND.sampled_metric(scored, {}, "macro_f1")
    assert sampled(np.arange(3)) == pytest.approx(expected)
    gold, given = np.concatenate([rows[2], rows[0], rows[2]], axis=1)
    expected = f1_score(gold, given, average="macro")
    assert sampled(np.array([2, 0, 2])) == pytest.approx(expected)
    assert [row[0] for row in KIND.table(scored).rows] == labels
    assert KIND.table(scored).rows[3][1:] == ["0.0000"] * 3 + ["0"]


def test_classes_are_tags():
    scored = ScoredExamples(EXAMPLES, SCORES, FeatureConfig(), LABELS)
    figure = KIND.figure(scored)
    assert figure.labels == LABELS
    # All words count: the I-A is predicted as a B-A.
    assert figure.counts.tolist() == [[2, 0, 0], [1, 0, 0], [0, 0, 1]]
    assert KIND.constant_prediction(scored) is None


def test_predictions():
    examples = [EXAMPLES[0], WordsExample(("Ulm",), None, "two")]
    scored = ScoredExamples(examples, SCORES, FeatureConfig(), LABELS)
    first, second = KIND.predictions(scored)
    assert first.fields == {
        "words": ["Mia", "B.", "sits"],
        "label": ["B-A", "I-A", "O"],
        "prediction": ["B-A", "B-A", "O"],
        "probabilities": pytest.approx([0.7, 0.5, 1.0]),
    }
    # The error is the second word's, the only wrong one.
    assert (first.location, first.error) == ("one", pytest.approx(0.25))
    assert second.fields["label"] is None
    assert second.fields["prediction"] == ["B-A"]
    assert (second.location, second.error) == ("two", 0.0)
