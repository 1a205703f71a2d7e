"""Questions: windows as in the original's run_squad, spans, predictions."""

import collections
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Answer, Question
from albert_tf.tasks.kinds import span_windows
from albert_tf.tasks.kinds.base import Answers
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.span_answers import QuestionScores
from albert_tf.tasks.metrics.squad import normalize_answer

Encoding = collections.namedtuple("Encoding", "ids starts ends")
# A piece is up to three characters and their accents, with one white space
# in front; a line's end is a piece that no character is of.
_PIECE = re.compile(
    r"(?P<end>\n)|\s?(?:[^\s\u0300-\u036f][\u0300-\u036f]*){1,3}"
)


class FakeTokenizer:
    """Has the contract of `Tokenizer`, as far as windows need it."""

    pad_id, cls_id, sep_id = 0, 2, 3

    def __init__(self):
        self.numbers = {}
        self.calls = collections.Counter()

    def encode_with_offsets(self, text):
        self.calls[text] += 1
        ids, starts, ends = [], [], []
        for match in _PIECE.finditer(text):
            piece = match.group()
            ids.append(self.numbers.setdefault(piece, 10 + len(self.numbers)))
            starts.append(match.start())
            ends.append(match.start() if match["end"] else match.end())
        return Encoding(ids, starts, ends)

    def encode_batch(self, texts):
        return [self.encode_with_offsets(text).ids for text in texts]


def question(context, *answers, text="who is it", id_="q"):
    golds = tuple(
        Answer(a, context.index(a)) if isinstance(a, str) else Answer(*a)
        for a in answers
    )
    return Question(id_, text, context, golds, f"place of {id_}")


SMALL = FeatureConfig(max_seq_length=24, max_query_length=4, doc_stride=5)
TEXT = (
    "Ünïted  Nations\u00a0met in\n\nKöln — 😀 e\u0301te\u0301 — "
    "and\tthen, 3.5 years later, again in São Paulo; nobody came to the end."
)


def rows_by_loop(question, tokenizer, config):
    """The rows as google-research/albert's loops make them, in lists."""
    query = tokenizer.encode_with_offsets(question.question).ids
    query = query[: config.max_query_length]
    tokens = tokenizer.encode_with_offsets(question.context)
    room = config.max_seq_length - len(query) - 3
    spans, start = [], 0
    while start < len(tokens.ids) or not spans:
        length = min(len(tokens.ids) - start, room)
        spans.append((start, length))
        if start + length == len(tokens.ids):
            break
        start += min(length, config.doc_stride)
    of_answer = []
    if question.answers:
        first = question.answers[0]
        for number, (a, b) in enumerate(
            zip(tokens.starts, tokens.ends, strict=True)
        ):
            wanted = range(first.start, first.start + len(first.text))
            if any(
                i in wanted and not question.context[i].isspace()
                for i in range(a, b)
            ):
                of_answer.append(number)
    for own, (start, length) in enumerate(spans):
        row = {
            "input_ids": [tokenizer.cls_id, *query, tokenizer.sep_id],
            "segment_ids": [0] * (len(query) + 2),
            "p_mask": [0] + [1] * (len(query) + 1),
            "max_context": [0] * (len(query) + 2),
            "char_starts": [-1] * (len(query) + 2),
            "char_ends": [-1] * (len(query) + 2),
        }
        for i in range(start, start + length):
            scores = [
                min(i - s, s + n - 1 - i) + 0.01 * n if s <= i < s + n else -1
                for s, n in spans
            ]
            piece = question.context[tokens.starts[i] : tokens.ends[i]]
            stripped = len(piece) - len(piece.lstrip())
            row["input_ids"].append(tokens.ids[i])
            row["segment_ids"].append(1)
            row["p_mask"].append(0)
            row["max_context"].append(int(scores.index(max(scores)) == own))
            row["char_starts"].append(tokens.starts[i] + stripped)
            row["char_ends"].append(tokens.ends[i])
        for name, value in (
            ("input_ids", tokenizer.sep_id),
            ("segment_ids", 1),
            ("p_mask", 1),
            ("max_context", 0),
            ("char_starts", -1),
            ("char_ends", -1),
        ):
            row[name].append(value)
        inside = of_answer and all(
            start <= i < start + length for i in of_answer
        )
        move = len(query) + 2 - start
        row["start_positions"] = of_answer[0] + move if inside else 0
        row["end_positions"] = of_answer[-1] + move if inside else 0
        row["is_impossible"] = int(not inside)
        yield row


