"""Inputs of predictions: what lines and rows are read as, and refused as."""

import gzip
import io
import json
import os
import re

import pytest
from saved_data_sets import save

from albert_tf.config import UserError
from albert_tf.io.compression import packing
from albert_tf.prediction.forms import (
    CHOICES,
    PAIR,
    QUESTION,
    SINGLE,
    SINGLE_OR_PAIR,
    WORDS,
    Input,
)
from albert_tf.prediction.line_inputs import read_lines
from albert_tf.prediction.table_inputs import read_table
from albert_tf.prediction.word_inputs import read_sentences


def of_lines(content, form, may_have_header=True):
    lines = io.BytesIO(content)
    read = read_lines(lines, "a.txt", may_have_header=may_have_header)
    return list(read.read(form, ()))


def of_table(tmp_path, name, content, form, *columns, of_model=()):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    inputs = read_table(str(path), columns, "csv", lambda line: None)
    found = inputs.read(form, of_model)
    # Without the directory, for messages.
    return [
        Input(
            i.texts,
            i.error and str(i.error).removeprefix(f"{tmp_path}/"),
            words=i.words,
        )
        for i in found
    ]


@pytest.mark.parametrize(
    ("form", "line", "texts"),
    [
        (SINGLE, b"a\tb", ("a\tb",)),
        (SINGLE_OR_PAIR, b"a", ("a",)),
        (SINGLE_OR_PAIR, b"a\tb\tc", ("a", "b\tc")),
        (PAIR, b"a\t", ("a", "")),
        (QUESTION, b"a?\tb\tc", ("a?", "b\tc")),
        (CHOICES, b"a\tb\tc", ("a", "b", "c")),
    ],
)
def test_tabs_between_texts(form, line, texts):
    assert of_lines(line + b"\r\n", form) == [Input(texts)]
    # The mark of UTF-8, also of files that were joined.
    marked = b"\xef\xbb\xbf" + line
    assert of_lines(marked + b"\n" + marked, form) == [Input(texts)] * 2


@pytest.mark.parametrize(
    ("form", "line", "message"),
    [
        (PAIR, b"a", "expected a pair of texts with a tab between .* got 1"),
        (PAIR, b"a\tb\tc", "expected a pair of texts with a tab .* got 3"),
        (QUESTION, b"a?", "expected a question and its paragraph .* got 1"),
        (SINGLE, b"caf\xe9", "byte 3 is not UTF-8"),
        (SINGLE, b" ", "the text is empty"),
        (PAIR, b"\t ", "the text is empty"),
    ],
)
def test_a_bad_line_does_not_cost_the_others(form, line, message):
    good = b"a\tb"
    first, bad, last = of_lines(b"\n".join([good, line, good]), form)
    assert first == last and last.error is None
    with pytest.raises(UserError, match=f"^a.txt, line 2: {message}"):
        raise bad.error


def test_lines_that_end_with_cr_alone_are_refused():
    with pytest.raises(UserError, match="a.txt: its lines end with CR alone"):
        of_lines(b"a b\rc d\r", SINGLE)
    # Within a line it is part of a text.
    first, _ = of_lines(b"a\rb\r\nc\r", SINGLE)
    assert first == Input(("a\rb",))


@pytest.mark.parametrize(
    "header",
    [
        *("text", "text\tlabel", '"text","label"', "sentence1\tsentence2"),
        *("id;text;label", "Text,Label"),
    ],
)
def test_a_header_is_no_text(header):
    content = f"{header}\nb\n".encode()
    with pytest.raises(UserError, match="is the header of a table, and no te"):
        of_lines(content, SINGLE)
    first, _ = of_lines(content, SINGLE, may_have_header=False)
    assert first.texts == (header,)


