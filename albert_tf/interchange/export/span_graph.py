"""Answers to questions as graph operations: windows, spans, the best of them.

The same as `span_windows.window_features`, `Spans.scores` and
`span_answers.nbest`, for a batch of questions at once.
"""

import dataclasses

import tensorflow as tf

from albert_tf.config import FeatureConfig
from albert_tf.tasks.kinds.span_windows import SPECIAL_TOKENS

Tensors = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Paragraphs:
    """Paragraphs with their tokens.

    Attributes:
        texts: `[batch]`, valid UTF-8.
        ids: `[batch, (tokens)]`.
        starts, ends: `[tokens]`, a token's characters in its paragraph,
            without white space at either end.
    """

    texts: tf.Tensor
    ids: tf.RaggedTensor
    starts: tf.Tensor
    ends: tf.Tensor


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
    # Beyond the last, and before the first.
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
    total = tf.size(paragraphs.flat_values)
    most = tf.math.unsorted_segment_max(context, tokens, total)
    is_most = context == tf.gather(most, tokens)
    # Of equal windows the first.
    owner = tf.math.unsorted_segment_min(
        tf.where(is_most, window, tf.size(sizes)), tokens, total
    )
    return Windows(
        question,
        tf.cast(tf.gather(query_lengths, question), tf.int32) + 2,
        tf.RaggedTensor.from_row_lengths(tokens, sizes, validate=False),
        window == tf.gather(owner, tokens),
    )


def beams_of_logits(outputs: Tensors, mask: tf.Tensor, count: int) -> Tensors:
    """Returns the `count` best starts by as many best ends, as beams.

    `start_logits`, `end_logits` and `mask`, 0 in padding, are `[windows, seq]`.
    """

    def best(name: str) -> tuple[tf.Tensor, tf.Tensor]:
        logits = tf.cast(outputs[name], tf.float64)
        lowest = tf.constant(float("-inf"), tf.float64)
        width = tf.shape(mask)[1]
        return tf.math.top_k(
            tf.where(mask > 0, logits, lowest), tf.minimum(count, width)
        )

    starts, first = best("start_logits")
    ends, last = best("end_logits")
    return {
        "first": first[:, :, None],
        "last": last[:, None],
        "scores": starts[:, :, None] + ends[:, None],
    }


def beams_of_head(outputs: Tensors) -> Tensors:
    """Returns the beams of AnswerableSpanHead."""
    starts = tf.cast(outputs["start_top_log_probs"], tf.float64)[..., None]
    ends = tf.cast(outputs["end_top_log_probs"], tf.float64)
    return {
        "first": outputs["start_top_positions"][..., None],
        "last": outputs["end_top_positions"],
        "scores": starts + ends,
    }


