import contextlib
import errno
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from build_helpers import digests, read_split, work_in_pieces

from albert_tf.config import PretrainingDataConfig, UserError
from albert_tf.io import files
from albert_tf.text.tokenizer import SentencePieceTokenizer
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.reading import FileSurvey
from data_prep.corpus.report import CorpusReport
from data_prep.pretraining import build_plan, local_runner
from data_prep.pretraining.sources import held_out_draw, list_inputs


def test_a_directory_of_dynamic_records(whole):
    directory, metadata = whole
    assert sorted(os.listdir(directory)) == [
        "metadata.json",
        "punkt.json",
        "tokenizer",
        *[f"train-{i:05}-of-00003.tfrecord" for i in range(3)],
    ]
    assert json.loads((directory / "metadata.json").read_text()) == metadata
    counts = metadata["statistics"]["train"]
    shards = metadata["splits"]["train"]["shards"]
    sizes = [shard["num_records"] for shard in shards]
    assert min(sizes) > 0.7 * sum(sizes) / 3
    assert counts["documents"] == 9
    assert counts["skipped/single_sentence_documents"] == 1
    corpus = metadata["statistics"]["corpus"]
    assert corpus["bad/empty_documents"] == corpus["bad_lines"] == 1
    assert corpus["documents"] == 9
    assert metadata["sentence_objective"] == "sop"
    # Builds from before there was this setting stay finished.
    assert "near_duplicate_threshold" not in metadata["settings"]["data"]
    padding = 1 - read_split(directory)["input_mask"].mean()
    assert counts["padding_share"] == pytest.approx(padding, abs=1e-6)


def test_pairs_are_stretches_of_the_corpus(whole, tiny_tokenizer, sentences):
    batch = read_split(whole[0])
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
        # Nothing is lost between the two.
        assert f" {pair[0]}{pair[1]}" in text
    assert 0.4 < labels.mean() < 0.6


def test_the_bytes_do_not_depend_on_units_and_locations(
    build, tmp_path, monkeypatch, corpus
):
    settings = {"record_kind": "static", "num_shards": 2, "dupe_factor": 2}
    build("one", **settings)
    # Smaller units, another place and order of the files, a relative path.
    work_in_pieces(monkeypatch)
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    monkeypatch.chdir(moved)
    build("other", [str(moved / "empty.txt"), "books"], **settings)
    assert digests(tmp_path / "other") == digests(tmp_path / "one")


def test_records_are_shuffled_over_the_corpus(whole, tiny_tokenizer, sentences):
    # A record's place in the corpus is that of its first sentence, known by
    # rare runs of tokens.
    place = {}
    for number, ids in enumerate(tiny_tokenizer.encode_batch(sentences)):
        for start in range(len(ids) - 7):
            place.setdefault(tuple(ids[start : start + 8]), number)
    places = []
    records = read_split(whole[0])["input_ids"].tolist()
    for ids in records:
        runs = (tuple(ids[i : i + 8]) for i in range(40))
        places += [place[run] for run in runs if run in place][:1]
    # Nearly every record was recognised, and there are enough of them for
    # the bound below to mean something.
    assert len(places) > 0.95 * len(records)
    assert len(records) > 250
    correlation = np.corrcoef(places[1:], places[:-1])[0, 1]
    assert abs(correlation) < 4 / len(places) ** 0.5


@pytest.mark.parametrize("fraction", [1e-9, 0.05])
def test_one_document_is_held_out_at_least(build, tmp_path, corpus, fraction):
    lines = []
    inputs = [f"{corpus}/books"]
    settings = {"eval_fraction": fraction, "inputs": inputs}
    statistics = build(log=lines.append, **settings)["statistics"]
    total = statistics["corpus"]["documents"]
    assert statistics["eval"]["documents"] == 1
    assert statistics["train"]["documents"] == total - 1
    assert lines[0] == (
        f"eval_fraction={fraction} would hold out none of the {total} "
        "documents, which are drawn one by one: one is held out."
    )


def test_one_document_is_kept_to_train_on():
    names = [f"{number}.txt" for number in range(9)]
    config = PretrainingDataConfig(eval_fraction=0.5)
    draws = {name: held_out_draw(name, config.random_seed) for name in names}
    names = [name for name in names if draws[name] < 0.5]
    surveys = [
        FileSurvey(
            CorpusFile(name, name, "file", origin="train"),
            num_bytes=1,
            sha256="",
            report=CorpusReport(Counter(documents=1)),
        )
        for name in names
    ]
    threshold, lines = build_plan._eval_threshold(surveys, config)
    assert sum(draws[name] < threshold for name in names) == len(names) - 1
    assert lines[0].endswith("one by one: one is kept to train on.")


