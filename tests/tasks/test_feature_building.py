"""Features of examples: cached, and built in chunks and processes."""

import dataclasses
import functools
import hashlib
import os

import numpy as np
import pytest

from albert_tf.config import FeatureConfig, UserError, override
from albert_tf.tasks import feature_building
from albert_tf.tasks.examples import Answer, ChoiceExample, Example, Question
from albert_tf.tasks.feature_building import (
    FeatureBuilder,
    arrays_of,
    cached,
    examples_digest,
    features_of,
    unknown_share,
)
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans
from albert_tf.text.tokenizer_base import Tokenizer

EXAMPLES = [
    Example(("the of", "and"), "yes", "a.tsv:2"),
    Example(("and",), "no", "a.tsv:3"),
    Example(("of and the",), None, "a.tsv:4"),
]
CONFIG = FeatureConfig(max_seq_length=16)


class Counted(Classification):
    """Records the number of examples in each chunk."""

    def __init__(self):
        self.parts = []

    def features(self, examples, *arguments, **options):
        self.parts.append(len(examples))
        return super().features(examples, *arguments, **options)


class OtherKind(Counted):
    pass


@pytest.fixture
def logged():
    return []


@pytest.fixture
def builder(tmp_path, tiny_tokenizer, logged):
    return FeatureBuilder(
        Counted(),
        tiny_tokenizer,
        CONFIG,
        ["no", "yes"],
        cache_dir=str(tmp_path / "cache" / "features"),
        log=logged.append,
    )


def files_of(builder):
    return sorted(os.listdir(builder.cache_dir))


def dtypes(features):
    arrays = {"": features.offsets, "of": features.example_numbers}
    arrays |= {**features.sequences, **features.scalars, **features.decoding}
    return {name: values.dtype for name, values in arrays.items()}


def assert_equal(mine, theirs):
    np.testing.assert_equal(*map(dataclasses.asdict, (mine, theirs)))
    assert dtypes(mine) == dtypes(theirs)


def test_cached_features_are_read(builder, logged):
    first = builder.build(EXAMPLES, training=True)
    (name,) = files_of(builder)
    assert_equal(builder.build(EXAMPLES, training=True), first)
    assert builder.kind.parts == [3]
    assert files_of(builder) == [name]
    assert not logged
    # A damaged file is built again.
    path = os.path.join(builder.cache_dir, name)
    with open(path, "r+b") as file:
        file.truncate(100)
    for _ in range(2):
        assert_equal(builder.build(EXAMPLES, training=True), first)
    assert logged == [f"{path} cannot be read; what it held is computed again."]
    assert builder.kind.parts == [3, 3]


def changed(**changes):
    return [dataclasses.replace(EXAMPLES[0], **changes), *EXAMPLES[1:]]


def lengths(**changes):
    return {"config": override(CONFIG, changes)}


@pytest.mark.parametrize(
    ("changes", "examples", "training"),
    [
        ({"labels": ["yes", "no"]}, EXAMPLES, True),
        ({"kind": OtherKind()}, EXAMPLES, True),
        ({"tokenizer": "comma_tokenizer"}, EXAMPLES, True),
        (lengths(max_seq_length=15), EXAMPLES, True),
        ({}, EXAMPLES, False),
        ({}, EXAMPLES[::-1], True),
        ({}, changed(label=None), True),
        # Where a text ends and the next begins is of the key.
        ({}, changed(texts=("the ", "ofand")), True),
    ],
)
def test_the_cache_key_depends_on(
    builder, request, changes, examples, training
):
    builder.build(EXAMPLES, training=True)
    if fixture := changes.get("tokenizer"):
        changes = {"tokenizer": request.getfixturevalue(fixture)}
    other = dataclasses.replace(builder, **changes)
    other.kind.parts.clear()
    other.build(examples, training=training)
    assert other.kind.parts == [len(examples)]
    assert len(files_of(builder)) == 2


