import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from albert_tf.config import MaskingConfig, PretrainingDataConfig, UserError
from albert_tf.text.records import (
    RECORD_SPECS,
    ids_in_ranges,
    open_shards,
    parse_batch,
)
from data_prep import pretraining_data
from data_prep.pretraining_data import build_pretraining_data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    """Eight files of some 100 sentences, and two files that yield nothing."""
    directory = tmp_path_factory.mktemp("corpus")
    for number in range(8):
        part = sentences[number * 100 : (number + 1) * 100]
        paragraphs = [" ".join(part[i : i + 4]) for i in range(0, 100, 4)]
        path = directory / "books" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    (directory / "books" / "one.txt").write_text("Only one sentence")
    (directory / "empty.txt").write_text("\n")
    return str(directory)


@pytest.fixture
def build(corpus, tiny_directory, tmp_path):
    """Builds with small settings; keywords change them."""

    def call(
        output="out",
        inputs=(corpus,),
        masking=MaskingConfig(),  # noqa: B008 (frozen)
        eval_inputs=(),
        workers=1,
        progress=None,
        **config,
    ):
        return build_pretraining_data(
            list(inputs),
            str(tmp_path / output),
            tokenizer_dir=str(tiny_directory),
            config=PretrainingDataConfig(**{"max_seq_length": 48} | config),
            masking=masking,
            eval_inputs=list(eval_inputs),
            workers=workers,
            progress=progress,
        )

    return call


