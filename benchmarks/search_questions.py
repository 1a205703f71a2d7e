"""Makes questions of a corpus, to measure search by: `bin.search --evaluate`.

python -m benchmarks.search_questions --input=texts --output_dir=questions

The first sentence of a held-out document asks for its rest. Writes
`train.jsonl`, the other documents; `texts.jsonl`, all documents, those held
out without their first sentence; and `questions.jsonl`.
"""

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence

from absl import flags

from albert_tf.config import PretrainingDataConfig
from bin import command_line
from data_prep.corpus.reading import Document, read_file
from data_prep.corpus.report import CorpusReport
from data_prep.corpus.sentences import SENTENCE_SPLITTERS, SentenceSplitter
from data_prep.pretraining.sources import list_inputs

FLAGS = flags.FLAGS
TEXTS = "texts.jsonl"
# A shorter sentence is a heading.
_MIN_WORDS = 6
_MIN_SENTENCES_LEFT = 3


def define_flags() -> None:
    flags.DEFINE_list("input", None, "Files, directories or globs.")
    flags.DEFINE_string("output_dir", None, "Directory for the files.")
    flags.DEFINE_integer("num_questions", 1000, "Held-out documents, at most.")
    flags.DEFINE_integer("seed", 1, "Seed of the choice.")
    command_line.required("input", "output_dir")


def main() -> None:
    documents = _documents(FLAGS.input)
    texts = ("\n\n".join(document.paragraphs) for document in documents)
    splitter = SENTENCE_SPLITTERS["punkt"].train(texts)
    asked = _questions(documents, splitter)
    chosen = sorted(asked)
    random.Random(FLAGS.seed).shuffle(chosen)
    held_out = set(chosen[: FLAGS.num_questions])
    rests = [
        asked[number][1] if number in held_out else document.paragraphs
        for number, document in enumerate(documents)
    ]
    os.makedirs(FLAGS.output_dir, exist_ok=True)
    _write(
        "train.jsonl",
        _texts(r for n, r in enumerate(rests) if n not in held_out),
    )
    _write(TEXTS, _texts(rests))
    _write(
        "questions.jsonl",
        (
            {"query": asked[n][0], "document": f"{TEXTS}#{n + 1}"}
            for n in sorted(held_out)
        ),
    )
    print(f"{len(held_out)} questions on {len(documents)} documents.")


def _documents(inputs: Sequence[str]) -> list[Document]:
    config = PretrainingDataConfig(document_separator="blank_line")
    files = list_inputs(inputs, [], config)
    return [d for file in files for d in read_file(file, CorpusReport())]


def _questions(
    documents: list[Document], splitter: SentenceSplitter
) -> dict[int, tuple[str, list[str]]]:
    """Returns the question and the rest of each document that has one.

    The question is not in the rest again, nor that of another document.
    """
    found = {}
    for number, document in enumerate(documents):
        first, *others = document.paragraphs
        question, *left = splitter.split(first)
        rest = [" ".join(left), *others] if left else others
        sentences = sum(len(splitter.split(p)) for p in rest)
        if (
            len(question.split()) >= _MIN_WORDS
            and sentences >= _MIN_SENTENCES_LEFT
            and question not in "\n".join(rest)
        ):
            found[number] = question, rest
    times = Counter(question for question, _ in found.values())
    return {n: item for n, item in found.items() if times[item[0]] == 1}


def _texts(documents: Iterable[Iterable[str]]) -> Iterable[dict[str, str]]:
    return ({"text": "\n\n".join(document)} for document in documents)


def _write(name: str, rows: Iterable[dict[str, str]]) -> None:
    path = os.path.join(FLAGS.output_dir, name)
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    command_line.run(define_flags, main)
