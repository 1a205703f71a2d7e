import re
import unicodedata

import pytest
from awkward_texts import (
    AWKWARD_CHARACTERS,
    AWKWARD_TEXTS,
    CONTEXTS,
    NOTABLE_CODES,
    clean,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as proto

from albert_tf.text.normalization import normalized_offsets
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_json import sentencepiece_json
from albert_tf.text.wordpiece import word_offsets
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

UNCASED = {"do_lower_case": True, "keep_accents": False}
CASED = {"do_lower_case": False, "keep_accents": True}
# Surrogates too.
TEXTS = (
    st.text(AWKWARD_CHARACTERS + "\ud800")
    | st.text(st.characters(exclude_categories=[]))
    | st.sampled_from([*AWKWARD_TEXTS, "\ud800a\udfff \ud83d\ude00"])
)


BYTES = [
    {"piece": f"<0x{byte:02X}>", "score": 0.0, "type": "BYTE"}
    for byte in range(256)
]
# What is merged into a model.
CHANGES = {
    "handmade": {},
    "bytes": {"pieces": BYTES, "trainer_spec": {"byte_fallback": True}},
    "suffix": {"trainer_spec": {"treat_whitespace_as_suffix": True}},
    "no prefix": {"normalizer_spec": {"add_dummy_prefix": False}},
}


def changed(model_bytes, change):
    model = proto.ModelProto.FromString(model_bytes)
    model.MergeFrom(proto.ModelProto(**CHANGES[change]))
    return model.SerializeToString()


@pytest.fixture(
    scope="module", params=[UNCASED, CASED], ids=["uncased", "cased"]
)
def case(request):
    return request.param


@pytest.fixture(
    scope="module", params=["tiny", *CHANGES, "WordPiece", "no ideographs"]
)
def tokenizer(request, case, tiny_tokenizer, comma_tokenizer, wordpiece_pieces):
    kind = request.param
    if kind == "tiny":
        return SentencePieceTokenizer(tiny_tokenizer.model_bytes, **case)
    if kind in CHANGES:
        model = changed(comma_tokenizer.model_bytes, kind)
        return SentencePieceTokenizer(model, **case)
    return WordPieceTokenizer(
        wordpiece_pieces, tokenize_chinese_chars=kind == "WordPiece", **case
    )


def slices(tokenizer, text):
    """Returns each piece and its slice of the text."""
    encoding = tokenizer.encode_with_offsets(text)
    return [
        (piece, text[start:end])
        for piece, start, end in zip(
            tokenizer.pieces(encoding.ids),
            encoding.starts,
            encoding.ends,
            strict=True,
        )
    ]


def clean_offsets(tokenizer, text):
    """Returns starts and ends of each character of `clean` but spaces."""
    if isinstance(tokenizer, WordPieceTokenizer):
        return word_offsets(text, **tokenizer.settings)
    return normalized_offsets(text, **tokenizer.settings)


@settings(deadline=None, max_examples=40)
@given(text=TEXTS)
def test_any_text(tokenizer, text):
    letters = clean(tokenizer, text).replace(" ", "")
    assert len(clean_offsets(tokenizer, text)[0]) == len(letters)
    encoding = tokenizer.encode_with_offsets(text)
    assert encoding.ids == tokenizer.encode(text)
    assert encoding.starts == sorted(encoding.starts)
    assert len(encoding.starts) == len(encoding.ends) == len(encoding.ids)
    surfaces = [p.strip("▁ ") for p in tokenizer.pieces(encoding.ids)]
    for surface, start, end in zip(
        surfaces, encoding.starts, encoding.ends, strict=True
    ):
        assert 0 <= start <= end <= len(text)
        assert text[start:end].strip() == text[start:end]
        assert (start < end) or not surface


@pytest.fixture(scope="module")
def exact(case, tiny_tokenizer, wordpiece_pieces):
    """Tokenizers whose pieces are the clean text, but for those unknown."""
    return [
        SentencePieceTokenizer(tiny_tokenizer.model_bytes, **case),
        WordPieceTokenizer(wordpiece_pieces, **case),
    ]


@settings(deadline=None, max_examples=100)
@given(text=st.text("aAbe \t\u0301\u0327'`8,éΣσI\u0307한国か😀☺\u200d[#"))
@example(text="unaffable Unable's bada 1,000 ``a''\u0301 e\u200d\u0301x")
def test_normalized_slices_are_their_pieces(exact, text):
    for tokenizer in exact:
        unknown = tokenizer.special_tokens["unk_token"]
        accents = (
            "" if tokenizer.settings["keep_accents"] else "[\u0300-\u036f]"
        )
        for piece, found in slices(tokenizer, text):
            surface = piece.removeprefix("##").removeprefix("▁")
            if piece == unknown:
                assert found
            elif surface or found:
                assert clean(tokenizer, found).replace(" ", "") == surface
        encoding = tokenizer.encode_with_offsets(text)
        for start, end in zip(encoding.starts, encoding.ends, strict=True):
            if accents and start < end:
                assert not re.match(accents, text[end:])
                assert not re.match(accents, text[start:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8,", [("▁8", "8"), (",", ",")]),
        (" a8,", [("▁", ""), ("a", "a"), ("8", "8"), (",", ",")]),
        ("a８,a", [("▁", ""), *zip("a8,a", "a８,a", strict=True)]),
        # The voicing mark decomposes to one that is dropped.
        ("a\uff9ea", [("▁", ""), ("a", "a\uff9e"), ("a", "a")]),
        # Two unknown digits in one.
        ("a70,", [("▁", ""), ("a", "a"), ("<unk>", "70"), (",", ",")]),
        ("A\u0301, 8", [("▁a,", "A\u0301,"), ("▁8", "8")]),
        (
            "éz中 a",
            [("▁", ""), ("e", "é"), ("<unk>", "z中"), ("▁", ""), ("a", "a")],
        ),
        # Our own clean-up decides.
        ("ﬁ½", [("▁", ""), ("<unk>", "ﬁ½")]),
    ],
)
def test_commas_and_unknown_characters(comma_tokenizer, text, expected):
    assert slices(comma_tokenizer, text) == expected


def test_a_bare_space_mark_is_empty_where_the_next_piece_begins(
    comma_tokenizer,
):
    encoding = comma_tokenizer.encode_with_offsets(" a  a")
    assert comma_tokenizer.pieces(encoding.ids) == ["▁", "a", "▁", "a"]
    assert encoding.starts == [1, 1, 4, 4]
    assert encoding.ends == [1, 2, 4, 5]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        # A character of several pieces.
        (
            ["▁", "f", "i", "1", "⁄", "2", "▁x"],
            "ﬁ ½ x",
            [
                *[("▁", ""), ("f", "ﬁ"), ("i", "ﬁ"), ("▁", "")],
                *[("1", "½"), ("⁄", "½"), ("2", "½"), ("▁x", "x")],
            ],
        ),
        # A piece of several characters.
        (
            ["▁", "é", "x"],
            "xe\u0301x",
            [("▁", ""), ("x", "x"), ("é", "e\u0301"), ("x", "x")],
        ),
    ],
)
def test_the_models_own_clean_up(
    tiny_tokenizer, make_model, pieces, text, expected
):
    model = proto.ModelProto.FromString(make_model(dict.fromkeys(pieces, -1.0)))
    # nmt_nfkc
    trained = proto.ModelProto.FromString(tiny_tokenizer.model_bytes)
    model.normalizer_spec.CopyFrom(trained.normalizer_spec)
    tokenizer = SentencePieceTokenizer(model.SerializeToString(), **CASED)
    assert slices(tokenizer, text) == expected