@pytest.mark.parametrize(
    ("name", "content", "form", "columns", "texts"),
    [
        ("a.csv", 'text,label\n"a, ""b""",c\n', SINGLE, [], ['a, "b"']),
        ("a.tsv", "label\tsentence\nx\ta\n", SINGLE, [], ["a"]),
        ("a.tsv", "p\tq\tlabel\na\tb\tx\n", PAIR, [], ["a", "b"]),
        ("a.tsv", "p\tq\tlabel\na\tb\tx\n", SINGLE_OR_PAIR, [], ["a", "b"]),
        ("a.tsv", "text\ttext_pair\na\tb\n", SINGLE_OR_PAIR, [], ["a", "b"]),
        ("a.tsv", "text\ttext_pair\na\tb\n", SINGLE, [], ["a"]),
        ("a.csv", "p,q\na,b\n", PAIR, ["text=q", "text=p"], ["b", "a"]),
        ("a.csv", "p,q\na,b\n", SINGLE, ["text=q", "label=p"], ["b"]),
        ("a.csv", "question,context\na,b\n", QUESTION, [], ["a", "b"]),
        (
            "a.csv",
            "p,q\na,b\n",
            QUESTION,
            ["context=p", "question=q"],
            ["b", "a"],
        ),
        (
            "a.csv",
            "a,b,c,d\nwe,sea,land,is it\n",
            CHOICES,
            ["context=a", "choice=b", "choice=c", "question=d"],
            ["we", "is it sea", "is it land"],
        ),
        (
            "a.jsonl",
            '{"context": "a", "choices": ["b", "c"]}\n',
            CHOICES,
            [],
            ["a", "b", "c"],
        ),
        (
            "a.csv",
            'context,choices\na,"[""b"",""c""]"\n',
            CHOICES,
            [],
            ["a", "b", "c"],
        ),
        (
            "a.jsonl",
            '{"context": "a", "question": "q", "choices": ["b", "c"]}\n',
            CHOICES,
            [],
            ["a", "q b", "q c"],
        ),
        ("a.jsonl", '\n{"text": 1.50, "x": null}\n', SINGLE, [], ["1.50"]),
    ],
)
def test_columns_of_texts(tmp_path, name, content, form, columns, texts):
    found = of_table(tmp_path, name, content, form, *columns)
    assert found == [Input(tuple(texts))]


def test_the_question_of_choices_is_read_if_it_was_in_training(tmp_path):
    row = {"context": "a", "question": "q", "choices": ["b", "c"]}

    def read(row, of_model):
        content = json.dumps(row) + "\n"
        (found,) = of_table(
            tmp_path, "a.jsonl", content, CHOICES, of_model=of_model
        )
        return found

    without = ["context=x", "choice=y", "choice=z"]
    asked = [*without, "question=w"]
    assert read(row, asked).texts == ("a", "q b", "q c")
    assert read(row, without).texts == ("a", "b", "c")
    del row["question"]
    assert read(row, without).texts == ("a", "b", "c")
    message = "expected the column 'question', got context, choices; name the"
    assert message in str(read(row, asked).error)


@pytest.mark.parametrize(
    ("content", "form", "columns", "message"),
    [
        # A table without a header would lose its first text.
        ("a b\nc d\n", SINGLE, [], "expected the columns text, got a b; name"),
        ("p,q,label\na,b,c\n", SINGLE, [], "expected one text, got the colum"),
        ("p,label\na,b\n", PAIR, [], "expected a pair of texts .* columns p;"),
        ("p\na\n", SINGLE, ["text=q"], "csv:2: expected the column 'q', got p"),
        ("p\na\n", SINGLE, ["word=p"], "with the role text, got 'word=p'"),
        ("p,q\na,b\n", SINGLE, ["text=p", "text=q"], "q: expected one text, a"),
        ("p\na\n", PAIR, ["text=p"], "text=p: expected a pair of texts"),
        ("p\na\n", CHOICES, ["choice=p"], "expected a text and two choi"),
        ("p\na\n", QUESTION, [], "expected the column 'question', got p"),
    ],
)
def test_columns_that_are_refused(tmp_path, content, form, columns, message):
    with pytest.raises(UserError, match=message):
        of_table(tmp_path, "a.csv", content, form, *columns)