def check_against_loop(questions, config):
    tokenizer = FakeTokenizer()
    features = AnswerableSpans().features(
        questions, tokenizer, config, training=False
    )
    expected = [
        (number, row)
        for number, question in enumerate(questions)
        for row in rows_by_loop(question, tokenizer, config)
    ]
    assert features.example_numbers.tolist() == [n for n, _ in expected]
    for i, (_, row) in enumerate(expected):
        for name, wanted in row.items():
            if name in features.scalars:
                assert features.scalars[name][i] == wanted, (name, i)
                continue
            found = features.row(i, name).tolist()
            if name in ("char_starts", "char_ends"):
                # Of a piece that no character is of any empty span will do.
                ends = features.row(i, "char_ends")
                empty = features.row(i, "char_starts") >= ends
                inside = np.array(row["p_mask"]) == 0
                inside[0] = False
                wanted = np.where(empty & inside, found, wanted).tolist()
            assert found == wanted, (name, i)
    return features


ANSWERS = [
    "Ünïted",
    "Köln",
    "in\n\nKöln",
    "😀",
    "e\u0301te\u0301",
    "the end.",
    "3.5",
    "São Paulo",
    "o",
    "met in\n\nKöln — 😀 e\u0301te\u0301 — and\tthen, 3.5 years later, again",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_windows_are_those_of_the_original(answer):
    features = check_against_loop([question(TEXT, answer)], SMALL)
    assert len(features) > 3
    whole = features.scalars["is_impossible"] == 0
    # The last answer is longer than any window.
    assert whole.any() == (len(answer) < 30)
    for row in np.flatnonzero(whole):
        start, end = (
            features.row(row, name)[features.scalars[position][row]]
            for name, position in (
                ("char_starts", "start_positions"),
                ("char_ends", "end_positions"),
            )
        )
        found = TEXT[start:end]
        assert answer in found
        # Only the rest of the pieces at both ends is more.
        assert len(found) <= len(answer) + 4 and found == found.strip()


@pytest.mark.parametrize("stride", [100, 128, 999])
def test_windows_of_the_usual_length(stride):
    """The last one is shorter by so much that it counts for max_context."""
    config = FeatureConfig(max_seq_length=384, doc_stride=stride)
    contexts = ["abc " * number for number in (377, 378, 390, 410, 1200)]
    check_against_loop(
        [question(c, "c a", id_=str(len(c))) for c in contexts], config
    )


@settings(max_examples=60, deadline=None)
@given(
    context=st.text(alphabet="ab é\u0301 \n😀\u00a0.", max_size=120),
    text=st.text(alphabet="ab \u0301", max_size=20),
    stride=st.integers(1, 30),
    length=st.integers(15, 40),
    data=st.data(),
)
def test_any_windows(context, text, stride, length, data):
    config = FeatureConfig(
        max_seq_length=length, max_query_length=4, doc_stride=stride
    )
    start = data.draw(st.integers(0, len(context)))
    answer = context[start : data.draw(st.integers(start, len(context)))]
    answers = [(answer, start)] if answer.strip() else []
    check_against_loop(
        [
            question(context, *answers, text=text),
            question("aab", text=text, id_="r"),
        ],
        config,
    )


def test_a_paragraph_is_tokenized_once():
    tokenizer = FakeTokenizer()
    Spans().features(
        [question(TEXT, "Köln", id_=str(n)) for n in range(5)],
        tokenizer,
        SMALL,
        training=True,
    )
    assert tokenizer.calls[TEXT] == 1


def test_names_of_features():
    questions = [question("One. Two.", "Two"), question("Three", id_="r")]
    rows = Spans().features(questions, FakeTokenizer(), SMALL, training=False)
    assert set(rows.sequences) == {"input_ids", "segment_ids"}
    assert set(rows.scalars) == {"start_positions", "end_positions"}
    rows = AnswerableSpans().features(
        questions, FakeTokenizer(), SMALL, training=True
    )
    assert rows.decoding == {}
    batch = rows.batch(np.array([1, 0]), 20)
    assert set(batch) == {
        *("input_ids", "segment_ids", "p_mask", "input_mask"),
        *("start_positions", "end_positions", "is_impossible"),
    }
    assert {values.dtype for values in batch.values()} == {np.dtype("int32")}
    assert batch["is_impossible"].tolist() == [1, 0]
    # No answer is in the padding.
    assert (batch["p_mask"] >= 1 - batch["input_mask"]).all()
    assert not batch["segment_ids"][batch["input_mask"] == 0].any()


def test_empty_paragraphs_have_one_row():
    questions = [
        question("", text=""),
        question(" \u2003", id_="r"),
        question("One", "One", text="", id_="s"),
    ]
    rows = AnswerableSpans().features(
        questions, FakeTokenizer(), SMALL, training=True
    )
    assert rows.example_numbers.tolist() == [0, 1, 2]
    assert rows.row(0, "input_ids").tolist() == [2, 3, 3]
    assert rows.row(1, "input_ids").tolist()[-2:] == [3, 3]
    assert rows.scalars["is_impossible"].tolist() == [1, 1, 0]
    assert rows.scalars["start_positions"].tolist() == [0, 0, 2]


def test_long_questions_are_truncated():
    questions = [
        question("One", "One", text="aaabbbcccdddeee"),
        question("One", "One", text="aaabbbcccddd", id_="r"),
    ]
    rows = Spans().features(questions, FakeTokenizer(), SMALL, training=True)
    assert rows.truncated == [0]
    assert len(rows.row(0, "input_ids")) == 4 + 3 + 1
    np.testing.assert_equal(rows.row(0, "input_ids"), rows.row(1, "input_ids"))


def test_an_answer_without_tokens_is_in_no_window():
    """The fake tokenizer drops accents that stand alone."""
    rows = AnswerableSpans().features(
        [question("\u0301\u0301 One", "\u0301")],
        FakeTokenizer(),
        SMALL,
        training=True,
    )
    assert rows.scalars["is_impossible"].tolist() == [1]
    assert rows.truncated == [0]


LONG_QUESTION = "aaabbbcccdddeee"


@pytest.mark.parametrize(
    ("answers", "text", "truncated"),
    [
        (["Köln"], "who is it", 0),
        # Whole in one window of several.
        (["again in São"], "who is it", 0),
        (ANSWERS[-1:], "who is it", 1),
        # Truncated in two ways, counted once.
        (ANSWERS[-1:], LONG_QUESTION, 1),
        (["Köln"], LONG_QUESTION, 1),
        # The label is the first of them.
        ([ANSWERS[-1], "Köln"], "who is it", 1),
        (["Köln", ANSWERS[-1]], "who is it", 0),
        # Answers that are not there are not lost.
        ([], "who is it", 0),
        ([("Rome", 3)], "who is it", 0),
    ],
)
def test_answers_in_no_window_are_counted(answers, text, truncated):
    wanted = question(TEXT, *answers, text=text, id_="wanted")
    others = [question("One", "One", id_=str(n)) for n in range(2)]
    for kind in (Spans(), AnswerableSpans()):
        rows = kind.features(
            [others[0], wanted, others[1]],
            FakeTokenizer(),
            SMALL,
            training=False,
        )
        assert rows.truncated == [1] * truncated


def test_a_sequence_length_that_is_too_short():
    config = FeatureConfig(max_seq_length=74)
    with pytest.raises(
        UserError,
        match="max_seq_length is 74, .*max_query_length=64.* to 75 or",
    ):
        Spans().features([question("One")], None, config, training=False)
    config = dataclasses.replace(config, max_seq_length=75)
    Spans().features([question("One")], FakeTokenizer(), config, training=False)


UNLABELLED = Question("u", "who", "One", None, "place of u")


def test_unlabelled_questions():
    tokenizer = FakeTokenizer()
    for kind in (Spans(), AnswerableSpans()):
        assert not kind.has_label(UNLABELLED)
        assert kind.has_label(question("One", "One"))
        rows = kind.features([UNLABELLED], tokenizer, SMALL, training=False)
        assert rows.scalars["start_positions"].tolist() == [0]
        with pytest.raises(UserError, match="place of u"):
            kind.features([UNLABELLED], tokenizer, SMALL, training=True)
    assert AnswerableSpans().has_label(question("One"))
    assert not Spans().has_label(question("One"))
    with pytest.raises(UserError, match=r"place of q has no answer; .* 2\.0"):
        Spans().features([question("One")], tokenizer, SMALL, training=True)
    AnswerableSpans().features(
        [question("One")], tokenizer, SMALL, training=True
    )


def test_wrong_offsets():
    """Are corrected; answers that are nowhere are refused in training."""
    wrong = question("One. Two. One.", ("Six", 5))
    tokenizer = FakeTokenizer()
    with pytest.raises(UserError, match="answers of 1 questions .*place of q"):
        Spans().features([wrong], tokenizer, SMALL, training=True)
    rows = AnswerableSpans().features([wrong], tokenizer, SMALL, training=False)
    assert rows.scalars["is_impossible"].tolist() == [1]
    for kind in (Spans(), AnswerableSpans()):
        # Before any features are built, or read from the cache.
        with pytest.raises(UserError, match="answers of 1 questions .*of q"):
            kind.warnings([wrong], training=True)
        (said,) = kind.warnings([wrong], training=False)
        assert said == (
            "1 questions have an answer that is not in the paragraph: place of "
            "q."
        )
    off = question("One. Two. One.", ("One", 9))
    for training in (True, False):
        (said,) = Spans().warnings([off], training=training)
        assert said.endswith("its nearest occurrence is used: place of q.")
    rows = Spans().features([off], tokenizer, SMALL, training=False)
    (start,) = rows.scalars["start_positions"]
    assert rows.row(0, "char_starts")[start] == 10


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


@pytest.mark.parametrize("n_best_size", [1, 6, 500])
@pytest.mark.parametrize("max_answer_length", [1, 4, 40])
def test_spans_by_loop(n_best_size, max_answer_length):
    questions, config = asked(n_best_size, max_answer_length)
    kind, rng = Spans(), np.random.default_rng(5)
    features = kind.features(questions, FakeTokenizer(), config, training=False)
    shape = (len(features), 30)
    outputs = {
        name: list(rng.normal(size=shape).astype(np.float32))
        for name in ("start_logits", "end_logits")
    }
    candidates = []
    for row in range(len(features)):
        start, end = (outputs[n][row].tolist() for n in outputs)
        # Of the tokens, not of the padding.
        tokens = range(len(features.row(row, "input_ids")))
        for i in sorted(tokens, key=lambda i: -start[i])[:n_best_size]:
            for j in sorted(tokens, key=lambda j: -end[j])[:n_best_size]:
                candidates.append((row, i, j, start[i] + end[j]))
    found = kind.scores(questions, features, outputs, config)
    expected = best_by_loop(candidates, questions, features, config)
    assert [list(scores.spans) for scores in found] == expected
    assert all(scores.no_answer is None for scores in found)
    if n_best_size > 1 and max_answer_length > 1:
        assert [bool(spans) for spans in expected] == [True, True, False, True]


def test_answerable_spans_by_loop():
    questions, config = asked()
    kind, rng = AnswerableSpans(), np.random.default_rng(6)
    features = kind.features(questions, FakeTokenizer(), config, training=False)
    rows, k, m = len(features), 7, 9
    outputs = {
        "start_top_log_probs": rng.normal(size=(rows, k)),
        # Some are in the padding: no row has 30 tokens.
        "start_top_positions": rng.integers(0, 30, (rows, k)),
        "end_top_log_probs": rng.normal(size=(rows, k, m)),
        "end_top_positions": rng.integers(0, 30, (rows, k, m)),
        "unanswerable_logits": rng.normal(size=rows),
    }
    candidates = [
        (
            row,
            outputs["start_top_positions"][row, i],
            outputs["end_top_positions"][row, i, j],
            outputs["start_top_log_probs"][row, i]
            + outputs["end_top_log_probs"][row, i, j],
        )
        for row in range(rows)
        for i in range(k)
        for j in range(m)
    ]
    lists = {name: list(values) for name, values in outputs.items()}
    found = kind.scores(questions, features, lists, config)
    expected = best_by_loop(candidates, questions, features, config)
    assert [list(scores.spans) for scores in found] == expected
    assert sum(map(len, expected)) > 10
    logits = outputs["unanswerable_logits"]
    for number, scores in enumerate(found):
        assert scores.no_answer == min(
            logits[features.example_numbers == number]
        )


def shortest_by_loop(question, features, rows):
    """The tokens of the shortest span that the decoder takes and that matches
    a gold answer; None where there is none."""
    golds = {normalize_answer(answer.text) for answer in question.answers}
    lengths = set()
    for row in rows:
        starts, ends, chosen = (
            features.row(row, name)
            for name in ("char_starts", "char_ends", "max_context")
        )
        for first in np.flatnonzero(chosen):
            for last in range(first, len(starts)):
                start, end = starts[first], ends[last]
                text = question.context[start:end]
                if start < end and normalize_answer(text) in golds:
                    lengths.add(last - first + 1)
    return min(lengths, default=None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("bcd", min_size=1, max_size=9), min_size=1, max_size=20),
    st.integers(1, 20),
    st.integers(15, 30),
    st.data(),
)
def test_lengths_of_answers_by_loop(words, stride, length, data):
    context = " ".join(words)
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    asked = question(context, (context[start:end], start))
    config = dataclasses.replace(
        SMALL, max_seq_length=length, doc_stride=stride
    )
    features = Spans().features(
        [asked], FakeTokenizer(), config, training=False
    )
    (found,) = features.answer_lengths
    expected = shortest_by_loop(asked, features, range(len(features)))
    assert (found if found > 0 else None) == expected


