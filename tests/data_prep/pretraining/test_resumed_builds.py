"""Builds that are interrupted, killed, repeated or refused."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter

import pytest
from build_helpers import digests, work_in_pieces

from albert_tf.config import MaskingConfig, UserError
from albert_tf.records.shards import open_shards
from data_prep.pretraining import local_runner, pretraining_data
from data_prep.pretraining.build_directory import BuildDirectory


def test_a_finished_directory_is_left_as_it_is(build, tmp_path, corpus):
    metadata = build()
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()
    }
    os.mkdir(tmp_path / "out" / ".work")
    # What does not touch dynamic records is no other setting.
    lines = []
    same = build(masking=MaskingConfig(max_ngram=1), log=lines.append)
    assert same == metadata
    assert "WARNING: not used here: max_ngram. Records of rec" in lines[0]
    assert before == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()
    }
    message = "random_seed: 5 here, 12345 there.*another output"
    with pytest.raises(UserError, match=message):
        build(random_seed=5)
    with pytest.raises(UserError, match=r"inputs\.train\.num_files: 1 here"):
        build(inputs=[f"{corpus}/books/0.txt"])
    build("static", record_kind="static")
    with pytest.raises(UserError, match=r"masking\.max_ngram: 1 here, 3"):
        build(
            "static", record_kind="static", masking=MaskingConfig(max_ngram=1)
        )


def test_an_interrupted_build_makes_only_what_is_missing(
    build, whole, tmp_path, monkeypatch
):
    work_in_pieces(monkeypatch)
    made, most = Counter(), {}

    def limited(name, function):
        def call(*arguments):
            if made[name] == most.get(name):
                raise OSError("disk full")
            made[name] += 1
            return function(*arguments)

        return call

    for name in ("write_part", "write_shard"):
        function = limited(name, getattr(local_runner, name))
        monkeypatch.setattr(local_runner, name, function)
    for limits in ({"write_part": 4}, {"write_shard": 1}):
        most = limits
        with pytest.raises(OSError, match="disk full"):
            build("out", num_shards=3)
        with pytest.raises(UserError, match="unfinished"):
            open_shards(tmp_path / "out", "train")
        parts = (tmp_path / "out" / ".work").glob("unit-*.json")
        assert made["write_part"] == len([*parts])
    most = {}
    before = made["write_part"]
    assert before > 8
    build("out", num_shards=3)
    assert made == {"write_part": before, "write_shard": 3}
    assert digests(tmp_path / "out") == digests(whole[0])


def test_a_shard_that_was_damaged_meanwhile_is_made_again(
    build, whole, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(pretraining_data, "make_metadata", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build(num_shards=3)
    shard = tmp_path / "out" / "train-00001-of-00003.tfrecord"
    shard.write_bytes(bytes(len(shard.read_bytes())))
    build(num_shards=3)
    assert digests(tmp_path / "out") == digests(whole[0])


def test_two_builds_do_not_share_a_directory(build, tmp_path):
    os.makedirs(tmp_path / "out" / ".work")
    lock = os.open(tmp_path / "out/.work/lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(UserError, match=r"/\.work is in use by .* --output_"):
        build()
    os.close(lock)
    build()


def test_what_another_build_has_finished_meanwhile_stays(
    build, tmp_path, monkeypatch
):
    make_plan = pretraining_data.make_plan
    finished = {}

    def after_another(*arguments, **keywords):
        monkeypatch.undo()
        build(random_seed=5)
        finished.update(digests(tmp_path / "out"))
        return make_plan(*arguments, **keywords)

    monkeypatch.setattr(pretraining_data, "make_plan", after_another)
    with pytest.raises(UserError, match="has been finished by another build"):
        build()
    assert digests(tmp_path / "out").items() >= finished.items()


def test_files_of_others_are_refused_before_the_survey(
    build, monkeypatch, tmp_path
):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for name in (
        "train-00000-of-00001.tfrecord",
        "punkt.json",
        "tokenizer/spiece.model",
        ".work/notes.txt",
    ):
        path = tmp_path / "out" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"precious")
        with monkeypatch.context() as patch:
            patch.setattr(pretraining_data, "make_plan", None)
            with pytest.raises(UserError, match=f"out holds {name} but no met"):
                build()
        assert path.read_bytes() == b"precious"
        path.unlink()
    build()
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


PROGRAM = """
import contextlib, sys
from albert_tf.config import MaskingConfig, PretrainingDataConfig
from data_prep.pretraining import build_plan
from data_prep.pretraining.pretraining_data import build_pretraining_data
build_plan._MIN_UNIT_CHARS = build_plan._MAX_UNIT_CHARS = 1500
@contextlib.contextmanager
def progress(unit):
    yield lambda *done, **beside: print(unit, flush=True)
