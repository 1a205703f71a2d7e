"""Random numbers that are functions of a key and a counter, not of history.

Any process can make any draw again, in any order. The mixer is the finaliser
of splitmix64 (Steele, Lea and Flood, OOPSLA 2014); strings enter through
blake2b.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(0xD1B54A32D192ED03)
_FEISTEL_ROUNDS = 6  # 4 leave a serial correlation that tests can see


def _mix(values: np.ndarray) -> np.ndarray:
    """Returns splitmix64's bijection of uint64 `values`."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def _as_uint64(values: ArrayLike) -> np.ndarray:
    # A scalar becomes an array: NumPy warns of overflow on scalars only.
    array = np.atleast_1d(values)
    if array.dtype.kind not in "iu":
        # NumPy reads Python integers on both sides of 2**63 as floats.
        raise TypeError(f"{array.dtype} holds no 64-bit integers.")
    return array.astype(np.uint64, copy=False)


def key(*parts: int | str) -> np.uint64:
    """Returns a key that names `parts`: other parts, or their order, other key.

    Integers must lie in [-2**63, 2**64).
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            tag, data = b"s", part.encode("utf-8", "surrogatepass")
        else:
            tag, data = b"i", int(part).to_bytes(9, "little", signed=True)
        digest.update(tag + len(data).to_bytes(8, "little") + data)
    return np.uint64(int.from_bytes(digest.digest(), "little"))


def fold_in(keys: ArrayLike, numbers: ArrayLike) -> np.ndarray:
    """Returns new keys `[n]` made of `keys` and `numbers`, broadcast together.

    Streams of a folded key have nothing in common with those of its parent.
    """
    keys = _mix(_as_uint64(keys) ^ _FOLD)
    return _mix(keys + _as_uint64(numbers) * _GOLDEN)


def random_bits(keys: ArrayLike, counters: ArrayLike) -> np.ndarray:
    """Returns 64 random bits for each key and counter, broadcast together."""
    steps = (_as_uint64(counters) + np.uint64(1)) * _GOLDEN
    return _mix(_as_uint64(keys) + steps)


def uniform_at(keys: ArrayLike, counters: ArrayLike) -> np.ndarray:
    """Returns draws from [0, 1) for keys and counters, broadcast together."""
    bits = random_bits(keys, counters)
    bits >>= np.uint64(11)
    return bits * 2.0**-53


def uniforms(keys: ArrayLike, count: int) -> np.ndarray:
    """Returns draws `[n, count]` from [0, 1): counters 0 to count - 1.

    A longer row begins with the shorter one: `count` changes no draw.
    """
    return uniform_at(_as_uint64(keys)[:, None], np.arange(count))


def shuffled_position(
    index: ArrayLike, size: int, key: ArrayLike
) -> np.ndarray:
    """Returns where a random permutation of range(size) sends `index` `[n]`.

    A Feistel network permutes the next power of two; what falls outside
    `size` is sent through again until it falls inside (cycle walking), which
    takes fewer than two passes on average. Nothing of length `size` is held.
    """
    round_keys = fold_in(key, np.arange(_FEISTEL_ROUNDS))
    positions = _feistel(_as_uint64(index), size, round_keys)
    outside = np.flatnonzero(positions >= size)
    while outside.size:
        positions[outside] = _feistel(positions[outside], size, round_keys)
        outside = outside[positions[outside] >= size]
    return positions.astype(np.int64)


def _feistel(
    values: np.ndarray, size: int, round_keys: np.ndarray
) -> np.ndarray:
    """Returns a permutation of range(2**bits) where 2**bits >= size."""
    bits = max(2, (size - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    low_mask = (np.uint64(1) << low_bits) - np.uint64(1)
    high_mask = (np.uint64(1) << np.uint64(bits - bits // 2)) - np.uint64(1)
    high, low = values >> low_bits, values & low_mask
    for even, odd in round_keys.reshape(-1, 2, 1):
        high = high ^ (random_bits(even, low) & high_mask)
        low = low ^ (random_bits(odd, high) & low_mask)
    return (high << low_bits) | low
