"""Units side by side: each once, in order, remembered, resumed."""

import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from albert_tf.cluster.stops import DIVERGED
from albert_tf.config import UserError
from albert_tf.io.locks import lock_inheritably
from experiments import runner
from experiments.ledger import Ledger
from experiments.runner import UnitError, run_units
from experiments.units import KINDS, Kind, Unit

ROOT = pathlib.Path(__file__).parents[2]


def runs(directory):
    return len(pathlib.Path(directory, "runs").read_text())


@pytest.fixture(autouse=True)
def kind(monkeypatch):
    monkeypatch.chdir(ROOT)
    fake = Kind(
        command=lambda job: [
            "tests.experiments.unit_program",
            job.settings["does"],
            job.path(""),
        ],
        figures=lambda job: {"runs": runs(job.path(""))},
    )
    monkeypatch.setitem(KINDS, "fake", fake)
    # These programs end at once.
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.01)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(str(tmp_path / "paper"))


def unit(name, does="write", **needs):
    return Unit("fake", {"name": name, "does": does}, needs)


def run(units, ledger, processes=2, pretrain_flags=()):
    lines = []
    run_units(units, ledger, processes, lines.append, pretrain_flags)
    return lines


def test_what_units_share_is_run_once_and_before_them(ledger):
    shards = unit("shards")
    models = [unit("a", shards=shards), unit("b", shards=shards)]
    run(models, ledger)
    entries = {e["settings"]["name"]: e for e in ledger.entries()}
    assert next(iter(entries)) == "shards"
    assert sorted(entries) == ["a", "b", "shards"]
    assert [e["figures"] for e in entries.values()] == [{"runs": 1}] * 3


def test_every_ended_unit_is_a_line_at_once(ledger):
    with pytest.raises(UnitError):
        run([unit("a"), unit("b", "3")], ledger, processes=1)
    path = pathlib.Path(ledger.directory, "results.jsonl")
    (line,) = path.read_text().splitlines()
    assert '"name": "a"' in line


def test_what_is_recorded_is_not_run_again(ledger):
    run([unit("a")], ledger)
    assert run([unit("a")], ledger) == []
    assert ledger.figures(unit("a")) == {"runs": 1}


@pytest.mark.parametrize(
    ("content", "fault"),
    [("{", "is not valid JSON"), ('{"unit": "a"}', "has no kind, status, ")],
)
def test_a_damaged_entry_is_named(ledger, content, fault):
    run([unit("a")], ledger)
    path = pathlib.Path(ledger.directory, "results", f"{unit('a').name}.json")
    path.write_text(content)
    message = rf"^{path} {fault}.* Remove this record, and its job runs again."
    with pytest.raises(UserError, match=message):
        list(ledger.entries())


def test_a_failure_of_writing_is_named(ledger):
    lines = []
    full = unit("a", does="74")
    with pytest.raises(UnitError):
        run_units([full], ledger, 1, lines.append)
    *_, last = lines
    assert last.startswith(
        f"{full.name} failed with status 74 (writing failed: a full disk, most "
        "likely): "
    )


def test_what_was_deleted_is_made_again_when_it_is_needed(ledger):
    shards = unit("shards")
    run([unit("a", shards=shards)], ledger)
    shutil.rmtree(ledger.directory + "/units")
    assert run([unit("a", shards=shards)], ledger) == []
    first, second = run([unit(n, shards=shards) for n in "ab"], ledger)
    assert f"{shards.name}: finished" in first
    assert f"{unit('b', shards=shards).name}: finished" in second


def test_an_entry_has_the_settings_and_the_circumstances(ledger):
    model = unit("model", shards=unit("shards"))
    run([model], ledger)
    entry = ledger.entry(model)
    assert entry["settings"] == {"name": "model", "does": "write"}
    assert entry["needs"] == {"shards": unit("shards").name}
    assert re.fullmatch(r"[0-9a-f]{40}", entry["commit"])
    assert set(entry["versions"]) == {"tensorflow", "keras", "numpy"}


