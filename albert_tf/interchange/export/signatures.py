"""Signatures of an exported model, and the parts that they are made of."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from albert_tf.interchange.export.exported_weights import (
    FloatWeights,
    Int8Weights,
)
from albert_tf.interchange.export.length_groups import by_length
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.heads import Head
from albert_tf.modeling.heads.pooling import EMBEDDINGS, LENGTHS
from albert_tf.tasks.kinds.multi_label import thresholds
from albert_tf.text.in_graph import InGraphTokenizer

Tensors = dict[str, tf.Tensor]
# A part of a message of `row_assertion`.
Part = str | Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Signature:
    """The inputs and the function of a signature.

    Attributes:
        purpose: one line for the export's README.
        inputs: their names, types and shapes.
        call: a function of the inputs that returns the outputs by name.
        meanings: of outputs beside the head's, for the README.
    """

    purpose: str
    inputs: tuple[tf.TensorSpec, ...]
    call: Callable[..., Tensors]
    meanings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def function(self) -> tf.types.experimental.PolymorphicFunction:
        """`call` as a function of TensorFlow, one however many its names."""

        def call(*values: tf.Tensor) -> Tensors:
            return self.call(*checked_shapes(self.inputs, values))

        return tf.function(call, list(self.inputs), autograph=False)


def strings(name: str, axes: int = 1) -> tf.TensorSpec:
    """Returns the specification of an input of strings."""
    return tf.TensorSpec([None] * axes, tf.string, name)


def assertion(wrong: tf.Tensor, *message: object) -> tf.Operation:
    """Returns an operation that fails where any of `wrong` is true.

    The message consists of strings, and tensors of which it has the values.
    """
    # tf.debugging's assertion has a conditional around it.
    return tf.raw_ops.Assert(
        condition=tf.logical_not(tf.reduce_any(wrong)), data=list(message)
    )


def row_assertion(
    wrong: tf.Tensor, expected: Sequence[Part], found: Sequence[Part]
) -> tf.Operation:
    """Returns an assertion that names the first row that is wrong.

    `wrong` is `[rows, ...]`. Parts of the message are strings, or functions of
    its first place that is true, `[places, axes]` with one place or none.
    """
    at = tf.where(wrong)[:1]
    before, after = (
        [part if isinstance(part, str) else part(at) for part in parts]
        for parts in (expected, found)
    )
    return assertion(wrong, *before, "but row", at[:, 0], "has", *after)


def checked_shapes(
    specs: tuple[tf.TensorSpec, ...], values: tuple[tf.Tensor, ...]
) -> list[tf.Tensor]:
    """Returns the inputs of a signature, which agree in their shapes.

    In the number of rows where their ranks differ. An axis of size 0 is an
    error unless there are no rows, and has size 1 then.
    """
    ranks = [spec.shape.rank for spec in specs]
    most = max(ranks)
    common = most if min(ranks) == most else 1
    shapes = [tf.shape(value) for value in values]
    checks = []
    if len(specs) > 1:
        compared = [shape[:common] for shape in shapes]
        what = "as many rows in" if common == 1 else "the same shape for"
        found: list[object] = [f"Expected {what} every input; got"]
        for number, spec in enumerate(specs):
            comma = "," if number + 1 < len(specs) else ""
            found += [compared[number], f"in {spec.name}{comma}"]
        wrong = tf.stack(compared[1:]) != compared[0]
        checks.append(assertion(wrong, *found))
    if most > 1:
        # The others have fewer axes, or the same shape.
        first = ranks.index(most)
        name, shape = specs[first].name, shapes[first]
        is_empty = (shape[0] > 0) & tf.reduce_any(shape[1:] == 0)
        expected = f"Expected at least one value in each row of {name}"
        checks.append(assertion(is_empty, f"{expected}; got shape", shape))
    with tf.control_dependencies(checks):
        return [
            tf.reshape(value, tf.maximum(shape, [0] + [1] * (rank - 1)))
            if rank > 1
            else tf.identity(value)
            for value, shape, rank in zip(values, shapes, ranks, strict=True)
        ]


def checked_values(features: Tensors, limits: Mapping[str, int]) -> Tensors:
    """Returns features as int32, of which none is below 0 or at its limit.

    The features are `[rows, ..., seq]`, all of one shape and type.
    """
    values = tf.stack([features[name] for name in limits], axis=-1)
    highest = tf.constant([*limits.values()], values.dtype) - 1
    wrong = (values < 0) | (values > highest)
    check = row_assertion(
        wrong,
        [
            "Expected numbers from 0 to",
            lambda at: tf.gather(highest, at[:, -1]),
            "in",
            lambda at: tf.gather(tf.constant([*limits]), at[:, -1]),
        ],
        [lambda at: tf.gather_nd(values, at)],
    )
    with tf.control_dependencies([check]):
        return {
            name: tf.cast(tf.identity(value), tf.int32)
            for name, value in features.items()
        }


class SignatureGraph:
    """Tokenizer, heads and micro-batches, of which signatures are made.

    Attributes:
        config: the settings of features that the model was trained with.
        pack: returns the features of the ids of texts, or of pairs.
        by_length: see length_groups.py.
        embed: returns the vectors of features; one function in all signatures,
            as those of the heads are.
        encode: returns these vectors, and the states of all tokens, `[batch,
            seq, hidden]`.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        weights: FloatWeights | Int8Weights,
        micro_batch_tokens: int | None,
    ) -> None:
        self.loaded = loaded
        self.weights = weights
        self.tokenizer = InGraphTokenizer(loaded.tokenizer)
        self.config = loaded.features
        self.pack = functools.partial(
            self.tokenizer.pack, max_seq_length=self.config.max_seq_length
        )
        self.by_length = functools.partial(
            by_length, micro_batch_tokens=micro_batch_tokens
        )
        self.embed = tf.function(self._embed, autograph=False)
        self.encode = tf.function(
            functools.partial(self._embed, with_states=True), autograph=False
        )
        self._heads = {
            name: tf.function(
                functools.partial(self._outputs, head), autograph=False
            )
            for name, head in loaded.model.heads.items()
        }

    def predict(
        self, head: Head, features: Tensors, *, one_width: bool = False
    ) -> Tensors:
        """Returns a head's outputs, rows of similar length together.

        With `one_width` all rows have the length of the longest.
        """
        outputs = self.by_length(
            self._heads[head.head_name],
            features,
            sequence_outputs=head.has_sequence_outputs and not one_width,
            one_width=one_width,
        )
        if head.takes_labels() and "probabilities" in outputs:
            names = tf.constant(self.loaded.labels)
            probabilities = outputs["probabilities"]
            if head.has_several_labels:
                limits = thresholds(self.config, len(self.loaded.labels or []))
                above = probabilities > tf.constant(limits, tf.float32)
                outputs["labels"] = tf.where(above, names, "")
            else:
                best = tf.argmax(probabilities, axis=-1)
                outputs["label"] = tf.gather(names, best)
        return outputs

    def _outputs(self, head: Head, features: Tensors) -> Tensors:
        model = self.loaded.model
        none = tf.zeros([tf.shape(features["input_ids"])[0], 0], tf.int32)
        # Positions that another head reads: none.
        others = {
            other.reads: none
            for other in model.heads.values()
            if other is not head and other.reads in other.features
        }
        with self.weights.scope():
            outputs = model({**others, **features}, heads_only=True)
        temperature = 1.0 if head.is_pretrained else self.config.temperature
        return head.exported_outputs(outputs, temperature)

    def _embed(
        self, features: Tensors, *, with_states: bool = False
    ) -> Tensors:
        with self.weights.scope():
            outputs = self.loaded.model.encode(features)
        states = outputs["sequence_output"]
        mask = tf.reshape(features["input_mask"], tf.shape(states)[:2])
        names = {"mean_output": "mean", "cls_output": "first"}
        own = self.loaded.model.head_options
        if own.get("pooling") == "mean_max":
            names["mean_max_output"] = "mean_max"
        scaled = LENGTHS[str(own.get("length", "any"))]
        found = {
            name: scaled(EMBEDDINGS[pooling](states, mask))
            for name, pooling in names.items()
        }
        if "pooled_output" in outputs:
            pooled = outputs["pooled_output"]
            found["pooled_output"] = tf.cast(pooled, tf.float32)
        if with_states:
            found["sequence_output"] = tf.cast(states, tf.float32)
        return found
