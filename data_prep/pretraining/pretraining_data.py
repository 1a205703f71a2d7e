"""Turns a corpus into shards of pretraining records.

Main entry: `build_pretraining_data`. A build is planned (`build_plan`),
carried out by a runner (`RUNNERS`) and described in metadata.json
(`make_metadata`). Documents become records in `record_maker`, which depends on
the document, the seed and the settings alone. Every record has a random key; a
split is its records in the order of their keys, cut into shards: a shuffle of
the whole corpus that no runner and no number of workers can change.
"""

import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from albert_tf.config import (
    Log,
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    given_settings,
    listed,
    lookup,
    optional_page,
    require,
    silent,
)
from albert_tf.io.json_files import write_json
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import (
    FORMAT_VERSION,
    describe_tokenizer,
    split_entry,
)
from albert_tf.report.page import Page, to_html
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.listing import describe_left_out
from data_prep.pretraining.build_directory import BuildDirectory, BuildResult
from data_prep.pretraining.build_estimate import text_shares
from data_prep.pretraining.build_plan import BuildPlan, make_plan, plan_settings
from data_prep.pretraining.build_report import REPORT_FILE, build_page
from data_prep.pretraining.local_runner import LocalRunner
from data_prep.pretraining.record_maker import DOCUMENT_TOKENS, num_slots
from data_prep.pretraining.sources import TRAIN, list_inputs
from data_prep.progress import Progress, no_progress