@pytest.mark.parametrize(
    ("processes", "shares"),
    [(1, ["2 5 7"]), (2, ["2 7", "5"]), (9, ["2", "5", "7"])],
)
def test_jobs_side_by_side_have_equal_shares_of_the_cores(
    ledger, monkeypatch, processes, shares
):
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda _: {7, 5, 2})
    given = []
    monkeypatch.setattr(
        runner.os, "sched_setaffinity", lambda _, cores: given.append(cores)
    )
    run([unit(name) for name in "abc"], ledger, processes)
    found = {" ".join(map(str, sorted(cores))) for cores in given}
    assert found == set(shares)
    counts = {entry["cores"] for entry in ledger.entries()}
    assert counts == {len(share.split()) for share in shares}


def test_flags_of_the_machine_are_those_of_pretrainings(ledger, monkeypatch):
    jobs = []

    def command(job):
        jobs.append(job.pretrain_flags)
        return ["tests.experiments.unit_program", "write", job.path("")]

    monkeypatch.setitem(
        KINDS, "pretraining", Kind(command, lambda job: {"done": 1})
    )
    model = Unit("pretraining", {}, {"shards": unit("shards")})
    run([model], ledger, pretrain_flags=["--precision=bfloat16"])
    assert jobs == [["--precision=bfloat16"]]
    assert ledger.entry(model)["pretrain_flags"] == ["--precision=bfloat16"]
    assert "pretrain_flags" not in ledger.entry(unit("shards"))


def test_units_of_other_settings_have_other_names():
    names = {
        unit("a").name,
        unit("b").name,
        unit("a", needs=unit("b")).name,
        unit("a", needs=unit("c")).name,
    }
    assert len(names) == 4


def test_what_needs_a_diverged_unit_is_not_run(ledger):
    model = unit("model", does=str(DIVERGED))
    task = unit("task", pretraining=model)
    other = unit("other")
    run([task, other], ledger)
    assert ledger.entry(model)["status"] == "diverged"
    assert ledger.entry(task)["status"] == "not run"
    assert ledger.entry(other)["status"] == "finished"
    assert ledger.figures(model) is None


def test_a_program_that_fails_ends_the_experiment(ledger):
    lines = []
    with pytest.raises(UnitError) as caught:
        run_units([unit("a", does="3")], ledger, 1, lines.append)
    assert caught.value.status == 3
    log = ledger.unit_directory(unit("a", does="3")) + "/log.txt"
    name = unit("a", does="3").name
    assert lines == ["what went wrong", f"{name} failed with status 3: {log}"]
    assert ledger.entry(unit("a", does="3")) is None


def text_kind(fingerprint):
    """Returns a kind of unit that makes a file of a text of that print."""
    return Kind(
        command=lambda job: [
            "tests.experiments.unit_program",
            "write",
            str(make_output(job.path(""))),
        ],
        figures=lambda job: {"text": fingerprint},
    )


def make_output(directory):
    output = pathlib.Path(directory, "output")
    output.mkdir(exist_ok=True)
    return output


def test_a_text_that_has_changed_is_refused(ledger, monkeypatch):
    units = [
        Unit("shards", {"input": text, "skip_header_lines": 8, "length": n})
        for text, n in (("books", 1), ("books", 2), ("others", 2))
    ]
    first, second, of_others = units
    monkeypatch.setitem(KINDS, "shards", text_kind("a" * 64))
    run([first], ledger)
    monkeypatch.setitem(KINDS, "shards", text_kind("b" * 64))
    run([of_others], ledger)
    lines = []
    with pytest.raises(UnitError) as caught:
        run_units([second], ledger, 1, lines.append)
    assert caught.value.status == 1
    assert lines == [
        f"{second.name}: the text books has changed (fingerprint "
        f"bbbbbbbbbbbb, recorded in {ledger.directory}/results: aaaaaaaaaaaa). "
        "Put it back as it was, or take another --run_dir for the new one."
    ]
    assert ledger.entry(second) is None
    assert not pathlib.Path(ledger.unit_directory(second), "output").exists()
    monkeypatch.setitem(KINDS, "shards", text_kind("a" * 64))
    run([second], ledger)


