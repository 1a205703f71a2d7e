"""Questions: spans from outputs, predictions, warnings and figures."""

import dataclasses
import re

import numpy as np
import pytest
from question_fixtures import SMALL, TEXT, build, question

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Question
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.span_answers import QuestionScores

UNLABELLED = Question("u", "who", "One", None, "place of u")


def test_unlabelled_questions():
    message = r"place of u has no gold answer; .* SQuAD 2\.0"
    for kind in (Spans(), AnswerableSpans()):
        assert not kind.has_label(UNLABELLED)
        rows = build(kind, [UNLABELLED])
        assert rows.scalars["start_positions"].tolist() == [0]
        with pytest.raises(UserError, match=message):
            build(kind, [UNLABELLED], training=True)
    assert AnswerableSpans().has_label(question("One"))
    assert not Spans().has_label(question("One"))


def test_wrong_offsets():
    """Are corrected; answers that are nowhere are refused in training."""
    wrong = question("One. Two. One.", ("Six", 5))
    off = question("One. Two. One.", ("One", 9))
    rows = build(AnswerableSpans(), [wrong])
    assert rows.scalars["is_impossible"].tolist() == [1]
    # Before any features are built, or read from the cache.
    with pytest.raises(UserError, match="answers of 1 questions .*of q"):
        Spans().warnings([wrong], training=True)
    assert Spans().warnings([wrong, off], training=False) == [
        "1 questions have an answer that is not at its answer_start; its "
        "nearest occurrence is used, also with other case, accents or spaces: "
        "place of q.",
        "1 questions have an answer that is not in the paragraph: place of q.",
    ]
    assert len(Spans().warnings([off], training=True)) == 1
    # The whole place, however long: the file cannot be mended without it.
    place = f"{'a/' * 60}train.json: data[0].paragraphs[1].qas[2]"
    long = dataclasses.replace(wrong, location=place)
    (line,) = Spans().warnings([long], training=False)
    assert line.endswith(f"paragraph: {place}.")
    rows = build(Spans(), [off])
    (start,) = rows.scalars["start_positions"]
    assert rows.row(0, "char_starts")[start] == 10


@pytest.mark.parametrize(
    "text", [{"question": " "}, {"context": "\n", "answers": ()}]
)
def test_empty_texts_are_reported(text):
    empty = dataclasses.replace(question("One. Two."), **text)
    lines = AnswerableSpans().warnings([empty], training=True)
    message = (
        "1 questions have no text, or none in their paragraph: place of q."
    )
    assert lines == [message]


CONTEXTS = [TEXT, "One word,  two words", "", TEXT[::-1]]


def asked(n_best_size=6, max_answer_length=4):
    questions = [question(c, id_=str(n)) for n, c in enumerate(CONTEXTS)]
    config = dataclasses.replace(
        SMALL, n_best_size=n_best_size, max_answer_length=max_answer_length
    )
    return questions, config


def best_by_loop(candidates, questions, features, config):
    """The best spans of (row, first token, last token, score)."""
    best = [{} for _ in questions]
    for row, first, last, score in candidates:
        starts, ends, chosen = (
            features.row(row, name)
            for name in ("char_starts", "char_ends", "max_context")
        )
        if max(first, last) >= len(starts):
            continue
        if starts[first] < 0 or starts[last] < 0 or not chosen[first]:
            continue
        if not 0 <= last - first < config.max_answer_length:
            continue
        number = features.example_numbers[row]
        context = questions[number].context
        text = context[starts[first] : ends[last]]
        if not text:
            continue
        assert text == text.strip()
        key = (starts[first], ends[last])
        best[number][key] = max(score, best[number].get(key, -np.inf))
    return [
        sorted(((*k, s) for k, s in spans.items()), key=lambda x: -x[2])[
            : config.n_best_size
        ]
        for spans in best
    ]


