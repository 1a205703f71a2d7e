"""bin.predict: an answer or an error for each line, in its place and form."""

import csv
import dataclasses
import gzip
import json
import shutil

import numpy as np
import pytest
from program_runner import run_program
from training_fixtures import random_model

from albert_tf.cluster.stops import BAD_DATA
from albert_tf.config import FeatureConfig, UserError
from albert_tf.interchange.model_directory import save_model_directory
from albert_tf.interchange.model_files import TaskRecord, read_task_record
from albert_tf.prediction.forms import Input
from albert_tf.prediction.modes import MODES
from albert_tf.tasks.custom import custom_task
from albert_tf.tasks.formats.rows import Reading
from bin.predict import _Counted

FEATURES = FeatureConfig(
    max_seq_length=24, max_choice_length=9, max_query_length=9, doc_stride=5
)


@pytest.fixture(scope="module")
def model_dir(tiny_tokenizer, tmp_path_factory):
    """A function that returns the directory of a model with a head."""
    directories = {}

    def model_dir(head, pairs=False):
        if (head, pairs) not in directories:
            path = tmp_path_factory.mktemp("models") / head
            record = None
            if pairs is not None and head != "pretraining":
                columns = ("text=review", "label=verdict")
                record = TaskRecord("x", FEATURES, pairs, columns=columns)
            model = random_model(
                head, num_hidden_layers=1, max_position_embeddings=24
            )
            save_model_directory(
                str(path), model, tiny_tokenizer, max_seq_length=24, task=record
            )
            directories[head, pairs] = path
        return directories[head, pairs]

    return model_dir


@pytest.fixture
def predict(tmp_path):
    """A function that predicts for the lines of a file.

    It returns how the program ended, and the lines that it wrote.
    """

    def predict(mode, directory, lines, *flags, name="a.txt", output="a.jsonl"):
        path, written = tmp_path / name, tmp_path / output
        content = "".join(f"{line}\n" for line in lines)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
        done = run_program(
            "predict",
            f"--mode={mode}",
            f"--model_dir={directory}",
            f"--input={path}",
            f"--output={written}",
            *flags,
        )
        text = written.read_text() if written.exists() else ""
        return done, text.splitlines()

    return predict


@pytest.mark.parametrize(
    ("mode", "head", "good", "bad", "message"),
    [
        ("fill-mask", "pretraining", "a [MASK]", "b", "has no [MASK]"),
        ("fill-mask", "pretraining", "[MASK]", "a " * 40 + "[MASK]", "beyond"),
        ("sentence-order", "pretraining", "a\tb", "a", "a pair of texts"),
        ("embed", "pretraining", "a", "\udce9", "byte 0 is not UTF-8"),
        ("classify", "classification", "a", "\udce9", "byte 0 is not UTF-8"),
        ("rate", "regression", "a\tb", "\udce9", "byte 0 is not UTF-8"),
        ("answer", "span", "a?\tb", "a?", "a question and its paragraph"),
        ("answer", "span", "a?\tb", "a?\t", "the text is empty"),
        ("tag", "token_classification", "a", " ", "the text is empty"),
        ("choose", "multiple_choice", "a\tb\tc", "a\tb", "two choices or mor"),
    ],
)
def test_a_bad_line_of_each_mode(
    model_dir, predict, tmp_path, mode, head, good, bad, message
):
    done, lines = predict(mode, model_dir(head), [good, bad, good])
    assert done.status == BAD_DATA
    first, error, last = map(json.loads, lines)
    assert first.keys() == last.keys() and "error" not in first
    assert list(error)[-1] == "error" and message in error["error"]
    assert error["error"].startswith(f"{tmp_path}/a.txt, line 2: ")
    (summary,) = done.stderr.splitlines()
    assert "1 of 3 texts have an error in place of a prediction" in summary
    assert error["error"] in summary


@pytest.mark.parametrize(
    ("mode", "head", "kind", "own"),
    [
        ("classify", "regression", "regression", "rate"),
        ("rate", "multi_label", "multi-label classification", "classify"),
        ("fill-mask", "span", "questions", "answer"),
    ],
)
def test_another_mode_than_the_models_is_named(
    model_dir, predict, mode, head, kind, own
):
    directory = model_dir(head)
    done, lines = predict(mode, directory, ["a"])
    assert (done.status, lines) == (1, [])
    assert done.error == (
        f"predict: --mode={mode}: {directory} was fine-tuned for {kind}, which "
        f"is --mode={own}."
    )


