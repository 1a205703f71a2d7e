"""Builds, inspects, verifies and imports pretraining shards.

python -m bin.build_pretraining_data --input='corpus/*.txt' \\
    --tokenizer=vocab --output_dir=shards --max_seq_length=128
python -m bin.build_pretraining_data --inspect=shards/train-00000-of-00001.tfrecord
python -m bin.build_pretraining_data --verify=shards
python -m bin.build_pretraining_data --import_shards='albert/*.tfrecord' \\
    --tokenizer=vocab --output_dir=shards
"""  # noqa: E501 (commands are copied whole)

import sys

from absl import flags

from albert_tf.config import MaskingConfig, PretrainingDataConfig, require
from bin import command_line, own_rows

FLAGS = flags.FLAGS


def define_flags() -> None:
    own_rows.define_flag()
    flags.DEFINE_list(
        "input",
        [],
        "Text: files, directories or globs, comma-separated (a name with a "
        "comma in double quotes). .txt, .md, JSON lines with a text field "
        "(.jsonl, .json, .ndjson), each also compressed (.gz, .bz2, .xz, "
        ".zst); .parquet with such a column, and directories that save_to_disk "
        "of `datasets` wrote.",
    )
    flags.DEFINE_list(
        "eval_input",
        [],
        "Held-out text; or hold out --eval_fraction of --input.",
    )
    flags.DEFINE_string("tokenizer", None, command_line.TOKENIZER_HELP)
    flags.DEFINE_string("output_dir", None, "Directory for the shards.")
    flags.DEFINE_integer("workers", 1, "Processes.", lower_bound=1)
    flags.DEFINE_float(
        "max_bad_fraction",
        0.1,
        "Largest share of bad lines: not UTF-8, control characters, no JSON, "
        "empty documents.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_enum(
        "runner",
        "local",
        ["local", "beam"],
        "Runner of the job: this machine, or an Apache Beam pipeline "
        "(requirements-beam.txt).",
    )
    flags.DEFINE_list(
        "beam_options",
        [],
        "Options of the Beam pipeline, such as --runner=FlinkRunner, "
        "comma-separated; none: Beam on this machine.",
    )
    flags.DEFINE_bool(
        "report",
        True,
        "Write report.html, a page on the build, beside the shards.",
    )
    flags.DEFINE_string(
        "inspect", None, "Print records of this shard as text instead."
    )
    flags.DEFINE_integer(
        "num_records", 10, "Records that --inspect prints.", lower_bound=1
    )
    flags.DEFINE_string(
        "verify", None, "Check every record of this directory instead."
    )
    flags.DEFINE_list(
        "import_shards",
        [],
        "Import shards that google-research/albert has written, instead.",
    )
    command_line.define_settings(PretrainingDataConfig())
    command_line.define_settings(MaskingConfig())


def main() -> None:
    jobs = {
        "input": _build,
        "inspect": _inspect,
        "verify": _verify,
        "import_shards": _import_shards,
    }
    chosen = [name for name in jobs if FLAGS[name].value]
    require(
        len(chosen) == 1,
        f"{len(chosen)} of the flags {', '.join('--' + n for n in jobs)} are "
        "given; exactly one is needed.",
    )
    jobs[chosen[0]]()


def _needed(*names: str) -> list[str]:
    for name in names:
        require(bool(FLAGS[name].value), f"--{name} is needed.")
    return [FLAGS[name].value for name in names]


def _build() -> None:
    from data_prep.pretraining.pretraining_data import build_pretraining_data

    tokenizer_dir, output_dir = _needed("tokenizer", "output_dir")
    require(
        FLAGS.near_duplicate_threshold is None
        or FLAGS.remove_duplicates == "near_documents",
        "--near_duplicate_threshold is for --remove_duplicates=near_documents.",
    )
    metadata = build_pretraining_data(
        FLAGS.input,
        output_dir,
        tokenizer_dir=tokenizer_dir,
        config=command_line.with_flags(PretrainingDataConfig()),
        masking=command_line.with_flags(MaskingConfig()),
        eval_inputs=FLAGS.eval_input,
        max_bad_fraction=FLAGS.max_bad_fraction,
        workers=FLAGS.workers,
        runner=FLAGS.runner,
        runner_options=FLAGS.beam_options,
        report=FLAGS.report,
        progress=command_line.progress,
        log=command_line.log,
    )
    statistics = metadata["statistics"]
    splits = sorted(metadata["splits"], reverse=True)
    names = list(dict.fromkeys(n for s in splits for n in statistics[s]))
    rows = [
        [name, *(statistics[split].get(name, 0) for split in splits)]
        for name in names
    ]
    print(command_line.format_table(rows, ["", *splits]))
    if rows := [[k, n] for k, n in statistics["corpus"].items() if n]:
        print(command_line.format_table(rows, ["", "corpus"]))
    print(f"The shards are in {output_dir}.")


def _inspect() -> None:
    command_line.load_tensorflow()
    from data_prep.shard_tools.inspection import inspect_shard

    for block in inspect_shard(
        FLAGS.inspect,
        tokenizer_dir=FLAGS.tokenizer,
        num_records=FLAGS.num_records,
        masking=command_line.with_flags(MaskingConfig()),
    ):
        print(block)


def _verify() -> None:
    """Checks every record; exits 1 if one is invalid."""
    command_line.load_tensorflow()
    from data_prep.shard_tools.verification import verify_directory

    report = verify_directory(FLAGS.verify, progress=command_line.progress)
    print("\n".join(report.lines()))
    if not report.ok:
        sys.exit(1)


def _import_shards() -> None:
    command_line.load_tensorflow()
    from data_prep.shard_tools.shard_import import import_shards

    tokenizer_dir, output_dir = _needed("tokenizer", "output_dir")
    config = command_line.with_flags(PretrainingDataConfig())
    metadata = import_shards(
        FLAGS.import_shards,
        output_dir,
        tokenizer_dir=tokenizer_dir,
        eval_inputs=FLAGS.eval_input,
        sentence_objective=config.sentence_objective,
    )
    for split, account in metadata["splits"].items():
        print(f"{split}: {account['num_records']} records")
    print(f"The shards are in {output_dir}.")


if __name__ == "__main__":
    command_line.run(define_flags, main)
