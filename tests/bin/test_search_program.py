"""bin.search: texts to an index, questions to passages."""

import gzip
import json

import numpy as np
import pytest
from program_runner import run_program
from training_fixtures import SMALL_MODEL, random_model

from albert_tf.interchange.model_directory import save_model_directory


@pytest.fixture(scope="module")
def model_dir(tiny_tokenizer, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("models") / "embedding")
    model = random_model("sentence_embedding", num_hidden_layers=1)
    save_model_directory(path, model, tiny_tokenizer, max_seq_length=24)
    return path


@pytest.fixture(scope="module")
def index_dir(model_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_text("Bada gule. The sea.\n" * 30)
    (folder / "b.txt").write_text("Mizo tepu the rika.\n")
    index_dir = str(folder / "index")
    done = run_program(
        "search",
        f"--index_texts={folder}/*.txt",
        f"--index_dir={index_dir}",
        f"--model_dir={model_dir}",
    )
    assert done.status == 0, done.error
    assert f"passages are in {index_dir}." in done.stdout
    return index_dir


def test_a_text_is_found_in_its_file_at_its_place(index_dir, model_dir):
    done = run_program(
        "search",
        f"--index_dir={index_dir}",
        f"--model_dir={model_dir}",
        "--query=Mizo tepu the rika.",
        "--ranking=hybrid",
        "--top_k=1",
    )
    assert done.stdout.splitlines()[-1] == (
        "1. b.txt, passage 1 (0.0328): Mizo tepu the rika."
    )


def test_a_model_that_is_not_read_is_named(index_dir):
    asked = f"--index_dir={index_dir}", "--query=tepu", "--model_dir=none"
    done = run_program("search", *asked)
    assert "--model_dir=none is not read: --ranking=tfidf" in done.stderr
    assert "1. b.txt" in done.stdout


def test_the_vectors_are_of_the_pooling_that_the_model_keeps(index_dir):
    with open(f"{index_dir}/index.json") as file:
        assert json.load(file)["model"]["pooling"] == "mean_max"
    vectors = np.load(f"{index_dir}/vectors.npy")
    assert vectors.shape[1] == 2 * SMALL_MODEL["hidden_size"]


def test_a_file_of_questions_gives_lines_of_json_without_a_model(
    index_dir, tmp_path
):
    # Files that begin with a byte-order mark may have been joined.
    questions = "tepu\n\ufeff\n\ufeffvolcano\n"
    (tmp_path / "asked.txt").write_text(questions, "utf-8")
    asked = ["search", f"--index_dir={index_dir}", "--ranking=bm25"]
    done = run_program(
        *asked,
        f"--input={tmp_path}/asked.txt",
        f"--output={tmp_path}/answers.jsonl.gz",
    )
    assert done.status == 0, done.error
    piped = run_program(*asked, "--input=-", stdin=questions)
    packed = (tmp_path / "answers.jsonl.gz").read_bytes()
    lines = gzip.decompress(packed).splitlines()
    assert piped.stdout.encode().splitlines() == lines
    first, blank, second = map(json.loads, lines)
    assert first["passages"][0]["document"] == "b.txt"
    assert blank == {"query": "", "passages": []}
    assert second == {"query": "volcano", "passages": []}
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    refused = run_program(*asked, f"--input={tmp_path}/latin.txt")
    assert "latin.txt:1: byte 3 (0xe9) is not UTF-8" in refused.error


@pytest.mark.parametrize("name", ["asked.jsonl", "asked.txt"])
def test_questions_in_lines_of_json_are_their_query(index_dir, tmp_path, name):
    path = tmp_path / name
    path.write_text('{"query": "tepu", "id": 1}\n\n{"query": " "}\n')
    asked = ["search", f"--index_dir={index_dir}", f"--input={path}"]
    done = run_program(*asked)
    first, *blank = map(json.loads, done.stdout.splitlines())
    assert first["query"] == "tepu"
    assert first["passages"][0]["document"] == "b.txt"
    assert blank == [{"query": "", "passages": []}] * 2
    path.write_text('{"query": "tepu"}\n{"query": 5}\n')
    assert f"{path}:2: query: expected a string, got 5." in (
        run_program(*asked).error
    )


@pytest.mark.parametrize("name", ["asked.csv", "asked.TSV.gz", "a.parquet"])
def test_questions_in_a_table_are_refused(index_dir, tmp_path, name):
    path = tmp_path / name
    path.write_text("question,id\ntepu,1\n")
    done = run_program("search", f"--index_dir={index_dir}", f"--input={path}")
    assert f"{path} is a table by its name (." in done.error
    assert 'lines of JSON with a "query" (.jsonl).' in done.error
    assert done.stdout == ""


def test_questions_in_utf16_are_refused_by_that_name(index_dir, tmp_path):
    (tmp_path / "asked.txt").write_text("tepu\n", "utf-16")
    done = run_program(
        "search", f"--index_dir={index_dir}", f"--input={tmp_path}/asked.txt"
    )
    assert "iconv -f UTF-16 -t UTF-8" in done.error


def test_a_blank_query_has_no_passages(index_dir, model_dir):
    done = run_program(
        "search",
        f"--index_dir={index_dir}",
        f"--model_dir={model_dir}",
        "--ranking=embedding",
        "--query= ",
    )
    assert done.status == 0, done.error
    assert "1. " not in done.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"query": 5, "document": "b.txt"}', "query: expected a string, go"),
        (b"null", "expected an object, got null."),
        (b'{"query": "a", "document": []}', "document: expected a string, "),
        (b'{"query": " ", "document": "b.txt"}', "the query is empty."),
        (b'{"query": "a", "document": "c"}', "the index has no document 'c'."),
        (b'{"query": "caf\xe9"}', "byte 14 (0xe9) is not UTF-8"),
    ],
)
def test_mistakes_in_known_answers_are_named(
    index_dir, tmp_path, line, message
):
    path = tmp_path / "known.jsonl"
    path.write_bytes(b"\n" + line)
    asked = ["search", f"--index_dir={index_dir}", f"--evaluate={path}"]
    assert f"{path}:2: {message}" in run_program(*asked).error
    for content, fault in (b"", "is empty; expected"), (b"\n", "has no questi"):
        path.write_bytes(content)
        assert f"{path} {fault}" in run_program(*asked).error


