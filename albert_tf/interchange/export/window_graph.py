"""Paragraphs and their windows as graph operations.

The same as `span_windows.window_features`, for a batch of questions at once.
"""

import dataclasses

import tensorflow as tf

from albert_tf.config import FeatureConfig
from albert_tf.tasks.kinds.span_windows import SPECIAL_TOKENS
from albert_tf.text.in_graph import InGraphTokenizer


@dataclasses.dataclass(frozen=True)
class Paragraphs:
    """Paragraphs with their tokens.

    Attributes:
        texts: `[batch]`, valid UTF-8.
        ids: `[batch, (tokens)]`.
        starts, ends: `[tokens]`, a token's characters in its paragraph,
            without white space at either end.
        byte_starts: `[batch, (characters)]`, the first byte of each, and the
            end.
    """

    texts: tf.Tensor
    ids: tf.RaggedTensor
    starts: tf.Tensor
    ends: tf.Tensor
    byte_starts: tf.Tensor

    def bytes_at(self, characters: tf.Tensor) -> tf.Tensor:
        """Returns the first byte of a character of each text; -1 of -1."""
        places = tf.maximum(characters, 0)
        found = tf.gather(self.byte_starts, places, batch_dims=1)
        return tf.where(characters < 0, -1, found)


@dataclasses.dataclass(frozen=True)
class Windows:
    """Parts of paragraphs, as long as the question leaves room for.

    Attributes:
        question: `[windows]`, the row of the batch.
        fronts: `[windows]`, tokens before the part: of [CLS] question [SEP].
        tokens: `[windows, (tokens)]`, into the flat tokens of all paragraphs.
        max_context: `[tokens of all windows]`, whether no other window has
            more context around the token.
    """

    question: tf.Tensor
    fronts: tf.Tensor
    tokens: tf.RaggedTensor
    max_context: tf.Tensor


def paragraphs_of(
    tokenizer: InGraphTokenizer, contexts: tf.Tensor
) -> Paragraphs:
    """Returns the paragraphs of raw strings `[batch]`."""
    texts = tokenizer.decode(contexts)
    is_space, byte_starts = tokenizer.characters(contexts)
    ids, starts, ends = tokenizer.encode_with_offsets(texts)
    edges = without_spaces(is_space, starts, ends)
    return Paragraphs(texts, ids, *edges, byte_starts)


def without_spaces(
    is_space: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns flat starts and ends of tokens without white space at them.

    A token of nothing else ends before it starts, or where it does. Arguments
    are `[batch, (characters)]`, and `[batch, (tokens)]` in characters.
    """
    text = starts.value_rowids()
    first, limit = (
        tf.gather(tf.cast(edges, tf.int32), text)
        for edges in (is_space.row_starts(), is_space.row_limits())
    )
    visible = tf.where(~is_space.flat_values)[:, 0]
    visible = tf.cast(visible, tf.int32)
    after = tf.searchsorted(visible, first + starts.flat_values)
    before = tf.searchsorted(visible, first + ends.flat_values)
    # The last entry stands beyond all visible characters, the first before
    # them.
    end = tf.size(is_space.flat_values)
    starts = tf.gather(tf.concat([visible, [end]], 0), after)
    ends = tf.gather(tf.concat([[0], visible + 1], 0), before)
    return tf.minimum(starts, limit) - first, tf.maximum(ends, first) - first


def windows(
    queries: tf.RaggedTensor, paragraphs: tf.RaggedTensor, config: FeatureConfig
) -> Windows:
    """Returns the windows of each question, in order, one at least.

    `queries` and `paragraphs` are ids `[batch, (tokens)]`.
    """
    query_lengths = queries.row_lengths()
    lengths = paragraphs.row_lengths()
    room = config.max_seq_length - SPECIAL_TOKENS - query_lengths
    step = tf.minimum(room, config.doc_stride)
    excess = tf.maximum(lengths - room, 0)
    counts = (excess + step - 1) // step + 1
    question = tf.repeat(tf.range(tf.size(counts)), counts)
    number = tf.range(tf.size(question, tf.int64)) - tf.gather(
        tf.cumsum(counts, exclusive=True), question
    )
    begins = number * tf.gather(step, question)
    ends = tf.minimum(
        begins + tf.gather(room, question), tf.gather(lengths, question)
    )
    sizes = ends - begins
    window = tf.repeat(tf.range(tf.size(sizes)), sizes)
    left = tf.range(tf.size(window, tf.int64)) - tf.gather(
        tf.cumsum(sizes, exclusive=True), window
    )
    size = tf.gather(sizes, window)
    first = begins + tf.gather(paragraphs.row_starts(), question)
    tokens = tf.gather(first, window) + left
    context = tf.cast(tf.minimum(left, size - 1 - left), tf.float64)
    context += 0.01 * tf.cast(size, tf.float64)
    owner = _window_of_tokens(
        window, tokens, context, tf.size(paragraphs.flat_values)
    )
    return Windows(
        question,
        tf.cast(tf.gather(query_lengths, question), tf.int32) + 2,
        tf.RaggedTensor.from_row_lengths(tokens, sizes, validate=False),
        window == tf.gather(owner, tokens),
    )


def _window_of_tokens(
    window: tf.Tensor, tokens: tf.Tensor, context: tf.Tensor, total: tf.Tensor
) -> tf.Tensor:
    """Returns the window with the most context around each of `total` tokens.

    Arguments are `[tokens of all windows]`. Of equal windows it is the first.
    """
    most = tf.math.unsorted_segment_max(context, tokens, total)
    is_most = context == tf.gather(most, tokens)
    return tf.math.unsorted_segment_min(
        tf.where(is_most, window, tf.int32.max), tokens, total
    )


def mask_of_positions(parts: Windows, width: tf.Tensor) -> tf.Tensor:
    """Returns `p_mask` `[windows, width]`: 1 where no answer can be.

    The position of [CLS], which means that there is none, is 0.
    """
    columns = tf.range(width)
    sizes = tf.cast(parts.tokens.row_lengths(), tf.int32)
    fronts, ends = parts.fronts, parts.fronts + sizes
    is_part = (columns >= fronts[:, None]) & (columns < ends[:, None])
    return tf.cast(~(is_part | (columns == 0)), tf.int32)