@pytest.mark.parametrize(
    ("answers", "length"),
    [
        ([], 0),
        (["Köln"], 2),
        # The shortest of several, and of several places the one that fits.
        (["met in\n\nKöln", "Köln"], 2),
        # Without articles and punctuation.
        (["nobody came to the end."], 7),
        (["ears"], span_windows.NOT_OF_TOKENS),
        ([("Rome", 3)], span_windows.NOT_OF_TOKENS),
        # Longer than every window.
        (ANSWERS[-1:], span_windows.IN_NO_WINDOW),
    ],
)
def test_lengths_of_answers(answers, length):
    features = AnswerableSpans().features(
        [question(TEXT, *answers)], FakeTokenizer(), SMALL, training=False
    )
    assert features.answer_lengths == [length]


def reported(lengths, **settings):
    kind, config = Spans(), FeatureConfig(**settings)
    questions = [question("x", "x", id_=str(n)) for n in range(len(lengths))]
    features = kind.features(questions, FakeTokenizer(), config, training=False)
    features = dataclasses.replace(features, answer_lengths=lengths)
    return kind.feature_warnings(questions, features, config)


def test_answers_that_cannot_be_predicted_are_reported():
    assert reported([30] * 5) == []
    assert reported([0] * 5 + [1]) == []
    assert reported([30, 0, 35, -2, -1, -1]) == [
        "4 of 5 gold answers (80.00%) cannot be predicted, the first place of "
        "2: 1 longer than max_answer_length=30 tokens (max_answer_length=35 "
        "has room for 99 %); 2 whole in no window that predicts from their "
        "first token (max_seq_length=512, doc_stride=128); 1 not in the "
        "paragraph, or a part of a token."
    ]


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        # 99 % of those that any length has room for.
        ([1] * 90 + [40] * 8 + [55] + [90] + [-1], "=55 has room for 99 %"),
        ([1] * 198 + [55, 90], "=90 has room for all"),
    ],
)
def test_the_length_that_has_room_for_most_answers(lengths, said):
    (line,) = reported(lengths)
    assert f"(max_answer_length{said})" in line


