"""Your own tasks: from roles of columns to examples and their features."""

import json

import pytest

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.custom import CLASSIFICATION, custom_task
from albert_tf.tasks.examples import ChoiceExample, Example, WordsExample


def write(path, content):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return str(path)


def features(task, examples, tokenizer):
    return task.kind.features(
        examples,
        tokenizer,
        FeatureConfig(max_seq_length=32, max_choice_length=8),
        labels=task.kind.labels(examples),
        training=True,
    )


def test_a_text_and_a_label(tmp_path, tiny_tokenizer):
    task = custom_task(["label=mood", "text=said"])
    write(
        tmp_path / "train.tsv", "id\tsaid\tmood\n7\tthe of\tsad\n8\tand\tglad\n"
    )
    examples = task.read(str(tmp_path), "train")
    assert examples == [Example(("the of",), "sad"), Example(("and",), "glad")]
    assert task.kind.head == "classification"
    assert list(task.metrics) == ["accuracy", "macro_f1"]
    found = features(task, examples, tiny_tokenizer)
    assert found.scalars["label_ids"].tolist() == [1, 0]
    assert (task.name, task.labels, task.settings) == ("custom", (), {})


def test_a_pair_is_in_the_order_of_the_roles(tmp_path):
    content = "b\ta\tmood\nx\ty\tz\n"
    write(tmp_path / "train.tsv", content)
    for first, second, texts in (("a", "b", "yx"), ("b", "a", "xy")):
        task = custom_task([f"text={first}", "label=mood", f"text={second}"])
        (example,) = task.read(str(tmp_path), "train")
        assert example == Example(tuple(texts), "z")


def test_a_number(tmp_path, tiny_tokenizer):
    task = custom_task(["text=a", "text=b", "number=how alike"])
    lines = [
        {"a": "the", "b": "of", "how alike": 2.5},
        {"a": "and", "b": "of", "how alike": -1},
    ]
    write(tmp_path / "dev.jsonl", "".join(f"{json.dumps(x)}\n" for x in lines))
    examples = task.read(str(tmp_path), "dev")
    assert examples[0] == Example(("the", "of"), "2.5")
    assert task.kind.head == "regression"
    assert list(task.metrics) == ["pearson", "spearman"]
    found = features(task, examples, tiny_tokenizer)
    assert found.scalars["label_ids"].tolist() == [2.5, -1.0]


def test_choices(tmp_path, tiny_tokenizer):
    task = custom_task(
        ["choice=one", "context=start", "choice=two", "label=right"]
    )
    write(
        tmp_path / "train.tsv",
        "right\ttwo\tone\tstart\n0\tof the\tand\tthe of\ntwo\tthe\tof\tand\n",
    )
    examples = task.read(str(tmp_path), "train")
    assert examples == [
        ChoiceExample("the of", ("and", "of the"), 0, id="0"),
        ChoiceExample("and", ("of", "the"), 1, id="1"),
    ]
    assert task.kind.head == "multiple_choice"
    assert list(task.metrics) == ["accuracy"]
    found = features(task, examples, tiny_tokenizer)
    assert found.scalars["label_ids"].tolist() == [0, 1]
    assert found.choices == 2


@pytest.mark.parametrize(
    ("columns", "labels", "best"),
    [
        (["text=a", "label=b"], ["x", "y"], "accuracy"),
        (["text=a", "number=b"], [], "pearson"),
        (["context=a", "choice=b", "label=c"], [], "accuracy"),
        (["word=0", "tag=1"], ["B-X", "O"], "f1"),
        (["word=0", "tag=1"], ["DT", "IN"], "accuracy"),
    ],
)
def test_what_chooses_the_best_model(columns, labels, best):
    task = custom_task(columns)
    assert task.kind.metric_names(task.metrics, labels)[0] == best


def test_choices_with_a_question(tmp_path):
    roles = ["label=gold", "question=q", "choice=a", "context=c", "choice=b"]
    content = "q\tc\ta\tb\tgold\nIs _?\tX\tred\tblue\t1\n"
    write(tmp_path / "dev.tsv", content)
    expected = ChoiceExample("X", ("Is red?", "Is blue?"), 1, id="0")
    assert custom_task(roles).read(str(tmp_path), "dev") == [expected]
    # One that no role names is not read.
    (example,) = custom_task([*roles[:1], *roles[2:]]).read(
        str(tmp_path), "dev"
    )
    assert example.choices == ("red", "blue")
    said = "line 1: there is no column 'asked'; the columns are q, c, a, b, go"
    with pytest.raises(UserError, match=said):
        custom_task([*roles[:1], "question=asked", *roles[2:]]).read(
            str(tmp_path), "dev"
        )


