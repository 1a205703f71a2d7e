"""What tokenizers of both kinds have in common."""

import os
import pickle
import re
import string

import pytest

from albert_tf.io import files
from albert_tf.io.json_files import read_at_most, read_json
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

COMMON = {
    "do_lower_case": False,
    "model_max_length": 128,
    "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
SAVED = {
    "SentencePiece": (
        "spiece.model",
        COMMON
        | {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "keep_accents": True,
            "remove_space": True,
            "bos_token": "[CLS]",
            "eos_token": "[SEP]",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
        },
    ),
    "WordPiece": (
        "vocab.txt",
        COMMON
        | {
            "tokenizer_class": "BertTokenizer",
            "strip_accents": False,
            "tokenize_chinese_chars": True,
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
        },
    ),
}


@pytest.fixture(params=list(SAVED))
def kind(request):
    return request.param


@pytest.fixture
def make(kind, tiny_tokenizer, wordpiece_pieces):
    """Gives a function that makes a tokenizer with other settings."""
    if kind == "SentencePiece":
        return lambda **settings: SentencePieceTokenizer(
            tiny_tokenizer.model_bytes, **settings
        )
    return lambda **settings: WordPieceTokenizer(wordpiece_pieces, **settings)


@pytest.fixture
def cased(make):
    return make(do_lower_case=False, keep_accents=True)


def test_fingerprints(make, make_model, wordpiece_pieces):
    made = [
        make(),
        make(do_lower_case=False),
        make(keep_accents=True),
        SentencePieceTokenizer(make_model({"a": -1.0})),
        WordPieceTokenizer(wordpiece_pieces, tokenize_chinese_chars=False),
        WordPieceTokenizer([*wordpiece_pieces, "new"]),
        WordPieceTokenizer(wordpiece_pieces[:-2] + wordpiece_pieces[:-3:-1]),
    ]
    prints = [tokenizer.fingerprint for tokenizer in made]
    assert len(set(prints)) == len(made)
    assert prints[0] == make().fingerprint
    assert all(re.fullmatch("[0-9a-f]{64}", p) for p in prints)


def test_pickle(cased):
    text = "The CAFÉ, 8, 国人"
    cased.encode(text)
    data = pickle.dumps(cased)
    copy = pickle.loads(data)
    assert copy.fingerprint == cased.fingerprint
    assert copy.encode(text) == cased.encode(text)
    if isinstance(cased, SentencePieceTokenizer):
        assert len(data) < len(cased.model_bytes) + 500


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_save_and_load(kind, cased, wordpiece_pieces, tmp_path, place):
    name, config = SAVED[kind]
    directory = (
        f"ram://saved/{kind}" if place == "bucket" else str(tmp_path / "new")
    )
    cased.save(directory, 128)
    names = sorted([name, "tokenizer.json", "tokenizer_config.json"])
    assert files.listdir(directory) == names
    loaded = load_tokenizer(directory)
    assert type(loaded) is type(cased)
    assert loaded.fingerprint == cased.fingerprint
    assert read_json(f"{directory}/tokenizer_config.json") == config
    content = read_at_most(f"{directory}/{name}", 1 << 20)
    if kind == "SentencePiece":
        assert content == cased.model_bytes
    else:
        assert content.decode() == "\n".join(wordpiece_pieces) + "\n"
    # What transformers 5 writes alone.
    files.remove(f"{directory}/{name}")
    assert load_tokenizer(directory).settings == cased.settings


def test_a_cased_vocabulary_that_is_lower_cased_is_warned_of(
    kind, cased, tmp_path
):
    words = [f"Haus{letter}" for letter in string.ascii_lowercase]
    larger = cased.with_words(words)
    assert not larger.clean_up_warning()
    larger.save(tmp_path)
    os.remove(tmp_path / "tokenizer_config.json")
    os.remove(tmp_path / "tokenizer.json")
    loaded = load_tokenizer(tmp_path)
    added = loaded.pieces(range(cased.vocab_size, loaded.vocab_size))
    assert all(map(loaded.is_lost, added))
    assert not any(map(loaded.is_lost, map(str.lower, added)))
    assert re.fullmatch(
        rf"WARNING: \d+ of the vocabulary's {len(loaded.replacement_ids)} "
        "pieces, such as .*, occur in no text after its clean-up "
        r"\(do_lower_case=True, keep_accents=False.*\)\. A cased vocabulary "
        "needs a tokenizer_config.json with "
        r'\{"do_lower_case": false, "keep_accents": true\} beside it\.',
        loaded.clean_up_warning(),
    )
