"""Files of tagged words."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.conll import read_conll


def test_sentences(write):
    path = write(
        "train.txt",
        "-DOCSTART- -X- -X- O\n\n"
        "Mia NNP B-NP B-PER\n# SYM  B-NP\tO\n"
        # A document without a blank line before it, then several of them.
        "-DOCSTART- (2)\n10\xa0km CD B-NP O\r\n\r\n \t\n\n"
        "Ulm NNP B-NP B-LOC",
    )
    examples = read_conll(path)
    assert examples == [
        WordsExample(("Mia", "#"), ("B-PER", "O")),
        WordsExample(("10\xa0km",), ("O",)),
        WordsExample(("Ulm",), ("B-LOC",)),
    ]
    assert [e.location for e in examples] == [
        f"{path}:{number}" for number in (3, 6, 10)
    ]


def test_comments_and_contractions_of_conllu_are_no_words(write):
    # Examples of universaldependencies.org/format.html, and a word with a
    # blank.
    lines = [
        "# sent_id = 1",
        "# text = vámonos al mar 10 000",
        *("1-2 vámonos _", "1 vamos VERB", "2 nos PRON"),
        *("3-4 al _", "3 a ADP", "4 el DET", "5 mar NOUN", "6 10~000 NUM"),
        "",
        "# text = Sue likes coffee and Bill tea",
        *("1 Sue PROPN", "2 # SYM", "2.1 likes VERB", "3 tea NOUN"),
    ]
    rows = [
        line if line[:1] in ("", "#") else _conllu_row(*line.split(" "))
        for line in lines
    ]
    path = write("train.conllu", "\n".join(rows).replace("~", " "))
    examples = read_conll(path, 1, 3)
    assert examples == [
        WordsExample(
            ("vamos", "nos", "a", "el", "mar", "10 000"),
            ("VERB", "PRON", "ADP", "DET", "NOUN", "NUM"),
        ),
        WordsExample(("Sue", "#", "tea"), ("PROPN", "SYM", "NOUN")),
    ]
    assert [e.location for e in examples] == [f"{path}:4", f"{path}:13"]
    # A model of files whose first column is the word reads no numbers.
    assert [e.words for e in read_conll(path, 0, tagged=False)] == [
        e.words for e in examples
    ]


@pytest.mark.parametrize(
    ("content", "word", "tag"),
    [
        # MultiCoNER and GermEval have such comments.
        ("# id 9b domain=en\n\n# id 9c domain=en\n# _ _ O\nUlm _ _ X\n", 0, 3),
        ("#\tn-tv.de\t[2009]\n1\t#\tO\tO\n2\tUlm\tX\tO\n", 1, 2),
        ("# sent_id = 1\n# text = # Ulm\n# O\nUlm X\n", 0, -1),
    ],
)
def test_comments_before_a_sentence(write, content, word, tag):
    """Not a word that is called as they begin."""
    *_, found = read_conll(write("train.txt", content), word, tag)
    assert found == WordsExample(("#", "Ulm"), ("O", "X"))


def _conllu_row(number, word, tag):
    """Returns a line of ten columns."""
    return "\t".join([number, word, word.lower(), tag, *"_" * 6])


def test_optional_tags(write):
    # A document's line is no line of words, however wide.
    plain = "-DOCSTART- -X- -X- O\n\nMia\nin\n\nUlm\n"
    path = write("train.txt", plain)
    found = read_conll(path, tagged=False)
    assert found == [
        WordsExample(("Mia", "in"), None),
        WordsExample(("Ulm",), None),
    ]
    # Where they are there they are read.
    path = write("train.txt", "-DOCSTART-\n\nMia NNP B-PER\nin IN O\n")
    for tagged in (True, False):
        (example,) = read_conll(path, tagged=tagged)
        assert example == WordsExample(("Mia", "in"), ("B-PER", "O"))
    # The word stands in another column, and the tag's is not there.
    path = write("train.txt", "1 Mia\n2 in\n")
    (example,) = read_conll(path, 1, 2, tagged=False)
    assert example == WordsExample(("Mia", "in"), None)


@pytest.mark.parametrize(
    ("content", "columns", "message"),
    [
        ("-DOCSTART- O\n\n \n", {}, "has no words; a file of tagged words"),
        # The only column is no tag.
        ("a O\nb\n", {}, ":2: expected at least 2 columns, got 1: 'b'"),
        # Y is not the tag of b.
        ("a X O\nb Y\nc d X O\ne X O\n", {}, ":2: expected 3 columns, as most"),
        ("a O\n", {"tag_column": 2}, ":1: expected at least 3 columns, got 2"),
        ("a O\n", {"tag_column": -2}, ":1: expected at least 3 columns, got 2"),
        (
            "a\n",
            {"word_column": -2, "tag_column": -1, "tagged": False},
            ":1: expected at least 2 columns, got 1",
        ),
        # The first line has a tag, and says that all have.
        ("a O\nb\n", {"tagged": False}, ":2: expected at least 2 columns, got"),
    ],
)
def test_errors(write, content, columns, message):
    path = write("train.txt", content)
    with pytest.raises(UserError, match=message) as raised:
        read_conll(path, **columns)
    assert str(raised.value).startswith(path)
    assert "\n" not in str(raised.value)
