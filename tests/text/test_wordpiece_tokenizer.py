import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.wordpiece import split_words
from albert_tf.text.wordpiece_tokenizer import read_vocabulary


def naive_ids(tokenizer, text):
    """Greedy longest match, by trying every piece."""
    vocabulary = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = []
    for word in split_words(text, **tokenizer.settings):
        found, rest = [], word
        while rest and len(word) <= 200:
            lead = "##" if found else ""
            fitting = [
                piece
                for piece in vocabulary
                if (lead + rest).startswith(piece) and len(piece) > len(lead)
            ]
            if not fitting:
                break
            found.append(max(fitting, key=len))
            rest = rest[len(found[-1]) - len(lead) :]
        known = found and not rest
        ids += [vocabulary.index(p) for p in (found if known else ["[UNK]"])]
    return ids


AWKWARD = st.text("abunfleigsxX8,0# [É\u0301Σσ中国か\u1112\u1161😀\x0b\ud800")


@given(texts=st.lists(AWKWARD | st.text()))
# Longer than a chunk that is cached.
@example(texts=["中xx,a" * 100, "xx." * 50])
def test_ids_are_the_longest_pieces(wordpiece_tokenizer, texts):
    expected = [naive_ids(wordpiece_tokenizer, text) for text in texts]
    assert [wordpiece_tokenizer.encode(text) for text in texts] == expected
    assert wordpiece_tokenizer.encode_batch(texts) == expected


def test_decode(wordpiece_tokenizer):
    t = wordpiece_tokenizer
    ids = [t.cls_id, *t.encode("Unaffable, zz 国人."), t.sep_id, t.pad_id]
    assert t.decode(np.array(ids)) == "unaffable , [UNK] 国 人 ."


def test_replacements_are_pieces_of_text(wordpiece_tokenizer):
    t = wordpiece_tokenizer
    assert t.replacement_ids.tolist() == list(range(7, t.vocab_size))
    assert t.replacement_ids.dtype == np.int32


def test_word_starts(wordpiece_tokenizer):
    t = wordpiece_tokenizer
    pieces = t.pieces(np.flatnonzero(~t.word_start))
    assert len(pieces) == 21 and all(p.startswith("##") for p in pieces)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_lines_of_a_vocabulary(tmp_path, end):
    path = tmp_path / "vocab.txt"
    # Only a newline parts two lines; the third is white space and counts.
    data = f"[PAD]\r\na \n\u2028\n##\x85b{end}"
    path.write_bytes(data.encode())
    assert read_vocabulary(str(path)) == ["[PAD]", "a", "\u2028", "##\x85b"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\nb\na\n", r"vocab\.txt, line 3: 'a' is on line 1 already"),
        (b"a\n\nb\n", r"vocab\.txt, line 2 is empty; every line is a piece"),
        (b"a\n\xff\n", r"vocab\.txt, line 2: invalid start byte at byte 0"),
        (b"", r"vocab\.txt, line 1 is empty"),
        (
            b"[PAD]\n[UNK]\n[SEP]\nx\n",
            r"vocab\.txt has no piece \[CLS\], \[MASK\]",
        ),
    ],
)
def test_bad_vocabulary(tmp_path, data, expected):
    (tmp_path / "vocab.txt").write_bytes(data)
    with pytest.raises(UserError, match=expected) as caught:
        load_tokenizer(tmp_path)
    assert "\n" not in str(caught.value)


def test_words_become_pieces(wordpiece_tokenizer):
    t = wordpiece_tokenizer
    assert t.words("Unaffable, 8 x2 zz") == ["unaffable", "zz"]
    larger = t.with_words(["unaffable", "zz"])
    assert larger.encode("zz Unaffable.") == [
        t.vocab_size + 1,
        t.vocab_size,
        *t.encode("."),
    ]
    assert larger.settings == t.settings
    assert larger.encode("unaff") == t.encode("unaff")
