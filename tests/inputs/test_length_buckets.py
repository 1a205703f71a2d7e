"""Batches bucketed by length: epochs, padding, functions of the step."""

import functools
from collections import Counter

import numpy as np
import pytest

from albert_tf.config import UserError
from albert_tf.inputs.length_buckets import TaskBatches, bucket_widths
from albert_tf.tasks.features import Features, flat

WIDTHS = (4, 8, 16, 32)


def features(lengths):
    """Returns rows of these lengths, each filled with its number."""
    rows = [[number] * length for number, length in enumerate(lengths)]
    ids, offsets = flat(rows)
    return Features(
        sequences={"input_ids": ids, "label_weights": np.ones_like(ids)},
        offsets=offsets,
        scalars={"label_ids": np.arange(len(rows), dtype=np.int32)},
        padding={"input_ids": -1, "label_weights": 0},
        example_numbers=np.arange(len(rows)),
    )


def random_features(count, seed=0, longest=32):
    rng = np.random.default_rng(seed)
    return features(rng.integers(1, longest + 1, count))


def evaluation(of, batch_size=4, seed=1, widths=WIDTHS, **options):
    return TaskBatches(
        of, batch_size=batch_size, seed=seed, widths=widths, **options
    )


training = functools.partial(evaluation, training=True)


def test_widths():
    assert bucket_widths(16) == (16,)
    assert bucket_widths(100) == (16, 24, 32, 48, 64, 96, 100)
    assert bucket_widths(2048)[-2:] == (512, 2048)


@pytest.mark.parametrize(
    ("count", "batch_size"),
    [
        # 16 steps an epoch, and so many epochs in 64.
        (64, 4),
        # 70: a window and a short one.
        (280, 4),
        # Batches that span two epochs, or several.
        (283, 4),
        (3, 8),
    ],
)
def test_every_epoch_has_every_example_once(count, batch_size):
    batches = training(random_features(count), batch_size)
    seen, step = Counter(), 0
    for epoch in range(1, 6):
        while step * batch_size < epoch * count:
            seen.update(batches.record_numbers(step).tolist())
            step += 1
        # What goes beyond is of a last batch that spans two epochs.
        beyond = step * batch_size - epoch * count
        assert sorted(seen) == list(range(count))
        more = sum(times - epoch for times in seen.values())
        assert min(seen.values()) >= epoch
        assert more == beyond < batch_size


def test_windows_depend_on_epoch_and_seed():
    of = random_features(4 * 128)

    def window(batches, first):
        steps = range(first, first + 64)
        return {n for s in steps for n in batches.record_numbers(s).tolist()}

    ours, theirs = training(of), training(of, seed=2)
    # Two halves drawn by chance share a half.
    for other in (window(ours, 128), window(theirs, 0)):
        assert 64 < len(window(ours, 0) & other) < 192
    assert not window(ours, 0) & window(ours, 64)


def test_long_and_short_batches_are_mixed():
    batches = training(random_features(4 * 64))
    widest = [
        batches.features.lengths[batches.record_numbers(step)].max()
        for step in range(64)
    ]
    # Batches in the order of their length would correlate with 1 or -1.
    assert abs(np.corrcoef(widest, np.arange(64))[0, 1]) < 0.5


def test_a_batch_is_a_function_of_its_step():
    of = random_features(67)
    forwards = training(of)
    there = [forwards.batch(step) for step in range(150)]
    # More steps than planned are read after a roll-back.
    assert len(forwards.record_numbers(10**6)) == 4
    for step in (149, 3, 70, 64, 63, 0):
        # One that has read nothing, as after a restart.
        np.testing.assert_equal(training(of).batch(step), there[step])


def test_a_batch_holds_its_rows():
    of = random_features(67)
    batches = training(of)
    for step in (0, 16, 40):
        numbers, batch = batches.record_numbers(step), batches.batch(step)
        assert batch["label_ids"].tolist() == numbers.tolist()
        lengths = of.lengths[numbers]
        assert batch["input_mask"].sum(axis=1).tolist() == lengths.tolist()
        for row, number, length in zip(
            batch["input_ids"], numbers, lengths, strict=True
        ):
            assert set(row[:length]) == {number}
            assert set(row[length:]) <= {-1}
        assert batch["example_numbers"].tolist() == [0, 1, 2, 3]
        assert batch["example_numbers"].dtype == np.int32
        assert batch["example_weights"].tolist() == [1.0] * 4
        assert batch["example_weights"].dtype == np.float32


