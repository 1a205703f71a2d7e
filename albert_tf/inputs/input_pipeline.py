"""Pretraining batches as pure functions of the step.

`batch(step)` is the global batch of a step: its examples and their masks
follow from the seed and the step alone. A restart, or another number of
replicas, changes nothing.
"""

import functools

import numpy as np

from albert_tf.config import (
    MaskingConfig,
    ModelConfig,
    given_settings,
    lookup,
    override,
    require,
)
from albert_tf.inputs.part_widths import fixed_widths, longest_rows
from albert_tf.records import counter_rng
from albert_tf.records.masking import MaskingIds, mask_batch
from albert_tf.records.schemas import RECORD_SPECS, parse_batch
from albert_tf.records.sentence_objectives import (
    SENTENCE_OBJECTIVES,
    SentenceObjective,
)
from albert_tf.records.shards import ShardSet, ids_in_ranges
from albert_tf.text.tokenizer_base import Tokenizer

Batch = dict[str, np.ndarray]

# Steps whose record numbers are computed together: the permutation takes as
# long for one of them as for all.
_WINDOW = 16

# Sequences whose lengths decide the widths of parts.
_SAMPLED_LENGTHS = 1024


def training_positions(
    indices: np.ndarray, num_examples: int, seed: int
) -> np.ndarray:
    """Returns the example numbers at indices of the whole training.

    Every epoch is a permutation of all examples; a batch may span two.
    """
    epochs, offsets = np.divmod(indices, num_examples)
    numbers = np.empty(indices.shape, np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        numbers[chosen] = counter_rng.shuffled_position(
            offsets[chosen],
            num_examples,
            counter_rng.key(seed, "epoch", int(epoch)),
        )
    return numbers


def check_shards(
    config: ModelConfig, shards: ShardSet, tokenizer: Tokenizer
) -> None:
    """Raises UserError when a model cannot read these shards."""
    metadata = shards.metadata
    where = f"{shards.directory}: record_kind"
    lookup(RECORD_SPECS, metadata["record_kind"], where)
    vocabulary = metadata["tokenizer"]
    require(
        vocabulary["fingerprint"] == tokenizer.fingerprint
        and vocabulary["vocab_size"] == config.vocab_size,
        f"{shards.directory} was built with another vocabulary than the "
        f"model's: it has {vocabulary['vocab_size']} pieces and the model "
        f"vocab_size={config.vocab_size}; build it with the model's tokenizer.",
    )
    require(
        metadata["max_seq_length"] <= config.max_position_embeddings,
        f"{shards.directory} holds sequences of {metadata['max_seq_length']} "
        "tokens, which exceeds max_position_embeddings="
        f"{config.max_position_embeddings}; build shorter ones or give the "
        "model more positions.",
    )


def sentence_objective(*parts: ShardSet) -> SentenceObjective:
    """Returns the sentence objective of shards; "sop" where none is named.

    Raises:
        UserError: when a directory names no known objective, or the parts
            have different ones.
    """
    names = [part.metadata.get("sentence_objective", "sop") for part in parts]
    for part, name in zip(parts, names, strict=True):
        where = f"{part.directory}: sentence_objective"
        lookup(SENTENCE_OBJECTIVES, name, where, extensible=True)
        require(
            name == names[0],
            f"{parts[0].directory} was built with sentence_objective="
            f"{names[0]} and {part.directory} with sentence_objective={name}; "
            "a run needs shards of one: build both with the same "
            "--sentence_objective.",
        )
    return SENTENCE_OBJECTIVES[names[0]]


def masking_of(shards: ShardSet, masking: MaskingConfig) -> MaskingConfig:
    """Returns the masking of shards: that of their build where it is fixed.

    Else it is `masking`.

    Raises:
        UserError: where the masks are fixed, and a setting that was given for
            them is another.
    """
    fixed = shards.metadata.get("settings", {}).get("masking", {})
    for name, value in given_settings(masking).items():
        built = fixed.get(name, value)
        require(
            value == built,
            f"{name}={value}, and the masks of {shards.directory} are fixed, "
            f"with {name}={built}: expected that, or shards built with "
            "--record_kind=dynamic.",
        )
    return override(masking, fixed)


class PretrainingBatches:
    """Batches of masked segment pairs, or single segments, from shards.

    `batch(step)` has `input_ids`, `input_mask`, `segment_ids` int32
    `[batch, seq]`, `masked_lm_positions`, `masked_lm_ids` int32 and
    `masked_lm_weights` float32 `[batch, predictions]`,
    `sentence_order_labels` int32, `example_numbers` int32 and
    `example_weights` float32 `[batch]`. The sentence labels are those of the
    shards' `sentence_objective`. Words are masked in proportion to the
    `piece_weights` of their pieces (`MaskingIds`), if there are any. Training
    begins behind `first_index` rows, which an earlier phase had.

    Rows `by_length` are sorted in whole training batches, which have
    `part_widths` int32 too, the widths of equal parts of the rows: the same in
    all batches that fit them, and one full width in others, so that there are
    two traces of the step.
    """

    def __init__(
        self,
        shards: ShardSet,
        *,
        masking_config: MaskingConfig,
        batch_size: int,
        seed: int,
        training: bool,
        by_length: bool = False,
        piece_weights: np.ndarray | None = None,
        first_index: int = 0,
    ) -> None:
        require(
            len(shards) > 0,
            f"{shards.directory}: the shards that were chosen are empty.",
        )
        self.shards = shards
        self.record_name = shards.location
        self.masking_config = masking_config
        self.batch_size = batch_size
        self.seed = seed
        self.training = training
        self._first_index = first_index
        self._by_length = by_length and training
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
        # Windows of the loop, which counts records, and of the thread ahead.
        self._window = functools.lru_cache(maxsize=4)(self._window_positions)
        tokenizer = metadata["tokenizer"]
        self._masking_ids = MaskingIds(
            tokenizer["special_ids"],
            tokenizer["mask_id"],
            ids_in_ranges(tokenizer["replacement_id_ranges"]),
            piece_weights,
        )
        # Evaluation masks are the same at every evaluation.
        self._mask_key = counter_rng.key(
            seed, "masks", "train" if training else "eval"
        )

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns rows of the global batch of a step; None: all of it.

        Rows beyond the batch, or beyond the last example of an evaluation,
        are padding with weight 0.
        """
        row_numbers = np.array(range(self.batch_size) if rows is None else rows)
        indices, numbers, real = self._locate(step, row_numbers)
        batch = self._read(numbers)
        batch["sentence_order_labels"] = batch.pop("sentence_order_label")
        if self.kind == "dynamic":
            batch |= mask_batch(
                batch,
                counter_rng.fold_in(self._mask_key, indices.astype(np.uint64)),
                config=self.masking_config,
                num_slots=self.num_predictions,
                ids=self._masking_ids,
            ).features
        for name in ("word_starts", "token_boundary"):  # no model reads them
            batch.pop(name, None)
        batch["masked_lm_weights"] = batch["masked_lm_weights"] * real[:, None]
        batch["example_numbers"] = row_numbers.astype(np.int32)
        batch["example_weights"] = real
        if self._widths is None or len(row_numbers) != self.batch_size:
            return batch
        return _by_length(batch, self._widths)

    @functools.cached_property
    def _widths(self) -> np.ndarray | None:
        """The widths of the parts of whole batches, if they save enough."""
        if not self._by_length:
            return None
        numbers = training_positions(
            np.arange(_SAMPLED_LENGTHS), self.num_examples, self.seed
        )
        lengths = self._read(numbers)["input_mask"].sum(axis=1)
        return fixed_widths(lengths, self.batch_size, self.max_seq_length)

    def record_numbers(self, step: int) -> np.ndarray:
        """Returns the numbers `[batch]` of the records of a step."""
        return self._locate(step, np.arange(self.batch_size))[1]

    def _locate(
        self, step: int, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns index, record number and weight of each row, `[rows]`.

        The index counts through the whole of training, or one evaluation.
        """
        real = rows < self.batch_size
        within = np.where(real, rows, 0)
        indices = self._first_index + step * self.batch_size + within
        if self.training:
            window, step_within = divmod(step, _WINDOW)
            numbers = self._window(window)[step_within, within]
        else:
            real &= indices < self.num_examples
            numbers = np.where(real, indices, 0)
        return indices, numbers, real.astype(np.float32)

    def _window_positions(self, window: int) -> np.ndarray:
        """Returns the record numbers `[steps, batch]` of a window of steps."""
        size = _WINDOW * self.batch_size
        first = self._first_index + window * size
        indices = np.arange(first, first + size)
        numbers = training_positions(indices, self.num_examples, self.seed)
        return numbers.reshape(_WINDOW, self.batch_size)

    def _read(self, numbers: np.ndarray) -> Batch:
        return parse_batch(
            self.kind,
            self.shards.read(numbers),
            max_seq_length=self.max_seq_length,
            num_slots=self.shards.metadata["num_slots"],
            namer=lambda row: self.record_name(int(numbers[row])),
        )


def _by_length(batch: Batch, widths: np.ndarray) -> Batch:
    """Returns the batch with its rows sorted by length, and `part_widths`."""
    lengths = batch["input_mask"].sum(axis=1)
    order = np.argsort(lengths, kind="stable")
    longest = longest_rows(lengths[order], len(widths))
    if (longest > widths).any():
        widths = np.array(batch["input_ids"].shape[1:], np.int32)
    return {name: values[order] for name, values in batch.items()} | {
        "part_widths": widths
    }
