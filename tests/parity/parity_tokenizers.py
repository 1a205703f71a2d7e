"""Our tokenizers against transformers', opened from what we save.

transformers opens a directory in two ways. PreTrainedTokenizerFast runs its
tokenizer.json as it is, and is what AutoTokenizer chooses for SentencePiece.
BertTokenizer, which it chooses for WordPiece, takes the vocabulary out of it
and cleans text up by rules of its own. Where they are known to differ from us
the text is left out by a rule, and the table says how many were.
"""

import functools
import io
import re
import unicodedata

import hypothesis
import numpy as np
import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import strategies as st

from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

SETTINGS = {
    "default": {},
    "cased": {"do_lower_case": False},
    "accents": {"keep_accents": True},
}
WORDPIECES = """
    [PAD] [UNK] [CLS] [SEP] [MASK] a b n t h e the of and ##a ##n ##d ##t ##he
    ##ing run 8 ##8 , . é 中 国 か ##か ! ( )
"""
# Among the letters of the vocabulary other scripts, spaces, and what looks
# alike; and any text at all.
TEXTS = (
    st.text("thefonadibcugm 8,0.'`\"()#É\u0301ﬁ½ΣİßŒ中国か한\u3000\t\u200b")
    | st.text()
    | st.lists(
        st.sampled_from(["the", "of", "and", "1,900,", "8,", "(bad)", "É"])
    ).map(" ".join)
)


# What AutoTokenizer of version 5 opens them with.
CLASSES = {
    "SentencePiece": "TokenizersBackend",
    "WordPiece": "BertTokenizer",
}
READERS = {
    "AutoTokenizer": transformers.AutoTokenizer,
    "tokenizer.json": transformers.PreTrainedTokenizerFast,
}


def left_out(ours, reader, theirs, as_it_is, text):
    """Why a text is not compared, None if it is."""
    if any(name in text for name in ours.special_tokens.values()):
        return "a special piece written out"
    if isinstance(ours, SentencePieceTokenizer):
        # Theirs comes from the same scores once more and may be another.
        if re.search(r"\d\s*,", unicodedata.normalize("NFKC", text)):
            return "a comma after a digit"
        # Their character map takes the base and loses the mark: ½ with U+0301.
        composed = unicodedata.normalize("NFC", text)
        if ours.settings["keep_accents"] and any(
            map(unicodedata.combining, composed)
        ):
            return "an accent that composes with nothing"
    if tokenizers.normalizers.NFKD().normalize_str(
        text
    ) != unicodedata.normalize("NFKD", text):
        return "a character younger than their Unicode tables"
    if reader == "AutoTokenizer" and isinstance(ours, WordPieceTokenizer):
        for character in text:
            alone = f"a{character}a"
            if their_ids(theirs, alone) != their_ids(as_it_is, alone):
                return "a character that their class cleans up otherwise"
    return None


@pytest.fixture(scope="module")
def opened(tmp_path_factory, tiny_tokenizer):
    """open(kind, setting) returns ours, and theirs by READERS."""

    @functools.cache
    def open_directory(kind, setting):
        if kind == "SentencePiece":
            ours = SentencePieceTokenizer(
                tiny_tokenizer.model_bytes, **SETTINGS[setting]
            )
        else:
            ours = WordPieceTokenizer(WORDPIECES.split(), **SETTINGS[setting])
        place = tmp_path_factory.mktemp("tokenizer")
        ours.save(place)
        theirs = {
            name: reader.from_pretrained(place)
            for name, reader in READERS.items()
        }
        assert type(theirs["AutoTokenizer"]).__name__ == CLASSES[kind]
        return ours, theirs

    return open_directory


each_kind = pytest.mark.parametrize("kind", [*CLASSES])
each_reader = pytest.mark.parametrize("reader", READERS)
each_setting = pytest.mark.parametrize("setting", SETTINGS)


def their_ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def subject_of(kind, reader, setting):
    name = kind if reader == "AutoTokenizer" else f"{reader} of {kind}"
    return f"transformers {name}, {setting}"