def test_what_is_not_read_and_bad_lines_are_logged(build, tmp_path, corpus):
    folder = shutil.copytree(f"{corpus}/books", tmp_path / "folder")
    (folder / "more.pdf").touch()
    latin = folder / "latin.txt"
    latin.write_bytes(b"One.\n\nCaf\xe9.")
    lines = []
    build(inputs=[str(folder)], log=lines.append)
    assert lines[0] == "Files that are not read: 1 .pdf."
    assert lines[1].endswith(
        f": 1 not UTF-8 (first: {latin}, line 3), kept with U+FFFD for such "
        "bytes."
    )


def test_evaluation_documents_can_be_held_out(build, tmp_path, whole):
    counts = whole[1]["statistics"]["train"]
    metadata = build("parts", eval_fraction=0.4)
    train, held_out = (
        metadata["statistics"][split] for split in ("train", "eval")
    )
    assert held_out["instances"] > 0
    for name in ("documents", "sentences", "tokens", "instances", "label_1"):
        assert train[name] + held_out[name] == counts[name]
    both = [
        ids
        for split in ("train", "eval")
        for ids in read_split(tmp_path / "parts", split)["input_ids"].tolist()
    ]
    everything = read_split(whole[0])["input_ids"].tolist()
    assert sorted(both) == sorted(everything)
    # The draws follow from the seed.
    others = build("others", eval_fraction=0.4, random_seed=2)["statistics"]
    assert others["eval"]["tokens"] != held_out["tokens"]


def recorded(shown):
    """Returns a progress display that collects what it shows, by unit."""

    @contextlib.contextmanager
    def progress(unit):
        shown[unit] = []
        yield lambda *done, **beside: shown[unit].append((*done, beside))

    return progress


def test_progress_is_reported(build, monkeypatch):
    work_in_pieces(monkeypatch)
    shown, lines = {}, []
    metadata = build(progress=recorded(shown), log=lines.append, num_shards=2)
    characters = metadata["statistics"]["corpus"]["characters"]
    records = metadata["splits"]["train"]["num_records"]
    assert shown["files read"][-1] == (10, 10, {})
    assert len(shown["characters"]) > 5
    assert shown["characters"][-1] == (
        characters,
        characters,
        {"documents": 9, "instances": records},
    )
    assert shown["shards"] == [(1, 2, {}), (2, 2, {})]
    faults, line = lines
    assert faults.endswith("empty.txt, line 1), left out.")
    assert re.fullmatch(
        r"About \S+kB of records in 2 shards; about \S+kB on disk while at "
        r"work, \S+B are free\.",
        line,
    )


def test_units_are_bounded(build, monkeypatch):
    def unit_sizes(output, **keywords):
        shown = {}
        build(output, progress=recorded(shown), **keywords)
        return np.diff([0, *(done for done, *_ in shown["characters"])])

    monkeypatch.setattr(build_plan, "_MIN_UNIT_CHARS", 1)
    documents = unit_sizes("many")
    assert len(documents) >= 9
    monkeypatch.setattr(build_plan, "_MIN_UNIT_CHARS", 10**9)
    monkeypatch.setattr(build_plan, "_MAX_UNIT_CHARS", 9000)
    sizes = unit_sizes("characters")
    assert 9000 <= max(sizes) < 9000 + max(documents)
    monkeypatch.setattr(build_plan, "_MAX_UNIT_CHARS", 10**9)
    monkeypatch.setattr(build_plan, "_MAX_UNIT_BYTES", 60_000)
    sizes = unit_sizes("bytes", record_kind="static", dupe_factor=5)
    assert len(sizes) >= 9


def logged_sizes(build, output="out", **keywords):
    """Returns the bytes of records and at most on disk, and the metadata."""
    lines = []
    metadata = build(output, log=lines.append, **keywords)
    sizes = re.findall(r"about ([\d.]+)(\SB) ", lines[-1], re.IGNORECASE)
    units = {"kB": 1e3, "MB": 1e6}
    return *(float(number) * units[unit] for number, unit in sizes), metadata


def test_room_for_the_rest_of_the_work_is_counted(build):
    records, plain, _ = logged_sizes(build)
    assert plain == pytest.approx(2 * records, rel=0.01)
    _, groups, _ = logged_sizes(build, "groups", sentence_objective="nsp")
    assert groups - plain > 10_000
    _, digests_too, _ = logged_sizes(
        build, "digests", remove_duplicates="paragraphs"
    )
    assert digests_too - plain > 4_000


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_the_logged_size_is_that_of_the_shards(build, kind):
    logged, _, metadata = logged_sizes(build, record_kind=kind, dupe_factor=3)
    shards = metadata["splits"]["train"]["shards"]
    written = sum(shard["num_bytes"] for shard in shards)
    assert 0.85 < logged / written < 1.15
    if kind == "static":
        share = metadata["statistics"]["train"]["masked_share"]
        assert share == pytest.approx(0.15, abs=0.02)
        assert metadata["num_slots"] == round(0.15 * 48)


