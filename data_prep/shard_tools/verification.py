"""Checks a directory of pretraining shards: files, every record, the whole.

Main entry: `verify_directory`. The files are compared with metadata.json and
their checksums; every record with the rows of `record_invariants`; and what
was drawn at random with what it should be, within bounds of chance.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig, UserError, from_dict, lookup
from albert_tf.records.schemas import RECORD_SPECS, parse_batch, record_spec
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import (
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    ShardInfo,
    describe_tokenizer,
    open_shards,
    read_metadata,
    shard_name,
)
from albert_tf.records.tfrecord import read_records
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.pretraining.local_runner import Progress
from data_prep.pretraining.pretraining_data import no_progress
from data_prep.shard_tools.record_invariants import (
    DYNAMIC,
    STATIC,
    Invariant,
    ParsedBatch,
    RecordRules,
    Wrong,
    invariants_for,
)

# Records judged at a time: few enough for the work arrays to stay in a cache.
_BATCH = 128
# Of each promise that is broken, so many examples are shown.
_EXAMPLES = 10
# How many standard deviations chance is given.
_DEVIATIONS = 5.0

TOKENIZER = "the tokenizer is the one that metadata.json describes"
SHARDS = "shards are as metadata.json says: names, sizes, sha256, records"
STRAY_SHARDS = "metadata.json names every shard of the directory"
CHECKSUMS = "the checksums within the shards are right"
SCHEMA = "records have the features of their kind, in their lengths"
STATISTICS = "the counts in metadata.json are those of the records"


@dataclasses.dataclass(frozen=True)
class Share:
    """A share that chance decides, and how it is judged.

    Attributes:
        name: what holds, in words.
        part, whole: the counts that the share is made of.
        expected: the probability.
        least: the fewest of `whole` that are judged.
        kinds: of records that it applies to.
        num_labels: of the sentence objectives that it applies to, 0: any.
        of_original: whether google-research/albert promises it too.
    """

    name: str
    part: str
    whole: str
    expected: float
    least: int
    kinds: tuple[str, ...] = (DYNAMIC, STATIC)
    num_labels: int = 0
    of_original: bool = True


SHARES: tuple[Share, ...] = (
    *(
        Share(
            f"{expected:.0%} of the masked tokens {what}",
            f"masked_tokens/{name}",
            "masked_tokens",
            expected,
            1000,
            kinds=(STATIC,),
        )
        for name, expected, what in (
            ("as_mask", 0.8, "are [MASK]"),
            ("as_is", 0.1, "stay"),
            ("as_random", 0.1, "are random"),
        )
    ),
    Share(
        "half of the labels are drawn as 1",
        "drawn_1",
        "instances",
        0.5,
        200,
        num_labels=2,
        # There a document of one chunk always gets 1.
        of_original=False,
    ),
)


class Violations:
    """How often each promise was broken, and the first examples."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, name: str, examples: Iterable[str], count: int = 1) -> None:
        """Counts a promise broken; takes no more examples than are shown."""
        self.counts[name] += count
        shown = self.examples.setdefault(name, [])
        shown += itertools.islice(examples, _EXAMPLES - len(shown))

    def merge(self, other: "Violations") -> None:
        """Adds what another one holds."""
        for name, count in other.counts.items():
            self.add(name, other.examples[name], count)


