"""Shows pretraining records as text, the masked words marked.

Main entry: `inspect_shard`.
"""

import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig, UserError, from_dict
from albert_tf.records import counter_rng
from albert_tf.records.masking import mask_batch, maskable_tokens
from albert_tf.records.schemas import RECORD_SPECS, parse_batch, record_spec
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import (
    METADATA_NAME,
    TOKENIZER_DIRECTORY,
    read_metadata,
)
from albert_tf.records.tfrecord import read_records
from albert_tf.text.sentencepiece_tokenizer import SPACE
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.wordpiece import CONTINUATION
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.shard_tools.foreign_shards import read_lengths

_BATCH = 64

# Files of google-research/albert do not name their objective, sop or nsp.
_ORIGINAL_LABELS = ("B follows A", "swapped, or B is random")


class _Layout(NamedTuple):
    """What must be known of a shard to show it."""

    kind: str
    sentence_objective: str
    max_seq_length: int
    num_slots: int
    masking: MaskingConfig | None  # how it was, or is to be, masked
    tokenizer: Tokenizer


def inspect_shard(
    path: str | os.PathLike[str],
    *,
    tokenizer_dir: str | os.PathLike[str] | None = None,
    num_records: int = 10,
    masking: MaskingConfig = MaskingConfig(),  # noqa: B008 (frozen)
) -> Iterator[str]:
    """Yields a block of text that explains the rest, then one per record.

    Args:
        path: a shard. A file that its directory's metadata.json does not
            name is taken for one of google-research/albert, whose schema is
            that of static records.
        tokenizer_dir: the vocabulary; by default the one beside the shard.
        num_records: how many records are shown, from the first on.
        masking: how dynamic records are masked here.

    Raises:
        UserError: if `path` is no shard, or there is no vocabulary for it.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        raise UserError(
            f"{path} is not a file; the path of one shard is needed, such as "
            "shards/train-00000-of-00001.tfrecord."
        )
    layout = _layout(path, tokenizer_dir, masking)
    yield _legend(path, layout)
    records = itertools.islice(read_records(path), num_records)
    first = 0
    while serialized := list(itertools.islice(records, _BATCH)):
        batch = _masked_batch(serialized, path, first, layout)
        for row in range(len(serialized)):
            record = {name: values[row] for name, values in batch.items()}
            yield _describe(record, first + row, layout)
        first += len(serialized)


def _layout(
    path: str,
    tokenizer_dir: str | os.PathLike[str] | None,
    masking: MaskingConfig,
) -> _Layout:
    """Returns the layout, by metadata.json or else by the first record."""
    directory = os.path.dirname(path)
    metadata = _metadata_naming(path)
    if metadata is None and tokenizer_dir is None:
        raise UserError(
            f"{path} is not named in a {METADATA_NAME} beside it; give the "
            "directory of its tokenizer to see it all the same."
        )
    if tokenizer_dir is None:
        tokenizer_dir = os.path.join(directory, TOKENIZER_DIRECTORY)
    tokenizer = load_tokenizer(tokenizer_dir)
    if metadata is None:
        lengths = read_lengths(path) or (0, 0)
        return _Layout("static", "", *lengths, None, tokenizer)
    source = os.path.join(directory, METADATA_NAME)
    kind = record_spec(metadata["record_kind"], source).kind
    max_seq_length = metadata["max_seq_length"]
    num_slots, used = (
        metadata["num_slots"],
        metadata.get("settings", {}).get("masking"),
    )
    if kind == "dynamic":
        num_slots = masking.prediction_slots(max_seq_length)
    elif used is None:
        masking = None
    else:
        masking = from_dict(MaskingConfig, used, source)
    return _Layout(
        kind,
        metadata["sentence_objective"],
        max_seq_length,
        num_slots,
        masking,
        tokenizer,
    )


def _metadata_naming(path: str) -> dict[str, Any] | None:
    """Returns the metadata.json that names the shard, None if there is none."""
    directory, name = os.path.split(path)
    if not os.path.exists(os.path.join(directory, METADATA_NAME)):
        return None
    metadata = read_metadata(directory or ".")
    named = {
        shard["name"]
        for split in metadata["splits"].values()
        for shard in split["shards"]
    }
    return metadata if name in named else None


def _legend(path: str, layout: _Layout) -> str:
    """Returns what the reader of the other blocks must know."""
    lines = [
        f"{path}: {layout.kind} records of at most {layout.max_seq_length} "
        "tokens.",
        "[word→[MASK]] is hidden, [word→other] is replaced, [word=word] is "
        "kept and to be predicted all the same.",
    ]
    if layout.kind == "dynamic":
        lines.append(
            "The masks are one draw of many: every reading of a record draws "
            "anew."
        )
    return "\n".join(lines)


def _masked_batch(
    serialized: list[bytes], path: str, first: int, layout: _Layout
) -> dict[str, np.ndarray]:
    """Returns records as static ones are, dynamic ones masked by one draw."""
    batch = parse_batch(
        RECORD_SPECS[layout.kind],
        serialized,
        max_seq_length=layout.max_seq_length,
        num_slots=layout.num_slots,
        namer=lambda number: f"{path}, record {first + number}",
    )
    if layout.kind == "static":
        return batch
    tokenizer, ids = layout.tokenizer, batch["input_ids"]
    maskable = maskable_tokens(ids, batch["input_mask"], tokenizer.special_ids)
    masked = mask_batch(
        ids,
        batch["word_starts"],
        batch["segment_ids"],
        maskable,
        counter_rng.fold_in(0, first + np.arange(len(serialized))),
        lengths=batch["input_mask"].sum(axis=1),
        config=layout.masking,
        num_slots=layout.num_slots,
        mask_id=tokenizer.mask_id,
        replacement_ids=tokenizer.replacement_ids,
    )
    return batch | {
        "input_ids": masked.input_ids,
        "masked_lm_positions": masked.masked_lm_positions,
        "masked_lm_ids": masked.masked_lm_ids,
        "masked_lm_weights": masked.masked_lm_weights,
    }


def _describe(
    record: Mapping[str, np.ndarray], number: int, layout: _Layout
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
    facts = [
        f"{length} tokens, {layout.max_seq_length - length} of padding",
        _label(int(record["sentence_order_label"]), layout),
        _masked_of_budget(int(used.sum()), length, layout),
    ]
    lines = [f"record {number}: {'; '.join(filter(None, facts))}"]
    for segment, name in enumerate("AB"):
        places = np.flatnonzero(real & (record["segment_ids"] == segment))
        if len(places):
            text = _text(record["input_ids"], places, masked_ids, layout)
            lines.append(f"  {name}: {text}")
    return "\n".join(lines)


def _label(label: int, layout: _Layout) -> str:
    objective = SENTENCE_OBJECTIVES.get(layout.sentence_objective)
    words = objective.label_words if objective else _ORIGINAL_LABELS
    return words[label] if 0 <= label < len(words) else f"label {label}"


def _masked_of_budget(masked: int, length: int, layout: _Layout) -> str:
    if layout.masking is None:
        return f"{masked} masked, room for {layout.num_slots}"
    share = max(1, round(layout.masking.masked_lm_prob * length))
    return f"{masked} masked of a budget of {min(layout.num_slots, share)}"


def _text(
    input_ids: np.ndarray,
    places: np.ndarray,
    masked_ids: Mapping[int, int],
    layout: _Layout,
) -> str:
    """Returns the tokens at `places` as text, without [CLS] and [SEP]."""
    tokenizer = layout.tokenizer
    framing = (tokenizer.cls_id, tokenizer.sep_id)
    parts = []
    for place in places.tolist():
        shown = int(input_ids[place])
        token = masked_ids.get(place, shown)
        space, text = _space_and_text(token, tokenizer)
        if place in masked_ids:
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