def test_a_text_without_a_fingerprint_is_any(ledger, monkeypatch):
    shards = Unit("shards", {"input": "books", "skip_header_lines": 8})
    ledger.record(shards, "finished", {}, 1.0)
    monkeypatch.setitem(KINDS, "shards", text_kind("a" * 64))
    run([unit("a", shards=shards)], ledger)
    assert ledger.figures(shards) == {"text": "a" * 64}


def test_a_text_without_other_header_lines_is_another(ledger, monkeypatch):
    for number, fingerprint in ((8, "a" * 64), (0, "b" * 64)):
        shards = Unit("shards", {"input": "books", "skip_header_lines": number})
        monkeypatch.setitem(KINDS, "shards", text_kind(fingerprint))
        run([shards], ledger)
        assert ledger.figures(shards) == {"text": fingerprint}


def test_progress_names_the_number_and_the_time_left(ledger):
    first, second = run([unit("a"), unit("b")], ledger, processes=1)
    assert re.fullmatch(
        r"\[1/2\] fake-\w{12}: finished in 0:00:\d\d; 0:00:\d\d left", first
    )
    assert second.startswith("[2/2] ")
    assert second.endswith("; nothing is left")


def test_a_terminal_has_a_bar_of_all_jobs(ledger, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run([unit("a")], ledger)
    shown = capsys.readouterr().err
    assert "0/1 jobs |" in shown
    assert "1/1 jobs |" in shown
    assert "nothing is left" in shown


def wait_for(path):
    end = time.monotonic() + 30
    while not pathlib.Path(path).exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stopped_experiment_is_resumed(ledger):
    waiting = unit("a", does="wait")
    directory = ledger.unit_directory(waiting)

    def stop():
        wait_for(f"{directory}/ready")
        signal.raise_signal(signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(UnitError) as caught:
        run([waiting, unit("b")], ledger, processes=1)
    thread.join()
    assert caught.value.status == 128 + signal.SIGTERM
    assert ledger.entry(waiting) is None
    earlier = ledger.earlier_seconds(waiting)
    assert earlier > 0
    ledger.write_earlier_seconds(waiting, earlier + 100)
    run([waiting, unit("b")], ledger)
    assert ledger.figures(waiting) == {"runs": 2}
    assert ledger.entry(waiting)["seconds"] > earlier + 100


def test_the_program_of_a_killed_experiment_is_not_started_again(ledger):
    outliving = unit("a")
    pathlib.Path(ledger.unit_directory(outliving)).mkdir(parents=True)
    with open(f"{ledger.unit_directory(outliving)}/log.txt", "ab") as log:
        lock_inheritably(log)
        program = subprocess.Popen(
            ["cat"], stdin=subprocess.PIPE, stdout=log, stderr=log
        )

    def finish():
        wait_for(f"{ledger.directory}/results/{unit('b').name}.json")
        program.communicate()

    thread = threading.Thread(target=finish)
    thread.start()
    first, second = run([outliving, unit("b")], ledger)
    thread.join()
    assert (unit("b").name in first, outliving.name in second) == (True, True)
    assert ledger.figures(outliving) == {"runs": 1}


_OTHER = """
import sys
from albert_tf.io.locks import locked
with locked(sys.argv[1], ""):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_unit_of_another_process_is_left_to_it(ledger):
    theirs, ours = unit("theirs"), unit("ours")
    pathlib.Path(ledger.unit_directory(theirs)).mkdir(parents=True)
    other = subprocess.Popen(
        [sys.executable, "-c", _OTHER, ledger.lock(theirs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "locked\n"

    def finish():
        wait_for(f"{ledger.directory}/results/{ours.name}.json")
        ledger.record(theirs, "finished", {"runs": "theirs"}, 1.0)
        other.communicate()

    thread = threading.Thread(target=finish)
    thread.start()
    run([theirs, ours], ledger)
    thread.join()
    assert ledger.figures(theirs) == {"runs": "theirs"}
    assert ledger.figures(ours) == {"runs": 1}