def test_every_mode_has_a_bad_line_above():
    (mark,) = test_a_bad_line_of_each_mode.pytestmark
    assert {row[0] for row in mark.args[1]} == set(MODES)


@pytest.mark.parametrize(
    ("pairs", "flags", "expected"),
    [
        (None, [], [("a",), ("b", "c"), ("d", "e\tf")]),
        (False, [], [("a",), ("b\tc",), ("d\te\tf",)]),
        (True, [], [None, ("b", "c"), None]),
        (False, ["--pairs"], [None, ("b", "c"), None]),
        (True, ["--nopairs"], [("a",), ("b\tc",), ("d\te\tf",)]),
    ],
)
def test_a_tab_is_as_in_the_models_task(
    model_dir, predict, pairs, flags, expected
):
    directory = model_dir("classification", pairs)
    _, lines = predict("classify", directory, ["a", "b\tc", "d\te\tf"], *flags)
    found = [
        None if "error" in row else tuple(row.get("texts") or [row["text"]])
        for row in map(json.loads, lines)
    ]
    assert found == expected


def test_the_mode_is_that_of_the_model(model_dir, predict):
    lines = ["the", "of and"]
    _, written = predict("classify", model_dir("classification"), lines)
    done = run_program(
        "predict",
        f"--model_dir={model_dir('classification')}",
        *(f"--text={line}" for line in lines),
    )
    assert done.stdout.splitlines() == written
    done = run_program(
        "predict", f"--model_dir={model_dir('pretraining')}", "--text=the"
    )
    assert "give --mode, one of fill-mask, sentence-order, embed." in done.error


def test_a_model_of_embeddings_embeds(model_dir, predict):
    directory = model_dir("sentence_embedding", None)
    _, written = predict("embed", directory, ["the", "of and"])
    done = run_program(
        "predict", f"--model_dir={directory}", "--text=the", "--text=of and"
    )
    assert done.error == ""
    assert done.stdout.splitlines() == written
    assert "mean_max_embedding" in json.loads(written[0])


@pytest.mark.parametrize("separator", ["", "|"])
def test_any_number_of_labels(model_dir, predict, tmp_path, separator):
    directory = shutil.copytree(
        model_dir("multi_label", False), tmp_path / "model"
    )
    record = read_task_record(str(directory), 24)
    dataclasses.replace(record, label_separator=separator).write(str(directory))
    table = ["labels,said", "sea,a b", ",c d", "air,the"]
    _, lines = predict("classify", directory, table, name="in.csv")
    rows = [json.loads(line) for line in lines]
    assert [row["said"] for row in rows] == ["a b", "c d", "the"]
    assert [row["labels"] for row in rows] == ["sea", "", "air"]
    _, (line,) = predict("classify", directory, ["a b"])
    assert [*json.loads(line)] == ["text", "probabilities", "labels"]
    for row in rows:
        values = row["probabilities"].items()
        assert row["prediction"] == [n for n, value in values if value > 0.5]
    _, written = predict(
        "classify", directory, table, name="in.csv", output="out.csv"
    )
    # What is written can be read as training data.
    columns = ["text=said", "labels=prediction"]
    with open(tmp_path / "train.csv", "w") as file:
        file.write("\n".join(written))
    reading = Reading(label_separator=separator or ",")
    found = custom_task(columns, reading).read(str(tmp_path), "train", str)
    assert max(len(row["prediction"]) for row in rows) > 1
    assert [e.labels for e in found] == [tuple(r["prediction"]) for r in rows]


def test_words_are_those_of_the_models_task(model_dir, predict, tmp_path):
    directory = model_dir("token_classification")
    _, (line,) = predict("tag", directory, ["Mia, Bo."])
    assert json.loads(line)["words"] == ["Mia,", "Bo."]
    own = tmp_path / "own"
    shutil.copytree(directory, own)
    record = json.loads((own / "task.json").read_text())
    record["features"]["word_boundaries"] = "punctuation"
    (own / "task.json").write_text(json.dumps(record))
    _, (line,) = predict("tag", own, ["Mia, Bo."])
    assert json.loads(line)["words"] == ["Mia", ",", "Bo", "."]


