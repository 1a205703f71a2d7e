import gzip
import hashlib
import io
import json
import os
import posixpath
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from build_helpers import digests
from distributed import LocalCluster, default_client
from saved_data_sets import save

from albert_tf.config import UserError
from albert_tf.io import files
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.reading import survey_file
from data_prep.pretraining import (
    beam_engine,
    beam_files,
    beam_runner,
    build_plan,
    pretraining_data,
)
from data_prep.pretraining.beam_files import list_files
from data_prep.pretraining.build_estimate import BuildEstimate, text_shares
from data_prep.pretraining.record_maker import RecordMaker

BEAM = {"runner": "beam"}


def texts(sentences):
    """A corpus by file name: all forms, with duplicates."""
    paragraphs = [" ".join(sentences[i : i + 4]) for i in range(0, 400, 4)]

    def text(begin, end):
        return "\n\n".join(paragraphs[begin:end])

    json_lines = [
        json.dumps({"text": text(i, i + 3)}) for i in range(40, 70, 3)
    ]
    return {
        "a.txt": text(0, 20),
        "b/overlap.txt": text(10, 30),
        "b/whole.txt": text(0, 20),
        "b/packed.txt.gz": text(30, 40),
        "c.jsonl": "\n".join([*json_lines, json_lines[0]]),
        "d.jsonl.gz": "\n".join(json_lines[:2]),
        "e.md": f"# {sentences[0]}\n\n{text(70, 90)}",
        "empty.txt": "\n",
        "one.txt": "Only one sentence",
    }


def stored(name, text):
    data = text.encode()
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    directory = tmp_path_factory.mktemp("corpus")
    for name, text in texts(sentences).items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(stored(name, text))
    return str(directory)


def assert_same(tmp_path):
    local, by_beam = (digests(tmp_path / name) for name in ("local", "beam"))
    assert "metadata.json" in local
    assert sorted(by_beam) == sorted(local)
    assert by_beam == local


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {
            "record_kind": "static",
            "dupe_factor": 2,
            "inputs": ["b", "c.jsonl"],
            "eval_inputs": ["a.txt", "e.md"],
            "remove_duplicates": "paragraphs",
        },
        {
            "sentence_objective": "nsp",
            "num_shards": 2,
            "eval_fraction": 0.3,
            "remove_duplicates": "documents",
        },
        {
            "sentence_objective": "none",
            "sentence_splitter": "newline",
            "skip_header_lines": 2,
            "max_seq_length": 256,
            "num_shards": 40,
            "eval_fraction": 1e-9,
        },
        {
            "inputs": ["a.txt", "b", "c.jsonl"],
            "document_separator": "blank_line",
            "remove_duplicates": "near_documents",
            "near_duplicate_threshold": 0.5,
            "report": True,
        },
    ],
    ids=["static", "nsp", "none", "near"],
)
def test_the_bytes_are_those_of_the_local_runner(
    build, corpus, tmp_path, settings, monkeypatch
):
    for name in settings.keys() & {"inputs", "eval_inputs"}:
        paths = [f"{corpus}/{path}" for path in settings[name]]
        settings = settings | {name: paths}
    # Many units and groups even of a small corpus.
    monkeypatch.setattr(build_plan, "_GROUP_CHARS", 10_000)
    monkeypatch.setattr(build_plan, "_MIN_UNIT_CHARS", 1000)
    metadata = build("local", **settings)
    assert build("beam", **settings, runner="beam") == metadata
    assert_same(tmp_path)
    counts = metadata["statistics"]
    assert counts["train"]["instances"] > 20
    if "remove_duplicates" in settings:
        assert counts["corpus"]["duplicate_documents"] >= 2
    if settings.get("num_shards") == 40:
        shards = metadata["splits"]["train"]["shards"]
        assert min(shard["num_records"] for shard in shards) == 0


