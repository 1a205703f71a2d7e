"""Embeddings of texts for search, trained without labels.

python -m bin.train_embeddings --input=texts --init_from=runs/tiny \\
    --run_dir=runs/embeddings
python -m bin.train_embeddings --pairs=columns --table=questions.tsv \\
    --columns=question,answer --init_from=runs/tiny --run_dir=runs/answers
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from absl import flags

from albert_tf.config import (
    TASK_SETTINGS,
    EmbeddingConfig,
    ModelConfig,
    RuntimeConfig,
    as_default,
    override,
    require,
)
from albert_tf.rundir.run_results import title
from bin import command_line, corpora, own_rows, tasks, training_programs

if TYPE_CHECKING:
    from albert_tf.modeling.weights.pretrained import StoredModel

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    corpora.define_flags()
    corpora.define_passage_flags()
    flags.DEFINE_string(
        "table",
        None,
        "--pairs=columns: a table with a header (.tsv, .csv), JSON lines or "
        "Parquet, also compressed.",
    )
    flags.DEFINE_list(
        "columns",
        None,
        "--pairs=columns: the two columns of --table whose texts belong "
        "together, such as question,answer: the first is what is searched "
        "with.",
    )
    tasks.define_row_flags()
    flags.DEFINE_string(
        "tokenizer",
        None,
        f"{command_line.TOKENIZER_HELP} Default: that beside --init_from.",
    )
    training_programs.define_flags(report=False)
    command_line.define_settings(EmbeddingConfig())
    command_line.define_settings(
        ModelConfig(),
        only=[name for name in TASK_SETTINGS if name not in _UNUSED],
        default="that of --init_from, or 0.1 where all of its dropout is 0",
    )
    command_line.required("init_from", "run_dir")


# Settings of a classifier. Embeddings have a pooling of their own.
_UNUSED = ("classifier_dropout_prob", "pooling")


def main() -> None:
    config = EmbeddingConfig()
    if FLAGS.config_json:
        recorded, _ = training_programs.recorded_config(
            "embeddings", EmbeddingConfig
        )
        config = as_default(recorded)
    config = override(config, command_line.given_settings(config))
    reads_table = config.embeddings.pairs == "columns"
    require(
        bool(FLAGS.input) != reads_table and bool(FLAGS.table) == reads_table,
        "Give texts with --input, or --pairs=columns and a --table.",
    )
    for name in ("columns", "quoting", "skip_bad_rows"):
        require(
            reads_table or not FLAGS[name].present,
            f"--{name} is of a --table, which --pairs="
            f"{config.embeddings.pairs} does not read.",
        )
    training_programs.load_tensorflow()
    from albert_tf.interchange.model_directory import find_initial_weights
    from albert_tf.jobs.train_embeddings import run_embedding_training

    initial = find_initial_weights(FLAGS.init_from)
    initial = initial.with_tokenizer(FLAGS.tokenizer)
    longest = config.embeddings.max_seq_length
    longest = longest or initial.description.max_seq_length
    evaluation = run_embedding_training(
        config,
        _rows() if reads_table else _documents(longest, initial),
        run_dir=FLAGS.run_dir,
        initial=initial,
        model_changes={
            name: value
            for name, value in command_line.given_settings(
                ModelConfig()
            ).items()
            if name not in _UNUSED
        },
        runtime=command_line.with_flags(RuntimeConfig()),
    )
    training_programs.print_evaluation(evaluation, [], title(FLAGS.run_dir))


def _documents(max_seq_length: int, initial: "StoredModel") -> list[list[str]]:
    """Returns the passages of each document of --input."""
    from albert_tf.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(initial.tokenizer_path)
    documents: dict[str, list[str]] = {}

    def lengths(texts: list[str]) -> Iterable[int]:
        return map(len, tokenizer.encode_batch(texts))

    for passage in corpora.passages(lengths, max_seq_length - 2):
        documents.setdefault(passage.document, []).append(passage.text)
    return list(documents.values())


def _rows() -> list[Sequence[str]]:
    """Returns the two texts of each row of --table."""
    from albert_tf.tasks.bad_rows import RowError
    from albert_tf.tasks.formats.columns import check_columns
    from albert_tf.tasks.formats.record import Record
    from albert_tf.tasks.formats.rows import Reading, read_rows

    columns = FLAGS.columns or ()
    require(
        len(columns) == len(set(columns)) == 2,
        f"--columns={','.join(columns)}: expected the names of two different "
        "columns of --table.",
    )

    def pair(record: Record) -> Sequence[str]:
        texts = tuple(map(record.text, columns))
        if not all(map(str.strip, texts)):
            raise RowError(record.location, "a text of the pair is empty")
        return texts

    reading = Reading(FLAGS.quoting or Reading.quoting, FLAGS.skip_bad_rows)
    rows = read_rows(FLAGS.table, command_line.log, reading)
    check_columns(rows, {"text": columns}, labels=(), labelled=False)
    return rows.settled(rows.apply(pair))


if __name__ == "__main__":
    command_line.run(define_flags, main)
