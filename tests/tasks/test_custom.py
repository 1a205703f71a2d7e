"""Users' own tasks: from --columns to examples."""

import re
import shlex

import pytest
from absl import flags

from albert_tf.config import UserError
from albert_tf.tasks.custom import (
    CLASSIFICATION,
    ENTITIES,
    classification_task,
    columns_flag,
    custom_task,
    multi_label_task,
)
from albert_tf.tasks.examples import (
    ChoiceExample,
    Example,
    MultiLabelExample,
    WordsExample,
)
from albert_tf.tasks.formats.rows import Reading


@pytest.mark.parametrize(
    ("columns", "content", "examples", "head", "metrics", "label_ids"),
    [
        (
            [" label = mood", "text=sa=id"],
            "id\tsa=id\tmood\n7\t the of \tsad\n8\tand\tglad\n",
            [Example((" the of ",), "sad"), Example(("and",), "glad")],
            "classification",
            ["accuracy", "macro_f1"],
            [1, 0],
        ),
        (
            ["text=a", "labels=topics"],
            "topics\ta\nsea, ship ,sea\tthe\n\tof\nsea\tand\n",
            [
                MultiLabelExample(("the",), ("sea", "ship")),
                MultiLabelExample(("of",), ()),
                MultiLabelExample(("and",), ("sea",)),
            ],
            "multi_label",
            [],
            [[1, 1], [0, 0], [1, 0]],
        ),
        (
            ["text=a", "text=b", "label=ship", "label=sea"],
            "sea\ta\tb\tship\n1\tthe\tof\t0\nFalse\tof\tto\t1.0\n"
            "t\tof\tthe\tf\n",
            [
                MultiLabelExample(("the", "of"), ("sea",)),
                MultiLabelExample(("of", "to"), ("ship",)),
                MultiLabelExample(("of", "the"), ("sea",)),
            ],
            "multi_label",
            [],
            [[0, 1], [1, 0], [0, 1]],
        ),
        (
            ["text=b", "text=a", "number=how alike"],
            "how alike\ta\tb\n2.5\tthe\tof\n-1\tand\tof\n",
            [Example(("of", "the"), "2.5"), Example(("of", "and"), "-1")],
            "regression",
            ["pearson", "spearman"],
            [2.5, -1.0],
        ),
        (
            ["choice=one", "context=start", "choice=two", "label=right"],
            "right\ttwo\tone\tstart\n0\tof the\tand\tthe of\n"
            "two\tthe\tof\tand\n",
            [
                ChoiceExample("the of", ("and", "of the"), 0, id="0"),
                ChoiceExample("and", ("of", "the"), 1, id="1"),
            ],
            "multiple_choice",
            ["accuracy"],
            [0, 1],
        ),
        (
            ["word=0", "tag=-1"],
            "the DT B-X\nof IN O\n\nand CC O\n",
            [
                WordsExample(("the", "of"), ("B-X", "O")),
                WordsExample(("and",), ("O",)),
            ],
            "token_classification",
            [],
            [0, 1, 1],
        ),
    ],
)
def test_files_of_a_form(
    write, tmp_path, columns, content, examples, head, metrics, label_ids
):
    task = custom_task(columns)
    write("train.tsv", content)
    found = task.read(str(tmp_path), "train")
    assert found == examples
    assert (task.kind.head, list(task.metrics)) == (head, metrics)
    labels = task.labels or task.kind.labels(found)
    ids = task.kind.label_ids(found, labels)
    assert ids.tolist() == label_ids


@pytest.mark.parametrize(
    ("columns", "without", "content", "answer"),
    [
        (["text=a", "number=b"], "a\nx\n", "a\tb\nx\t7\n", {"label": "7"}),
        (
            ["context=a", "choice=c", "choice=d", "label=b"],
            "a\tc\td\nx\ty\tz\n",
            "a\tb\tc\td\nx\td\ty\tz\n",
            {"label": 1},
        ),
        (["word=0", "tag=1"], "x\n", "x\tO\n", {"tags": ("O",)}),
        (["text=a", "labels=b"], "a\nx\n", "a\tb\nx\t\n", {"labels": ()}),
        (
            ["text=a", "label=b", "label=c"],
            "a\nx\n",
            "a\tb\tc\nx\t0\t1\n",
            {"labels": ("c",)},
        ),
    ],
)
def test_labels_of_test_files_are_optional(
    write, tmp_path, columns, without, content, answer
):
    task = custom_task(columns)
    write("test.tsv", without)
    write("dev.tsv", without)
    ((name, value),) = answer.items()
    (example,) = task.read(str(tmp_path), "test")
    assert getattr(example, name) is None
    assert not task.kind.has_label(example)
    with pytest.raises(UserError, match=r"dev\.tsv:[12]: "):
        task.read(str(tmp_path), "dev")
    # What is there is read.
    write("test.tsv", content)
    (example,) = task.read(str(tmp_path), "test")
    assert getattr(example, name) == value
    assert task.kind.has_label(example)


