"""A table from text to its report, by the programs themselves."""

import dataclasses
import json
import pathlib
import runpy
import shutil
import sys
from unittest import mock

import pytest
from program_runner import run_program

from experiments import runner
from experiments.ledger import Ledger
from experiments.plan import Planner, TaskData, Text
from experiments.report import report
from experiments.results import TableResults
from experiments.scales import SCALES
from experiments.tables import TABLES

ROOT = pathlib.Path(__file__).parents[2]
# A model that trains in a second.
_FEW_STEPS = {
    "train_batch_size": 8,
    "num_train_steps": 4,
    "num_warmup_steps": 1,
    "eval_steps": 2,
    "max_eval_steps": 2,
    "save_checkpoints_steps": 4,
    "masking_schedule": "",
    "ngram_schedule": "",
}


def write_corpus(directory, sentences):
    directory.mkdir()
    for number in range(40):
        text = " ".join(sentences[number::40])
        (directory / f"{number}.txt").write_text(text)


def write_task(directory, sentences):
    directory.mkdir()
    for split, start in (("train", 0), ("dev", 40)):
        rows = [
            f"{text}\t{'odd' if number % 2 else 'even'}"
            for number, text in enumerate(sentences[start : start + 40])
        ]
        lines = ["text\tlabel", *rows]
        (directory / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def run_here(_, command, *, stdout, **files):
    """Runs a program in this process; returns a process that has ended.

    One of its own would import TensorFlow, which takes seconds.
    """
    _, _, program, *arguments = command
    status = 0
    if program.startswith("bin."):
        done = run_program(program, *arguments)
        stdout.write(f"{done.stdout}{done.stderr}{done.error}\n".encode())
        status = done.status
    else:
        with mock.patch.object(sys, "argv", ["", *arguments]):
            runpy.run_module(program, run_name="__main__")
    ended = mock.Mock(pid=-1, returncode=status)
    ended.poll.return_value = status
    return ended


@pytest.mark.slow
def test_a_row_is_trained_measured_fine_tuned_and_reported(
    tmp_path, sentences, monkeypatch
):
    monkeypatch.chdir(ROOT)
    write_corpus(tmp_path / "books", sentences)
    write_task(tmp_path / "task", sentences)
    scale = dataclasses.replace(
        SCALES["tiny"],
        settings={**SCALES["tiny"].settings, **_FEW_STEPS},
        numbers={"num_hidden_layers": {24: 2}, "hidden_size": {1024: 64}},
        vocab_size=120,
        max_seq_length=16,
    )
    task = TaskData("classification", str(tmp_path / "task"))
    planner = Planner(scale, Text(str(tmp_path / "books")), [task])
    table = dataclasses.replace(TABLES["layers"], tasks=True)
    (cell,) = planner.cells(
        dataclasses.replace(table, rows=table.rows[1:]), [1]
    )
    ledger = Ledger(str(tmp_path / "paper"))
    lines = []
    with monkeypatch.context() as patch:
        patch.setattr(runner.Children, "start", run_here)
        patch.setattr(runner, "_POLL_SECONDS", 0)
        runner.run_units(cell.units, ledger, 2, lines.append)
    assert len(lines) == 5, lines
    results = TableResults(table, [cell], ledger)
    (found,) = results.pretraining("ALBERT large")
    assert [point["step"] for point in found["curve"]] == [2, 4]
    (measured,) = results.measured("ALBERT large", "layers")
    assert len(measured["l2_distance"]) == 2
    assert {"masked-LM accuracy", "SOP accuracy", "task"} == set(
        results.columns
    )
    page = report({"layers": results}, scale.caption, ledger)
    assert len(page.sections) == 1
    entries = pathlib.Path(ledger.write_lines()).read_text().splitlines()
    ended = {entry["kind"]: entry for entry in map(json.loads, entries)}
    (vocabulary, shards) = (
        ended[k]["figures"] for k in ("vocabulary", "shards")
    )
    # The files are in one directory, and have the same names for both.
    assert vocabulary == shards == {"text": mock.ANY}
    assert len(vocabulary["text"]) == 64
    kinds = sorted(ended)
    assert kinds == [
        *("finetuning", "measurement", "pretraining", "shards", "vocabulary")
    ]


def test_flags_of_bin_pretrain_are_passed_to_it(tmp_path):
    with mock.patch("bin.reproduce.run_units") as run:
        done = reproduce(
            tmp_path,
            "--table=depth",
            f"--input={ROOT / 'README.md'}",
            "--strategy=mirrored",
            "--precision=bfloat16",
            "--xla",
        )
    assert done.status == 0, done.error
    *_, flags = run.call_args.args
    assert flags == [
        *("--strategy=mirrored", "--precision=bfloat16", "--xla=True")
    ]
    done = reproduce(tmp_path, "--table=depth", "--micro_batch_size=-1")
    assert "micro_batch_size=-1 is below the minimum" in done.error


def reproduce(tmp_path, *flags):
    paths = ("--input=books", f"--run_dir={tmp_path / 'paper'}")
    return run_program("bin.reproduce", *paths, *flags)


def test_a_text_is_needed_to_train_alone(tmp_path):
    done = reproduce(tmp_path, "--table=depth", "--input=")
    assert done.status == 1
    assert "--input is needed: the text that the models" in done.error
    done = reproduce(tmp_path, "--table=depth", "--input=", "--estimate")
    assert done.status == 0, done.error
    others = "--table=data,domain", "--scale=paper"
    done = reproduce(tmp_path, *others, "--input=", "--estimate")
    assert done.status == 0, done.error
    assert "with additional data" in done.stdout
    done = reproduce(tmp_path, "--table=parameters", "--input=")
    assert done.status == 0, done.error
    assert "BERT large" in (tmp_path / "paper/report.md").read_text()


# The records of docs/paper.
_RECORDED = (
    "--table=groups",
    "--input=books",
    "--skip_header_lines=8",
    "--task_data=classification:tasks/sst-2-5000,STS-B:glue/STS-B",
)


@pytest.fixture
def recorded(tmp_path):
    """A directory with records and a report."""
    shutil.copytree(ROOT / "docs/paper/results", tmp_path / "paper/results")
    (tmp_path / "paper/report.md").write_text("full")
    return tmp_path


@pytest.mark.parametrize(
    "flags,error",
    [
        (
            ["--input=/texts/books", "--report"],
            "with --scale=tiny --input=/texts/books --skip_header_lines=8; the "
            "records there are of --input=",
        ),
        (["--input=/texts/books"], "--input=books --skip_header_lines=8"),
        (
            ["--skip_header_lines=0", "--report"],
            "--input=books --skip_header_lines=8",
        ),
        (["--scale=mini", "--report"], "seeds or another --scale. Give "),
    ],
)
def test_settings_without_records_keep_the_report(recorded, flags, error):
    done = reproduce(recorded, *_RECORDED, *flags)
    assert done.status == 1
    assert "/paper/results has no finished job of --table=groups" in done.error
    assert error in done.error
    assert {path.name for path in (recorded / "paper").iterdir()} == {
        *("report.md", "results")
    }
    assert (recorded / "paper/report.md").read_text() == "full"


def test_a_path_may_be_written_in_several_ways(recorded):
    paths = (
        "--input=./books/",
        "--task_data=classification:tasks//sst-2-5000/,STS-B:./glue/STS-B",
    )
    done = reproduce(recorded, *_RECORDED, *paths, "--report")
    assert done.status == 0, done.error
    text = (recorded / "paper/report.md").read_text()
    # With the scores of both tasks, though their files are not there.
    (line,) = (x for x in text.splitlines() if x.startswith("| groups=12 |"))
    assert line.endswith("| 28.4 | 76.6 | 67.3 | 19.1 | 43.2 |")


def test_a_report_names_what_has_no_record(recorded):
    tasks = "classification:tasks/sst-2-5000,STS-B:/glue/STS-B"
    flags = ("--input=books", f"--task_data={tasks}", "--report")
    done = reproduce(recorded, *_RECORDED, *flags)
    assert done.stdout.startswith(
        "Nothing is recorded of /glue/STS-B, but of glue/STS-B, medical: what "
    )


def test_records_of_other_tables_are_no_mistake(recorded, monkeypatch):
    asked = mock.Mock()
    monkeypatch.setattr("bin.reproduce.list_files", mock.Mock())
    monkeypatch.setattr("bin.reproduce.run_units", asked)
    flags = ("--input=books", "--skip_header_lines=8", "--table=depth")
    done = reproduce(recorded, *flags)
    assert done.status == 0, done.error
    asked.assert_called_once()


def test_a_report_of_nothing_is_written(tmp_path):
    done = reproduce(tmp_path, "--table=sharing,parameters", "--report")
    assert done.status == 0, done.error
    names = {path.name for path in (tmp_path / "paper").iterdir()}
    assert names == {"report.html", "report.md", "results.jsonl"}
    text = (tmp_path / "paper/report.md").read_text()
    assert "| BERT large | 334 |" in text


def test_the_last_line_has_the_number_of_diverged_jobs(tmp_path):
    planner = Planner(SCALES["tiny"], Text("books"), [TaskData("MRPC", "m")])
    ledger = Ledger(str(tmp_path / "paper"))
    for cell in planner.cells(TABLES["dropout"], [1]):
        ledger.record(cell.pretraining, "diverged", {}, 5.0)
        ledger.record(cell.tasks["MRPC"], "not run", {}, 0.0)
        break
    flags = ("--table=dropout", "--task_data=MRPC:m", "--report")
    done = reproduce(tmp_path, *flags)
    last = "; diverged: 1, and not run since they need these: 1"
    assert done.stdout.splitlines()[-1].endswith(f"results.jsonl{last}")
    assert (
        "with dropout diverged (1 of 1 seeds)"
        in (tmp_path / "paper/report.md").read_text()
    )


def test_estimates_are_printed_without_a_run(tmp_path):
    flags = ("--table=bert", "--scale=paper", "--estimate")
    done = reproduce(tmp_path, *flags)
    assert done.status == 0, done.error
    assert "hours, TPU v5e-256" in done.stdout
    assert "ALBERT xxlarge" in done.stdout
    assert not (tmp_path / "paper").exists()
    # Minutes are no 0.0 hours.
    done = reproduce(tmp_path, "--table=sharing", "--scale=tiny", "--estimate")
    assert done.status == 0, done.error
    assert len(done.stdout.splitlines()) > 6
    hours = [line.split()[-3:] for line in done.stdout.splitlines()[3:]]
    assert hours
    assert all(float(number) > 0 for row in hours for number in row)


@pytest.mark.parametrize(
    "flags,error",
    [
        (["--table=depht"], "table='depht' is not one of "),
        (
            ["--table=depth", "--only=layers=2"],
            "no row is called layers=2; the rows are layers=1, ",
        ),
        (
            ["--table=depth", "--task_data=SST-2"],
            "--task_data=SST-2: a task is TASK:DIRECTORY, such as ",
        ),
        (
            ["--table=depth", "--task_data=SST-2:nowhere"],
            "--task_data=SST-2:nowhere: there is no nowhere.",
        ),
        (
            ["--table=depth", "--task_data=SST2:."],
            "task='SST2' is not one of ",
        ),
        (
            ["--table=depth", "--task_data=classification:a/x,multilabel:b/x"],
            "--task_data: 2 tasks are called x; the report has one of a name",
        ),
        (["--table=depth"], "The input 'books' does not exist."),
        (
            ["--table=depth", "--input=.", "--additional_input=nowhere"],
            "The input 'nowhere' does not exist.",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, error):
    done = reproduce(tmp_path, *flags)
    assert done.status == 1
    assert error in done.error
    assert not (tmp_path / "paper").exists()


def test_estimates_are_of_the_rows_that_would_run(tmp_path):
    flags = ("--table=sharing", "--estimate", "--only=all-shared E=128")
    done = reproduce(tmp_path, *flags)
    (row,) = done.stdout.splitlines()[3:]
    assert row.startswith("all-shared E=128 ")
    done = reproduce(tmp_path, *flags[:2], "--only=spam")
    assert done.status == 1
    assert "--only: no row is called spam; the rows are" in done.error


def test_files_of_a_task_are_read_before_anything_runs(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task/train.tsv").write_text("sentence\tlabel\na\t0\nb\t1\n")
    flag = f"--task_data=SST-2:{tmp_path}/task"
    done = reproduce(tmp_path, "--table=depth", flag)
    assert done.status == 1
    assert "task/dev.tsv" in done.error
    assert not (tmp_path / "paper").exists()


def test_missing_packages_are_named_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = reproduce(tmp_path, "--table=peers")
    assert "--table=peers needs torch and transformers, not ins" in done.error
    assert not (tmp_path / "paper").exists()
