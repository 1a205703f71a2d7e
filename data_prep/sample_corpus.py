"""A corpus for a first run, from text that every installation has.

`build_sample_corpus` writes the English prose of the docstrings of installed
Python packages (`package_prose`) twice: as pretraining text, one document per
docstring, and as a small classification task (which package is this passage
from?). Whole modules are held out.
"""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert_tf.config import require
from albert_tf.io import directories, files
from albert_tf.io.json_files import read_json, write_json
from data_prep.docstring_prose import split_sentences
from data_prep.package_prose import STDLIB, Module, read_packages

# Raised when the corpus comes to be another one.
FORMAT_VERSION = 2
# The packages of requirements.txt with most prose.
PACKAGES = (
    STDLIB,
    "keras",
    "matplotlib",
    "nltk",
    "numpy",
    "scipy",
    "sklearn",
    "tensorflow",
)
# A module with less prose of its own is left out.
MIN_MODULE_WORDS = 20
# Shorter docstrings are no documents: the order of sentences cannot be learned
# from a row of one-line summaries.
MIN_DOCUMENT_WORDS = 30
MIN_DOCUMENT_SENTENCES = 3
# Minimum and maximum number of words of a passage to classify.
PASSAGE_WORDS = (30, 60)
# Keeps long modules from outweighing the others of their class.
MAX_PASSAGES_PER_MODULE = 12
# Maximum number of rows of a label.
MAX_TRAIN_PASSAGES = 1000
MAX_DEV_PASSAGES = 150
# The share of each package's modules that is held out. More are while a class
# has fewer dev passages than this, up to this share.
HELD_OUT_FRACTION = 0.06
MIN_DEV_PASSAGES = 75
MAX_HELD_OUT_FRACTION = 0.5
SEED = 12345


def _sentences(paragraphs: Iterable[str]) -> list[str]:
    return [s for text in paragraphs for s in split_sentences(text)]


def drop_repeats(modules: Iterable[Module]) -> list[Module]:
    """Returns the modules without repeated sentences.

    Case does not matter, and the first module keeps a sentence: no sentence
    of a held-out module is in a train module. A module left with too little
    text is gone.
    """
    seen: set[str] = set()

    def new_sentences(paragraph: str) -> str:
        new = []
        for sentence in split_sentences(paragraph):
            if sentence.casefold() not in seen:
                seen.add(sentence.casefold())
                new.append(sentence)
        return " ".join(new)

    kept = []
    for module in modules:
        docstrings = [
            tuple(filter(None, map(new_sentences, docstring)))
            for docstring in module.docstrings
        ]
        words = " ".join(itertools.chain(*docstrings)).split()
        if len(words) >= MIN_MODULE_WORDS:
            rest = tuple(filter(None, docstrings))
            kept.append(module._replace(docstrings=rest))
    return kept


def _shuffled(texts: Iterable[str]) -> list[str]:
    """Returns the texts shuffled by hash: in the same order everywhere."""
    return sorted(
        texts,
        key=lambda text: hashlib.blake2b(f"{SEED}\n{text}".encode()).digest(),
    )


def passages(module: Module) -> list[str]:
    """Returns runs of the module's sentences, PASSAGE_WORDS long, shuffled."""
    minimum, maximum = PASSAGE_WORDS
    found, run, size = [], [], 0
    for sentence in _sentences(itertools.chain(*module.docstrings)):
        run.append(sentence)
        size += len(sentence.split())
        if size >= minimum:
            if size <= maximum:
                found.append(" ".join(run))
            run, size = [], 0
    return _shuffled(found)[:MAX_PASSAGES_PER_MODULE]


def hold_out(
    modules: Sequence[Module],
) -> tuple[list[Module], list[Module]]:
    """Returns the train and, by a hash of their names, the held-out modules."""
    by_name = {module.name: module for module in modules}
    limit = int(MAX_HELD_OUT_FRACTION * len(by_name))
    held: set[str] = set()
    found = 0
    least = HELD_OUT_FRACTION * len(by_name)
    for name in _shuffled(by_name)[:limit]:
        if len(held) >= least and found >= MIN_DEV_PASSAGES:
            break
        held.add(name)
        found += len(passages(by_name[name]))
    return (
        [module for module in modules if module.name not in held],
        [module for module in modules if module.name in held],
    )


