"""A corpus for a first run, from text that every installation holds already.

`build_sample_corpus` reads the source of installed Python packages, never
importing it, and writes the English prose of its docstrings twice: as
pretraining text, one document per module, and as a small classification task
(which package is this passage from?). Whole modules are held out.
"""

import collections
import concurrent.futures
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import platform
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, differences
from albert_tf.io.files import new_directory
from albert_tf.io.json_files import read_json, write_json
from data_prep.docstring_prose import module_prose, split_sentences

# Raised when the same settings come to give other bytes.
FORMAT_VERSION = 1
STDLIB = "stdlib"
PACKAGES = (STDLIB, "numpy", "keras", "tensorflow")
# A module with less prose of its own is no document.
MIN_DOCUMENT_WORDS = 20
# Keeps long modules from outweighing the others of their class.
MAX_PASSAGES_PER_MODULE = 12
# More modules are held out while a class has fewer dev passages than this,
# up to this share of them.
MIN_DEV_PASSAGES = 75
MAX_HELD_OUT_FRACTION = 0.5

_TEST_NAMES = frozenset(("_test", "idle_test", "test", "tests"))
_SKIPPED_FOLDERS = _TEST_NAMES | {"__pycache__", "_bundled"}
_FILES_PER_CHUNK = 32


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """Where the source of a module is."""

    package: str
    name: str  # dotted
    path: str


@dataclasses.dataclass(frozen=True)
class Module:
    """The prose of a module."""

    package: str
    name: str  # dotted
    paragraphs: tuple[str, ...]


def package_directories(
    packages: Sequence[str] | Mapping[str, str],
) -> dict[str, str]:
    """Returns each package's directory, by sorted name.

    A mapping holds the directories already. `stdlib` is Python's standard
    library; the others are found where an import would find them, without
    importing.

    Raises:
        UserError: for a package that is not installed here.
    """
    if len(set(packages)) < max(2, len(packages)):
        raise UserError(
            f"packages={','.join(packages)} must be two or more different "
            "packages: they are the classes."
        )
    if isinstance(packages, Mapping):
        directories = {
            key: os.fspath(packages[key]) for key in sorted(packages)
        }
    else:
        directories = {key: _find_directory(key) for key in sorted(packages)}
    for name, directory in directories.items():
        if not os.path.isdir(directory):
            raise UserError(
                f"package {name!r}: the directory {directory} does not exist."
            )
    return directories


def _find_directory(name: str) -> str:
    if name == STDLIB:
        return sysconfig.get_path("stdlib")
    # find_spec would import the parent of a dotted name.
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None:
        raise UserError(
            f"package {name!r} is not installed; install it or leave it out "
            f"(allowed: {STDLIB} and every installed top-level package)."
        )
    if not spec.submodule_search_locations:
        raise UserError(
            f"package {name!r} is a single module, not a package; leave it out."
        )
    return next(iter(spec.submodule_search_locations))


def _installed_version(name: str) -> str | None:
    if name == STDLIB:
        return platform.python_version()
    # The distribution may be called otherwise: tensorflow-cpu.
    distributions = importlib.metadata.packages_distributions().get(name, ())
    for distribution in distributions:
        return importlib.metadata.version(distribution)
    return None


def source_files(package: str, directory: str) -> list[SourceFile]:
    """Returns a package's modules without its tests, sorted by name.

    What no import statement can name (`site-packages`) is no module of it.
    """
    files = []
    for folder, subfolders, file_names in os.walk(directory):
        subfolders[:] = (
            name
            for name in subfolders
            if name.isidentifier() and name not in _SKIPPED_FOLDERS
        )
        parts = [] if package == STDLIB else [package]
        if folder != directory:
            parts += os.path.relpath(folder, directory).split(os.sep)
        for file_name in file_names:
            stem, extension = os.path.splitext(file_name)
            if extension == ".py" and stem.isidentifier() and not _tests(stem):
                names = parts if stem == "__init__" else [*parts, stem]
                path = os.path.join(folder, file_name)
                files.append(SourceFile(package, ".".join(names), path))
    return sorted(files, key=lambda file: (file.name, file.path))


def _tests(stem: str) -> bool:
    return (
        stem in _TEST_NAMES
        or stem.startswith("test_")
        or stem.endswith("_test")
    )


def _read_module(file: SourceFile) -> Module | str:
    """Returns the module's prose or the reason why there is none."""
    try:
        with open(file.path, encoding="utf-8-sig") as source:
            paragraphs = module_prose(source.read())
    except UnicodeDecodeError:
        return "not UTF-8"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "not parsable"
    except OSError:
        return "not readable"
    if not paragraphs:
        return "no prose"
    return Module(file.package, file.name, tuple(paragraphs))


def _read_chunk(files: Sequence[SourceFile]) -> list[Module | str]:
    return [_read_module(file) for file in files]


