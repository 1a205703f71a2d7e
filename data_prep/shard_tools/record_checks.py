"""Checks pretraining records, a batch at a time: `check_records`.

What is checked is what training relies on: ids within the vocabulary, the
frame of [CLS] and [SEP], segments, labels, and masks that agree with the
text. How the records were drawn is the builder's, whose tests judge it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from data_prep.shard_tools.record_rules import STATIC, RecordRules

Features = Mapping[str, np.ndarray]
_SLOTS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


class Check(NamedTuple):
    """A statement about records, and where in a batch it does not hold.

    All arrays are `[batch]` or `[batch, positions]`.
    """

    statement: str
    wrong: np.ndarray  # bool
    values: Features  # that a message shows

    def failed_records(self) -> list[int]:
        """Returns the numbers of the records that fail."""
        by_record = self.wrong.reshape(len(self.wrong), -1).any(axis=1)
        return np.flatnonzero(by_record).tolist()

    def describe(self, record: int) -> str:
        """Returns the values at the first wrong position of a record."""
        at, place = "", (record,)
        if self.wrong.ndim == 2:
            place = (record, int(self.wrong[record].argmax()))
            at = f"at {place[1]}: "
        shown = (
            f"{name} {values[place[: values.ndim]]}"
            for name, values in self.values.items()
        )
        return at + ", ".join(shown)


def check_records(features: Features, rules: RecordRules) -> Iterator[Check]:
    """Yields every check of parsed records."""
    yield from _check_text(features, rules)
    if rules.kind == STATIC:
        yield from _check_masks(features, rules)


def count_records(features: Features) -> dict[str, int]:
    """Returns the counts that metadata.json has too, by its names."""
    counts = {
        "instances": len(features["input_ids"]),
        "instance_tokens": int(features["input_mask"].sum()),
        "label_1": int((features["sentence_order_label"] == 1).sum()),
    }
    if "masked_lm_weights" in features:
        used = features["masked_lm_weights"] != 0
        counts["masked_tokens"] = int(used.sum())
    return counts


def _check_text(features: Features, rules: RecordRules) -> Iterator[Check]:
    """Yields the checks of both kinds of records."""
    tokenizer, objective = rules.tokenizer, rules.objective
    input_ids, segment_ids = features["input_ids"], features["segment_ids"]
    labels = features["sentence_order_label"]
    yield Check(
        "ids are within the vocabulary",
        _is_outside(input_ids, rules),
        {"input_ids": input_ids},
    )
    tokens = _without_masks(features) if rules.kind == STATIC else input_ids
    is_token = features["input_mask"] != 0
    is_separator = is_token & (tokens == tokenizer.sep_id)
    first, number = tokens[:, 0], is_separator.sum(axis=1)
    last = tokens[np.arange(len(tokens)), is_token.sum(axis=1) - 1]
    yield Check(
        "[CLS] is first and a [SEP] ends each segment",
        (first != tokenizer.cls_id)
        | (last != tokenizer.sep_id)
        | (number != objective.num_segments),
        {"first token": first, "last token": last, "number of [SEP]": number},
    )
    in_second = np.cumsum(is_separator, axis=1) > is_separator
    yield Check(
        "segment_ids are 0 through the first [SEP], then 1",
        is_token & (segment_ids != in_second),
        {"segment_ids": segment_ids},
    )
    yield Check(
        "the label is one of the objective's",
        (labels < 0) | (labels >= len(objective.label_words)),
        {"label": labels},
    )


def _check_masks(features: Features, rules: RecordRules) -> Iterator[Check]:
    """Yields the checks of what only static records have."""
    input_mask, input_ids = features["input_mask"], features["input_ids"]
    length = (input_mask != 0).sum(axis=1, keepdims=True)
    is_token = np.arange(rules.max_seq_length) < length
    yield Check(
        "input_mask is ones, then zeros",
        (input_mask != is_token) | (length == 0),
        {"input_mask": input_mask},
    )
    slots = {name: features[name] for name in _SLOTS}
    positions, ids, weights = slots.values()
    used = weights != 0
    in_order = np.arange(rules.num_slots) < used.sum(axis=1, keepdims=True)
    yield Check("weights are ones, then zeros", weights != in_order, slots)
    previous = np.pad(positions, ((0, 0), (1, 0)))[:, :-1]
    in_text = (positions > previous) & (positions < length - 1)
    yield Check("masked positions ascend in the text", used & ~in_text, slots)
    no_text = {*rules.tokenizer.special_ids} - {rules.tokenizer.unk_id}
    unfit = np.isin(ids, [*no_text]) | _is_outside(ids, rules)
    yield Check("masked ids are those of text", used & unfit, slots)
    filled = (positions != 0) | (ids != 0)
    yield Check("unused slots are zeros", ~used & filled, slots)
    is_masked = np.zeros(is_token.shape, bool)
    row, position, _ = _targets(features)
    is_masked[row, position] = True
    is_hidden = is_token & (input_ids == rules.tokenizer.mask_id)
    yield Check(
        "[MASK] is at masked positions alone",
        is_hidden & ~is_masked,
        {"input_ids": input_ids},
    )


def _is_outside(ids: np.ndarray, rules: RecordRules) -> np.ndarray:
    return (ids < 0) | (ids >= rules.tokenizer.vocab_size)


def _targets(features: Features) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns record, position and id of every masked token."""
    positions, ids, weights = (features[name] for name in _SLOTS)
    width = features["input_ids"].shape[1]
    used = (weights != 0) & (positions >= 0) & (positions < width)
    return np.nonzero(used)[0], positions[used], ids[used]


def _without_masks(features: Features) -> np.ndarray:
    """Returns the ids before masking."""
    tokens = features["input_ids"].copy()
    row, position, ids = _targets(features)
    tokens[row, position] = ids
    return tokens
