"""Passages: whole sentences within a model's length."""

from data_prep.corpus.reading import Document
from data_prep.passages import passages_of


def letters(texts):
    return map(len, texts)


def texts_of(*paragraphs):
    found = passages_of(
        Document("a.txt", paragraphs), str.splitlines, letters, 10
    )
    passages = list(found)
    assert [p.place for p in passages] == [*range(1, len(passages) + 1)]
    return [p.text for p in passages]


def test_as_many_sentences_as_fit_are_a_passage():
    assert texts_of("abc\ndef\nghij\nk") == ["abc def ghij", "k"]


def test_a_full_passage_ends_with_its_paragraph_and_a_heading_does_not():
    assert texts_of("head", "abcde", "fg") == ["head abcde", "fg"]


def test_a_long_sentence_is_cut_at_spaces_and_none_lost():
    text = "abc de fghi " + "x" * 25
    found = texts_of(text)
    assert all(len(part) <= 10 + 1 for part in found)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
