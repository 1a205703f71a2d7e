"""Which tokenizer a directory holds, and with which settings."""

import json
import os
import subprocess
import sys

import pytest

from albert_tf.config import UserError
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer


def write(directory, tokenizers, config=None):
    for tokenizer in tokenizers:
        tokenizer.save(directory)
    for name in ("tokenizer_config.json", "tokenizer.json"):
        os.remove(directory / name)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (directory / "tokenizer_config.json").write_text(text)


def test_a_lone_vocabulary_is_read_as_the_released_ones(
    wordpiece_tokenizer, tmp_path
):
    write(tmp_path, [wordpiece_tokenizer])
    loaded = load_tokenizer(tmp_path)
    assert loaded.fingerprint == wordpiece_tokenizer.fingerprint
    assert loaded.settings == {
        "do_lower_case": True,
        "keep_accents": False,
        "tokenize_chinese_chars": True,
    }


@pytest.mark.parametrize(
    ("config", "lower", "accents"),
    [
        ({"do_lower_case": False}, False, True),
        ({"do_lower_case": False, "strip_accents": None}, False, True),
        ({"do_lower_case": False, "strip_accents": True}, False, False),
        ({"strip_accents": False}, True, True),
        ({"keep_accents": True}, True, True),
        ({"keep_accents": True, "strip_accents": False}, True, True),
        # Whatever the class is said to be, there is only this file.
        ({"tokenizer_class": "AlbertTokenizer"}, True, False),
    ],
)
def test_settings_of_a_wordpiece_vocabulary(
    wordpiece_tokenizer, tmp_path, config, lower, accents
):
    write(tmp_path, [wordpiece_tokenizer], config)
    assert load_tokenizer(tmp_path).settings == {
        "do_lower_case": lower,
        "keep_accents": accents,
        "tokenize_chinese_chars": True,
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("AlbertTokenizer", SentencePieceTokenizer),
        ("AlbertTokenizerFast", SentencePieceTokenizer),
        ("BertTokenizer", WordPieceTokenizer),
        ("BertTokenizerFast", WordPieceTokenizer),
    ],
)
def test_the_class_tells_two_vocabularies_apart(
    tiny_tokenizer, wordpiece_tokenizer, tmp_path, name, kind
):
    both = [tiny_tokenizer, wordpiece_tokenizer]
    write(tmp_path, both, {"tokenizer_class": name})
    assert type(load_tokenizer(tmp_path)) is kind


@pytest.mark.parametrize("config", [None, {}, {"tokenizer_class": "T5"}])
def test_two_vocabularies_and_no_class(
    tiny_tokenizer, wordpiece_tokenizer, tmp_path, config
):
    write(tmp_path, [tiny_tokenizer, wordpiece_tokenizer], config)
    expected = (
        r"has both spiece\.model and vocab\.txt; remove one, or let "
        r"tokenizer_class in tokenizer_config\.json be one of "
        r"AlbertTokenizer, BertTokenizer\."
    )
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


def test_no_vocabulary(tmp_path):
    with pytest.raises(UserError, match=r"nowhere is not a directory"):
        load_tokenizer(tmp_path / "nowhere")
    expected = r"nor vocab\.txt nor tokenizer\.json; train_vocab makes"
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["spiece.model", "vocab.txt"])
def test_a_vocabulary_that_cannot_be_read(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"{name}: Is a directory"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", r"tokenizer_config\.json is not valid JSON"),
        ({"do_lower_case": 1}, r"do_lower_case=1 is neither true nor false"),
        ({"keep_accents": "no"}, r"keep_accents='no' is neither"),
        ({"strip_accents": 0}, r"strip_accents=0 is neither"),
        ({"tokenize_chinese_chars": None}, r"_chars=None is neither"),
        (
            {"keep_accents": True, "strip_accents": True},
            r"strip_accents and keep_accents are both true; remove one",
        ),
    ],
)
def test_bad_settings(wordpiece_tokenizer, tmp_path, config, expected):
    write(tmp_path, [wordpiece_tokenizer], config)
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


def test_module_leaves_tensorflow_alone():
    code = (
        "import sys, albert_tf.text.tokenizer;"
        "sys.exit('tensorflow' in sys.modules)"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
