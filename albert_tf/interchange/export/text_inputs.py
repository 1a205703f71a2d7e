"""TEXT_INPUTS: signatures for raw strings, by the inputs of a head.

A head names its row (`Head.text_inputs`).
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.interchange.export import span_graph
from albert_tf.interchange.export.signatures import (
    Signature,
    SignatureGraph,
    Tensors,
    strings,
)
from albert_tf.modeling.heads import Head
from albert_tf.tasks.kinds.multiple_choice import room_of_choices
from albert_tf.tasks.kinds.span_windows import check_lengths
from albert_tf.text.in_graph import part

# Pieces that `fill_mask` returns for a mask.
_TOP_K = 5


def _texts(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    def single(text: tf.Tensor) -> Tensors:
        return graph.answer(head, graph.pack(graph.tokenizer(text)))

    def pair(text: tf.Tensor, text_pair: tf.Tensor) -> Tensors:
        first, second = map(graph.tokenizer, (text, text_pair))
        return graph.answer(head, graph.pack(first, second))

    pairs = strings("text"), strings("text_pair")
    return {
        "text": Signature("Answers for single texts.", pairs[:1], single),
        "text_pair": Signature("Answers for pairs of texts.", pairs, pair),
    }


def _sentences(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    pair = _texts(graph, head)["text_pair"]
    purpose = "Whether the second text follows the first."
    return {head.head_name: dataclasses.replace(pair, purpose=purpose)}


def _choices(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    config, both = graph.config, room_of_choices(graph.config)

    def call(text: tf.Tensor, choices: tf.Tensor) -> Tensors:
        shape = tf.shape(choices)
        second = graph.tokenizer(tf.reshape(choices, [-1]))
        lengths = second.row_lengths()
        tail = part(
            second, tf.maximum(lengths - config.max_choice_length, 0), lengths
        )
        of_choice = tf.repeat(tf.range(shape[0]), shape[1])
        first = tf.gather(graph.tokenizer(text), of_choice)
        room = tf.minimum(first.row_lengths(), both - tail.row_lengths())
        packed = graph.pack(part(first, 0, room), tail)
        features = {
            name: tf.reshape(rows, [*tf.unstack(shape), tf.shape(rows)[1]])
            for name, rows in packed.items()
        }
        answers = graph.answer(head, features)
        best = tf.argmax(answers["probabilities"], axis=-1)
        return {**answers, "choice": best}

    inputs = strings("text"), strings("choices", axes=2)
    purpose = "Which of several choices goes with a text."
    return {"choices": Signature(purpose, inputs, call)}


def _masks(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    tokenizer = graph.loaded.tokenizer
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))

    def call(text: tf.Tensor) -> Tensors:
        features = graph.pack(graph.tokenizer.encode_with_masks(text))
        at = tf.where(features["input_ids"] == tokenizer.mask_id)
        rows = tf.shape(text, tf.int64)[0]
        positions = tf.RaggedTensor.from_value_rowids(
            tf.cast(at[:, 1], tf.int32), at[:, 0], rows, validate=False
        )
        is_mask = tf.ones_like(positions).to_tensor()[..., None]
        features["masked_lm_positions"] = positions.to_tensor()
        probabilities = graph.answer(head, features)["probabilities"]
        values, ids = tf.math.top_k(
            probabilities, min(_TOP_K, tokenizer.vocab_size)
        )
        return {
            "pieces": tf.where(
                is_mask > 0, tf.gather(tf.constant(pieces), ids), ""
            ),
            "probabilities": values * tf.cast(is_mask, tf.float32),
        }

    purpose = "The likeliest pieces for every [MASK] in a text."
    return {"fill_mask": Signature(purpose, (strings("text"),), call)}


def _words(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    unknown = graph.loaded.tokenizer.unk_id
    room = graph.config.max_seq_length - 2

    def next_place(
        state: tuple[tf.Tensor, tf.Tensor], length: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns row and end of words, after those of the words before."""
        row, end = state
        fits = end + length <= room
        return (
            tf.where(fits, row, row + 1),
            tf.where(fits, end + length, length),
        )

    def call(text: tf.Tensor) -> Tensors:
        words = graph.tokenizer.words(text)
        ids = graph.tokenizer.encode(words.flat_values)
        # No word may get lost.
        missing = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(ids.row_lengths() == 0)], unknown),
            tf.cast(ids.row_lengths() == 0, tf.int64),
            validate=False,
        )
        ids = tf.concat([ids, missing], 1)[:, :room]
        of_words = words.with_flat_values(ids.row_lengths())
        shape = [words.nrows(), tf.maximum(words.bounding_shape(axis=1), 1)]
        lengths = of_words.to_tensor(shape=shape)
        start = tf.zeros_like(lengths[:, 0])
        rows, ends = (
            tf.transpose(value)
            for value in tf.scan(
                next_place, tf.transpose(lengths), (start, start)
            )
        )
        numbers = rows[:, -1] + 1
        rows += tf.cumsum(numbers, exclusive=True)[:, None]
        is_word = tf.ones_like(of_words).to_tensor(0, shape=shape) > 0
        row = tf.boolean_mask(rows, is_word)
        first = tf.boolean_mask(1 + ends - lengths, is_word)
        in_rows = tf.RaggedTensor.from_value_rowids(
            ids, row, tf.reduce_sum(numbers), validate=False
        )
        answers = graph.answer(head, graph.pack(in_rows.merge_dims(1, 2)))
        places = tf.stack([row, first], axis=-1)
        found = {
            name: words.with_flat_values(
                tf.gather_nd(values, places)
            ).to_tensor()
            for name, values in answers.items()
        }
        return {**found, "words": words.to_tensor()}

    purpose = "A label for every word between white space."
    return {"words": Signature(purpose, (strings("text"),), call)}


