"""Using a model: fill in masks, classify or embed, a JSON line per text.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --model_dir=runs/mytask/model \\
    --input=texts.txt
"""

import json
import sys

from absl import flags

from albert_tf import files
from albert_tf.config import UserError
from albert_tf.tasks.texts import shown_texts
from bin import command_line

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_enum(
        "mode",
        None,
        ["fill-mask", "classify", "embed"],
        "What to do with a text. classify: a tab parts the two texts of a "
        "pair. embed: the mean state of its tokens and that of [CLS].",
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
    from albert_tf.training.predict import Predictor

    predictor = Predictor(
        load_model_directory(FLAGS.model_dir), FLAGS.batch_size
    )
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
    else:
        for answer in predictor.classify(
            [tuple(text.split("\t", 1)) for text in texts]
        ):
            _print(
                {
                    **shown_texts(answer.texts),
                    "label": answer.label,
                    "probabilities": answer.probabilities,
                }
            )


def _print(row: dict) -> None:
    print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    command_line.run(define_flags, main)
