"""Answers to questions as graph operations: windows, spans, the best of them.

The same as `span_windows.window_features`, `Spans.scores` and
`span_answers.nbest`, for a batch of questions at once.
"""

import dataclasses

import tensorflow as tf

from albert_tf.config import FeatureConfig
from albert_tf.tasks.kinds.span_windows import SPECIAL_TOKENS
from albert_tf.text.in_graph import InGraphTokenizer

Tensors = dict[str, tf.Tensor]


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


def mask_of_positions(parts: Windows, width: tf.Tensor) -> tf.Tensor:
    """Returns `p_mask` `[windows, width]`: 1 where no answer can be.

    The position of [CLS], which means that there is none, is 0.
    """
    columns = tf.range(width)
    sizes = tf.cast(parts.tokens.row_lengths(), tf.int32)
    fronts, ends = parts.fronts, parts.fronts + sizes
    is_part = (columns >= fronts[:, None]) & (columns < ends[:, None])
    return tf.cast(~(is_part | (columns == 0)), tf.int32)


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
    total = _total_of_texts(spans, texts, places)
    is_null, null = places.row_lengths() == 0, {}
    none = tf.cast(is_null, tf.float64)
    if beams.null_scores is not None:
        # Where one window has an answer the paragraph has one.
        odds = tf.math.unsorted_segment_min(
            tf.cast(beams.null_scores, tf.float64), parts.question, batch
        )
        none = tf.maximum(none, tf.sigmoid(odds))
        is_null |= odds > config.null_threshold
        null["null_probability"] = tf.cast(none, tf.float32)

    def best(values: tf.Tensor, null_value: str | int) -> tf.Tensor:
        firsts = _first_of_rows(places.with_flat_values(values), null_value)
        return tf.where(is_null, null_value, firsts)

    probability = tf.where(is_null, none, (1.0 - none) / total)
    return {
        "answer": best(texts, ""),
        "start": best(spans.starts, -1),
        "end": best(spans.ends, -1),
        "probability": tf.cast(probability, tf.float32),
        **null,
    }


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