def test_too_few_choices_are_an_error_of_their_row_or_line(tmp_path):
    content = "context,choices\na,b|c\n"
    (found,) = of_table(tmp_path, "a.csv", content, CHOICES)
    assert str(found.error) == (
        "a.csv:2: expected two choices or more as choices (a list "
        "in JSON, or several columns), got 1: 'b|c'."
    )
    _, line = of_lines(b"a\tb\tc\na\tb\n", CHOICES)
    assert str(line.error) == (
        "a.txt, line 2: expected a text and two choices or more with tabs "
        "between them, got 2."
    )


def test_a_bad_line_of_json_does_not_cost_the_others(tmp_path):
    lines = ['{"text": "a"}', "b", '{"text": null}', '\ufeff{"x": 1}', "[1]"]
    content = "\n".join([*lines, '{"text": "\\ud800"}'])
    first, *bad, last = of_table(tmp_path, "a.jsonl", content, SINGLE)
    assert (first, last) == (Input(("a",)), Input(("\ud800",)))
    assert [found.error.partition(", got")[0] for found in bad] == [
        "a.jsonl, line 2: expected JSON (Expecting value: line 1 column 1 "
        "(char 0)).",
        "a.jsonl, line 3: the text is empty.",
        "a.jsonl, line 4: expected the column 'text'",
        "a.jsonl, line 5: expected an object",
    ]
    assert bad[0].texts == ("b",)


def test_lines_are_read_when_they_are_due():
    endless = (b"text %d\n" % number for number in range(10**9))
    inputs = read_lines(endless, "-", may_have_header=True)
    found = inputs.read(SINGLE, ())
    assert next(found).texts == ("text 0",)


@pytest.mark.parametrize("line", ['{"text": "a"}', '[{"text": "a"},', "[", "{"])
def test_json_is_no_text(line):
    message = f"^a.txt, line 1: '{re.escape(line)}' is JSON, and no text; end "
    with pytest.raises(UserError, match=message):
        of_lines(f"{line}\n".encode(), SINGLE)
    content = f"{line}\n".encode()
    assert of_lines(content, SINGLE, False) == [Input((line,))]


def test_the_sign_for_the_end_of_the_file_is_no_text():
    assert of_lines(b"a\r\n\x1a", SINGLE) == [Input(("a",))]
    assert of_lines(b"a\x1a", SINGLE) == [Input(("a",))]


def test_a_bad_row_of_a_table_does_not_cost_the_others(tmp_path):
    content = 'text,label\na,x\nb,y,z\n"c,d",x\n'
    assert of_table(tmp_path, "a.csv", content, SINGLE) == [
        Input(("a",)),
        Input(
            (), "a.csv:3: expected 2 comma-separated fields, got 3: 'b,y,z'."
        ),
        Input(("c,d",)),
    ]


def test_a_file_of_words_is_no_text():
    of_words = ["word=0", "tag=-1"]

    def texts(content, columns, source="a.txt", may_have_header=True):
        lines = content.encode().splitlines(keepends=True)
        inputs = read_lines(lines, source, may_have_header=may_have_header)
        return [item.texts[0] for item in inputs.read(SINGLE, columns)]

    content = "a NN B-NP O\n\n# a = b\n" + "".join(
        f"{word} NN B-NP O\n" for word in "bcde"
    )
    message = (
        "^a.txt: its first lines have 4 columns each, as in a file of words; "
        "--input_format=conll tags its words, and --input_format=text reads "
        "each line as a text.$"
    )
    with pytest.raises(UserError, match=message):
        texts(content, of_words)
    whole = content.splitlines()
    # Nobody waits for further lines of a pipe.
    assert texts(content, of_words, "-") == whole
    assert texts(content, of_words, may_have_header=False) == whole
    assert texts(content, ["text=a"]) == whole
    assert texts(content, ["word=0", "tag=4"]) == whole
    names = "\n" + "Mia Ulm\n" * 9 + "\n"
    four = content.removesuffix("e NN B-NP O\n")
    for others in (f"{content}two\n", four, "\na\n" * 9, names):
        assert texts(others, of_words) == others.splitlines()