def test_the_smallest_width_that_fits():
    of = features([1, 4, 5, 8, 9, 16, 17, 32])
    batches = evaluation(of, batch_size=1)
    shapes = [batches.batch(step)["input_ids"].shape for step in range(8)]
    assert shapes == [(1, width) for width in (32, 32, 16, 16, 8, 8, 4, 4)]
    # Longer examples are truncated.
    longer = evaluation(features([40, 3]), batch_size=2)
    assert longer.batch(0)["input_ids"].shape == (2, 32)


@pytest.mark.parametrize("make", [training, evaluation])
def test_rows_of_a_part_are_those_of_the_whole(make):
    batches = make(random_features(14))
    for step in range(4):
        whole = batches.batch(step)
        for rows in (range(0, 2), range(2, 4), range(1, 2), range(3, 4)):
            part = batches.batch(step, rows)
            assert part.keys() == whole.keys() - {"part_widths"}
            # float64 would be twice the memory, and another trace.
            assert part["label_weights"].dtype.itemsize == 4
            for name, values in part.items():
                expected = whole[name][list(rows)]
                # Padding is of weight 0, and what it holds is of no matter.
                real = expected.shape[0] and part["example_weights"] > 0
                np.testing.assert_array_equal(values[real], expected[real])
                assert values.shape == expected.shape
                assert values.dtype == expected.dtype


def test_an_evaluation_takes_every_example_once_the_longest_first():
    of = random_features(62)
    batches = evaluation(of)
    assert batches.num_steps == 16
    taken = [batches.record_numbers(step) for step in range(16)]
    numbers = np.concatenate(taken)
    assert sorted(numbers) == list(range(62))
    lengths = of.lengths[numbers]
    assert (np.diff(lengths) <= 0).all()
    # Examples of equal length stay in their order.
    same = np.diff(lengths) == 0
    assert same.any() and (np.diff(numbers)[same] > 0).all()


def test_padding_rows_have_no_weight():
    batches = evaluation(features([3, 2, 3, 1, 2]))
    batch = batches.batch(1)
    assert batch["example_weights"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert batch["label_weights"].sum(axis=1).tolist() == [1, 0, 0, 0]
    assert batch["example_numbers"].tolist() == [0, 1, 2, 3]
    padding = batches.batch(1, range(2, 4))
    assert padding["example_weights"].tolist() == [0.0, 0.0]
    assert not padding["label_weights"].any()


def test_parts_are_as_narrow_as_if_sorted_and_batches_are_alike():
    of = random_features(64 * 8, longest=128)
    widths = bucket_widths(128)
    batches = training(of, batch_size=8, widths=widths)
    made = [batches.batch(step) for step in range(64)]
    found = np.array([batch["part_widths"] for batch in made])
    longest = np.sort(of.lengths).reshape(4 * 64, 2).max(axis=1)
    assert sorted(found.ravel()) == [
        min(w for w in widths if w >= n) for n in longest
    ]
    numbers = np.array([batches.record_numbers(n) for n in range(64)])
    for step in range(64):
        lengths = of.lengths[numbers[step]].reshape(4, 2)
        assert made[step]["input_ids"].shape[1] == found[step].max()
        assert (lengths.max(axis=1) <= found[step]).all()
    # Random batches differ in their mean lengths by 13 tokens.
    assert of.lengths[numbers].mean(axis=1).std() < 7


def test_few_combinations_of_widths_occur():
    of = random_features(64 * 8 * 4, longest=128)
    batches = training(of, batch_size=8, widths=bucket_widths(128))
    found = {tuple(batches.batch(n)["part_widths"]) for n in range(256)}
    assert 4 <= len(found) <= 20
    for batch_size, parts in ((6, 2), (7, 1)):
        batches = training(of, batch_size=batch_size)
        assert batches.batch(0)["part_widths"].shape == (parts,)


def test_record_names_and_no_examples():
    with pytest.raises(UserError, match=r"^There are no examples\.$"):
        evaluation(features([]))
    of = features([1, 2])
    assert evaluation(of).record_name(1) == "row 1"
    named = evaluation(of, name_of="f.tsv, line {}".format)
    assert named.record_name(1) == "f.tsv, line 1"
