"""Signatures for token ids: `tokens`, `states`, `examples` (serialized)."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.interchange.export.signatures import (
    Signature,
    SignatureGraph,
    Tensors,
    assertion,
    checked_values,
    row_assertion,
    strings,
)
from albert_tf.modeling.heads import Head
from albert_tf.modeling.inputs import ENCODER_INPUTS


class TokenSignatures:
    """Makes the signatures of a head, or of the vectors without a head."""

    def __init__(self, graph: SignatureGraph, head: Head | None) -> None:
        self._graph = graph
        self._head = head
        self._names = (*ENCODER_INPUTS, *(head.features if head else ()))
        self._positions = graph.loaded.model.config.max_position_embeddings
        # The ids of each choice in an example; None where there are no choices.
        self._choice_length = None
        if head and head.reads_choices:
            self._choice_length = graph.config.max_seq_length

    def signatures(self) -> dict[str, Signature]:
        """Returns the signatures by name."""
        shape = [None, None, None] if self._choice_length else [None, None]
        lists = ", ".join(self._names)
        if self._choice_length:
            lists += f", {self._choice_length} ids for each choice in turn"
        inputs = tuple(tf.TensorSpec(shape, tf.int32, n) for n in self._names)
        states = Signature(
            "The states of token ids too, of any batch and length.",
            inputs,
            self._states,
            {"sequence_output": "state of every token"},
        )
        return ({} if self._head else {"states": states}) | {
            "tokens": Signature(
                "The same for token ids, of any batch and length.",
                inputs,
                self._tokens,
            ),
            "examples": Signature(
                "The same for serialized tf.Examples with int64 lists "
                f"{lists}.",
                (strings("examples"),),
                self._examples,
            ),
        }

    def _tokens(self, *values: tf.Tensor) -> Tensors:
        features = self._checked(values)
        if self._head is None:
            return self._graph.by_length(self._graph.embed, features)
        # Outputs of a sequence have values for its padding, too.
        return self._graph.predict(
            self._head, features, one_width=self._head.has_sequence_outputs
        )

    def _states(self, *values: tf.Tensor) -> Tensors:
        return self._graph.by_length(
            self._graph.encode, self._checked(values), one_width=True
        )

    def _checked(self, values: tuple[tf.Tensor, ...]) -> Tensors:
        """Returns the features by name; rows may have padding."""
        width = tf.shape(values[0])[-1]
        check = assertion(
            width > self._positions,
            f"Expected at most max_position_embeddings={self._positions} "
            "tokens in each row; got",
            width,
        )
        with tf.control_dependencies([check]):
            values = tuple(map(tf.identity, values))
        config = self._graph.loaded.model.config
        limits = {
            "input_ids": config.vocab_size,
            # Pairs have two segments, with a single embedding too.
            "segment_ids": max(config.type_vocab_size, 2),
            # Other numbers in a mask would give NaN.
            "input_mask": 2,
            "p_mask": 2,
        }
        return checked_values(
            dict(zip(self._names, values, strict=True)),
            {n: limit for n, limit in limits.items() if n in self._names},
        )

    def _examples(self, examples: tf.Tensor) -> Tensors:
        features = self._parsed(examples)
        if not self._choice_length:
            return self._tokens(*(features[name] for name in self._names))
        # [examples, choices, ids], some with fewer choices than others.
        rows, width = tf.unstack(tf.shape(features["input_ids"]), num=2)
        shape = [rows, width // self._choice_length, self._choice_length]
        features = {n: tf.reshape(v, shape) for n, v in features.items()}
        outputs = self._tokens(*(features[name] for name in self._names))
        real = tf.reduce_any(features["input_mask"] > 0, axis=-1)
        probs = outputs["probabilities"] * tf.cast(real, tf.float32)
        total = tf.reduce_sum(probs, axis=-1, keepdims=True)
        return {
            **outputs,
            "probabilities": tf.math.divide_no_nan(probs, total),
        }

    def _parsed(self, examples: tf.Tensor) -> Tensors:
        """Returns the features of serialized examples, `[examples, ids]`."""
        rows = tf.io.parse_example(
            examples, dict.fromkeys(self._names, tf.io.RaggedFeature(tf.int64))
        )
        ids = rows["input_ids"]
        size = tf.unstack(tf.cast(ids.bounding_shape(), tf.int32), num=2)
        # Without rows there are columns too.
        size[1] = tf.maximum(size[1], self._choice_length or 1)
        checks = _length_checks(
            {name: values.row_lengths() for name, values in rows.items()},
            positions=self._positions,
            of_choice=self._choice_length,
        )
        padding = {"input_ids": self._graph.loaded.tokenizer.pad_id}
        with tf.control_dependencies(checks):
            features = {
                name: values.to_tensor(padding.get(name, 0), shape=size)
                for name, values in rows.items()
            }
        # Without a mask all are tokens.
        features["input_mask"] = tf.where(
            rows["input_mask"].row_lengths()[:, None] > 0,
            features["input_mask"],
            tf.ones_like(ids).to_tensor(shape=size),
        )
        return features


def _length_checks(
    lengths: Mapping[str, tf.Tensor], *, positions: int, of_choice: int | None
) -> list[tf.Operation]:
    """Returns assertions of the lengths `[rows]` of the lists of examples.

    Args:
        lengths: by the name of a feature.
        positions: the most ids, where there are no choices.
        of_choice: the number of ids of each choice.
    """
    ids = lengths["input_ids"]
    others = sorted(lengths.keys() - {"input_ids"})
    needed = [name not in ENCODER_INPUTS for name in others]
    counts = tf.stack([lengths[name] for name in others], axis=1)
    # The encoder's lists may be absent, which an empty list looks like.
    wrong = (counts != ids[:, None]) & ((counts > 0) | needed)
    if of_choice:
        is_off = ids % of_choice > 0
        number = f"{of_choice} input_ids for each choice"
    else:
        is_off = ids > positions
        number = f"1 to max_position_embeddings={positions} input_ids"
    return [
        row_assertion(
            (ids == 0) | is_off,
            [f"Expected a serialized tf.Example with {number}"],
            [lambda at: tf.gather_nd(ids, at)],
        ),
        row_assertion(
            wrong & (ids > 0)[:, None],
            [
                "Expected as many",
                lambda at: tf.gather(tf.constant(others), at[:, 1]),
                "as input_ids",
            ],
            [
                lambda at: tf.gather_nd(counts, at),
                "and",
                lambda at: tf.gather(ids, at[:, 0]),
            ],
        ),
    ]
