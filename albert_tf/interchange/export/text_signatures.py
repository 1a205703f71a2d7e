"""Signatures for raw texts, of the forms among which heads choose.

A head makes its own in `Head.signatures`, from these or from their parts.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.interchange.export import span_graph, window_graph, word_rows
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
_ANSWER_MEANINGS = {
    "answer": 'in the words of the context; "" for none',
    "char_start": "first character of the answer in the context; -1 for none",
    "char_end": "the one after its last; -1 for none",
    "byte_start": "first byte of the answer in the context; -1 for none",
    "byte_end": "the one after its last; -1 for none",
    "probability": "of the answer among the n_best_size best",
    "null_probability": "of there being no answer",
}
# Finds the candidates for answers in windows, whose features come first.
BeamSearch = Callable[[Tensors, window_graph.Windows], span_graph.Beams]


class TextSignatures(SignatureGraph):
    """Makes the signatures for texts of each form, the default one first."""

    def vectors(self) -> Signature:
        """Returns `embed`, which every model has."""
        return Signature(
            "Vectors of texts.",
            (strings("text"),),
            lambda text: self.by_length(
                self.embed, self.pack(self.tokenizer(text))
            ),
            {
                "mean_output": "mean state of the tokens",
                "cls_output": "state of [CLS]",
                "mean_max_output": "mean_output, then the maximum of the "
                "states of the tokens",
                "pooled_output": "pooled state of [CLS]",
            },
        )

    def texts(self, head: Head) -> dict[str, Signature]:
        """Returns the signatures for single texts and for pairs."""

        def single(text: tf.Tensor) -> Tensors:
            return self.predict(head, self.pack(self.tokenizer(text)))

        def pair(text: tf.Tensor, text_pair: tf.Tensor) -> Tensors:
            first, second = map(self.tokenizer, (text, text_pair))
            return self.predict(head, self.pack(first, second))

        pairs = strings("text"), strings("text_pair")
        return {
            "text": Signature(
                "Predictions for single texts.", pairs[:1], single
            ),
            "text_pair": Signature(
                "Predictions for pairs of texts.", pairs, pair
            ),
        }

    def sentences(self, head: Head) -> dict[str, Signature]:
        """Returns the signature for pairs of texts, named after the head."""
        pair = self.texts(head)["text_pair"]
        purpose = "Whether the second text follows the first."
        return {head.head_name: dataclasses.replace(pair, purpose=purpose)}

    def choices(self, head: Head) -> dict[str, Signature]:
        """Returns the signature for a text and its choices."""
        config, both = self.config, room_of_choices(self.config)

        def call(text: tf.Tensor, choices: tf.Tensor) -> Tensors:
            shape = tf.shape(choices)
            second = self.tokenizer(tf.reshape(choices, [-1]))
            lengths = second.row_lengths()
            begins = tf.maximum(lengths - config.max_choice_length, 0)
            tail = part(second, begins, lengths)
            of_choice = tf.repeat(tf.range(shape[0]), shape[1])
            first = tf.gather(self.tokenizer(text), of_choice)
            room = tf.minimum(first.row_lengths(), both - tail.row_lengths())
            packed = self.pack(part(first, 0, room), tail)
            features = {
                name: tf.reshape(rows, [*tf.unstack(shape), tf.shape(rows)[1]])
                for name, rows in packed.items()
            }
            outputs = self.predict(head, features)
            best = tf.argmax(outputs["probabilities"], axis=-1)
            return {**outputs, "choice": best}

        return {
            "choices": Signature(
                "Which of several choices goes with a text; a question is part "
                "of each choice.",
                (strings("text"), strings("choices", axes=2)),
                call,
                {"choice": "the likeliest choice, counted from 0"},
            )
        }

    def masks(self, head: Head) -> dict[str, Signature]:
        """Returns the signature that fills the masks of a text."""
        tokenizer = self.loaded.tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))

        def call(text: tf.Tensor) -> Tensors:
            features = self.pack(self.tokenizer.encode_with_masks(text))
            at = tf.where(features["input_ids"] == tokenizer.mask_id)
            rows = tf.shape(text, tf.int64)[0]
            positions = tf.RaggedTensor.from_value_rowids(
                tf.cast(at[:, 1], tf.int32), at[:, 0], rows, validate=False
            )
            is_mask = tf.ones_like(positions).to_tensor()[..., None]
            features["masked_lm_positions"] = positions.to_tensor()
            probabilities = self.predict(head, features)["probabilities"]
            values, ids = tf.math.top_k(
                probabilities, min(_TOP_K, tokenizer.vocab_size)
            )
            return {
                "pieces": tf.where(
                    is_mask > 0, tf.gather(tf.constant(pieces), ids), ""
                ),
                "probabilities": values * tf.cast(is_mask, tf.float32),
            }

        return {
            "fill_mask": Signature(
                "The likeliest pieces for every [MASK] in a text.",
                (strings("text"),),
                call,
                {"pieces": "the likeliest for every [MASK], the best first"},
            )
        }

    def words(self, head: Head) -> dict[str, Signature]:
        """Returns the signature for words, read at their first sub-tokens."""
        unknown = self.loaded.tokenizer.unk_id
        finer = self.config.word_boundaries == "punctuation"
        ends = ", punctuation and symbols" if finer else ""
        room = self.config.max_seq_length - 2

        def call(text: tf.Tensor) -> Tensors:
            words = self.tokenizer.words(text, punctuation=finer)
            ids = self.tokenizer.encode(words.flat_values)
            ids = word_rows.without_empty_words(ids, unknown)[:, :room]
            places = word_rows.packed(
                words.with_flat_values(ids.row_lengths()), room
            )
            rows = tf.RaggedTensor.from_value_rowids(
                ids, places.row, places.num_rows, validate=False
            ).merge_dims(1, 2)
            outputs = self.predict(head, self.pack(rows))
            # [CLS] comes before the first word.
            at = tf.stack([places.row, 1 + places.start], axis=-1)
            of_words = {
                name: words.with_flat_values(tf.gather_nd(values, at))
                for name, values in outputs.items()
            }
            of_words["words"] = words
            return {n: values.to_tensor() for n, values in of_words.items()}

        return {
            "words": Signature(
                f"A label for every word between white space{ends}.",
                (strings("text"),),
                call,
                {"words": "those that the labels belong to"},
            )
        }

    def questions(self, head: Head) -> dict[str, Signature]:
        """Returns the signature for a question answered by its context."""

        def beams(
            features: Tensors, parts: window_graph.Windows
        ) -> span_graph.Beams:
            return span_graph.beams_of_logits(
                self.predict(head, features),
                features["input_mask"],
                self.config.n_best_size,
            )

        return self._questions(beams)

    def answerable_questions(self, head: Head) -> dict[str, Signature]:
        """Returns the signature for a question that may have no answer."""

        def beams(
            features: Tensors, parts: window_graph.Windows
        ) -> span_graph.Beams:
            width = tf.shape(features["input_mask"])[1]
            p_mask = window_graph.mask_of_positions(parts, width)
            outputs = self.predict(
                head, {**features, "p_mask": p_mask}, one_width=True
            )
            return span_graph.beams_of_head(outputs)

        return self._questions(beams)

    def _questions(self, beams_of: BeamSearch) -> dict[str, Signature]:
        config, tokenizer = self.config, self.tokenizer
        check_lengths(config)

        def call(question: tf.Tensor, context: tf.Tensor) -> Tensors:
            queries = tokenizer(question)[:, : config.max_query_length]
            paragraphs = window_graph.paragraphs_of(tokenizer, context)
            parts = window_graph.windows(queries, paragraphs.ids, config)
            features = self.pack(
                tf.gather(queries, parts.question),
                tf.gather(paragraphs.ids.flat_values, parts.tokens),
            )
            beams = beams_of(features, parts)
            found = span_graph.best_answers(paragraphs, parts, beams, config)
            for name in ("start", "end"):
                place = found.pop(name)
                found[f"char_{name}"] = place
                found[f"byte_{name}"] = paragraphs.bytes_at(place)
            return found

        return {
            "question": Signature(
                "The answer to a question in a context.",
                (strings("question"), strings("context")),
                call,
                _ANSWER_MEANINGS,
            )
        }