@pytest.mark.parametrize(
    ("columns", "train", "test", "word", "tags"),
    [
        # The tags' column is missing: the last one is another.
        ("word=0,tag=-1", "a NN x O", "b NN x", "b", None),
        ("word=-2,tag=-1", "1 a O", "1 b", "b", None),
        # Columns that are added after the tags leave these where they were.
        ("word=0,tag=-1", "a NN O", "b NN O 0.9", "b", ("O",)),
        # A word of two parts: in such files only the last column is sure.
        ("word=0,tag=-1", "a O\nb b O", "b O\nc c O", "b", ("O", "O")),
    ],
)
def test_columns_from_the_last_are_those_of_training(
    write, tmp_path, columns, train, test, word, tags
):
    task = custom_task(columns.split(","))
    write("train.conll", f"-DOCSTART-\n\n{train}\n")
    write("test.conll", f"-DOCSTART- -X- -X- O\n\n{test}\n")
    (example,) = task.read(str(tmp_path), "test")
    assert (example.words[0], example.tags) == (word, tags)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "text=a",
            "^--columns=text=a makes no task: allowed are text and label "
            "\\(classification\\); .* a question or none; label several times "
            "for columns of 0 and 1 that are named like their labels.$",
        ),
        ("text=a,text=b,text=c,label=d", "makes no task"),
        ("context=a,question=b,label=d", "makes no task"),
        ("Text=a,label=b", "makes no task"),
        ("text,label=b", "^--columns: expected role=column, got 'text'; allo"),
        ("text=,label=b", "expected role=column, got 'text='; allowed are"),
        (
            "text=a, b,label=c",
            "expected role=column, got ' b'; .* A name with a comma is quoted "
            """with its role: --columns='"text=a, b",label=c'.$""",
        ),
        ("text=a,label=a", "--columns=text=a,label=a names a column twice"),
    ],
)
def test_columns_that_do_not_fit(columns, message):
    with pytest.raises(UserError, match=message):
        custom_task(columns.split(","))


def test_columns_are_shown_as_a_shell_takes_them():
    columns = ["text=a, b", "text=a, b"]
    message = """^--columns='"text=a, b","text=a, b"' names a column twice"""
    with pytest.raises(UserError, match=message):
        custom_task(columns)
    for columns in (["text=a", "label=b"], ["text=a=b", 'x="c\n, d"']):
        (flag,) = shlex.split(columns_flag(columns))
        given = flags.FlagValues()
        flags.DEFINE_list("columns", [], "", flag_values=given)
        given(["program", flag])
        assert given["columns"].value == columns


def test_names_of_columns_with_commas_quotes_and_blanks(write, tmp_path):
    write("train.csv", '"a, b", c ,"""d"" = \n"\nx,y,z\n')
    columns = ["text=a, b", 'text="d" =', "label=c"]
    (example,) = custom_task(columns).read(str(tmp_path), "train", str)
    assert example == Example(("x", "z"), "y")


def test_quotes_are_read_in_the_same_way_in_every_split(write, tmp_path):
    content = 'text\tlabel\n"a\nb"\tx\n'
    for split in ("train", "dev", "test"):
        write(f"{split}.tsv", content)
    for make in (
        classification_task,
        lambda reading: custom_task(["text=text", "label=label"], reading),
    ):
        for split in ("train", "dev", "test"):
            task = make(Reading("csv"))
            (example,) = task.read(str(tmp_path), split, str)
            assert example == Example(("a\nb",), "x")
            message = f"{split}.tsv:2: expected 2 tab-separated fields, got 1"
            with pytest.raises(UserError, match=message):
                make(Reading("none")).read(str(tmp_path), split, str)
    with pytest.raises(UserError, match="quoting='all' is not one of csv, non"):
        make(Reading("all")).read(str(tmp_path), "dev", str)


