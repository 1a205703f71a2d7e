import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.text.in_graph import InGraphTokenizer
from albert_tf.text.normalization import normalize, truncate_utf8
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.wordpiece import split_words
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

HOSTILE = [
    "",
    " ",
    "\0",
    "a\0b\0",
    "\t a \x1c\x85\u2028\u3000 b\r\n",
    "\ufeffBOM and \ufeff inside",
    "``Quoted'' '''three''' ````four````",
    "ΟΔΟΣ ΣΑΣ Σ. ΑΣ\u0301 aΣ'b",
    "İstanbul IĞDIR ı I\u0307",
    "Straße STRASSE ẞ",
    "한국어 \u1112\u1161\u11ab 각",
    "豈更 ㍿ ﷽ ﬁ ½ ㎏ Ⅷ ①",
    "e\u0301\u0327 a\u0327\u0301 \u0301 \u0345\u0301x\u0334\u0323",
    "e" + "\u0301" * 1000,
    "👩‍👩‍👧‍👦 🇩🇪 🫨 👍🏽 ☺️",
    "שלום עולם \u202eabc\u202c مرحبا \u200f",
    "\u200b\u200c\u200d\u2060\u00ad",
    "\ufffd\ufffc\ufdd0\U0010ffff\ue000",
    "a\u00b4b \u00a8 \u1fbf",
    "[CLS] <pad> [MASK] <unk> </s> ▁ ▁a",
    "1,000 8, 18,8, a8, a70, 9,9,9, 8,",
    "\U00010570\u2c2f\ua7c0\U0001e030x\U00010d69",
    "x" * 5000,
]


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


def clean(tokenizer, text):
    """What Python makes of a text before it looks for pieces."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return " ".join(split_words(text, **tokenizer.settings))
    return normalize(text, **tokenizer.settings)


def strings(texts):
    """Returns a string tensor; NumPy's own strings would lose a last NUL."""
    data = [t if isinstance(t, bytes) else t.encode() for t in texts]
    return tf.constant(np.array(data, object))


def normalized(in_graph, texts):
    return [t.decode() for t in in_graph.normalize(strings(texts)).numpy()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["{}", "e{}\u0301\u0345\u0327", "\u0345{}", "aΣ{}", "a{}Σ"]
)
def test_every_code_point_is_cleaned_up_alike(pair, form):
    tokenizer, in_graph = pair
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    # Some hundred to a text, apart from each other, to be quick.
    contexts = [form.format(c) for c in scalars]
    texts = [
        "\ue000".join(contexts[i : i + 200])
        for i in range(0, len(contexts), 200)
    ]
    expected = [clean(tokenizer, text) for text in texts]
    for ours, theirs in zip(normalized(in_graph, texts), expected, strict=True):
        assert ours.split("\ue000") == theirs.split("\ue000")


def test_hostile_texts(pair):
    tokenizer, in_graph = pair
    expected = [clean(tokenizer, text) for text in HOSTILE]
    assert normalized(in_graph, HOSTILE) == expected
    ids = in_graph(strings(HOSTILE))
    assert ids.dtype == tf.int32
    assert ids.to_list() == tokenizer.encode_batch(HOSTILE)


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text(), min_size=1, max_size=20))
def test_any_text(pair, texts):
    tokenizer, in_graph = pair
    expected = [clean(tokenizer, text) for text in texts]
    assert normalized(in_graph, texts) == expected
    assert in_graph(strings(texts)).to_list() == tokenizer.encode_batch(texts)


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text("aA \u0301\u0327'`8,éΣσI\u0307한\0"), min_size=1))
def test_any_text_of_few_awkward_characters(pair, texts):
    tokenizer, in_graph = pair
    expected = [clean(tokenizer, text) for text in texts]
    assert normalized(in_graph, texts) == expected


@settings(deadline=None, max_examples=40)
@given(data=st.binary())
def test_bytes_that_are_not_utf8(pair, data):
    tokenizer, in_graph = pair
    text = data.decode("utf-8", "replace")
    assert in_graph(strings([data])).to_list() == [tokenizer.encode(text)]


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text("aA789é0, ,8"), min_size=1))
def test_comma_after_digit(comma_tokenizer, texts):
    in_graph = InGraphTokenizer(comma_tokenizer)
    expected = [comma_tokenizer.encode(text) for text in texts]
    assert in_graph(strings(texts)).to_list() == expected


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text("e0 ", max_size=60), min_size=1))
@example(texts=["eee", "eee eeeee eee", "0" * 50])
def test_equally_good_ways_through_a_word(tied_tokenizer, texts):
    in_graph = InGraphTokenizer(tied_tokenizer)
    expected = tied_tokenizer.encode_batch(texts)
    assert in_graph(strings(texts)).to_list() == expected


@settings(deadline=None, max_examples=40)
@given(texts=st.lists(st.text("abunfleigsx8,0# [Éσ中国か한\u0301"), min_size=1))
def test_pieces_of_words(wordpiece_tokenizer, texts):
    in_graph = InGraphTokenizer(wordpiece_tokenizer)
    expected = wordpiece_tokenizer.encode_batch(texts)
    assert in_graph(strings(texts)).to_list() == expected


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


def test_ids_of_sentences(tiny_tokenizer, sentences):
    ids = InGraphTokenizer(tiny_tokenizer)(tf.constant(sentences)).to_list()
    assert ids == tiny_tokenizer.encode_batch(sentences)
    assert len({i for row in ids for i in row}) > 150


