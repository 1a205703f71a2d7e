"""Batches are functions of the step."""

import numpy as np
import pytest
from handmade_records import write_shards

from albert_tf.config import MaskingConfig, ModelConfig, UserError
from albert_tf.inputs import part_widths
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    check_shards,
    sentence_objective,
    training_positions,
)
from albert_tf.records.shards import open_shards


def test_every_epoch_has_every_example_once():
    drawn = training_positions(np.arange(60), 20, seed=3)
    for epoch in range(3):
        part = drawn[epoch * 20 : (epoch + 1) * 20]
        assert sorted(part) == list(range(20))
    assert list(drawn[:20]) != list(drawn[20:40])
    other = training_positions(np.arange(20), 20, seed=4)
    assert list(drawn[:20]) != list(other)


def batches(shards_dir, **changes):
    options = {
        "masking_config": MaskingConfig(),
        "batch_size": 8,
        "seed": 5,
        "training": True,
    }
    split = "train" if changes.get("training", True) else "eval"
    return PretrainingBatches(
        open_shards(shards_dir, split), **{**options, **changes}
    )


def test_examples_do_not_depend_on_their_batch(shards_dir):
    """Nor on the steps that are read before: batches of 12 as those of 4."""
    together, apart = (batches(shards_dir, batch_size=n) for n in (12, 4))
    size = together.num_examples
    for step in (40, 5, 17):
        whole = together.batch(step)
        parts = [apart.batch(3 * step + number) for number in range(3)]
        numbers = np.concatenate(
            [apart.record_numbers(3 * step + number) for number in range(3)]
        )
        expected = training_positions(np.arange(12) + 12 * step, size, 5)
        assert numbers.tolist() == expected.tolist()
        for name in set(whole) - {"example_numbers"}:
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, whole[name], err_msg=name)


def test_training_goes_on_behind_the_rows_of_an_earlier_phase(shards_dir):
    whole = batches(shards_dir, batch_size=4)
    later = batches(shards_dir, batch_size=8, first_index=4 * 300)
    for step in (0, 130):
        parts = [whole.batch(300 + 2 * step + number) for number in range(2)]
        found = later.batch(step)
        for name in set(found) - {"example_numbers"}:
            joined = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(joined, found[name], err_msg=name)


def test_masks_change_between_epochs(shards_dir):
    size = batches(shards_dir).num_examples
    train = batches(shards_dir, batch_size=size)
    by_text = {}
    for batch in (train.batch(0), train.batch(1)):
        for row in range(size):
            text = batch["input_ids"][row].copy()
            real = batch["masked_lm_weights"][row] > 0
            positions = batch["masked_lm_positions"][row][real]
            text[positions] = batch["masked_lm_ids"][row][real]
            by_text.setdefault(text.tobytes(), []).append(tuple(positions))
    assert len(by_text) == size
    changed = sum(len(set(masks)) == 2 for masks in by_text.values())
    assert changed > 0.8 * size


def test_rows_by_length_are_those_of_the_batch(shards_dir, monkeypatch):
    """Sorted, with the widths of quarters, where all rows are wanted."""
    monkeypatch.setattr(part_widths, "_MULTIPLE", 2)
    whole = batches(shards_dir)
    by_length = batches(shards_dir, by_length=True)
    found = set()
    for step in range(8):
        expected, batch = whole.batch(step), by_length.batch(step)
        # A batch is a function of its step: a resumed run has the same.
        other = batches(shards_dir, by_length=True).batch(step)
        widths = batch.pop("part_widths")
        assert widths.tolist() == other["part_widths"].tolist()
        order = batch["example_numbers"]
        lengths = batch["input_mask"].sum(axis=1)
        assert list(lengths) == sorted(lengths)
        for name, values in batch.items():
            np.testing.assert_array_equal(values, expected[name][order])
            np.testing.assert_array_equal(values, other[name])
        longest = lengths.reshape(len(widths), -1).max(axis=1)
        assert (longest <= widths).all() and widths[-1] <= 32
        found.add(tuple(widths))
    # One combination of narrower widths, and where they do not fit the whole.
    assert len(found - {(32,)}) == 1
    # A worker's share of the rows, and evaluations, stay as they are.
    part = by_length.batch(3, range(4))
    held_out = batches(shards_dir, by_length=True, training=False).batch(0)
    assert "part_widths" not in {**part, **held_out}
    assert list(part["example_numbers"]) == list(range(4))


