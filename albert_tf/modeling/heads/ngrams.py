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
# The factor of the few measures of how alike two texts are, beside so many
# other features.
_LIKENESS_SCALE = 4 * _LENGTH
# The factor of the n-grams of a single text: what two have in common says more.
_SINGLE_SCALE = 0.5
# The last four are measures of likeness.
COMPARISON_WIDTH = 4 * NGRAM_BUCKETS + 4
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


def compared_texts(input_ids: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Returns a comparison of two texts, `[batch, COMPARISON_WIDTH]`.

    It is the n-grams of each, of both and of one alone, their cosine, and
    `_token_likeness`, each in a measure by which small models learn pairs well
    (RESULTS.md).

    Args:
        input_ids: `[batch, seq]`.
        first, second: which of them are of each text, `[batch, seq]`.
    """
    u, v = (ngram_vector(input_ids, text) for text in (first, second))
    likeness = [ops.sum(u * v, axis=1) / _LENGTH**2]
    likeness += _token_likeness(input_ids, first, second)
    measures = _LIKENESS_SCALE * ops.stack(likeness, axis=1)
    each = _SINGLE_SCALE * u, _SINGLE_SCALE * v
    parts = [*each, ops.minimum(u, v), ops.abs(u - v), measures]
    return ops.concatenate(parts, axis=1)


def _token_likeness(
    input_ids: Tensor, first: Tensor, second: Tensor
) -> list[Tensor]:
    """Returns three measures of how alike the tokens of two texts are.

    They are the cosine, and the share of each text that the other has too,
    `[batch]`, of tokens weighted by their information: ids are in the order
    of frequency, and by Zipf's law the frequency of a token is about the
    inverse of its rank. So content words count more, as in TF-IDF. Where a
    text has no token they are 0.
    """
    ids = ops.cast(input_ids, "int32")
    information = ops.log(2.0 + ops.cast(ids, "float32"))
    u, v = (information * ops.cast(t, "float32") for t in (first, second))
    # LiteRT has neither slices that add an axis nor einsum.
    in_rows, in_columns = (ops.expand_dims(ids, axis) for axis in (2, 1))
    equal = ops.cast(ops.equal(in_rows, in_columns), "float32")

    def counterparts(text: Tensor) -> Tensor:
        """Returns for every token the sum of those of a text that equal it."""
        return ops.squeeze(ops.matmul(equal, ops.expand_dims(text, 2)), 2)

    def share(one: Tensor, others: Tensor) -> Tensor:
        """Returns the share of a text with counterparts in the other."""
        shared = ops.sum(ops.where(others > 0, one, 0.0), axis=1)
        return shared / ops.maximum(ops.sum(one, axis=1), 1.0)

    of_u, of_v = counterparts(u), counterparts(v)
    product = ops.sum(u * of_v, axis=1)
    lengths = ops.sqrt(ops.sum(u * of_u, axis=1) * ops.sum(v * of_v, axis=1))
    cosine = product / ops.maximum(lengths, 1.0)
    return [cosine, share(u, of_v), share(v, of_u)]
