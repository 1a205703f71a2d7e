"""Turns a corpus into shards of pretraining records.

Main entry: `build_pretraining_data`. A build is planned (`build_plan`),
carried out by a runner (a row of `RUNNERS`) and described in metadata.json.
Documents become records in `record_maker`, which depends on the document, the
seed and the settings alone. Every record has a random key; a split is its
records in the order of their keys, cut into shards: a shuffle of the whole
corpus that no runner and no number of workers can change.
"""

import contextlib
import dataclasses
import errno
import functools
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    differences,
    lookup,
)
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import (
    FORMAT_VERSION,
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    describe_tokenizer,
)
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data_prep.corpus.reading import CorpusFile, FileSurvey
from data_prep.pretraining.build_plan import (
    BuildPlan,
    Source,
    list_sources,
    make_plan,
    plan_settings,
)
from data_prep.pretraining.build_report import statistics
from data_prep.pretraining.local_runner import (
    BuildResult,
    Progress,
    Workers,
    run_local,
    survey_locally,
)
from data_prep.pretraining.record_maker import num_slots
from data_prep.pretraining.storage import (
    LOCK_FILE,
    TEMPORARY_SUFFIX,
    LocalStorage,
    Storage,
    is_remote,
    read_json,
    write_json,
)

_WORK_DIRECTORY = ".work"
_PLAN_FILE = "plan.json"
_SPLITTER_FILE = "{}.json"  # after the sentence splitter: punkt.json
_SHARD_PATTERN = re.compile(
    rf"\w+-\d{{5}}-of-\d{{5}}\.tfrecord({TEMPORARY_SUFFIX})?"
)
# What a build that was stopped leaves: in `.work`, and beside its results.
_TEMPORARY = re.compile(rf".*{TEMPORARY_SUFFIX}")
_UNFINISHED = re.compile(
    r"(\w+-\d{5}-of-\d{5}\.tfrecord|metadata\.json|punkt\.json|newline\.json"
    rf"|spiece\.\w+|vocab\.txt|tokenizer\w*\.json){TEMPORARY_SUFFIX}"
)


