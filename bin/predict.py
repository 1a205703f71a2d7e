"""Predictions of a model, one line per text: fill masks, embed, classify.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --export_dir=export/mytask \\
    --input=texts.txt --output=labels.csv
"""

import contextlib
import csv
import dataclasses
import functools
import io
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from absl import flags

from albert_tf.cluster.stops import BAD_DATA, RunStopped
from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.jobs.prediction_inputs import (
    CHOICES,
    PAIR,
    QUESTION,
    SINGLE,
    SINGLE_OR_PAIR,
    Form,
    Input,
    is_table,
    read_lines,
    read_table,
)
from albert_tf.tasks.formats.columns import Reading
from albert_tf.tasks.formats.tables import DELIMITERS
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import text_fields
from albert_tf.tasks.kinds.token_classification import TokenClassification
from bin import command_line, own_rows, tasks

if TYPE_CHECKING:
    from albert_tf.jobs.predict import BasePredictor

FLAGS = flags.FLAGS

_NPY = ".npy"

Items = Iterable[Any]


@dataclasses.dataclass(frozen=True)
class Mode:
    """A row of MODES.

    Attributes:
        form: of the texts; None: single texts or pairs, as the model's task.
        predict: returns the answers of a predictor for items.
        fields: of an answer, for a line of JSON.
        columns: the fields that a table has; empty: no tables are written.
        labels: of a predictor, whose probabilities a table has.
    """

    form: Form | None
    predict: Callable[["BasePredictor", Items], Iterator[Any]]
    fields: Callable[[Any], dict[str, Any]]
    columns: tuple[str, ...] = ()
    labels: Callable[["BasePredictor"], Iterable[str]] = lambda predictor: ()


def _classification_fields(answer: Any) -> dict[str, Any]:
    return {
        **text_fields(answer.texts),
        "label": answer.label,
        "probabilities": answer.probabilities,
    }


def _filled_fields(filled: Any) -> dict[str, Any]:
    masks = [
        [{"piece": p, "probability": value} for p, value in candidates]
        for candidates in filled.candidates
    ]
    return {"text": filled.text, "masks": masks}


def _embedding_fields(embedding: Any) -> dict[str, Any]:
    return {
        "text": embedding.text,
        "mean_embedding": embedding.mean,
        "cls_embedding": embedding.cls,
    }


def _prediction_fields(prediction: Any) -> dict[str, Any]:
    # Raw texts have no label.
    return {n: v for n, v in prediction.fields.items() if n != "label"}


def _of_kind(
    form: Form | None, kind: Kind, columns: Iterable[str] = ()
) -> Mode:
    return Mode(
        form,
        lambda predictor, items: predictor.predict(
            kind, items, return_exceptions=True
        ),
        _prediction_fields,
        tuple(columns),
    )


def _answers(predictor: "BasePredictor", items: Items) -> Iterator[Any]:
    kind: Kind = AnswerableSpans()
    if not predictor.predicts(kind):
        kind = Spans()
    return predictor.predict(kind, items, return_exceptions=True)