def test_columns_of_words_are_numbers(write, tmp_path):
    write("dev.conll", "a O\n")
    message = "word=form,tag=1: expected numbers of columns.*=words="
    with pytest.raises(UserError, match=message):
        custom_task(["word=form", "tag=1"]).read(str(tmp_path), "dev")


def test_entities_name_the_tasks_of_tagged_words(write, tmp_path):
    write("train.txt", "Bo B-PER\n")
    with pytest.raises(UserError, match="holds train.txt. Tagged words are re"):
        ENTITIES.read(str(tmp_path), "train", str)
    write("train.jsonl", '{"tokens": ["Bo"], "ner_tags": ["B-PER"]}\n')
    message = "got tokens, ner_tags; .* --columns=words=tokens,tags=ner_tags"
    with pytest.raises(UserError, match=message):
        ENTITIES.read(str(tmp_path), "train", str)


WORD_LISTS = custom_task(["words=tokens", "tags=ner_tags"])


def test_lists_of_words_and_tags(write, tmp_path):
    write(
        "train.jsonl",
        '{"id": 0, "tokens": ["Bo", "ran", "."], "ner_tags": [1, 0, 0]}\n'
        '{"id": 1, "tokens": ["So"], "ner_tags": ["O"]}\n',
    )
    write("test.jsonl", '{"tokens": ["Mia", "too"]}\n')
    assert WORD_LISTS.read(str(tmp_path), "train", str) == [
        WordsExample(("Bo", "ran", "."), ("1", "0", "0")),
        WordsExample(("So",), ("O",)),
    ]
    assert WORD_LISTS.read(str(tmp_path), "test", str) == [
        WordsExample(("Mia", "too"), None)
    ]
    assert WORD_LISTS.kind.head == "token_classification"


def test_lists_of_words_in_a_table_are_json(write, tmp_path):
    write("train.csv", 'tokens,ner_tags\n"[""a,"", 7]","[""O"", 1]"\n')
    assert WORD_LISTS.read(str(tmp_path), "train", str) == [
        WordsExample(("a,", "7"), ("O", "1"))
    ]
    write("train.csv", "tokens,ner_tags\n\"['a' 'b']\",[1 0]\n")
    with pytest.raises(UserError, match="numbers, in JSON, as 'tokens', got"):
        WORD_LISTS.read(str(tmp_path), "train", str)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('"tokens": "a b", "ner_tags": ["O", "O"]', "expected a list of strin"),
        ('"tokens": [], "ner_tags": []', "the text has no words"),
        ('"tokens": ["a", "b"], "ner_tags": ["O"]', "'tokens', got 1 and 2"),
        ('"tokens": ["a"], "ner_tags": null', "as 'ner_tags', got null"),
    ],
)
def test_lists_that_do_not_fit(write, tmp_path, row, message):
    write("train.jsonl", f"{{{row}}}\n")
    with pytest.raises(UserError, match=rf"train\.jsonl:1: .*{message}"):
        WORD_LISTS.read(str(tmp_path), "train", str)