def test_choices_in_a_list(tmp_path):
    task = custom_task(["context=start", "choice=ends", "label=right"])
    line = {"start": "The", "ends": ["a", "b", "c"], "right": 2}
    write(tmp_path / "train.jsonl", json.dumps(line))
    (example,) = task.read(str(tmp_path), "train")
    assert example == ChoiceExample("The", ("a", "b", "c"), 2, id="0")


@pytest.mark.parametrize("name", ["train.conll", "train.txt", "train.tsv"])
def test_words_and_tags(tmp_path, tiny_tokenizer, name):
    task = custom_task(["word=0", "tag=-1"])
    write(tmp_path / name, "the DT B-X\nof IN O\n\nand CC O\n")
    examples = task.read(str(tmp_path), "train")
    assert examples == [
        WordsExample(("the", "of"), ("B-X", "O")),
        WordsExample(("and",), ("O",)),
    ]
    assert task.kind.head == "token_classification"
    found = features(task, examples, tiny_tokenizer)
    assert found.sequences["label_weights"].sum() == 3
    task = custom_task(["tag=1", "word=0"])
    assert task.read(str(tmp_path), "train")[0].tags == ("DT", "IN")


@pytest.mark.parametrize(
    ("columns", "content", "answer"),
    [
        (["text=a", "label=b"], "a\nx\n", "label"),
        (["text=a", "number=b"], "a\nx\n", "label"),
        (
            ["context=a", "choice=c", "choice=d", "label=b"],
            "a\tc\td\nx\ty\tz\n",
            "label",
        ),
        (["word=0", "tag=1"], "x\n", "tags"),
    ],
)
def test_a_test_file_need_not_tell(tmp_path, columns, content, answer):
    task = custom_task(columns)
    write(tmp_path / "test.tsv", content)
    write(tmp_path / "dev.tsv", content)
    (example,) = task.read(str(tmp_path), "test")
    assert getattr(example, answer) is None
    assert not task.kind.has_label(example)
    with pytest.raises(UserError, match=r"dev\.tsv, line 1: "):
        task.read(str(tmp_path), "dev")


@pytest.mark.parametrize(
    ("columns", "content", "answer"),
    [
        (["text=a", "label=b"], "a\tb\nx\ty\n", {"label": "y"}),
        (["text=a", "number=b"], "a\tb\nx\t7\n", {"label": "7"}),
        (
            ["context=a", "choice=c", "choice=d", "label=b"],
            "a\tb\tc\td\nx\td\ty\tz\n",
            {"label": 1},
        ),
        (["word=0", "tag=1"], "x\tO\n", {"tags": ("O",)}),
    ],
)
def test_what_a_test_file_tells_is_read(tmp_path, columns, content, answer):
    task = custom_task(columns)
    write(tmp_path / "test.tsv", content)
    (example,) = task.read(str(tmp_path), "test")
    assert {name: getattr(example, name) for name in answer} == answer
    assert task.kind.has_label(example)


@pytest.mark.parametrize(
    ("columns", "train", "test", "word", "tags"),
    [
        # The tags' column is missing: the last one is another.
        ("word=0,tag=-1", "a NN x O", "b NN x", "b", None),
        ("word=-2,tag=-1", "1 a O", "1 b", "b", None),
        # With columns added after the tags, these are where they were.
        ("word=0,tag=-1", "a NN O", "b NN O 0.9", "b", ("O",)),
        ("word=0,tag=-1", "a NN O", "b NN O", "b", ("O",)),
        # A word of two parts: in such files only the last column is sure.
        ("word=0,tag=-1", "a O\nb b O", "b O\nc c O", "b", ("O", "O")),
    ],
)
def test_columns_from_the_last_are_those_of_training(
    tmp_path, columns, train, test, word, tags
):
    task = custom_task(columns.split(","))
    write(tmp_path / "train.conll", f"-DOCSTART-\n\n{train}\n")
    write(tmp_path / "test.conll", f"-DOCSTART- -X- -X- O\n\n{test}\n")
    (example,) = task.read(str(tmp_path), "test")
    assert (example.words[0], example.tags) == (word, tags)


@pytest.mark.parametrize(
    ("columns", "train", "width"),
    [
        ("word=0,tag=-5", "a NN x O", 4),
        ("word=-5,tag=-1", "a NN x O", 4),
        # A file without a word has no columns.
        ("word=0,tag=-1", "-DOCSTART- O", 0),
    ],
)
def test_columns_that_training_has_not(tmp_path, columns, train, width):
    path = write(tmp_path / "train.conll", f"{train}\n")
    write(tmp_path / "test.conll", "b NN x\n")
    with pytest.raises(UserError) as raised:
        custom_task(columns.split(",")).read(str(tmp_path), "test")
    word, tag = columns.split(",")
    assert str(raised.value) == (
        f"{path} has {width} columns, and --columns says {word} and {tag}."
    )