@pytest.mark.parametrize("max_bytes", range(4, 16))
def test_long_texts_are_cut_at_a_character(tiny_tokenizer, max_bytes):
    texts = ["", "abcd", "abcdefghijklmnopq", "aé€😀b€é", "😀" * 5, "€" * 6]
    in_graph = InGraphTokenizer(tiny_tokenizer, max_bytes=max_bytes)
    heads = [truncate_utf8(text, max_bytes) for text in texts]
    assert normalized(in_graph, texts) == [
        normalize(head, do_lower_case=True, keep_accents=False)
        for head in heads
    ]
    assert in_graph(strings(texts)).to_list() == tiny_tokenizer.encode_batch(
        heads
    )


def test_cap_is_20000_bytes_and_cannot_be_less_than_a_character(
    tiny_tokenizer,
):
    in_graph = InGraphTokenizer(tiny_tokenizer)
    (text,) = normalized(in_graph, ["x" * 1_000_000])
    assert len(text) == 20_000
    with pytest.raises(ValueError, match=r"max_bytes=3 is less than"):
        InGraphTokenizer(tiny_tokenizer, max_bytes=3)


def test_pack_single(tiny_tokenizer):
    a = tiny_tokenizer.encode("the")
    long = tiny_tokenizer.encode("the of and " * 9)
    packed = InGraphTokenizer(tiny_tokenizer).pack_single(
        strings(["the", "", "the of and " * 9]), 10
    )
    expected = [[2, *a, 3], [2, 3], [2, *long[:8], 3]]
    assert packed["input_ids"].numpy().tolist() == [
        row + [0] * (10 - len(row)) for row in expected
    ]
    assert packed["input_mask"].numpy().tolist() == [
        [1] * len(row) + [0] * (10 - len(row)) for row in expected
    ]
    assert packed["segment_ids"].numpy().tolist() == [[0] * 10] * 3
    assert {value.dtype for value in packed.values()} == {tf.int32}


def test_batch_of_none(tiny_tokenizer):
    in_graph = InGraphTokenizer(tiny_tokenizer)
    empty = tf.constant([], tf.string)
    assert in_graph(empty).to_list() == []
    for value in in_graph.pack_single(empty, 10).values():
        assert value.shape == (0, 2)
    assert in_graph.pack_single(strings([""]), 10)["input_ids"].shape == (1, 2)


def test_missing_tensorflow_text(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    monkeypatch.delitem(sys.modules, "albert_tf.text.in_graph")
    with pytest.raises(UserError, match="pip install tensorflow-text"):
        import albert_tf.text.in_graph  # noqa: F401


# What a server sees: TensorFlow and TensorFlow Text, nothing of ours. Prints
# the operations that are not TensorFlow's own, then the answers.
SERVER = """
import json, sys
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

directory, texts = sys.argv[1], json.loads(sys.argv[2])
saved = saved_model_pb2.SavedModel()
with open(directory + "/saved_model.pb", "rb") as file:
    saved.ParseFromString(file.read())
graph = saved.meta_graphs[0].graph_def
nodes = list(graph.node)
for function in graph.library.function:
    nodes += function.node_def
functions = {f.signature.name for f in graph.library.function}
foreign = {
    node.op
    for node in nodes
    if node.op not in functions and op_def_registry.get(node.op) is None
}
import tensorflow_text

serve = tf.saved_model.load(directory).signatures["serving_default"]
answer = serve(texts=tf.constant(texts, tf.string))
empty = serve(texts=tf.constant([], tf.string))
print(json.dumps({
    "foreign": sorted(foreign),
    "ids": answer["input_ids"].numpy().tolist(),
    "empty": list(empty["input_ids"].shape),
    "ours": [name for name in sys.modules if name.startswith("albert_tf")],
}))
"""


def served(directory, texts, **environment):
    run = subprocess.run(
        [sys.executable, "-c", SERVER, str(directory), json.dumps(texts)],
        check=True,
        capture_output=True,
        cwd=directory,
        env={**os.environ, **environment},
    )
    return json.loads(run.stdout)


def save_server(tokenizer, directory):
    module = tf.Module()
    module.tokenizer = InGraphTokenizer(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def serve(texts):
        return module.tokenizer.pack_single(texts, 12)

    tf.saved_model.save(
        module, str(directory), signatures={"serving_default": serve}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("tiny_tokenizer", ["SentencepieceOp", "SentencepieceTokenizeOp"]),
        ("comma_tokenizer", ["SentencepieceOp", "SentencepieceTokenizeOp"]),
        ("wordpiece_tokenizer", ["WordpieceTokenizeWithOffsets"]),
    ],
)
def test_saved_model_in_a_fresh_process(request, tmp_path, name, foreign):
    tokenizer = request.getfixturevalue(name)
    save_server(tokenizer, tmp_path)
    texts = ["THE IN OF TITLE I", "8, 18,", "", "Café (8)", "UNABLEÉ 中国"]
    # Under a Turkish locale the C library's lower case of I has no dot.
    answer = served(tmp_path, texts, LC_ALL="tr_TR.UTF-8")
    rows = [
        [tokenizer.cls_id, *ids[:10], tokenizer.sep_id]
        for ids in tokenizer.encode_batch(texts)
    ]
    longest = max(len(row) for row in rows)
    assert answer == {
        "foreign": ["NormalizeUTF8", *foreign],
        "ids": [row + [0] * (longest - len(row)) for row in rows],
        "empty": [0, 2],
        "ours": [],
    }
