"""load_tokenizer: vocabularies, their settings, and refusals."""

import os

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.io.json_files import write_json
from albert_tf.text import tokenizer_base
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.tokenizer_base import MAX_VOCABULARY_BYTES
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from tests.counted_work import steps_below


def write(directory, tokenizers, config=None):
    for tokenizer in tokenizers:
        tokenizer.save(directory)
    for name in ("tokenizer_config.json", "tokenizer.json"):
        os.remove(directory / name)
    if config is not None:
        write_json(directory / "tokenizer_config.json", config)


@pytest.mark.parametrize(
    ("config", "lower", "accents"),
    [
        # Without a word, those of the released models.
        (None, True, False),
        ({"do_lower_case": False}, False, True),
        ({"do_lower_case": False, "strip_accents": True}, False, False),
        ({"strip_accents": False}, True, True),
        ({"keep_accents": True, "strip_accents": False}, True, True),
        # There is only this file, whatever the class.
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


def test_the_class_chooses_between_two_vocabularies(
    tiny_tokenizer, wordpiece_tokenizer, tmp_path
):
    write(tmp_path, [tiny_tokenizer, wordpiece_tokenizer])
    expected = (
        r"has both spiece\.model and vocab\.txt; remove one, or let "
        r"tokenizer_class in tokenizer_config\.json be one of "
        r"AlbertTokenizer, BertTokenizer\."
    )
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    for name, kind in (
        ("AlbertTokenizer", SentencePieceTokenizer),
        ("BertTokenizerFast", WordPieceTokenizer),
    ):
        write_json(path, {"tokenizer_class": name})
        assert type(load_tokenizer(tmp_path)) is kind
    write_json(path, {"tokenizer_class": "T5"})
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("tiny", "BigBirdTokenizer"), ("wordpiece", "BertJapaneseTokenizer")],
)
def test_classes_that_make_other_ids(request, tmp_path, kind, name):
    tokenizer = request.getfixturevalue(f"{kind}_tokenizer")
    write(tmp_path, [tokenizer], {"tokenizer_class": name})
    file = tokenizer.vocabulary_file
    expected = f"tokenizer_class='{name}' makes other ids with {file} than"
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)
    # Whoever names the file decides.
    assert load_tokenizer(tmp_path / file)


def test_no_vocabulary(tmp_path):
    with pytest.raises(UserError, match=r"nowhere does not exist"):
        load_tokenizer(tmp_path / "nowhere")
    expected = r"no tokenizer, none of \*\.model, .*: copy that of the model"
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


def refused(tmp_path, name, text):
    """Asserts an error of one line, with little work."""
    for path in (tmp_path, tmp_path / name):
        with (
            pytest.raises(UserError, match=text) as caught,
            steps_below(30_000),
        ):
            load_tokenizer(path)
        assert str(caught.value).startswith(str(tmp_path / name))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["spiece.model", "vocab.txt", "tokenizer.json"]
)
def test_a_vocabulary_file_that_is_too_large(tmp_path, name):
    with open(tmp_path / name, "wb") as file:
        file.truncate(MAX_VOCABULARY_BYTES + 1)
    refused(tmp_path, name, "has 16777217 bytes; more than 16777216 is ref")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tiny_tokenizer", "spiece.model"),
        ("tiny_tokenizer", "tokenizer.json"),
        ("wordpiece_tokenizer", "vocab.txt"),
        ("wordpiece_tokenizer", "tokenizer.json"),
    ],
)
def test_a_vocabulary_of_too_many_pieces(
    request, tmp_path, monkeypatch, kind, name
):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.save(tmp_path / "saved")
    os.replace(tmp_path / "saved" / name, tmp_path / name)
    size = tokenizer.vocab_size
    monkeypatch.setattr(tokenizer_base, "MAX_PIECES", size)
    assert load_tokenizer(tmp_path).vocab_size == size
    monkeypatch.setattr(tokenizer_base, "MAX_PIECES", size - 1)
    text = f"{name}.* has {size} pieces; the maximum is {size - 1}"
    refused(tmp_path, name, text)


