"""Writes a task's texts as pretraining text, without its labels."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from albert_tf.config import Log, require
from albert_tf.io import files
from albert_tf.tasks.base import Task
from albert_tf.text.normalization import replace_surrogates

# Single texts are short; several fill a sequence.
_TEXTS_PER_DOCUMENT = 20
_SPLIT = "train"


class TaskCorpus(NamedTuple):
    """The size of a corpus, and whether its documents are pairs of texts."""

    num_documents: int
    has_pairs: bool


def build_task_corpus(
    task: Task, data_dir: str, output_dir: str, log: Log = print
) -> TaskCorpus:
    """Writes `train.txt`: a text a line, an empty line after each document.

    The texts of an example are a document: next-sentence prediction asks for
    the pair, as the task does. 20 single texts are one.

    Raises:
        UserError: for files that cannot be read, for training examples
            without text, and for another `train.txt` in the directory.
    """
    examples = task.read(data_dir, _SPLIT, log)
    texts = [task.kind.texts(example) for example in examples]
    documents = list(_documents(texts))
    require(
        bool(documents),
        f"{data_dir}: no {_SPLIT} example of {task.name} has text.",
    )
    path = os.path.join(output_dir, f"{_SPLIT}.txt")
    content = "".join("\n".join(lines) + "\n\n" for lines in documents).encode()
    if files.exists(path):
        # It may be the user's.
        with files.open(path) as file:
            require(
                file.read() == content,
                f"{path} exists, with other text; choose another --output_dir.",
            )
    files.makedirs(output_dir)
    files.write(path, content)
    return TaskCorpus(len(documents), any(len(text) > 1 for text in texts))


def _documents(examples: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yields the lines of each document, none of them empty."""
    singles = []
    for texts in examples:
        # JSON can hold lone surrogates, and UTF-8 cannot.
        words = [replace_surrogates(text).split() for text in texts]
        lines = list(filter(None, map(" ".join, words)))
        if len(texts) == 1:
            singles += lines
        elif lines:
            yield lines
    for start in range(0, len(singles), _TEXTS_PER_DOCUMENT):
        yield singles[start : start + _TEXTS_PER_DOCUMENT]