def test_the_cache_key_does_not_depend_on(builder):
    builder.build(EXAMPLES, training=True)
    moved = [dataclasses.replace(e, location="b.tsv") for e in EXAMPLES]
    builder.build(moved, training=True)
    for changes in (
        # They decide which answers are given.
        lengths(null_threshold=-2.5),
        lengths(n_best_size=3),
        lengths(max_answer_length=7),
        {"workers": 7},
        {"labels": ("no", "yes")},
    ):
        other = dataclasses.replace(builder, **changes)
        other.build(tuple(EXAMPLES), training=True)
    assert builder.kind.parts == [3]
    assert len(files_of(builder)) == 1


def test_warnings_are_logged(builder, logged):
    class Particular(Counted):
        def warnings(self, examples, *, training):
            if training:
                raise UserError("Nobody learns this.")
            return [f"{len(examples)} are odd.", "Another thing."]

        def feature_warnings(self, examples, features, config):
            return [f"{len(examples) - len(features)} are lost."]

    builder = dataclasses.replace(builder, kind=Particular())
    long = dataclasses.replace(EXAMPLES[0], texts=("the of and " * 9,))
    examples = [long, dataclasses.replace(long, label="no")]
    examples += [Example(("and",), "no")] * 2
    for _ in range(2):
        # Whether they are made, or read.
        assert builder.build(examples, training=False).truncated == [0, 1]
    assert logged == 2 * [
        "4 are odd.",
        "Another thing.",
        "2 of 4 examples were truncated to max_seq_length=16 (first: "
        f"{EXAMPLES[0].location}).",
        "0 are lost.",
    ]
    with pytest.raises(UserError, match="Nobody learns this"):
        builder.build(EXAMPLES, training=True)
    assert builder.kind.parts == [4]
    builder.kind.lengths = "max_choice_length", "doc_stride"
    builder.build(examples, training=False)
    assert (
        "to max_seq_length=16 or max_choice_length=128 (first: " in logged[-2]
    )


def test_texts_that_the_vocabulary_does_not_know(builder, logged, monkeypatch):
    strange = Example(("the of 字 字",), "yes", "a.tsv:7")
    known = [EXAMPLES[0]] * 2
    features = builder.build([*known, strange], training=True)
    share = unknown_share(features, builder.tokenizer)
    assert share == 2 / 12
    assert logged == [
        "WARNING: 17% of the tokens of training are unknown to the model's "
        "vocabulary (first: a.tsv:7), which cannot distinguish them; start "
        "from a model whose vocabulary knows the text: this one extended by "
        "bin.extend_vocab, or another."
    ]
    logged.clear()
    line = "WARNING: half of the pieces"
    monkeypatch.setattr(Tokenizer, "clean_up_warning", lambda self: line)
    builder.build(known, training=True)
    assert logged == [line]
    monkeypatch.undo()
    logged.clear()
    builder.build([*known, strange], training=False)
    builder.build([*known * 30, strange], training=True)
    assert not logged


def test_unknown_choices_have_the_place_of_their_example(builder, logged):
    known = ChoiceExample("the", ("of", "and"), 0, "a.jsonl:1")
    strange = ChoiceExample("the", ("of", "字"), 0, "a.jsonl:2")
    changes = {"kind": MultipleChoice(), **lengths(max_choice_length=8)}
    builder = dataclasses.replace(builder, **changes)
    builder.build([known, strange], training=True)
    assert "(first: a.jsonl:2)" in logged[-1]


def test_digests_do_not_depend_on_the_version_of_python():
    """Which characters `repr` shows changes with Unicode."""
    # A face of Unicode 15, of which Python 3.11 knows nothing.
    question = Question("1", "é?", "\U0001fae8", (Answer("\U0001fae8", 0),), "")
    written = (
        rb"['1', '\xe9?', '\U0001fae8', (Answer(text='\U0001fae8', start=0),)]"
    )
    expected = hashlib.sha256(written * 2).hexdigest()
    assert examples_digest([question] * 2) == expected
    # A lone surrogate is no character of UTF-8, and JSON may hold one.
    assert examples_digest([dataclasses.replace(question, context="\ud800")])


