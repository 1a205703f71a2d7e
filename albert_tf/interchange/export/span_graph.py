"""Answers to questions as graph operations: beams, spans, the best of them.

The same as `Spans.scores` and `span_answers.nbest`, for a batch of questions at
once.
"""

import dataclasses

import tensorflow as tf

from albert_tf.config import FeatureConfig
from albert_tf.interchange.export.window_graph import Paragraphs, Windows

Tensors = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Beams:
    """Candidates for an answer in each window.

    Attributes:
        first, last, scores: positions in the window, and their score; of shapes
            that broadcast to `[windows, starts, ends]`.
        null_scores: `[windows]`, scores of there being no answer, or None.
    """

    first: tf.Tensor
    last: tf.Tensor
    scores: tf.Tensor
    null_scores: tf.Tensor | None = None


@dataclasses.dataclass(frozen=True)
class Spans:
    """Spans of paragraphs, all attributes `[spans]`.

    Attributes:
        question: the row of the batch.
        starts, ends: first character, and the one after the last.
        scores: float64.
    """

    question: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    scores: tf.Tensor

    def at(self, places: tf.Tensor) -> "Spans":
        """Returns the spans at some places."""
        return Spans(**{n: tf.gather(v, places) for n, v in vars(self).items()})


def beams_of_logits(outputs: Tensors, mask: tf.Tensor, count: int) -> Beams:
    """Returns the `count` best starts by as many best ends.

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
    scores = starts[:, :, None] + ends[:, None]
    return Beams(first[:, :, None], last[:, None], scores)


def beams_of_head(outputs: Tensors) -> Beams:
    """Returns the beams of AnswerableSpanHead."""
    starts = tf.cast(outputs["start_top_log_probs"], tf.float64)[..., None]
    ends = tf.cast(outputs["end_top_log_probs"], tf.float64)
    return Beams(
        outputs["start_top_positions"][..., None],
        outputs["end_top_positions"],
        starts + ends,
        outputs["unanswerable_logits"],
    )


def best_answers(
    paragraphs: Paragraphs, parts: Windows, beams: Beams, config: FeatureConfig
) -> Tensors:
    """Returns each question's answer.

    `[batch]`: `answer` and `probability`, `start` and `end` in characters (-1
    without an answer), and with null scores `null_probability`.
    """
    batch = tf.cast(paragraphs.ids.nrows(), tf.int32)
    spans = _valid_spans(paragraphs, parts, beams, config)
    spans = spans.at(_order(spans))
    places = _best_places(spans, batch, config.n_best_size)
    spans = spans.at(places.flat_values)
    texts = tf.strings.substr(
        tf.gather(paragraphs.texts, spans.question),
        spans.starts,
        spans.ends - spans.starts,
        unit="UTF8_CHAR",
    )
    is_null = places.row_lengths() == 0
    none = tf.cast(is_null, tf.float64)
    if beams.null_scores is not None:
        odds = _null_odds(beams.null_scores, parts, batch)
        none = tf.maximum(none, tf.sigmoid(odds))
        is_null |= odds > config.null_threshold
    others = (1.0 - none) / _total_of_texts(spans, texts, places)

    def best(values: tf.Tensor, null_value: str | int) -> tf.Tensor:
        firsts = _first_of_rows(places.with_flat_values(values), null_value)
        return tf.where(is_null, null_value, firsts)

    found = {
        "answer": best(texts, ""),
        "start": best(spans.starts, -1),
        "end": best(spans.ends, -1),
        "probability": tf.cast(tf.where(is_null, none, others), tf.float32),
    }
    if beams.null_scores is not None:
        found["null_probability"] = tf.cast(none, tf.float32)
    return found


def _null_odds(
    null_scores: tf.Tensor, parts: Windows, batch: tf.Tensor
) -> tf.Tensor:
    """Returns each question's score of no answer, the least of its windows'.

    Where one window has an answer the paragraph has one.
    """
    scores = tf.cast(null_scores, tf.float64)
    return tf.math.unsorted_segment_min(scores, parts.question, batch)


def _valid_spans(
    paragraphs: Paragraphs, parts: Windows, beams: Beams, config: FeatureConfig
) -> Spans:
    """Returns the spans that can be an answer.

    A span counts in the window with the most context around its start, and is
    not white space alone.
    """
    shape = tf.shape(beams.scores)
    fronts = parts.fronts[:, None, None]
    first = tf.broadcast_to(beams.first - fronts, shape)
    last = tf.broadcast_to(beams.last - fronts, shape)
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
    tokens = parts.tokens.flat_values
    spans = Spans(
        question=tf.gather(parts.question, window),
        starts=tf.gather(paragraphs.starts, tf.gather(tokens, first)),
        ends=tf.gather(paragraphs.ends, tf.gather(tokens, last)),
        scores=tf.boolean_mask(beams.scores, valid),
    )
    is_kept = tf.gather(parts.max_context, first) & (spans.starts < spans.ends)
    return spans.at(tf.where(is_kept)[:, 0])


def _best_places(spans: Spans, batch: tf.Tensor, count: int) -> tf.RaggedTensor:
    """Returns the places of each question's `count` best different spans.

    `[batch, (spans)]`, of spans in their order (`_order`).
    """
    base = tf.cast(tf.reduce_max(tf.concat([spans.ends, [0]], 0)) + 1, tf.int64)
    key = tf.cast(spans.question, tf.int64) * base
    key = (key + tf.cast(spans.starts, tf.int64)) * base
    distinct = _first_of_each(key + tf.cast(spans.ends, tf.int64))
    return tf.RaggedTensor.from_value_rowids(
        distinct, tf.gather(spans.question, distinct), batch, validate=False
    )[:, :count]


def _total_of_texts(
    spans: Spans, texts: tf.Tensor, places: tf.RaggedTensor
) -> tf.Tensor:
    """Returns the sum of exp(score - highest score) of each question's texts.

    Of spans with the same text the first counts, which is the best.
    """
    question, zero = spans.question, tf.zeros([], tf.float64)
    highest = _first_of_rows(places.with_flat_values(spans.scores), zero)
    powers = tf.exp(spans.scores - tf.gather(highest, question))
    keys = tf.strings.join([tf.strings.as_string(question), texts], " ")
    entries = _first_of_each(keys)
    return tf.math.unsorted_segment_sum(
        tf.gather(powers, entries),
        tf.gather(question, entries),
        places.nrows(),
    )


def _first_of_rows(
    rows: tf.RaggedTensor, default: str | int | tf.Tensor
) -> tf.Tensor:
    """Returns the first value of each row."""
    return rows[:, :1].to_tensor(default, shape=[None, 1])[:, 0]


def _order(spans: Spans) -> tf.Tensor:
    """Returns the order by question, score (the best first), start, end."""
    order = tf.argsort(spans.ends, stable=True)
    for key in (spans.starts, -spans.scores, spans.question):
        order = tf.gather(order, tf.argsort(tf.gather(key, order), stable=True))
    return order


def _first_of_each(keys: tf.Tensor) -> tf.Tensor:
    """Returns the index of the first of each distinct key, in order."""
    distinct, number = tf.unique(keys)
    return tf.math.unsorted_segment_min(
        tf.range(tf.size(keys)), number, tf.size(distinct)
    )