def digests(directory):
    """sha256 of every file, at any depth, by name."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def read_split(directory, split="train"):
    with open_shards(directory, split) as shards:
        metadata = shards.metadata
        return parse_batch(
            RECORD_SPECS[metadata["record_kind"]],
            shards.read(range(len(shards))),
            max_seq_length=metadata["max_seq_length"],
            num_slots=metadata["num_slots"],
        )


def test_a_directory_of_dynamic_records(build, tmp_path, tiny_tokenizer):
    metadata = build(num_shards=3)
    assert sorted(os.listdir(tmp_path / "out")) == [
        "metadata.json",
        "punkt.json",
        "tokenizer",
        *[f"train-{i:05}-of-00003.tfrecord" for i in range(3)],
    ]
    assert json.loads((tmp_path / "out/metadata.json").read_text()) == metadata
    batch = read_split(tmp_path / "out")
    counts = metadata["statistics"]["train"]
    shards = metadata["splits"]["train"]["shards"]
    sizes = [shard["num_records"] for shard in shards]
    assert sum(sizes) == len(batch["input_ids"]) == counts["instances"]
    assert max(sizes) - min(sizes) <= 1
    assert counts["documents"] == 9
    assert counts["skipped/single_sentence_documents"] == 1
    assert metadata["statistics"]["corpus"]["empty_files"] == 1
    assert counts["instance_tokens"] == batch["input_mask"].sum()
    assert counts["swapped"] == batch["sentence_order_label"].sum()
    padding = 1 - batch["input_mask"].mean()
    assert counts["padding_share"] == pytest.approx(padding, abs=1e-6)
    described = metadata["tokenizer"]
    assert described["fingerprint"] == tiny_tokenizer.fingerprint
    assert described["special_ids"] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(
        ids_in_ranges(described["replacement_id_ranges"]),
        tiny_tokenizer.replacement_ids,
    )


def test_static_records_are_masked(build, tmp_path):
    metadata = build(record_kind="static")
    batch = read_split(tmp_path / "out")
    assert metadata["num_slots"] == round(0.15 * 48) == 7
    assert batch["masked_lm_ids"].shape[1] == 7
    row, slot = np.nonzero(batch["masked_lm_weights"])
    hidden = batch["input_ids"][row, batch["masked_lm_positions"][row, slot]]
    assert 0.7 < np.mean(hidden == 4) < 0.9
    counts = metadata["statistics"]["train"]
    assert counts["masked_tokens"] == len(row)
    assert counts["masked_share"] == pytest.approx(0.15, abs=0.02)


def test_pairs_are_stretches_of_the_corpus(
    build, tmp_path, tiny_tokenizer, sentences
):
    build()
    batch = read_split(tmp_path / "out")
    encoded = tiny_tokenizer.encode_batch(sentences)
    text = f" {' '.join(str(i) for ids in encoded for i in ids)} "
    labels = batch["sentence_order_label"]
    for ids, segments, mask, label in zip(
        batch["input_ids"],
        batch["segment_ids"],
        batch["input_mask"],
        labels,
        strict=True,
    ):
        first = ids[(segments == 0) & (mask == 1)][1:-1]
        second = ids[segments == 1][:-1]
        pair = [f"{' '.join(map(str, part))} " for part in (first, second)]
        if label:
            pair.reverse()
        assert all(f" {part}" in text for part in pair)
        # Only a pair that fills its room may have lost what lay between.
        assert f" {pair[0]}{pair[1]}" in text or mask.all()
    assert 0.4 < labels.mean() < 0.6


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_the_bytes_do_not_hang_on_how_they_were_made(
    build, tmp_path, monkeypatch, corpus, kind
):
    keywords = {"record_kind": kind, "num_shards": 2, "dupe_factor": 2}
    build("one", **keywords)
    expected = digests(tmp_path / "one")
    # Smaller units, more buckets, another place and order of the files.
    monkeypatch.setattr(pretraining_data, "_UNIT_CHARS", 2000)
    monkeypatch.setattr(pretraining_data, "_BUCKET_BYTES", 1000)
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    build(
        "other",
        [str(moved / "empty.txt"), str(moved / "books")],
        **keywords,
    )
    assert digests(tmp_path / "other") == expected


@pytest.mark.slow
def test_the_bytes_do_not_hang_on_the_number_of_workers(
    build, tmp_path, monkeypatch
):
    build("one", eval_fraction=0.3)
    monkeypatch.setattr(pretraining_data, "_UNIT_CHARS", 1000)
    monkeypatch.setenv("PYTHONHASHSEED", "11")
    monkeypatch.setenv("LC_ALL", "C")
    build("two", workers=2, eval_fraction=0.3)
    assert digests(tmp_path / "two") == digests(tmp_path / "one")


def test_records_are_shuffled_over_the_corpus(
    build, tmp_path, tiny_tokenizer, sentences
):
    build()
    # Where in the corpus a record's first sentence begins to be, by its rare
    # runs of tokens.
    place = {}
    for number, ids in enumerate(tiny_tokenizer.encode_batch(sentences)):
        for start in range(len(ids) - 7):
            place.setdefault(tuple(ids[start : start + 8]), number)
    places = []
    records = read_split(tmp_path / "out")["input_ids"].tolist()
    for ids in records:
        runs = (tuple(ids[i : i + 8]) for i in range(40))
        found = [place[run] for run in runs if run in place]
        places += found[:1]
    # Nearly every record was recognised, and there are enough of them for
    # the bound below to mean something.
    assert len(places) > 0.95 * len(records)
    assert len(records) > 250
    correlation = np.corrcoef(places[1:], places[:-1])[0, 1]
    assert abs(correlation) < 4 / len(places) ** 0.5


def test_inputs_may_be_relative_and_absolute(
    build, tmp_path, corpus, monkeypatch
):
    build("absolute", num_shards=1)
    monkeypatch.chdir(corpus)
    build("mixed", ["books", f"{corpus}/empty.txt"], num_shards=1)
    expected = digests(tmp_path / "absolute")
    assert digests(tmp_path / "mixed") == expected


def test_another_seed_gives_other_records(build, tmp_path):
    build("a")
    build("b", random_seed=1)
    first, second = (
        read_split(tmp_path / name)["input_ids"].tolist() for name in "ab"
    )
    assert sorted(first) != sorted(second)


def test_evaluation_documents_can_be_held_out(build, tmp_path, corpus):
    whole = build("whole")["statistics"]["train"]
    metadata = build("parts", eval_fraction=0.4)
    train, held_out = (
        metadata["statistics"][split] for split in ("train", "eval")
    )
    assert held_out["instances"] > 0
    for name in ("documents", "sentences", "tokens", "instances", "swapped"):
        assert train[name] + held_out[name] == whole[name]
    both = [
        record
        for split in ("train", "eval")
        for record in read_split(tmp_path / "parts", split)[
            "input_ids"
        ].tolist()
    ]
    everything = read_split(tmp_path / "whole")["input_ids"].tolist()
    assert sorted(both) == sorted(everything)


def test_the_seed_decides_what_is_held_out(build):
    tokens = {
        build(f"{seed}", random_seed=seed, eval_fraction=0.4)["statistics"][
            "eval"
        ]["tokens"]
        for seed in (1, 2, 3, 4)
    }
    assert len(tokens) > 1


def test_evaluation_can_have_files_of_its_own(build, tmp_path, corpus):
    books = f"{corpus}/books"
    metadata = build(
        inputs=[f"{books}/[0-5].txt"], eval_inputs=[f"{books}/[67].txt"]
    )
    assert metadata["statistics"]["train"]["documents"] == 6
    assert metadata["statistics"]["eval"]["documents"] == 2
    assert len(read_split(tmp_path / "out", "eval")["input_ids"]) > 5


def test_progress_is_told(build):
    told = []
    metadata = build(progress=lambda totals: told.append(dict(totals)))
    assert (
        told[-1]["train/instances"]
        == (metadata["splits"]["train"]["num_records"])
    )


def test_a_finished_directory_is_left_as_it_is(build, tmp_path):
    metadata = build()
    before = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()
    }
    os.mkdir(tmp_path / "out" / ".spool")
    assert build() == metadata
    assert build(workers=7) == metadata
    assert before == {
        path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()
    }


def test_other_settings_are_told_apart(build, tmp_path, corpus):
    build()
    with pytest.raises(
        UserError, match="random_seed: 5 here, 12345 there.*another output"
    ):
        build(random_seed=5)
    with pytest.raises(UserError, match=r"inputs\.train\.num_files: 1 here"):
        build(inputs=[f"{corpus}/books/0.txt"])
    # What does not touch dynamic records is no other setting.
    build(masking=MaskingConfig(max_ngram=1))
    build("static", record_kind="static")
    with pytest.raises(UserError, match=r"masking\.max_ngram: 1 here, 3"):
        build(
            "static", record_kind="static", masking=MaskingConfig(max_ngram=1)
        )


def test_an_interrupted_run_is_made_again(build, tmp_path, monkeypatch):
    build("whole", num_shards=2)
    written = []
    write_shard = pretraining_data.write_shard

    def failing(path, records):
        if written:
            (tmp_path / "out" / "train-00001-of-00002.tfrecord.tmp-1").touch()
            raise OSError("disk full")
        written.append(path)
        return write_shard(path, records)

    monkeypatch.setattr(pretraining_data, "write_shard", failing)
    with pytest.raises(OSError, match="disk full"):
        build("out", num_shards=2)
    with pytest.raises(UserError, match="unfinished"):
        open_shards(tmp_path / "out", "train")
    monkeypatch.undo()
    build("out", num_shards=2)
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_shards_of_others_are_not_removed(build, tmp_path):
    path = tmp_path / "out" / "train-00000-of-00001.tfrecord"
    path.parent.mkdir()
    path.write_bytes(b"precious")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds train-00000-of-00001\.tfrec"):
        build()
    assert path.read_bytes() == b"precious"
    path.unlink()
    build()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_killed_run_is_made_again(build, tmp_path, corpus, tiny_directory):
    build("whole")
    code = (
        "import sys\n"
        "from albert_tf.config import MaskingConfig, PretrainingDataConfig\n"
        "from data_prep.pretraining_data import build_pretraining_data\n"
        "build_pretraining_data([sys.argv[1]], sys.argv[2],\n"
        "    tokenizer_dir=sys.argv[3],\n"
        "    config=PretrainingDataConfig(max_seq_length=48),\n"
        "    masking=MaskingConfig(),\n"
        "    progress=lambda totals: print('ready', flush=True))\n"
    )
    arguments = [corpus, str(tmp_path / "out"), str(tiny_directory)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out" / "metadata.json").exists()
    build("out")
    assert digests(tmp_path / "out") == digests(tmp_path / "whole")


def test_shards_have_about_64_megabytes(build, monkeypatch):
    assert len(build()["splits"]["train"]["shards"]) == 1
    monkeypatch.setattr(pretraining_data, "SHARD_BYTES", 10_000)
    shards = build("small")["splits"]["train"]["shards"]
    num_bytes = sum(shard["num_bytes"] for shard in shards)
    assert len(shards) > 1
    assert 5_000 < num_bytes / len(shards) < 15_000


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"workers": 0}, "workers=0 is below"),
        ({"inputs": ["missing"]}, "'missing' does not exist"),
        ({"num_shards": 5000}, "num_shards=5000 is above the most allowed"),
        ({"eval_fraction": 1e-9}, "split eval has no records: 0 documents"),
        (
            {"eval_fraction": 0.1, "eval_inputs": ["missing"]},
            "one of them is needed, not both",
        ),
    ],
)
def test_mistakes_are_told(build, keywords, message):
    with pytest.raises(UserError, match=message):
        build(**keywords)


def test_a_file_in_training_and_evaluation_is_told(build, corpus):
    with pytest.raises(UserError, match=r"3\.txt is in the input and the eval"):
        build(eval_inputs=[f"{corpus}/books/3.txt"])


def test_a_corpus_without_pairs_is_told(build, corpus, tmp_path):
    with pytest.raises(
        UserError, match="split train has no records: 1 documents, 1 of them"
    ):
        build(inputs=[f"{corpus}/books/one.txt"])
    assert not (tmp_path / "out" / "metadata.json").exists()


def test_an_empty_corpus_is_told(build, corpus):
    with pytest.raises(UserError, match="train has no records: 0 documents"):
        build(inputs=[f"{corpus}/empty.txt"])


def test_a_directory_that_cannot_be_made_is_told(build, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/out cannot be written: Not a"):
        build("file/out")


def test_hostile_text_is_survived(build, tmp_path):
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "a.txt").write_bytes(
        b"\xef\xbb\xbfNul \x00 here. Then \xe2\x80\xa8 more.\r\nAnd more. "
        b"So.\r\n\r\n" + "\u0301".encode() * 1000 + b" marks. More. "
    )
    (hostile / "b.txt").write_bytes(b"word " * 200_000)
    (hostile / "c.txt").write_bytes(b"x" * 1_000_000)
    begin = time.monotonic()
    metadata = build(inputs=[str(hostile)], sentence_splitter="newline")
    assert time.monotonic() - begin < 20
    assert metadata["statistics"]["corpus"]["control_characters"] == 1