@pytest.mark.parametrize("answer", ANSWERS[:-1])
def test_predictions_from_labels_as_logits(answer):
    """The labels as logits give the answer, and what is next to it."""
    questions = [question(TEXT, answer)]
    config = dataclasses.replace(SMALL, max_answer_length=12)
    kind = Spans()
    features = kind.features(questions, FakeTokenizer(), config, training=False)
    starts, ends = (
        [10.0 * (np.arange(24) == p) for p in features.scalars[name]]
        for name in ("start_positions", "end_positions")
    )
    outputs = {"start_logits": starts, "end_logits": ends}
    (scores,) = kind.scores(questions, features, outputs, config)
    start, end, _ = scores.spans[0]
    first = TEXT.index(answer)
    assert first - 3 < start <= first
    assert first + len(answer) <= end < first + len(answer) + 4


def test_averaged_question_by_question():
    one = [QuestionScores(((0, 3, 1.0),), 4.0), QuestionScores((), 1.0)]
    two = [QuestionScores(((0, 3, 2.0),), 0.0), QuestionScores((), 2.0)]
    assert AnswerableSpans().ensemble([one, two]) == [
        QuestionScores(((0, 3, 1.5),), 2.0),
        QuestionScores((), 1.5),
    ]


def test_predictions_for_people():
    questions = [
        question("One. Two.", "Two", id_="right"),
        question("One. Two.", "One", id_="wrong"),
        question("One. Two.", id_="none"),
        UNLABELLED,
    ]
    scores = [QuestionScores(((5, 8, 3.0), (0, 3, 3.0)), None)] * 3
    scores = [*scores, QuestionScores((), None)]
    found = Spans().predictions(Answers(questions, scores, SMALL, []))
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
        (row,) = AnswerableSpans().predictions(
            Answers(questions[:1], scores, config, [])
        )
        assert row.fields["prediction"] == answer
        assert row.fields["probability"] == 0.5
        assert row.error == error
        measures = AnswerableSpans().compute_metrics(
            Answers(questions[:1], scores, config, []), {}
        )
        assert measures["exact"] == 100.0 * (answer == "Two")