@dataclasses.dataclass(frozen=True)
class VerificationReport:
    """What was checked in a directory and what was found.

    Attributes:
        directory: what was checked.
        num_records: records by split.
        promises: the names of all that was judged.
        violations: what was not as promised.
        differences: in foreign records, what only our builder promises.
        remarks: lines that judge nothing.
    """

    directory: str
    num_records: dict[str, int] = dataclasses.field(default_factory=dict)
    promises: list[str] = dataclasses.field(default_factory=list)
    violations: Violations = dataclasses.field(default_factory=Violations)
    differences: Violations = dataclasses.field(default_factory=Violations)
    remarks: list[str] = dataclasses.field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every promise is kept."""
        return not self.violations.counts

    def lines(self) -> list[str]:
        """Returns the report for printing."""
        records = ", ".join(
            f"{split} {count}" for split, count in self.num_records.items()
        )
        lines = [f"{self.directory}: records checked: {records}."]
        for name in dict.fromkeys(self.promises):
            if name in self.violations.counts:
                lines += _found("VIOLATED", name, self.violations)
            elif name in self.differences.counts:
                lines += _found("differs from ours", name, self.differences)
            else:
                lines.append(f"ok: {name}.")
        lines += self.remarks
        broken = len(self.violations.counts)
        lines.append(
            f"{broken} of {len(set(self.promises))} promises are broken."
            if broken
            else f"All {len(set(self.promises))} promises are kept."
        )
        return lines


def _found(verdict: str, name: str, violations: Violations) -> list[str]:
    count, examples = violations.counts[name], violations.examples[name]
    lines = [
        f"{verdict}: {name}: {count} times.",
        *(f"  {e}" for e in examples),
    ]
    if count > len(examples):
        lines.append(f"  ... and {count - len(examples)} more")
    return lines


class _ShardResult(NamedTuple):
    """What reading a shard has found."""

    violations: Violations
    counts: Counter[str]
    digests: np.ndarray  # [records] uint64, equal for equal records


def verify_directory(
    directory: str | os.PathLike[str], progress: Progress = no_progress
) -> VerificationReport:
    """Returns what is wrong in a shard directory.

    Records taken in from google-research/albert are held to what it promises;
    where they differ from what our builder promises is told beside it.

    Args:
        directory: what `build_pretraining_data` or `import_shards` wrote.
        progress: shows how many records have been checked.

    Raises:
        UserError: if there is nothing to check: the directory is missing or
            unfinished, or its metadata.json or tokenizer cannot be read.
    """
    directory = os.fspath(directory)
    metadata = read_metadata(directory)
    rules = _rules(directory, metadata)
    splits = _named_shards(directory, metadata)
    is_foreign = "imported_files" in metadata.get("settings", {})
    report = VerificationReport(directory)
    _check_tokenizer(report, metadata, rules)
    _check_names(report, splits)
    invariants = invariants_for(rules)
    report.promises.extend([CHECKSUMS, SCHEMA])
    report.promises.extend(row.name for row in invariants)
    total = sum(
        shard.num_records for named in splits.values() for shard in named
    )
    with (
        progress("records") as show,
        # NumPy and TensorFlow let other threads work beside them.
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        counter = _SharedCounter(lambda done: show(done, total))
        check = functools.partial(
            _check_shard, rules=rules, invariants=invariants, counter=counter
        )
        for split, shards in splits.items():
            paths = [os.path.join(directory, shard.name) for shard in shards]
            results = list(pool.map(check, paths))
            _check_account(report, directory, split)
            _add_records(report, split, results, invariants, is_foreign)
            counts = sum((result.counts for result in results), Counter())
            statistics = metadata.get("statistics", {}).get(split, {})
            _check_statistics(report, split, counts, statistics)
            _check_shares(report, split, counts, statistics, rules, is_foreign)
            _remark_duplicates(report, split, results)
    if rules.kind == STATIC and rules.masking is None:
        report.remarks.append(
            "Not judged: budgets and whole words; metadata.json does not say "
            "how the records were masked."
        )
    return report


def _rules(directory: str, metadata: Mapping[str, Any]) -> RecordRules:
    """Returns what the records are to be, by metadata.json."""
    path = os.path.join(directory, METADATA_NAME)
    kind = record_spec(_entry(metadata, "record_kind", path), path).kind
    masking = metadata.get("settings", {}).get("masking")
    if masking is not None:
        masking = from_dict(MaskingConfig, masking, path)
    return RecordRules(
        kind=kind,
        objective=lookup(
            SENTENCE_OBJECTIVES,
            _entry(metadata, "sentence_objective", path),
            f"{path}: sentence_objective",
        ),
        max_seq_length=_entry(metadata, "max_seq_length", path),
        num_slots=_entry(metadata, "num_slots", path),
        masking=masking,
        tokenizer=load_tokenizer(os.path.join(directory, TOKENIZER_DIRECTORY)),
    )


def _named_shards(
    directory: str, metadata: Mapping[str, Any]
) -> dict[str, list[ShardInfo]]:
    """Returns the shards of each split, by metadata.json."""
    path = os.path.join(directory, METADATA_NAME)
    try:
        return {
            split: [ShardInfo(**shard) for shard in account["shards"]]
            for split, account in sorted(metadata["splits"].items())
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} does not name the shards of each split ({error}); build "
            "the shards again."
        ) from None


def _entry(metadata: Mapping[str, Any], name: str, path: str) -> Any:
    if name not in metadata:
        raise UserError(f"{path} has no {name!r}; build the shards again.")
    return metadata[name]


def _check_tokenizer(
    report: VerificationReport, metadata: Mapping[str, Any], rules: RecordRules
) -> None:
    report.promises.append(TOKENIZER)
    ours = describe_tokenizer(rules.tokenizer)
    theirs = metadata.get("tokenizer", {})
    for name in ours:
        if ours[name] != theirs.get(name):
            report.violations.add(
                TOKENIZER,
                [
                    f"{name}: {ours[name]!r} in {TOKENIZER_DIRECTORY}, "
                    f"{theirs.get(name)!r} in {METADATA_NAME}"
                ],
            )


def _check_names(
    report: VerificationReport, splits: Mapping[str, Sequence[ShardInfo]]
) -> None:
    """Looks for shards with other names than they should have."""
    report.promises.extend([SHARDS, STRAY_SHARDS])
    named = set()
    for split, shards in splits.items():
        for number, shard in enumerate(shards):
            named.add(shard.name)
            expected = shard_name(split, number, len(shards))
            if shard.name != expected:
                report.violations.add(
                    SHARDS,
                    [f"{shard.name!r} in {METADATA_NAME} should be {expected}"],
                )
    for name in sorted(os.listdir(report.directory)):
        if name.endswith(".tfrecord") and name not in named:
            report.violations.add(
                STRAY_SHARDS, [os.path.join(report.directory, name)]
            )


def _check_account(
    report: VerificationReport, directory: str, split: str
) -> None:
    """Compares a split's files with their account."""
    try:
        open_shards(directory, split).close()
    except UserError as error:
        report.violations.add(SHARDS, [str(error)])


