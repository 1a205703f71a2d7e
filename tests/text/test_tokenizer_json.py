"""Hugging Face's tokenizer.json: the ids of their library, and read back."""

import json
import unicodedata

import pytest
import tokenizers
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers, pre_tokenizers

from albert_tf.config import UserError
from albert_tf.text.normalization import QUOTES, normalize
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import WORDPIECE_SPECIALS
from albert_tf.text.tokenizer_json import ends_in_digit_comma, replacement
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

CONFIGS = [(True, False), (True, True), (False, True), (False, False)]


def opened(tokenizer):
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer._json()))


@pytest.mark.parametrize(("lower", "accents"), CONFIGS)
def test_texts_give_the_same_ids(tiny_tokenizer, sentences, lower, accents):
    tokenizer = SentencePieceTokenizer(
        tiny_tokenizer.model_bytes, do_lower_case=lower, keep_accents=accents
    )
    hugging_face = opened(tokenizer)
    for text in [
        *sentences,
        "",
        " \t The\u3000of\n",
        "the\x1fof\x0bthe\x1c\x85of",
        "``the'' of",
        "Badé É bad\u00e9 ﬁ ½",
        "ΟΔΟΣ İ Straße \0 \U00010570",
        "a\u00b4b 한국 豈",
        '(the) - £5 €6 – "of".',
    ]:
        ids = hugging_face.encode(text, add_special_tokens=False).ids
        assert ids == tokenizer.encode(text), text


def test_syllables_of_korean_are_put_together_again(tiny_tokenizer):
    """Each is nine bytes of NFKD, more than `Precompiled` looks up."""
    cleaned = opened(tiny_tokenizer).normalizer.normalize_str("각 Été 한국")
    assert cleaned == "각 ete 한국"


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cn"])))
def test_clean_up_is_the_same(make_model, text):
    # Characters that this Python does not know may have lower case there; some
    # young ones do not decompose there.
    theirs = tokenizers.normalizers.NFKD().normalize_str(text)
    assume(theirs == unicodedata.normalize("NFKD", text))
    # Without a character map the clean-up is all that the normalizer does.
    tokenizer = SentencePieceTokenizer(make_model({"a": -1.0}))
    cleaned = opened(tokenizer).normalizer.normalize_str(text)
    assert " ".join(cleaned.split()) == normalize(text, **tokenizer.settings)


def test_a_comma_after_a_digit(comma_tokenizer, tmp_path):
    split = ["▁8,", "8,", "٣,"]
    others = [",", "▁,", "a,", "8", "8,8", ""]
    assert [*filter(ends_in_digit_comma, split + others)] == split
    hugging_face = opened(comma_tokenizer)
    read = load_tokenizer(resaved(comma_tokenizer, tmp_path))
    for text in ["8,", "a8,8,", "a,", "8, 8", "8, a, 70,9,", "7 8,"]:
        expected = comma_tokenizer.encode(text)
        assert read.encode(text) == expected, text
        # There 70 is split by the scores of the vocabulary.
        if "70" not in text:
            ids = hugging_face.encode(text, add_special_tokens=False).ids
            assert ids == expected, text


@pytest.mark.parametrize("kind", ["tiny_tokenizer", "wordpiece_tokenizer"])
def test_special_pieces(request, kind):
    t = request.getfixturevalue(kind)
    theirs = opened(t)
    a, b = t.encode("unaffable"), t.encode("b")
    assert theirs.encode("unaffable").ids == [t.cls_id, *a, t.sep_id]
    two = theirs.encode("unaffable", "b")
    assert two.ids == [t.cls_id, *a, t.sep_id, *b, t.sep_id]
    assert two.type_ids == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert theirs.decode(two.ids) == "unaffable b"
    text = "A [MASK] b [MASK]"
    ids = theirs.encode(text, add_special_tokens=False).ids
    assert ids == t.encode_with_masks(text)