def _map(
    chunks: Sequence[Sequence[SourceFile]], workers: int
) -> Iterator[list[Module | str]]:
    if workers == 1:
        yield from map(_read_chunk, chunks)
        return
    # Not fork: the caller may have started TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        yield from pool.map(_read_chunk, chunks)


def read_modules(
    files: Sequence[SourceFile],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[Module], dict[str, Counter]]:
    """Returns the modules with prose and, by package, the skipped by reason.

    The order is that of `files`, for any number of `workers`. `progress` is
    called with the number of files done and of all files.
    """
    chunks = [
        files[start : start + _FILES_PER_CHUNK]
        for start in range(0, len(files), _FILES_PER_CHUNK)
    ]
    modules = []
    skipped: dict[str, Counter] = collections.defaultdict(Counter)
    done = 0
    for chunk, results in zip(chunks, _map(chunks, workers), strict=True):
        for file, result in zip(chunk, results, strict=True):
            if isinstance(result, Module):
                modules.append(result)
            else:
                skipped[file.package][result] += 1
        done += len(chunk)
        if progress:
            progress(done, len(files))
    return modules, skipped


def drop_repeats(modules: Iterable[Module]) -> tuple[list[Module], Counter]:
    """Returns the modules without what was said before, and the drops.

    The unit is the sentence, case does not matter, and the first to say it
    keeps it: no sentence of a held-out module is in a train module. A module
    left with too little text is gone. The drops are sentences by package.
    """
    seen: set[str] = set()
    kept, dropped = [], Counter()
    for module in modules:
        paragraphs = []
        for paragraph in module.paragraphs:
            new = []
            for sentence in split_sentences(paragraph):
                key = sentence.casefold()
                if key in seen:
                    dropped[module.package] += 1
                else:
                    seen.add(key)
                    new.append(sentence)
            if new:
                paragraphs.append(" ".join(new))
        if len(" ".join(paragraphs).split()) >= MIN_DOCUMENT_WORDS:
            kept.append(
                dataclasses.replace(module, paragraphs=tuple(paragraphs))
            )
    return kept, dropped


def _shuffled(texts: Iterable[str], seed: int) -> list[str]:
    """Returns the texts in an order by hash: as good as random, portable."""
    return sorted(
        texts,
        key=lambda text: hashlib.blake2b(f"{seed}\n{text}".encode()).digest(),
    )


def passages(module: Module, words: tuple[int, int], seed: int) -> list[str]:
    """Returns runs of the module's sentences, `words` words each, shuffled."""
    least, longest = words
    found, run, size = [], [], 0
    for paragraph in module.paragraphs:
        for sentence in split_sentences(paragraph):
            run.append(sentence)
            size += len(sentence.split())
            if size >= least:
                if size <= longest:
                    found.append(" ".join(run))
                run, size = [], 0
    return _shuffled(found, seed)[:MAX_PASSAGES_PER_MODULE]


def hold_out(
    modules: Sequence[Module],
    fraction: float,
    words: tuple[int, int],
    seed: int,
) -> tuple[list[Module], list[Module]]:
    """Returns the train and the held-out modules of a package.

    A hash of the module's name decides. More than `fraction` of the modules
    are held out where these give too few passages.
    """
    by_name = {module.name: module for module in modules}
    most = int(MAX_HELD_OUT_FRACTION * len(by_name))
    held: set[str] = set()
    found = 0
    for name in _shuffled(by_name, seed)[:most]:
        if len(held) >= fraction * len(by_name) and found >= MIN_DEV_PASSAGES:
            break
        held.add(name)
        found += len(passages(by_name[name], words, seed))
    return (
        [module for module in modules if module.name not in held],
        [module for module in modules if module.name in held],
    )


def _table(
    split: Mapping[str, Sequence[Module]],
    most: int,
    words: tuple[int, int],
    seed: int,
) -> list[str]:
    """Returns shuffled `text<TAB>label` rows, equally many of each label."""
    texts = {
        label: [
            text for module in part for text in passages(module, words, seed)
        ]
        for label, part in split.items()
    }
    smallest = min(texts, key=lambda label: len(texts[label]))
    size = min(most, len(texts[smallest]))
    if not size:
        raise UserError(
            f"package {smallest!r} has too little prose for the classification "
            "task; leave it out."
        )
    return _shuffled(
        (
            f"{text}\t{label}"
            for label in texts
            for text in _shuffled(texts[label], seed)[:size]
        ),
        seed,
    )


def _document_lines(modules: Sequence[Module]) -> Iterator[str]:
    for index, module in enumerate(modules):
        if index:
            yield ""
        yield from module.paragraphs


def _size(modules: Sequence[Module]) -> dict[str, int]:
    lines = [line for module in modules for line in module.paragraphs]
    return {
        "documents": len(modules),
        "words": sum(len(line.split()) for line in lines),
        "bytes": sum(len(line.encode()) + 1 for line in lines),
    }


def _write_lines(path: str, lines: Iterable[str]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())