class _SharedCounter:
    """Counts what several threads have done."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._show = show
        self._done = 0

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            self._show(self._done)


def _check_shard(
    path: str,
    *,
    rules: RecordRules,
    invariants: Sequence[Invariant],
    counter: _SharedCounter,
) -> _ShardResult:
    """Reads a shard to its end, or to where it is damaged."""
    violations, counts = Violations(), Counter[str]()
    digests = [np.zeros(0, np.uint64)]
    records = read_records(path)
    first = 0
    while serialized := _next_records(records, violations):
        numbers, columns = _parse(serialized, path, first, rules, violations)
        if numbers:
            batch = ParsedBatch(columns, rules)
            for row in invariants:
                _judge(row, batch, path, numbers, violations)
            counts.update(_count(batch))
        digests.append(_digests(serialized))
        counter.add(len(serialized))
        first += len(serialized)
    return _ShardResult(violations, counts, np.concatenate(digests))


def _next_records(
    records: Iterator[bytes], violations: Violations
) -> list[bytes]:
    """Returns the next records, none where the file ends or is damaged."""
    batch = []
    try:
        for record in itertools.islice(records, _BATCH):
            batch.append(record)
    except UserError as error:
        violations.add(CHECKSUMS, [str(error)])
    return batch


def _parse(
    serialized: Sequence[bytes],
    path: str,
    first: int,
    rules: RecordRules,
    violations: Violations,
) -> tuple[list[int], dict[str, np.ndarray]]:
    """Returns the numbers of the records that can be parsed, and these."""

    def parse(numbers: Sequence[int]) -> dict[str, np.ndarray]:
        return parse_batch(
            RECORD_SPECS[rules.kind],
            [serialized[number - first] for number in numbers],
            max_seq_length=rules.max_seq_length,
            num_slots=rules.num_slots,
            namer=lambda place: f"{path}, record {numbers[place]}",
        )

    numbers = list(range(first, first + len(serialized)))
    try:
        return numbers, parse(numbers)
    except UserError:
        pass
    # Which ones it is shows only one by one.
    sound = []
    for number in numbers:
        try:
            parse([number])
            sound.append(number)
        except UserError as error:
            violations.add(SCHEMA, [str(error)])
    return sound, parse(sound) if sound else {}


def _judge(
    row: Invariant,
    batch: ParsedBatch,
    path: str,
    numbers: Sequence[int],
    violations: Violations,
) -> None:
    """Adds the records of a batch that break a promise."""
    wrong = row.broken(batch)
    if not wrong.where.any():
        return
    by_record = wrong.where.reshape(len(numbers), -1).any(axis=1)
    places = np.flatnonzero(by_record)
    violations.add(
        row.name,
        (
            f"{path}, record {numbers[place]}: {_describe(wrong, place)}"
            for place in places
        ),
        len(places),
    )


def _describe(wrong: Wrong, record: int) -> str:
    """Returns the values at the first wrong place of a record."""
    at, place = "", 0
    if wrong.where.ndim == 2:
        place = int(wrong.where[record].argmax())
        at = f"at {place}: "
    values = {
        name: values[record] if values.ndim == 1 else values[record, place]
        for name, values in wrong.shown.items()
    }
    return at + ", ".join(f"{name} {value}" for name, value in values.items())


def _count(batch: ParsedBatch) -> dict[str, int]:
    """Returns what metadata.json counts too, by its names."""
    counts = {
        "instances": len(batch.length),
        "instance_tokens": int(batch.length.sum()),
        "label_1": int((batch.labels == 1).sum()),
    }
    if batch.rules.kind == STATIC:
        shown = batch.at_positions(batch.input_ids)
        as_mask = batch.listed & (shown == batch.tokenizer.mask_id)
        as_is = batch.listed & (shown == batch.masked_ids)
        masked = int(batch.listed.sum())
        counts |= {
            "masked_tokens": masked,
            "masked_tokens/as_mask": int(as_mask.sum()),
            "masked_tokens/as_is": int(as_is.sum()),
            "masked_tokens/as_random": masked - int((as_mask | as_is).sum()),
        }
    return counts


def _digests(serialized: Sequence[bytes]) -> np.ndarray:
    """Returns 64 bits for each record; two that differ may not share them.

    Among ten million records the chance that any two do is 3 in a million.
    """
    return np.frombuffer(
        b"".join(
            hashlib.blake2b(record, digest_size=8).digest()
            for record in serialized
        ),
        "<u8",
    )


def _add_records(
    report: VerificationReport,
    split: str,
    results: Sequence[_ShardResult],
    invariants: Sequence[Invariant],
    is_foreign: bool,
) -> None:
    """Adds what was found in a split's records."""
    report.num_records[split] = sum(len(r.digests) for r in results)
    found = Violations()
    for result in results:
        found.merge(result.violations)
    ours_alone = {
        row.name for row in invariants if is_foreign and not row.of_original
    }
    for name, count in found.counts.items():
        target = report.differences if name in ours_alone else report.violations
        target.add(name, found.examples[name], count)