def best_answers(
    paragraphs: Paragraphs,
    parts: Windows,
    beams: Tensors,
    null_scores: tf.Tensor | None,
    config: FeatureConfig,
) -> Tensors:
    """Returns each question's answer.

    `[batch]`: `answer` and `probability`, `start` and `end` in characters (-1
    without an answer), and with `null_scores` `null_probability`.

    Args:
        beams: `first`, `last` (positions in windows) and `scores`, of shapes
            that broadcast to `[windows, starts, ends]`.
        null_scores: `[windows]`, scores of there being no answer, or None.
    """
    batch = tf.cast(paragraphs.ids.nrows(), tf.int32)
    starts, ends, scores, question = _spans(paragraphs, parts, beams, config)
    order = _order(question, starts, ends, scores)
    starts, ends, scores, question = (
        tf.gather(values, order) for values in (starts, ends, scores, question)
    )
    base = tf.cast(tf.reduce_max(tf.concat([ends, [0]], 0)) + 1, tf.int64)
    span = tf.cast(question, tf.int64) * base + tf.cast(starts, tf.int64)
    span = span * base + tf.cast(ends, tf.int64)
    distinct = _first_of_each(span)
    found = tf.RaggedTensor.from_value_rowids(
        distinct, tf.gather(question, distinct), batch, validate=False
    )[:, : config.n_best_size]
    question = found.value_rowids()
    starts, ends, scores = (
        tf.gather(values, found.flat_values)
        for values in (starts, ends, scores)
    )
    texts = tf.strings.substr(
        tf.gather(paragraphs.texts, question),
        starts,
        ends - starts,
        unit="UTF8_CHAR",
    )

    def best(values: tf.Tensor, default: tf.Tensor | float) -> tf.Tensor:
        rows = found.with_flat_values(values)[:, :1]
        return rows.to_tensor(default, shape=[None, 1])[:, 0]

    zero = tf.zeros([], tf.float64)
    powers = tf.exp(scores - tf.gather(best(scores, zero), question))
    keys = tf.strings.join([tf.strings.as_string(question), texts], " ")
    entries = _first_of_each(keys)
    total = tf.math.unsorted_segment_sum(
        tf.gather(powers, entries), tf.gather(question, entries), batch
    )
    is_null = found.row_lengths() == 0
    none = tf.cast(is_null, tf.float64)
    null = {}
    if null_scores is not None:
        # Where one window has an answer the paragraph has one.
        odds = tf.math.unsorted_segment_min(
            tf.cast(null_scores, tf.float64), parts.question, batch
        )
        none = tf.maximum(none, tf.sigmoid(odds))
        is_null |= odds > config.null_threshold
        null["null_probability"] = tf.cast(none, tf.float32)
    return {
        "answer": tf.where(is_null, "", best(texts, "")),
        "start": tf.where(is_null, -1, best(starts, -1)),
        "end": tf.where(is_null, -1, best(ends, -1)),
        "probability": tf.cast(
            tf.where(is_null, none, (1.0 - none) / total), tf.float32
        ),
        **null,
    }


def _spans(
    paragraphs: Paragraphs,
    parts: Windows,
    beams: Tensors,
    config: FeatureConfig,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns starts, ends, scores and questions of the valid spans."""
    shape = tf.shape(beams["scores"])
    fronts = parts.fronts[:, None, None]
    first = tf.broadcast_to(beams["first"] - fronts, shape)
    last = tf.broadcast_to(beams["last"] - fronts, shape)
    sizes = tf.cast(parts.tokens.row_lengths(), tf.int32)[:, None, None]
    valid = (
        (first >= 0)
        & (first <= last)
        & (last - first < config.max_answer_length)
        & (last < sizes)
    )
    window = tf.cast(tf.where(valid)[:, 0], tf.int32)
    begin = tf.gather(tf.cast(parts.tokens.row_starts(), tf.int32), window)
    first = begin + tf.boolean_mask(first, valid)
    last = begin + tf.boolean_mask(last, valid)
    starts = tf.gather(
        paragraphs.starts, tf.gather(parts.tokens.flat_values, first)
    )
    ends = tf.gather(paragraphs.ends, tf.gather(parts.tokens.flat_values, last))
    # Not white space alone.
    kept = tf.gather(parts.max_context, first) & (starts < ends)
    scores = tf.boolean_mask(beams["scores"], valid)
    question = tf.gather(parts.question, window)
    starts, ends, scores, question = (
        tf.boolean_mask(value, kept)
        for value in (starts, ends, scores, question)
    )
    return starts, ends, scores, question


def _order(
    question: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, scores: tf.Tensor
) -> tf.Tensor:
    """Returns the order by question, score (the best first), start, end."""
    order = tf.argsort(ends, stable=True)
    for key in (starts, -scores, question):
        order = tf.gather(order, tf.argsort(tf.gather(key, order), stable=True))
    return order


def _first_of_each(keys: tf.Tensor) -> tf.Tensor:
    """Returns the index of the first of each distinct key, in order."""
    distinct, number = tf.unique(keys)
    return tf.math.unsorted_segment_min(
        tf.range(tf.size(keys)), number, tf.size(distinct)
    )