def test_a_vocabulary_of_another_name(
    tiny_tokenizer, wordpiece_tokenizer, tmp_path
):
    for name, tokenizer in (
        ("30k-clean.model", tiny_tokenizer),
        ("vocab_chinese.txt", wordpiece_tokenizer),
    ):
        write(tmp_path, [tokenizer])
        os.replace(tmp_path / tokenizer.vocabulary_file, tmp_path / name)
        loaded = load_tokenizer(tmp_path / name)
        assert type(loaded) is type(tokenizer)
        assert loaded.fingerprint == tokenizer.fingerprint
    with pytest.raises(
        UserError, match=r"2 vocabularies, 30k-clean\.model, vocab_chinese\.txt"
    ):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab_chinese.txt").unlink()
    (tmp_path / "30k-clean.vocab").touch()
    (tmp_path / ".hidden.model").touch()
    (tmp_path / "deep.model").mkdir()
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    for path in (tmp_path, tmp_path / "30k-clean.model"):
        assert load_tokenizer(path).settings == {
            "do_lower_case": False,
            "keep_accents": False,
        }


def test_pieces_and_scores_give_the_ids_of_the_model(
    tiny_directory, tiny_tokenizer, sentences, tmp_path
):
    path = tmp_path / "30k-clean.vocab"
    path.write_bytes((tiny_directory / "spiece.vocab").read_bytes())
    texts = [*sentences, "Ça ﬁn [MASK] 1,234 <unk> (b) – £5", ""]
    for place in (path, tmp_path):
        loaded = load_tokenizer(place)
        assert loaded.encode_batch(texts) == tiny_tokenizer.encode_batch(texts)
        np.testing.assert_array_equal(
            loaded.replacement_ids, tiny_tokenizer.replacement_ids
        )


def test_marks_of_sentences_are_no_text_in_pieces_and_scores(tmp_path):
    special = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]", "<pad>"]
    rows = [f"{piece}\t0\n" for piece in special]
    rows += ["▁a\t-1\n", "b\t-3\n"]
    (tmp_path / "m.vocab").write_text("".join(rows), "utf-8")
    loaded = load_tokenizer(tmp_path / "m.vocab")
    assert loaded.encode("a <s>") == [7, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\t0\nb 1\n", r"line 2: expected a piece, a tab .* got 'b 1'"),
        ("a\tnan\n", "piece 0 is not a pair"),
        ("a\t-1.5\n", "has no piece <unk>"),
        ("", "has no list of pieces"),
        ("<unk>\t0\na\t-0\n▁ab\t-1\nb\t-2\n", "a model of type BPE or word"),
        ("<unk>\t0\n▁ab\t-1.5\n▁b\t-2\n", "a model of type BPE or word"),
    ],
)
def test_faulty_pieces_and_scores(tmp_path, content, message):
    (tmp_path / "x.vocab").write_text(content, "utf-8")
    with pytest.raises(UserError, match=rf"x\.vocab.*{message}"):
        load_tokenizer(tmp_path / "x.vocab")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"do_lower_case": 1},
            "expected do_lower_case to be true or false, got 1",
        ),
        ({"strip_accents": 0}, "expected strip_accents .* got 0"),
        ({"truncation_side": "left"}, "cuts the beginnings of long texts"),
        ({"sep_token": "[NEW]"}, r"sep_token='\[NEW\]' makes other ids"),
        ({"unk_token": {"content": "<s>"}}, "whose unk_token is .UNK"),
    ],
)
def test_bad_settings(wordpiece_tokenizer, tmp_path, config, expected):
    write(tmp_path, [wordpiece_tokenizer], config)
    with pytest.raises(UserError, match=expected):
        load_tokenizer(tmp_path)


def test_padding_may_have_any_piece(wordpiece_tokenizer, tmp_path):
    config = {"pad_token": "[UNK]", "cls_token": {"content": "[CLS]"}}
    write(tmp_path, [wordpiece_tokenizer], config)
    assert load_tokenizer(tmp_path).encode("a") == wordpiece_tokenizer.encode(
        "a"
    )
