"""Using a model: fill in masks, embed, answer; a JSON line per text.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --model_dir=runs/mytask/model \\
    --input=texts.txt
"""

import json
import sys

from absl import flags

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.io.encoding import refuse_utf16
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import text_fields
from albert_tf.tasks.kinds.token_classification import TokenClassification
from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum(
        "mode",
        None,
        ["fill-mask", "embed", "classify", *ANSWERS],
        "What to do with a text. embed: the mean state of its tokens and that "
        "of [CLS]; the others are of models fine-tuned for it: classify, a "
        "label; rate, a number (for both a tab parts the two texts of a "
        "pair); answer, a question and after a tab its paragraph; tag, a tag "
        "for each word; choose, a text and its choices, all parted by tabs.",
    )
    flags.DEFINE_string("model_dir", None, "The model or run directory.")
    flags.DEFINE_multi_string("text", [], "A text; may be repeated.")
    flags.DEFINE_string(
        "input", None, "A file with one text per line; - reads standard input."
    )
    flags.DEFINE_integer(
        "top_k", 5, "Pieces shown for each [MASK].", lower_bound=1
    )
    flags.DEFINE_integer(
        "batch_size", 32, "Texts taken at a time.", lower_bound=1
    )
    command_line.required("mode", "model_dir")


def _texts() -> list[str]:
    if bool(FLAGS.text) == bool(FLAGS.input):
        raise UserError("Give the texts with either --text or --input.")
    if FLAGS.text:
        return FLAGS.text
    if FLAGS.input == "-":
        data = sys.stdin.buffer.read()
    else:
        with files.open(FLAGS.input) as file:
            data = file.read()
    refuse_utf16(FLAGS.input, data)
    texts = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        try:
            encoding = "utf-8-sig" if number == 1 else "utf-8"
            texts.append(line.decode(encoding).rstrip("\r"))
        except UnicodeDecodeError as error:
            raise UserError(
                f"{FLAGS.input}, line {number}: byte {error.start} is not "
                "UTF-8; convert the file first."
            ) from None
    if not texts[-1]:
        texts.pop()
    if not texts:
        raise UserError(f"{FLAGS.input} is empty.")
    return texts


def main() -> None:
    """Prints a JSON line for every text."""
    texts = _texts()
    command_line.load_tensorflow()
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.jobs.predict import Predictor

    loaded = load_model_directory(FLAGS.model_dir)
    predictor = Predictor(loaded, FLAGS.batch_size)
    if FLAGS.mode == "fill-mask":
        for filled in predictor.fill_mask(texts, FLAGS.top_k):
            candidates = [
                [{"piece": p, "probability": value} for p, value in place]
                for place in filled.candidates
            ]
            _print({"text": filled.text, "masks": candidates})
    elif FLAGS.mode == "embed":
        for embedding in predictor.embed(texts):
            _print(
                {
                    "text": embedding.text,
                    "mean_embedding": embedding.mean,
                    "cls_embedding": embedding.cls,
                }
            )
    elif FLAGS.mode == "classify":
        for answer in predictor.classify(_split(texts, 1)):
            _print(
                {
                    **text_fields(answer.texts),
                    "label": answer.label,
                    "probabilities": answer.probabilities,
                }
            )
    else:
        kind, tabs = ANSWERS[FLAGS.mode]
        if FLAGS.mode == "answer" and kind.head not in loaded.model.head_names:
            kind = Spans()
        for prediction in predictor.predict(kind, _split(texts, tabs)):
            # The right answer is not known.
            _print({n: v for n, v in prediction.fields.items() if n != "label"})


def _split(texts: list[str], tabs: int) -> list[tuple[str, ...]]:
    """Returns the parts of each line, between its first `tabs` tabs."""
    return [tuple(text.split("\t", tabs)) for text in texts]


# The kind of each mode, and the most tabs that part its texts; -1: any number.
ANSWERS = {
    "rate": (Regression(), 1),
    "answer": (AnswerableSpans(), 1),
    "tag": (TokenClassification(), 0),
    "choose": (MultipleChoice(), -1),
}


def _print(row: dict) -> None:
    print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(define_flags, main)