def _finished_summary(
    output_dir: str, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns a finished directory's summary, None where nothing is yet."""
    if not os.path.lexists(output_dir):
        return None
    advice = "remove it or choose another directory."
    path = os.path.join(output_dir, "summary.json")
    summary = read_json(path) if os.path.isfile(path) else {}
    found = summary.get("settings")
    if not isinstance(found, Mapping) or "format_version" not in found:
        raise UserError(
            f"{output_dir} exists and holds no sample corpus; {advice}"
        )
    changes = differences(settings, found)
    if changes:
        raise UserError(
            f"{output_dir} holds a sample corpus of other settings: "
            f"{'; '.join(changes)}; {advice}"
        )
    return summary


def _check(passage_words: tuple[int, int], held_out_fraction: float) -> None:
    least, longest = passage_words
    if not 0 < least <= longest:
        raise UserError(
            f"passage_words={least},{longest} must be the least and the "
            "largest number of words of a passage."
        )
    if not 0 < held_out_fraction <= MAX_HELD_OUT_FRACTION:
        raise UserError(
            f"held_out_fraction={held_out_fraction} must be above 0 and at "
            f"most {MAX_HELD_OUT_FRACTION}."
        )


def build_sample_corpus(
    output_dir: str | os.PathLike[str],
    *,
    packages: Sequence[str] | Mapping[str, str] = PACKAGES,
    held_out_fraction: float = 0.06,
    passage_words: tuple[int, int] = (30, 60),
    max_train_passages: int = 1000,
    max_dev_passages: int = 150,
    seed: int = 12345,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Returns the summary of the sample corpus in `output_dir`, made if new.

    Writes `train/PACKAGE.txt` and `eval/PACKAGE.txt` (a document per module,
    a blank line between documents, a paragraph per line), the classification
    task `classification/train.tsv` and `dev.tsv` (columns text and label,
    equally many rows of each label), and `summary.json`. eval and dev are of
    held-out modules. The directory appears whole, by one rename, and its
    bytes do not depend on `workers`.

    Args:
        output_dir: a new directory, or one that the same call finished.
        packages: names, or a mapping from names to directories.
        held_out_fraction: the share of each package's modules held out.
        passage_words: the least and the largest size of a passage.
        max_train_passages: the most train rows of a label.
        max_dev_passages: the most dev rows of a label.
        seed: decides the modules held out and the passages drawn.
        workers: the processes that read source files.
        progress: called with the numbers of files done and of all files.

    Raises:
        UserError: for a package that is not installed or has too little
            prose, a setting out of bounds, or an `output_dir` that holds
            something else.
    """
    _check(passage_words, held_out_fraction)
    settings = {
        "format_version": FORMAT_VERSION,
        "packages": sorted(packages),
        "held_out_fraction": held_out_fraction,
        "passage_words": list(passage_words),
        "max_train_passages": max_train_passages,
        "max_dev_passages": max_dev_passages,
        "seed": seed,
    }
    output_dir = os.path.abspath(output_dir)
    finished = _finished_summary(output_dir, settings)
    if finished is not None:
        return finished

    directories = package_directories(packages)
    files = [
        file
        for package in directories
        for file in source_files(package, directories[package])
    ]
    read, skipped = read_modules(files, workers=workers, progress=progress)
    modules, repeats = drop_repeats(read)

    train, held_out = {}, {}
    for package in directories:
        own = [module for module in modules if module.package == package]
        train[package], held_out[package] = hold_out(
            own, held_out_fraction, passage_words, seed
        )
        skipped[package]["too little new prose"] = sum(
            module.package == package for module in read
        ) - len(own)
    tables = {
        "train": _table(train, max_train_passages, passage_words, seed),
        "dev": _table(held_out, max_dev_passages, passage_words, seed),
    }
    summary = {
        "settings": settings,
        "python": platform.python_version(),
        "packages": {
            package: {
                # Directories that were given may be of any version.
                "version": None
                if isinstance(packages, Mapping)
                else _installed_version(package),
                "modules": sum(file.package == package for file in files),
                "skipped_modules": dict(sorted(skipped[package].items())),
                "repeated_sentences": repeats[package],
                "train": _size(train[package]),
                "eval": _size(held_out[package]),
            }
            for package in directories
        },
        "classification_rows": {
            name: len(rows) for name, rows in tables.items()
        },
    }
    _write(output_dir, {"train": train, "eval": held_out}, tables, summary)
    return summary


def _write(
    output_dir: str,
    splits: Mapping[str, Mapping[str, Sequence[Module]]],
    tables: Mapping[str, Sequence[str]],
    summary: Mapping[str, Any],
) -> None:
    with new_directory(output_dir) as temporary:
        for split, packages in splits.items():
            for package, modules in packages.items():
                path = os.path.join(temporary, split, f"{package}.txt")
                _write_lines(path, _document_lines(modules))
        for name, rows in tables.items():
            path = os.path.join(temporary, "classification", f"{name}.tsv")
            _write_lines(path, ["text\tlabel", *rows])
        write_json(os.path.join(temporary, "summary.json"), summary)
        os.rename(temporary, output_dir)