def _questions(graph: SignatureGraph, head: Head) -> dict[str, Signature]:
    config, tokenizer = graph.config, graph.tokenizer
    check_lengths(config)

    def call(question: tf.Tensor, context: tf.Tensor) -> Tensors:
        queries = tokenizer(question)[:, : config.max_query_length]
        texts = tokenizer.decode(context)
        is_space, bytes_of = tokenizer.characters(context)
        ids, starts, ends = tokenizer.encode_with_offsets(texts)
        paragraphs = span_graph.Paragraphs(
            texts, ids, *span_graph.without_spaces(is_space, starts, ends)
        )
        parts = span_graph.windows(queries, ids, config)
        features = graph.pack(
            tf.gather(queries, parts.question),
            tf.gather(ids.flat_values, parts.tokens),
        )
        mask = features["input_mask"]
        null_scores = None
        if "p_mask" in head.features:
            columns = tf.range(tf.shape(mask)[1])
            sizes = tf.cast(parts.tokens.row_lengths(), tf.int32)
            fronts, ends_of = parts.fronts, parts.fronts + sizes
            is_part = (columns >= fronts[:, None]) & (
                columns < ends_of[:, None]
            )
            # An answer can be at [CLS]: none.
            features["p_mask"] = tf.cast(~(is_part | (columns == 0)), tf.int32)
            outputs = graph.answer(head, features, one_width=True)
            beams = span_graph.beams_of_head(outputs)
            null_scores = outputs["unanswerable_logits"]
        else:
            beams = span_graph.beams_of_logits(
                graph.answer(head, features), mask, config.n_best_size
            )
        found = span_graph.best_answers(
            paragraphs, parts, beams, null_scores, config
        )
        for name in ("start", "end"):
            place = found.pop(name)
            at = tf.gather(bytes_of, tf.maximum(place, 0), batch_dims=1)
            found[f"char_{name}"] = place
            found[f"byte_{name}"] = tf.where(place < 0, -1, at)
        return found

    inputs = strings("question"), strings("context")
    purpose = "The answer to a question in a context."
    return {"question": Signature(purpose, inputs, call)}


# Signatures for raw strings, the default one first, by `Head.text_inputs`.
TEXT_INPUTS: dict[
    str, Callable[[SignatureGraph, Head], dict[str, Signature]]
] = {
    "texts": _texts,
    "sentences": _sentences,
    "choices": _choices,
    "masks": _masks,
    "words": _words,
    "question": _questions,
}
