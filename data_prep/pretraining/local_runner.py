"""Carries out a build plan on this machine, in one process or several.

This process reads the corpus and hands out units of work; each becomes a part
on disk (`record_parts`). Then the shards are made of the parts. A killed build
resumes with the parts and shards that it had finished.
"""

import contextlib
import dataclasses
import functools
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from albert_tf.config import MaskingConfig, PretrainingDataConfig, require
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.records.shards import ShardInfo, write_shard
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data_prep.corpus.duplicates import remove_duplicates
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.listing import list_files
from data_prep.corpus.reading import FileSurvey, UnitDocument, survey_file
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import SENTENCE_SPLITTERS
from data_prep.pretraining.build_directory import (
    BuildDirectory,
    BuildResult,
    is_intact,
)
from data_prep.pretraining.build_plan import BuildPlan, group_of, read_corpus
from data_prep.pretraining.document_groups import in_groups
from data_prep.pretraining.record_maker import RecordMaker
from data_prep.pretraining.record_parts import (
    Partition,
    PartWriter,
    list_runs,
    part_counts,
    shard_records,
)
from data_prep.workers import Workers

# `show = progress(unit)` as a context; `show(done, total, name=number, ...)`.
Progress = Callable[[str], contextlib.AbstractContextManager[Callable]]


class LocalRunner(contextlib.AbstractContextManager):
    """Runs builds on this machine."""

    files = files  # reach the output directory, see `BuildDirectory`
    open_file = staticmethod(open)  # of the corpus, as it is stored

    def __init__(
        self,
        output_dir: str,
        workers: int,
        options: Sequence[str],
        progress: Progress,
    ) -> None:
        require(
            not options,
            f"runner=local takes no options ({', '.join(options)}); they are "
            "for runner=beam.",
        )
        _check_local(output_dir)
        self._workers = Workers(workers)
        self._progress = progress

    def __exit__(self, *error: object) -> None:
        self._workers.__exit__(*error)

    def list_files(self, inputs: Sequence[str]) -> list[str]:
        """Returns the text files that `inputs` name."""
        for path in inputs:
            _check_local(path)
        return list_files(inputs)

    def survey(
        self, corpus: Sequence[CorpusFile]
    ) -> tuple[list[FileSurvey], CorpusSample]:
        """Returns the survey of each file, and one sample of all."""
        surveys: list[FileSurvey] = []
        sample = CorpusSample()
        with self._progress("files read") as show:
            for survey, of_file in self._workers.map(survey_file, corpus):
                surveys.append(survey)
                sample.merge(of_file)
                show(len(surveys), len(corpus))
        return surveys, sample

    def run(
        self, plan: BuildPlan, tokenizer: Tokenizer, directory: BuildDirectory
    ) -> BuildResult:
        """Writes the shards and the result."""
        del tokenizer  # worker processes load what was saved
        counts = self._make_parts(plan, directory)
        result = BuildResult(self._make_shards(plan, directory), counts)
        write_json(directory.result_path, result.to_json())
        return result

    def _make_parts(
        self, plan: BuildPlan, directory: BuildDirectory
    ) -> Counter[str]:
        """Returns the counts of all parts, once all are on disk."""
        settings = _MakerSettings(
            uuid.uuid4().hex,
            directory.tokenizer_path,
            directory.splitter_path,
            plan.config,
            plan.masking,
        )
        make = functools.partial(
            _make_part, settings, directory.work_path, plan.partition
        )
        totals: Counter[str] = Counter()
        done = 0
        units = _units(plan, directory.work_path, totals)
        with self._progress("characters") as show:
            for num_characters, counts in self._workers.map(make, units):
                totals.update(counts)
                done += num_characters
                sums = {
                    name: sum(totals[f"{s}/{name}"] for s in plan.record_bytes)
                    for name in ("documents", "instances")
                }
                show(done, plan.num_characters, **sums)
        return totals

    def _make_shards(
        self, plan: BuildPlan, directory: BuildDirectory
    ) -> list[ShardInfo]:
        """Returns the accounts of all shards."""
        numbered = plan.partition.shards()
        make = functools.partial(
            _make_shard,
            plan.partition,
            list_runs(directory.work_path),
            directory.path,
            directory.work_path,
        )
        shards: list[ShardInfo] = []
        with self._progress("shards") as show:
            for info in self._workers.map(make, numbered):
                shards.append(info)
                show(len(shards), len(numbered))
        return shards


