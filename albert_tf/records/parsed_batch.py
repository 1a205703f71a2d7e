"""Pretraining records as arrays, and the rules that they are to follow.

`RecordRules` describes the records of a directory; `ParsedBatch` has the
quantities that the rows of `invariants` compare. Words and budgets are found
here by other means than in `masking`: a check should not share the faults of
the code that it checks.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig, UserError, from_dict, lookup
from albert_tf.records.schemas import RECORD_SPECS, Namer, parse_batch
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import METADATA_NAME, TOKENIZER_DIRECTORY
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

DYNAMIC, STATIC = RECORD_SPECS


@dataclasses.dataclass(frozen=True)
class RecordRules:
    """The form of a directory's records."""

    kind: str  # a row of RECORD_SPECS
    objective: SentenceObjective | None  # None: not known, sop or nsp
    max_seq_length: int
    num_slots: int  # masked positions of a static record
    masking: MaskingConfig | None  # None: not known how they were masked
    tokenizer: Tokenizer

    def parse(
        self, records: Sequence[bytes], namer: Namer
    ) -> dict[str, np.ndarray]:
        """Returns the features of records, see `schemas.parse_batch`."""
        return parse_batch(
            self.kind,
            records,
            max_seq_length=self.max_seq_length,
            num_slots=self.num_slots,
            namer=namer,
        )

    @functools.cached_property
    def word_start(self) -> np.ndarray:
        """Bool `[vocab_size]`: pieces that a record marks as word starts."""
        marked = np.array(self.tokenizer.word_start, bool)
        # As in the original's token_boundary.
        marked[[self.tokenizer.cls_id, self.tokenizer.sep_id]] = True
        marked[self.tokenizer.pad_id] = False
        return marked


def read_rules(
    directory: str,
    metadata: Mapping[str, Any],
    tokenizer_dir: str | os.PathLike[str] | None = None,
) -> RecordRules:
    """Returns the rules of a shard directory by its metadata.json.

    `tokenizer_dir` has a vocabulary in place of the one beside the shards.

    Raises:
        UserError: when metadata.json lacks an entry, or the tokenizer cannot
            be read.
    """
    path = os.path.join(directory, METADATA_NAME)
    try:
        kind = metadata["record_kind"]
        lookup(RECORD_SPECS, kind, f"{path}: record_kind")
        objective = lookup(
            SENTENCE_OBJECTIVES,
            metadata["sentence_objective"],
            f"{path}: sentence_objective",
        )
        lengths = metadata["max_seq_length"], metadata["num_slots"]
    except KeyError as missing:
        raise UserError(
            f"{path} has no {missing}; build the shards again."
        ) from None
    masking = metadata.get("settings", {}).get("masking")
    return RecordRules(
        kind,
        objective,
        *lengths,
        masking and from_dict(MaskingConfig, masking, path),
        load_tokenizer(
            tokenizer_dir or os.path.join(directory, TOKENIZER_DIRECTORY)
        ),
    )


class Words(NamedTuple):
    """The words of a batch's text, row after row, in flat arrays."""

    begins: np.ndarray  # [batch, seq] bool, the first tokens
    row: np.ndarray  # [words] which record
    size: np.ndarray  # [words] tokens
    num_masked: np.ndarray  # [words] tokens that are masked


class ParsedBatch:
    """Parsed records, and the quantities that invariants compare."""

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

        These positions hold no text, whatever the tokens there are.
        """
        rows = np.arange(len(self.length))
        frame = np.zeros(self.real.shape, bool)
        frame[:, 0] = True
        frame[rows, self.length - 1] = True
        if self.rules.objective.num_segments == 2:
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
        framing = {*self.tokenizer.special_ids} - {self.tokenizer.unk_id}
        unfit = np.isin(self.masked_ids, [*framing])
        return self.listed & (unfit | self.is_outside(self.masked_ids))

    @functools.cached_property
    def known(self) -> np.ndarray:
        """Bool `[batch, seq]`: where `tokens` are in front of the padding.

        Not where an id is outside of the vocabulary, or where a static record
        does not store what it hides.
        """
        known = self.real & ~self.is_outside(self.tokens)
        if self.rules.kind == STATIC:
            known &= self.tokens != self.tokenizer.mask_id
            row, slot = np.nonzero(self.on_text & self.unfit_masked_ids)
            known[row, self.positions[row, slot]] = False
        return known

    @functools.cached_property
    def starts_word(self) -> np.ndarray:
        """Bool `[batch, seq]`: tokens that start words; see `known`."""
        return self.rules.word_start.take(self.tokens, mode="clip")

    @functools.cached_property
    def separators(self) -> np.ndarray:
        """Bool `[batch, seq]`: the [SEP] tokens."""
        return self.real & (self.tokens == self.tokenizer.sep_id)

    @functools.cached_property
    def first_separator(self) -> np.ndarray:
        """`[batch]` where the first [SEP] is; -1 if their number is wrong."""
        right = self.separators.sum(axis=1) == self.rules.objective.num_segments
        return np.where(right, self.separators.argmax(axis=1), -1)

    @functools.cached_property
    def budget(self) -> np.ndarray:
        """`[batch]` how many tokens are to be masked."""
        share = np.rint(self.rules.masking.masked_lm_prob * self.length)
        return np.clip(share, 1, self.rules.num_slots).astype(np.int64)

    @functools.cached_property
    def words(self) -> Words:
        """The words that masking may hide.

        A word begins at a piece that starts one, or where text begins.
        """
        text = self.known & ~self.frame
        text &= ~np.isin(self.tokens, self.tokenizer.special_ids)
        begins = text.copy()
        if self.rules.masking.whole_word_masking:
            begins[:, 1:] &= self.starts_word[:, 1:] | ~text[:, :-1]
        number = np.cumsum(begins.reshape(-1), dtype=np.int32) - 1
        row = np.nonzero(begins)[0]
        in_word = number[text.reshape(-1)]
        masked = number[(text & self.masked).reshape(-1)]
        return Words(
            begins,
            row,
            np.bincount(in_word, minlength=len(row)),
            np.bincount(masked, minlength=len(row)),
        )

    def at_words(self, where: np.ndarray) -> np.ndarray:
        """Returns bool `[batch, seq]`, the first tokens of words `[words]`."""
        positions = np.zeros(self.real.shape, bool)
        positions[self.words.begins] = where
        return positions

    def at_positions(self, values: np.ndarray) -> np.ndarray:
        """Returns `values` `[batch, seq]` at the masked positions."""
        inside = np.clip(self.positions, 0, self.rules.max_seq_length - 1)
        return np.take_along_axis(values, inside, axis=1)

    def is_outside(self, ids: np.ndarray) -> np.ndarray:
        """Returns bool: ids that the vocabulary does not have."""
        return (ids < 0) | (ids >= self.tokenizer.vocab_size)

    def counts(self) -> dict[str, int]:
        """Returns the counts that metadata.json has too, by its names."""
        counts = {
            "instances": len(self.length),
            "instance_tokens": int(self.length.sum()),
            "label_1": int((self.labels == 1).sum()),
        }
        if self.rules.kind == STATIC:
            shown = self.at_positions(self.input_ids)
            as_mask = self.listed & (shown == self.tokenizer.mask_id)
            as_is = self.listed & (shown == self.masked_ids)
            masked = int(self.listed.sum())
            counts |= {
                "masked_tokens": masked,
                "masked_tokens/as_mask": int(as_mask.sum()),
                "masked_tokens/as_is": int(as_is.sum()),
                "masked_tokens/as_random": masked
                - int((as_mask | as_is).sum()),
            }
        return counts
