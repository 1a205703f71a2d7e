"""Checks a directory of pretraining shards: files, records, counts.

Main entry: `verify_directory`. The files are compared with metadata.json and
their checksums, every record with `record_checks`, and the sums over all
records with the counts in metadata.json.
"""

import concurrent.futures
import functools
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.records.schemas import Namer, namer_of
from albert_tf.records.shards import (
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    describe_tokenizer,
    named_shards,
    open_shards,
    read_metadata,
)
from albert_tf.records.tfrecord import read_records
from data_prep.progress import Progress, no_progress
from data_prep.shard_tools.record_checks import check_records, count_records
from data_prep.shard_tools.record_rules import RecordRules, read_rules

# Records checked at a time: few enough for the work arrays to stay in a cache.
_BATCH = 128
_MAX_EXAMPLES = 10

TOKENIZER = "the tokenizer is the one that metadata.json describes"
SHARDS = "shards are as metadata.json says: names, sizes, sha256, records"
STRAY_SHARDS = "metadata.json names every shard of the directory"
CHECKSUMS = "the checksums within the shards are right"
SCHEMA = "records have the features of their kind, in their lengths"
STATISTICS = "the counts in metadata.json are those of the records"


class VerificationReport:
    """How often each check has failed, by its name, with the first failures."""

    def __init__(self, checks: Iterable[str] = ()) -> None:
        self.failures = Counter(dict.fromkeys(checks, 0))
        self.examples: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()  # counts of the records
        self.num_records = 0

    def add(self, check: str, examples: Iterable[str], count: int = 1) -> None:
        """Counts failures of a check; reads only the examples it shows."""
        self.failures[check] += count
        shown = self.examples.setdefault(check, [])
        shown += itertools.islice(examples, _MAX_EXAMPLES - len(shown))

    def merge(self, other: "VerificationReport") -> None:
        """Adds what another report has found."""
        for check, count in other.failures.items():
            self.add(check, other.examples.get(check, ()), count)
        self.counts.update(other.counts)
        self.num_records += other.num_records

    @property
    def failed(self) -> list[str]:
        """The names of the checks that have failed."""
        return [check for check, count in self.failures.items() if count]

    @property
    def ok(self) -> bool:
        """True if no check has failed."""
        return not self.failed

    def lines(self) -> list[str]:
        """Returns the report for printing."""
        lines = [f"Records checked: {self.num_records}."]
        for check, count in self.failures.items():
            if not count:
                lines.append(f"ok: {check}.")
                continue
            examples = self.examples[check]
            lines.append(f"FAILED: {check}: {count} times.")
            lines += [f"  {example}" for example in examples]
            if count > len(examples):
                lines.append(f"  ... and {count - len(examples)} more")
        total = len(self.failures)
        if self.ok:
            return [*lines, f"All {total} checks have passed."]
        return [*lines, f"{len(self.failed)} of {total} checks have failed."]


def verify_directory(
    directory: str | os.PathLike[str], progress: Progress = no_progress
) -> VerificationReport:
    """Returns the outcome of all checks of a shard directory.

    Raises:
        UserError: if there is nothing to check: the directory is missing or
            unfinished, or its metadata.json or tokenizer cannot be read.
    """
    directory = os.fspath(directory)
    metadata = read_metadata(directory)
    rules = read_rules(directory, metadata)
    splits = named_shards(directory, metadata)
    report = VerificationReport([TOKENIZER, SHARDS, STRAY_SHARDS, CHECKSUMS])
    _check_tokenizer(report, metadata, rules)
    named = {info.name for infos in splits.values() for info in infos}
    for name in files.listdir(directory):
        if name.endswith(".tfrecord") and name not in named:
            report.add(STRAY_SHARDS, [os.path.join(directory, name)])
    check = functools.partial(_check_shard, rules=rules)
    num_done = 0
    with (
        progress("shards") as show,
        # NumPy and TensorFlow let other threads work beside them.
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for split, infos in splits.items():
            of_split = VerificationReport()
            paths = [os.path.join(directory, info.name) for info in infos]
            for of_shard in pool.map(check, paths):
                of_split.merge(of_shard)
                num_done += 1
                show(num_done, len(named))
            try:
                open_shards(directory, split).close()
            except UserError as error:
                of_split.add(SHARDS, [str(error)])
            statistics = metadata.get("statistics", {}).get(split, {})
            _compare_counts(of_split, split, statistics)
            report.merge(of_split)
    return report


def _check_tokenizer(
    report: VerificationReport, metadata: Mapping[str, Any], rules: RecordRules
) -> None:
    described = metadata.get("tokenizer", {})
    for name, value in describe_tokenizer(rules.tokenizer).items():
        if value != (other := described.get(name)):
            example = (
                f"{name}: {value!r} in {TOKENIZER_DIRECTORY}, {other!r} in "
                f"{METADATA_NAME}"
            )
            report.add(TOKENIZER, [example])


def _compare_counts(
    report: VerificationReport, split: str, statistics: Mapping[str, float]
) -> None:
    report.add(STATISTICS, [], 0)
    for name, count in report.counts.items():
        if statistics.get(name, count) != count:
            example = (
                f"{split}: {name} {statistics[name]} in {METADATA_NAME}, "
                f"{count} in the records"
            )
            report.add(STATISTICS, [example])


def _check_shard(path: str, *, rules: RecordRules) -> VerificationReport:
    """Reads a shard to its end, or to where it is damaged."""
    report = VerificationReport([SCHEMA])
    records = read_records(path)
    while True:
        serialized: list[bytes] = []
        try:
            serialized.extend(itertools.islice(records, _BATCH))
        except UserError as error:
            report.add(CHECKSUMS, [str(error)])
        if not serialized:
            return report
        namer = namer_of(path, report.num_records)
        report.num_records += len(serialized)
        numbers, features = _parse(serialized, namer, rules, report)
        if not numbers:
            continue
        report.counts.update(count_records(features))
        for check in check_records(features, rules):
            failed = check.failed_records()
            examples = (
                f"{namer(numbers[n])}: {check.describe(n)}" for n in failed
            )
            report.add(check.statement, examples, len(failed))


def _parse(
    serialized: Sequence[bytes],
    namer: Namer,
    rules: RecordRules,
    report: VerificationReport,
) -> tuple[Sequence[int], dict[str, np.ndarray]]:
    """Returns the numbers of the records that can be parsed, and these."""
    try:
        return range(len(serialized)), rules.parse(serialized, namer)
    except UserError:
        pass
    # One by one shows all that fail.
    sound = []
    for number, record in enumerate(serialized):
        try:
            rules.parse([record], lambda _, number=number: namer(number))
            sound.append(number)
        except UserError as error:
            report.add(SCHEMA, [str(error)])
    good = [serialized[number] for number in sound]
    return sound, rules.parse(good, namer) if good else {}