def test_without_columns_they_are_those_of_training(write, tmp_path):
    write("train.tsv", "said\tlabel\na\tx\n")
    # Without those of training these would be pairs, and in another order.
    write("dev.tsv", "id\tlabel\tsaid\n7\tx\ta\n")
    write("test.tsv", "id\tsaid\n7\ta\n")
    assert CLASSIFICATION.read(str(tmp_path), "dev") == [Example(("a",), "x")]
    assert CLASSIFICATION.read(str(tmp_path), "test") == [Example(("a",), None)]
    write("train.tsv", "b\tlabel\ta\n1\tx\t2\n")
    write("dev.tsv", "a\tb\tlabel\n2\t1\tx\n")
    assert CLASSIFICATION.read(str(tmp_path), "dev") == [
        Example(("1", "2"), "x")
    ]
    message = r"test\.tsv:1: expected the column 'a', got id, said"
    with pytest.raises(UserError, match=message):
        CLASSIFICATION.read(str(tmp_path), "test")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ('"b;a ; b"', ("b", "a")),
        ('""', ()),
        ("[]", ()),
        ('["a; b", 7]', ("a; b", "7")),
        # Tables have lists in this form.
        (r'"[\"a; b\", \"c\"]"', ("a; b", "c")),
        (r'"[\"[x]\", \"c\"]"', ("[x]", "c")),
        # The hub's go_emotions is like this in a table.
        ('"[2, 14]"', ("2", "14")),
        # Label Studio has several labels in this form, here and in tables.
        ('{"choices": ["a", "b"]}', ("a", "b")),
        (r'"{\"choices\": [\"a\", \"b\"]}"', ("a", "b")),
        ('"[c]; d"', ("[c]", "d")),
        ('"[c]; [d]"', ("[c]", "[d]")),
    ],
)
def test_labels_in_json_lines(write, tmp_path, cell, labels):
    write("train.jsonl", f'{{"labels": {cell}, "x": "y"}}\n')
    task = multi_label_task(Reading(label_separator=";"))
    (example,) = task.read(str(tmp_path), "train")
    assert example == MultiLabelExample(("y",), labels)


@pytest.mark.parametrize(
    ("cells", "labels", "message"),
    [
        (
            ["x\t", "X\t", "\t"],
            ["b", "b", ""],
            "train.tsv:1: x is read as 1, an empty cell",
        ),
        (["x\tx", " x\tX"], ["ba", "ba"], "train.tsv:1: x is read as 1, an em"),
        (["yes\tno", "y\tN"], ["b", "b"], ""),
        (["1\t0", "0\ttrue"], ["b", "a"], ""),
    ],
)
def test_columns_of_labels_are_ticked(write, tmp_path, cells, labels, message):
    """Not in a file with other cells, where an empty one is unknown."""
    task, logged = custom_task(["text=t", "label=b", "label=a"]), []
    rows = "".join(f"s\t{row}\n" for row in cells)
    write("train.tsv", f"t\tb\ta\n{rows}")
    found = task.read(str(tmp_path), "train", logged.append)
    assert ["".join(example.labels) for example in found] == labels
    assert message in "".join(logged)
    assert bool(message) == ("x is read as 1" in "".join(logged))
    write("train.tsv", "t\tb\ta\ns\tx\t\ns\t1\t0\n")
    with pytest.raises(UserError, match="expected 0 or 1, or x or nothing"):
        task.read(str(tmp_path), "train", str)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "labels=b",
            "a,,b",
            "train.tsv:2: expected labels with ',' between them, a list of "
            "strings in JSON, or '' or [] for none, as 'b', got \"a,,b\".",
        ),
        # Lists of data frames, Java and PostgreSQL, and what is in none.
        *(
            (
                "labels=b",
                cell,
                "train.tsv:2: expected labels with ',' between them, a list of "
                "strings in JSON, or '' or [] for none, as 'b', got "
                f'"{cell}".',
            )
            for cell in (
                *("['a', 'b']", "['a' 'b']", "('a', 'b')", "{'a', 'b'}"),
                *("[ 2 14]", "[a, b]", "{a,b}", "[[1]]", "[null]", "{}"),
            )
        ),
        (
            "label=b,label=a",
            "2",
            "train.tsv:2: expected 0 or 1, or x or nothing in all rows "
            "and columns of labels, as 'b', got \"2\"",
        ),
        (
            "label=b,label=a",
            "",
            "train.tsv:2: expected 0 or 1, or x or nothing in all rows "
            "and columns of labels, as 'b', got \"\"",
        ),
    ],
)
def test_bad_labels_are_named(write, tmp_path, name, content, message):
    write("train.tsv", f"t\tb\ta\nx\t{content}\t0\n")
    task = custom_task(["text=t", *name.split(",")])
    with pytest.raises(UserError, match=re.escape(message)):
        task.read(str(tmp_path), "train", str)
    skipping = custom_task(
        ["text=t", *name.split(",")], Reading(skip_bad_rows=True)
    )
    write("train.tsv", f"t\tb\ta\nx\t{content}\t0\ny\t1\t0\n")
    (example,) = skipping.read(str(tmp_path), "train", str)
    assert example.texts == ("y",)
