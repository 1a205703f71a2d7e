"""Predictions of a model, one JSON line per text: fill masks, embed, classify.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --model_dir=runs/mytask/model \\
    --input=texts.txt
"""

import codecs
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import text_fields
from albert_tf.tasks.kinds.token_classification import TokenClassification
from bin import command_line

if TYPE_CHECKING:
    from albert_tf.jobs.predict import Predictor

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum(
        "mode",
        None,
        ["fill-mask", "embed", "classify", *ANSWERS],
        "Prediction for each text. fill-mask: the likeliest pieces; embed: "
        "the mean state of the tokens and that of [CLS]. The others need a "
        "model fine-tuned for them: classify, a label; rate, a number (for "
        "both a tab separates the two texts of a pair); answer, a question "
        "and after a tab its paragraph; tag, a tag for each word; choose, a "
        "text and its choices, all separated by tabs.",
    )
    flags.DEFINE_string("model_dir", None, "Model or run directory.")
    flags.DEFINE_multi_string("text", [], "A text; may be repeated.")
    flags.DEFINE_string(
        "input", None, "A file with one text per line; - reads standard input."
    )
    flags.DEFINE_integer(
        "top_k", 5, "Pieces shown for each [MASK].", lower_bound=1
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    command_line.required("mode", "model_dir")


def _texts() -> list[str]:
    """Returns the texts of --text or the lines of --input."""
    require(
        bool(FLAGS.text) != bool(FLAGS.input),
        "Give the texts with either --text or --input.",
    )
    if FLAGS.text:
        return FLAGS.text
    if FLAGS.input == "-":
        data = sys.stdin.buffer.read()
    else:
        with files.open(FLAGS.input) as file:
            data = file.read()
    refuse_utf16(FLAGS.input, data)
    lines = data.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not lines[-1]:
        lines.pop()
    require(bool(lines), f"{FLAGS.input} is empty.")
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{FLAGS.input}, line {number}: byte {error.start} is not "
                "UTF-8; convert the file first."
            ) from None
    return texts


def main() -> None:
    """Prints a JSON line for every text."""
    texts = _texts()
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.jobs.predict import Predictor

    loaded = load_model_directory(FLAGS.model_dir)
    predictor = Predictor(loaded, FLAGS.batch_size)
    for row in _rows(predictor, texts):
        print(json.dumps(row, ensure_ascii=False), flush=True)


def _rows(predictor: "Predictor", texts: list[str]) -> Iterator[dict]:
    """Yields the output for each text in the chosen mode."""
    if FLAGS.mode == "fill-mask":
        for filled in predictor.fill_mask(texts, FLAGS.top_k):
            masks = [
                [{"piece": p, "probability": value} for p, value in candidates]
                for candidates in filled.candidates
            ]
            yield {"text": filled.text, "masks": masks}
    elif FLAGS.mode == "embed":
        for embedding in predictor.embed(texts):
            yield {
                "text": embedding.text,
                "mean_embedding": embedding.mean,
                "cls_embedding": embedding.cls,
            }
    elif FLAGS.mode == "classify":
        for answer in predictor.classify(_split(texts, 1)):
            yield {
                **text_fields(answer.texts),
                "label": answer.label,
                "probabilities": answer.probabilities,
            }
    else:
        kind, tabs = ANSWERS[FLAGS.mode]
        heads = predictor.loaded.model.head_names
        if FLAGS.mode == "answer" and kind.head not in heads:
            kind = Spans()
        for prediction in predictor.predict(kind, _split(texts, tabs)):
            # Raw texts have no label.
            yield {n: v for n, v in prediction.fields.items() if n != "label"}


def _split(texts: list[str], tabs: int) -> list[tuple[str, ...]]:
    """Returns the parts of each line, between its first `tabs` tabs."""
    return [tuple(text.split("\t", tabs)) for text in texts]


# Mode -> its kind, and the maximum of tabs between its texts; -1: no maximum.
ANSWERS = {
    "rate": (Regression(), 1),
    "answer": (AnswerableSpans(), 1),
    "tag": (TokenClassification(), 0),
    "choose": (MultipleChoice(), -1),
}


if __name__ == "__main__":
    command_line.run(define_flags, main)