def test_too_little_room_is_refused(build, monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)._replace(free=10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    message = r"out needs about \S+kB while at work and has 10\.0kB"
    with pytest.raises(UserError, match=message) as error:
        build(record_kind="static")
    assert files.is_disk_full(error.value)


def test_a_full_temporary_directory_is_not_that_of_the_output(
    build, monkeypatch
):
    def full(tokenizer, directory):
        path = os.path.join(directory, "tokenizer.json")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(SentencePieceTokenizer, "save", full)
    with pytest.raises(OSError, match="tokenizer.json'$"):
        build()


def test_a_disk_that_gets_full_is_named(build, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(local_runner, "write_shard", full)
        message = r"/out: No space .* \S+kB more .* \S+B are free\. Make room"
        with pytest.raises(UserError, match=message) as error:
            build()
        # The program chooses its status by this.
        assert files.is_disk_full(error.value)
    build()


def test_shards_have_about_64_megabytes(build, monkeypatch):
    assert len(build()["splits"]["train"]["shards"]) == 1
    monkeypatch.setattr(build_plan, "SHARD_BYTES", 10_000)
    shards = build("small")["splits"]["train"]["shards"]
    num_bytes = sum(shard["num_bytes"] for shard in shards)
    assert len(shards) > 1
    assert 5_000 < num_bytes / len(shards) < 15_000


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"inputs": ["missing"]}, "'{}/missing' does not exist"),
        ({"num_shards": 5000}, "num_shards=5000 is above the maximum"),
        ({"random_seed": 2**63}, "is above the maximum"),
        (
            {
                "eval_fraction": 0.5,
                "inputs": ["books/3.txt"],
                "document_separator": "file",
            },
            "eval_fraction=0.5 holds out a part of the documents, and the "
            "input has 1; give an evaluation input",
        ),
        ({"eval_fraction": 0.1, "eval_inputs": ["missing"]}, "one of them is"),
        ({"eval_inputs": ["books/3.txt"]}, "3.txt is in the input and the"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(
    build, tmp_path, corpus, keywords, message
):
    for name in {"inputs", "eval_inputs"} & keywords.keys():
        (path,) = keywords[name]
        keywords = keywords | {name: [f"{corpus}/{path}"]}
    with pytest.raises(UserError, match=message.format(corpus)):
        build(**keywords)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("books/one.txt", "1 documents, 1 of them of one sentence"),
        ("empty.txt", "0 documents"),
    ],
)
def test_a_split_without_records_is_refused(
    build, corpus, tmp_path, name, said
):
    with pytest.raises(UserError, match=f"train has no records: {said}"):
        build(inputs=[f"{corpus}/{name}"], max_bad_fraction=1.0)
    assert not (tmp_path / "out" / "metadata.json").exists()


def test_pairs_of_a_single_document_have_one_label(build, corpus):
    lines = []
    metadata = build(
        inputs=[f"{corpus}/books/[0-5].txt"],
        eval_inputs=[f"{corpus}/books/7.txt"],
        document_separator="file",
        sentence_objective="nsp",
        log=lines.append,
    )
    number = metadata["statistics"]["eval"]["without_other_document"]
    assert number > 5
    (warning,) = (x for x in lines if x.startswith("Warning"))
    assert re.match(
        f"Warning: the split eval has too few documents, so that {number} "
        "pairs .* are real pairs, and whether",
        warning,
    )


def test_training_pairs_of_one_label_are_refused(build, corpus, tmp_path):
    said = "train has a single document.* or --sentence_objective=sop"
    settings = {"inputs": [f"{corpus}/books/7.txt"]}
    settings["document_separator"] = "file"
    with pytest.raises(UserError, match=said):
        build(sentence_objective="nsp", **settings)
    assert not (tmp_path / "out" / "metadata.json").exists()
    build("sop", sentence_objective="sop", **settings)


def test_bad_text_is_refused_before_anything_is_written(build, tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"Caf\xe9. Good.\n" * 3 + b"Good.\n" * 7)
    said = r"3 of 10 \(30%\): 3 not UTF-8 \(first: .*bad\.txt, line 1\)"
    settings = {"inputs": [str(path)], "document_separator": "file"}
    with pytest.raises(UserError, match=said):
        build(**settings)
    assert not (tmp_path / "out").exists()
    metadata = build(**settings, max_bad_fraction=0.3)
    assert metadata["statistics"]["corpus"]["bad/not_utf8"] == 3