def test_words_of_files_are_tagged_as_they_are(model_dir, predict):
    directory = model_dir("token_classification")
    sentences = ["Mia X", ", O", "Bo. X", "", "Ulm X"]
    for name, flags in (
        ("in.conll", []),
        ("in.txt", ["--input_format=conll"]),
    ):
        _, lines = predict("tag", directory, sentences, *flags, name=name)
        found = [json.loads(line) for line in lines]
        assert [row["words"] for row in found] == [["Mia", ",", "Bo."], ["Ulm"]]
        assert [len(row["prediction"]) for row in found] == [3, 1]
    line = "1\tNew York\tx\tX" + 6 * "\t_"
    _, (found,) = predict("tag", directory, [line], name="in.conllu")
    assert json.loads(found)["words"] == ["New York"]
    assert json.loads(found)["text"] == "New York"
    done, _ = predict("embed", directory, ["a"], "--input_format=conll")
    assert "--input_format=conll is for --mode=tag and a file" in done.error


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_table_of_a_table(model_dir, predict, tmp_path, name):
    directory = model_dir("classification", False)
    delimiter = {"a.csv": ",", "a.tsv": "\t"}[name]
    texts = ['a "b"', "c,\td", "\udce9", ""]
    done, _ = predict("classify", directory, texts, output=f"out_{name}")
    assert done.status == BAD_DATA
    with open(tmp_path / f"out_{name}", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=delimiter))
    assert list(rows[0]) == [
        "text",
        "label",
        *("probability_sea", "probability_land", "probability_air"),
        "error",
    ]
    assert [row["text"] for row in rows] == ['a "b"', "c,\td", "\ufffd", ""]
    assert "line 3: byte 0 is not UTF-8" in rows[2]["error"]
    _, lines = predict("classify", directory, texts)
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        if not row["error"]:
            assert row["label"] == line["label"]
            for label, value in line["probabilities"].items():
                assert float(row[f"probability_{label}"]) == value


@pytest.mark.parametrize(
    ("mode", "head", "line", "columns"),
    [
        ("rate", "regression", "a", "text,prediction,error"),
        ("answer", "span", "a?\tb", "question,context,prediction,probability,"),
        (
            "sentence-order",
            "pretraining",
            "a\tb",
            "text,text_pair,label,probability_in order,probability_swapped,",
        ),
    ],
)
def test_columns_of_each_mode(model_dir, predict, mode, head, line, columns):
    done, (header, row) = predict(mode, model_dir(head), [line], output="a.csv")
    assert done.status == 0
    assert header.startswith(columns)
    assert row.count(",") == header.count(",")
    assert row.startswith(line.replace("\t", ","))


def test_an_array_has_a_row_for_an_error(model_dir, predict, tmp_path):
    directory = model_dir("pretraining")
    lines = ["\udce9", "a", "\udce9", "b"]
    done = run_program(
        "predict",
        "--mode=embed",
        f"--model_dir={directory}",
        *(f"--text={line}" for line in lines),
        f"--output={tmp_path}/a.npy",
        "--pooling=mean_max",
    )
    assert done.status == BAD_DATA
    found = np.load(tmp_path / "a.npy")
    assert np.isnan(found).all(axis=1).tolist() == [True, False, True, False]
    _, rows = predict("embed", directory, ["a"], "--pooling=mean_max")
    vector = json.loads(rows[0])["mean_max_embedding"]
    np.testing.assert_allclose(found[1], vector, rtol=1e-5)


def test_a_header_and_an_unknown_column_write_nothing(model_dir, predict):
    directory = model_dir("classification", False)
    done, lines = predict("classify", directory, ["text\tlabel", "a\tb"])
    assert "line 1: text, label is the header of a table" in done.error
    assert (done.status, lines) == (1, [])
    done, lines = predict(
        "classify", directory, ["p,q", "a,b"], "--columns=text=r", name="a.csv"
    )
    assert "expected the column 'r', got p, q" in done.error
    assert (done.status, lines) == (1, [])


def test_pieces_of_masks_are_counted_in_their_mode_alone(model_dir, predict):
    done, _ = predict("embed", model_dir("pretraining"), ["a"], "--top_k=3")
    assert done.error == (
        "predict: --top_k is for --mode=fill-mask; embed fills no masks."
    )