class Runner(Protocol):
    """What carries out the parts of a build that read the whole corpus.

    `storage` is that of the output directory.
    """

    storage: Storage

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name."""
        ...

    def open_file(self, path: str, mode: str) -> BinaryIO:
        """Returns a file of the corpus, as it is stored."""
        ...

    def survey(
        self, files: Sequence[CorpusFile], skip_header_lines: int
    ) -> Iterable[FileSurvey]:
        """Returns what each file holds, in their order."""
        ...

    def run(
        self,
        plan: BuildPlan,
        tokenizer: Tokenizer,
        *,
        output_dir: str,
        work_dir: str,
    ) -> BuildResult:
        """Returns the shards that it has made in `output_dir`."""
        ...


class _LocalRunner:
    """This machine, see `local_runner`."""

    storage = LocalStorage()
    open_file = storage.open_file

    def __init__(self, workers: Workers, progress: Progress) -> None:
        self._workers = workers
        self._progress = progress

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        for path in filter(is_remote, inputs):
            _refuse_remote(path)
        return self.storage.list_files(inputs)

    def survey(
        self, files: Sequence[CorpusFile], skip_header_lines: int
    ) -> Iterable[FileSurvey]:
        return survey_locally(
            files,
            skip_header_lines=skip_header_lines,
            workers=self._workers,
            progress=self._progress,
        )

    def run(
        self,
        plan: BuildPlan,
        tokenizer: Tokenizer,
        *,
        output_dir: str,
        work_dir: str,
    ) -> BuildResult:
        del tokenizer  # its processes load what was saved
        return run_local(
            plan,
            output_dir=output_dir,
            work_dir=work_dir,
            tokenizer_dir=os.path.join(output_dir, TOKENIZER_DIRECTORY),
            splitter_path=_splitter_path(output_dir, plan.config),
            workers=self._workers,
            progress=self._progress,
        )


@contextlib.contextmanager
def _local(
    output_dir: str,
    workers: int,
    options: Sequence[str],
    progress: Progress,
) -> Iterator[Runner]:
    if options:
        raise UserError(
            f"runner=local takes no options ({options[0]!r} was given); they "
            "are for runner=beam."
        )
    if is_remote(output_dir):
        _refuse_remote(output_dir)
    with Workers(workers) as pool:
        yield _LocalRunner(pool, progress)


def _refuse_remote(path: str) -> None:
    raise UserError(
        f"{path} is not on this machine; runner=beam reads and writes remote "
        "paths."
    )


@contextlib.contextmanager
def _beam(
    output_dir: str,
    workers: int,
    options: Sequence[str],
    progress: Progress,
) -> Iterator[Runner]:
    del progress  # Beam's own runners tell of it
    try:
        with _without_remarks():
            from data_prep.pretraining.beam_runner import BeamRunner
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "apache_beam":
            raise
        raise UserError(
            "runner=beam needs Apache Beam, which is not installed: pip "
            "install -r requirements-beam.txt."
        ) from None
    yield BeamRunner(output_dir, workers, options)


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Keeps Beam from telling which of its extras are not installed."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


# Each takes the output directory, the number of workers, options of its own
# and a progress display.
RUNNERS: dict[str, Callable[..., contextlib.AbstractContextManager[Runner]]] = {
    "local": _local,
    "beam": _beam,
}


@contextlib.contextmanager
def no_progress(unit: str) -> Iterator[Callable[..., None]]:
    """Gives a function that shows nothing."""
    del unit
    yield lambda done, total=None, **beside: None


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
    progress: Progress = no_progress,
    announce: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Returns the metadata of the shard directory that it writes.

    The same corpus, tokenizer and settings give the same bytes, whatever the
    runner and the number of workers. A directory that is finished already is
    left as it is; a build that was interrupted goes on where it was, as far
    as its runner can.

    Args:
        inputs: files, directories and globs, see `corpus.list_files`.
        output_dir: the directory to write, made if need be.
        tokenizer_dir: see `tokenizer.load_tokenizer`.
        config: how a corpus becomes records.
        masking: how `static` records are masked.
        eval_inputs: the corpus of the split `eval`.
        max_bad_fraction: the largest share of bad lines, see
            `corpus.CorpusReport`.
        workers: processes on this machine.
        runner: what carries the build out, a row of `RUNNERS`.
        runner_options: options for it, see `beam_runner`.
        progress: shows how far the work has come.
        announce: is called with a line for each hard-wrapped file, each
            warning and what is about to be written.

    Raises:
        UserError: for inputs that cannot be used, a directory begun with
            other settings, too little room on the disk, or a split that
            comes out empty.
    """
    if workers < 1:
        raise UserError(f"workers={workers} is below the least allowed, 1.")
    if runner not in RUNNERS:
        raise UserError(f"runner={runner!r} is none of {', '.join(RUNNERS)}.")
    lookup(SENTENCE_OBJECTIVES, config.sentence_objective, "sentence_objective")
    tokenizer = load_tokenizer(tokenizer_dir)
    with RUNNERS[runner](
        output_dir, workers, runner_options, progress
    ) as engine:
        storage = engine.storage
        sources = list_sources(
            inputs,
            eval_inputs,
            config,
            find_files=engine.list_files,
            open_file=engine.open_file,
        )
        _refuse_own_files(sources, output_dir)
        what = (sources, tokenizer, config, masking)
        survey = functools.partial(
            engine.survey, skip_header_lines=config.skip_header_lines
        )
        if METADATA_NAME in storage.sizes(output_dir):
            settings = plan_settings(*what, survey=survey)
            return _finished_metadata(storage, output_dir, settings)
        _check_free(storage, output_dir, config)
        _announce_wrapped(sources, announce)
        plan = make_plan(
            *what, survey=survey, max_bad_fraction=max_bad_fraction
        )
        for warning in plan.warnings:
            announce(warning)
        with _work_directory(storage, output_dir, plan) as work_dir:
            _check_room(plan, storage, output_dir, work_dir, announce)
            # Whoever trains on the shards needs the tokenizer too.
            _save_tokenizer(storage, output_dir, tokenizer)
            splitter_path = _splitter_path(output_dir, config)
            write_json(storage, splitter_path, plan.splitter_parameters)
            result = engine.run(
                plan, tokenizer, output_dir=output_dir, work_dir=work_dir
            )
            check_splits(plan, result)
            # A runner's second try may have left some.
            _remove_temporaries(storage, output_dir)
            metadata = make_metadata(plan, tokenizer, result)
            metadata_path = os.path.join(output_dir, METADATA_NAME)
            write_json(storage, metadata_path, metadata)
    storage.remove_directory(work_dir)
    return metadata


