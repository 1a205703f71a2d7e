"""Makes pretraining records of documents.

Main entry: `RecordMaker`. What it makes of a document depends on the
document, the seed and the settings alone, so any driver may call it: a loop,
a pool of processes, a cluster. `record_maker` makes one in a process that was
given a `RecordPlan` only.
"""

import dataclasses
import functools
import itertools
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.text import counter_rng
from albert_tf.text.masking import mask_batch, maskable_tokens
from albert_tf.text.tokenizer import SentencePieceTokenizer, load_tokenizer
from data_prep.corpus import Document
from data_prep.segment_pairs import Instance, document_instances
from data_prep.sentences import SENTENCE_SPLITTERS, SentenceSplitter

_MASKING_BATCH = 512
# The stream of masks under an instance's key, beside those that
# segment_pairs draws from.
_MASKS = 2

# Documents with their split and the input list they come from, which keeps
# files of one name in two lists apart.
Unit = list[tuple[str, str, Document]]


@dataclasses.dataclass(frozen=True)
class Record:
    """A record before it is serialised."""

    split: str
    key: int
    example: dict[str, np.ndarray]


class RecordMaker:
    """Makes the records of documents; the same whatever drives it."""

    def __init__(
        self,
        tokenizer: SentencePieceTokenizer,
        splitter: SentenceSplitter,
        config: PretrainingDataConfig,
        masking: MaskingConfig,
    ) -> None:
        self._tokenizer = tokenizer
        self._splitter = splitter
        self._config = config
        self._masking = masking

    def __call__(self, unit: Unit) -> tuple[list[Record], Counter[str]]:
        """Returns the records of a unit of work and what was counted.

        Counts are named `split/what`.
        """
        records: list[Record] = []
        counts: Counter[str] = Counter()
        for split, documents in itertools.groupby(unit, lambda item: item[0]):
            of_split: Counter[str] = Counter()
            instances = [
                instance
                for _, origin, document in documents
                for instance in self._instances(document, origin, of_split)
            ]
            examples = self._examples(instances, of_split)
            records += [
                Record(split, int(instance.key), example)
                for instance, example in zip(instances, examples, strict=True)
            ]
            counts.update({f"{split}/{n}": c for n, c in of_split.items()})
        return records, counts

    def _instances(
        self, document: Document, origin: str, counts: Counter[str]
    ) -> list[Instance]:
        sentences = [
            sentence
            for paragraph in document.paragraphs
            for sentence in self._splitter.split(paragraph)
        ]
        encoded = self._tokenizer.encode_batch(sentences)
        ids = [sentence for sentence in encoded if sentence]
        num_tokens = sum(map(len, ids))
        counts["documents"] += 1
        counts["sentences"] += len(ids)
        counts["tokens"] += num_tokens
        counts["unknown_tokens"] += sum(
            sentence.count(self._tokenizer.unk_id) for sentence in ids
        )
        counts["skipped/sentences_without_tokens"] += len(encoded) - len(ids)
        if len(ids) < 2:
            reason = "single_sentence" if ids else "empty"
            counts[f"skipped/{reason}_documents"] += 1
            counts["skipped/tokens"] += num_tokens
            return []
        config = self._config
        instances = [
            instance
            for copy in range(config.dupe_factor)
            for instance in document_instances(
                ids,
                max_seq_length=config.max_seq_length,
                short_seq_prob=config.short_seq_prob,
                cls_id=self._tokenizer.cls_id,
                sep_id=self._tokenizer.sep_id,
                key=counter_rng.key(
                    config.random_seed, origin, document.name, copy
                ),
            )
        ]
        counts["instances"] += len(instances)
        for instance in instances:
            counts["swapped"] += instance.sentence_order_label
            counts["truncated_tokens"] += instance.num_truncated
            counts["instance_tokens"] += len(instance.input_ids)
        return instances

    def _examples(
        self, instances: Sequence[Instance], counts: Counter[str]
    ) -> list[dict[str, np.ndarray]]:
        if self._config.record_kind == "dynamic":
            return [self._dynamic_example(instance) for instance in instances]
        return [
            example
            for begin in range(0, len(instances), _MASKING_BATCH)
            for example in self._static_examples(
                instances[begin : begin + _MASKING_BATCH], counts
            )
        ]

    def _dynamic_example(self, instance: Instance) -> dict[str, np.ndarray]:
        input_ids = np.array(instance.input_ids, np.int32)
        return {
            "input_ids": input_ids,
            "segment_ids": np.array(instance.segment_ids, np.int8),
            "word_starts": self._word_starts(input_ids),
            "sentence_order_label": _label(instance),
        }

    def _static_examples(
        self, instances: Sequence[Instance], counts: Counter[str]
    ) -> list[dict[str, np.ndarray]]:
        tokenizer, config = self._tokenizer, self._config
        shape = (len(instances), config.max_seq_length)
        lengths = np.array([len(i.input_ids) for i in instances])
        input_mask = np.arange(config.max_seq_length) < lengths[:, None]
        input_ids = np.full(shape, tokenizer.pad_id, np.int32)
        segment_ids = np.zeros(shape, np.int32)
        input_ids[input_mask] = [t for i in instances for t in i.input_ids]
        segment_ids[input_mask] = [s for i in instances for s in i.segment_ids]
        word_starts = self._word_starts(input_ids) & input_mask
        masked = mask_batch(
            input_ids,
            word_starts,
            segment_ids,
            maskable_tokens(input_ids, input_mask, tokenizer.special_ids),
            counter_rng.fold_in([i.key for i in instances], _MASKS),
            lengths=lengths,
            config=self._masking,
            num_slots=num_slots(config, self._masking),
            mask_id=tokenizer.mask_id,
            replacement_ids=tokenizer.replacement_ids,
        )
        counts["masked_tokens"] += int(masked.masked_lm_weights.sum())
        return [
            {
                "input_ids": masked.input_ids[row],
                "input_mask": input_mask[row],
                "segment_ids": segment_ids[row],
                "token_boundary": word_starts[row],
                "masked_lm_positions": masked.masked_lm_positions[row],
                "masked_lm_ids": masked.masked_lm_ids[row],
                "masked_lm_weights": masked.masked_lm_weights[row],
                "sentence_order_label": _label(instance),
            }
            for row, instance in enumerate(instances)
        ]

    def _word_starts(self, input_ids: np.ndarray) -> np.ndarray:
        """Returns where words start; [CLS] and [SEP] do, as in the original."""
        borders = (self._tokenizer.cls_id, self._tokenizer.sep_id)
        return self._tokenizer.word_start[input_ids] | np.isin(
            input_ids, borders
        )


def _label(instance: Instance) -> np.ndarray:
    return np.array([instance.sentence_order_label], np.int8)


def num_slots(config: PretrainingDataConfig, masking: MaskingConfig) -> int:
    """Returns P of static records; dynamic ones are masked by their reader."""
    if config.record_kind == "dynamic":
        return 0
    return masking.prediction_slots(config.max_seq_length)


@dataclasses.dataclass(frozen=True)
class RecordPlan:
    """What a process needs to make itself a `RecordMaker`."""

    tokenizer_dir: str
    splitter_path: str
    config: PretrainingDataConfig
    masking: MaskingConfig


@functools.cache
def record_maker(plan: RecordPlan) -> RecordMaker:
    """Returns the maker for `plan`, made once in a process."""
    with open(plan.splitter_path, encoding="utf-8") as file:
        parameters = json.load(file)
    splitter = SENTENCE_SPLITTERS[plan.config.sentence_splitter]
    return RecordMaker(
        load_tokenizer(plan.tokenizer_dir),
        splitter.from_json(parameters),
        plan.config,
        plan.masking,
    )