def _check_local(path: str) -> None:
    require(
        not files.is_remote(path),
        f"{path} is not on this machine; runner=beam reads and writes remote "
        "paths.",
    )


class _MakerSettings(NamedTuple):
    """What a process needs to make itself a `RecordMaker`."""

    build: str  # unique: files at the same paths may have been replaced
    tokenizer_dir: str
    splitter_path: str
    config: PretrainingDataConfig
    masking: MaskingConfig


@functools.lru_cache(maxsize=1)
def _record_maker(settings: _MakerSettings) -> RecordMaker:
    """Returns the maker of a build, made once in a process."""
    with open(settings.splitter_path, encoding="utf-8") as file:
        parameters = json.load(file)
    splitter = SENTENCE_SPLITTERS[settings.config.sentence_splitter]
    return RecordMaker(
        load_tokenizer(settings.tokenizer_dir),
        splitter.from_json(parameters),
        settings.config,
        settings.masking,
    )


class _Unit(NamedTuple):
    number: int
    num_characters: int
    documents: list[UnitDocument]
    counts: Counter[str] | None  # of its part, if that is finished


def _make_part(
    settings: _MakerSettings, work_dir: str, partition: Partition, unit: _Unit
) -> tuple[int, Counter[str]]:
    """Returns a unit's size and counts, once its part is on disk."""
    counts = unit.counts
    if counts is None:
        counts = Counter()
        writer = PartWriter(work_dir, unit.number, partition)
        for batch in _record_maker(settings)(unit.documents, counts):
            writer.add(batch)
        writer.finish(counts)
    return unit.num_characters, counts


def _units(
    plan: BuildPlan, work_dir: str, totals: Counter[str]
) -> Iterator[_Unit]:
    """Yields the corpus in units of work; finished ones come empty."""
    for number, documents in enumerate(_portions(plan, work_dir, totals)):
        num_characters = sum(map(_num_characters, documents))
        counts = part_counts(work_dir, number)
        if counts is not None:
            documents = []
        yield _Unit(number, num_characters, documents, counts)


def _num_characters(item: UnitDocument) -> int:
    return sum(map(len, item.paragraphs))


def _portions(
    plan: BuildPlan, work_dir: str, totals: Counter[str]
) -> Iterator[list[UnitDocument]]:
    """Yields the documents of each unit, without duplicates."""
    read = functools.partial(read_corpus, plan)
    level = plan.config.remove_duplicates
    if level == "none":
        items = read()
    else:
        items = remove_duplicates(read, level, work_dir, totals)
    if plan.num_groups:
        group = functools.partial(group_of, plan=plan)
        yield from in_groups(items, group, plan.num_groups, work_dir)
        return
    portion: list[UnitDocument] = []
    size = 0
    for item in items:
        portion.append(item)
        size += _num_characters(item)
        if size >= plan.unit_characters:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _make_shard(
    partition: Partition,
    runs: Sequence[str],
    output_dir: str,
    work_dir: str,
    split_and_number: tuple[str, int],
) -> ShardInfo:
    """Returns the account of a shard, once it is on disk."""
    name = partition.shard_name(*split_and_number)
    account = os.path.join(work_dir, f"{name}.json")
    if os.path.exists(account):
        info = ShardInfo(**read_json(account))
        if is_intact(output_dir, info):
            return info
    path = os.path.join(output_dir, name)
    info = write_shard(path, shard_records(runs, partition, *split_and_number))
    write_json(account, dataclasses.asdict(info))
    return info