@pytest.mark.parametrize(
    "line",
    ["A sentence, and a label", "label: yes, or no?", "2,text 7", "The text"],
)
def test_a_text_is_no_header(line):
    first, _ = of_lines(f"{line}\nb\n".encode(), SINGLE)
    assert first.texts == (line,)


def test_parquet_by_another_name_is_no_text():
    with pytest.raises(UserError, match="a.txt is a Parquet file, expected t"):
        of_lines(b"PAR1\x15\x04", SINGLE)


def test_elements_of_a_json_array(tmp_path):
    content = '[{"text": "a"},\n{"x": 1}, {"text":\n"b"}]'
    first, bad, last = of_table(tmp_path, "a.json", content, SINGLE)
    assert (first, last) == (Input(("a",)), Input(("b",)))
    assert bad.error.startswith("a.json, line 2: expected the column 'text'")
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "a"},\n{"text": "\xff"}]')
    with pytest.raises(UserError, match=r"a.json, line 2: byte 10 is not UTF"):
        read_table(str(path), (), "csv", print)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf\n \n", "is empty"),
        (b'{"text": "a"}\r{"text": "b"}\r', "its lines end with CR alone"),
    ],
)
def test_json_that_training_refuses(tmp_path, content, message):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=message):
        list(read_table(str(path), (), "csv", print).read(SINGLE, ()))


@pytest.mark.parametrize(
    ("content", "expected"), [("[\n]", []), ('{"text": "a"}\n\x1a', ["a"])]
)
def test_json_that_training_reads(tmp_path, content, expected):
    """An array without elements, and the sign for the end of the file."""
    found = of_table(tmp_path, "a.json", content, SINGLE)
    assert found == [Input((text,)) for text in expected]


def test_one_json_object_for_the_file_is_refused(tmp_path):
    for content in ('{"data": [{"text": "a"}]}', '{\n"text": "a"\n}'):
        with pytest.raises(UserError, match="line 1: expected a JSON obj.*jq"):
            of_table(tmp_path, "a.json", content, SINGLE)


@pytest.mark.parametrize("indent", [None, 1])
def test_questions_in_squads_format(tmp_path, indent):
    """They have answers or none, in a file of one line or many."""
    answers = [{"text": "b", "answer_start": 0}]
    rows = [{"id": 7, "question": "a?", "answers": answers}]
    rows.append({"id": "x", "question": "\u00e9?"})
    data = {"data": [{"paragraphs": [{"context": "b c", "qas": rows}]}]}
    content = json.dumps(data, indent=indent, ensure_ascii=False)
    found = of_table(tmp_path, "a.json", content, QUESTION)
    assert found == [Input(("a?", "b c")), Input(("\u00e9?", "b c"))]
    path = tmp_path / "a.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match="a.json, line .* is not UTF-8"):
        read_table(str(path), (), "csv", print)


@pytest.mark.parametrize("columns", [[], ["words=tokens"]])
def test_lists_of_words(tmp_path, columns):
    """The columns are those of the model's task, or are named."""
    lines = ['{"tokens": ["Mia", "Bo", "."], "tags": [1, 2, 0]}']
    lines += ['{"tokens": "Mia"}', '{"tokens": ["Bo", " "]}', '{"tokens": []}']
    lines += ['{"tokens": ["In", "New York"]}']
    found = of_table(
        tmp_path,
        "a.jsonl",
        "\n".join(lines),
        WORDS,
        *columns,
        of_model=["words=tokens", "tags=tags"],
    )
    assert found[0] == Input(("Mia Bo .",))
    words = found.pop().words
    assert words.words == ("In", "New York")
    assert [words.text[a:b] for a, b in words.spans] == ["In", "New York"]
    assert [item.error for item in found[1:]] == [
        "a.jsonl, line 2: expected a list of strings or numbers, in JSON, as "
        "'tokens', got \"Mia\".",
        'a.jsonl, line 3: expected words with a character in them, got " ".',
        "a.jsonl, line 4: the text is empty.",
    ]


