"""Predictions of a model, one line per text: fill masks, embed, classify.

python -m bin.predict --mode=fill-mask --model_dir=runs/tiny/model \\
    --text='The function returns a [MASK] of integers.'
python -m bin.predict --mode=classify --export_dir=export/mytask \\
    --input=texts.txt --output=labels.csv
"""

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from absl import flags

from albert_tf.cluster.stops import BAD_DATA, RunStopped
from albert_tf.config import UserError, require
from albert_tf.io import files
from albert_tf.io.compression import (
    buffered,
    open_plain,
    packing,
    plain_name,
    unpacked,
)
from albert_tf.prediction.base import BasePredictor
from albert_tf.prediction.forms import Input
from albert_tf.prediction.inputs import Inputs
from albert_tf.prediction.line_inputs import read_lines
from albert_tf.prediction.modes import MODES, Mode, fine_tuned_for
from albert_tf.prediction.outputs import (
    NPY,
    OUTPUT_ENDINGS,
    Rows,
    check_output,
    json_lines,
    refuse_inputs,
    write_rows,
)
from albert_tf.prediction.table_inputs import (
    INPUT_FORMATS,
    read_table,
    table_ending,
)
from albert_tf.prediction.table_outputs import json_rows, write_table
from albert_tf.prediction.word_inputs import read_sentences
from albert_tf.tasks.formats.conll import CONLL, CONLLU
from albert_tf.tasks.formats.rows import PARQUET, Reading, ending_of
from bin import command_line, interrupts, own_rows, tasks

FLAGS = flags.FLAGS
# The format of a file with a word in each line.
_CONLL = "conll"


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
        "label, or any number of them; rate, a number (for both a tab "
        "separates the two texts of a pair, where the model's task has pairs); "
        "answer, a question and after a tab its paragraph; tag, a tag for each "
        "word; choose, a text and its choices, all separated by tabs. Default: "
        "the one that the model was fine-tuned for; embed, where it has "
        "nothing but vectors, as after bin.train_embeddings.",
    )
    flags.DEFINE_string("model_dir", None, command_line.MODEL_HELP)
    flags.DEFINE_string(
        "export_dir", None, "<export_dir> of bin.export, or <export_dir>/<n>."
    )
    flags.DEFINE_multi_string("text", [], "A text; may be repeated.")
    flags.DEFINE_string(
        "input",
        None,
        "A file with one text per line, a table with a header (.tsv, .csv), "
        "JSON lines (.jsonl, .ndjson, .json), a JSON array (.json) or Parquet "
        "(.parquet), each also compressed (.gz, .bz2, .xz, .zst); a directory "
        "of save_to_disk, with a text in each .txt file, or a folder of such "
        "for each class; - reads standard input.",
    )
    flags.DEFINE_enum(
        "input_format",
        "auto",
        ["auto", "text", *INPUT_FORMATS, _CONLL],
        "Form of --input. auto: by the end of its name; text: a text in each "
        "line; conll, for tag: a word in each line, with other columns, and an "
        "empty line after each sentence.",
    )
    flags.DEFINE_list(
        "columns",
        [],
        "Columns of a table or JSON lines, as role=name with the roles of "
        "bin.finetune: text (once or twice); question and context; context, "
        "question (or none) and choice (for each); words, a list of them, for "
        "tag; word=1, the number of a column of a .conll file. A label, "
        "number, tags or entities are not read. Default: the columns of "
        "fine-tuning, in the model's task.json; or those with these names, "
        "text_pair for a second text; or else those beside label.",
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
        "A file for the predictions, one line of JSON per text (.jsonl, "
        ".ndjson, .json or no ending); - is standard output. *.csv, *.tsv: a "
        "table, with a column for the probability of each label (of lines: "
        "classify, sentence-order, rate, answer). Of a table of inputs: its "
        "rows with added columns, in its form or that which the name ends in, "
        "*.parquet too. *.gz and so on: compressed. "
        f"For embed also a *{NPY}: the vectors of --pooling, float32 [texts, "
        "width].",
    )
    flags.DEFINE_integer(
        "top_k", 5, "Pieces shown for each [MASK].", lower_bound=1
    )
    flags.DEFINE_integer("batch_size", 32, "Texts per batch.", lower_bound=1)
    flags.DEFINE_enum(
        "pooling",
        None,
        ["first", "mean", "mean_max"],
        "embed: the vector of a text in a "
        f"*{NPY}; mean_max: also one more vector, the mean state and then the "
        "maximum of the states of the tokens. Default: that of "
        "bin.train_embeddings, of other models mean.",
    )
    command_line.written_as("output", OUTPUT_ENDINGS, packed=True)