def test_figure_of_answers():
    context = "One or two words. Three."
    questions = [
        question(context, "One", id_="right"),
        # The best of several gold answers counts.
        question(context, "Three", "One or", id_="in part"),
        question(context, "Three", id_="wrong"),
        question(context, "Three", id_="no span"),
        # Case and points are nothing.
        question(context, "Three.", id_="right, too"),
    ]
    one, three = (0, 3), (18, 23)
    rows = [
        QuestionScores(((*one, 2.0), (*three, 1.0)), None),
        QuestionScores(((*one, 3.0), (*three, 3.0)), None),
        QuestionScores(((*one, 0.0),), None),
        QuestionScores((), None),
        QuestionScores(((*three, 0.0), (*one, -2.0)), None),
    ]
    figure = Spans().figure(Answers(questions, rows, FeatureConfig(), []))
    assert figure.measure == "probability of the answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {
        "right": pytest.approx(
            [1 / (1 + np.exp(-1.0)), 1 / (1 + np.exp(-2.0))]
        ),
        "in part": pytest.approx([0.5]),
        "wrong": [1.0],
    }


def test_figure_of_no_answer_scores():
    questions = [
        question("One", "One", id_="a"),
        question("One", id_="b"),
        question("One", "One", id_="c"),
    ]
    rows = [QuestionScores((), none) for none in (-3.0, 2.0, 0.5)]
    figure = AnswerableSpans().figure(
        Answers(questions, rows, FeatureConfig(), [])
    )
    assert figure.measure == "score of there being no answer"
    groups = {name: list(values) for name, values in figure.groups.items()}
    assert groups == {"with an answer": [-3.0, 0.5], "without": [2.0]}