def test_next_sentences_come_from_a_group(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build_plan, "_GROUP_CHARS", 10_000)
    settings = {"sentence_objective": "nsp", "eval_fraction": 0.3}
    first = build("one", **settings)
    work_in_pieces(monkeypatch)
    build("pieces", **settings)
    assert digests(tmp_path / "pieces") == digests(tmp_path / "one")
    assert 0.3 < first["statistics"]["train"]["label_1_share"] < 0.6


@pytest.mark.parametrize("number", [1, 2])
def test_both_lists_are_read_in_one_form(tmp_path, number):
    """A single file by itself would have blank lines between documents."""
    for name in ("train/a.txt", "train/b.txt", "eval/c.txt", "eval/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("One text.\n\nAnother.\n")
    files = list_inputs(
        [str(tmp_path / "train")],
        [str(path) for path in sorted((tmp_path / "eval").iterdir())[:number]],
        PretrainingDataConfig(),
    )
    assert {file.form for file in files} == {"file"}
    files = list_inputs(
        [str(tmp_path / "train" / "a.txt")],
        [str(tmp_path / "eval")],
        PretrainingDataConfig(),
    )
    assert {file.form for file in files} == {"blank_line"}


def test_evaluation_without_duplicates_of_training(build, corpus, tmp_path):
    held_out = tmp_path / "held out"
    held_out.mkdir()
    shutil.copy(f"{corpus}/books/3.txt", held_out / "copy.txt")
    shutil.copy(f"{corpus}/books/1.txt", held_out / "other.txt")
    metadata = build(
        inputs=[f"{corpus}/books/[2-5].txt"],
        eval_inputs=[str(held_out)],
        remove_duplicates="documents",
    )
    assert metadata["statistics"]["train"]["documents"] == 4
    assert metadata["statistics"]["eval"]["documents"] == 1
    assert metadata["statistics"]["corpus"]["duplicate_documents"] == 1
    assert metadata["splits"]["eval"]["num_records"] > 5


def test_hostile_text_is_survived(build, tmp_path):
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "a.txt").write_bytes(
        b"\xef\xbb\xbfNul \x00 here. Then \xe2\x80\xa8 more.\r\nAnd more. "
        b"So.\r\n\r\n" + "\u0301".encode() * 1000 + b" marks. More. "
    )
    (hostile / "b.txt").write_bytes(b"word " * 40_000)
    (hostile / "c.txt").write_bytes(b"x" * 200_000)
    begin = time.monotonic()
    metadata = build(
        inputs=[str(hostile)],
        sentence_splitter="newline",
        document_separator="file",
        max_bad_fraction=1.0,
    )
    assert time.monotonic() - begin < 20
    assert metadata["statistics"]["corpus"]["bad/control_characters"] == 1


def test_the_output_is_no_input(build, tmp_path, corpus):
    shutil.copytree(corpus, tmp_path / "corpus")
    inputs = [str(tmp_path / "corpus")]
    build("corpus/out", inputs, num_shards=1)
    with pytest.raises(UserError, match="holds .*/out/.*, which is in the out"):
        build("corpus/out", inputs)


PEAK = """
import re, sys
from data_prep.pretraining import record_parts
record_parts.SORTED_BYTES = record_parts.RUN_BYTES = 1_000_000
from albert_tf.config import MaskingConfig, PretrainingDataConfig
from data_prep.pretraining.pretraining_data import build_pretraining_data
build_pretraining_data([sys.argv[1]], sys.argv[2], tokenizer_dir=sys.argv[3],
    config=PretrainingDataConfig(max_seq_length=64, record_kind='static',
        document_separator='blank_line', num_shards=1,
        dupe_factor=int(sys.argv[4])),
    masking=MaskingConfig())
status = open('/proc/self/status').read()
print(re.search(r'VmHWM:\\s+(\\d+)', status)[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="asks Linux for its memory"
)
def test_memory_does_not_grow_with_what_is_written(
    tmp_path, sentences, tiny_directory
):
    # One-liners, which make no record, before long documents.
    rng = random.Random(3)
    with open(tmp_path / "corpus.txt", "w") as file:
        file.writelines(f"Title {n}\n\n" for n in range(5000))
        for _ in range(4):
            text = " ".join(rng.choices(sentences, k=3000))
            file.write(f"{text}\n\n")
    peaks = {}
    for copies in (1, 10):
        output = tmp_path / str(copies)
        done = subprocess.run(
            [sys.executable, "-c", PEAK, tmp_path / "corpus.txt", output,
             tiny_directory, str(copies)],
            env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            check=True,
        )  # fmt: skip
        shards = output.glob("*.tfrecord")
        written = sum(shard.stat().st_size for shard in shards)
        peaks[copies] = int(done.stdout) / 1e3, written / 1e6
    (few, _), (many, written) = peaks.values()
    assert written > 14
    # Runs of 1 MB, and as much sorted at a time, of one shard of 15.
    assert many - few < 8
