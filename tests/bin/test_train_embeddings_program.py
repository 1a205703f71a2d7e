"""bin.train_embeddings: where its texts come from, and mistakes in that."""

from unittest import mock

import pytest
from program_runner import run_program

from albert_tf.jobs import train_embeddings


@pytest.fixture
def documents_of(pretrained, tmp_path):
    """A function that returns the documents of arguments, or the error."""

    def documents_of(*arguments):
        with mock.patch.object(
            train_embeddings, "run_embedding_training"
        ) as run:
            # Nothing is trained, so there is no result to print.
            run.side_effect = KeyError
            try:
                done = run_program(
                    "train_embeddings",
                    f"--init_from={pretrained}",
                    f"--run_dir={tmp_path}/run",
                    *arguments,
                )
            except KeyError:
                return run.call_args.args[1]
            return done.error

    return documents_of


def test_documents_are_cut_into_passages(documents_of, tmp_path):
    (tmp_path / "a.txt").write_text("Bada gule.\n\nMizo tepu.\n")
    found = documents_of(
        f"--input={tmp_path}/a.txt",
        "--document_separator=file",
        "--passage_tokens=14",
    )
    assert found == [["Bada gule.", "Mizo tepu."]]


def test_files_of_one_name_are_several_documents(documents_of, tmp_path):
    for folder, text in ("a", "Bada gule.\n"), ("b", "Mizo tepu.\n"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "readme.txt").write_text(text)
    found = documents_of(f"--input={tmp_path}/a,{tmp_path}/b")
    assert found == [["Bada gule."], ["Mizo tepu."]]


def test_rows_of_a_table_are_pairs(documents_of, tmp_path):
    path = tmp_path / "faq.tsv"
    path.write_text("id\tquestion\tanswer\n1\twhy\tso\n2\twho\tme\n")
    arguments = "--pairs=columns", f"--table={path}"
    found = documents_of(*arguments, "--columns=question,answer")
    assert [*map(tuple, found)] == [("why", "so"), ("who", "me")]
    assert "expected the column 'reply'" in documents_of(
        *arguments, "--columns=question,reply"
    )
    for columns in "", "question", "question,question":
        assert "expected the names of two different columns" in documents_of(
            *arguments, f"--columns={columns}"
        )


@pytest.mark.parametrize(
    ("row", "flag"),
    [
        ('"a"b,c', "--quoting=none"),
        *((row, "--skip_bad_rows") for row in (",", "a", "a, ")),
    ],
)
def test_rows_that_are_no_pairs(documents_of, tmp_path, row, flag):
    path = tmp_path / "faq.csv"
    path.write_text(f"question,answer\nwhy,so\n{row}\n")
    arguments = (
        "--pairs=columns",
        f"--table={path}",
        "--columns=question,answer",
    )
    error = documents_of(*arguments)
    assert f"{path}:3: " in error and flag in error
    pairs = [("why", "so")] + [('"a"b', "c")] * (flag == "--quoting=none")
    assert [*map(tuple, documents_of(*arguments, flag))] == pairs


@pytest.mark.parametrize(
    "flag", ["--columns=a,b", "--quoting=none", "--skip_bad_rows"]
)
def test_flags_of_a_table_beside_texts_are_refused(documents_of, flag):
    name = flag.partition("=")[0]
    assert f"{name} is of a --table, which --pairs=neighbours does not" in (
        documents_of("--input=a", flag)
    )


@pytest.mark.parametrize("arguments", [[], ["--input=a", "--pairs=columns"]])
def test_texts_must_fit_the_pairs(arguments, documents_of):
    assert "Give texts with --input, or --pairs" in documents_of(*arguments)
