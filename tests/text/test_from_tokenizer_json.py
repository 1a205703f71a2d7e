"""A directory in which transformers has left nothing but tokenizer.json."""

import json

import pytest
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError
from albert_tf.text import from_tokenizer_json
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.vocabulary_limits import MAX_PIECES
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

CONFIGS = [(True, False), (True, True), (False, True), (False, False)]


def resaved(tokenizer, directory):
    """Leaves the JSON file alone there, as the Rust library writes it."""
    tokenizer.save(directory / "ours", 512)
    directory = directory / "theirs"
    directory.mkdir()
    library = tokenizers.Tokenizer.from_file(
        str(directory.parent / "ours" / "tokenizer.json")
    )
    library.save(str(directory / "tokenizer.json"))
    return directory


@pytest.mark.parametrize(("lower", "accents"), CONFIGS)
def test_a_sentencepiece_model_comes_back(
    tiny_tokenizer, sentences, tmp_path, lower, accents
):
    ours = SentencePieceTokenizer(
        tiny_tokenizer.model_bytes, do_lower_case=lower, keep_accents=accents
    )
    read = load_tokenizer(resaved(ours, tmp_path))
    assert read.settings == ours.settings
    models = [
        sentencepiece_model_pb2.ModelProto.FromString(t.model_bytes)
        for t in (ours, read)
    ]
    pieces = [
        [(p.piece, p.score, p.type) for p in model.pieces] for model in models
    ]
    assert pieces[0] == pieces[1]
    texts = [*sentences, "Élève [MASK] (8,000) ﬁ ½ €5", ""]
    assert read.encode_batch(texts) == ours.encode_batch(texts)


def test_digits_before_a_comma_keep_their_scores(comma_tokenizer, tmp_path):
    read = load_tokenizer(resaved(comma_tokenizer, tmp_path))
    for text in ("8, a, 70,9,", "7 8,", "a,e"):
        assert read.encode(text) == comma_tokenizer.encode(text)


@pytest.mark.parametrize(("lower", "accents"), CONFIGS)
@pytest.mark.parametrize("chinese", [True, False])
def test_a_wordpiece_vocabulary_comes_back(
    wordpiece_pieces, tmp_path, lower, accents, chinese
):
    ours = WordPieceTokenizer(
        wordpiece_pieces,
        do_lower_case=lower,
        keep_accents=accents,
        tokenize_chinese_chars=chinese,
    )
    read = load_tokenizer(resaved(ours, tmp_path))
    assert (read.settings, list(read.vocabulary)) == (
        ours.settings,
        wordpiece_pieces,
    )


def test_the_normalizer_of_bert(wordpiece_tokenizer, tmp_path):
    directory = resaved(wordpiece_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text())
    values["normalizer"] = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": False,
        "strip_accents": None,
        "lowercase": False,
    }
    path.write_text(json.dumps(values))
    assert load_tokenizer(directory).settings == {
        "do_lower_case": False,
        "keep_accents": True,
        "tokenize_chinese_chars": False,
    }


def test_the_normalizers_of_transformers(tiny_tokenizer, tmp_path):
    library = tokenizers.normalizers
    directory = resaved(tiny_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    opened = tokenizers.Tokenizer.from_file(str(path))
    opened.normalizer = library.Sequence(
        [
            library.Replace("``", '"'),
            library.Replace("''", '"'),
            library.NFKD(),
            library.StripAccents(),
            library.Lowercase(),
            library.Replace(tokenizers.Regex(" {2,}"), " "),
        ]
    )
    opened.save(str(path))
    assert load_tokenizer(directory).settings == tiny_tokenizer.settings


def test_bert_without_its_clean_up_is_refused(wordpiece_tokenizer, tmp_path):
    directory = resaved(wordpiece_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    opened = tokenizers.Tokenizer.from_file(str(path))
    opened.normalizer = tokenizers.normalizers.BertNormalizer(clean_text=False)
    opened.save(str(path))
    with pytest.raises(UserError, match=r"normalizer {'type': 'BertNorm"):
        load_tokenizer(directory)


def test_the_settings_beside_it_go_first(tiny_tokenizer, tmp_path):
    directory = resaved(tiny_tokenizer, tmp_path)
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_tokenizer(directory).settings == {
        "do_lower_case": False,
        "keep_accents": False,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": {"type": "BPE"}}, "type 'BPE'; Unigram .* and WordPiece"),
        ({"model": 3}, "the model is of type None"),
        ({"model": {"vocab": []}}, "has no list of pieces"),
        ({"model": {"vocab": [["a", "b"]]}}, "piece 0 is not a pair"),
        ({"model": {"vocab": [["a", True]]}}, "piece 0 is not a pair"),
        ({"model": {"unk_id": 10**9}}, "unk_id=1000000000 is not the number"),
        ({"model": {"unk_id": None}}, "unk_id=None is not the number"),
        ({"added_tokens": [3]}, "added_tokens is not a list of tokens"),
        ({"normalizer": 3}, "normalizer is not an object with a type"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": 3}},
            "sequence of normalizers is not a list",
        ),
        (
            {
                "normalizer": {
                    "type": "Precompiled",
                    "precompiled_charsmap": 3,
                }
            },
            "precompiled_charsmap is not base64",
        ),
        (
            {"normalizer": {"type": "NFKC"}},
            r"the normalizer {'type': 'NFKC'} is none that an ALBERT",
        ),
        (
            {
                "normalizer": {
                    "type": "Sequence",
                    "normalizers": [
                        {"type": "Lowercase"},
                        {
                            "type": "Replace",
                            "pattern": {"String": "a"},
                            "content": "b",
                        },
                    ],
                }
            },
            "the normalizer {'type': 'Replace', .* is none that an ALBERT",
        ),
    ],
)
def test_a_file_that_is_none(tiny_tokenizer, tmp_path, changes, said):
    directory = resaved(tiny_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text())
    for name, value in changes.items():
        if name == "model" and isinstance(value, dict):
            values[name] |= value
        else:
            values[name] = value
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=said) as raised:
        load_tokenizer(directory)
    assert "\n" not in str(raised.value)


def test_special_pieces_are_special_without_being_named(
    tiny_tokenizer, tmp_path
):
    directory = resaved(tiny_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text()) | {"added_tokens": []}
    path.write_text(json.dumps(values))
    text = "the [SEP] of <pad>"
    assert load_tokenizer(directory).encode(text) == tiny_tokenizer.encode(text)


def test_numbers_of_wordpieces(wordpiece_tokenizer, tmp_path):
    directory = resaved(wordpiece_tokenizer, tmp_path)
    path = directory / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["vocab"]["##a"] = 10**6
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match="does not number its pieces 0 to n"):
        load_tokenizer(directory)


@pytest.mark.parametrize("kind", ["Unigram", "WordPiece"])
def test_more_pieces_than_any_needs_are_refused_unread(kind):
    """No piece is looked at: these would be at fault."""
    pieces = [None] * (MAX_PIECES + 1)
    vocab = pieces if kind == "Unigram" else dict.fromkeys(range(len(pieces)))
    read = {
        "Unigram": from_tokenizer_json.sentencepiece_model,
        "WordPiece": from_tokenizer_json.wordpiece_vocabulary,
    }[kind]
    with pytest.raises(UserError, match="^a.json has 1,000,001 pieces; the mo"):
        read({"model": {"type": kind, "vocab": vocab}}, "a.json")