def _refuse_own_files(sources: Sequence[Source], output_dir: str) -> None:
    """Raises UserError if the corpus has files in the output directory."""
    own = os.path.join(os.path.realpath(output_dir), "")
    for file in (file for source in sources for file in source.files):
        if os.path.realpath(file.path).startswith(own):
            raise UserError(
                f"The input holds {file.path}, which is in the output "
                "directory; choose another output directory."
            )


def _check_free(
    storage: Storage, output_dir: str, config: PretrainingDataConfig
) -> None:
    """Raises UserError if a build would write over files it did not write.

    A build that was begun has a plan; without one nothing is a build's.
    """
    if os.path.isfile(output_dir):
        raise UserError(f"{output_dir} is a file; --output_dir is a directory.")
    there = storage.sizes(output_dir)
    work = storage.sizes(os.path.join(output_dir, _WORK_DIRECTORY))
    if _PLAN_FILE in work:
        return
    ours = {LOCK_FILE, *filter(_TEMPORARY.fullmatch, work)}
    splitter = os.path.basename(_splitter_path(output_dir, config))
    foreign = [
        *filter(_SHARD_PATTERN.fullmatch, there),
        *({splitter} & there.keys()),
        *(f"{_WORK_DIRECTORY}/{n}" for n in work if n not in ours),
        *(
            f"{TOKENIZER_DIRECTORY}/{n}"
            for n in storage.sizes(
                os.path.join(output_dir, TOKENIZER_DIRECTORY)
            )
        ),
    ]
    if foreign:
        raise UserError(
            f"{output_dir} holds {foreign[0]} but no {METADATA_NAME}; choose "
            "another output directory or empty this one."
        )


def _announce_wrapped(
    sources: Sequence[Source], announce: Callable[[str], None]
) -> None:
    """Announces the files that are read as hard-wrapped."""
    for file in (file for source in sources for file in source.files):
        if file.form == "wrapped":
            announce(
                f"{file.path} is hard-wrapped: it is read as one document of "
                "paragraphs between blank lines. With "
                "--document_separator=blank_line each block would be a "
                "document, each line a paragraph."
            )


def _splitter_path(output_dir: str, config: PretrainingDataConfig) -> str:
    return os.path.join(
        output_dir, _SPLITTER_FILE.format(config.sentence_splitter)
    )


def _save_tokenizer(
    storage: Storage, output_dir: str, tokenizer: Tokenizer
) -> None:
    with tempfile.TemporaryDirectory() as saved:
        tokenizer.save(saved)
        for name in sorted(os.listdir(saved)):
            with open(os.path.join(saved, name), "rb") as file:
                data = file.read()
            path = os.path.join(output_dir, TOKENIZER_DIRECTORY, name)
            storage.write(path, lambda file, data=data: file.write(data))


def make_metadata(
    plan: BuildPlan, tokenizer: Tokenizer, result: BuildResult
) -> dict[str, Any]:
    """Returns what metadata.json says of a finished build."""
    config = plan.config
    splits = {
        split: {
            "num_records": sum(shard.num_records for shard in shards),
            "shards": [dataclasses.asdict(shard) for shard in shards],
        }
        for split, shards in sorted(result.shards.items())
    }
    return {
        "format_version": FORMAT_VERSION,
        "record_kind": config.record_kind,
        "sentence_objective": config.sentence_objective,
        "max_seq_length": config.max_seq_length,
        "num_slots": num_slots(config, plan.masking),
        "random_seed": config.random_seed,
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": splits,
        "statistics": statistics(plan, result.counts),
        "settings": plan.settings,
    }


def check_splits(plan: BuildPlan, result: BuildResult) -> None:
    """Raises UserError if a split that was asked for has no record."""
    config, counts = plan.config, result.counts
    for split in sorted(plan.record_bytes, reverse=True):
        if any(shard.num_records for shard in result.shards[split]):
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