if __name__ == '__main__':
    build_pretraining_data([sys.argv[1]], sys.argv[2],
        tokenizer_dir=sys.argv[3], progress=progress, workers=2,
        config=PretrainingDataConfig(max_seq_length=48,
            num_shards=6, eval_fraction=0.3),
        masking=MaskingConfig())
"""


@pytest.mark.slow
def test_a_killed_build_of_two_workers_goes_on_with_one(
    build, tmp_path, corpus, tiny_directory, monkeypatch
):
    keywords = {"num_shards": 6, "eval_fraction": 0.3}
    build("whole", **keywords)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {"PYTHONHASHSEED": "11", "LC_ALL": "C"}
    environment["PYTHONPATH"] = ":".join(sys.path)
    arguments = [corpus, str(tmp_path / "out"), str(tiny_directory)]
    lines = 0
    with subprocess.Popen(
        [sys.executable, program, *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
    ) as process:
        for line in process.stdout:
            lines += line.startswith(b"char")
            if lines == 3:
                break
        process.send_signal(signal.SIGKILL)
    assert lines == 3
    assert not (tmp_path / "out" / "metadata.json").exists()
    work_in_pieces(monkeypatch)
    build("out", **keywords)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_nothing_temporary_is_left(build, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr(BuildDirectory, "check_room", None)
        with pytest.raises(TypeError):
            build()
    names = ["metadata.json", "tokenizer/spiece.model", ".work/part-000001-0"]
    for name in names:
        path = tmp_path / "out" / f"{name}.tmp-123"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    notes = tmp_path / "out" / "notes.tmp-7"
    notes.write_text("somebody's")
    build()
    assert list((tmp_path / "out").rglob("*.tmp-*")) == [notes]


def test_what_is_temporary_takes_no_room_while_at_work(
    build, monkeypatch, tmp_path
):
    with monkeypatch.context() as patch:
        patch.setattr(BuildDirectory, "check_room", None)
        with pytest.raises(TypeError):
            build()
    part = tmp_path / "out" / ".work" / "part-000001-0.tmp-123"
    part.write_text("half")
    save = BuildDirectory.save_tokenizer

    def saving(*arguments):
        assert not part.exists()
        save(*arguments)

    monkeypatch.setattr(BuildDirectory, "save_tokenizer", saving)
    build()


def test_a_corpus_that_changes_meanwhile_is_refused(
    build, tmp_path, corpus, monkeypatch
):
    shutil.copytree(corpus, tmp_path / "corpus")
    changed = tmp_path / "corpus" / "books" / "7.txt"
    text = changed.read_text()
    save = BuildDirectory.save_tokenizer

    def saving(*arguments):
        save(*arguments)
        changed.write_text(text.replace("the", "eht", 1))

    monkeypatch.setattr(BuildDirectory, "save_tokenizer", saving)
    inputs = [str(tmp_path / "corpus")]
    work_in_pieces(monkeypatch)
    with pytest.raises(UserError, match=r"7\.txt has changed since"):
        build(inputs=inputs)
    assert not (tmp_path / "out" / "metadata.json").exists()
    monkeypatch.setattr(BuildDirectory, "save_tokenizer", save)
    # What was begun was begun with another text.
    with pytest.raises(UserError, match="begun with other settings"):
        build(inputs=inputs)
    changed.write_text(text)
    build(inputs=inputs)
    # Records of the other text, which one unit had already, are not used.
    build("anew", inputs)
    assert digests(tmp_path / "out") == digests(tmp_path / "anew")


def test_a_directory_made_again_learns_anew(build, tmp_path, corpus):
    # This is one process: what was learned of another corpus is not used.
    build("out", [f"{corpus}/books/[0-3].txt"])
    shutil.rmtree(tmp_path / "out")
    build("out", [f"{corpus}/books/[4-7].txt"])
    build("anew", [f"{corpus}/books/[4-7].txt"])
    assert digests(tmp_path / "out") == digests(tmp_path / "anew")