def test_marks_of_spaces_inside_and_after_pieces(make_model):
    scores = dict.fromkeys(["▁", "8", ",", "a", "▁8"], -3.0) | {"▁a▁8,": -1.0}
    expected = [("▁", ""), ("a", "a"), ("8", "8"), (",", ",")]
    tokenizer = SentencePieceTokenizer(make_model(scores))
    assert slices(tokenizer, "a 8,") == expected
    after = changed(make_model({"a▁": -1.0, "▁": -2.0}), "suffix")
    tokenizer = SentencePieceTokenizer(after)
    assert slices(tokenizer, "a a") == [("a▁", "a"), ("a▁", "a")]


def test_byte_fallback(comma_tokenizer):
    tokenizer = SentencePieceTokenizer(
        changed(comma_tokenizer.model_bytes, "bytes")
    )
    assert slices(tokenizer, "az😀a") == [
        ("▁", ""),
        ("a", "a"),
        ("<0x7A>", "z"),
        *((f"<0x{byte:02X}>", "😀") for byte in "😀".encode()),
        ("a", "a"),
    ]
    # The file for other libraries says so too.
    written = sentencepiece_json(tokenizer.model_bytes, **UNCASED)
    assert written["model"]["byte_fallback"] is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unaffable", [("un", "un"), ("##aff", "aff"), ("##able", "able")]),
        ("a\u00ada!", [("a", "a"), ("##a", "a"), ("!", "!")]),
        ("e\u200d\u0301x b", [("[UNK]", "e\u200d\u0301x"), ("b", "b")]),
        ("中\u0301国", [("中", "中\u0301"), ("国", "国")]),
        ("中\u200d\u0301\u200d国", [("中", "中\u200d\u0301"), ("国", "国")]),
        ("\ud800a\ud800 b", [("a", "a"), ("b", "b")]),
    ],
)
def test_pieces_of_words(wordpiece_tokenizer, text, expected):
    assert slices(wordpiece_tokenizer, text) == expected


def is_plain(code):
    """Returns whether a character leaves its neighbours as they are."""
    character = chr(code)
    return (
        unicodedata.category(character) in ("Lo", "So", "Co", "Cn")
        and not unicodedata.decomposition(character)
        and character.lower() == character.upper()
    )


# A sample of the plain ones is enough in contexts.
CODES_IN_CONTEXTS = [
    code
    for number, code in enumerate(NOTABLE_CODES)
    if number % 50 == 0 or not is_plain(code)
]


@pytest.mark.slow
@pytest.mark.parametrize("form", CONTEXTS)
def test_every_code_point(exact, form):
    all_codes = NOTABLE_CODES if form == "{}" else CODES_IN_CONTEXTS
    # Each between two signs, which must be found where they were.
    for begin in range(0, len(all_codes), 1000):
        codes = all_codes[begin : begin + 1000]
        contexts = [form.format(chr(code)) for code in codes]
        text = "\ue000" + "".join(f"{c}\ue000" for c in contexts)
        signs = [m.start() for m in re.finditer("\ue000", text)]
        for tokenizer in exact:
            cleaned = clean(tokenizer, text).replace(" ", "")
            starts, ends = clean_offsets(tokenizer, text)
            found = [m.start() for m in re.finditer("\ue000", cleaned)]
            assert [starts[i] for i in found] == signs
            assert starts == sorted(starts)
            assert len(starts) == len(ends) == len(cleaned)
            for sign, i, j in zip(
                signs[1:], found[:-1], found[1:], strict=True
            ):
                assert max(ends[i:j]) <= sign