WORDS = st.text("abunfleigsx8,0# Éσ中国か한\u0301\x0b\u200b｜") | st.text()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"keep_accents": True},
        {"tokenize_chinese_chars": False},
    ],
)
@settings(deadline=None, max_examples=40)
@given(text=WORDS)
@example(text="x" * 200 + " " + "x" * 201)
def test_wordpiece_ids_are_the_same(wordpiece_pieces, options, text):
    # There, a special piece in a text is not plain characters.
    assume(not any(name in text for name in WORDPIECE_SPECIALS.values()))
    tokenizer = WordPieceTokenizer(wordpiece_pieces, **options)
    ids = opened(tokenizer).encode(text, add_special_tokens=False).ids
    assert ids == tokenizer.encode(text)


def resaved(tokenizer, directory):
    """Returns a directory of the JSON file alone, as the library writes it."""
    tokenizer.save(directory / "ours", 512)
    directory = directory / "theirs"
    directory.mkdir()
    library = tokenizers.Tokenizer.from_file(
        str(directory.parent / "ours" / "tokenizer.json")
    )
    library.save(str(directory / "tokenizer.json"))
    return directory


@pytest.mark.parametrize(("lower", "accents"), CONFIGS)
def test_tokenizers_there_and_back(
    tiny_tokenizer, wordpiece_pieces, sentences, tmp_path, lower, accents
):
    settings = {"do_lower_case": lower, "keep_accents": accents}
    ours = SentencePieceTokenizer(tiny_tokenizer.model_bytes, **settings)
    read = load_tokenizer(resaved(ours, tmp_path / "sentencepiece"))
    assert read.settings == ours.settings
    pieces, pieces_read = (
        [
            (p.piece, p.score, p.type)
            for p in sentencepiece_model_pb2.ModelProto.FromString(
                tokenizer.model_bytes
            ).pieces
        ]
        for tokenizer in (ours, read)
    )
    assert pieces_read == pieces
    texts = [*sentences, "Élève [MASK] (8,000) ﬁ ½ €5", ""]
    assert read.encode_batch(texts) == ours.encode_batch(texts)
    ours = WordPieceTokenizer(
        wordpiece_pieces, tokenize_chinese_chars=lower, **settings
    )
    read = load_tokenizer(resaved(ours, tmp_path / "wordpiece"))
    assert read.settings == ours.settings
    assert list(read.vocabulary) == wordpiece_pieces


def saved_over(tokenizer, directory, change):
    """Returns our directory, of which the library has saved the JSON file."""
    tokenizer.save(directory, 512)
    path = str(directory / "tokenizer.json")
    library = tokenizers.Tokenizer.from_file(path)
    change(library)
    library.save(path)
    return directory


def test_tokens_that_were_added_in_our_directory(tiny_tokenizer, tmp_path):
    directory = saved_over(
        tiny_tokenizer, tmp_path, lambda library: library.add_tokens(["covid"])
    )
    assert (directory / "spiece.model").exists()
    read = load_tokenizer(directory)
    assert read.encode("the covid") == [*tiny_tokenizer.encode("the"), 200]


def test_words_that_were_added_in_our_directory(wordpiece_tokenizer, tmp_path):
    directory = saved_over(
        wordpiece_tokenizer,
        tmp_path,
        lambda library: library.add_tokens(["covid"]),
    )
    with pytest.raises(UserError, match=r"has the added tokens \['covid'\]"):
        load_tokenizer(directory)


def test_a_vocabulary_that_was_trained_anew_in_our_directory(
    tiny_tokenizer, make_model, tmp_path
):
    other = SentencePieceTokenizer(
        make_model({f"\u2581{n}": -1.0 for n in range(195)})
    )
    assert other.vocab_size == tiny_tokenizer.vocab_size
    tiny_tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(other._json()))
    assert load_tokenizer(tmp_path).encode("7") == other.encode("7")


def test_fewer_pieces_are_no_others(tiny_tokenizer, tmp_path):
    longer = tiny_tokenizer.with_words(["abacus"])
    longer.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(tiny_tokenizer._json()))
    assert load_tokenizer(tmp_path).vocab_size == 201


