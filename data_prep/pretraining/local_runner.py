"""Carries out a build plan on this machine, in one process or several.

This process reads the corpus and hands out units of work; each becomes a part
on disk (`record_parts`). Then the shards are gathered from the parts. A killed
build resumes with the parts and shards that it had finished.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.config import MaskingConfig, PretrainingDataConfig, require
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.io.workers import Workers
from albert_tf.records.shards import ShardInfo, write_shard
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data_prep.corpus.duplicates import remove_duplicates
from data_prep.corpus.forms import CorpusFile
from data_prep.corpus.listing import list_files
from data_prep.corpus.near_duplicates import remove_near_duplicates
from data_prep.corpus.reading import FileSurvey, UnitDocument, survey_files
from data_prep.corpus.sample import CorpusSample
from data_prep.pretraining.build_directory import (
    BuildDirectory,
    BuildResult,
    is_intact,
    read_build_json,
)
from data_prep.pretraining.build_plan import BuildPlan, group_of, read_corpus
from data_prep.pretraining.document_groups import in_groups
from data_prep.pretraining.record_maker import RecordMaker
from data_prep.pretraining.record_parts import (
    Partition,
    read_part,
    shard_records,
    write_part,
)
from data_prep.progress import Progress


class LocalRunner(contextlib.AbstractContextManager):
    """Runs builds on this machine."""

    files = files  # reach the output directory, see `BuildDirectory`
    open_file = staticmethod(open)  # reads the corpus, as it is stored

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

    def list_files(
        self, inputs: Sequence[str], left_out: set[str]
    ) -> list[str]:
        """Returns the text files that `inputs` name; see `listing`."""
        for path in inputs:
            _check_local(path)
        return list_files(inputs, left_out)

    def survey(
        self, corpus: Sequence[CorpusFile]
    ) -> tuple[list[FileSurvey], CorpusSample]:
        """Returns the survey of each file, and one sample of all."""
        return survey_files(corpus, self._progress, self._workers.map)

    def run(
        self, plan: BuildPlan, tokenizer: Tokenizer, directory: BuildDirectory
    ) -> BuildResult:
        """Writes the shards and the result."""
        del tokenizer  # worker processes load what was saved
        pairs: list[dict[str, Any]] = []
        counts, runs = self._make_parts(plan, directory, pairs)
        shards = self._make_shards(plan, directory, runs)
        result = {"shards": shards, "counts": counts, "near_pairs": pairs}
        write_json(directory.result_path, result)
        return BuildResult.from_json(result)

    def _make_parts(
        self,
        plan: BuildPlan,
        directory: BuildDirectory,
        pairs: list[dict[str, Any]],
    ) -> tuple[Counter[str], list[str]]:
        """Writes the parts that are missing; returns counts and runs of all.

        Near-duplicates are added to `pairs`.
        """
        work_dir = directory.work_path
        # Files at the same paths may have been replaced.
        _record_maker.cache_clear()
        maker = functools.partial(
            _record_maker,
            directory.tokenizer_path,
            directory.splitter_path,
            plan.config,
            plan.masking,
        )
        make = functools.partial(_make_part, maker, work_dir, plan.partition)
        totals: Counter[str] = Counter()
        all_runs: list[str] = []
        done = 0
        items = _kept_documents(
            plan, work_dir, totals, pairs, self._workers.map
        )
        units = enumerate(_units_as_read(items, plan, work_dir))
        with self._progress("characters") as show:
            for num_characters, counts, runs in self._workers.map(make, units):
                totals.update(counts)
                all_runs += runs
                done += num_characters
                sums = {
                    name: sum(totals[f"{s}/{name}"] for s in plan.record_bytes)
                    for name in ("documents", "instances")
                }
                show(done, plan.num_characters, **sums)
        return totals, all_runs

    def _make_shards(
        self, plan: BuildPlan, directory: BuildDirectory, runs: Sequence[str]
    ) -> list[dict[str, Any]]:
        """Writes the shards that are missing; returns the entries of all."""
        numbered = plan.partition.shards()
        make = functools.partial(
            _shard_of_runs,
            plan.partition,
            runs,
            directory.path,
            directory.work_path,
        )
        shards: list[dict[str, Any]] = []
        with self._progress("shards") as show:
            for entry in self._workers.map(make, numbered):
                shards.append(entry)
                show(len(shards), len(numbered))
        return shards


def _check_local(path: str) -> None:
    require(
        not files.is_remote(path),
        f"{path} is not on this machine; runner=beam reads and writes remote "
        "paths.",
    )


@functools.lru_cache(maxsize=1)
def _record_maker(
    tokenizer_dir: str,
    splitter_path: str,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> RecordMaker:
    """Returns the maker of a build's records, made once in a process."""
    parameters = read_build_json(splitter_path)
    tokenizer = load_tokenizer(tokenizer_dir)
    return RecordMaker.with_splitter(parameters, tokenizer, config, masking)


