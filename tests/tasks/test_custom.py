"""Two-column files: what is read, and what is said of a mistake."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.base import Example
from albert_tf.tasks.custom import CLASSIFICATION, read_tsv


def write(path, content):
    path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return str(path)


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
    assert read_tsv(write(tmp_path / "t.tsv", content)) == [
        Example(('Good, "quoted" text',), "pos"),
        Example(("",), "neg"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty; a classification task needs train.tsv"),
        ("text\tlabel\n", "has a header but no examples"),
        ("text\tclass\na\tb\n", "line 1: the columns are text, class"),
        ("label\tlabel\na\tb\n", "line 1: the columns are label, label"),
        ("text\tlabel\na\tb\tc\n", "line 2: 3 tab-separated fields"),
        ("text\tlabel\nab\n", "line 2: 1 tab-separated fields.*'ab'"),
        ("text\tlabel\na\tb\n\nc\td\n", "line 3: 1 tab-separated fields"),
        ("text\tlabel\na\t \n", "line 2: the label is empty"),
        (b"text\tlabel\na\xff\tb\n", r"line 2: byte 1 \(0xff\) is not UTF-8"),
        (b"\xef\xbb\xbft\xff\tlabel\n", r"line 1: byte 1 \(0xff\) is not UTF"),
    ],
)
def test_mistakes(tmp_path, content, said):
    path = write(tmp_path / "t.tsv", content)
    with pytest.raises(UserError, match=said) as raised:
        read_tsv(path)
    assert path in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"dev.tsv: No such file.*needs train"):
        CLASSIFICATION.read_examples(str(tmp_path), "dev")


def test_data_may_lie_in_a_bucket(tmp_path):
    write(tmp_path / "dev.tsv", "text\tlabel\na\tb\n")
    bucket = f"file://{tmp_path}"
    examples = CLASSIFICATION.read_examples(bucket, "dev")
    assert examples == [Example(("a",), "b")]
    with pytest.raises(UserError, match=r"^file://.*train\.tsv: .*needs train"):
        CLASSIFICATION.read_examples(bucket, "train")