def test_a_file_of_the_same_pieces_is_not_read(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    unreadable = json.loads(path.read_text()) | {"normalizer": {"type": "NFC"}}
    path.write_text(json.dumps(unreadable))
    read = load_tokenizer(tmp_path)
    assert read.fingerprint == tiny_tokenizer.fingerprint


def rewrite(directory, changes):
    """Changes the values of the JSON file, those of its model one by one."""
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text())
    for name, value in changes.items():
        if name == "model" and isinstance(value, dict):
            value = values[name] | value
        values[name] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("kind", "normalizer", "settings"),
    [
        (
            "wordpiece_tokenizer",
            normalizers.BertNormalizer(
                handle_chinese_chars=False, lowercase=False
            ),
            {
                "do_lower_case": False,
                "keep_accents": True,
                "tokenize_chinese_chars": False,
            },
        ),
        (
            "tiny_tokenizer",
            normalizers.Sequence(
                [
                    normalizers.Replace("``", '"'),
                    normalizers.Replace("''", '"'),
                    normalizers.NFKD(),
                    normalizers.StripAccents(),
                    normalizers.Lowercase(),
                    normalizers.Replace(tokenizers.Regex(" {2,}"), " "),
                ]
            ),
            {"do_lower_case": True, "keep_accents": False},
        ),
    ],
)
def test_normalizers_of_transformers(
    request, tmp_path, kind, normalizer, settings
):
    directory = resaved(request.getfixturevalue(kind), tmp_path)
    path = str(directory / "tokenizer.json")
    opened = tokenizers.Tokenizer.from_file(path)
    opened.normalizer = normalizer
    if kind == "wordpiece_tokenizer":
        opened.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    opened.save(path)
    assert load_tokenizer(directory).settings == settings


TICKS = [replacement("String", *pair) for pair in QUOTES]
DAMAGED = r"tokenizer\.json is damaged: its values are not those of a"


def nested(*steps):
    return {"normalizer": {"type": "Sequence", "normalizers": [*steps]}}


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("tiny", {"model": {"type": [3]}}, r"of type Unigram or .* got \[3\]"),
        ("tiny", {"model": 3}, "expected a model of type Unigram .* got None"),
        ("tiny", {"model": {"unk_id": 10**9}}, DAMAGED),
        ("tiny", {"model": {"unk_id": -1}}, DAMAGED),
        ("tiny", {"pre_tokenizer": None}, "the pre_tokenizer None is not"),
        (
            "tiny",
            {"pre_tokenizer": {"type": "ByteLevel"}},
            "the pre_tokenizer .*ByteLevel.* is not that of an ALBERT",
        ),
        (
            "tiny",
            {"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first"}},
            "the pre_tokenizer .*first.* a mark before every word; its ids",
        ),
        (
            "tiny",
            {"pre_tokenizer": {"type": "Metaspace"}},
            "several spaces have several ids .* put WhitespaceSplit before",
        ),
        (
            "tiny",
            {"post_processor": {"type": "ByteLevel"}},
            r"the post_processor .*ByteLevel.* does not make \[CLS\] A \[SEP\]",
        ),
        (
            "tiny",
            {"added_tokens": [{"content": "<new>", "id": 201}]},
            "the added token '<new>' has the id 201; expected 200, the next o",
        ),
        (
            "wordpiece",
            {"model": {"continuing_subword_prefix": "@@"}},
            "expected continuing_subword_prefix \"##\", got '@@'; its ids",
        ),
        (
            "wordpiece",
            {"pre_tokenizer": {"type": "Whitespace"}},
            "the pre_tokenizer .*'Whitespace'.* is not that of BERT, BertPre",
        ),
        ("wordpiece", {"pre_tokenizer": None}, "the pre_tokenizer None is not"),
        ("tiny", {"added_tokens": [3]}, DAMAGED),
        ("tiny", {"added_tokens": [{"content": "<new>", "id": "a"}]}, DAMAGED),
        ("tiny", {"normalizer": 3}, DAMAGED),
        (
            "tiny",
            nested(
                *TICKS, {"type": "Precompiled", "precompiled_charsmap": "*"}
            ),
            DAMAGED,
        ),
        (
            "tiny",
            nested({"type": "Lowercase"}, {"type": "NFKC"}),
            r"the normalizer {'type': 'NFKC'} is none of an ALBERT",
        ),
        (
            "tiny",
            # Marks that stay may be in another order then.
            nested({"type": "NFC"}, {"type": "Lowercase"}),
            r"the normalizer {'type': 'NFC'} is none of an ALBERT",
        ),
        (
            "tiny",
            nested(*TICKS, {"type": "NFKD"}, {"type": "Lowercase"}),
            "expected a normalizer NFKD with StripAccents after it, .* got NFK",
        ),
        (
            "tiny",
            nested(*TICKS, {"type": "StripAccents"}, {"type": "NFKD"}),
            "with StripAccents after it, or neither, got StripAccents, NFKD; i",
        ),
        (
            "tiny",
            nested(TICKS[0], {"type": "Lowercase"}),
            "the normalizers make no '\"' of `` and ''; its ids would differ",
        ),
        (
            "wordpiece",
            nested({"type": "Lowercase"}, {"type": "NFD"}),
            "expected a normalizer NFD with StripAccents after it, .* got NFD;",
        ),
        (
            "wordpiece",
            nested({"type": "BertNormalizer", "clean_text": False}),
            r"the normalizer {'type': 'BertNorm",
        ),
        (
            "wordpiece",
            {"model": {"vocab": {"a": 0, "b": 2}}},
            "expected a vocabulary with ids 0 to",
        ),
    ],
)
def test_a_faulty_file(request, tmp_path, kind, changes, message):
    tokenizer = request.getfixturevalue(f"{kind}_tokenizer")
    directory = resaved(tokenizer, tmp_path)
    rewrite(directory, changes)
    with pytest.raises(UserError, match=message) as raised:
        load_tokenizer(directory)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("side", ["Left", "Right"])
