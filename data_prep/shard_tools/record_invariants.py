"""What every pretraining record promises: a table, judged on whole batches.

`INVARIANTS` has a row for each promise. A row's function looks at a
`ParsedBatch` and says where the promise is broken; each row judges one thing
and leaves to the others what they judge, so that one fault is told once.

The words and the budget are worked out here anew, by other means than
`albert_tf.records.masking` has: a check should not share the faults of what it
checks.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig
from albert_tf.records.sentence_objectives import SentenceObjective
from albert_tf.text.tokenizer import Tokenizer

DYNAMIC, STATIC = "dynamic", "static"


@dataclasses.dataclass(frozen=True)
class RecordRules:
    """What the records of a directory are to be.

    `masking` is None where it is not known how static records were masked.
    """

    kind: str
    objective: SentenceObjective
    max_seq_length: int
    num_slots: int
    masking: MaskingConfig | None
    tokenizer: Tokenizer

    @functools.cached_property
    def word_start(self) -> np.ndarray:
        """Bool `[vocab_size]`: pieces that a record marks as word starts."""
        marked = np.array(self.tokenizer.word_start, bool)
        # As in the original's token_boundary.
        marked[[self.tokenizer.cls_id, self.tokenizer.sep_id]] = True
        marked[self.tokenizer.pad_id] = False
        return marked

    @functools.cached_property
    def is_special(self) -> np.ndarray:
        """Bool `[vocab_size]`: pieces that are never masked."""
        return self._among(self.tokenizer.special_ids)

    @functools.cached_property
    def is_framing(self) -> np.ndarray:
        """Bool `[vocab_size]`: special pieces that no text brings along."""
        unknown = self.tokenizer.unk_id
        return self._among(
            [i for i in self.tokenizer.special_ids if i != unknown]
        )

    @functools.cached_property
    def is_replacement(self) -> np.ndarray:
        """Bool `[vocab_size]`: what may stand in a masked token's place."""
        return self._among(self.tokenizer.replacement_ids)

    @property
    def num_separators(self) -> int:
        """How many [SEP] a record has."""
        return self.objective.num_segments

    def _among(self, ids: np.typing.ArrayLike) -> np.ndarray:
        return np.isin(np.arange(self.tokenizer.vocab_size), ids)


class Wrong(NamedTuple):
    """Where a promise is broken, and what a message shows there.

    All arrays are `[batch]` or `[batch, places]`.
    """

    where: np.ndarray
    shown: Mapping[str, np.ndarray]


class _Words(NamedTuple):
    """The words of a batch's text, row after row, in flat arrays."""

    begins: np.ndarray  # [batch, seq] bool, the first tokens
    row: np.ndarray  # [words] which record
    size: np.ndarray  # [words] tokens
    num_masked: np.ndarray  # [words] tokens that are masked


