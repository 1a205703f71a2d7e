"""The graph's ids against those of the same tokenizer in Python."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from awkward_texts import (
    AWKWARD_CHARACTERS,
    AWKWARD_TEXTS,
    CONTEXTS,
    NOTABLE_CODES,
    clean,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from saved_models import foreign_operations

from albert_tf.config import UserError
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.text.in_graph import InGraphTokenizer
from albert_tf.text.normalization import truncate_utf8
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer


@pytest.fixture(
    scope="module",
    params=[
        (kind, lower, accents)
        for kind in ("SentencePiece", "WordPiece")
        for lower, accents in ((True, False), (False, True))
    ],
    ids=str,
)
def pair(request, tiny_tokenizer, wordpiece_pieces):
    """The same tokenizer in Python and in the graph, uncased and cased."""
    kind, lower, accents = request.param
    settings = {"do_lower_case": lower, "keep_accents": accents}
    if kind == "SentencePiece":
        tokenizer = SentencePieceTokenizer(
            tiny_tokenizer.model_bytes, **settings
        )
    else:
        tokenizer = WordPieceTokenizer(wordpiece_pieces, **settings)
    return tokenizer, InGraphTokenizer(tokenizer)


def strings(texts):
    """Returns a string tensor; NumPy's own strings would lose a last NUL."""
    data = [t if isinstance(t, bytes) else t.encode() for t in texts]
    return tf.constant(np.array(data, object))


def normalized(in_graph, texts):
    cleaned = in_graph._clean(in_graph.decode(strings(texts)))
    return [text.decode() for text in cleaned.numpy()]


@pytest.mark.slow
@pytest.mark.parametrize("form", CONTEXTS)
def test_every_code_point_is_cleaned_up_alike(pair, form):
    tokenizer, in_graph = pair
    codes = NOTABLE_CODES if form != "{}" else range(0x110000)
    characters = [chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF]
    # Some hundred to a text, separated, to be quick.
    contexts = [form.format(c) for c in characters]
    texts = [
        "\ue000".join(contexts[i : i + 200])
        for i in range(0, len(contexts), 200)
    ]
    expected = [clean(tokenizer, text) for text in texts]
    for ours, theirs in zip(normalized(in_graph, texts), expected, strict=True):
        assert ours.split("\ue000") == theirs.split("\ue000")


def offsets(tokenizer, texts):
    found = [tokenizer.encode_with_offsets(text) for text in texts]
    return [[row.ids, row.starts, row.ends] for row in found]


def graph_offsets(in_graph, texts):
    rows = in_graph.encode_with_offsets(strings(texts))
    columns = [values.to_list() for values in rows]
    return [list(row) for row in zip(*columns, strict=True)]


@settings(deadline=None, max_examples=20)
@given(
    texts=st.lists(
        st.text() | st.text(AWKWARD_CHARACTERS), min_size=1, max_size=20
    ),
    data=st.binary(),
)
@example(texts=[*AWKWARD_TEXTS, "a\u0301\u0301 \r\n`` ﬁ", "o\ufffda"], data=b"")
def test_any_text(pair, texts, data):
    tokenizer, in_graph = pair
    # Bytes that are not UTF-8 count as U+FFFD.
    decoded = [*texts, data.decode("utf-8", "replace")]
    expected = [clean(tokenizer, text) for text in decoded]
    assert normalized(in_graph, [*texts, data]) == expected
    ids = in_graph(strings([*texts, data]))
    assert ids.dtype == tf.int32
    assert ids.to_list() == tokenizer.encode_batch(decoded)
    assert graph_offsets(in_graph, decoded) == offsets(tokenizer, decoded)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "alphabet"),
    [
        ("comma_tokenizer", "aA789é0, ,8▁"),
        # Ties between segmentations.
        ("tied_tokenizer", "e0 "),
        ("wordpiece_tokenizer", "abunfleigsx8,0# [Éσ中国か한\u0301"),
    ],
)
@settings(deadline=None, max_examples=20)
@given(data=st.data())
@example(data=None)
def test_texts_of_few_characters(request, name, alphabet, data):
    texts = ["eee", "eee eeeee eee", "0" * 50, "a▁ a ▁ 8,"]
    if data:
        strategy = st.text(alphabet, max_size=60)
        texts = data.draw(st.lists(strategy, min_size=1))
    tokenizer = request.getfixturevalue(name)
    in_graph = InGraphTokenizer(tokenizer)
    assert in_graph(strings(texts)).to_list() == tokenizer.encode_batch(texts)
    assert graph_offsets(in_graph, texts) == offsets(tokenizer, texts)


@pytest.mark.parametrize("character", ["a", "é", "か", "😀"])
def test_words_of_many_characters(wordpiece_pieces, character):
    tokenizer = WordPieceTokenizer(
        [*wordpiece_pieces, "##か😀", "##😀"], keep_accents=True
    )
    texts = [
        f"{character * length} b"
        for length in (1, 67, 100, 101, 199, 200, 201, 800, 801, 900)
    ]
    expected = tokenizer.encode_batch(texts)
    assert [len(ids) for ids in expected[:6]] == [2, 68, 101, 102, 200, 201]
    assert expected[6:] == [[tokenizer.unk_id, *tokenizer.encode("b")]] * 4
    assert InGraphTokenizer(tokenizer)(strings(texts)).to_list() == expected


def test_ideographs_need_not_be_words(wordpiece_pieces):
    tokenizer = WordPieceTokenizer(
        wordpiece_pieces, tokenize_chinese_chars=False
    )
    ids = InGraphTokenizer(tokenizer)(strings(["国人 中国,"])).to_list()
    assert tokenizer.pieces(ids[0]) == ["国人", "中", "##国", ","]


