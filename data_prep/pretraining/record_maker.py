"""Makes pretraining records of documents: `RecordMaker`.

The records of a unit of documents depend on the documents, the seed and the
settings alone, so any driver may call it: a loop, a pool of processes, a
cluster.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records import counter_rng
from albert_tf.records.masking import MaskingIds, mask_batch
from albert_tf.records.schemas import serialize_batch
from albert_tf.records.segments import Instance, TokenizedDocument
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.text.tokenizer import Tokenizer
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sentences import (
    SENTENCE_SPLITTERS,
    SentenceSplitter,
    cut_long_sentences,
)

_BATCH = 512
# The stream of masks under an instance's key, beside its draws.
_MASKS = 2

# The flat array of tokens begins with these, so that a batch is one look-up.
_PAD, _CLS, _SEP, _NUM_FRAMING = range(4)

# Counts of documents by the bits of their number of tokens, for a histogram;
# no part of the statistics in metadata.json.
DOCUMENT_TOKENS = "document_tokens/"

Columns = dict[str, np.ndarray]


class RecordBatch(NamedTuple):
    """Serialised records of one split, each with a random key."""

    split: str
    keys: np.ndarray  # [batch] uint64
    serialized: list[bytes]


@dataclasses.dataclass(eq=False)
class RecordMaker:
    """Makes the records of documents; the same whatever drives it."""

    tokenizer: Tokenizer
    splitter: SentenceSplitter
    config: PretrainingDataConfig
    masking: MaskingConfig

    @classmethod
    def with_splitter(
        cls,
        parameters: Mapping[str, Any],
        tokenizer: Tokenizer,
        config: PretrainingDataConfig,
        masking: MaskingConfig,
    ) -> "RecordMaker":
        """Returns a maker whose splitter has these parameters, JSON."""
        kind = SENTENCE_SPLITTERS[config.sentence_splitter]
        return cls(tokenizer, kind.from_json(parameters), config, masking)

    def __post_init__(self) -> None:
        tokenizer, config = self.tokenizer, self.config
        self._objective = SENTENCE_OBJECTIVES[config.sentence_objective]
        # [CLS] and [SEP] start words, as in the original's token_boundary.
        self._word_start = np.array(tokenizer.word_start)
        self._word_start[[tokenizer.cls_id, tokenizer.sep_id]] = True
        self._word_start[tokenizer.pad_id] = False

    def __call__(
        self, unit: Sequence[UnitDocument], counts: Counter[str]
    ) -> Iterator[RecordBatch]:
        """Yields the records of a unit of documents.

        Counts are named `split/name`.
        """
        for split in sorted({item.split for item in unit}):
            of_split: Counter[str] = Counter()
            items = [item for item in unit if item.split == split]
            documents, ids = self._tokenize(items, of_split)
            with_text = [
                n for n, item in enumerate(documents) if len(item.borders) > 1
            ]
            word_starts = self._word_start[ids]
            instances = itertools.chain.from_iterable(
                self._objective.instances(
                    documents,
                    with_text,
                    number,
                    word_starts,
                    self.config,
                    of_split,
                )
                for number in range(len(documents))
            )
            while batch := list(itertools.islice(instances, _BATCH)):
                tokens = {"input_ids": ids, "word_starts": word_starts}
                yield self._record_batch(split, batch, tokens, of_split)
            counts.update({f"{split}/{n}": c for n, c in of_split.items()})

    def _tokenize(
        self, items: Sequence[UnitDocument], counts: Counter[str]
    ) -> tuple[list[TokenizedDocument], np.ndarray]:
        """Returns the documents and their ids, one after another, int32.

        <pad>, [CLS] and [SEP] come first.
        """
        tokenizer = self.tokenizer
        flat = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]
        documents = []
        for item in items:
            sentences = [
                piece
                for text in item.paragraphs
                for piece in cut_long_sentences(self.splitter.split(text))
            ]
            borders = [len(flat)]
            for ids in tokenizer.encode_batch(sentences):
                if ids:
                    flat += ids
                    borders.append(len(flat))
            counts["sentences"] += len(borders) - 1
            counts["skipped/sentences_without_tokens"] += (
                len(sentences) - len(borders) + 1
            )
            bits = (borders[-1] - borders[0]).bit_length()
            counts[f"{DOCUMENT_TOKENS}{bits}"] += 1
            key = counter_rng.key(
                self.config.random_seed, item.origin, item.name
            )
            documents.append(TokenizedDocument(borders, key))
        ids = np.array(flat, np.int32)
        counts["documents"] += len(documents)
        counts["tokens"] += len(ids) - _NUM_FRAMING
        counts["unknown_tokens"] += int((ids == tokenizer.unk_id).sum())
        return documents, ids

    def _record_batch(
        self,
        split: str,
        batch: Sequence[tuple[int, Instance]],
        tokens: Columns,
        counts: Counter[str],
    ) -> RecordBatch:
        instance_keys, instances = zip(*batch, strict=True)
        keys = np.array(instance_keys, np.uint64)
        lengths, columns = self._arrange(instances, tokens, counts)
        if self.config.record_kind == "dynamic":
            columns = _without_padding(columns, lengths)
        else:
            self._mask(columns, keys, counts)
        serialized = serialize_batch(self.config.record_kind, columns)
        return RecordBatch(split, keys, serialized)

    def _arrange(
        self,
        instances: Sequence[Instance],
        tokens: Columns,
        counts: Counter[str],
    ) -> tuple[np.ndarray, Columns]:
        """Returns the numbers of tokens `[batch]`, columns `[batch, seq]`."""
        spans = np.array([(*i.first, *i.second) for i in instances])
        labels = np.array([instance.label for instance in instances])
        first = spans[:, 1] - spans[:, 0]
        second = spans[:, 3] - spans[:, 2]
        lengths = first + second + self._objective.num_segments + 1
        counts["instances"] += len(instances)
        counts["instance_tokens"] += int(lengths.sum())
        counts["label_1"] += int(labels.sum())
        column = np.arange(self.config.max_seq_length)
        is_token = column < lengths[:, None]
        # Positions [batch, seq] in the flat tokens.
        end = first[:, None] + 1
        positions = np.where(
            column < end,
            column + spans[:, :1] - 1,
            column + spans[:, 2:3] - end - 1,
        )
        positions[:, 0] = _CLS
        positions[column == end] = _SEP
        positions[column == lengths[:, None] - 1] = _SEP
        positions[~is_token] = _PAD
        return lengths, {
            "input_ids": tokens["input_ids"][positions],
            "segment_ids": (column > first[:, None] + 1) & is_token,
            "word_starts": tokens["word_starts"][positions],
            "input_mask": is_token,
            "sentence_order_label": labels[:, None],
        }

    def _mask(
        self, columns: Columns, keys: np.ndarray, counts: Counter[str]
    ) -> None:
        """Turns the columns into those of static records."""
        masked = mask_batch(
            columns,
            counter_rng.fold_in(keys, _MASKS),
            config=self.masking,
            num_slots=num_slots(self.config, self.masking),
            ids=MaskingIds.from_tokenizer(self.tokenizer),
        )
        columns["token_boundary"] = columns.pop("word_starts")
        columns.update(masked.features)
        counts.update(masked.counts(self.tokenizer.mask_id))


def _without_padding(
    columns: Columns, lengths: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns the columns of dynamic records: flat values and their sizes."""
    mask = columns.pop("input_mask")
    labels = columns.pop("sentence_order_label")[:, 0]
    return {
        "sentence_order_label": (labels, np.ones_like(lengths)),
        **{name: (values[mask], lengths) for name, values in columns.items()},
    }


def num_slots(config: PretrainingDataConfig, masking: MaskingConfig) -> int:
    """Returns the number of masked positions that a static record has room for.

    0 for dynamic records, which are masked when they are read.
    """
    if config.record_kind == "dynamic":
        return 0
    return masking.prediction_slots(config.max_seq_length)
