"""Predictions of a model, one JSON line per text: fill masks, embed, classify.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --export_dir=export/mytask \\
    --input=texts.txt --output=labels.jsonl
"""

import codecs
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np
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
    from albert_tf.jobs.predict import BasePredictor, Embedding

FLAGS = flags.FLAGS

_NPY = ".npy"


def define_flags() -> None:
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
    flags.DEFINE_string(
        "export_dir", None, "<export_dir> of bin.export, or <export_dir>/<n>."
    )
    flags.DEFINE_multi_string("text", [], "A text; may be repeated.")
    flags.DEFINE_string(
        "input", None, "A file with one text per line; - reads standard input."
    )
    flags.DEFINE_string(
        "output",
        "-",
        "A file for the predictions, one line per text; - is standard output. "
        f"For embed also a *{_NPY}: the mean states, float32 [texts, hidden].",
    )
    flags.DEFINE_integer(
        "top_k", 5, "Pieces shown for each [MASK].", lower_bound=1
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    command_line.required("mode")


@contextlib.contextmanager
def _texts() -> Iterator[Iterable[str]]:
    """Yields the texts of --text, or the lines of --input, one by one."""
    require(
        bool(FLAGS.text) != bool(FLAGS.input),
        "Give the texts with either --text or --input.",
    )
    if FLAGS.text:
        # The shell passes any bytes.
        yield list(_lines(map(os.fsencode, FLAGS.text), "--text"))
        return
    with (
        contextlib.nullcontext(sys.stdin.buffer)
        if FLAGS.input == "-"
        else files.open(FLAGS.input)
    ) as file:
        lines = _lines(file, FLAGS.input)
        # Its mistakes are reported before TensorFlow is loaded.
        first = next(lines, None)
        require(first is not None, f"{FLAGS.input} is empty.")
        yield itertools.chain([first], lines)


def _lines(lines: Iterable[bytes], source: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if number == 1:
            refuse_utf16(source, line)
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").rstrip("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{source}, line {number}: byte {error.start} is not UTF-8; "
                "convert it first."
            ) from None


def _predictor() -> "BasePredictor":
    if FLAGS.export_dir:
        from albert_tf.interchange.export.exported_model import ExportedModel
        from albert_tf.jobs.predict_export import ExportedPredictor

        exported = ExportedModel(FLAGS.export_dir)
        return ExportedPredictor(exported, FLAGS.batch_size)
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.jobs.predict import Predictor

    return Predictor(load_model_directory(FLAGS.model_dir), FLAGS.batch_size)


def main() -> None:
    require(
        bool(FLAGS.model_dir) != bool(FLAGS.export_dir),
        "Give the model with either --model_dir or --export_dir.",
    )
    as_array = FLAGS.output.endswith(_NPY)
    require(
        not as_array
        or (FLAGS.mode == "embed" and not files.is_remote(FLAGS.output)),
        f"--output={FLAGS.output}: arrays are written for --mode=embed, and to "
        "a local disk; name a .jsonl.",
    )
    with _texts() as texts:
        command_line.load_tensorflow()
        predictor = _predictor()
        if as_array:
            _write_array(predictor.embed(texts))
            return
        lines = (
            json.dumps(row, ensure_ascii=False)
            for row in _counted(_rows(predictor, texts))
        )
        if FLAGS.output == "-":
            for line in lines:
                command_line.log(line)
            return
        with files.replacing(FLAGS.output) as file:
            for line in lines:
                file.write(f"{line}\n".encode())


def _counted(rows: Iterable[Any]) -> Iterator[Any]:
    """Yields the rows, and shows progress unless they are printed."""
    # In a log, lines of progress would come between the predictions.
    if FLAGS.output == "-" and (sys.stdout.isatty() or not sys.stderr.isatty()):
        yield from rows
        return
    with command_line.progress("texts") as show:
        for number, row in enumerate(rows, start=1):
            yield row
            show(number)


def _write_array(embeddings: "Iterable[Embedding]") -> None:
    with files.replacing(FLAGS.output) as file:
        number = 0
        for number, embedding in enumerate(_counted(embeddings), start=1):
            row = np.array(embedding.mean, np.float32)
            if number == 1:
                _write_header(file, (0, len(row)))
            file.write(row.tobytes())
        file.seek(0)
        _write_header(file, (number, len(row)))


def _write_header(file: IO[bytes], shape: tuple[int, int]) -> None:
    """Writes a .npy header, of the same length for any number of rows."""
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


def _rows(predictor: "BasePredictor", texts: Iterable[str]) -> Iterator[dict]:
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
        if FLAGS.mode == "answer" and not predictor.has_head(kind.head):
            kind = Spans()
        for prediction in predictor.predict(kind, _split(texts, tabs)):
            # Raw texts have no label.
            yield {n: v for n, v in prediction.fields.items() if n != "label"}


def _split(texts: Iterable[str], tabs: int) -> Iterator[tuple[str, ...]]:
    """Yields the parts of each line, between its first `tabs` tabs."""
    return (tuple(text.split("\t", tabs)) for text in texts)


# Mode -> its kind, and the maximum of tabs between its texts; -1: no maximum.
ANSWERS = {
    "rate": (Regression(), 1),
    "answer": (AnswerableSpans(), 1),
    "tag": (TokenClassification(), 0),
    "choose": (MultipleChoice(), -1),
}


if __name__ == "__main__":
    command_line.run(define_flags, main)