def test_words_that_are_divided_stay_so(tmp_path):
    content = '{"tokens": ["U.S.", "won"]}'
    (found,) = of_table(tmp_path, "a.jsonl", content, WORDS, "words=tokens")
    assert found.words.words == ("U.S.", "won")


def test_entities_of_the_models_task_are_not_read(tmp_path):
    content = '{"body": "Mia met Bo.", "text": "id-7"}'
    columns = ["text=body", "entities=spans"]
    assert of_table(tmp_path, "a.jsonl", content, WORDS, of_model=columns) == [
        Input(("Mia met Bo.",))
    ]


def test_a_pipe_of_json_is_not_empty(tmp_path):
    path = tmp_path / "a.jsonl"
    os.mkfifo(path)
    with pytest.raises(UserError, match="is no regular.*--input_format=jsonl"):
        read_table(str(path), (), "csv", print)


def test_texts_beside_lists_of_words(tmp_path):
    columns = ["words=tokens", "tags=tags"]
    assert of_table(
        tmp_path, "a.jsonl", '{"text": "Mia Bo."}', WORDS, of_model=columns
    ) == [Input(("Mia Bo.",))]


@pytest.mark.parametrize(
    ("content", "columns", "found"),
    [
        # No tags are read, so that a line may lack them.
        ("Mia B\nBo\n\nUlm O\n", ["word=0", "tag=-1"], ["Mia Bo", "Ulm"]),
        # The words are alone, whatever their column was in training.
        ("Mia\nBo\n\nUlm\n", ["word=1", "tag=2"], ["Mia Bo", "Ulm"]),
        ("Mia\nBo\n\nUlm\n", ["word=-2", "tag=-1"], ["Mia Bo", "Ulm"]),
    ],
)
@pytest.mark.parametrize("name", ["a.conll", "a.conllu", "a.conll.gz", "a.xz"])
def test_files_of_words_need_no_tags(tmp_path, name, content, columns, found):
    path = str(tmp_path / name)
    with open(path, "wb") as file, packing(file, path) as packed:
        packed.write(content.encode())
    inputs = read_sentences(path).read(WORDS, columns)
    assert [item.texts[0] for item in inputs] == found


@pytest.mark.parametrize(
    ("content", "first", "reason"),
    [
        ("Mia NOUN\nBo NOUN\n", "Mia Bo", "0 of 2, as it has other columns "),
        ("Mia m NOUN\nBo b X\n", "Mia Bo", "0 of 3, as it has other columns "),
        # The numbers of words, without their tags.
        ("1 Mia\n2 Bo\n", "Mia Bo", "1 of 2, as in fine-tuning; "),
        ("a Mia _ NOUN\nb Bo _ X\n", "Mia Bo", "1 of 4, as in fine-tuning; "),
        ("1\tMia\tm\tNOUN" + 6 * "\t_" + "\n", "Mia", ""),
    ],
)
def test_the_column_of_conllu_is_no_other_files(
    tmp_path, content, first, reason
):
    path = tmp_path / "a.conll"
    path.write_text(content)
    said = []
    inputs = read_sentences(str(path), log=said.append)
    assert next(inputs.read(WORDS, ["word=1", "tag=3"])) == Input((first,))
    assert len(said) == bool(reason)
    assert reason in "".join(said)


