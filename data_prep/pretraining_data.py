"""Turns a corpus into shards of pretraining records.

Main entry: `build_pretraining_data`. Documents become records in
`record_maker.RecordMaker`, which depends on the document, the seed and the
settings alone; this file drives it, in one process or several. Every record
has a random key; a split is its records in the order of their keys, cut into
shards: a shuffle of the whole corpus that no driver can change. On the way
records lie in a `RecordSpool` on disk, so that memory holds a part only.
"""

import concurrent.futures
import dataclasses
import functools
import itertools
import multiprocessing
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    differences,
    to_dict,
    write_json,
)
from albert_tf.text import counter_rng
from albert_tf.text.records import (
    FORMAT_VERSION,
    METADATA_NAME,
    RECORD_SPECS,
    TOKENIZER_DIRECTORY,
    id_ranges,
    read_metadata,
    serialize,
    write_shard,
)
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.corpus import (
    Document,
    fingerprint_files,
    list_files,
    read_documents,
    resolve_separator,
)
from data_prep.record_maker import (
    Record,
    RecordPlan,
    Unit,
    num_slots,
    record_maker,
)
from data_prep.record_spool import RecordSpool
from data_prep.sentences import PUNKT_SAMPLE_CHARS, SENTENCE_SPLITTERS

SHARD_BYTES = 64_000_000
# metadata.json, which names every shard, stays a file that is read.
MAX_SHARDS = 4096
TRAIN, EVAL = "train", "eval"

_SPLITTER_FILE = "{}.json"  # after the sentence splitter: punkt.json
_SPOOL_DIRECTORY = ".spool"
_SHARD_PATTERN = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord(\.tmp-\d+)?")
# Input bytes per bucket of the spool, which is sorted in memory, and the most
# buckets: as many files are open at once, for each split.
_BUCKET_BYTES = 64_000_000
_MAX_BUCKETS = 128
# A sentence splitter learns from the heads of at most so many files.
_MAX_SAMPLE_FILES = 1000
# Text handed to a worker at a time; a longer document goes alone.
_UNIT_CHARS = 250_000

Progress = Callable[[Mapping[str, int]], None]