def _make_part(
    maker: Callable[[], RecordMaker],
    work_dir: str,
    partition: Partition,
    unit: tuple[int, list[UnitDocument]],
) -> tuple[int, Counter[str], list[str]]:
    """Writes a unit's part unless an earlier run has.

    Returns the unit's characters, and counts and runs of the part.
    """
    number, documents = unit
    # The text may have been another for a while, which reading it to its end
    # would have found.
    content = json.dumps(documents).encode()
    digest = hashlib.blake2b(content, digest_size=16).hexdigest()
    part = read_part(work_dir, number, digest)
    if part is None:
        counts: Counter[str] = Counter()
        batches = maker()(documents, counts)
        runs = write_part(work_dir, number, partition, batches, counts, digest)
        part = counts, runs
    return sum(item.num_characters for item in documents), *part


def _kept_documents(
    plan: BuildPlan,
    work_dir: str,
    totals: Counter[str],
    pairs: list[dict[str, Any]],
    map_batches: Callable[..., Iterable[Any]],
) -> Iterator[UnitDocument]:
    """Returns the documents of a corpus, without duplicates."""
    read = functools.partial(read_corpus, plan)
    level = plan.config.remove_duplicates
    if level == "none":
        return read()
    if level == "near_documents":
        return remove_near_duplicates(
            read,
            plan.config.near_duplicate_threshold,
            work_dir,
            totals,
            pairs=pairs,
            map_batches=map_batches,
        )
    return remove_duplicates(read(), level, work_dir, totals)


def _units_as_read(
    items: Iterator[UnitDocument], plan: BuildPlan, work_dir: str
) -> Iterator[list[UnitDocument]]:
    """Yields the documents of each unit of work.

    As they are read, nothing on disk, unless they are in groups.
    """
    if plan.num_groups:
        group = functools.partial(group_of, plan=plan)
        number = max(plan.num_groups.values())
        yield from in_groups(items, group, number, work_dir)
        return
    unit: list[UnitDocument] = []
    size = 0
    for item in items:
        unit.append(item)
        size += item.num_characters
        if size >= plan.unit_characters:
            yield unit
            unit, size = [], 0
    if unit:
        yield unit


def _shard_of_runs(
    partition: Partition,
    runs: Sequence[str],
    output_dir: str,
    work_dir: str,
    split_and_number: tuple[str, int],
) -> dict[str, Any]:
    """Gathers a shard of runs on disk unless it is there; returns its entry."""
    name = partition.shard_name(*split_and_number)
    entry_path = os.path.join(work_dir, f"{name}.json")
    if os.path.exists(entry_path):
        entry = read_build_json(entry_path)
        if is_intact(output_dir, ShardInfo(**entry)):
            return entry
    records = shard_records(runs, partition, *split_and_number)
    info = write_shard(os.path.join(output_dir, name), records)
    entry = dataclasses.asdict(info)
    write_json(entry_path, entry)
    return entry
