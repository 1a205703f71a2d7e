"""Shows pretraining records as text, the masked words marked.

Main entry: `inspect_shard`.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping

import numpy as np

from albert_tf.config import MaskingConfig, require
from albert_tf.io import files
from albert_tf.records import counter_rng
from albert_tf.records.masking import MaskingIds, mask_batch
from albert_tf.records.schemas import namer_of
from albert_tf.records.shards import METADATA_NAME, named_shards, read_metadata
from albert_tf.records.tfrecord import read_records
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.tokenizer_base import SPACE
from albert_tf.text.wordpiece import CONTINUATION
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.shard_tools.record_rules import (
    STATIC,
    RecordRules,
    read_rules,
)
from data_prep.shard_tools.shard_import import read_lengths

# Files of google-research/albert do not name their objective, sop or nsp.
_ORIGINAL_LABELS = ("B follows A", "swapped, or B is random")


def inspect_shard(
    path: str | os.PathLike[str],
    *,
    tokenizer_dir: str | os.PathLike[str] | None = None,
    num_records: int = 10,
    masking: MaskingConfig = MaskingConfig(),
) -> Iterator[str]:
    """Yields a block of text that explains the rest, then one per record.

    A file that its directory's metadata.json does not name is taken for one of
    google-research/albert, whose schema is that of static records. The
    vocabulary is by default the one beside the shard; `masking` says how
    dynamic records are masked here.

    Raises:
        UserError: if `path` is no shard, or there is no vocabulary for it.
    """
    path = os.fspath(path)
    require(
        files.isfile(path),
        f"{path} is not a file; expected the path of one shard, such as "
        "shards/train-00000-of-00001.tfrecord.",
    )
    rules = _rules(path, tokenizer_dir, masking)
    legend = (
        f"{path}: {rules.kind} records of at most {rules.max_seq_length} "
        "tokens.\n[word→[MASK]] is hidden, [word→other] is replaced, "
        "[word=word] is kept and to be predicted all the same."
    )
    if rules.kind != STATIC:
        legend += (
            "\nThe masks are one draw of many: every reading of a record "
            "draws anew."
        )
    yield legend
    records = itertools.islice(read_records(path), num_records)
    for number, serialized in enumerate(records):
        batch = rules.parse([serialized], namer_of(path, number))
        if rules.kind != STATIC:
            batch |= _mask(batch, number, rules)
        record = {name: values[0] for name, values in batch.items()}
        yield _describe(record, number, rules)


def _rules(
    path: str,
    tokenizer_dir: str | os.PathLike[str] | None,
    masking: MaskingConfig,
) -> RecordRules:
    """Returns the records' form, by metadata.json or by the first record."""
    directory, name = os.path.split(path)
    metadata, splits = {}, {}
    if files.exists(os.path.join(directory, METADATA_NAME)):
        metadata = read_metadata(directory)
        splits = named_shards(directory, metadata)
    if all(name != shard.name for shard in itertools.chain(*splits.values())):
        require(
            tokenizer_dir is not None,
            f"{path} is not named in a {METADATA_NAME} beside it; give the "
            "directory of its tokenizer to see it all the same.",
        )
        tokenizer = load_tokenizer(tokenizer_dir)
        lengths = read_lengths(path) or (0, 0)
        return RecordRules(STATIC, None, *lengths, None, tokenizer)
    rules = read_rules(directory, metadata, tokenizer_dir)
    if rules.kind == STATIC:
        return rules
    return dataclasses.replace(
        rules,
        masking=masking,
        num_slots=masking.prediction_slots(rules.max_seq_length),
    )


def _mask(
    batch: Mapping[str, np.ndarray], number: int, rules: RecordRules
) -> dict[str, np.ndarray]:
    """Returns the masked features of a dynamic record by one draw."""
    return mask_batch(
        batch,
        counter_rng.fold_in(0, number),
        config=rules.masking,
        num_slots=rules.num_slots,
        ids=MaskingIds.from_tokenizer(rules.tokenizer),
    ).features


def _describe(
    record: Mapping[str, np.ndarray], number: int, rules: RecordRules
) -> str:
    """Returns a record's block: a line about it and one for each segment."""
    real = record["input_mask"] != 0
    length = int(real.sum())
    used = record["masked_lm_weights"] > 0
    masked_ids = dict(
        zip(
            record["masked_lm_positions"][used].tolist(),
            record["masked_lm_ids"][used].tolist(),
            strict=True,
        )
    )
    label = int(record["sentence_order_label"])
    words = rules.objective.label_words if rules.objective else _ORIGINAL_LABELS
    room = f", room for {rules.num_slots}"
    if rules.masking is not None:
        budget = max(1, round(rules.masking.masked_lm_prob * length))
        room = f" of a budget of {min(rules.num_slots, budget)}"
    facts = [
        f"{length} tokens, {rules.max_seq_length - length} of padding",
        words[label] if 0 <= label < len(words) else f"label {label}",
        f"{used.sum()} masked{room}",
    ]
    lines = [f"record {number}: {'; '.join(filter(None, facts))}"]
    for segment, name in enumerate("AB"):
        positions = np.flatnonzero(real & (record["segment_ids"] == segment))
        if len(positions):
            text = _text(record["input_ids"], positions, masked_ids, rules)
            lines.append(f"  {name}: {text}")
    return "\n".join(lines)


def _text(
    input_ids: np.ndarray,
    positions: np.ndarray,
    masked_ids: Mapping[int, int],
    rules: RecordRules,
) -> str:
    """Returns the tokens at `positions` as text, without [CLS] and [SEP]."""
    tokenizer = rules.tokenizer
    framing = (tokenizer.cls_id, tokenizer.sep_id)
    parts = []
    for position in positions.tolist():
        shown = int(input_ids[position])
        token = masked_ids.get(position, shown)
        space, text = _space_and_text(token, tokenizer)
        if position in masked_ids:
            if not text:  # a space may be a piece of its own
                space, text = "", SPACE
            now = _space_and_text(shown, tokenizer)[1] or SPACE
            change = f"={text}" if shown == token else f"→{now}"
            parts.append(f"{space}[{text}{change}]")
        elif token not in framing:
            parts.append(space + text)
    return "".join(parts).strip()


def _space_and_text(token_id: int, tokenizer: Tokenizer) -> tuple[str, str]:
    """Returns the space in front of a piece, if any, and the piece's text."""
    if not 0 <= token_id < tokenizer.vocab_size:
        return " ", f"<no piece {token_id}>"
    (piece,) = tokenizer.pieces([token_id])
    if isinstance(tokenizer, WordPieceTokenizer):
        text = piece.removeprefix(CONTINUATION)
        return "" if text != piece else " ", text
    text = piece.removeprefix(SPACE)
    return " " if text != piece else "", text