@pytest.mark.slow
def test_a_worker_of_a_cluster_may_be_killed(build, tmp_path, monkeypatch):
    """Kills one of Dask after the first shard; others do its work again."""
    root = str(Path(beam_runner.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.setattr(build_plan, "_MIN_UNIT_CHARS", 1000)
    settings = {"remove_duplicates": "paragraphs", "num_shards": 16}
    metadata = build("local", **settings)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        victim = cluster.workers[0].pid

        def kill():
            while not [*(tmp_path / "beam").glob("train-*")]:
                time.sleep(0.01)
            os.kill(victim, signal.SIGKILL)

        killing = threading.Thread(target=kill, daemon=True)
        killing.start()
        options = {
            "runner": "apache_beam.runners.dask.dask_runner.DaskRunner",
            "dask_client_address": cluster.scheduler_address,
            "dask_npartitions": 4,
        }
        runner_options = [f"--{key}={value}" for key, value in options.items()]
        found = build(
            "beam", **settings, runner="beam", runner_options=runner_options
        )
        killing.join()
        # Beam leaves one for each pipeline, which would look for the scheduler.
        for _ in ("survey", "shards"):
            default_client().close()
    assert found == metadata
    assert_same(tmp_path)


@pytest.mark.slow
def test_a_failed_build_is_begun_anew(build, tmp_path, monkeypatch):
    build("local")

    def fail(self, unit, counts):
        raise RuntimeError("a worker's bug")

    with monkeypatch.context() as patch:
        shares = text_shares(Counter(), 48)
        estimate = BuildEstimate(1.0, shares)
        patch.setattr(build_plan, "estimate_build", lambda *_: estimate)
        patch.setattr(RecordMaker, "__call__", fail)
        with pytest.raises(RuntimeError, match=r"a worker's bug.*running 'Ma"):
            build("beam", runner="beam")
    (tmp_path / "beam" / "train-00000-of-00001.tfrecord.tmp-12").touch()
    assert not (tmp_path / "beam" / "metadata.json").exists()
    build("beam", runner="beam")
    assert_same(tmp_path)


@pytest.mark.slow
def test_a_build_whose_shards_are_written_is_resumed(
    build, tmp_path, monkeypatch
):
    """Also one that another runner has written."""
    build("local")
    with monkeypatch.context() as patch:
        patch.setattr(pretraining_data, "make_metadata", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build("beam")
    with pytest.raises(UserError, match="begun with other settings"):
        build("beam", runner="beam", random_seed=7)
    monkeypatch.setattr(beam_runner, "_make_shards", lambda *_: 1 / 0)
    shard = tmp_path / "beam" / "train-00000-of-00001.tfrecord"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    with pytest.raises(ZeroDivisionError):
        build("beam", runner="beam")
    shard.write_bytes(whole)
    build("beam", runner="beam")
    assert_same(tmp_path)


def test_workers_are_processes_of_beams_own_runner():
    options = beam_engine.Engine([], 2)._options.get_all_options()
    assert options["direct_running_mode"] == "multi_processing"
    assert options["direct_num_workers"] == 2


class MemoryFileSystem(FileSystem):
    """Files in a dictionary, memory://..., with the habits of HDFS.

    What does not exist cannot be listed, directories have no size, and a
    file is renamed to a free name only.
    """

    files: dict[str, bytes] = {}  # noqa: RUF012

    @classmethod
    def scheme(cls):
        return "memory"

    join = staticmethod(posixpath.join)
    split = staticmethod(posixpath.split)

    def has_dirs(self):
        return True

    # A file makes its directory, and nothing is copied.
    mkdirs = copy = last_updated = checksum = None

    def _under(self, directory):
        prefix = directory.rstrip("/") + "/"
        return [path for path in self.files if path.startswith(prefix)]

    def _list(self, dir_or_prefix):
        if not self.exists(dir_or_prefix):
            raise BeamIOError("missing", {dir_or_prefix: "missing"})
        return [self.metadata(path) for path in self._under(dir_or_prefix)]

    def create(self, path, mime_type="", compression_type="auto"):
        assert compression_type == "uncompressed"
        files = self.files

        class Written(io.BytesIO):
            def close(self):
                if not self.closed:
                    files[path] = self.getvalue()
                super().close()

        return Written()

    def open(self, path, mime_type="", compression_type="auto"):
        assert compression_type == "uncompressed"
        if path not in self.files:
            raise BeamIOError(f"{path} is missing")
        return io.BytesIO(self.files[path])

    def rename(self, source_file_names, destination_file_names):
        for source, destination in zip(
            source_file_names, destination_file_names, strict=True
        ):
            if destination in self.files:
                raise BeamIOError("exists", {(source, destination): "exists"})
            self.files[destination] = self.files.pop(source)

    def exists(self, path):
        return path in self.files or bool(self._under(path))

    def size(self, path):
        return len(self.files[path])

    def metadata(self, path):
        if path not in self.files:
            raise BeamIOError(f"{path} is no file")
        return FileMetadata(path, len(self.files[path]), 0.0)

    def delete(self, paths):
        for path in paths:
            for name in self._under(path) or [path]:
                del self.files[name]


@pytest.fixture
def remote(sentences, monkeypatch):
    """Remote files by path; the corpus is memory://store/corpus."""
    files = {
        f"memory://store/corpus/{name}": stored(name, text)
        for name, text in texts(sentences).items()
    }
    files["memory://store/corpus/notes.doc"] = b"no text"
    monkeypatch.setattr(MemoryFileSystem, "files", files)
    return files


@pytest.mark.slow
def test_remote_paths_give_the_same_bytes(build, tmp_path, remote):
    """The same corpus has the same names wherever it lies."""
    metadata = build("local")
    keywords = {"inputs": ["memory://store/corpus"], "runner": "beam"}
    assert build("memory://store/out", **keywords) == metadata
    prefix = "memory://store/out/"
    written = {
        path.removeprefix(prefix): hashlib.sha256(data).hexdigest()
        for path, data in remote.items()
        if path.startswith(prefix)
    }
    assert written == digests(tmp_path / "local")
    before = dict(remote)
    assert build("memory://store/out", **keywords) == metadata
    assert remote == before
    with pytest.raises(UserError, match="finished with other settings"):
        build("memory://store/out", num_shards=2, **keywords)


def test_remote_and_local_inputs_together(build, corpus, remote):
    inputs = ["memory://store/corpus/*.txt", f"{corpus}/c.jsonl"]
    metadata = build("both", inputs=inputs, runner="beam")
    assert metadata["settings"]["inputs"]["train"]["num_files"] == 4
    with pytest.raises(UserError, match="memory://.*/a.txt is in the input an"):
        build(
            "other",
            inputs=inputs,
            eval_inputs=["memory://store/corpus/a.txt"],
            runner="beam",
        )


def test_remote_shards_of_others_are_refused(build, remote):
    remote["memory://store/out/train-00000-of-00001.tfrecord"] = b"precious"
    with pytest.raises(UserError, match="out holds train-00000-of-.* but no"):
        build("memory://store/out", **BEAM)


def test_remote_files_are_replaced_whole(remote):
    directory = "memory://store/x"
    beam_files = beam_engine.file_system_of(directory)
    assert beam_engine.file_system_of("/store/x") is files
    path = f"{directory}/file"
    assert beam_files.sizes(directory) == {}
    beam_files.remove_tree(directory)
    for content in (b"first", b"second"):
        with beam_files.replacing(path) as file:
            file.write(content)
    assert beam_files.sizes(directory) == {"file": 6}
    with pytest.raises(ZeroDivisionError), beam_files.replacing(path):
        raise ZeroDivisionError
    with beam_files.open(path) as file:
        assert file.read() == b"second"
    beam_files.remove(path)
    (temporary,) = beam_files.sizes(directory)
    assert files.unfinished(temporary) == "file"
    beam_files.remove_tree(directory)
    assert beam_files.sizes(directory) == {}


def test_remote_directories_are_listed_as_local_ones(remote):
    folder = "memory://store/.hidden/corpus"
    taken = [f"{folder}/B.TXT.GZ", f"{folder}/deep/a.md"]
    left = [".a.txt", ".git/a.txt", "deep/.b/c/a.txt", "a.csv", "b", "c.gz"]
    names = [*taken, *(f"{folder}/{name}" for name in left)]
    remote.update(dict.fromkeys(names, b"text"))
    left_out = set()
    assert list_files([folder], left_out) == taken
    assert left_out == {f"{folder}/{name}" for name in ("a.csv", "b", "c.gz")}
    assert list_files([f"{folder}/.a.txt"]) == [f"{folder}/.a.txt"]
    with pytest.raises(UserError, match="holds no text"):
        list_files([f"{folder}/deep/.b/c/d"])


def test_remote_data_sets_are_listed_as_local_ones(remote, tmp_path):
    folder = "memory://store/saved"
    for split in ("train", "test"):
        save(tmp_path / split, {"text": ["a", "b"]})
    (tmp_path / "dataset_dict.json").write_text("{}")
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        name = path.relative_to(tmp_path).as_posix()
        remote[f"{folder}/{name}"] = path.read_bytes()
    left_out = set()
    names = [f"data-0000{number}-of-00002.arrow" for number in (0, 1)]
    found = list_files([folder], left_out)
    assert found == [f"{folder}/train/{name}" for name in names]
    assert left_out == {f"{folder}/test/{name}" for name in names}
    (file, _) = corpus_files(found, names, "auto", beam_files.open)
    survey, _ = survey_file(file, open_file=beam_files.open)
    assert survey.report.counts["documents"] == 1


def test_a_file_that_cannot_be_used_is_named_in_one_line(build, tmp_path):
    """The first of two is named, as by the local runner."""
    for name in ("x.txt.gz", "y.txt.gz"):
        (tmp_path / name).write_bytes(b"plain text")
    said = []
    for runner in ("local", "beam"):
        with pytest.raises(
            UserError, match="x.txt.gz is not a gzip file"
        ) as info:
            build("out", inputs=[str(tmp_path)], runner=runner)
        said.append(str(info.value))
    assert said[0] == said[1]
    assert not (tmp_path / "out" / ".survey").exists()


def with_options(*options, runner="beam"):
    return {"runner": runner, "runner_options": options}


@pytest.mark.parametrize(
    ("output", "keywords", "message"),
    [
        ("gs://x/out", {}, "gs://x/out is not on this machine; runner=beam"),
        ("out", {"inputs": ["s3://x/y"]}, "s3://x/y is not on this machine"),
        ("out", with_options("--a=b", runner="local"), "no options .--a=b"),
        ("out", {"runner": "spark"}, "'spark' is not one of local, beam"),
        ("out", with_options("par=4"), "'par=4' does not look like --name="),
        ("out", with_options("--runner=None such"), "refuses .*: None such"),
        ("out", with_options("--parallelism=four"), "parallelism: invalid int"),
        ("nowhere://x/out", BEAM, "nowhere://x/out cannot be used: Unable to"),
        ("out", BEAM | {"inputs": ["memory://x/*"]}, "'memory://x/.*' does no"),
        ("/proc/none/out", BEAM, "/proc/none/out cannot be written"),
    ],
)
def test_mistakes_are_refused_in_one_line(
    build, remote, output, keywords, message
):
    with pytest.raises(UserError, match=message) as info:
        build(output, **keywords)
    assert "\n" not in str(info.value)


class Stopped:
    state = "STOPPED"

    def wait_until_finish(self):
        return None


def test_a_pipeline_that_is_not_run_is_an_error(build, tmp_path, monkeypatch):
    monkeypatch.setattr(
        beam_engine.beam.Pipeline, "run", lambda self: Stopped()
    )
    with pytest.raises(UserError, match="ended as STOPPED and left no result"):
        build("out", runner="beam")
    # Nor is the result of an earlier run its own.
    result = tmp_path / "result.json"
    result.write_text('{"shards": []}')
    engine = beam_engine.Engine([], 1)
    with pytest.raises(UserError, match="ended as STOPPED and left no result"):
        engine.run(str(result), lambda pipeline: {})


def test_without_beam_the_message_names_its_requirements(build, monkeypatch):
    for name in ("beam_runner", "beam_engine", "beam_files"):
        monkeypatch.delitem(sys.modules, f"data_prep.pretraining.{name}")
        monkeypatch.delattr(f"data_prep.pretraining.{name}")
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match="pip install -r requirements-beam.txt"):
        build("out", runner="beam")
