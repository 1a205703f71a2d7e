"""GLUE's files as they are downloaded, and their columns."""

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.glue import GLUE_TASKS

# A line of each task's train, dev or test file, and what is read. Quotes stand
# alone on purpose: they mean nothing.
LINES = {
    ("CoLA", "train"): ('gj04\t1\t\tHe "left.', ('He "left.',), "1"),
    ("CoLA", "dev"): ("gj04\t0\t*\tHim left.", ("Him left.",), "0"),
    ("CoLA", "test"): ("0\tHe left.", ("He left.",), None),
    ("SST-2", "train"): ("good \t1", ("good ",), "1"),
    ("SST-2", "test"): ("0\tgood", ("good",), None),
    ("MRPC", "dev"): ('1\t17\t18\tA "b\tC', ('A "b', "C"), "1"),
    ("MRPC", "test"): ("0\t17\t18\tA\tB", ("A", "B"), None),
    ("STS-B", "dev"): ("0\tg\tf\ty\to\ts\ts\tA\tB\t3.800", ("A", "B"), "3.800"),
    ("STS-B", "test"): ("0\tg\tf\ty\to\ts\ts\tA\tB", ("A", "B"), None),
    ("QQP", "train"): ("0\t1\t2\tA?\tB?\t0", ("A?", "B?"), "0"),
    ("QQP", "test"): ("0\tA?\tB?", ("A?", "B?"), None),
    ("MNLI", "train"): (
        "0\tp\tg\tb\tb\tp\tp\tp\tA\tB\tneutral\tentailment",
        ("A", "B"),
        "entailment",
    ),
    ("MNLI", "dev_mismatched"): (
        "0\tp\tg\tb\tb\tp\tp\tp\tA\tB\tneutral\tneutral\tcontradiction",
        ("A", "B"),
        "contradiction",
    ),
    ("MNLI", "test"): ("0\tp\tg\tb\tb\tp\tp\tp\tA\tB", ("A", "B"), None),
    ("QNLI", "dev"): ("0\tQ?\tS.\tentailment", ("Q?", "S."), "entailment"),
    ("RTE", "train"): ("0\tA\tB\tnot_entailment", ("A", "B"), "not_entailment"),
    ("WNLI", "dev"): ("0\tA\tB\t1", ("A", "B"), "1"),
    ("WNLI", "test"): ("0\tA\tB", ("A", "B"), None),
    ("AX", "test"): ("0\tA\tB", ("A", "B"), None),
}
FILES = {
    ("MNLI", "dev_mismatched"): "dev_mismatched.tsv",
    ("MNLI", "test"): "test_matched.tsv",
    ("AX", "test"): "diagnostic.tsv",
}


@pytest.mark.parametrize(("task", "split"), LINES)
def test_official_lines(tmp_path, task, split):
    line, texts, label = LINES[task, split]
    path = tmp_path / FILES.get((task, split), f"{split}.tsv")
    # CoLA's files with labels have no header.
    header = [] if task == "CoLA" and label else ["the\tcolumns"]
    # Blank lines at the end are no examples.
    path.write_bytes("\r\n".join([*header, line, line, "", "", ""]).encode())
    logged = []
    examples = GLUE_TASKS[task].read(str(tmp_path), split, logged.append)
    assert [(e.texts, e.label) for e in examples] == [(texts, label)] * 2
    assert examples[1].location == f"{path}:{2 + len(header)}"
    assert not any("too few" in line for line in logged)
    if header:
        path.write_text(f"{line}\n{line}\n")
        message = f"^{path}:1: expected the columns' names, got an example; do"
        with pytest.raises(UserError, match=message):
            GLUE_TASKS[task].read(str(tmp_path), split)


def test_labels_are_in_the_order_of_released_models():
    of_three = ("contradiction", "entailment", "neutral")
    assert GLUE_TASKS["MNLI"].labels == GLUE_TASKS["AX"].labels == of_three
    assert GLUE_TASKS["RTE"].labels == ("entailment", "not_entailment")


def test_short_lines_of_qqp_are_skipped(write, tmp_path):
    rows = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"]
    rows += [f"{n}\t1\t2\tA{n}?\tB?\t1" for n in range(200)]
    rows[3], rows[8] = "2\t5", "1\t3\t4\tA line that ends here"
    path = write("dev.tsv", "\n".join(rows))
    logged = []
    examples = GLUE_TASKS["QQP"].read(str(tmp_path), "dev", logged.append)
    assert [e.texts for e in examples] == [
        (f"A{n}?", "B?") for n in range(200) if n not in (2, 7)
    ]
    assert examples[2].location == f"{path}:5"
    assert logged == [
        f"{path}: 2 of 200 rows are bad: expected at least 6 tab-separated "
        "fields, as in GLUE's own file (2: lines 4, got 2; 9, got 4). "
        "Skipped: 2."
    ]
    # One in a hundred, no more.
    write("dev.tsv", "\n".join(rows[:-1]))
    with pytest.raises(UserError, match=r"dev.tsv: 2 of 199 rows are bad: "):
        GLUE_TASKS["QQP"].read(str(tmp_path), "dev")


def test_lines_with_more_fields_than_the_header(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\ngood\t1\nbad\t0\twhat\nfine\t1\t\n")
    logged = []
    examples = GLUE_TASKS["SST-2"].read(str(tmp_path), "dev", logged.append)
    assert [(e.texts, e.label) for e in examples] == [
        (("good",), "1"),
        (("bad",), "0"),
        (("fine",), "1"),
    ]
    (line,) = logged
    assert line.startswith(f"{path}:3: this and 1 other lines have more fields")


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        (
            "SST-2",
            "h\th\ngood\n",
            ":2: expected at least 2 tab-.*, as in GLUE's own file, got 1",
        ),
        # A label at the end is none of the texts.
        (
            "WNLI",
            "h\n0\tA\t1\n",
            "at least 4 tab-separated fields, as .*, got 3",
        ),
        ("SST-2", "h\th\n", "dev.tsv has no examples"),
    ],
)
def test_errors(tmp_path, task, content, message):
    (tmp_path / "dev.tsv").write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        GLUE_TASKS[task].read(str(tmp_path), "dev")
    assert str(tmp_path / "dev.tsv") in str(raised.value)
    assert "\n" not in str(raised.value)