def test_shapes_and_types(shards_dir):
    batch = batches(shards_dir).batch(0)
    slots = round(0.15 * 32)
    expected = {
        "input_ids": ((8, 32), "int32"),
        "input_mask": ((8, 32), "int32"),
        "segment_ids": ((8, 32), "int32"),
        "masked_lm_positions": ((8, slots), "int32"),
        "masked_lm_ids": ((8, slots), "int32"),
        "masked_lm_weights": ((8, slots), "float32"),
        "sentence_order_labels": ((8,), "int32"),
        "example_weights": ((8,), "float32"),
        "example_numbers": ((8,), "int32"),
    }
    assert {
        name: (value.shape, str(value.dtype)) for name, value in batch.items()
    } == expected


def test_shards_that_the_model_cannot_read(shards_dir, tiny_tokenizer):
    shards = open_shards(shards_dir, "train")
    with pytest.raises(UserError, match="another vocabulary.*200 p.*=300"):
        check_shards(ModelConfig(vocab_size=300), shards, tiny_tokenizer)
    with pytest.raises(UserError, match="sequences of 32 tokens.*=16"):
        check_shards(
            ModelConfig(
                vocab_size=tiny_tokenizer.vocab_size,
                max_position_embeddings=16,
            ),
            shards,
            tiny_tokenizer,
        )


def test_the_sentence_objective_is_that_of_the_shards(
    shards_dir, next_sentences, single_segments
):
    for directory, name in ((next_sentences, "nsp"), (single_segments, "none")):
        parts = [open_shards(directory, s) for s in ("train", "eval")]
        assert sentence_objective(*parts).name == name
    # Shards of before there was a choice do not say.
    silent = open_shards(shards_dir, "train")
    del silent.metadata["sentence_objective"]
    held_out = open_shards(shards_dir, "eval")
    assert sentence_objective(silent, held_out).name == "sop"
    for unknown in ("order", ["sop"]):
        held_out.metadata["sentence_objective"] = unknown
        message = f"^{shards_dir}: sentence_objective=.* is not one of sop, nsp"
        with pytest.raises(UserError, match=message):
            sentence_objective(held_out)


def test_empty_shards_are_refused(tmp_path):
    write_shards(tmp_path, {"train": [[]]})
    with pytest.raises(UserError, match=f"^{tmp_path}: .* are empty"):
        batches(tmp_path)


def test_a_bad_record_is_reported_with_its_location(objective_shards):
    source = batches(objective_shards("sop", "dynamic"))
    # The sequences are longer than was promised.
    source.max_seq_length = 8
    message = r"train-00000-of-00001\.tfrecord, record \d+ has \d+ tokens"
    with pytest.raises(UserError, match=message):
        source.batch(0)


def test_evaluation_takes_every_example_once(shards_dir):
    source = batches(shards_dir, training=False, batch_size=6)
    assert source.num_examples % 6
    seen = []
    for step in range(source.num_steps):
        batch = source.batch(step)
        weights = batch["example_weights"]
        assert (batch["masked_lm_weights"].any(axis=1) == weights).all()
        seen += list(source.record_numbers(step)[weights > 0])
    assert seen == list(range(source.num_examples))


@pytest.mark.parametrize("training", [True, False])
def test_rows_are_those_of_the_whole_batch(shards_dir, training):
    """Padding beyond the batch weighs nothing."""
    whole = batches(shards_dir, training=training).batch(3)
    # One that has read another step, as after a restart.
    source = batches(shards_dir, training=training)
    source.batch(0)
    parts = [source.batch(3, range(first, first + 3)) for first in (0, 3, 6)]
    for name, value in whole.items():
        joined = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(joined[:8], value, err_msg=name)
    assert parts[2]["example_weights"].tolist()[-1] == 0
    assert not parts[2]["masked_lm_weights"][-1].any()
    assert parts[2]["example_numbers"].tolist() == [6, 7, 8]