MODES = {
    "fill-mask": Mode(
        SINGLE,
        lambda predictor, items: predictor.fill_mask(
            items, FLAGS.top_k, return_exceptions=True
        ),
        _filled_fields,
    ),
    "sentence-order": Mode(
        PAIR,
        lambda predictor, items: predictor.sentence_order(
            items, return_exceptions=True
        ),
        _classification_fields,
        ("label",),
        lambda predictor: predictor.sentence_orders,
    ),
    "embed": Mode(
        SINGLE,
        lambda predictor, items: predictor.embed(items, return_exceptions=True),
        _embedding_fields,
    ),
    "classify": Mode(
        None,
        lambda predictor, items: predictor.classify(
            items, return_exceptions=True
        ),
        _classification_fields,
        ("label",),
        lambda predictor: predictor.labels,
    ),
    "rate": _of_kind(None, Regression(), ["prediction"]),
    "answer": Mode(
        QUESTION, _answers, _prediction_fields, ("prediction", "probability")
    ),
    "tag": _of_kind(SINGLE, TokenClassification()),
    "choose": _of_kind(CHOICES, MultipleChoice()),
}


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_enum(
        "mode",
        None,
        [*MODES],
        "Prediction for each text. fill-mask: the likeliest pieces; "
        "sentence-order: whether the second of two texts follows the first, a "
        "tab between them; embed: the mean state of the tokens and that of "
        "[CLS]. The others need a model fine-tuned for them: classify, a "
        "label; rate, a number (for both a tab separates the two texts of a "
        "pair, where the model's task has pairs); answer, a question and after "
        "a tab its paragraph; tag, a tag for each word; choose, a text and its "
        "choices, all separated by tabs.",
    )
    flags.DEFINE_string("model_dir", None, "Model or run directory.")
    flags.DEFINE_string(
        "export_dir", None, "<export_dir> of bin.export, or <export_dir>/<n>."
    )
    flags.DEFINE_multi_string("text", [], "A text; may be repeated.")
    flags.DEFINE_string(
        "input",
        None,
        "A file with one text per line, a table with a header (.tsv, .csv) or "
        "JSON lines (.jsonl); - reads lines of standard input.",
    )
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of a table or JSON lines, as role=name with the roles of "
        "bin.finetune: text (once or twice); question and context; context, "
        "question (or none) and choice (for each). A label or number is not "
        "read. Default: columns with these names, text_pair for a second "
        "text; or else those beside label.",
    )
    tasks.define_quoting_flag()
    flags.DEFINE_bool(
        "pairs",
        None,
        "classify, rate: whether the texts are pairs. Default: as in the "
        "model's task.json, or the default signature of an export. Without a "
        "record a line with a tab is a pair.",
    )
    flags.DEFINE_string(
        "output",
        "-",
        "A file for the predictions, one line of JSON per text; - is standard "
        "output. *.csv, *.tsv: a table, with a column for the probability of "
        "each label (classify, sentence-order, rate, answer). For embed also a "
        f"*{_NPY}: the mean states, float32 [texts, hidden].",
    )
    flags.DEFINE_integer(
        "top_k", 5, "Pieces shown for each [MASK].", lower_bound=1
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    command_line.required("mode")


@contextlib.contextmanager
def _inputs() -> Iterator[Callable[[Form], Iterator[Input]]]:
    """Yields what reads the inputs; mistakes in the first are reported."""
    require(
        bool(FLAGS.text) != bool(FLAGS.input),
        "Give the texts with either --text or --input.",
    )
    table = bool(FLAGS.input) and is_table(FLAGS.input)
    require(
        table or not (FLAGS.columns or FLAGS.quoting),
        "--columns and --quoting are for an --input that is a table (.tsv, "
        ".csv, .jsonl).",
    )
    if FLAGS.text:
        # The shell passes any bytes.
        lines = map(os.fsencode, FLAGS.text)
        yield read_lines(lines, "--text", may_have_header=False)
    elif table:
        log = functools.partial(print, file=sys.stderr)
        quoting = FLAGS.quoting or Reading.quoting
        yield read_table(FLAGS.input, FLAGS.columns, quoting, log)
    else:
        with (
            contextlib.nullcontext(sys.stdin.buffer)
            if FLAGS.input == "-"
            else files.open(FLAGS.input)
        ) as file:
            yield read_lines(file, FLAGS.input, may_have_header=True)


def _predictor() -> "BasePredictor":
    if FLAGS.export_dir:
        from albert_tf.interchange.export.exported_model import ExportedModel
        from albert_tf.jobs.predict_export import ExportedPredictor

        exported = ExportedModel(FLAGS.export_dir)
        return ExportedPredictor(exported, FLAGS.batch_size)
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.jobs.predict import Predictor

    return Predictor(load_model_directory(FLAGS.model_dir), FLAGS.batch_size)


def _form(mode: Mode, predictor: "BasePredictor") -> Form:
    if mode.form:
        return mode.form
    given: bool | None = FLAGS.pairs
    pairs = predictor.pairs if given is None else given
    return {None: SINGLE_OR_PAIR, False: SINGLE, True: PAIR}[pairs]


@contextlib.contextmanager
def _output() -> Iterator[IO[bytes] | None]:
    """Yields the file of --output, None for standard output."""
    if FLAGS.output == "-":
        yield None
    else:
        with files.replacing(FLAGS.output) as file:
            yield file


class _Answers:
    """Iterates over (input, answer), counts errors, and shows progress.

    Attributes:
        number: of answers so far.
        errors: the number of those that are errors.
        first: the first of these.
    """

    def __init__(self, answers: Iterable[tuple[Input, Any]]) -> None:
        self._answers = answers
        self.number = self.errors = 0
        self.first: UserError | None = None

    def __iter__(self) -> Iterator[tuple[Input, Any]]:
        # In a log, lines of progress would come between the predictions.
        hidden = FLAGS.output == "-" and (
            sys.stdout.isatty() or not sys.stderr.isatty()
        )
        progress = (
            contextlib.nullcontext(lambda *_, **__: None)
            if hidden
            else command_line.progress("texts")
        )
        with progress as show:
            for item, answer in self._answers:
                self.number += 1
                if isinstance(answer, UserError):
                    self.errors += 1
                    self.first = self.first or answer
                yield item, answer
                counts = {"errors": self.errors} if self.errors else {}
                show(self.number, **counts)


def main() -> None:
    mode = MODES[FLAGS.mode]
    require(
        bool(FLAGS.model_dir) != bool(FLAGS.export_dir),
        "Give the model with either --model_dir or --export_dir.",
    )
    require(
        FLAGS.pairs is None or mode.form is None,
        f"--pairs is for --mode=classify and rate; {FLAGS.mode} is neither.",
    )
    _check_output(mode)
    with _inputs() as inputs, _output() as file:
        command_line.load_tensorflow()
        predictor = _predictor()
        form = _form(mode, predictor)
        # An answer may need a batch of inputs, which are kept until then.
        read, kept = itertools.tee(inputs(form))
        items = (item.error or item.texts for item in read)
        answers = _Answers(
            zip(kept, mode.predict(predictor, items), strict=True)
        )
        _write(file, mode, form, mode.labels(predictor), answers)
    if answers.errors:
        raise RunStopped(
            f"{answers.errors} of {answers.number} texts have an error in "
            f"place of a prediction; the first: {answers.first}",
            BAD_DATA,
        )


def _check_output(mode: Mode) -> None:
    ending = _ending()
    require(
        ending != _NPY
        or (FLAGS.mode == "embed" and not files.is_remote(FLAGS.output)),
        f"--output={FLAGS.output}: arrays are written for --mode=embed, and to "
        "a local disk; name a .jsonl.",
    )
    with_table = [name for name, row in MODES.items() if row.columns]
    require(
        ending not in DELIMITERS or bool(mode.columns),
        f"--output={FLAGS.output}: the answers of --mode={FLAGS.mode} are "
        f"lists, and tables are written for {', '.join(with_table)}; name a "
        ".jsonl.",
    )


def _ending() -> str:
    return os.path.splitext(FLAGS.output)[1]


def _write(
    file: IO[bytes] | None,
    mode: Mode,
    form: Form,
    labels: Iterable[str],
    answers: _Answers,
) -> None:
    if file is None:
        for line in _json_lines(mode, answers):
            command_line.log(line)
    elif _ending() == _NPY:
        _write_array(file, answers)
    elif _ending() in DELIMITERS:
        _write_table(file, mode, form, labels, answers)
    else:
        for line in _json_lines(mode, answers):
            # JSON can hold lone surrogates, and UTF-8 cannot.
            file.write(f"{line}\n".encode("utf-8", "backslashreplace"))


def _json_lines(mode: Mode, answers: _Answers) -> Iterator[str]:
    for item, answer in answers:
        if isinstance(answer, UserError):
            texts = text_fields(item.texts) if item.texts else {}
            fields = {**texts, "error": str(answer)}
        else:
            fields = mode.fields(answer)
        yield json.dumps(fields, ensure_ascii=False)


def _write_table(
    file: IO[bytes],
    mode: Mode,
    form: Form,
    labels: Iterable[str],
    answers: _Answers,
) -> None:
    """Writes a row for each input: texts, answer, probabilities, error."""
    text = io.TextIOWrapper(file, "utf-8", "backslashreplace", newline="")
    table = csv.writer(
        text, delimiter=DELIMITERS[_ending()], lineterminator="\n"
    )
    labels = list(labels)
    header = [*form.columns, *mode.columns]
    header += [f"probability_{label}" for label in labels]
    table.writerow([*header, "error"])
    for item, answer in answers:
        row = [*item.texts, *[""] * len(form.columns)][: len(form.columns)]
        if isinstance(answer, UserError):
            row += [""] * (len(header) - len(row)) + [str(answer)]
        else:
            fields = mode.fields(answer)
            row += [fields[name] for name in mode.columns]
            row += [fields["probabilities"][label] for label in labels] + [""]
        table.writerow(row)
    # The file is not closed here.
    text.detach()


def _write_array(file: IO[bytes], answers: _Answers) -> None:
    """Writes the mean states `[texts, hidden]`, NaN in place of errors."""
    width, before = 0, 0
    for _, answer in answers:
        if not isinstance(answer, UserError):
            row = np.array(answer.mean, np.float32)
            if not width:
                width = len(row)
                _write_header(file, (0, width))
                file.write(np.full((before, width), np.nan, "f4").tobytes())
        elif width:
            row = np.full(width, np.nan, np.float32)
        else:
            before += 1
            continue
        file.write(row.tobytes())
    require(width > 0, f"No text has a vector; the first: {answers.first}")
    file.seek(0)
    _write_header(file, (answers.number, width))


def _write_header(file: IO[bytes], shape: tuple[int, int]) -> None:
    """Writes a .npy header, of the same length for any number of rows."""
    description = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)


if __name__ == "__main__":
    command_line.run(define_flags, main)
