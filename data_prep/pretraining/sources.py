"""The files of a build's inputs, and the split of each document.

Main entries: `list_inputs` and `unit_document`.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence

from albert_tf.config import PretrainingDataConfig, UserError, require
from albert_tf.io.files import is_remote
from albert_tf.records import counter_rng
from data_prep.corpus.forms import CorpusFile, corpus_files
from data_prep.corpus.listing import list_files, relative_names
from data_prep.corpus.reading import Document, UnitDocument
from data_prep.corpus.text_files import OpenFile

TRAIN, EVAL = "train", "eval"
# Forms of plain text, of which `auto` chooses one.
_PLAIN = ("file", "blank_line", "line", "wrapped")


def list_inputs(
    inputs: Sequence[str],
    eval_inputs: Sequence[str],
    config: PretrainingDataConfig,
    *,
    find_files: Callable[[Sequence[str]], list[str]] = list_files,
    open_file: OpenFile = open,
) -> list[CorpusFile]:
    """Returns the files to train on, and then those to evaluate on.

    Raises:
        UserError: for inputs that are missing or that contradict each other.
    """
    require(
        not (eval_inputs and config.eval_fraction),
        f"eval_fraction={config.eval_fraction} and an evaluation input "
        "were both given; one of them is needed, not both.",
    )
    to_train = _of_origin(TRAIN, find_files(inputs), config, open_file)
    if not eval_inputs:
        return to_train
    plain = {file.form for file in to_train}.intersection(_PLAIN)
    if plain and config.document_separator == "auto":
        # Both lists are read alike, however many files each has.
        config = dataclasses.replace(config, document_separator=plain.pop())
    to_evaluate = _of_origin(EVAL, find_files(eval_inputs), config, open_file)
    locations = (
        {_real_path(file.path) for file in files}
        for files in (to_train, to_evaluate)
    )
    for path in sorted(set.intersection(*locations)):
        raise UserError(f"{path} is in the input and the evaluation input.")
    return to_train + to_evaluate


def _of_origin(
    origin: str,
    paths: Sequence[str],
    config: PretrainingDataConfig,
    open_file: OpenFile,
) -> list[CorpusFile]:
    """Returns the files of an input list, in the order of their names.

    The names do not depend on where the files lie.
    """
    separator = config.document_separator
    if separator == "auto" and config.sentence_splitter == "newline":
        separator = "blank_line"  # one sentence a line: the form of BERT
    names, paths = zip(
        *sorted(zip(relative_names(paths), paths, strict=True)), strict=True
    )
    return corpus_files(
        paths,
        names,
        separator,
        open_file,
        config.skip_header_lines,
        config.text_column,
        origin,
    )


def _real_path(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)


def unit_document(
    origin: str, document: Document, seed: int, eval_threshold: float
) -> UnitDocument:
    """Returns a document with the split that it belongs to.

    Of the training input those are held out whose draw is below
    `eval_threshold`.
    """
    is_held_out = (
        origin == TRAIN and held_out_draw(document.name, seed) < eval_threshold
    )
    return UnitDocument(EVAL if is_held_out else origin, origin, *document)


def held_out_draw(name: str, seed: int) -> float:
    """Returns a document's draw from [0, 1), by its name."""
    key = counter_rng.key(seed, "eval_fraction", name)
    return float(counter_rng.uniforms(key, 1)[0, 0])
