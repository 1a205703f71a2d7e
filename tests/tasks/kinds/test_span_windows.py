"""Windows of questions, as in the original's run_squad."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from question_fixtures import (
    ANSWERS,
    SMALL,
    TEXT,
    FakeTokenizer,
    build,
    question,
)

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.span_windows import find_answers
from albert_tf.tasks.metrics.squad import normalize_answer


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
        last = (tokenizer.sep_id, 1, 1, 0, -1, -1)
        for values, value in zip(row.values(), last, strict=True):
            values.append(value)
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
    features = build(AnswerableSpans(), questions, config, tokenizer=tokenizer)
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
                # A piece without characters may have any empty span.
                ends = features.row(i, "char_ends")
                empty = features.row(i, "char_starts") >= ends
                inside = np.array(row["p_mask"]) == 0
                inside[0] = False
                wanted = np.where(empty & inside, found, wanted).tolist()
            assert found == wanted, (name, i)
    return features


@pytest.mark.parametrize("answer", ANSWERS)
def test_windows_are_those_of_the_original(answer):
    features = check_against_loop([question(TEXT, answer)], SMALL)
    assert len(features) > 3
    # The last answer is longer than any window.
    whole = features.scalars["is_impossible"] == 0
    assert whole.any() == (len(answer) < 30)


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
    build(
        Spans(),
        [question(TEXT, "Köln", id_=str(n)) for n in range(5)],
        training=True,
        tokenizer=tokenizer,
    )
    assert tokenizer.calls[TEXT] == 1


def test_names_of_features():
    questions = [question("One. Two.", "Two"), question("Three", id_="r")]
    rows = build(Spans(), questions)
    assert set(rows.sequences) == {"input_ids", "segment_ids"}
    assert set(rows.scalars) == {"start_positions", "end_positions"}
    rows = build(AnswerableSpans(), questions, training=True)
    assert rows.decoding == {}
    batch = rows.batch(np.array([1, 0]), 20)
    assert {values.dtype for values in batch.values()} == {np.dtype("int32")}
    # No answer is in the padding.
    assert (batch["p_mask"] >= 1 - batch["input_mask"]).all()


LONG_QUESTION = "aaabbbcccdddeee"


@pytest.mark.parametrize(
    ("answers", "text", "truncated"),
    [
        # Whole in one window of several.
        (["again in São"], "who is it", 0),
        # Truncated in two ways, counted once.
        (ANSWERS[-1:], LONG_QUESTION, 1),
        (["Köln"], LONG_QUESTION, 1),
        # The label is the first of them.
        ([ANSWERS[-1], "Köln"], "who is it", 1),
        (["Köln", ANSWERS[-1]], "who is it", 0),
        # An answer that is not there is not lost.
        ([("Rome", 3)], "who is it", 0),
    ],
)
def test_answers_in_no_window_are_counted(answers, text, truncated):
    wanted = question(TEXT, *answers, text=text, id_="wanted")
    others = [question("One", "One", id_=str(n)) for n in range(2)]
    for kind in (Spans(), AnswerableSpans()):
        rows = build(kind, [others[0], wanted, others[1]])
        assert rows.truncated == [1] * truncated


def test_a_sequence_length_that_is_too_short():
    config = FeatureConfig(max_seq_length=74)
    message = "max_seq_length=74 has .* max_query_length=64 .* to 75 or more"
    with pytest.raises(UserError, match=message):
        Spans().features([question("One")], None, config, training=False)
    config = dataclasses.replace(config, max_seq_length=75)
    build(Spans(), [question("One")], config)


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
    features = build(Spans(), [asked], config)
    (found,) = features.answer_lengths
    expected = shortest_by_loop(asked, features, range(len(features)))
    assert (found if found > 0 else None) == expected


@pytest.mark.parametrize(
    ("answers", "length"),
    [
        ([], 0),
        # The shortest of several, and of several places the one that fits.
        (["met in\n\nKöln", "Köln"], 2),
        # Without articles and punctuation.
        (["nobody came to the end."], 7),
        (["ears"], -1),
        # Longer than every window.
        (ANSWERS[-1:], -1),
    ],
)
def test_lengths_of_answers(answers, length):
    features = build(AnswerableSpans(), [question(TEXT, *answers)])
    assert features.answer_lengths == [length]


# Offsets of gold answers.

CONTEXT = "An Été in Paris. The été of\u00a0 São Paulo, the été; straße ½."


def found(text, start, context=CONTEXT):
    """The offset of an answer, or another text there; and whether it moved."""
    asked = question(context, (text, start), ("nowhere", 0))
    spans, moved, missing = find_answers([asked])
    if missing == ["place of q"]:
        return None, None
    start, end = spans["q"]
    same = context[start:end] == text.strip()
    return start if same else context[start:end], bool(moved)


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("½.", len(CONTEXT) - 2, (len(CONTEXT) - 2, False)),
        # At its answer_start, though there is another before it.
        ("été", 44, (44, False)),
        # Nearest before and after.
        ("été", 33, (44, True)),
        ("été", 32, (21, True)),
        (" été\n", 44, (44, True)),
        # Python would count a negative start from the end.
        (".", -1, (15, True)),
        # Case, accents, spaces, other forms of one letter.
        ("E\u0301TE\u0301", 48, ("été", True)),
        ("of Sao paulo ", 0, ("of\u00a0 São Paulo", True)),
        ("1⁄2", 0, ("½", True)),
        ("Pariser", 10, (None, None)),
        (" \n", 2, (None, None)),
    ],
)
def test_the_offset_of_an_answer(text, start, expected):
    assert found(text, start) == expected


def test_offsets_of_a_file():
    missing = [question(CONTEXT, ("six", 0), id_=str(n)) for n in range(2)]
    none = question(CONTEXT, id_="none")
    unlabelled = dataclasses.replace(none, answers=None, id="unlabelled")
    right = question(CONTEXT, "An", id_="right")
    expected = {"right": (0, 2)}, [], ["place of 0", "place of 1"]
    assert find_answers([none, unlabelled, right, *missing]) == expected