def test_long_texts_are_truncated_at_a_character(tiny_tokenizer, monkeypatch):
    texts = ["", "abcd", "abcdefghijklmnopq", "aé€😀b€é", "😀" * 5, "€" * 6]
    in_graph = InGraphTokenizer(tiny_tokenizer)
    (text,) = normalized(in_graph, ["x" * 1_000_000])
    assert len(text) == 20_000
    for max_bytes in range(4, 16):
        monkeypatch.setattr("albert_tf.text.in_graph.MAX_BYTES", max_bytes)
        heads = [truncate_utf8(text, max_bytes) for text in texts]
        expected = tiny_tokenizer.encode_batch(heads)
        assert in_graph(strings(texts)).to_list() == expected


@settings(deadline=None, max_examples=15)
@given(
    texts=st.lists(
        st.tuples(
            st.text(AWKWARD_CHARACTERS) | st.text("abc de"),
            st.text() | st.text("the of and "),
        ),
        min_size=1,
        max_size=8,
    ),
    max_seq_length=st.integers(4, 30),
)
@example(texts=[("", ""), ("the " * 30, "of " * 30)], max_seq_length=8)
def test_texts_and_pairs_are_packed_as_in_training(pair, texts, max_seq_length):
    tokenizer, in_graph = pair
    first, second = (
        in_graph(strings(part)) for part in zip(*texts, strict=True)
    )
    for count, ids in ((1, [first]), (2, [first, second])):
        packed = in_graph.pack(*ids, max_seq_length=max_seq_length)
        features = sequence_features(
            [tokenizer.encode_batch(row[:count]) for row in texts],
            tokenizer,
            max_seq_length,
            {},
        )
        expected = features.batch(np.arange(len(texts)), features.lengths.max())
        assert packed.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(packed[name], values, strict=True)


def test_packed_batches_without_tokens(tiny_tokenizer):
    in_graph = InGraphTokenizer(tiny_tokenizer)
    empty = in_graph(tf.constant([], tf.string))
    assert empty.to_list() == []
    for value in in_graph.pack(empty, max_seq_length=10).values():
        assert value.shape == (0, 2)
    for value in in_graph.pack(empty, empty, max_seq_length=10).values():
        assert value.shape == (0, 3)
    one = in_graph.pack(in_graph(strings([""])), max_seq_length=10)
    assert one["input_ids"].shape == (1, 2)


def test_masks_in_texts(pair):
    tokenizer, in_graph = pair
    texts = ["", "[MASK]", "the [MASK]of[MASK][MASK] and", "[MASK", "é[mask]"]
    expected = [tokenizer.encode_with_masks(text) for text in texts]
    assert in_graph.encode_with_masks(strings(texts)).to_list() == expected


def test_words_are_those_of_str_split(tiny_tokenizer):
    texts = ["", " ", *AWKWARD_TEXTS, "a\x1cb\u2003c\x85"]
    words = InGraphTokenizer(tiny_tokenizer).words(strings(texts)).to_list()
    assert words == [[w.encode() for w in text.split()] for text in texts]


def test_missing_tensorflow_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    for module in ("in_graph", "in_graph_vocabularies"):
        monkeypatch.delitem(sys.modules, f"albert_tf.text.{module}")
    with pytest.raises(UserError, match="pip install tensorflow-text"):
        import albert_tf.text.in_graph  # noqa: F401


# A server has TensorFlow and TensorFlow Text, and none of our code.
SERVER = """
import json, sys
import tensorflow as tf
import tensorflow_text

answers = []
for directory in sys.argv[2:]:
    serve = tf.saved_model.load(directory).signatures["serving_default"]
    answer = serve(texts=tf.constant(json.loads(sys.argv[1]), tf.string))
    answers.append(answer["ids"].numpy().tolist())
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_saved_models_in_a_fresh_process(
    tmp_path, comma_tokenizer, wordpiece_tokenizer
):
    tokenizers = (comma_tokenizer, wordpiece_tokenizer)
    places = [str(tmp_path / "SentencePiece"), str(tmp_path / "WordPiece")]
    for tokenizer, place in zip(tokenizers, places, strict=True):
        module = tf.Module()
        module.tokenizer = InGraphTokenizer(tokenizer)
        serve = tf.function(
            lambda texts, module=module: {
                "ids": module.tokenizer(texts).flat_values
            },
            input_signature=[tf.TensorSpec([None], tf.string, "texts")],
        )
        tf.saved_model.save(module, place, {"serving_default": serve})
    assert [foreign_operations(place) for place in places] == [
        {"NormalizeUTF8", "SentencepieceOp", "SentencepieceTokenizeOp"},
        {"NormalizeUTF8", "WordpieceTokenizeWithOffsets"},
    ]
    texts = ["THE IN OF TITLE I", "8, 18,", "", "Café (8)", "UNABLEÉ 中国"]
    run = subprocess.run(
        [sys.executable, "-c", SERVER, json.dumps(texts), *places],
        check=True,
        capture_output=True,
        cwd=tmp_path,
        # Under a Turkish locale the C library's lower case of I has no dot.
        env={**os.environ, "LC_ALL": "tr_TR.UTF-8"},
    )
    answers = json.loads(run.stdout)
    for tokenizer, answer in zip(tokenizers, answers, strict=True):
        rows = tokenizer.encode_batch(texts)
        assert answer == [i for ids in rows for i in ids]