def test_a_table_like_that_of_fine_tuning(model_dir, predict, tmp_path):
    directory = model_dir("classification", False)
    rows = [
        'id,review,verdict,"title, long"',
        '007,"a ""b""\nc",sea,',
        "8,d,,x",
    ]
    done, _ = predict("classify", directory, rows, name="a.csv", output="b.csv")
    assert done.status == 0
    written = (tmp_path / "b.csv").read_text()
    assert written.startswith(
        f"{rows[0]},prediction,probability,probability_se"
    )
    assert f"\n{rows[1]}," in written and f"\n{rows[2]}," in written
    with open(tmp_path / "b.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found] == ["007", "8"]
    done, lines = predict("classify", directory, ['a "b"', "c", "d"])
    for row, line in zip(found[1:], map(json.loads, lines[2:]), strict=True):
        values = line["probabilities"]
        assert row["prediction"] == line["label"]
        # Another batch sums in another order.
        expected = pytest.approx(max(values.values()))
        assert float(row["probability"]) == expected
        for label, value in values.items():
            assert float(row[f"probability_{label}"]) == pytest.approx(value)
    # The form is that which the output's name ends in; both are compressed.
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    done = run_program(
        "predict",
        "--mode=classify",
        f"--model_dir={directory}",
        f"--input={packed}",
        f"--output={tmp_path}/b.jsonl.gz",
    )
    lines = gzip.decompress((tmp_path / "b.jsonl.gz").read_bytes()).splitlines()
    for row, line in zip(found, map(json.loads, lines), strict=True):
        assert {n: row[n] for n in ("id", "prediction")} == {
            n: line[n] for n in ("id", "prediction")
        }
        assert str(max(line["probabilities"].values())) == row["probability"]


@pytest.mark.parametrize("input_format", ["csv", "jsonl"])
def test_a_table_of_standard_input(model_dir, tmp_path, input_format):
    directory = model_dir("classification", False)
    content = {
        "csv": 'review,id\n"a,\nb",01\n',
        "jsonl": '{"review": "a,\\nb", "id": "01"}\n',
    }
    done = run_program(
        "predict",
        "--mode=classify",
        f"--model_dir={directory}",
        "--input=-",
        f"--input_format={input_format}",
        stdin=content[input_format],
    )
    assert done.status == 0
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["review"], found["id"]) == ("a,\nb", "01")
    assert found["prediction"] in found["probabilities"]


def test_the_input_is_not_replaced(model_dir, predict, tmp_path):
    directory = model_dir("classification", False)
    rows = ["review", "a"]
    done, lines = predict(
        "classify", directory, rows, name="a.csv", output="a.csv"
    )
    assert (done.status, lines) == (1, rows)
    assert done.error == (
        f"predict: --output={tmp_path}/a.csv is the file of --input, which it "
        "would replace; give another name."
    )


def test_a_fault_on_the_way_leaves_no_output(model_dir, tmp_path):
    output = tmp_path / "b.csv"
    output.write_text("before")
    done = run_program(
        "predict",
        "--mode=classify",
        f"--model_dir={model_dir('classification', False)}",
        "--input=-",
        "--input_format=csv",
        f"--output={output}",
        stdin="review\n" + "a\n" * 100 + '"b\n',
    )
    assert "-:102: not quoted as in CSV" in done.error
    assert "\n" not in done.error
    assert output.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["b.csv"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("-", "id,sentence,label\n1,a,x\n"), ("dev", "review,stars\na,x\n")],
)
def test_a_header_is_found_whatever_the_file_is_called(
    model_dir, tmp_path, name, content
):
    directory = model_dir("classification", False)
    path = tmp_path / name
    path.write_text(content)
    arguments = [
        "predict",
        "--mode=classify",
        f"--model_dir={directory}",
        f"--input={'-' if name == '-' else path}",
    ]
    done = run_program(*arguments, stdin=content)
    assert "is the header of a table, and no text; end the file's" in done.error
    assert (done.status, done.stdout) == (1, "")
    as_text = run_program(*arguments, "--input_format=text", stdin=content)
    assert len(as_text.stdout.splitlines()) == 2
    table = run_program(
        *arguments,
        "--input_format=csv",
        "--columns=text=sentence" if name == "-" else "--columns=text=review",
        stdin=content,
    )
    (line,) = table.stdout.splitlines()
    assert json.loads(line)["prediction"]


def test_an_error_names_its_place_once():
    def main():
        item = Input(("a",), location="a.jsonl, line 2")
        errors = (UserError(f"{p}No.") for p in ("", "a.jsonl, line 2: "))
        for _, found in _Counted([(item, e) for e in errors], 2):
            print(found)

    done = run_program("predict", main=main)
    assert done.stdout == "a.jsonl, line 2: No.\n" * 2