def test_recall_of_every_ranking_is_printed(index_dir, model_dir, tmp_path):
    rows = tmp_path / "questions.jsonl"
    rows.write_text('{"query": "rika", "document": "b.txt"}\n')
    done = run_program(
        "search",
        f"--index_dir={index_dir}",
        f"--model_dir={model_dir}",
        f"--evaluate={rows}",
    )
    header, _, first, _ = done.stdout.splitlines()[-4:]
    assert header.split()[1:] == ["embedding", "tfidf", "bm25", "hybrid"]
    assert first.split()[2:4] == ["1.0000", "1.0000"]


def test_an_index_by_words_needs_no_model(tmp_path):
    sentences = "".join(f"Word{n} one two three four.\n" for n in range(40))
    (tmp_path / "a.txt").write_text(sentences)
    (tmp_path / "known.jsonl").write_text(
        '{"query": "word39", "document": "a.txt#1"}\n'
    )
    asked = ["search", f"--index_dir={tmp_path}/index"]
    done = run_program(*asked, f"--index_texts={tmp_path}/a.txt")
    assert done.status == 0, done.error
    # Thirteen lines of five words are more than half of 128.
    assert "4 passages are in" in done.stdout
    assert "without vectors" in done.stdout
    found = run_program(*asked, "--query=word30", "--top_k=1")
    assert found.stdout.splitlines()[1].startswith("1. a.txt#1, passage 3 ")
    done = run_program(*asked, f"--evaluate={tmp_path}/known.jsonl")
    assert done.stdout.splitlines()[-4].split()[1:] == ["tfidf", "bm25"]


def test_files_of_one_name_are_several_documents(tmp_path):
    for folder, text in ("wolves", "Wolves hunt."), ("bread", "Bread bakes."):
        (tmp_path / "texts" / folder).mkdir(parents=True)
        (tmp_path / "texts" / folder / "readme.txt").write_text(text)
    done = run_program(
        "search",
        f"--index_texts={tmp_path}/texts",
        f"--index_dir={tmp_path}/index",
        "--query=wolves",
    )
    assert done.stdout.splitlines()[-1].startswith("1. wolves/readme.txt, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query=a", "--ranking=hybrid"], "Give the model with --model_dir"),
        (["--query=a", "--input=b"], "with one of --query, --input"),
        (["--ranking=bm25"], "Give texts to index"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message, index_dir):
    done = run_program("search", f"--index_dir={index_dir}", *arguments)
    assert done.status == 1
    assert message in done.error
