"""What a model does inside, as one HTML page.

python -m bin.analyze --model_dir=runs/tiny --input=books --output=analysis.html
python -m bin.analyze --model_dir=runs/tiny --input=books \\
    --task=custom --columns=word=0,tag=-1 --data_dir=tagged.conll

Of any model directory, ours or of transformers: how far each layer moves the
states of tokens (Figure 1 of the paper), what linear probes read off the states
of each layer (tags of words too, where a task has them), where heads attend to,
and the nearest neighbours of pieces and of texts.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from albert_tf.config import require
from albert_tf.io import files
from albert_tf.tasks.kinds.token_classification import TokenClassification
from bin import command_line, corpora, own_rows, tasks

FLAGS = flags.FLAGS

_SENTENCE = "The king has seen his old friend, and he was glad of it."
_FEWEST_TEXTS = 40
# Shorter paragraphs are headings and the like.
_MIN_WORDS = 8


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_string(
        "model_dir", None, "Model or run directory, or a model on the hub."
    )
    corpora.define_flags()
    tasks.define_flags("Task whose tags of words are probed.")
    flags.DEFINE_integer(
        "max_texts",
        1000,
        "Texts to measure on, as pairs; of tagged sentences at most as many.",
        lower_bound=_FEWEST_TEXTS,
    )
    flags.DEFINE_string(
        "sentence", _SENTENCE, "Sentence whose attention is drawn."
    )
    flags.DEFINE_integer("seed", 1, "Seed of the draws.", lower_bound=0)
    flags.DEFINE_string("output", "analysis.html", "File to write.")
    command_line.written_as("output", [".html"])
    command_line.required("model_dir", "input")


def main() -> None:
    tagged = _tagged_sentences()
    pairs = [
        (number, pair)
        for number, paragraphs in enumerate(_long_paragraphs())
        for pair in zip(paragraphs[::2], paragraphs[1::2], strict=False)
    ]
    require(
        len(pairs) >= FLAGS.max_texts // 2,
        f"--input has {len(pairs)} pairs of neighbouring paragraphs of "
        f"{_MIN_WORDS} words or more; --max_texts={FLAGS.max_texts} needs "
        f"{FLAGS.max_texts // 2}. Give it more text, or --max_texts of up to "
        f"{2 * len(pairs) + 1} (and at least {_FEWEST_TEXTS}).",
    )
    drawn = random.Random(FLAGS.seed).sample(pairs, FLAGS.max_texts // 2)
    command_line.load_tensorflow()
    from albert_tf.analysis.analysis_page import Texts, analysis_page
    from albert_tf.analysis.tag_probe import TaggedSentences
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.report.page import to_html

    texts = Texts(
        [text for _, pair in drawn for text in pair],
        [number for number, pair in drawn for _ in pair],
    )
    loaded = load_model_directory(FLAGS.model_dir)
    page = analysis_page(
        loaded,
        texts,
        FLAGS.sentence,
        FLAGS.seed,
        TaggedSentences(*tagged) if tagged else None,
    )
    files.write(FLAGS.output, to_html(page).encode())
    print(f"Written: {FLAGS.output}")


def _tagged_sentences() -> list[Sequence[Any]]:
    """Returns training and dev sentences of --task; nothing without it."""
    task = tasks.chosen_if_any()
    if task is None:
        return []
    require(
        isinstance(task.kind, TokenClassification),
        f"--task={FLAGS.task}: expected tags of words, as of --task=entities "
        "or --task=custom --columns=word=0,tag=-1, got "
        f"{task.kind.name}.",
    )
    splits = [task.read(FLAGS.data_dir, split) for split in ("train", "dev")]
    draws = random.Random(FLAGS.seed)
    return [draws.sample(s, min(len(s), FLAGS.max_texts)) for s in splits]


def _long_paragraphs() -> Iterator[list[str]]:
    """Yields the paragraphs of each document that are long enough."""
    for document in corpora.documents(corpora.survey()):
        texts = (" ".join(text.split()) for text in document.paragraphs)
        yield [text for text in texts if len(text.split()) >= _MIN_WORDS]


if __name__ == "__main__":
    command_line.run(define_flags, main)