def test_the_side_that_is_cut(tiny_tokenizer, tmp_path, side):
    """transformers saves there alone what a tokenizer was told later."""
    directory = resaved(tiny_tokenizer, tmp_path)
    rewrite(directory, {"truncation": {"direction": side, "max_length": 8}})
    if side == "Right":
        load_tokenizer(directory)
        return
    with pytest.raises(UserError, match=r"tokenizer\.json: truncation on the"):
        load_tokenizer(directory)


def test_a_damaged_file_beside_a_vocabulary(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["vocab"][5][0] = 7
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"tokenizer\.json: piece 5 is not a"):
        load_tokenizer(tmp_path)


def test_special_pieces_need_no_added_tokens(tiny_tokenizer, tmp_path):
    directory = resaved(tiny_tokenizer, tmp_path)
    rewrite(directory, {"added_tokens": []})
    text = "the [SEP] of <pad>"
    assert load_tokenizer(directory).encode(text) == tiny_tokenizer.encode(text)


@pytest.mark.parametrize(
    ("class_name", "is_read"),
    [("PreTrainedTokenizerFast", False), ("AlbertTokenizer", True)],
)
def test_a_file_that_frames_no_texts(
    tiny_tokenizer, tmp_path, class_name, is_read
):
    directory = resaved(tiny_tokenizer, tmp_path)
    rewrite(directory, {"post_processor": None})
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": class_name})
    )
    if is_read:
        assert load_tokenizer(directory)
        return
    with pytest.raises(UserError, match=r"post_processor None does not make"):
        load_tokenizer(directory)


@pytest.mark.parametrize("class_name", ["TokenizersBackend", "AlbertTokenizer"])
def test_classes_that_run_the_file_clean_up_as_it_says(
    tiny_tokenizer, tmp_path, class_name
):
    directory = resaved(tiny_tokenizer, tmp_path)
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": class_name, "do_lower_case": False})
    )
    is_lower = class_name == "TokenizersBackend"
    assert load_tokenizer(directory).settings["do_lower_case"] == is_lower


def test_bert_processing_frames_as_here(tiny_tokenizer, tmp_path):
    directory = resaved(tiny_tokenizer, tmp_path)
    names = {"sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    for cls, fits in (("[CLS]", True), ("<s>", False)):
        names["cls"] = [cls, 2]
        rewrite(
            directory, {"post_processor": {"type": "BertProcessing", **names}}
        )
        if fits:
            assert load_tokenizer(directory)
            continue
        with pytest.raises(UserError, match="does not make"):
            load_tokenizer(directory)


def test_repeated_pieces(tiny_tokenizer, tmp_path):
    directory = resaved(tiny_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    vocab = json.loads(path.read_text())["model"]["vocab"]
    vocab[7] = vocab[9]
    rewrite(directory, {"model": {"vocab": vocab}})
    with pytest.raises(UserError, match="have two ids each, as train_new_from"):
        load_tokenizer(directory)
