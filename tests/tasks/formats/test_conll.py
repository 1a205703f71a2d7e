"""Files of tagged words."""

import hypothesis
import pytest
from hypothesis import strategies as st

from albert_tf.config import UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.conll import (
    first_columns,
    read_conll,
    read_untagged,
)


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
        *("1 # SYM", "2 Sue PROPN", "2.1 likes VERB", "3 tea NOUN"),
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
        WordsExample(("#", "Sue", "tea"), ("SYM", "PROPN", "NOUN")),
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


# By their content alone; none ends in a tag of the test below.
COMMENTS = [
    "#",
    "# newdoc",
    "# exported 2024",
    "# by me 2024-01-01",
    "# sent_id = 0",
    "# text = # Ulm",
    "# domain=en",
    "#meta x=1",
]


def _read_plainly(text, separator, word, tag):
    """Returns words and tags, read by who knows what the comments are."""
    found = []
    for block in text.split("\n\n"):
        lines = [ln for ln in block.split("\n") if ln and ln not in COMMENTS]
        rows = [line.split(separator) for line in lines]
        if rows:
            found.append([(row[word], row[tag]) for row in rows])
    return found


@hypothesis.given(data=st.data())
def test_any_comments_and_words_that_look_like_them(tmp_path_factory, data):
    separator = data.draw(st.sampled_from(" \t"))
    word, tag, width = data.draw(
        st.sampled_from([(0, 1, 2), (1, 0, 2), (0, -1, 3), (1, -1, 4)])
    )
    tags = data.draw(st.sampled_from([["O", "B-X"], ["NOUN", "VERB", "SYM"]]))

    def row(text, its_tag, number):
        fields = [str(number), *"xyz"][:width]
        fields[word], fields[tag] = text, its_tag
        return separator.join(fields)

    def sentence(words):
        return [
            row(text, data.draw(st.sampled_from(tags)), number)
            for number, text in enumerate(words, start=1)
        ]

    # Words with each tag, which are no #.
    sure = [row("Ulm", its_tag, 7) for its_tag in tags]
    comments = st.lists(st.sampled_from(COMMENTS), max_size=3)
    words = st.lists(st.sampled_from(["#", "Anna", "#fun", "a=b"]), max_size=3)
    blocks = [[*data.draw(comments), *sure]]
    for _ in range(data.draw(st.integers(0, 4))):
        blocks.append([*data.draw(comments), *sentence(data.draw(words))])
    blocks = data.draw(st.permutations([b for b in blocks if b]))
    text = "\n\n".join("\n".join(block) for block in blocks)
    path = tmp_path_factory.mktemp("words") / "train.conll"
    path.write_text(text)
    for columns in ({"tag_column": tag}, {"tag_column": tag, "tagged": False}):
        found = read_conll(str(path), word, **columns, log=lambda line: None)
        pairs = [[*zip(e.words, e.tags, strict=True)] for e in found]
        assert pairs == _read_plainly(text, separator, word, tag)


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (
            "# corpus\nMia NOUN\n\n# corpus\nBo NOUN\n",
            "Mia Bo",
            ":1: '# corpus' is read as a comment, since no other word has the "
            "tag 'corpus'; such lines: 2. A tab behind the # makes it a word.",
        ),
        ("#\tcorpus\nMia NOUN\n", "# Mia", ""),
        (
            "Bo NOUN\n\n# NOUN\nMia NOUN\n",
            "Bo # Mia",
            ":3: '# NOUN' is read as a word, since another word has the tag "
            "'NOUN'. If it is a comment, remove it.",
        ),
        (
            "#fun HT\nMia NOUN\n",
            "#fun Mia",
            ":1: '#fun HT' is read as a word, though no other word has the tag "
            "'HT'. If it is a comment, remove it.",
        ),
        # Tags of entities tell it.
        ("# corpus\nMia O\n", "Mia", ""),
        ("# B-X\nMia O\n", "# Mia", ""),
        ("# O\nMia X\n", "# Mia", ""),
        # Lines with words have tabs, and others within a sentence too.
        ("# NOUN\nBo\tNOUN\n# NOUN\nMia\tNOUN\n", "Bo Mia", ""),
        ("# NOUN\nBo\tNOUN\n# NOUN\nMia NOUN\n", "# Bo # Mia", ":1: '# NO"),
        # A single column may be any word.
        ("# corpus\n#\nMia\n", "# Mia", ""),
    ],
)
def test_a_line_tells_what_the_tag_decided(write, content, words, message):
    path = write("train.conll", content)
    lines = []
    found = read_conll(path, tagged=False, log=lines.append)
    assert " ".join(word for e in found for word in e.words) == words
    (line,) = lines or [""]
    assert line.startswith(path + message if message else "")
    assert bool(line) == bool(message)


@pytest.mark.parametrize(
    ("content", "word", "words"),
    [
        # Another number of columns; the tag of another word does not count.
        ("# vitamin O\nMia O\n", 0, "Mia"),
        ("#a b c\nMia NOUN\n", 0, "Mia"),
        ("#fun park O\nMia O\n", 0, "#fun Mia"),
        # Where the word stands behind a number or tag, # is none.
        ("# part X\n1 Mia X\n", 1, "Mia"),
        ("NN Bo\n# pound\n\n# Mia\nNN Bo\n", 1, "Bo pound Mia Bo"),
        # An = as elsewhere in such files.
        ("# a=b O\nMia c O\n", 0, "Mia"),
        ("# a=b O\nMia a=c O\n", 0, "# Mia"),
        ("#fun O\n", 0, "#fun"),
    ],
)
def test_columns_tell_comments_from_words(write, content, word, words):
    found = read_conll(write("train.conll", content), word, tagged=False)
    assert " ".join(word for e in found for word in e.words) == words


def test_a_file_of_comments_alone_has_no_words(write):
    with pytest.raises(UserError, match="has no words"):
        read_conll(write("train.conll", "# a b\n\n# c\n"))


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


def test_tabs_at_the_ends_of_lines_separate_nothing(write):
    path = write("train.txt", "EU B-ORG\t\nrejects O\t\n")
    (found,) = read_conll(path)
    assert found == WordsExample(("EU", "rejects"), ("B-ORG", "O"))


def test_a_word_between_tabs_may_hold_blanks(write):
    path = write("train.txt", "# id 9\nNew York\tB-LOC\n Ulm \t\tO\n")
    (found,) = read_conll(path)
    assert found == WordsExample(("New York", "Ulm"), ("B-LOC", "O"))
    (untagged,) = read_untagged(path, 0, print)
    assert untagged[1].words == found.words
    assert first_columns(path) == ["New York", "B-LOC"]
