"""Imports pretraining records that google-research/albert has written.

Main entry: `import_shards`. Its TFRecord files have the schema of our
`static` records, but no metadata: they are checked record by record and
become a shard directory, which training reads like any other.
"""

import glob
import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import UserError, lookup, require
from albert_tf.io.directories import new_directory, path_on_disk
from albert_tf.io.json_files import write_json
from albert_tf.records.schemas import namer_of, parse_columns
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import (
    FORMAT_VERSION,
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    describe_tokenizer,
    shard_name,
    split_entry,
    write_shard,
)
from albert_tf.records.tfrecord import read_records
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.shard_tools.record_checks import check_records, count_records
from data_prep.shard_tools.record_rules import DYNAMIC, STATIC, RecordRules

# Records checked at a time.
_BATCH = 256


def import_shards(
    inputs: Sequence[str],
    output_dir: str,
    *,
    tokenizer_dir: str,
    eval_inputs: Sequence[str] = (),
    sentence_objective: str = "sop",
) -> dict[str, Any]:
    """Returns the metadata of the shard directory that it writes.

    Every file becomes a shard with the same bytes, in the order of their
    paths. The lengths are those of the first record.

    `inputs` and `eval_inputs` are TFRecord files, directories of them and
    globs; they become the splits `train` and `eval`. `sentence_objective` is
    `sop` unless the original ran with `random_next_sentence`, then `nsp`.

    Raises:
        UserError: for inputs that are missing, damaged or hold other records;
            it names the file and the record.
    """
    objective = lookup(
        SENTENCE_OBJECTIVES, sentence_objective, "sentence_objective"
    )
    files = _files_by_split(inputs, eval_inputs)
    output_dir = path_on_disk(output_dir)
    require(
        not os.path.exists(output_dir)
        or (os.path.isdir(output_dir) and not os.listdir(output_dir)),
        f"{output_dir} is there already and is not empty; choose another "
        "output directory.",
    )
    tokenizer = load_tokenizer(tokenizer_dir)
    lengths = []
    for name, paths in files.items():
        of_split = [found for p in paths if (found := read_lengths(p))]
        require(bool(of_split), f"The split {name} has no records: {paths[0]}.")
        lengths += of_split
    rules = RecordRules(STATIC, objective, *lengths[0], None, tokenizer)
    try:
        with new_directory(output_dir) as temporary:
            metadata = _write_directory(temporary, files, rules)
            os.replace(temporary, output_dir)
    except OSError as error:
        raise UserError(
            f"{output_dir} cannot be written: {error.strerror}."
        ) from None
    return metadata


def _write_directory(
    directory: str, files: Mapping[str, Sequence[str]], rules: RecordRules
) -> dict[str, Any]:
    """Writes shards, tokenizer and metadata.json, and returns the last."""
    splits, statistics = {}, {}
    for name, paths in sorted(files.items()):
        splits[name], statistics[name] = _write_split(
            name, paths, directory, rules
        )
    tokenizer = rules.tokenizer
    tokenizer.save(os.path.join(directory, TOKENIZER_DIRECTORY))
    metadata = {
        "format_version": FORMAT_VERSION,
        "record_kind": STATIC,
        "sentence_objective": rules.objective.name,
        "max_seq_length": rules.max_seq_length,
        "num_slots": rules.num_slots,
        "random_seed": None,
        "tokenizer": describe_tokenizer(tokenizer),
        "splits": splits,
        "statistics": {"corpus": {}, **statistics},
        "settings": {
            "tokenizer_fingerprint": tokenizer.fingerprint,
            "imported_files": {
                name: [os.path.basename(path) for path in paths]
                for name, paths in sorted(files.items())
            },
        },
    }
    write_json(os.path.join(directory, METADATA_NAME), metadata)
    return metadata