def test_a_bad_sentence_has_its_error_and_others_their_words(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("1 Mia B\n2 Bo I\n\n1 Ulm B\n2\n\n1 Po O\n")
    first, bad, last = read_sentences(str(path)).read(WORDS, ["word=1"])
    assert (first, last) == (Input(("Mia Bo",)), Input(("Po",)))
    assert bad.texts == ("1 Ulm B\n2",)
    assert (
        str(bad.error) == f"{path}:5: expected at least 2 columns, got 1: '2'."
    )


def test_sentences_of_a_file_of_words(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("-DOCSTART- O\n\n1 Mia B\n2 Bo I\n\n3 a\u00a0b O\n")
    said = []
    inputs = read_sentences(str(path), log=said.append)
    first, last = inputs.read(WORDS, ["word=1", "tag=-1"])
    assert first == Input(("Mia Bo",))
    assert last.words.words == ("a\u00a0b",)
    assert said.pop() == (
        f"{path}: the words are read from column 1 of 3, as in fine-tuning; "
        "--columns=word=0 reads another."
    )
    named = read_sentences(str(path), ["word=-2", "tag=2"], said.append)
    assert next(named.read(WORDS, ["word=0"])) == Input(("Mia Bo",))
    assert said == []
    assert next(inputs.read(WORDS, ())) == Input(("1 2",))
    assert said == [
        f"{path}: the words are read from column 0 of 3, as the model has no "
        "record of another; --columns=word=1 reads another."
    ]
    for columns in (["words=1"], ["word=first"]):
        with pytest.raises(UserError, match="expected word=N with the number"):
            read_sentences(str(path), columns)


def test_columns_are_those_of_any_line_of_json(tmp_path):
    """A line may leave out a null: another column is no text instead."""
    content = '{"id": "a", "label": "x"}\n{"id": "b", "post": "c"}\n'
    of_model = ["text=post", "label=label"]
    found = of_table(tmp_path, "a.jsonl", content, SINGLE, of_model=of_model)
    stream = io.BytesIO(content.encode())
    inputs = read_table("-", (), "csv", print, ending=".jsonl", lines=stream)
    for first, second in (found, inputs.read(SINGLE, of_model)):
        assert "expected the column 'post', got id, label" in str(first.error)
        assert second.texts == ("c",)


def test_a_column_of_few_lines_of_json_is_no_text(tmp_path):
    """Without columns of the model most lines decide, not the first.

    A second text is not left out in silence.
    """
    rare = '{"text": "a", "text_pair": "b", "label": "x"}\n'
    usual = 3 * '{"text": "a", "label": "x"}\n'
    usual += '{"text": "a", "label": "x", "text_pair": null}\n'
    of_most = [Input(("a",))] * 4
    message = (
        "expected no 'text_pair', as in most rows (--columns=text=text,"
        'text=text_pair reads pairs), got "b".'
    )
    for content, place in ((rare + usual, 0), (usual + rare, 4)):
        found = of_table(tmp_path, "a.jsonl", content, SINGLE_OR_PAIR)
        bad = found.pop(place)
        assert bad.error == f"a.jsonl, line {place + 1}: {message}"
        assert found == of_most
        asked = of_table(
            tmp_path, "a.jsonl", content, SINGLE_OR_PAIR, "text=text"
        )
        assert asked == [*of_most, Input(("a",))]
    usual = '{"text": "a", "label": "x"}\n'
    found = of_table(tmp_path, "a.jsonl", usual + 2 * rare, SINGLE_OR_PAIR)
    assert "expected the column 'text_pair'" in str(found[0].error)
    assert found[1].texts == ("a", "b")


def test_a_hidden_class_does_not_hide_its_column(tmp_path):
    save(tmp_path / "a", {"review": ["a"], "label": [-1]})
    inputs = read_table(str(tmp_path / "a"), (), "csv", print)
    (found,) = inputs.read(SINGLE, ())
    assert found.texts == ("a",)