def test_constant_prediction():
    span = ((0, 3, 1.0),)
    config = dataclasses.replace(SMALL, null_threshold=0.5)
    rows = [
        QuestionScores(span, 0.6),
        QuestionScores(span, 9.0),
        # Without a span there is no answer, whatever the odds.
        QuestionScores((), -9.0),
    ]
    kind = AnswerableSpans()
    assert (
        kind.constant_prediction(Answers([], rows, config, [])) == "no answer"
    )
    # The threshold that the answers are given by, and on it is one.
    higher = dataclasses.replace(config, null_threshold=0.6)
    assert kind.constant_prediction(Answers([], rows, higher, [])) is None
    # Of version 1.1 each has an answer of its own.
    rows = [QuestionScores(span, None)] * 2
    assert Spans().constant_prediction(Answers([], rows, config, [])) is None


def test_with_a_tokenizer_of_ours(tiny_tokenizer, sentences):
    """A word and what shares its pieces is what the label's pieces are of."""
    context = "  ".join(sentences[:40])
    words = dict.fromkeys(re.findall(r"\w+", context))
    questions = [question(context, word, id_=word) for word in words]
    config = FeatureConfig(
        max_seq_length=60, max_query_length=16, doc_stride=20
    )
    features = Spans().features(
        questions, tiny_tokenizer, config, training=False
    )
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
