"""Widths that fit nearly all batches of a run."""

import numpy as np

from albert_tf.inputs.part_widths import fixed_widths, longest_rows


def test_widths_fit_nearly_all_batches():
    rng = np.random.default_rng(5)
    lengths = rng.integers(20, 121, 4000)
    widths = fixed_widths(lengths, 64, 128)
    assert (widths % 8 == 0).all() and list(widths) == sorted(widths)
    drawn = np.sort(rng.choice(lengths, (200, 64)), axis=1)
    fits = (longest_rows(drawn, 4) <= widths).all(axis=1)
    assert fits.mean() > 0.8
    assert widths.mean() < 0.75 * 128


def test_what_saves_too_little_is_left():
    assert fixed_widths(np.full(100, 127), 8, 128) is None
    # A batch of one part would save, too: all its rows are short.
    assert list(fixed_widths(np.full(100, 9), 7, 128)) == [16]
