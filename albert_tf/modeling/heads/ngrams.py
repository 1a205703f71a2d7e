"""The n-grams of a text as a vector, without their places.

A linear model on words reads them; a small encoder has not learned to keep
them. As in fastText (Joulin et al. 2017), single tokens and pairs of neighbours
are hashed into one table, so that the width does not depend on the vocabulary.
"""

from keras import KerasTensor as Tensor
from keras import ops

NGRAM_BUCKETS = 2**15
# The length of the vector. A weight learns by about the learning rate in a
# step, and one of a rare n-gram in few: so that rates for the encoder serve it
# too.
_LENGTH = 40.0
# The factor of the cosine of two texts, one feature beside so many.
_COSINE_SCALE = 4 * _LENGTH
# The factor of the n-grams of a single text: what two have in common says more.
_SINGLE_SCALE = 0.5
COMPARISON_WIDTH = 4 * NGRAM_BUCKETS + 1
# Odd, so that the first of a pair alone would reach every bucket. Where the
# product wraps beyond an int32, its remainder by a power of 2 is the same.
_FACTOR = 7919


def ngram_vector(input_ids: Tensor, chosen: Tensor) -> Tensor:
    """Returns the n-grams of the chosen tokens, `[batch, NGRAM_BUCKETS]`.

    Each is the root of an n-gram's share of the text, so that frequent words do
    not outweigh the others. Without tokens the vector is 0.

    Args:
        input_ids: `[batch, seq]`.
        chosen: which of them count, `[batch, seq]`.
    """
    ids = ops.cast(input_ids, "int32")
    chosen = ops.cast(chosen, "float32")
    pairs = ids[:, :-1] * _FACTOR + ids[:, 1:]
    buckets = ops.concatenate([ids, pairs], axis=1) % NGRAM_BUCKETS
    counted = ops.concatenate([chosen, chosen[:, :-1] * chosen[:, 1:]], axis=1)
    batch = ops.shape(ids)[0]
    rows = ops.arange(batch, dtype="int32")[:, None] * NGRAM_BUCKETS
    # A scatter that adds becomes one in ONNX that overwrites equal places.
    counts = ops.segment_sum(
        ops.reshape(counted, (-1,)),
        ops.reshape(rows + buckets, (-1,)),
        batch * NGRAM_BUCKETS,
    )
    counts = ops.reshape(counts, (batch, NGRAM_BUCKETS))
    total = ops.sum(counted, axis=1, keepdims=True)
    shares = counts / ops.maximum(total, 1.0)
    return _LENGTH * ops.sqrt(shares)


def compared_ngrams(first: Tensor, second: Tensor) -> Tensor:
    """Returns a comparison of two texts, `[batch, COMPARISON_WIDTH]`.

    It is the n-grams of each, of both and of one alone, and their cosine, each
    in a measure by which small models learn pairs well (RESULTS.md).

    Args:
        first, second: their n-grams, `[batch, NGRAM_BUCKETS]`.
    """
    cosine = ops.sum(first * second, axis=1, keepdims=True) / _LENGTH**2
    both = ops.minimum(first, second)
    differing = ops.abs(first - second)
    each = _SINGLE_SCALE * first, _SINGLE_SCALE * second
    parts = [*each, both, differing, _COSINE_SCALE * cosine]
    return ops.concatenate(parts, axis=1)