@pytest.mark.parametrize(
    ("n_best_size", "max_answer_length"), [(1, 40), (6, 4), (500, 1), (500, 40)]
)
def test_spans_by_loop(n_best_size, max_answer_length):
    questions, config = asked(n_best_size, max_answer_length)
    kind, rng = Spans(), np.random.default_rng(5)
    features = build(kind, questions, config)
    shape = (len(features), 30)
    outputs = {
        name: list(rng.normal(size=shape).astype(np.float32))
        for name in ("start_logits", "end_logits")
    }
    candidates = []
    for row in range(len(features)):
        start, end = (outputs[n][row].tolist() for n in outputs)
        # Only tokens are searched, not the padding.
        tokens = range(len(features.row(row, "input_ids")))
        for i in sorted(tokens, key=lambda i: -start[i])[:n_best_size]:
            for j in sorted(tokens, key=lambda j: -end[j])[:n_best_size]:
                candidates.append((row, i, j, start[i] + end[j]))
    found = kind.scores(features, outputs, config)
    expected = best_by_loop(candidates, questions, features, config)
    assert [list(scores.spans) for scores in found] == expected
    assert all(scores.no_answer is None for scores in found)
    if n_best_size > 1 and max_answer_length > 1:
        assert [bool(spans) for spans in expected] == [True, True, False, True]


def test_answerable_spans_by_loop():
    questions, config = asked()
    kind, rng = AnswerableSpans(), np.random.default_rng(6)
    features = build(kind, questions, config)
    rows, k, m = len(features), 7, 9
    outputs = {
        "start_top_log_probs": rng.normal(size=(rows, k)),
        # Some are in the padding: no row has 30 tokens.
        "start_top_positions": rng.integers(0, 30, (rows, k)),
        "end_top_log_probs": rng.normal(size=(rows, k, m)),
        "end_top_positions": rng.integers(0, 30, (rows, k, m)),
        "unanswerable_logits": rng.normal(size=rows),
    }
    start_scores, starts, end_scores, ends, logits = outputs.values()
    candidates = [
        (
            row,
            starts[row, i],
            ends[row, i, j],
            start_scores[row, i] + end_scores[row, i, j],
        )
        for row, i, j in np.ndindex(rows, k, m)
    ]
    found = kind.scores(features, outputs, config)
    expected = best_by_loop(candidates, questions, features, config)
    assert [list(scores.spans) for scores in found] == expected
    assert sum(map(len, expected)) > 10
    for number, scores in enumerate(found):
        own = logits[features.example_numbers == number]
        assert scores.no_answer == min(own)


def reported(lengths, **settings):
    kind, config = Spans(), FeatureConfig(**settings)
    questions = [question("x", "x", id_=str(n)) for n in range(len(lengths))]
    features = build(kind, questions, config)
    features = dataclasses.replace(features, answer_lengths=lengths)
    return kind.feature_warnings(questions, features, config)


def test_answers_that_cannot_be_predicted_are_reported():
    assert reported([30, 0, 1]) == []
    assert reported([30, 0, 35, -1, -1, -1]) == [
        "4 of 5 gold answers (80.00%) cannot be predicted, the first place of "
        "2: 1 longer than max_answer_length=30 tokens (35 has room for 99 %); "
        "3 not of whole tokens, or whole in no window that predicts from their "
        "first token (max_seq_length=512, doc_stride=128; fine-tuning with a "
        "lower --doc_stride or a longer --max_seq_length has more of them)."
    ]

    # 99 % of those that any length has room for.
    (line,) = reported([1] * 90 + [40] * 8 + [55, 90] + [-1] * 150)
    assert "(55 has room for 99 %)" in line
    (line,) = reported([1] * 198 + [55, 90])
    assert "(30 has room for 99 %)" in line