class ParsedBatch:
    """Parsed records, and what the rows of the table ask of them.

    Args:
        columns: what `records.parse_batch` returns.
        rules: what the records are to be.
    """

    def __init__(
        self, columns: Mapping[str, np.ndarray], rules: RecordRules
    ) -> None:
        self.rules = rules
        self.tokenizer = rules.tokenizer
        self.input_ids = columns["input_ids"]
        self.input_mask = columns["input_mask"]
        self.segment_ids = columns["segment_ids"]
        self.labels = columns["sentence_order_label"]
        self.boundary_name = (
            "token_boundary" if rules.kind == STATIC else "word_starts"
        )
        self.boundaries = columns[self.boundary_name]
        none = np.zeros((len(self.input_ids), 0), np.int32)
        self.positions = columns.get("masked_lm_positions", none)
        self.masked_ids = columns.get("masked_lm_ids", none)
        self.weights = columns.get("masked_lm_weights", none)
        self.column = np.arange(rules.max_seq_length, dtype=np.int32)

    @functools.cached_property
    def length(self) -> np.ndarray:
        """`[batch]` tokens up to the last that input_mask holds."""
        backwards = self.input_mask[:, ::-1] != 0
        length = self.rules.max_seq_length - backwards.argmax(axis=1)
        return np.where(backwards.any(axis=1), length, 0).astype(np.int32)

    @functools.cached_property
    def real(self) -> np.ndarray:
        """Bool `[batch, seq]`: tokens in front of the padding."""
        return self.column < self.length[:, None]

    @functools.cached_property
    def frame(self) -> np.ndarray:
        """Bool `[batch, seq]`: where segment_ids and length want [CLS], [SEP].

        These places hold no text, whatever the tokens there are.
        """
        rows = np.arange(len(self.length))
        frame = np.zeros(self.real.shape, bool)
        frame[:, 0] = True
        frame[rows, self.length - 1] = True
        if self.rules.num_separators == 2:
            first = ((self.segment_ids == 0) & self.real).sum(axis=1)
            frame[rows, first - 1] = True
        return frame

    @functools.cached_property
    def listed(self) -> np.ndarray:
        """Bool `[batch, slots]`: slots in use."""
        return self.weights != 0

    @functools.cached_property
    def num_masked(self) -> np.ndarray:
        """`[batch]` slots in use."""
        return self.listed.sum(axis=1)

    @functools.cached_property
    def on_text(self) -> np.ndarray:
        """Bool `[batch, slots]`: slots in use whose position can be text."""
        within = (self.positions >= 0) & (self.positions < self.length[:, None])
        return self.listed & within & ~self.at_positions(self.frame)

    @functools.cached_property
    def masked(self) -> np.ndarray:
        """Bool `[batch, seq]`: the positions of `on_text`."""
        masked = np.zeros(self.real.shape, bool)
        row, slot = np.nonzero(self.on_text)
        masked[row, self.positions[row, slot]] = True
        return masked

    @functools.cached_property
    def tokens(self) -> np.ndarray:
        """`[batch, seq]` ids before masking; see `known`."""
        tokens = self.input_ids.copy()
        row, slot = np.nonzero(self.on_text & ~self.unfit_masked_ids)
        tokens[row, self.positions[row, slot]] = self.masked_ids[row, slot]
        return tokens

    @functools.cached_property
    def unfit_masked_ids(self) -> np.ndarray:
        """Bool `[batch, slots]`: slots in use whose id no text can have."""
        framing = self.look_up(self.rules.is_framing, self.masked_ids)
        return self.listed & (framing | self.is_outside(self.masked_ids))

    @functools.cached_property
    def known(self) -> np.ndarray:
        """Bool `[batch, seq]`: where `tokens` are in front of the padding.

        Not where an id is outside of the vocabulary, or what a static record
        hides is not to be found.
        """
        known = self.real & ~self.is_outside(self.tokens)
        if self.rules.kind == STATIC:
            known &= self.tokens != self.tokenizer.mask_id
            row, slot = np.nonzero(self.on_text & self.unfit_masked_ids)
            known[row, self.positions[row, slot]] = False
        return known

    @functools.cached_property
    def num_separators(self) -> np.ndarray:
        """`[batch]` how many [SEP] there are."""
        return self._separators.sum(axis=1)

    @functools.cached_property
    def first_separator(self) -> np.ndarray:
        """`[batch]` where the first [SEP] is; -1 if their number is wrong."""
        first = self._separators.argmax(axis=1)
        right = self.num_separators == self.rules.num_separators
        return np.where(right, first, -1)

    @functools.cached_property
    def budget(self) -> np.ndarray:
        """`[batch]` how many tokens are to be masked."""
        share = np.rint(self.rules.masking.masked_lm_prob * self.length)
        return np.clip(share, 1, self.rules.num_slots).astype(np.int64)

    @functools.cached_property
    def words(self) -> _Words:
        """The words that masking may hide.

        A word begins at a piece that starts one, or where text begins.
        """
        tables = self.rules
        text = self.known & ~self.frame
        text &= ~self.look_up(tables.is_special, self.tokens)
        begins = text.copy()
        if tables.masking.whole_word_masking:
            begins[:, 1:] &= (
                self.look_up(tables.word_start, self.tokens)[:, 1:]
                | ~text[:, :-1]
            )
        number = np.cumsum(begins.reshape(-1), dtype=np.int32) - 1
        row = np.nonzero(begins)[0]
        in_word = number[text.reshape(-1)]
        masked = number[(text & self.masked).reshape(-1)]
        return _Words(
            begins,
            row,
            np.bincount(in_word, minlength=len(row)),
            np.bincount(masked, minlength=len(row)),
        )

    def at_words(self, where: np.ndarray) -> np.ndarray:
        """Returns bool `[batch, seq]`, the first tokens of words `[words]`."""
        places = np.zeros(self.real.shape, bool)
        places[self.words.begins] = where
        return places

    def at_positions(self, values: np.ndarray) -> np.ndarray:
        """Returns `values` `[batch, seq]` at the masked positions."""
        inside = np.clip(self.positions, 0, self.rules.max_seq_length - 1)
        return np.take_along_axis(values, inside, axis=1)

    def is_outside(self, ids: np.ndarray) -> np.ndarray:
        """Returns which ids are none of the vocabulary's."""
        return (ids < 0) | (ids >= self.tokenizer.vocab_size)

    def look_up(self, table: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Returns `table[ids]`; without meaning for ids outside of it."""
        return table.take(ids, mode="clip")

    @functools.cached_property
    def _separators(self) -> np.ndarray:
        return self.real & (self.tokens == self.tokenizer.sep_id)


@dataclasses.dataclass(frozen=True)
class Invariant:
    """One promise.

    Attributes:
        name: the promise in words.
        broken: says where a batch breaks it.
        kinds: of records that it applies to.
        of_original: whether google-research/albert promises it too.
        needs_masking: whether the masking settings must be known.
    """

    name: str
    broken: Callable[[ParsedBatch], Wrong]
    kinds: tuple[str, ...] = (DYNAMIC, STATIC)
    of_original: bool = True
    needs_masking: bool = False


def _input_ids(batch: ParsedBatch) -> Wrong:
    return Wrong(
        batch.is_outside(batch.input_ids), {"input_ids": batch.input_ids}
    )


def _first_token(batch: ParsedBatch) -> Wrong:
    first = batch.tokens[:, 0]
    return Wrong(first != batch.tokenizer.cls_id, {"first token": first})


def _separators(batch: ParsedBatch) -> Wrong:
    wrong = batch.num_separators != batch.rules.num_separators
    return Wrong(wrong, {"number of [SEP]": batch.num_separators})


def _last_token(batch: ParsedBatch) -> Wrong:
    last = batch.tokens[np.arange(len(batch.length)), batch.length - 1]
    # Without any [SEP], their number is told.
    wrong = (last != batch.tokenizer.sep_id) & (batch.first_separator >= 0)
    return Wrong(wrong, {"last token": last})


def _segments(batch: ParsedBatch) -> Wrong:
    first = batch.first_separator - 1
    second = batch.length - batch.first_separator - 2
    wrong = first < 1
    if batch.rules.num_separators == 2:
        wrong |= second < 1
    return Wrong(
        wrong & (batch.first_separator >= 0),
        {"tokens of the first": first, "of the second": second},
    )


def _segment_ids(batch: ParsedBatch) -> Wrong:
    first = batch.first_separator[:, None]
    # Of a single segment none, its [SEP] being the last.
    expected = batch.column > first
    wrong = (batch.segment_ids != expected) & batch.real & (first >= 0)
    return Wrong(wrong, {"segment_ids": batch.segment_ids})


def _special_tokens(batch: ParsedBatch) -> Wrong:
    tokenizer = batch.tokenizer
    strange = [tokenizer.cls_id, tokenizer.pad_id]
    if batch.rules.kind == DYNAMIC:
        strange.append(tokenizer.mask_id)
    wrong = np.isin(batch.tokens, strange) & batch.real & ~batch.frame
    return Wrong(wrong, {"input_ids": batch.tokens})


def _labels(batch: ParsedBatch) -> Wrong:
    num_labels = len(batch.rules.objective.label_words)
    wrong = (batch.labels < 0) | (batch.labels >= num_labels)
    return Wrong(wrong, {"label": batch.labels})


def _boundaries(batch: ParsedBatch) -> Wrong:
    expected = batch.look_up(batch.rules.word_start, batch.tokens)
    wrong = (batch.boundaries != expected) & batch.known
    return Wrong(
        wrong, {batch.boundary_name: batch.boundaries, "token": batch.tokens}
    )


def _input_mask(batch: ParsedBatch) -> Wrong:
    wrong = batch.input_mask != batch.real
    wrong[:, 0] |= batch.length == 0
    return Wrong(wrong, {"input_mask": batch.input_mask})


def _padding(batch: ParsedBatch) -> Wrong:
    columns = {
        "input_ids": batch.input_ids,
        "segment_ids": batch.segment_ids,
        batch.boundary_name: batch.boundaries,
    }
    filled = batch.input_ids != batch.tokenizer.pad_id
    filled |= (batch.segment_ids != 0) | (batch.boundaries != 0)
    return Wrong(filled & ~batch.real, columns)


def _ascending(batch: ParsedBatch) -> Wrong:
    wrong = np.zeros(batch.listed.shape, bool)
    wrong[:, 1:] = batch.listed[:, 1:] & batch.listed[:, :-1]
    wrong[:, 1:] &= batch.positions[:, 1:] <= batch.positions[:, :-1]
    return Wrong(wrong, {"masked_lm_positions": batch.positions})


def _positions(batch: ParsedBatch) -> Wrong:
    return Wrong(
        batch.listed & ~batch.on_text,
        {"masked_lm_positions": batch.positions},
    )


def _unused_slots(batch: ParsedBatch) -> Wrong:
    filled = (batch.positions != 0) | (batch.masked_ids != 0)
    return Wrong(
        filled & ~batch.listed,
        {
            "masked_lm_positions": batch.positions,
            "masked_lm_ids": batch.masked_ids,
        },
    )


def _weights(batch: ParsedBatch) -> Wrong:
    wrong = batch.listed & (batch.weights != 1)
    wrong[:, 1:] |= batch.listed[:, 1:] & ~batch.listed[:, :-1]
    return Wrong(wrong, {"masked_lm_weights": batch.weights})


def _masked_ids(batch: ParsedBatch) -> Wrong:
    return Wrong(batch.unfit_masked_ids, {"masked_lm_ids": batch.masked_ids})


def _unknown_masked(batch: ParsedBatch) -> Wrong:
    wrong = batch.listed & (batch.masked_ids == batch.tokenizer.unk_id)
    return Wrong(wrong, {"masked_lm_positions": batch.positions})


def _within_budget(batch: ParsedBatch) -> Wrong:
    return Wrong(
        batch.num_masked > batch.budget,
        {"masked": batch.num_masked, "budget": batch.budget},
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


def _whole_words(batch: ParsedBatch) -> Wrong:
    words = batch.words
    wrong = (words.num_masked > 0) & (words.num_masked < words.size)
    return Wrong(
        batch.at_words(wrong), {"first token of the word": batch.tokens}
    )


def _replacements(batch: ParsedBatch) -> Wrong:
    shown = batch.at_positions(batch.input_ids)
    stays = (shown == batch.tokenizer.mask_id) | (shown == batch.masked_ids)
    fit = batch.look_up(batch.rules.is_replacement, shown)
    wrong = batch.on_text & ~stays & ~fit & ~batch.is_outside(shown)
    return Wrong(wrong, {"position": batch.positions, "replacement": shown})


def _unlisted_masks(batch: ParsedBatch) -> Wrong:
    wrong = (batch.input_ids == batch.tokenizer.mask_id) & batch.real
    return Wrong(wrong & ~batch.masked, {"input_ids": batch.input_ids})


_STATIC_ONLY = (STATIC,)

INVARIANTS: tuple[Invariant, ...] = (
    Invariant("ids are within the vocabulary", _input_ids),
    Invariant("the first token is [CLS]", _first_token),
    Invariant("there are two [SEP], or one in a single segment", _separators),
    Invariant("the last token is [SEP]", _last_token),
    Invariant("no segment is empty", _segments),
    Invariant(
        "segment_ids are 0 through the first [SEP], then 1", _segment_ids
    ),
    Invariant("no [CLS], <pad> or [MASK] is in the text", _special_tokens),
    Invariant("the label is 0 or 1, 0 in a single segment", _labels),
    Invariant("word starts are the tokenizer's", _boundaries),
    Invariant("input_mask is ones, then zeros", _input_mask, _STATIC_ONLY),
    Invariant("padding is <pad> and zeros", _padding, _STATIC_ONLY),
    Invariant("masked positions ascend", _ascending, _STATIC_ONLY),
    Invariant("masked positions are in the text", _positions, _STATIC_ONLY),
    Invariant("unused slots are zeros", _unused_slots, _STATIC_ONLY),
    Invariant("weights are ones, then zeros", _weights, _STATIC_ONLY),
    Invariant("masked ids are those of text", _masked_ids, _STATIC_ONLY),
    Invariant(
        "no <unk> is masked", _unknown_masked, _STATIC_ONLY, of_original=False
    ),
    Invariant(
        "no more is masked than the budget",
        _within_budget,
        _STATIC_ONLY,
        needs_masking=True,
    ),
    Invariant(
        "no word is left that fits into the budget",
        _fills_budget,
        _STATIC_ONLY,
        of_original=False,
        needs_masking=True,
    ),
    Invariant(
        "words are masked whole",
        _whole_words,
        _STATIC_ONLY,
        of_original=False,
        needs_masking=True,
    ),
    Invariant(
        "random replacements are pieces that text can hold",
        _replacements,
        _STATIC_ONLY,
        of_original=False,
    ),
    Invariant(
        "no [MASK] is anywhere but at masked positions",
        _unlisted_masks,
        _STATIC_ONLY,
    ),
)


def invariants_for(rules: RecordRules) -> list[Invariant]:
    """Returns the rows that apply to records under these rules."""
    return [
        row
        for row in INVARIANTS
        if rules.kind in row.kinds
        and (rules.masking is not None or not row.needs_masking)
    ]
