"""Tasks made of texts and questions: what their rows say is so."""

import random
import re

import pytest

from benchmarks.made_tasks import MADE_TASKS, Part, divided, read_parts, tagged
from benchmarks.question_tasks import question_rows


def _sentence(part, document, number):
    return f"Here is sentence {number} of {document} in book {part}."


def _parts(count=12):
    return [
        Part(
            f"book-{part}",
            [
                [_sentence(part, document, n) for n in range(5)]
                for document in range(40)
            ],
        )
        for part in range(count)
    ]


def _drawn(name, count):
    return MADE_TASKS[name].draw(_parts(), random.Random(1), count)


def _place(sentence):
    """Returns the number, document and book of a sentence."""
    return tuple(map(int, re.findall("[0-9]+", sentence)))


def test_dev_is_of_the_last_documents_of_each_part():
    parts = divided(_parts(2))
    assert [len(p.documents) for p in parts["train"]] == [32, 32]
    assert parts["dev"][1].documents[0][0] == _sentence(1, 32, 0)


def test_paragraphs_of_a_book_are_documents_of_sentences(tmp_path):
    text = "# Title\n\nThe first one. It has two.\n\nAnother one stands here.\n"
    (tmp_path / "one.md").write_text(text)
    (part,) = read_parts(str(tmp_path), "file", skip_header_lines=1)
    assert part == Part(
        "one",
        [["The first one.", "It has two."], ["Another one stands here."]],
    )


def test_a_passage_is_from_the_book_of_its_label():
    rows = _drawn("book", 24)
    assert len(rows) == 24
    assert all(f"book {label[5:]}." in passage for passage, label in rows)


def test_pairs_of_a_document_are_told_from_others():
    rows = _drawn("same-document", 40)
    assert len(rows) == 40
    for first, second, label in rows:
        assert (_place(first)[1:] == _place(second)[1:]) == (label == "same")


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("next-sentence", "next", "other"),
        ("sentence-order", "in order", "swapped"),
    ],
)
def test_neighbours_have_half_of_the_rows(name, true, false):
    rows = _drawn(name, 40)
    follows = [
        _place(first)[1:] == _place(second)[1:]
        and _place(second)[0] == _place(first)[0] + 1
        for first, second, _ in rows
    ]
    assert [label for *_, label in rows] == [
        true if is_next else false for is_next in follows
    ]
    assert sum(follows) == 20


def test_two_words_are_swapped_where_the_label_says_so():
    written = {s for part in _parts() for d in part.documents for s in d}
    rows = _drawn("swapped-words", 40)
    assert {label for _, label in rows} == {"swapped", "written"}
    for sentence, label in rows:
        assert (sentence in written) == (label == "written")


def test_names_follow_titles_and_places_follow_prepositions():
    sentence = (
        "Then Mr. Elton Knight, of whom I spoke, ran to Bath with Two dogs."
    )
    tags = {word: tag for word, tag in tagged(sentence) if tag != "O"}
    assert tags == {
        "elton": "B-name",
        "knight,": "I-name",
        "bath": "B-place",
        "two": "B-number",
    }


def test_a_comma_ends_a_name():
    tags = dict(tagged("So Mr. Elton, Emma thought, was mistaken."))
    assert (tags["elton,"], tags["emma"]) == ("B-name", "O")


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("1885", "date"),
        ("4 May", "date"),
        ("12 percent", "number"),
        ("Paul Dirac", "name"),
        ("gold", "word"),
        ("a lump of gold", "phrase"),
    ],
)
def test_the_form_of_an_answer_is_its_label(answer, form):
    question = {"question": "What\nis it?", "answers": [{"text": answer}]}
    other = {"question": "Why?", "answers": []}
    paragraph = {"qas": [question, other]}
    articles = [{"title": "Physics", "paragraphs": [paragraph]}]
    assert question_rows(articles, "answer-form") == [("What is it?", form)]
    assert question_rows(articles, "article")[1] == ("Why?", "Physics")