def build_pretraining_data(
    inputs: Sequence[str],
    output_dir: str,
    *,
    tokenizer_dir: str,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
    eval_inputs: Sequence[str] = (),
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Returns the metadata of the shard directory that it writes.

    The same corpus, tokenizer and settings give the same bytes, whatever the
    number of workers. A directory that is finished already is left as it is;
    what an interrupted run left behind is removed and made again.

    Args:
        inputs: files, directories and globs, see `corpus.list_files`.
        output_dir: the directory to write, made if need be.
        tokenizer_dir: see `tokenizer.load_tokenizer`.
        config: how a corpus becomes records.
        masking: how `static` records are masked.
        eval_inputs: the corpus of the split `eval`.
        workers: processes.
        progress: called with running totals while documents are done.

    Raises:
        UserError: for inputs that cannot be used, a directory finished with
            other settings, or a split that comes out empty.
    """
    if workers < 1:
        raise UserError(f"workers={workers} is below the least allowed, 1.")
    if config.num_shards > MAX_SHARDS:
        raise UserError(
            f"num_shards={config.num_shards} is above the most allowed, "
            f"{MAX_SHARDS}."
        )
    sources = _list_sources(inputs, eval_inputs, config)
    tokenizer = load_tokenizer(tokenizer_dir)
    settings = _settings(sources, tokenizer, config, masking)
    finished = _finished_metadata(output_dir, settings)
    if finished is not None:
        return finished
    spool = _prepare_directory(output_dir, sources)
    splitter_path = _train_splitter(sources[0], output_dir, config)
    plan = RecordPlan(tokenizer_dir, splitter_path, config, masking)
    corpus_counts: Counter[str] = Counter()
    counts = _fill_spool(
        spool,
        _work_units(sources, config, corpus_counts),
        plan,
        workers=workers,
        progress=progress,
    )
    _check_splits(spool, counts, sources, config)
    splits = {
        split: {
            "num_records": spool.num_records[split],
            "shards": _write_shards(spool, split, output_dir, config),
        }
        for split in sorted(spool.num_records)
    }
    # Whoever trains on the shards needs the tokenizer too.
    tokenizer.save(os.path.join(output_dir, TOKENIZER_DIRECTORY))
    metadata = {
        "format_version": FORMAT_VERSION,
        "record_kind": config.record_kind,
        "max_seq_length": config.max_seq_length,
        "num_slots": num_slots(config, masking),
        "random_seed": config.random_seed,
        "tokenizer": _describe_tokenizer(tokenizer),
        "splits": splits,
        "statistics": {
            "corpus": dict(sorted(corpus_counts.items())),
            **{s: _statistics(counts, s, config) for s in splits},
        },
        "settings": settings,
    }
    write_json(os.path.join(output_dir, METADATA_NAME), metadata)
    spool.remove()
    return metadata


@dataclasses.dataclass(frozen=True)
class _Source:
    """The files of an input list, and what to call them whatever their root."""

    split: str
    files: list[str]
    names: list[str]


def _list_sources(
    inputs: Sequence[str],
    eval_inputs: Sequence[str],
    config: PretrainingDataConfig,
) -> list[_Source]:
    """Returns the training source and, if there is one, the evaluation's."""
    if eval_inputs and config.eval_fraction:
        raise UserError(
            f"eval_fraction={config.eval_fraction} and an evaluation input "
            "were both given; one of them is needed, not both."
        )
    sources = [_source(TRAIN, list_files(inputs))]
    if eval_inputs:
        sources.append(_source(EVAL, list_files(eval_inputs)))
        paths = [set(map(os.path.realpath, s.files)) for s in sources]
        for path in sorted(paths[0] & paths[1]):
            raise UserError(f"{path} is in the input and the evaluation input.")
    return sources


def _source(split: str, files: list[str]) -> _Source:
    paths = [os.path.abspath(file) for file in files]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, root).replace(os.sep, "/") for path in paths]
    by_name = sorted(zip(names, files, strict=True))
    return _Source(split, [f for _, f in by_name], [n for n, _ in by_name])


def _documents(
    source: _Source, config: PretrainingDataConfig, counts: Counter[str]
) -> Iterator[Document]:
    return read_documents(
        source.files,
        document_separator=config.document_separator,
        skip_header_lines=config.skip_header_lines,
        names=source.names,
        counts=counts,
    )


def _train_splitter(
    source: _Source, output_dir: str, config: PretrainingDataConfig
) -> str:
    """Returns the path of the sentence splitter's parameters."""
    path = os.path.join(
        output_dir, _SPLITTER_FILE.format(config.sentence_splitter)
    )
    splitter = SENTENCE_SPLITTERS[config.sentence_splitter].train(
        _sample_texts(source, config)
    )
    write_json(path, splitter.to_json())
    return path


