"""The invariants of pretraining records: a table, judged on whole batches.

`INVARIANTS` has a row for each, in the order in which they are reported. Each
row judges one thing and leaves to the others what they judge, so that one
fault is reported once.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from albert_tf.records.parsed_batch import (
    DYNAMIC,
    STATIC,
    ParsedBatch,
    RecordRules,
)


class Wrong(NamedTuple):
    """Where an invariant is broken, and the values that a message shows.

    All arrays are `[batch]` or `[batch, positions]`.
    """

    where: np.ndarray  # bool
    shown: Mapping[str, np.ndarray]

    def records(self) -> np.ndarray:
        """Returns the numbers of the records that break it."""
        by_record = self.where.reshape(len(self.where), -1).any(axis=1)
        return np.flatnonzero(by_record)

    def describe(self, record: int) -> str:
        """Returns the values at the first wrong position of a record."""
        at, position = "", 0
        if self.where.ndim == 2:
            position = int(self.where[record].argmax())
            at = f"at {position}: "
        values = {
            name: values[record]
            if values.ndim == 1
            else values[record, position]
            for name, values in self.shown.items()
        }
        return at + ", ".join(f"{name} {v}" for name, v in values.items())


class Invariant(NamedTuple):
    """A row of INVARIANTS."""

    name: str
    broken: Callable[[ParsedBatch], Wrong]
    static: bool = False  # of static records alone
    of_original: bool = True  # google-research/albert keeps it too
    needs_masking: bool = False  # the masking settings must be known
    needed_to_train: bool = False  # demanded of imported files too


INVARIANTS: list[Invariant] = []


def _invariant(name: str, **options: bool) -> Callable:
    """Adds the decorated function to the table."""

    def add(broken: Callable[[ParsedBatch], Wrong]) -> Callable:
        INVARIANTS.append(Invariant(name, broken, **options))
        return broken

    return add


_static_invariant = functools.partial(_invariant, static=True)


def invariants_for(rules: RecordRules) -> list[Invariant]:
    """Returns the rows that apply to records under these rules."""
    return [
        row
        for row in INVARIANTS
        if (rules.kind == STATIC or not row.static)
        and (rules.masking is not None or not row.needs_masking)
    ]


@_invariant("ids are within the vocabulary", needed_to_train=True)
def _input_ids(batch: ParsedBatch) -> Wrong:
    return Wrong(
        batch.is_outside(batch.input_ids), {"input_ids": batch.input_ids}
    )


@_invariant("the first token is [CLS]", needed_to_train=True)
def _first_token(batch: ParsedBatch) -> Wrong:
    first = batch.tokens[:, 0]
    return Wrong(first != batch.tokenizer.cls_id, {"first token": first})


@_invariant("there are two [SEP], or one in a single segment")
def _separators(batch: ParsedBatch) -> Wrong:
    number = batch.separators.sum(axis=1)
    expected = batch.rules.objective.num_segments
    return Wrong(number != expected, {"number of [SEP]": number})


@_invariant("the last token is [SEP]")
def _last_token(batch: ParsedBatch) -> Wrong:
    last = batch.tokens[np.arange(len(batch.length)), batch.length - 1]
    # Without any [SEP], their number is reported.
    wrong = (last != batch.tokenizer.sep_id) & (batch.first_separator >= 0)
    return Wrong(wrong, {"last token": last})


@_invariant("no segment is empty")
def _segments(batch: ParsedBatch) -> Wrong:
    first = batch.first_separator - 1
    second = batch.length - batch.first_separator - 2
    wrong = first < 1
    if batch.rules.objective.num_segments == 2:
        wrong |= second < 1
    return Wrong(
        wrong & (batch.first_separator >= 0),
        {"tokens of the first": first, "of the second": second},
    )


@_invariant(
    "segment_ids are 0 through the first [SEP], then 1", needed_to_train=True
)
def _segment_ids(batch: ParsedBatch) -> Wrong:
    first = batch.first_separator[:, None]
    # Of a single segment none, its [SEP] being the last.
    expected = batch.column > first
    wrong = (batch.segment_ids != expected) & batch.real & (first >= 0)
    return Wrong(wrong, {"segment_ids": batch.segment_ids})


@_invariant("no [CLS], <pad> or [MASK] is in the text")
def _special_tokens(batch: ParsedBatch) -> Wrong:
    special = [batch.tokenizer.cls_id, batch.tokenizer.pad_id]
    if batch.rules.kind == DYNAMIC:
        special.append(batch.tokenizer.mask_id)
    wrong = np.isin(batch.tokens, special) & batch.real & ~batch.frame
    return Wrong(wrong, {"input_ids": batch.tokens})


@_invariant(
    "the label is one of the objective's, 0 in a single segment",
    needed_to_train=True,
)
def _labels(batch: ParsedBatch) -> Wrong:
    num_labels = len(batch.rules.objective.label_words)
    wrong = (batch.labels < 0) | (batch.labels >= num_labels)
    return Wrong(wrong, {"label": batch.labels})


@_invariant("word starts are the tokenizer's")
def _boundaries(batch: ParsedBatch) -> Wrong:
    wrong = (batch.boundaries != batch.starts_word) & batch.known
    return Wrong(
        wrong, {batch.boundary_name: batch.boundaries, "token": batch.tokens}
    )


@_static_invariant("input_mask is ones, then zeros", needed_to_train=True)
def _input_mask(batch: ParsedBatch) -> Wrong:
    wrong = batch.input_mask != batch.real
    wrong[:, 0] |= batch.length == 0
    return Wrong(wrong, {"input_mask": batch.input_mask})


@_static_invariant("padding is <pad> and zeros")
def _padding(batch: ParsedBatch) -> Wrong:
    columns = {
        "input_ids": batch.input_ids,
        "segment_ids": batch.segment_ids,
        "token_boundary": batch.boundaries,
    }
    filled = batch.input_ids != batch.tokenizer.pad_id
    filled |= (batch.segment_ids != 0) | (batch.boundaries != 0)
    return Wrong(filled & ~batch.real, columns)


@_static_invariant("masked positions ascend")
def _ascending(batch: ParsedBatch) -> Wrong:
    wrong = np.zeros(batch.listed.shape, bool)
    wrong[:, 1:] = batch.listed[:, 1:] & batch.listed[:, :-1]
    wrong[:, 1:] &= batch.positions[:, 1:] <= batch.positions[:, :-1]
    return Wrong(wrong, {"masked_lm_positions": batch.positions})


@_static_invariant("masked positions are in the text", needed_to_train=True)
def _positions(batch: ParsedBatch) -> Wrong:
    wrong = batch.listed & ~batch.on_text
    return Wrong(wrong, {"masked_lm_positions": batch.positions})


@_static_invariant("unused slots are zeros", needed_to_train=True)
def _unused_slots(batch: ParsedBatch) -> Wrong:
    filled = (batch.positions != 0) | (batch.masked_ids != 0)
    columns = {
        "masked_lm_positions": batch.positions,
        "masked_lm_ids": batch.masked_ids,
    }
    return Wrong(filled & ~batch.listed, columns)


@_static_invariant("weights are ones, then zeros", needed_to_train=True)
def _weights(batch: ParsedBatch) -> Wrong:
    wrong = batch.listed & (batch.weights != 1)
    wrong[:, 1:] |= batch.listed[:, 1:] & ~batch.listed[:, :-1]
    return Wrong(wrong, {"masked_lm_weights": batch.weights})


@_static_invariant("masked ids are those of text", needed_to_train=True)
def _masked_ids(batch: ParsedBatch) -> Wrong:
    return Wrong(batch.unfit_masked_ids, {"masked_lm_ids": batch.masked_ids})


@_static_invariant("no <unk> is masked", of_original=False)
def _unknown_masked(batch: ParsedBatch) -> Wrong:
    wrong = batch.listed & (batch.masked_ids == batch.tokenizer.unk_id)
    return Wrong(wrong, {"masked_lm_positions": batch.positions})


@_static_invariant("no more is masked than the budget", needs_masking=True)
def _within_budget(batch: ParsedBatch) -> Wrong:
    return Wrong(
        batch.num_masked > batch.budget,
        {"masked": batch.num_masked, "budget": batch.budget},
    )


@_static_invariant(
    "no word is left that fits into the budget",
    of_original=False,
    needs_masking=True,
)
def _fills_budget(batch: ParsedBatch) -> Wrong:
    words = batch.words
    left = (batch.budget - batch.num_masked)[words.row]
    wrong = (words.num_masked == 0) & (words.size <= left)
    return Wrong(
        batch.at_words(wrong),
        {
            "masked": batch.num_masked,
            "budget": batch.budget,
            "first token of the word": batch.tokens,
        },
    )


@_static_invariant(
    "words are masked whole", of_original=False, needs_masking=True
)
def _whole_words(batch: ParsedBatch) -> Wrong:
    words = batch.words
    wrong = (words.num_masked > 0) & (words.num_masked < words.size)
    return Wrong(
        batch.at_words(wrong), {"first token of the word": batch.tokens}
    )


@_static_invariant(
    "random replacements are pieces that text can hold", of_original=False
)
def _replacements(batch: ParsedBatch) -> Wrong:
    shown = batch.at_positions(batch.input_ids)
    stays = (shown == batch.tokenizer.mask_id) | (shown == batch.masked_ids)
    fit = np.isin(shown, batch.tokenizer.replacement_ids)
    wrong = batch.on_text & ~stays & ~fit & ~batch.is_outside(shown)
    return Wrong(wrong, {"position": batch.positions, "replacement": shown})


@_static_invariant("no [MASK] is anywhere but at masked positions")
def _unlisted_masks(batch: ParsedBatch) -> Wrong:
    wrong = (batch.input_ids == batch.tokenizer.mask_id) & batch.real
    return Wrong(wrong & ~batch.masked, {"input_ids": batch.input_ids})