def test_columns_from_the_last_need_a_training_file(tmp_path):
    path = write(tmp_path / "test.conll", "a NN\n")
    task = custom_task(["word=0", "tag=-1"])
    with pytest.raises(UserError) as raised:
        task.read(str(tmp_path), "test")
    assert str(raised.value) == (
        f"{path}: no training file beside it tells how many columns there are "
        "with tags; count from 0 instead of word=0 and tag=-1 in --columns."
    )


@pytest.mark.parametrize("number", ["0", "-1"])
def test_words_and_tags_in_one_column(tmp_path, number):
    write(tmp_path / "dev.conll", "a b\n")
    task = custom_task([f"word={number}", f"tag={number}"])
    said = f"^--columns: word={number} and tag={number} are one column; tags st"
    with pytest.raises(UserError, match=said):
        task.read(str(tmp_path), "dev")


def test_a_column_whose_name_has_an_equals_sign(tmp_path):
    write(tmp_path / "dev.tsv", "a=b\tc\nx\ty\n")
    task = custom_task([" text = a=b ", "label=c"])
    assert task.read(str(tmp_path), "dev") == [Example(("x",), "y")]


@pytest.mark.parametrize(
    "columns",
    [
        [],
        ["label=a"],
        ["text=a"],
        ["text=a", "label=b", "label=c"],
        ["text=a", "text=b", "text=c", "label=d"],
        ["text=a", "label=b", "number=c"],
        ["text=a", "choice=b", "label=c"],
        ["context=a", "context=b", "choice=c", "label=d"],
        ["context=a", "label=d"],
        ["context=a", "question=b", "label=d"],
        ["context=a", "question=b", "question=c", "choice=d", "label=e"],
        ["question=a", "choice=b", "label=c"],
        ["text=a", "question=b", "label=c"],
        ["context=a", "choice=b", "number=c"],
        ["word=0", "label=1"],
        ["word=0", "word=1", "tag=2"],
        ["word=0", "tag=1", "tag=2"],
        ["Text=a", "label=b"],
        ["=a", "label=b"],
    ],
)
def test_roles_that_make_no_task(columns):
    with pytest.raises(UserError) as raised:
        custom_task(columns)
    assert str(raised.value) == (
        f"--columns={','.join(columns)} makes no task: there can be text with "
        "label (classification); text with number (regression); context and "
        "question and choice with label (multiple choice); word with tag "
        "(token classification); text once or twice, a question or none."
    )


@pytest.mark.parametrize("column", ["text", "", "text="])
def test_columns_without_a_role_or_a_name(column):
    said = f"^--columns: {column!r} is not of the form role=column; there can"
    with pytest.raises(UserError, match=said):
        custom_task([column, "label=b"])


@pytest.mark.parametrize(
    "columns", [["word=form", "tag=1"], ["word=0", "tag=ner"]]
)
def test_columns_of_words_are_numbers(tmp_path, columns):
    write(tmp_path / "dev.conll", "a b\n")
    wrong = next(c.split("=")[1] for c in columns if not c[-1].isdigit())
    said = f"^--columns: '{wrong}' is no number; columns of words and tags"
    with pytest.raises(UserError, match=said):
        custom_task(columns).read(str(tmp_path), "dev")


def test_mistakes_in_files_are_told(tmp_path):
    task = custom_task(["text=a", "label=b"])
    write(tmp_path / "dev.tsv", "a\tc\nx\ty\n")
    said = r"dev\.tsv, line 1: there is no column 'b'; the columns are a, c"
    with pytest.raises(UserError, match=said):
        task.read(str(tmp_path), "dev")
    write(tmp_path / "train.tsv", "a\tb\nx\t \n")
    with pytest.raises(
        UserError, match=r"train\.tsv, line 2: the label is emp"
    ):
        task.read(str(tmp_path), "train")
    with pytest.raises(
        UserError, match="has no test.tsv or test.csv or test.js"
    ):
        task.read(str(tmp_path), "test")
    with pytest.raises(
        UserError, match="custom has no split 'eval'; it has tra"
    ):
        task.read(str(tmp_path), "eval")
    words = custom_task(["word=0", "tag=1"])
    said = "has no test.conll or test.txt or test.tsv, which"
    with pytest.raises(UserError, match=said):
        words.read(str(tmp_path), "test")


# Without columns that are named.