def _table(split: Mapping[str, Sequence[Module]], limit: int) -> list[str]:
    """Returns shuffled `text<TAB>label` rows, equally many of each label."""
    texts = {
        label: [text for module in part for text in passages(module)]
        for label, part in split.items()
    }
    smallest = min(texts, key=lambda label: len(texts[label]))
    size = min(limit, len(texts[smallest]))
    require(
        size > 0,
        f"package {smallest!r} has too little prose for the classification "
        "task; install it with its source.",
    )
    rows = [
        f"{text}\t{label}"
        for label in texts
        for text in _shuffled(texts[label])[:size]
    ]
    return list(map(_quoted, _shuffled(rows)))


def _quoted(row: str) -> str:
    """Returns a row as CSV has it: a quote at its start would open a field."""
    if not row.startswith('"'):
        return row
    text, _, label = row.rpartition("\t")
    return '"{}"\t{}'.format(text.replace('"', '""'), label)


def _documents(modules: Iterable[Module]) -> list[tuple[str, ...]]:
    """Returns the docstrings that are long enough for pretraining."""
    return [
        docstring
        for module in modules
        for docstring in module.docstrings
        if len(" ".join(docstring).split()) >= MIN_DOCUMENT_WORDS
        and len(_sentences(docstring)) >= MIN_DOCUMENT_SENTENCES
    ]


def build_sample_corpus(
    output_dir: str | os.PathLike[str],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Returns the summary of the sample corpus in `output_dir`, made if new.

    Writes `train/PACKAGE.txt` and `eval/PACKAGE.txt` (a document per docstring
    of several sentences, a blank line between documents, a paragraph per
    line), the classification task `classification/train.tsv` and `dev.tsv`
    (columns text and label, equally many rows of each package), and
    `summary.json`. eval and dev are of held-out modules. The directory appears
    whole, by one rename, and its bytes do not depend on `workers`.

    `progress` is called with the numbers of source files read and of all.

    Raises:
        UserError: for a package that is not installed or has too little
            prose, or an `output_dir` that holds something else.
    """
    output_dir = directories.path_on_disk(output_dir)
    if os.path.lexists(output_dir):
        path = os.path.join(output_dir, "summary.json")
        summary = read_json(path) if os.path.isfile(path) else {}
        require(
            summary.get("format_version") == FORMAT_VERSION,
            f"{output_dir} exists and holds no sample corpus of this version; "
            "remove it or choose another directory.",
        )
        return summary
    modules = drop_repeats(read_packages(PACKAGES, workers, progress))
    train, held_out = {}, {}
    for name in sorted(PACKAGES):
        train[name], held_out[name] = hold_out(
            [module for module in modules if module.package == name]
        )
    with directories.new_directory(output_dir) as temporary:
        summary = {
            "format_version": FORMAT_VERSION,
            "train": _write(temporary, "train", train, MAX_TRAIN_PASSAGES),
            "eval": _write(temporary, "eval", held_out, MAX_DEV_PASSAGES),
        }
        write_json(os.path.join(temporary, "summary.json"), summary)
        os.rename(temporary, output_dir)
    return summary


def _write(
    directory: str,
    split: str,
    packages: Mapping[str, Sequence[Module]],
    max_passages: int,
) -> dict[str, Any]:
    """Writes the text and the task of a split; returns its sizes."""
    documents = {name: _documents(part) for name, part in packages.items()}
    # A paragraph a line, and a blank line between documents.
    texts = {
        name: "\n".join("".join(f"{line}\n" for line in d) for d in of_package)
        for name, of_package in documents.items()
    }
    rows = _table(packages, max_passages)
    table = {"train": "train", "eval": "dev"}[split]
    contents = {
        f"classification/{table}.tsv": "\n".join(["text\tlabel", *rows, ""]),
        **{f"{split}/{name}.txt": text for name, text in texts.items()},
    }
    for name, content in contents.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write(path, content.encode())
    return {
        "documents": {name: len(d) for name, d in documents.items()},
        "words": {name: len(text.split()) for name, text in texts.items()},
        "passages": len(rows),
    }