@contextlib.contextmanager
def _work_directory(
    storage: Storage, output_dir: str, plan: BuildPlan
) -> Iterator[str]:
    """Gives the directory for what lies between corpus and shards.

    It stands while the output directory is unfinished, and marks it as this
    program's.

    Raises:
        UserError: if the output directory cannot be used: it was begun with
            other settings, or another build is at work in it.
    """
    work_dir = os.path.join(output_dir, _WORK_DIRECTORY)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(storage.hold(work_dir))
        except OSError as error:
            raise UserError(
                f"{output_dir} cannot be written: {error.strerror}."
            ) from None
        _check_begun(storage, output_dir, work_dir, plan)
        tokenizer_dir = os.path.join(output_dir, TOKENIZER_DIRECTORY)
        _remove_temporaries(storage, work_dir, _TEMPORARY)
        for directory in (output_dir, tokenizer_dir):
            _remove_temporaries(storage, directory)
        try:
            yield work_dir
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            needed = _needed(plan, storage, output_dir, work_dir)
            raise UserError(
                f"{error.filename or output_dir}: {error.strerror}; about "
                f"{_size(needed)} more are needed, "
                f"{_size(storage.free_bytes(output_dir) or 0)} are free. Make "
                "room and start the same command again: it goes on where it "
                "stopped."
            ) from None


def _remove_temporaries(
    storage: Storage, directory: str, pattern: re.Pattern[str] = _UNFINISHED
) -> None:
    """Removes what was not finished when a build was stopped.

    Only of files that a build writes: others may be somebody's.
    """
    names = filter(pattern.fullmatch, storage.sizes(directory))
    storage.remove([os.path.join(directory, name) for name in names])


def _check_begun(
    storage: Storage, output_dir: str, work_dir: str, plan: BuildPlan
) -> None:
    """Raises UserError if a build was begun here with another plan."""
    ours = {
        "settings": plan.settings,
        "partition": plan.partition.to_json(),
        "unit_characters": plan.unit_characters,
        "num_groups": plan.num_groups,
    }
    path = os.path.join(work_dir, _PLAN_FILE)
    if _PLAN_FILE not in storage.sizes(work_dir):
        write_json(storage, path, ours)
        return
    changes = differences(ours, read_json(storage, path))
    if changes:
        raise UserError(
            f"{output_dir} was begun with other settings "
            f"({'; '.join(changes)}); choose another output directory or "
            "remove this one."
        )


def _finished_metadata(
    storage: Storage, output_dir: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a finished directory's metadata.

    Raises:
        UserError: if it was finished with other settings.
    """
    metadata = read_json(storage, os.path.join(output_dir, METADATA_NAME))
    changes = differences(settings, metadata.get("settings", {}))
    if metadata.get("format_version") != FORMAT_VERSION:
        changes.append(f"format_version: {FORMAT_VERSION} here")
    if changes:
        raise UserError(
            f"{output_dir} is finished with other settings "
            f"({'; '.join(changes)}); choose another output directory or "
            "remove this one."
        )
    # Left when a run was stopped between its last two acts.
    storage.remove_directory(os.path.join(output_dir, _WORK_DIRECTORY))
    return metadata


def _check_room(
    plan: BuildPlan,
    storage: Storage,
    output_dir: str,
    work_dir: str,
    announce: Callable[[str], None],
) -> None:
    """Announces how much will be written; raises UserError if it is too much.

    The parts that lie between corpus and shards are as large as the shards;
    with the rest of the work they are removed at the end.
    """
    num_shards = sum(plan.partition.num_shards.values())
    records = (
        f"About {_size(plan.total_bytes)} of records in {num_shards} shards"
    )
    free = storage.free_bytes(output_dir)
    if free is None:
        announce(f"{records}.")
        return
    whole = 2 * plan.total_bytes + plan.other_bytes
    needed = _needed(plan, storage, output_dir, work_dir)
    announce(
        f"{records}; about {_size(whole)} on disk while at work, "
        f"{_size(free)} are free."
    )
    if needed > free:
        raise UserError(
            f"{output_dir} needs about {_size(needed)} while at work "
            f"and has {_size(free)} free; choose another output directory, a "
            "smaller dupe_factor or record_kind=dynamic."
        )


def _needed(
    plan: BuildPlan, storage: Storage, output_dir: str, work_dir: str
) -> float:
    """Returns how many bytes a build will still write, about."""
    there = sum(storage.sizes(work_dir).values()) + sum(
        size
        for name, size in storage.sizes(output_dir).items()
        if _SHARD_PATTERN.fullmatch(name)
    )
    return max(0, 2 * plan.total_bytes + plan.other_bytes - there)


def _size(num_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
