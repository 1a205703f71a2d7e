"""Batches as pure functions of the step.

`batch(step)` is the global batch of a step: which examples it holds, and how
they are masked, follows from the seed and the step alone. A restart, or
another number of replicas, changes nothing, and nothing has to be saved.
"""

import dataclasses
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import numpy as np

from albert_tf.config import MaskingConfig, ModelConfig, UserError
from albert_tf.records import counter_rng, masking
from albert_tf.records import schemas as records
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import ShardSet, ids_in_ranges
from albert_tf.text.tokenizer_base import Tokenizer

Batch = dict[str, np.ndarray]
Item = TypeVar("Item")
Made = TypeVar("Made")

# Between looks at whether to go on waiting, and for a thread to end.
_POLL_SECONDS = 0.2
_JOIN_SECONDS = 5.0

_PRETRAINING_FEATURES = (
    "input_ids",
    "input_mask",
    "segment_ids",
    "masked_lm_positions",
    "masked_lm_ids",
    "masked_lm_weights",
    "sentence_order_labels",
)


def training_positions(
    places: np.ndarray, num_examples: int, seed: int
) -> np.ndarray:
    """Returns the example numbers at these places of the whole training.

    Every epoch is a permutation of all examples; a batch may span two.
    """
    epochs, offsets = np.divmod(places, num_examples)
    positions = np.empty(places.shape, np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        positions[chosen] = counter_rng.shuffled_position(
            offsets[chosen],
            num_examples,
            counter_rng.key(seed, "epoch", int(epoch)),
        )
    return positions


class _Source(Protocol):
    """What decides which examples a step reads."""

    training: bool
    batch_size: int
    num_examples: int
    seed: int


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Rows of a step's global batch.

    Attributes:
        places: `[rows]` in the whole of training, or in one evaluation.
        positions: `[rows]`, the number of each row's example.
        features: `example_numbers` `[rows]`, the places within the global
            batch, and `example_weights` `[rows]`, 0 for padding.
    """

    places: np.ndarray
    positions: np.ndarray
    features: Batch


def _rows(source: _Source, step: int, rows: range | None) -> _Rows:
    """Returns the rows of a step; those beyond the batch are padding."""
    size = source.batch_size
    numbers = np.arange(size) if rows is None else np.asarray(rows)
    real = numbers < size
    places = step * size + np.where(real, numbers, 0)
    if source.training:
        positions = training_positions(places, source.num_examples, source.seed)
    else:
        # In order; the last batch is filled up.
        real &= places < source.num_examples
        positions = np.where(real, places, 0)
    features = {
        "example_numbers": numbers.astype(np.int32),
        "example_weights": real.astype(np.float32),
    }
    return _Rows(places, positions, features)


def check_same_vocabulary(
    tokenizer: Tokenizer,
    place: str,
    other: Tokenizer,
) -> None:
    """Raises UserError unless both tokenizers are the same one."""
    if tokenizer.fingerprint != other.fingerprint:
        raise UserError(
            f"{place} was made with another vocabulary than the shards "
            f"({tokenizer.vocab_size} and {other.vocab_size} pieces); build "
            "the shards with that one."
        )


def check_shards(
    config: ModelConfig,
    shards: ShardSet,
    tokenizer: Tokenizer,
) -> None:
    """Raises UserError when the model cannot read these shards.

    Args:
        config: the model's.
        shards: the records.
        tokenizer: the model's.
    """
    metadata = shards.metadata
    records.record_spec(metadata["record_kind"], shards.directory)
    vocab_size = metadata["tokenizer"]["vocab_size"]
    if vocab_size != config.vocab_size:
        raise UserError(
            f"{shards.directory} was built with a vocabulary of "
            f"{vocab_size} pieces and the model has "
            f"vocab_size={config.vocab_size}; they must be equal."
        )
    if metadata["tokenizer"]["fingerprint"] != tokenizer.fingerprint:
        raise UserError(
            f"{shards.directory} was built with another vocabulary than the "
            f"model's, though both have {vocab_size} pieces; build it with "
            "the model's tokenizer."
        )
    if metadata["max_seq_length"] > config.max_position_embeddings:
        raise UserError(
            f"{shards.directory} holds sequences of "
            f"{metadata['max_seq_length']} tokens, which exceeds "
            f"max_position_embeddings={config.max_position_embeddings}; "
            "build shorter ones or give the model more positions."
        )


def sentence_objective(*parts: ShardSet) -> SentenceObjective:
    """Returns the sentence objective of shards; "sop" where none is named.

    Raises:
        UserError: when a directory names no known objective, or the parts
            have different ones.
    """
    names = [part.metadata.get("sentence_objective", "sop") for part in parts]
    for part, name in zip(parts, names, strict=True):
        if name not in tuple(SENTENCE_OBJECTIVES):
            raise UserError(
                f"{part.directory}: metadata.json has sentence_objective="
                f"{name!r}, which is not one of "
                f"{', '.join(SENTENCE_OBJECTIVES)}."
            )
        if name != names[0]:
            raise UserError(
                f"{parts[0].directory} was built with sentence_objective="
                f"{names[0]} and {part.directory} with "
                f"sentence_objective={name}; a run needs shards of one: build "
                "both with the same --sentence_objective."
            )
    return SENTENCE_OBJECTIVES[names[0]]


class PretrainingBatches:
    """Batches of masked segment pairs, or single segments, from shards.

    `batch(step)` has `input_ids`, `input_mask`, `segment_ids` int32
    `[batch, seq]`, `masked_lm_positions`, `masked_lm_ids` int32 and
    `masked_lm_weights` float32 `[batch, predictions]`,
    `sentence_order_labels` int32 and `example_weights` float32 `[batch]`.
    The sentence labels are those of the shards' `sentence_objective` (see
    records/sentence_objectives.py); those of single segments are 0.
    """

    def __init__(
        self,
        shards: ShardSet,
        *,
        masking_config: MaskingConfig,
        batch_size: int,
        seed: int,
        training: bool,
    ) -> None:
        self.shards = shards
        self.masking_config = masking_config
        self.batch_size = batch_size
        self.seed = seed
        self.training = training
        metadata = shards.metadata
        self.max_seq_length = int(metadata["max_seq_length"])
        self.kind = metadata["record_kind"]
        self.num_examples = len(shards)
        # P, the masked positions that a sequence has room for.
        self.num_predictions = (
            masking_config.prediction_slots(self.max_seq_length)
            if self.kind == "dynamic"
            else int(metadata["num_slots"])
        )
        self.num_steps = -(-self.num_examples // batch_size)
        self._replacement_ids = ids_in_ranges(
            metadata["tokenizer"]["replacement_id_ranges"]
        )
        # Evaluation masks are the same at every evaluation.
        self._mask_key = counter_rng.key(
            seed, "masks", "train" if training else "eval"
        )

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns rows of the global batch of a step; None: all of it."""
        chosen = _rows(self, step, rows)
        batch = self._parse(chosen) | chosen.features
        batch["masked_lm_weights"] = (
            batch["masked_lm_weights"] * batch["example_weights"][:, None]
        )
        return batch

    def record_numbers(self, step: int) -> np.ndarray:
        """Returns the numbers `[batch]` of the records of a step."""
        return _rows(self, step, None).positions

    def record_name(self, number: int) -> str:
        """Returns where a record lies, for messages."""
        return self.shards.location(number)

    def _parse(self, rows: _Rows) -> Batch:
        positions = rows.positions
        serialized = self.shards.read(positions)
        spec = records.RECORD_SPECS[self.kind]
        parsed = records.parse_batch(
            spec,
            serialized,
            max_seq_length=self.max_seq_length,
            num_slots=self.shards.metadata["num_slots"],
            namer=lambda number: self.shards.location(int(positions[number])),
        )
        parsed["sentence_order_labels"] = parsed.pop("sentence_order_label")
        if self.kind == "dynamic":
            parsed.update(self._mask(parsed, rows.places))
        return {name: parsed[name] for name in _PRETRAINING_FEATURES}

    def _mask(self, parsed: Batch, places: np.ndarray) -> Batch:
        tokenizer = self.shards.metadata["tokenizer"]
        masked = masking.mask_batch(
            parsed["input_ids"],
            parsed["word_starts"].astype(bool),
            parsed["segment_ids"],
            masking.maskable_tokens(
                parsed["input_ids"],
                parsed["input_mask"],
                tokenizer["special_ids"],
            ),
            counter_rng.fold_in(self._mask_key, places.astype(np.uint64)),
            lengths=parsed["input_mask"].sum(axis=1),
            config=self.masking_config,
            num_slots=self.masking_config.prediction_slots(self.max_seq_length),
            mask_id=tokenizer["mask_id"],
            replacement_ids=self._replacement_ids,
        )
        return {
            "input_ids": masked.input_ids,
            "masked_lm_positions": masked.masked_lm_positions,
            "masked_lm_ids": masked.masked_lm_ids,
            "masked_lm_weights": masked.masked_lm_weights,
        }


class ReaderStalled(Exception):
    """A batch took longer to be read than it may."""


def prefetch(
    make: Callable[[Item], Made],
    items: Iterable[Item],
    depth: int = 4,
    timeout: float = math.inf,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[Made]:
    """Yields make(item) for each item, made ahead in a thread.

    An error in `make` is raised where its result would have been.

    Raises:
        ReaderStalled: when one took longer than `timeout` seconds, or was not
            there and `give_up` said so.
    """
    ready: queue.Queue = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    end = object()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(make(item)):
                    return
            put(end)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, daemon=True, name="prefetch")

    def take() -> object:
        deadline = time.monotonic() + timeout
        while True:
            try:
                return ready.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if give_up() or time.monotonic() > deadline:
                    raise ReaderStalled from None

    thread.start()
    try:
        while True:
            item = take()
            if item is end:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        # A thread that hangs would hang this one too.
        thread.join(_JOIN_SECONDS)