@pytest.mark.parametrize(
    "content",
    [
        'text\tlabel\nGood, "quoted" text\tpos\n\tneg\n',
        'label\tsentence\npos\tGood, "quoted" text\nneg\t\n',
        'text\tlabel\r\nGood, "quoted" text\tpos\r\n\tneg',
        b'\xef\xbb\xbftext\tlabel\nGood, "quoted" text\tpos\n\tneg\n',
    ],
)
def test_reads_either_order(tmp_path, content):
    path = write(tmp_path / "train.tsv", content)
    examples = CLASSIFICATION.read(str(tmp_path), "train")
    assert examples == [
        Example(('Good, "quoted" text',), "pos"),
        Example(("",), "neg"),
    ]
    assert [e.location for e in examples] == [
        f"{path}, line {n}" for n in (2, 3)
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty; a task of your own needs train.tsv"),
        ("text\tlabel\n", "has a header but no examples"),
        ("text\tclass\na\tb\n", "line 1: the columns are text, class; one mu"),
        ("label\tlabel\na\tb\n", "line 1: the columns are label, label; each"),
        ("text\tlabel\na\tb\tc\n", "line 2: 3 tab-separated fields"),
        ("text\tlabel\nab\n", "line 2: 1 tab-separated fields.*'ab'"),
        ("text\tlabel\na\tb\n\nc\td\n", "line 3: 1 tab-separated fields"),
        ("text\tlabel\na\t \n", "line 2: the label is empty"),
        (b"text\tlabel\na\xff\tb\n", r"line 2: byte 1 \(0xff\) is not UTF-8"),
        (b"\xef\xbb\xbft\xff\tlabel\n", r"line 1: byte 1 \(0xff\) is not UTF"),
        ("a\tb\tc\tlabel\n1\t2\t3\t4\n", "there must be one or two with texts"),
    ],
)
def test_mistakes(tmp_path, content, said):
    path = write(tmp_path / "dev.tsv", content)
    with pytest.raises(UserError, match=said) as raised:
        CLASSIFICATION.read(str(tmp_path), "dev")
    assert path in str(raised.value)
    assert "\n" not in str(raised.value)


def test_pairs_without_columns(tmp_path):
    write(tmp_path / "train.tsv", "q\tlabel\tr\na\tx\tb\n")
    write(tmp_path / "test.jsonl", '{"q": "a", "r": "b"}\n')
    assert CLASSIFICATION.read(str(tmp_path), "train") == [
        Example(("a", "b"), "x")
    ]
    assert CLASSIFICATION.read(str(tmp_path), "test") == [
        Example(("a", "b"), None)
    ]
    # A test file may tell.
    write(tmp_path / "test.jsonl", '{"q": "a", "r": "b", "label": "x"}\n')
    assert CLASSIFICATION.read(str(tmp_path), "test") == [
        Example(("a", "b"), "x")
    ]


def test_the_columns_are_those_of_training(tmp_path):
    write(tmp_path / "train.tsv", "said\tlabel\na\tx\n")
    # By themselves these would be pairs, and in another order.
    write(tmp_path / "dev.tsv", "id\tlabel\tsaid\n7\tx\ta\n")
    write(tmp_path / "test.tsv", "id\tsaid\n7\ta\n")
    assert CLASSIFICATION.read(str(tmp_path), "dev") == [Example(("a",), "x")]
    assert CLASSIFICATION.read(str(tmp_path), "test") == [Example(("a",), None)]
    write(tmp_path / "train.tsv", "b\tlabel\ta\n1\tx\t2\n")
    write(tmp_path / "dev.tsv", "a\tb\tlabel\n2\t1\tx\n")
    assert CLASSIFICATION.read(str(tmp_path), "dev") == [
        Example(("1", "2"), "x")
    ]
    said = (
        r"test\.tsv, line 1: there is no column 'b'; the columns are id, said"
    )
    with pytest.raises(UserError, match=said):
        CLASSIFICATION.read(str(tmp_path), "test")


def test_columns_without_a_training_file(tmp_path):
    write(tmp_path / "dev.tsv", "q\tlabel\tr\na\tx\tb\n")
    assert CLASSIFICATION.read(str(tmp_path), "dev") == [
        Example(("a", "b"), "x")
    ]


def test_a_training_file_that_does_not_tell_its_columns(tmp_path):
    write(tmp_path / "train.tsv", "text\tclass\na\tx\n")
    write(tmp_path / "dev.tsv", "text\tlabel\na\tx\n")
    said = r"train\.tsv, line 1: the columns are text, class; one must be call"
    with pytest.raises(UserError, match=said):
        CLASSIFICATION.read(str(tmp_path), "dev")


def test_missing_file(tmp_path):
    with pytest.raises(
        UserError, match="has no dev.tsv or dev.csv or dev.jsonl"
    ):
        CLASSIFICATION.read(str(tmp_path), "dev")


def test_data_may_lie_in_a_bucket(tmp_path):
    write(tmp_path / "dev.tsv", "text\tlabel\na\tb\n")
    bucket = f"file://{tmp_path}"
    assert CLASSIFICATION.read(bucket, "dev") == [Example(("a",), "b")]
    with pytest.raises(UserError, match=r"^file://.* has no train\.tsv or"):
        CLASSIFICATION.read(bucket, "train")