@contextlib.contextmanager
def _inputs() -> Iterator[Inputs]:
    """Yields what reads the inputs; mistakes in the first are reported."""
    require(
        bool(FLAGS.text) != bool(FLAGS.input),
        "Give the texts with either --text or --input.",
    )
    ending = _table_ending()
    has_words = _has_words()
    require(
        ending is not None
        or not (FLAGS.quoting or (FLAGS.columns and not has_words)),
        "--columns and --quoting are for an --input that is a table (.tsv, "
        ".csv, .jsonl, .parquet), or that --input_format says is one.",
    )
    if has_words:
        yield read_sentences(FLAGS.input, FLAGS.columns, _log)
        return
    if FLAGS.text:
        # The shell passes any bytes.
        lines = map(os.fsencode, FLAGS.text)
        yield read_lines(lines, "--text", may_have_header=False)
        return
    read = functools.partial(
        read_table,
        FLAGS.input,
        FLAGS.columns,
        FLAGS.quoting or Reading.quoting,
        _log,
        ending=ending,
    )
    if ending is not None and FLAGS.input != "-":
        yield read()
        return
    with (
        contextlib.nullcontext(unpacked("-", buffered(sys.stdin.buffer.read1)))
        if FLAGS.input == "-"
        else open_plain(FLAGS.input)
    ) as file:
        if ending is None:
            may_have_header = FLAGS.input_format != "text"
            yield read_lines(file, FLAGS.input, may_have_header=may_have_header)
        else:
            yield read(lines=file)


def _has_words() -> bool:
    """Returns whether the input is a file of words, as CoNLL's are."""
    require(
        FLAGS.input_format != _CONLL
        or (FLAGS.mode == "tag" and FLAGS.input not in (None, "-")),
        "--input_format=conll is for --mode=tag and a file as --input.",
    )
    if FLAGS.mode != "tag" or not FLAGS.input:
        return False
    if FLAGS.input_format != "auto":
        return FLAGS.input_format == _CONLL
    return plain_name(FLAGS.input).lower().endswith((CONLL, CONLLU))


def _table_ending() -> str | None:
    """Returns the ending of a table's form; None: there is none."""
    if not FLAGS.input:
        return None
    ending = table_ending(FLAGS.input, FLAGS.input_format)
    require(
        FLAGS.input != "-" or ending != PARQUET,
        "--input_format=parquet: Parquet is read from its end; give a file.",
    )
    return ending


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _predictor() -> BasePredictor:
    options = FLAGS.batch_size, FLAGS.pooling or ""
    if FLAGS.export_dir:
        from albert_tf.interchange.export.exported_model import ExportedModel
        from albert_tf.prediction.exported import ExportedPredictor

        exported = ExportedModel(FLAGS.export_dir)
        return ExportedPredictor(exported, *options)
    from albert_tf.interchange.model_directory import load_model_directory
    from albert_tf.prediction.predictor import Predictor

    return Predictor(load_model_directory(FLAGS.model_dir), *options)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[..., None]]:
    """Yields a function that shows the number of texts, unless it disturbs."""
    # In a log, lines of progress would come between the predictions.
    if FLAGS.output == "-" and (sys.stdout.isatty() or not sys.stderr.isatty()):
        yield lambda *_, **__: None
    else:
        with command_line.progress("texts") as show:
            yield show


class _Counted:
    """Iterates over rows and counts errors.

    Attributes:
        number: of rows so far.
        errors: the number of those without a prediction.
        first: the first of these errors.
    """

    def __init__(self, rows: Rows, total: int | None) -> None:
        self._rows, self._total = rows, total
        self.number = self.errors = 0
        self.first: UserError | None = None

    def __iter__(self) -> Iterator[tuple[Input, Any]]:
        with _progress() as show:
            for item, found in self._rows:
                self.number += 1
                if isinstance(found, UserError):
                    where = f"{item.location}: "
                    if item.location and not str(found).startswith(where):
                        found = UserError(f"{where}{found}")
                    self.errors += 1
                    self.first = self.first or found
                yield item, found
                counts = {"errors": self.errors} if self.errors else {}
                show(self.number, self._total, **counts)