FEATURES = Features(
    sequences={
        "input_ids": np.array([2, 5, 3, 2, 3], np.int32),
        "p_mask": np.array([0, 1, 0, 1, 0], np.int32),
    },
    offsets=np.array([0, 3, 5], np.int64),
    scalars={"label_ids": np.array([1.5], np.float32)},
    padding={"input_ids": 0, "p_mask": 1},
    example_numbers=np.array([4], np.int64),
    choices=2,
    decoding={"words": np.array([-1, 0, 1, -1, -1], np.int32)},
    truncated=[0, 4],
    answer_lengths=[3, 0, -1],
)


@pytest.fixture
def stored(tmp_path, logged):
    """A call that returns features, built or from the file in tmp_path."""
    return functools.partial(
        cached,
        str(tmp_path),
        lambda: ["features"],
        arrays_of=arrays_of,
        value_of=features_of,
        log=logged.append,
    )


def test_a_file_of_features(stored, tmp_path, logged):
    assert stored(lambda: FEATURES) is FEATURES
    (name,) = os.listdir(tmp_path)
    assert_equal(stored(pytest.fail), FEATURES)
    assert os.listdir(tmp_path) == [name] and not logged


def test_damaged_files(stored, tmp_path, logged):
    stored(lambda: FEATURES)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    broken = [b"", content[:-1], b"no zip file", b"\x93NUMPY" + content]
    np.savez(path, **np.load(path), another=np.zeros(1))
    broken.append(path.read_bytes())
    # Any bit may turn: of a header, of the directory, of the values.
    for position in range(0, len(content), 13):
        turned = bytearray(content)
        turned[position] ^= 1 << position % 8
        broken.append(bytes(turned))
    for bad in broken:
        path.write_bytes(bad)
        # A bit of a timestamp is not read.
        assert_equal(stored(lambda: FEATURES), FEATURES)
    line = f"{path} cannot be read; what it held is computed again."
    assert set(logged) == {line}
    assert len(logged) > len(broken) / 4


def test_a_cache_that_cannot_be_written(builder, logged, monkeypatch):
    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(feature_building.np, "savez", full)
    assert len(builder.build(EXAMPLES, training=True)) == 3
    (line,) = logged
    assert "No space left on device; the next run computes it again" in line
    assert line.endswith("(--feature_cache).") and "\n" not in line
    assert files_of(builder) == []


def test_chunks_are_as_the_whole(builder, monkeypatch):
    examples = EXAMPLES * 5
    whole = builder.build(examples, training=True)
    monkeypatch.setattr(feature_building, "_CHUNK", 4)
    builder.kind.parts.clear()
    # Few are built in this process: to start another takes longer.
    builder = dataclasses.replace(builder, workers=8, cache_dir="")
    assert_equal(builder.build(examples, training=True), whole)
    assert builder.kind.parts == [4, 4, 4, 3]


@pytest.mark.slow
def test_processes_build_what_one_builds(tmp_path, tiny_tokenizer, monkeypatch):
    context = "the of and. " * 9
    answers = (Answer("of", 4),)
    examples = [
        Question(str(n), "the?", context, answers[: n % 2], "")
        for n in range(43)
    ]
    monkeypatch.setattr(feature_building, "_CHUNK", 5)
    config = FeatureConfig(max_seq_length=24, doc_stride=7, max_query_length=9)
    found = set()
    for workers in (1, 2):
        cache = tmp_path / str(workers)
        builder = FeatureBuilder(
            AnswerableSpans(), tiny_tokenizer, config, [], workers, str(cache)
        )
        builder.build(examples, training=False)
        (path,) = cache.iterdir()
        found.add((path.name, path.read_bytes()))
    # One name, and equal to the byte.
    assert len(found) == 1