def test_predictions_for_people():
    questions = [
        question("One. Two.", "Two", id_="right"),
        question("One. Two.", "One", id_="wrong"),
        question("One. Two.", id_="none"),
        UNLABELLED,
    ]
    scores = [QuestionScores(((5, 8, 3.0), (0, 3, 3.0)), None)] * 3
    scores = [*scores, QuestionScores((), None)]
    found = Spans().predictions(ScoredExamples(questions, scores, SMALL, []))
    assert [p.fields["prediction"] for p in found] == ["Two"] * 3 + [""]
    assert [p.error for p in found] == [0.0, 0.5, 0.5, 0.0]
    assert found[1].location == "place of wrong"
    assert found[1].fields == {
        "id": "wrong",
        "question": "who is it",
        "context": "One. Two.",
        "answers": ["One"],
        "prediction": "Two",
        "probability": 0.5,
    }
    assert "answers" not in found[3].fields

    # Between an answer and none the threshold decides.
    scores = [QuestionScores(((5, 8, 3.0),), 0.0)]
    for threshold, answer, error in ((-1.0, "", 0.5), (0.0, "Two", 0.0)):
        config = dataclasses.replace(SMALL, null_threshold=threshold)
        scored = ScoredExamples(questions[:1], scores, config, [])
        (row,) = AnswerableSpans().predictions(scored)
        assert row.fields["prediction"] == answer
        assert (row.fields["probability"], row.error) == (0.5, error)


def test_figure_of_answers():
    context = "One or two words. Three."
    questions = [
        question(context, "One", id_="right"),
        # The best of several gold answers counts.
        question(context, "Three", "One or", id_="in part"),
        question(context, "Three", id_="wrong"),
        question(context, "Three", id_="no span"),
    ]
    one, three = (0, 3), (18, 23)
    rows = [
        QuestionScores(((*one, 2.0), (*three, 1.0)), None),
        QuestionScores(((*one, 3.0), (*three, 3.0)), None),
        QuestionScores(((*one, 0.0),), None),
        QuestionScores((), None),
    ]
    figure = Spans().figure(
        ScoredExamples(questions, rows, FeatureConfig(), [])
    )
    assert figure.measure == "probability of the answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    right = pytest.approx(1 / (1 + np.exp(-1.0)))
    assert groups == {"right": [right], "in part": [0.5], "wrong": [1.0]}


def test_figure_of_no_answer_scores():
    questions = [question("One", *golds) for golds in (["One"], [], ["One"])]
    rows = [QuestionScores((), none) for none in (-3.0, 2.0, 0.5)]
    scored = ScoredExamples(questions, rows, FeatureConfig(), [])
    figure = AnswerableSpans().figure(scored)
    assert figure.measure == "score of there being no answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"with an answer": [-3.0, 0.5], "without": [2.0]}


def test_constant_prediction():
    span = ((0, 3, 1.0),)
    config = dataclasses.replace(SMALL, null_threshold=0.5)
    # Without a span there is no answer, whatever the odds.
    rows = [QuestionScores(span, 0.6), QuestionScores((), -9.0)]
    find = AnswerableSpans().constant_prediction
    assert find(ScoredExamples([], rows, config, [])) == "no answer"
    # A number on the threshold means an answer.
    higher = dataclasses.replace(config, null_threshold=0.6)
    assert find(ScoredExamples([], rows, higher, [])) is None


def test_with_a_tokenizer_of_ours(tiny_tokenizer, sentences):
    """Labels cover the word, and what shares its sub-tokens."""
    context = "  ".join(sentences[:40])
    words = dict.fromkeys(re.findall(r"\w+", context))
    questions = [question(context, word, id_=word) for word in words]
    config = FeatureConfig(
        max_seq_length=60, max_query_length=16, doc_stride=20
    )
    features = build(Spans(), questions, config, tokenizer=tiny_tokenizer)
    cut = {}
    for row, first in enumerate(features.scalars["start_positions"]):
        if first:
            last = features.scalars["end_positions"][row]
            start = features.row(row, "char_starts")[first]
            end = features.row(row, "char_ends")[last]
            cut[features.example_numbers[row]] = context[start:end]
    assert len(cut) == len(words) > 100
    for number, word in enumerate(words):
        assert word in cut[number] and " " not in cut[number]