def _files_by_split(
    inputs: Sequence[str], eval_inputs: Sequence[str]
) -> dict[str, list[str]]:
    """Returns the sorted files of each split."""
    files = {"train": _list_files(inputs)}
    if eval_inputs:
        of_train = set(map(os.path.realpath, files["train"]))
        files["eval"] = _list_files(eval_inputs)
        for path in files["eval"]:
            require(
                os.path.realpath(path) not in of_train,
                f"{path} is in the input and the evaluation input.",
            )
    return files


def _list_files(inputs: Sequence[str]) -> list[str]:
    """Returns the files that `inputs` name, sorted, each once.

    Of several names of a file (links) the first one counts.
    """
    found: dict[str, str] = {}
    for path in inputs:
        pattern = path
        if os.path.exists(path):
            pattern = glob.escape(path)
        if os.path.isdir(path):
            pattern = os.path.join(pattern, "*")
        files = [file for file in glob.glob(pattern) if os.path.isfile(file)]
        require(bool(files), f"{path} names no file of records.")
        for file in files:
            directory, name = os.path.split(file)
            require(
                name != METADATA_NAME,
                f"{directory or '.'} is a shard directory already, by its "
                f"{METADATA_NAME}; nothing is to be imported: train on it "
                "with --train_data.",
            )
        for file in files:
            real = os.path.realpath(file)
            found[real] = min(found.get(real, file), file, key=os.path.abspath)
    return sorted(found.values(), key=os.path.abspath)


def read_lengths(path: str) -> tuple[int, int] | None:
    """Returns max_seq_length and P of a file's first record, None without any.

    Raises:
        UserError: for a record that has not the original's features.
    """
    record = next(read_records(path), None)
    if record is None:
        return None
    namer = namer_of(path)
    columns = parse_columns(STATIC, [record], namer)
    missing = [name for name, (_, sizes) in columns.items() if not sizes[0]]
    if missing:
        ours = parse_columns(DYNAMIC, [record], namer)
        require(
            not all(sizes[0] for _, sizes in ours.values()),
            f"{namer(0)} is one of ours, of the kind dynamic; "
            "google-research/albert writes static ones. Leave the shard in "
            "its directory: training reads that as it is.",
        )
        raise UserError(
            f"{namer(0)} has no feature {missing[0]!r}; records of "
            f"google-research/albert have {', '.join(columns)}."
        )
    sizes_of = {name: int(sizes[0]) for name, (_, sizes) in columns.items()}
    return sizes_of["input_ids"], sizes_of["masked_lm_positions"]


def _write_split(
    split: str, paths: Sequence[str], directory: str, rules: RecordRules
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns metadata.json's entry of a split's shards, and statistics."""
    counts: Counter[str] = Counter()
    shards = [
        write_shard(
            os.path.join(directory, shard_name(split, number, len(paths))),
            _checked_records(path, rules, counts),
        )
        for number, path in enumerate(paths)
    ]
    tokens, instances = counts["instance_tokens"], counts["instances"]
    shares = {
        "masked_share": counts["masked_tokens"] / max(1, tokens),
        "padding_share": 1 - tokens / (instances * rules.max_seq_length),
        "label_1_share": counts["label_1"] / instances,
    }
    return split_entry(shards), dict(sorted(counts.items())) | {
        name: round(share, 6) for name, share in shares.items()
    }


def _checked_records(
    path: str, rules: RecordRules, counts: Counter[str]
) -> Iterator[bytes]:
    """Yields a file's records, or raises UserError at the first wrong one."""
    records = read_records(path)
    begin = 0
    while serialized := list(itertools.islice(records, _BATCH)):
        namer = namer_of(path, begin)
        features = rules.parse(serialized, namer)
        for check in check_records(features, rules):
            for number in check.failed_records():
                raise UserError(
                    f"{namer(number)}: expected that {check.statement}, got "
                    f"{check.describe(number)}; was another vocabulary used?"
                )
        counts.update(count_records(features))
        yield from serialized
        begin += len(serialized)
