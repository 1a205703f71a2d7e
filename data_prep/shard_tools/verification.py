"""Checks a directory of pretraining shards: files, every record, the whole.

Main entry: `verify_directory`. The files are compared with metadata.json and
their checksums; every record with `records.invariants`; and random draws with
their probabilities, within bounds of chance.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import UserError
from albert_tf.io import files
from albert_tf.records.invariants import INVARIANTS, Invariant, invariants_for
from albert_tf.records.parsed_batch import (
    STATIC,
    ParsedBatch,
    RecordRules,
    read_rules,
)
from albert_tf.records.schemas import Namer, namer_of
from albert_tf.records.shards import (
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    ShardInfo,
    describe_tokenizer,
    named_shards,
    open_shards,
    read_metadata,
    shard_name,
)
from albert_tf.records.tfrecord import read_records
from data_prep.workers import Progress, no_progress

# Records judged at a time: few enough for the work arrays to stay in a cache.
_BATCH = 128
_MAX_EXAMPLES = 10
# Standard deviations that a share may be away from its probability.
_DEVIATIONS = 5.0

TOKENIZER = "the tokenizer is the one that metadata.json describes"
SHARDS = "shards are as metadata.json says: names, sizes, sha256, records"
STRAY_SHARDS = "metadata.json names every shard of the directory"
CHECKSUMS = "the checksums within the shards are right"
SCHEMA = "records have the features of their kind, in their lengths"
STATISTICS = "the counts in metadata.json are those of the records"


# Shares that are drawn at random: of the masked tokens, with their names among
# the counts and their probabilities, and of the labels.
MASKING_SHARES = {
    "80% of the masked tokens are [MASK]": ("as_mask", 0.8),
    "10% of the masked tokens stay": ("as_is", 0.1),
    "10% of the masked tokens are random": ("as_random", 0.1),
}
LABEL_SHARE = "half of the labels are drawn as 1"
# Shares of fewer are not judged.
_MIN_MASKED_TOKENS, _MIN_LABELS = 1000, 200


@dataclasses.dataclass
class VerificationReport:
    """The outcome of every check of a directory.

    Attributes:
        num_records: records by split.
        checks: names of the checks made, in order.
        failures: how often each check has failed.
        examples: the first failures of each.
        ours_only: checks that only our builder passes, not that of
            google-research/albert; empty unless the records are imported.
        notes: further lines, for information.
    """

    directory: str
    num_records: dict[str, int] = dataclasses.field(default_factory=dict)
    checks: list[str] = dataclasses.field(default_factory=list)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)
    examples: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    ours_only: set[str] = dataclasses.field(default_factory=set)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, name: str, examples: Iterable[str], count: int = 1) -> None:
        """Counts failures of a check; reads only the examples it shows."""
        self.failures[name] += count
        shown = self.examples.setdefault(name, [])
        shown += itertools.islice(examples, _MAX_EXAMPLES - len(shown))

    def merge(self, other: "VerificationReport") -> None:
        """Adds the failures of another report."""
        for name, count in other.failures.items():
            self.add(name, other.examples[name], count)

    @property
    def failed(self) -> list[str]:
        """The names of the checks that have failed."""
        return [n for n in self.failures if n not in self.ours_only]

    @property
    def ok(self) -> bool:
        """True if no check has failed."""
        return not self.failed

    def lines(self) -> list[str]:
        """Returns the report for printing."""
        records = ", ".join(
            f"{split} {count}" for split, count in self.num_records.items()
        )
        lines = [f"{self.directory}: records checked: {records}."]
        checks = list(dict.fromkeys(self.checks))
        for name in checks:
            count = self.failures[name]
            if not count:
                lines.append(f"ok: {name}.")
                continue
            is_failed = name not in self.ours_only
            verdict = "FAILED" if is_failed else "differs from ours"
            examples = self.examples[name]
            lines.append(f"{verdict}: {name}: {count} times.")
            lines += [f"  {example}" for example in examples]
            if count > len(examples):
                lines.append(f"  ... and {count - len(examples)} more")
        total = len(checks)
        summary = f"All {total} checks have passed."
        if self.failed:
            summary = f"{len(self.failed)} of {total} checks have failed."
        return [*lines, *self.notes, summary]


def verify_directory(
    directory: str | os.PathLike[str], progress: Progress = no_progress
) -> VerificationReport:
    """Returns the outcome of all checks of a shard directory.

    Imported records need not pass the checks that google-research/albert's
    own fail; their differences are reported beside the others.

    Raises:
        UserError: if there is nothing to check: the directory is missing or
            unfinished, or its metadata.json or tokenizer cannot be read.
    """
    directory = os.fspath(directory)
    metadata = read_metadata(directory)
    rules = read_rules(directory, metadata)
    splits = named_shards(directory, metadata)
    report = VerificationReport(directory)
    if "imported_files" in metadata.get("settings", {}):
        report.ours_only.update(
            row.name for row in INVARIANTS if not row.of_original
        )
        # There a document of one chunk always gets 1.
        report.ours_only.add(LABEL_SHARE)
    described = metadata.get("tokenizer", {})
    for name, value in describe_tokenizer(rules.tokenizer).items():
        if value != (other := described.get(name)):
            example = (
                f"{name}: {value!r} in {TOKENIZER_DIRECTORY}, {other!r} in "
                f"{METADATA_NAME}"
            )
            report.add(TOKENIZER, [example])
    _check_names(report, splits)
    invariants = invariants_for(rules)
    report.checks += [TOKENIZER, SHARDS, STRAY_SHARDS, CHECKSUMS, SCHEMA]
    report.checks += [*(row.name for row in invariants), STATISTICS]
    total = sum(info.num_records for infos in splits.values() for info in infos)
    lock, done = threading.Lock(), 0
    with (
        progress("records") as show,
        # NumPy and TensorFlow let other threads work beside them.
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):

        def add_to_shown(number: int) -> None:
            nonlocal done
            with lock:
                done += number
                show(done, total)

        check = functools.partial(
            _check_shard, rules=rules, invariants=invariants, count=add_to_shown
        )
        for split, infos in splits.items():
            paths = [os.path.join(directory, info.name) for info in infos]
            results = list(pool.map(check, paths))
            try:
                open_shards(directory, split).close()
            except UserError as error:
                report.add(SHARDS, [str(error)])
            counts = Counter[str]()
            for of_shard, found, _ in results:
                report.merge(of_shard)
                counts.update(found)  # a sum would drop those of 0
            digests = np.concatenate([digests for _, _, digests in results])
            report.num_records[split] = len(digests)
            statistics = metadata.get("statistics", {}).get(split, {})
            for name, count in counts.items():
                if statistics.get(name, count) != count:
                    example = (
                        f"{split}: {name} {statistics[name]} in "
                        f"{METADATA_NAME}, {count} in the records"
                    )
                    report.add(STATISTICS, [example])
            _check_shares(report, split, counts, statistics, rules)
            # Not a check: short documents of the same text make equal records.
            repeated = len(digests) - len(np.unique(digests))
            report.notes.append(
                f"{split}: {repeated} of {len(digests)} records repeat another "
                "one, byte for byte (not judged: texts may repeat)."
            )
    if rules.kind == STATIC and rules.masking is None:
        report.notes.append(
            "Not judged: budgets and whole words; metadata.json does not say "
            "how the records were masked."
        )
    return report


def _check_names(
    report: VerificationReport, splits: Mapping[str, Sequence[ShardInfo]]
) -> None:
    """Reports shards that metadata.json does not name, or names wrongly."""
    named = set()
    for split, infos in splits.items():
        for number, info in enumerate(infos):
            named.add(info.name)
            expected = shard_name(split, number, len(infos))
            if info.name != expected:
                example = f"{info.name!r} in {METADATA_NAME}, not {expected}"
                report.add(SHARDS, [example])
    for name in files.listdir(report.directory):
        if name.endswith(".tfrecord") and name not in named:
            path = os.path.join(report.directory, name)
            report.add(STRAY_SHARDS, [path])


def _check_shard(
    path: str,
    *,
    rules: RecordRules,
    invariants: Sequence[Invariant],
    count: Callable[[int], None],
) -> tuple[VerificationReport, Counter[str], np.ndarray]:
    """Reads a shard to its end, or to where it is damaged.

    Returns the failures, the counts, and 64 bits of a hash of each record:
    among ten million the chance that two share them is 3 in a million.
    """
    report, counts = VerificationReport(path), Counter[str]()
    digests = bytearray()
    records = read_records(path)
    while True:
        serialized: list[bytes] = []
        try:
            serialized.extend(itertools.islice(records, _BATCH))
        except UserError as error:
            report.add(CHECKSUMS, [str(error)])
        if not serialized:
            break
        namer = namer_of(path, len(digests) // 8)
        numbers, columns = _parse(serialized, namer, rules, report)
        if numbers:
            batch = ParsedBatch(columns, rules)
            for row in invariants:
                wrong = row.broken(batch)
                broken = wrong.records()
                examples = (
                    f"{namer(numbers[n])}: {wrong.describe(n)}" for n in broken
                )
                if len(broken):
                    report.add(row.name, examples, len(broken))
            counts.update(batch.counts())
        for record in serialized:
            digests += hashlib.blake2b(record, digest_size=8).digest()
        count(len(serialized))
    return report, counts, np.frombuffer(digests, "<u8")


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


def _check_shares(
    report: VerificationReport,
    split: str,
    counts: Counter[str],
    statistics: Mapping[str, Any],
    rules: RecordRules,
) -> None:
    """Compares random draws with their probabilities."""
    shares = []
    if rules.kind == STATIC:
        masked = counts["masked_tokens"]
        shares += [
            (name, counts[f"masked_tokens/{drawn}"], masked, probability)
            for name, (drawn, probability) in MASKING_SHARES.items()
        ]
    if len(rules.objective.label_words) == 2:
        # Drawn as 1 and made 0, as there was no other document to take it from.
        in_vain = statistics.get("without_other_document", 0)
        drawn = counts["label_1"] + in_vain
        shares.append((LABEL_SHARE, drawn, counts["instances"], 0.5))
    # A random piece may be the same as before, or, in the original, [MASK].
    coincidence = 0.1 / len(rules.tokenizer.replacement_ids)
    for name, part, whole, probability in shares:
        if not whole:
            continue
        chance = math.sqrt(probability * (1 - probability) / whole)
        bound = _DEVIATIONS * chance + coincidence
        finding = (
            f"{split}: {name}: {part / whole:.4%} of {whole}, "
            f"{probability:.0%} within {bound:.4%} expected"
        )
        if whole < (_MIN_LABELS if name == LABEL_SHARE else _MIN_MASKED_TOKENS):
            report.notes.append(f"{finding}; too few to judge.")
            continue
        report.checks.append(name)
        report.notes.append(f"{finding}.")
        if abs(part / whole - probability) > bound:
            report.add(name, [finding])