def _check_statistics(
    report: VerificationReport,
    split: str,
    counts: Counter[str],
    statistics: Mapping[str, Any],
) -> None:
    report.promises.append(STATISTICS)
    for name, count in counts.items():
        if name in statistics and statistics[name] != count:
            report.violations.add(
                STATISTICS,
                [
                    f"{split}: {name} {statistics[name]} in {METADATA_NAME}, "
                    f"{count} in the records"
                ],
            )


def _check_shares(
    report: VerificationReport,
    split: str,
    counts: Counter[str],
    statistics: Mapping[str, Any],
    rules: RecordRules,
    is_foreign: bool,
) -> None:
    """Compares what was drawn at random with its probabilities."""
    # Drawn as 1 and made 0, as there was no other document to take it from.
    in_vain = statistics.get("without_other_document", 0)
    counts = counts | Counter(drawn_1=counts["label_1"] + in_vain)
    # A random piece may be the same as before, or, in the original, [MASK].
    coincidence = 0.1 / len(rules.tokenizer.replacement_ids)
    for share in SHARES:
        part, whole = counts[share.part], counts[share.whole]
        applies = rules.kind in share.kinds and share.num_labels in (
            0,
            len(rules.objective.label_words),
        )
        if not whole or not applies:
            continue
        chance = math.sqrt(share.expected * (1 - share.expected) / whole)
        bound = _DEVIATIONS * chance + coincidence
        said = (
            f"{split}: {share.name}: {part / whole:.4%} of {whole}, "
            f"{share.expected:.0%} within {bound:.4%} expected"
        )
        if whole < share.least:
            report.remarks.append(f"{said}; too few to judge.")
            continue
        report.promises.append(share.name)
        report.remarks.append(f"{said}.")
        if abs(part / whole - share.expected) > bound:
            ours_alone = is_foreign and not share.of_original
            target = report.differences if ours_alone else report.violations
            target.add(share.name, [said])


def _remark_duplicates(
    report: VerificationReport, split: str, results: Sequence[_ShardResult]
) -> None:
    """Tells how many records repeat another one.

    No promise: two short documents of the same text make equal records.
    """
    digests = np.concatenate(
        [np.zeros(0, np.uint64), *(result.digests for result in results)]
    )
    repeated = len(digests) - len(np.unique(digests))
    report.remarks.append(
        f"{split}: {repeated} of {len(digests)} records repeat another one, "
        "byte for byte (not judged: texts may repeat)."
    )