def _sample_texts(
    source: _Source, config: PretrainingDataConfig
) -> Iterator[str]:
    """Yields the heads of files spread evenly over the corpus."""
    files = source.files[:: -(-len(source.files) // _MAX_SAMPLE_FILES)]
    budget = PUNKT_SAMPLE_CHARS // len(files)
    for path in files:
        documents = read_documents(
            [path],
            document_separator=resolve_separator(
                config.document_separator, source.files
            ),
            skip_header_lines=config.skip_header_lines,
        )
        paragraphs = (p for document in documents for p in document.paragraphs)
        head, size = [], 0
        while size < budget and (paragraph := next(paragraphs, None)):
            head.append(paragraph[: budget - size])
            size += len(head[-1])
        yield "\n\n".join(head)


def _work_units(
    sources: Sequence[_Source],
    config: PretrainingDataConfig,
    counts: Counter[str],
) -> Iterator[Unit]:
    """Yields the documents, each with its split, in portions of work."""
    unit: Unit = []
    size = 0
    for source in sources:
        for document in _documents(source, config, counts):
            split = source.split
            if split == TRAIN and _is_held_out(document.name, config):
                split = EVAL
            unit.append((split, source.split, document))
            size += sum(map(len, document.paragraphs))
            if size >= _UNIT_CHARS:
                yield unit
                unit, size = [], 0
    if unit:
        yield unit


def _is_held_out(name: str, config: PretrainingDataConfig) -> bool:
    key = counter_rng.key(config.random_seed, "eval_fraction", name)
    return bool(counter_rng.uniforms(key, 1)[0, 0] < config.eval_fraction)


def _make_records(
    plan: RecordPlan, unit: Unit
) -> tuple[list[Record], Counter[str]]:
    """Returns a unit's records; a worker loads its maker once."""
    return record_maker(plan)(unit)


def _map_units(
    plan: RecordPlan, units: Iterable[Unit], workers: int
) -> Iterator[tuple[list[Record], Counter[str]]]:
    """Yields the records of each unit, in order, few units in memory."""
    if workers == 1:
        yield from map(functools.partial(_make_records, plan), units)
        return
    # spawn: TensorFlow's threads do not survive a fork.
    with concurrent.futures.ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn")
    ) as pool:
        waiting: deque[concurrent.futures.Future] = deque()
        try:
            for unit in units:
                waiting.append(pool.submit(_make_records, plan, unit))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _fill_spool(
    spool: RecordSpool,
    units: Iterable[Unit],
    plan: RecordPlan,
    *,
    workers: int,
    progress: Progress | None,
) -> Counter[str]:
    """Returns the counts of all units, whose records go into the spool."""
    spec = RECORD_SPECS[plan.config.record_kind]
    totals: Counter[str] = Counter()
    for records, counts in _map_units(plan, units, workers):
        for record in records:
            spool.add(record.split, record.key, serialize(spec, record.example))
        totals += counts
        if progress:
            progress(totals)
    spool.flush()
    return totals


def _write_shards(
    spool: RecordSpool,
    split: str,
    output_dir: str,
    config: PretrainingDataConfig,
) -> list[dict[str, Any]]:
    """Returns the accounts of a split's shards, equal in records to one."""
    num_records = spool.num_records[split]
    num_shards = _num_shards(spool, split, config)
    records = spool.records(split)
    shards = []
    for shard in range(num_shards):
        begin = num_records * shard // num_shards
        end = num_records * (shard + 1) // num_shards
        path = os.path.join(
            output_dir, f"{split}-{shard:05}-of-{num_shards:05}.tfrecord"
        )
        info = write_shard(path, itertools.islice(records, end - begin))
        shards.append(dataclasses.asdict(info))
    for _ in records:  # lets the spool remove its last bucket
        raise AssertionError("More records than were counted.")
    return shards


def _num_shards(
    spool: RecordSpool, split: str, config: PretrainingDataConfig
) -> int:
    """Returns how many shards a split gets."""
    if not config.num_shards:
        return min(MAX_SHARDS, -(-spool.num_bytes[split] // SHARD_BYTES))
    # A small evaluation split is no reason to refuse the number.
    return min(config.num_shards, spool.num_records[split])


def _check_splits(
    spool: RecordSpool,
    counts: Counter[str],
    sources: Sequence[_Source],
    config: PretrainingDataConfig,
) -> None:
    """Raises UserError if a split that was asked for has no record."""
    wanted = {source.split for source in sources}
    if config.eval_fraction:
        wanted.add(EVAL)
    for split in sorted(wanted, reverse=True):
        if spool.num_records[split]:
            continue
        documents = counts[f"{split}/documents"]
        single = counts[f"{split}/skipped/single_sentence_documents"]
        raise UserError(
            f"The split {split} has no records: {documents} documents, "
            f"{single} of them of one sentence, which has no order to judge. "
            "Check the input, document_separator="
            f"{resolve_separator(config.document_separator, sources[0].files)}"
            f", sentence_splitter={config.sentence_splitter}, eval_fraction="
            f"{config.eval_fraction}."
        )


def _prepare_directory(
    output_dir: str, sources: Sequence[_Source]
) -> RecordSpool:
    """Returns an empty spool in a directory without an unfinished run's files.

    The spool's directory marks the output directory as this program's: only
    where it stands may shards be removed.
    """
    directory = os.path.join(output_dir, _SPOOL_DIRECTORY)
    try:
        os.makedirs(output_dir, exist_ok=True)
        names = sorted(os.listdir(output_dir))
        shards = [n for n in names if _SHARD_PATTERN.fullmatch(n)]
        if shards and _SPOOL_DIRECTORY not in names:
            raise UserError(
                f"{output_dir} holds {shards[0]} but no {METADATA_NAME}; "
                "choose another output directory or empty this one."
            )
        for name in shards:
            os.remove(os.path.join(output_dir, name))
        if _SPOOL_DIRECTORY in names:
            shutil.rmtree(directory)
        os.mkdir(directory)
    except OSError as error:
        raise UserError(
            f"{output_dir} cannot be written: {error.strerror}."
        ) from None
    num_bytes = sum(_total_bytes(source) for source in sources)
    num_buckets = min(_MAX_BUCKETS, 1 + num_bytes // _BUCKET_BYTES)
    return RecordSpool(directory, num_buckets)


def _total_bytes(source: _Source) -> int:
    return sum(os.path.getsize(path) for path in source.files)


def _finished_metadata(
    output_dir: str, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Returns a finished directory's metadata, None if it is not finished.

    Raises:
        UserError: if it was finished with other settings.
    """
    if not os.path.exists(os.path.join(output_dir, METADATA_NAME)):
        return None
    metadata = read_metadata(output_dir)
    changes = differences(settings, metadata.get("settings", {}))
    if changes:
        raise UserError(
            f"{output_dir} is finished with other settings "
            f"({'; '.join(changes)}); choose another output directory or "
            "remove this one."
        )
    # Left when a run was stopped between its last two acts.
    shutil.rmtree(
        os.path.join(output_dir, _SPOOL_DIRECTORY), ignore_errors=True
    )
    return metadata


def _settings(
    sources: Sequence[_Source],
    tokenizer: Any,
    config: PretrainingDataConfig,
    masking: MaskingConfig,
) -> dict[str, Any]:
    """Returns everything that decides the records."""
    settings = {
        "data": to_dict(config),
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "inputs": {s.split: _fingerprint_files(s) for s in sources},
    }
    if config.record_kind == "static":
        settings["masking"] = to_dict(masking)
    return settings


def _fingerprint_files(source: _Source) -> dict[str, Any]:
    """Returns number, bytes and a digest of the files of a source."""
    return {
        "num_files": len(source.files),
        "num_bytes": _total_bytes(source),
        "sha256": fingerprint_files(source.files, source.names),
    }


def _describe_tokenizer(tokenizer: Any) -> dict[str, Any]:
    """Returns what a reader must know of the tokenizer to mask and to check."""
    return {
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": int(tokenizer.vocab_size),
        "pad_id": int(tokenizer.pad_id),
        "unk_id": int(tokenizer.unk_id),
        "cls_id": int(tokenizer.cls_id),
        "sep_id": int(tokenizer.sep_id),
        "mask_id": int(tokenizer.mask_id),
        "special_ids": [int(i) for i in tokenizer.special_ids],
        "replacement_id_ranges": id_ranges(tokenizer.replacement_ids),
    }


def _statistics(
    counts: Counter[str], split: str, config: PretrainingDataConfig
) -> dict[str, Any]:
    """Returns a split's counts and the shares one wants to know of it."""
    of_split = {
        name.removeprefix(f"{split}/"): count
        for name, count in sorted(counts.items())
        if name.startswith(f"{split}/")
    }
    tokens = max(1, of_split.get("tokens", 0))
    room = of_split["instances"] * config.max_seq_length
    shares = {
        "unknown_share": of_split.get("unknown_tokens", 0) / tokens,
        "truncated_share": of_split.get("truncated_tokens", 0)
        / (tokens * config.dupe_factor),
        "padding_share": 1 - of_split["instance_tokens"] / room,
        "swapped_share": of_split.get("swapped", 0) / of_split["instances"],
    }
    if config.record_kind == "static":
        shares["masked_share"] = (
            of_split["masked_tokens"] / of_split["instance_tokens"]
        )
    return of_split | {name: round(share, 6) for name, share in shares.items()}
