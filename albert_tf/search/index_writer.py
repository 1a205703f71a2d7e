"""Writes an index of passages: `write_index`."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import require
from albert_tf.interchange.model_files import replacing_directory
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.search.index import (
    FORMAT,
    INDEX_FILE,
    PASSAGES,
    VECTORS,
    Embed,
    file_digest,
    require_on_disk,
)
from albert_tf.search.ranking import normalized
from albert_tf.search.words import WordIndex

# Passages that are given to the model together.
_BATCH = 1024

Progress = Callable[[int, int], None]


def write_index(
    directory: str,
    passages: Sequence[Any],
    embed: Embed | None = None,
    *,
    model: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    progress: Progress = lambda done, total: None,
) -> None:
    """Writes the index of passages, which replaces an older one when complete.

    Args:
        directory: new, or an index; on a disk.
        passages: named tuples of `document`, `place` and `text`.
        embed: returns the vectors of texts; None: the index has none, and
            words alone are searched for.
        model: describes the model that made them, compared by `Index.open`.
        dtype: of the vectors in the file.
        progress: takes the numbers of passages done and in all.

    Raises:
        UserError: for a directory that holds something else or is in a
            bucket, for no passages and while another process writes there.
    """
    require_on_disk(directory)
    require(bool(passages), "There are no passages to index.")
    require(
        not files.exists(directory)
        or (files.isdir(directory) and not files.listdir(directory))
        or files.isfile(os.path.join(directory, INDEX_FILE)),
        f"{directory} exists and is no index; choose another --index_dir.",
    )
    names = (INDEX_FILE, VECTORS, PASSAGES, *WordIndex.files)
    with replacing_directory(directory, INDEX_FILE, replaces=names) as new:
        if embed:
            _write_vectors(
                os.path.join(new, VECTORS), passages, embed, dtype, progress
            )
        with open(os.path.join(new, PASSAGES), "w", encoding="utf-8") as file:
            for p in passages:
                file.write(json.dumps(p._asdict(), ensure_ascii=False) + "\n")
        WordIndex.of_texts(p.text for p in passages).save(new)
        write_json(
            os.path.join(new, INDEX_FILE),
            {
                "format": FORMAT,
                "passages": len(passages),
                "model": None if model is None else dict(model),
                "sha256": {
                    name: file_digest(os.path.join(new, name))
                    for name in sorted(os.listdir(new))
                },
            },
        )


def _write_vectors(
    path: str,
    passages: Sequence[Any],
    embed: Embed,
    dtype: str,
    progress: Progress,
) -> None:
    """Writes vectors `[passages, width]` of length 1, a block at a time."""
    vectors: np.memmap | None = None
    for first in range(0, len(passages), _BATCH):
        texts = [p.text for p in passages[first : first + _BATCH]]
        found = normalized(embed(texts))
        if vectors is None:
            shape = len(passages), found.shape[1]
            vectors = np.lib.format.open_memmap(
                path, "w+", np.dtype(dtype), shape
            )
        vectors[first : first + len(texts)] = found
        progress(first + len(texts), len(passages))
    assert vectors is not None
    vectors.flush()
