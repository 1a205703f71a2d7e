"""Windows of questions, against the loops of the original's run_squad."""

import collections
import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.features import concatenated
from albert_tf.tasks.spans import AnswerableSpans, Spans
from albert_tf.tasks.squad import Answer, Question

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


@settings(max_examples=150, deadline=None)
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


def test_the_windows_put_together_are_the_paragraph():
    questions = [question(TEXT, id_=str(n), text=t) for n, t in enumerate("a ")]
    tokenizer = FakeTokenizer()
    features = Spans().features(questions, tokenizer, SMALL, training=False)
    for number in range(2):
        ids = [
            features.row(row, "input_ids")[
                features.row(row, "max_context") == 1
            ]
            for row in np.flatnonzero(features.example_numbers == number)
        ]
        tokens = tokenizer.encode_with_offsets(TEXT)
        assert np.concatenate(ids).tolist() == tokens.ids


def test_a_paragraph_is_tokenized_once():
    tokenizer = FakeTokenizer()
    Spans().features(
        [question(TEXT, "Köln", id_=str(n)) for n in range(5)],
        tokenizer,
        SMALL,
        training=True,
    )
    assert tokenizer.calls[TEXT] == 1


def test_what_each_kind_gives():
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


def test_nothing_to_read_is_no_question_less():
    """One row for an empty paragraph, and for one of white space."""
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


def test_parts_one_after_another():
    """As several workers make them."""
    questions = [question(TEXT, a, id_=a) for a in ("Köln", "3.5", "😀")]
    # The parts must number tokens alike.
    tokenizer = FakeTokenizer()
    kind = AnswerableSpans()
    whole = kind.features(questions, tokenizer, SMALL, training=False)
    joined = concatenated(
        [
            kind.features(part, tokenizer, SMALL, training=False)
            for part in (questions[:1], questions[1:])
        ]
    )
    for field in dataclasses.fields(whole):
        a, b = getattr(whole, field.name), getattr(joined, field.name)
        np.testing.assert_equal(a, b)


def test_long_questions_are_cut_and_counted():
    questions = [
        question("One", "One", text="aaabbbcccdddeee"),
        question("One", "One", text="aaabbbcccddd", id_="r"),
    ]
    rows = Spans().features(questions, FakeTokenizer(), SMALL, training=True)
    assert rows.num_cut == 1
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


def test_lengths_that_do_not_fit():
    config = FeatureConfig(max_seq_length=74)
    with pytest.raises(
        UserError,
        match="max_seq_length is 74, .*max_query_length=64.* to 75 or",
    ):
        Spans().features([question("One")], None, config, training=False)
    config = dataclasses.replace(config, max_seq_length=75)
    Spans().features([question("One")], FakeTokenizer(), config, training=False)


UNTOLD = Question("u", "who", "One", None, "place of u")


def test_questions_that_do_not_tell():
    tokenizer = FakeTokenizer()
    for kind in (Spans(), AnswerableSpans()):
        assert not kind.is_told(UNTOLD) and kind.is_told(question("One"))
        rows = kind.features([UNTOLD], tokenizer, SMALL, training=False)
        assert rows.scalars["start_positions"].tolist() == [0]
        with pytest.raises(UserError, match="place of u"):
            kind.features([UNTOLD], tokenizer, SMALL, training=True)
    with pytest.raises(UserError, match=r"place of q has no answer; .* 2\.0"):
        Spans().features([question("One")], tokenizer, SMALL, training=True)
    AnswerableSpans().features(
        [question("One")], tokenizer, SMALL, training=True
    )


def test_answers_that_are_not_there():
    """Training is refused, evaluation goes on; offsets that err are mended."""
    wrong = question("One. Two. One.", ("Six", 5))
    tokenizer = FakeTokenizer()
    with pytest.raises(UserError, match="answers of 1 questions .*place of q"):
        Spans().features([wrong], tokenizer, SMALL, training=True)
    rows = AnswerableSpans().features([wrong], tokenizer, SMALL, training=False)
    assert rows.scalars["is_impossible"].tolist() == [1]
    off = question("One. Two. One.", ("One", 9))
    rows = Spans().features([off], tokenizer, SMALL, training=False)
    (start,) = rows.scalars["start_positions"]
    assert rows.row(0, "char_starts")[start] == 10
