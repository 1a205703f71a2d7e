import hashlib
import json
from pathlib import Path

import pytest

from albert_tf.config import UserError
from albert_tf.tasks.custom import CLASSIFICATION
from data_prep import sample_corpus
from data_prep.package_prose import Module
from data_prep.sample_corpus import (
    build_sample_corpus,
    drop_repeats,
    hold_out,
    passages,
)

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


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory):
    """Returns the directory of the installed packages: two small ones."""
    site = tmp_path_factory.mktemp("site-packages")
    write_package(site, "red", modules=16)
    write_package(site, "blue", modules=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_corpus, "MIN_DEV_PASSAGES", 4)
        patch.setattr(sample_corpus, "PACKAGES", ("red", "blue"))
        patch.syspath_prepend(site)
        yield site


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The directory and the summary of the corpus of both packages."""
    directory = tmp_path_factory.mktemp("corpus") / "out"
    return directory, build_sample_corpus(directory)


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


def test_whole_modules_are_documents_of_one_split(built):
    for package, modules in (("red", 16), ("blue", 8)):
        found = []
        for document in documents(built[0], package):
            (name,) = module_names(document)
            assert document.split("\n") == [
                sentence(package, name, index) for index in range(24)
            ]
            found.append(name)
        assert len(found) == len(set(found)) == modules


def test_classes_are_equal_and_splits_apart(built):
    out, summary = built
    text = (out / "train" / "red.txt").read_text()
    train = summary["train"]
    assert train["documents"]["red"] == text.count("\n\n") + 1
    assert train["words"]["red"] == len(text.split())
    sides = {}
    for table, split in (("train", "train"), ("dev", "eval")):
        found = rows(out / "classification" / f"{table}.tsv")
        assert len(found) == summary[split]["passages"]
        assert len(set(found)) == len(found)
        labels = [label for _, label in found]
        assert labels.count("red") == labels.count("blue") > 0
        assert labels != sorted(labels)
        for text, label in found:
            assert 30 <= len(text.split()) <= 60
            assert f"of {label} " in text
            whole = (out / split / f"{label}.txt").read_text("utf-8")
            assert module_names(text) <= module_names(whole)
        sides[table] = {text for text, _ in found}
    assert not sides["train"] & sides["dev"]


@pytest.mark.slow
def test_bytes_do_not_depend_on_workers_or_hash_seed(
    built, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    calls = []
    build_sample_corpus(
        tmp_path / "two",
        workers=2,
        progress=lambda *done: calls.append(done),
    )
    assert calls == [(done, 24) for done in range(1, 25)]
    assert contents(tmp_path / "two") == contents(built[0])


def test_recorded_bytes(tmp_path, site, monkeypatch):
    # Recorded from the first version: the order by hash stays as it is.
    for name, modules in (("one", 4), ("two", 9)):
        write_package(site, name, modules=modules, sentences=8)
    monkeypatch.setattr(sample_corpus, "PACKAGES", ("one", "two"))
    build_sample_corpus(tmp_path / "out")
    found = contents(tmp_path / "out")
    del found["summary.json"]
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


def test_passages_that_begin_with_a_quote(site, tmp_path, monkeypatch):
    for name in ("said", "told"):
        write_package(site, name, modules=4)
        for path in (site / name).iterdir():
            spoken = path.read_text().replace("The ", '"So" is the ')
            path.write_text(spoken.replace('""""So', '"""\n"So', 1))
    monkeypatch.setattr(sample_corpus, "PACKAGES", ("said", "told"))
    build_sample_corpus(tmp_path / "out")
    examples = CLASSIFICATION.read(str(tmp_path / "out/classification"), "dev")
    assert examples
    assert all(e.texts[0].startswith('"So" is the ') for e in examples)


def test_a_finished_directory_is_reused(built, monkeypatch):
    out, summary = built
    before = contents(out)
    with monkeypatch.context() as patch:
        patch.setattr(sample_corpus, "read_packages", None)
        assert build_sample_corpus(out) == summary
    assert json.loads(before["summary.json"]) == summary
    monkeypatch.setattr(sample_corpus, "FORMAT_VERSION", 99)
    with pytest.raises(UserError, match="out exists and holds no sample corpu"):
        build_sample_corpus(out)
    with pytest.raises(UserError, match="train exists and holds no sample cor"):
        build_sample_corpus(out / "train")
    assert contents(out) == before


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(sample_corpus, "write_json", fail)
    place = tmp_path / "place"
    with pytest.raises(OSError, match="disk full"):
        build_sample_corpus(place / "out")
    assert list(place.iterdir()) == []


def test_what_is_no_document_is_left_out(tmp_path, monkeypatch):
    green = write_package(tmp_path, "green", modules=2)
    write_package(tmp_path, "white", modules=2)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sample_corpus, "PACKAGES", ("green", "white"))
    own = [sentence("green", "modz", index) for index in range(8)]
    (green / "modz.py").write_text(
        f'"""{own[0]} {own[1]}\n\n{own[2]}"""\n'
        f'def few():\n    """{own[3]}\n\n{own[4]}"""\n'
        f'class More:\n    """{own[5]}\n\n{own[6]} {own[7]}"""\n'
    )
    (green / "broken.py").write_text("def :", encoding="utf-8")
    (green / "null.py").write_bytes(b'"""Text."""\0')
    (green / "latin.py").write_bytes(b'"""Caf\xe9."""')
    (green / "code.py").write_text("x = 1", encoding="utf-8")
    (green / "copy.py").write_bytes((green / "moda.py").read_bytes())
    (green / "dangling.py").symlink_to(green / "nowhere.py")
    build_sample_corpus(tmp_path / "out")
    found = documents(tmp_path / "out", "green")
    assert len(found) == 4
    assert [document for document in found if "modz" in document] == [
        f"{own[0]} {own[1]}\n{own[2]}",
        f"{own[5]}\n{own[6]} {own[7]}",
    ]


def test_repeated_sentences_stay_with_the_first_module():
    own = [sentence("red", "own", index) for index in range(6)]
    first = Module("red", "first", ((" ".join(own[:2]),), (own[2],)))
    repeated = (f"{own[0].upper()} {own[3]}",), (own[1],)
    second = Module(
        "red", "second", (*repeated, (own[2], f"{own[4]} {own[5]}"))
    )
    third = Module("blue", "third", ((" ".join(own[:4]),),))
    assert drop_repeats([first, second, third]) == [
        first,
        Module("red", "second", ((own[3],), (f"{own[4]} {own[5]}",))),
    ]


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


def test_a_bucket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^gs://B/corpus is in a bucket"):
        build_sample_corpus("gs://B/corpus")
    assert not (tmp_path / "gs:").exists()


def test_a_package_without_prose_for_the_task_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_corpus, "PASSAGE_WORDS", (900, 999))
    with pytest.raises(UserError, match="'blue' has too little prose"):
        build_sample_corpus(tmp_path / "out")
    assert not (tmp_path / "out").exists()