@each_kind
@each_reader
@each_setting
@hypothesis.settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(text=TEXTS)
def test_ids_of_random_texts(
    opened, record_difference, kind, reader, setting, text
):
    ours, theirs = opened(kind, setting)
    subject = subject_of(kind, reader, setting)
    as_it_is = theirs["tokenizer.json"]
    reason = left_out(ours, reader, theirs[reader], as_it_is, text)
    if reason:
        record_difference(subject, f"left out: {reason}", 0, 0)
        return
    wrong = their_ids(theirs[reader], text) != ours.encode(text)
    record_difference(subject, "random texts with other ids", wrong, 0)


@each_kind
@each_reader
@each_setting
def test_ids_of_sentences(
    opened, sentences, record_difference, kind, reader, setting
):
    ours, theirs = opened(kind, setting)
    subject = subject_of(kind, reader, setting)
    for text in sentences:
        wrong = their_ids(theirs[reader], text) != ours.encode(text)
        record_difference(subject, "sentences with other ids", wrong, 0)


@each_kind
@each_reader
def test_pairs_of_texts_have_segments(opened, record_difference, kind, reader):
    ours, theirs = opened(kind, "default")
    a, b = ours.encode("the"), ours.encode("of and")
    # transformers 5 leaves segments out unless asked for them.
    encoded = theirs[reader]("the", "of and", return_token_type_ids=True)
    cls, sep = ours.cls_id, ours.sep_id
    wrong = encoded["input_ids"] != [cls, *a, sep, *b, sep] or encoded[
        "token_type_ids"
    ] != [0] * (len(a) + 2) + [1] * (len(b) + 1)
    subject = subject_of(kind, reader, "default")
    record_difference(subject, "pairs framed otherwise", wrong, 0)


@each_kind
@each_reader
def test_batches_of_texts_and_pairs(
    opened, sentences, record_difference, kind, reader
):
    ours, theirs = opened(kind, "default")
    """Of an odd number the longer half is of the second text there."""
    first, second = sentences[:60], sentences[60:120]
    for pairs, width in ((None, 12), (second, 15), (second, 21)):
        encoded = theirs[reader](
            first,
            pairs,
            padding=True,
            truncation=True,
            max_length=width,
            return_token_type_ids=True,
            return_tensors="np",
        )
        found = ours(first, pairs, max_seq_length=width)
        wrong = np.zeros(len(first), bool)
        for name, theirs_name in (
            ("input_ids", "input_ids"),
            ("input_mask", "attention_mask"),
            ("segment_ids", "token_type_ids"),
        ):
            assert found[name].shape == encoded[theirs_name].shape
            wrong |= (found[name] != encoded[theirs_name]).any(axis=1)
        form = "texts" if pairs is None else "pairs"
        record_difference(
            subject_of(kind, reader, "default"),
            f"{form} of at most {width} tokens encoded otherwise",
            int(wrong.sum()),
            0,
        )


@pytest.mark.parametrize("model_type", ["bpe", "char", "word"])
def test_other_types_of_models(
    sentences, tmp_path, record_difference, model_type
):
    """They run tokenizer.json as it is, and save it so; of words none."""
    # No digit is merged with a comma.
    sentences = [text.replace(",", " ,") for text in sentences]
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=trained,
        model_type=model_type,
        vocab_size=300,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
    )
    ours = SentencePieceTokenizer(trained.getvalue())
    ours.save(tmp_path / "ours")
    transformers.AlbertConfig().save_pretrained(tmp_path / "ours")
    read = transformers.AutoTokenizer.from_pretrained
    if model_type == "word":
        with pytest.raises(
            ValueError, match="Couldn't instantiate the backend"
        ):
            read(tmp_path / "ours")
        return
    theirs = read(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    again = load_tokenizer(tmp_path / "theirs")
    for text in sentences:
        ids = ours.encode(text)
        wrong = their_ids(theirs, text) != ids or again.encode(text) != ids
        subject = f"transformers AutoTokenizer, {model_type} model"
        record_difference(subject, "sentences with other ids", wrong, 0)
