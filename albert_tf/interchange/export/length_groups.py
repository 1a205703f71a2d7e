"""Computes a batch in micro-batches of rows of similar length (bucketing).

A model computes as many positions for every row as the longest one has: a
text of 400 words among 31 short ones would make the batch 27 times slower.
Micro-batches also use a processor's cores better than the operations of one
large batch do, each on all cores.
"""

import functools
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.modeling.inputs import ENCODER_INPUTS

# Few, because a group costs a small model as much as some rows.
_WIDTHS = (32, 64, 128, 256)
# The most in a micro-batch. (mini and base on two cores: 512 and more are no
# faster.)
MICRO_BATCH_TOKENS = 256
# The most that are computed at a time: memory is bounded however many windows a
# context has.
_MICRO_BATCHES = 16
# Keep the loop from the optimizer of a session, which TensorFlow Serving runs
# an export in: an iteration would wait for all values of the one before. (It
# passes over functions of tf.data that are not inlined.)
_UNOPTIMIZED = {"_noinline": True, "_tf_data_function": True}


def longest_of_groups(max_seq_length: int) -> list[int]:
    """Returns the longest length of each group, up to that of an input."""
    return [
        *(width for width in _WIDTHS if width < max_seq_length),
        max_seq_length,
    ]


def by_length(
    function: tf.types.experimental.PolymorphicFunction,
    features: Mapping[str, tf.Tensor],
    *,
    sequence_outputs: bool = False,
    one_width: bool = False,
    micro_batch_tokens: int | None = MICRO_BATCH_TOKENS,
) -> dict[str, tf.Tensor]:
    """Returns a function's outputs of features, computed in micro-batches.

    The lengths of a micro-batch's rows lie between the same two of _WIDTHS,
    and all are computed at the length of its longest row.

    Args:
        function: of features by name.
        features: the encoder's inputs `[rows, ..., seq]`, and others `[rows,
            ...]`.
        sequence_outputs: whether outputs are `[rows, seq, ...]`, to be padded
            with 0.
        one_width: whether the shapes of outputs depend on the length.
        micro_batch_tokens: at most this many in a micro-batch of several rows;
            None to compute all rows at once.
    """
    if micro_batch_tokens is None:
        return dict(function(features))
    many = tf.function(
        functools.partial(
            _in_micro_batches,
            function,
            sequence_outputs=sequence_outputs,
            one_width=one_width,
            micro_batch_tokens=micro_batch_tokens,
        ),
        autograph=False,
        experimental_attributes=_UNOPTIMIZED,
    )
    # A text alone needs no loop, which costs a small model a tenth.
    is_one = tf.shape(features["input_mask"])[0] == 1
    return tf.cond(
        is_one, lambda: dict(function(features)), lambda: many(features)
    )


def _in_micro_batches(
    function: tf.types.experimental.PolymorphicFunction,
    features: Mapping[str, tf.Tensor],
    sequence_outputs: bool,
    one_width: bool,
    micro_batch_tokens: int,
) -> dict[str, tf.Tensor]:
    """Returns the outputs of features; arguments as `by_length`'s."""
    shape = tf.shape(features["input_mask"])
    if one_width:
        lengths = tf.fill(shape[:1], shape[-1])
    else:
        lengths = _lengths(features["input_mask"])
    order, sizes = _micro_batches(lengths, shape, micro_batch_tokens)
    ends = tf.cumsum(sizes)

    def compute(number: tf.Tensor) -> dict[str, tf.Tensor]:
        rows = order[ends[number] - sizes[number] : ends[number]]
        width = shape[-1]
        if not one_width:
            width = tf.maximum(tf.reduce_max(tf.gather(lengths, rows)), 1)
        outputs = function(_rows_of(features, rows, width))
        if sequence_outputs:
            return {n: _padded(v, shape[-1]) for n, v in outputs.items()}
        return outputs

    computed = tf.map_fn(
        compute,
        tf.range(tf.size(sizes)),
        fn_output_signature=_output_specs(function, features),
        parallel_iterations=_MICRO_BATCHES,
    )
    back = tf.math.invert_permutation(order)
    return {
        name: tf.gather(values.values, back)
        for name, values in computed.items()
    }


def _output_specs(
    function: tf.types.experimental.PolymorphicFunction,
    features: Mapping[str, tf.Tensor],
) -> dict[str, tf.RaggedTensorSpec]:
    """Returns the specifications of a function's outputs of any batch.

    They are ragged, since micro-batches have different numbers of rows.
    """
    specs = {
        name: tf.TensorSpec([None] * value.shape.rank, value.dtype)
        for name, value in features.items()
    }
    outputs = function.get_concrete_function(specs).structured_outputs
    return {
        name: tf.RaggedTensorSpec(output.shape, output.dtype, ragged_rank=0)
        for name, output in outputs.items()
    }


def _lengths(mask: tf.Tensor) -> tf.Tensor:
    """Returns the tokens of each row of `[rows, ..., seq]`, at least 1.

    The choices of a question stay together: their longest counts.
    """
    shape = tf.shape(mask)
    ends = tf.where(mask > 0, tf.range(1, shape[-1] + 1), 1)
    return tf.reduce_max(tf.reshape(ends, [shape[0], -1]), axis=1)


def _micro_batches(
    lengths: tf.Tensor, shape: tf.Tensor, micro_batch_tokens: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rows in the order of micro-batches, and their sizes.

    The longest come first: while one core computes them others do the rest.

    Args:
        lengths: of the rows, which lie between the same two of _WIDTHS in a
            micro-batch.
        shape: of the batch, `[rows, ..., seq]`.
        micro_batch_tokens: at most this many in a micro-batch of several rows.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    groups = len(_WIDTHS) - tf.searchsorted(_WIDTHS, lengths)
    groups = tf.gather(groups, order)
    widths = [tf.maximum(shape[-1], 1), *reversed(_WIDTHS)]
    tokens = tf.reduce_prod(shape[1:-1]) * widths
    most = tf.maximum(micro_batch_tokens // tokens, 1)
    first = tf.searchsorted(groups, groups)
    rows = tf.searchsorted(groups, groups, side="right") - first
    # A group of several rows is at least two micro-batches, for two cores.
    most = tf.minimum(tf.gather(most, groups), (rows + 1) // 2)
    parts = (tf.range(shape[0]) - first) // most
    _, _, sizes = tf.unique_with_counts(groups * shape[0] + parts)
    # Without rows there is one micro-batch of none.
    return order, tf.pad(sizes, [[0, tf.cast(shape[0] == 0, tf.int32)]])


def _rows_of(
    features: Mapping[str, tf.Tensor], rows: tf.Tensor, width: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns rows of the features, the encoder's inputs cut to a width."""
    found = {n: tf.gather(value, rows) for n, value in features.items()}
    for name in found.keys() & set(ENCODER_INPUTS):
        found[name] = found[name][..., :width]
    return found


def _padded(values: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns values `[rows, seq, ...]` with zeros up to a width."""
    ends = [[0, 0] for _ in values.shape]
    return tf.pad(
        values, [ends[0], [0, width - tf.shape(values)[1]], *ends[2:]]
    )