def _beam_runner(
    output_dir: str, workers: int, options: Sequence[str], progress: Progress
) -> Any:
    del progress  # Beam's own runners report it
    # Beam warns of its extras that are not installed.
    logging.disable(logging.WARNING)
    try:
        from data_prep.pretraining.beam_runner import BeamRunner
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "apache_beam":
            raise
        raise UserError(
            "runner=beam needs Apache Beam, which is not installed: pip "
            "install -r requirements-beam.txt."
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    # It has nothing to release: each pipeline ends where it is run.
    return contextlib.nullcontext(BeamRunner(output_dir, workers, options))


# Runners of the parts of a build that read the whole corpus; of one
# plan all write the same bytes. Each takes the output directory, the number of
# workers, options of its own and a progress display, and has the methods of
# LocalRunner.
RUNNERS: dict[str, Callable[..., Any]] = {
    "local": LocalRunner,
    "beam": _beam_runner,
}


def build_pretraining_data(
    inputs: Sequence[str],
    output_dir: str,
    *,
    tokenizer_dir: str,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    eval_inputs: Sequence[str] = (),
    max_bad_fraction: float = 0.1,
    workers: int = 1,
    runner: str = "local",
    runner_options: Sequence[str] = (),
    report: bool = False,
    progress: Progress = no_progress,
    log: Log = silent,
) -> dict[str, Any]:
    """Writes a shard directory and returns its metadata.

    The same corpus, tokenizer and settings give the same bytes, whatever the
    runner and the number of workers. A directory that is finished already is
    left as it is; a build that was interrupted is resumed, as far as its
    runner can.

    `inputs` are files, directories and globs, see `listing.list_files`, and
    `eval_inputs` those of the split `eval`. `masking` is of `static` records;
    of others a warning is logged that it is not used.
    `max_bad_fraction` is the largest share of bad lines. `workers` are
    processes on this machine; for `runner_options` see `beam_runner`. With
    `report` there is a page on the build, `report.html`. `log`
    takes a line for the files that are not read, bad lines, each hard-wrapped
    file, each warning and the size of the build.

    Raises:
        UserError: for inputs that cannot be used, a directory begun with
            other settings, too little room on the disk, or a split that
            comes out empty.
    """
    name = config.sentence_objective
    lookup(SENTENCE_OBJECTIVES, name, "sentence_objective", extensible=True)
    make_runner = lookup(RUNNERS, runner, "runner")
    unused = config.record_kind != "static" and given_settings(masking)
    if unused:
        log(
            f"WARNING: not used here: {listed(unused)}. Records of "
            f"record_kind={config.record_kind} are masked when they are read: "
            "give it to bin.pretrain, or build with --record_kind=static."
        )
    tokenizer = load_tokenizer(tokenizer_dir)
    with make_runner(output_dir, workers, runner_options, progress) as engine:
        left_out: set[str] = set()
        found = list_inputs(
            inputs,
            eval_inputs,
            config,
            find_files=functools.partial(engine.list_files, left_out=left_out),
            open_file=engine.open_file,
        )
        _refuse_own_files(found, output_dir)
        directory = BuildDirectory(output_dir, config, engine.files)
        finished = directory.is_finished()
        if not finished:
            directory.check_free()
            if left_out:
                log(f"{describe_left_out(left_out)}.")
            _log_wrapped(found, log)
        surveys, sample = engine.survey(found)
        settings = plan_settings(surveys, tokenizer, config, masking)
        if finished:
            return directory.finished_metadata(settings)
        plan = make_plan(
            surveys,
            sample,
            tokenizer,
            config,
            masking,
            settings=settings,
            max_bad_fraction=max_bad_fraction,
        )
        return _carry_out(
            plan, engine, tokenizer, directory, log, report=report
        )


def _carry_out(
    plan: BuildPlan,
    engine: Any,
    tokenizer: Tokenizer,
    directory: BuildDirectory,
    log: Log,
    *,
    report: bool,
) -> dict[str, Any]:
    """Writes what a plan has; returns the metadata."""
    if faults := plan.report.describe_faults():
        log(f"{faults}.")
    for warning in plan.warnings:
        log(warning)
    with directory.held(plan):
        directory.check_room(plan, log)
        directory.save_tokenizer(tokenizer)
        write_json(
            directory.splitter_path,
            plan.splitter_parameters,
            file_system=directory.files,
        )
        result = directory.result()
        if result is None:
            result = engine.run(plan, tokenizer, directory)
        _check_splits(plan, result)
        _check_labels(plan, result)
        for warning in _single_documents(plan, result):
            log(warning)
        metadata = make_metadata(plan, tokenizer, result)
        if report:
            page = functools.partial(
                build_page, plan, result, metadata, engine.open_file
            )
            _write_page(directory, page, log)
        directory.finish(metadata)
    directory.files.remove_tree(directory.work_path)
    return metadata


def _write_page(
    directory: BuildDirectory,
    make_page: Callable[[], Page],
    log: Log,
) -> None:
    """Writes report.html; whatever fails is logged, since shards are whole."""
    path = os.path.join(directory.path, REPORT_FILE)
    with (
        optional_page(path, log, "the shards are complete"),
        directory.files.replacing(path) as file,
    ):
        file.write(to_html(make_page()).encode())


def _refuse_own_files(files: Sequence[CorpusFile], output_dir: str) -> None:
    own = os.path.join(os.path.realpath(output_dir), "")
    for file in files:
        if os.path.realpath(file.path).startswith(own):
            raise UserError(
                f"The input holds {file.path}, which is in the output "
                "directory; choose another output directory."
            )


def _log_wrapped(files: Sequence[CorpusFile], log: Log) -> None:
    for file in files:
        if file.form == "wrapped":
            log(
                f"{file.path} is hard-wrapped: it is read as one document of "
                "paragraphs between blank lines. With "
                "--document_separator=blank_line each block would be a "
                "document, each line a paragraph."
            )


def _check_splits(plan: BuildPlan, result: BuildResult) -> None:
    """Raises UserError if a split that was asked for has no record."""
    config, counts = plan.config, result.counts
    for split in sorted(plan.record_bytes, reverse=True):
        if any(shard.num_records for shard in result.of_split(split)):
            continue
        documents = counts[f"{split}/documents"]
        single = counts[f"{split}/skipped/single_sentence_documents"]
        raise UserError(
            f"The split {split} has no records: {documents} documents, "
            f"{single} of them of one sentence, which has no order to judge. "
            f"Check the input, document_separator={config.document_separator}"
            f", sentence_splitter={config.sentence_splitter}, eval_fraction="
            f"{config.eval_fraction}."
        )


def _check_labels(plan: BuildPlan, result: BuildResult) -> None:
    """Raises UserError if training pairs have one label for want of documents.

    A loss on them teaches nothing.
    """
    counts = result.counts
    require(
        not counts[f"{TRAIN}/without_other_document"]
        or counts[f"{TRAIN}/label_1"] > 0,
        f"The split {TRAIN} has a single document, so that with "
        f"sentence_objective={plan.config.sentence_objective} all of its pairs "
        "are real ones, and nothing can be learned from them. Give more "
        "documents, the --document_separator (blank_line, line) that divides "
        "this one, or --sentence_objective=sop, in a new directory.",
    )


def _single_documents(plan: BuildPlan, result: BuildResult) -> Iterator[str]:
    """Yields a warning for each split whose pairs have one label alone."""
    for split in sorted(plan.record_bytes, reverse=True):
        if number := result.counts[f"{split}/without_other_document"]:
            yield (
                f"Warning: the split {split} has too few documents, so that "
                f"{number:,} pairs whose second segment should be one of "
                "another document are real pairs, and whether a model tells "
                "them apart is hard to measure there. To mend it, give more "
                "documents or a larger eval_fraction."
            )


def make_metadata(
    plan: BuildPlan, tokenizer: Tokenizer, result: BuildResult
) -> dict[str, Any]:
    """Returns the metadata.json of a finished build."""
    config = plan.config
    return {
        "format_version": FORMAT_VERSION,
        "record_kind": config.record_kind,
        "sentence_objective": config.sentence_objective,
        "max_seq_length": config.max_seq_length,
        "num_slots": num_slots(config, plan.masking),
        "random_seed": config.random_seed,
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": {
            split: split_entry(result.of_split(split))
            for split in sorted(plan.record_bytes)
        },
        "statistics": _statistics(plan, result.counts),
        "settings": plan.settings,
    }


def _statistics(plan: BuildPlan, counts: Counter[str]) -> dict[str, Any]:
    """Returns the statistics of the corpus and of each split."""
    corpus = plan.report.counts | {
        name: count for name, count in counts.items() if "/" not in name
    }
    of_splits = {split: Counter[str]() for split in sorted(plan.record_bytes)}
    for name, count in sorted(counts.items()):
        split, _, rest = name.partition("/")
        if rest and not rest.startswith(DOCUMENT_TOKENS):
            of_splits[split][rest] = count
    return {
        "corpus": dict(sorted(corpus.items())),
        **{
            split: of_split | _shares(of_split, plan.config)
            for split, of_split in of_splits.items()
        },
    }


def _shares(
    count: Counter[str], config: PretrainingDataConfig
) -> dict[str, float]:
    shares = text_shares(count, config.max_seq_length)
    shares["label_1_share"] = count["label_1"] / max(1, count["instances"])
    if config.record_kind == "static":
        masked = count["masked_tokens"]
        shares["masked_share"] = masked / max(1, count["instance_tokens"])
        for name in ("as_mask", "as_is", "as_random"):
            part = f"masked_tokens/{name}"
            shares[f"{part}_share"] = count[part] / max(1, masked)
    return {name: round(share, 6) for name, share in shares.items()}