def _set_mode() -> BasePredictor:
    """Sets --mode to the model's own; returns the model, which it loads."""
    command_line.load_tensorflow()
    predictor = _predictor()
    own, _ = fine_tuned_for(predictor)
    own = own or ("embed" if predictor.only_embeds else "")
    others = [name for name, mode in MODES.items() if not mode.kinds]
    require(
        bool(own),
        f"{FLAGS.model_dir or FLAGS.export_dir} was not fine-tuned for a task; "
        f"give --mode, one of {', '.join(others)}.",
    )
    FLAGS.mode = own
    return predictor


def _predict(
    predictor: BasePredictor,
    mode: Mode,
    inputs: Inputs,
    file: IO[bytes] | None,
) -> _Counted:
    """Writes the predictions to a file or standard output; returns counts."""
    own, kind = fine_tuned_for(predictor)
    require(
        # Any model has vectors.
        FLAGS.mode in (own, "embed") or not own,
        f"--mode={FLAGS.mode}: {FLAGS.model_dir or FLAGS.export_dir} was "
        f"fine-tuned for {kind}, which is --mode={own}.",
    )
    mode = mode.of(predictor)
    form = mode.form_for(
        predictor.pairs if FLAGS.pairs is None else FLAGS.pairs
    )
    # A prediction may need a batch of inputs, which are kept until then.
    read, kept = itertools.tee(inputs.read(form, predictor.columns))
    items = (item.error or item.words or item.texts for item in read)
    options = {"top_k": FLAGS.top_k} if FLAGS.mode == "fill-mask" else {}
    predictions = mode.predict(predictor, items, **options)
    rows = _Counted(zip(kept, predictions, strict=True), inputs.num)
    labels = list(mode.labels(predictor))
    if file is None:
        lines = (
            json_rows(rows, mode, inputs.table, _log)
            if inputs.table
            else json_lines(rows, mode)
        )
        for line in lines:
            command_line.log(line)
        return rows
    with packing(file, FLAGS.output) as packed:
        if inputs.table and ending_of(FLAGS.output) != NPY:
            write_table(
                packed, FLAGS.output, rows, mode, labels, inputs.table, _log
            )
        else:
            write_rows(packed, FLAGS.output, rows, mode, form, labels)
    return rows


def main() -> None:
    require(
        bool(FLAGS.model_dir) != bool(FLAGS.export_dir),
        "Give the model with either --model_dir or --export_dir.",
    )
    predictor = None if FLAGS.mode else _set_mode()
    mode = MODES[FLAGS.mode]
    require(
        FLAGS.pairs is None or mode.form is None,
        f"--pairs is for --mode=classify and rate; {FLAGS.mode} is neither.",
    )
    require(
        not FLAGS.pooling or FLAGS.mode == "embed",
        f"--pooling is for --mode=embed; {FLAGS.mode} has no vectors.",
    )
    require(
        not FLAGS["top_k"].present or FLAGS.mode == "fill-mask",
        f"--top_k is for --mode=fill-mask; {FLAGS.mode} fills no masks.",
    )
    is_table = _table_ending() is not None
    check_output(FLAGS.output, FLAGS.mode, of_table=is_table)
    if FLAGS.input and FLAGS.input != "-":
        refuse_inputs(FLAGS.output, FLAGS.input)
    with (
        _inputs() as inputs,
        contextlib.nullcontext()
        if FLAGS.output == "-"
        else files.replacing(FLAGS.output) as file,
    ):
        command_line.load_tensorflow()
        with interrupts.ending_by_exception():
            rows = _predict(predictor or _predictor(), mode, inputs, file)
    if rows.errors:
        raise RunStopped(
            f"{rows.errors} of {rows.number} texts have an error in place of "
            f"a prediction; the first: {rows.first}",
            BAD_DATA,
        )


if __name__ == "__main__":
    command_line.run(define_flags, main)
