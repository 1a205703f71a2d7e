"""Widths of equal parts of a batch whose rows are sorted by length.

A part is computed only as wide as its longest row, so that less of a batch is
padding.
"""

import math

import numpy as np

# Parts of a batch, from the shortest rows to the longest. Batches of one
# length have noisier gradients and learn more slowly.
_PARTS = 4
# Widths for a whole run are multiples of this. Of its batches nearly all fit.
_MULTIPLE = 8
_SHARE_THAT_FITS = 0.95
# Batches that are drawn to find them.
_DRAWN_BATCHES = 64
# Less is not worth the compilation of several widths.
_MIN_SAVING = 0.04


def num_parts(batch_size: int) -> int:
    """Returns the number of parts of a batch of this size."""
    return math.gcd(batch_size, _PARTS)


def longest_rows(lengths: np.ndarray, parts: int) -> np.ndarray:
    """Returns the longest row of each part `[..., parts]` of `[..., batch]`."""
    return lengths.reshape(*lengths.shape[:-1], parts, -1).max(axis=-1)


def fixed_widths(
    lengths: np.ndarray, batch_size: int, full: int
) -> np.ndarray | None:
    """Returns widths `[parts]` that fit nearly all batches of such lengths.

    None where that saves too little of batches as wide as `full`.
    """
    drawn = np.random.default_rng(0).choice(
        lengths, (_DRAWN_BATCHES, batch_size)
    )
    longest = longest_rows(np.sort(drawn, axis=1), num_parts(batch_size))
    wanted = np.quantile(longest, _SHARE_THAT_FITS, axis=0)
    widths = np.ceil(wanted / _MULTIPLE) * _MULTIPLE
    widths = np.minimum(widths, full).astype(np.int32)
    return widths if 1 - widths.mean() / full >= _MIN_SAVING else None
