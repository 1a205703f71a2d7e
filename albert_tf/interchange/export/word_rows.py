"""Words packed into rows of bounded length as graph operations.

The same rows as `token_classification` makes: a word is never divided.
"""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Places:
    """Places of words in rows.

    Attributes:
        row: `[words]`, the row of each word; those of a text follow one
            another.
        start: `[words]`, where the word begins in its row.
        num_rows: of all texts; at least one for each.
    """

    row: tf.Tensor
    start: tf.Tensor
    num_rows: tf.Tensor


def without_empty_words(ids: tf.RaggedTensor, unknown: int) -> tf.RaggedTensor:
    """Returns the ids of words `[words, (tokens)]`, `unknown` where none are.

    No word may get lost.
    """
    is_empty = ids.row_lengths() == 0
    missing = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(is_empty)], unknown),
        tf.cast(is_empty, tf.int64),
        validate=False,
    )
    return tf.concat([ids, missing], 1)


def packed(lengths: tf.RaggedTensor, room: int) -> Places:
    """Returns the places of words in rows of at most `room` tokens.

    `lengths` `[texts, (words)]` are at most `room`. A word that does not fit
    behind the one before it begins a row.
    """
    shape = [lengths.nrows(), tf.maximum(lengths.bounding_shape(axis=1), 1)]
    padded = lengths.to_tensor(shape=shape)
    is_word = tf.ones_like(lengths).to_tensor(0, shape=shape) > 0
    rows, ends = _rows_and_ends(padded, room)
    # Texts follow one another.
    counts = rows[:, -1] + 1
    rows += tf.cumsum(counts, exclusive=True)[:, None]
    return Places(
        row=tf.boolean_mask(rows, is_word),
        start=tf.boolean_mask(ends - padded, is_word),
        num_rows=tf.reduce_sum(counts),
    )


def _rows_and_ends(
    lengths: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the row of each word in its text and its end in the row.

    All are `[texts, words]`; padding has the length 0.
    """

    def place(
        before: tuple[tf.Tensor, tf.Tensor], length: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        row, end = before
        fits = end + length <= room
        return (
            tf.where(fits, row, row + 1),
            tf.where(fits, end + length, length),
        )

    start = tf.zeros_like(lengths[:, 0])
    rows, ends = tf.scan(place, tf.transpose(lengths), (start, start))
    return tf.transpose(rows), tf.transpose(ends)
