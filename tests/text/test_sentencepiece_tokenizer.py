import re

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as proto

from albert_tf.config import UserError
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer


def original_ids(processor, text):
    """The rule of google-research/albert, on the pieces of a whole text."""
    pieces = []
    for piece in processor.encode(text, out_type=str):
        if not re.search(r".*\d,$", piece):
            pieces.append(piece)
            continue
        again = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
        if piece[0] != "▁" and again[0][0] == "▁":
            again = again[1:] if again[0] == "▁" else [again[0][1:], *again[1:]]
        pieces += [*again, ","]
    return [processor.piece_to_id(piece) for piece in pieces]


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="aA789é0, ,8"))
@example(text="8,8, a8, a8,8, a70, a9, a, 8")
def test_ids_are_the_original_rule_on_clean_text(comma_tokenizer, text):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(comma_tokenizer.model_bytes)
    clean = " ".join(text.replace("A", "a").replace("é", "e").split())
    expected = original_ids(processor, clean)
    assert comma_tokenizer.encode(text) == expected
    assert comma_tokenizer.encode_batch([text, "8,", text]) == [
        expected,
        original_ids(processor, "8,"),
        expected,
    ]


def test_ties_between_segmentations(tied_tokenizer):
    # What SentencePiece gave before 0.2.2, and TensorFlow Text's copy of it
    # still gives, in the servers too: another order of the same pieces.
    pieces = tied_tokenizer.pieces(tied_tokenizer.encode("eee eeeee"))
    assert pieces == ["▁", "ee", "e", "▁", "ee", "ee", "e"]


def test_special_pieces_in_a_text_are_plain_characters(tiny_tokenizer):
    ids = tiny_tokenizer.encode("[CLS] <pad> [MASK]")
    assert not {0, 2, 3, 4} & set(ids)


def test_decode_gives_the_clean_text(tiny_tokenizer):
    text = "in 1,000, the badé of (8, 42)."
    ids = [2, *tiny_tokenizer.encode(text), 3]
    assert tiny_tokenizer.decode(np.array(ids)) == text.replace("é", "e")


def test_replacements_are_pieces_of_text(make_model):
    model = make_model({"▁": -1.0, "a": -2.0, "b": -3.0}, unused=("a",))
    tokenizer = SentencePieceTokenizer(model)
    assert tokenizer.replacement_ids.tolist() == [5, 7]
    assert tokenizer.replacement_ids.dtype == np.int32


def test_word_starts(make_model):
    starting = [*"▁.~7é—€", "▁the", "'", "'s"]
    pieces = [*starting, "ing", "Z", "..", "a."]
    t = SentencePieceTokenizer(make_model(dict.fromkeys(pieces, -1.0)))
    ids = np.flatnonzero(t.word_start)
    assert t.pieces(ids) == ["<pad>", "<unk>", *starting]


def test_model_cut_anywhere(tiny_tokenizer):
    model = proto.ModelProto.FromString(tiny_tokenizer.model_bytes)
    model.ClearField("trainer_spec")
    model.ClearField("normalizer_spec")
    only_pieces = model.SerializeToString()
    assert tiny_tokenizer.model_bytes.startswith(only_pieces)
    ends = [1, len(only_pieces) - 1, len(only_pieces), len(only_pieces) + 1]
    ends += range(100, len(only_pieces), 997)
    cut = [tiny_tokenizer.model_bytes[:end] for end in ends]
    for data in (b"", b"no model\n" * 9, b"\0" * 100, *cut):
        with pytest.raises(
            UserError, match=r"a\.model is not a complete SentencePiece model"
        ) as caught:
            SentencePieceTokenizer(data, source="a.model")
        assert "\n" not in str(caught.value)


def test_words_become_pieces(make_model):
    scores = {"▁": -1.0, "t": -2.0, "a": -3.0, "▁ta": -2.5, "b": -4.0}
    tokenizer = SentencePieceTokenizer(make_model(scores))
    text = "Tab, ta-bat taé2 ta"
    assert tokenizer.words(text) == ["tab", "ta", "tae", "ta"]
    # Vowel signs are marks.
    assert tokenizer.words("किताब, ta") == ["किताब", "ta"]
    larger = tokenizer.with_words(["tab", "tabt", "caf"])
    new = tokenizer.vocab_size
    assert larger.pieces(range(new)) == tokenizer.pieces(range(new))
    assert larger.pieces(range(new, new + 3)) == ["▁tab", "▁tabt", "▁caf"]
    # Alone, before others, and as the longest of two that fit.
    assert larger.encode("tab caf tabt") == [new, new + 2, new + 1]
    for other in ("ta", "bat", "ta ba"):
        assert larger.encode(other) == tokenizer.encode(other)
    model = proto.ModelProto.FromString(larger.model_bytes)
    assert model.trainer_spec.vocab_size == new + 3
    # Their probability: that of their pieces; an unknown character has 10
    # below the lowest score.
    added = [piece.score for piece in model.pieces[new:]]
    expected = [-6.5, -8.5, -1.0 - 14.0 - 3.0 - 14.0]
    assert added == pytest.approx(expected, abs=0.01)
