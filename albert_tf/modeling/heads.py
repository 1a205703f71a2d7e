"""What sits on the encoder: one class per head, one row of HEADS each.

A head says in one place what it reads of the encoder and of the batch, what it
gives, and what it minimises. Every head gives float32, whatever the precision
of its layers.
"""

import dataclasses
from collections.abc import Callable, Mapping

import keras
from keras import ops

from albert_tf.config import ModelConfig, UserError
from albert_tf.modeling.dropout import ExampleDropout
from albert_tf.modeling.layers import (
    ACTIVATIONS,
    ConfiguredLayer,
    dense,
    layer_norm,
    serializable,
    states_at,
)
from albert_tf.modeling.losses import (
    Pair,
    weighted_binary_cross_entropy,
    weighted_cross_entropy,
    weighted_squared_error,
)

# Added to logits of positions that cannot be an answer (the original's value).
_IMPOSSIBLE = -1e30

END_NEEDS_START = (
    "The end of an answer is scored given its start: start_positions must be "
    "among the features that the model is called with, not with the labels "
    "alone."
)


@dataclasses.dataclass(frozen=True)
class Label:
    """What an output of a head learns.

    Attributes:
        output: of the head.
        name: of the label, among the batch's features.
        loss: of the output, the labels and their weights.
        classes: how many there are, of the head and the shape of
            `input_ids`; None where the label is a real number.
        factor: of the output's loss in the head's.
    """

    output: str
    name: str
    loss: Callable[..., Pair]
    classes: Callable[["Head", tuple], int] | None = None
    factor: float = 1.0


class Head(ConfiguredLayer):
    """What every head says of itself.

    Attributes:
        reads: what it needs of the encoder: "pooled_output";
            "sequence_output", the states of all positions; or the feature
            that says of which positions it needs the states.
        features: what `call` reads of a batch, beside the encoder's inputs.
        outputs: what `call` gives.
        labels: what its outputs learn.
        label_weights: the feature that weighs the labels; 1 where absent.
        options: constructor arguments beside the architecture.
    """

    reads: str = "pooled_output"
    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logits",)
    labels: tuple[Label, ...] = ()
    label_weights: str = "example_weights"
    options: tuple[str, ...] = ()

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the outputs by name.

        Args:
            encoded: what the head reads, by that name, and
                `word_embeddings`.
            features: of the batch.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout).
            training: whether dropout is on.
        """
        raise NotImplementedError

    @classmethod
    def losses(
        cls, outputs: dict, labels: Mapping, weights: Mapping
    ) -> dict[str, Pair]:
        """Returns (weighted sum, weight) by output, times the factors.

        Args:
            outputs: of the head.
            labels: by output.
            weights: by output; 1 where absent.
        """
        pairs = {}
        for label in cls.labels:
            total, weight = label.loss(
                outputs[label.output],
                labels[label.output],
                weights.get(label.output),
            )
            if label.factor != 1.0:
                total = total * label.factor
            pairs[label.output] = total, weight
        return pairs

    @classmethod
    def loss(cls, outputs: dict, features: dict) -> Pair | None:
        """Returns (weighted sum, weight); None where nothing trains a head."""
        labels = {label.output: features[label.name] for label in cls.labels}
        weights = dict.fromkeys(labels, features.get(cls.label_weights))
        pairs = list(cls.losses(outputs, labels, weights).values())
        if not pairs:
            return None
        total, weight = pairs[0]
        for other, _ in pairs[1:]:
            total = total + other
        return total, weight

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        options = {name: getattr(self, name) for name in self.options}
        return {**super().get_config(), **options}


def _float32(x: keras.KerasTensor) -> keras.KerasTensor:
    return ops.cast(x, "float32")


@serializable
class MaskedLMHead(Head):
    """Logits over the vocabulary at the masked positions.

    Dense H to E, activation, normalisation, then the product with the word
    embeddings (tied) plus a bias per piece. `masked_lm_logits` is
    `[batch, predictions, vocab]`; the loss is the mean negative
    log-likelihood over the weights (paper, section 3.1; the original adds
    1e-5 to the weight).
    """

    reads = "masked_lm_positions"
    features = ("masked_lm_positions",)
    outputs = ("masked_lm_logits",)
    labels = (
        Label(
            "masked_lm_logits",
            "masked_lm_ids",
            weighted_cross_entropy,
            lambda head, shape: head.config.vocab_size,
        ),
    )
    label_weights = "masked_lm_weights"

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "masked_lm",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        self.activation = ACTIVATIONS[self.config.hidden_act]
        self.transform = dense(
            self.config,
            self.config.embedding_size,
            "transform",
            self.dtype_policy,
        )
        self.layer_norm = layer_norm(self.config, self.dtype_policy)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        config = self.config
        self.transform.build((None, None, config.hidden_size))
        self.layer_norm.build((None, None, config.embedding_size))
        self.output_bias = self.add_weight(
            shape=(config.vocab_size,), initializer="zeros", name="output_bias"
        )
        self.built = True

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `masked_lm_logits` at `masked_lm_positions`."""
        states = encoded[self.reads]
        flat = ops.reshape(states, (-1, self.config.hidden_size))
        hidden = self.layer_norm(self.activation(self.transform(flat)))
        table = ops.cast(encoded["word_embeddings"], hidden.dtype)
        logits = ops.matmul(hidden, ops.transpose(table))
        logits = ops.reshape(
            logits, (*ops.shape(states)[:2], self.config.vocab_size)
        )
        return {
            "masked_lm_logits": _float32(logits) + _float32(self.output_bias)
        }


class PooledHead(Head):
    """Dropout, then one dense layer, on the pooled vector."""

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str,
        width: int,
        dropout: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        rate = self.config.classifier_dropout_prob if dropout else 0.0
        self.dropout = ExampleDropout(rate, dtype=self.dtype_policy)
        self.classifier = dense(
            self.config, width, "classifier", self.dtype_policy
        )

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        self.classifier.build((None, self.config.hidden_size))
        self.built = True

    def scores(
        self,
        encoded: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None,
        training: bool,
    ) -> keras.KerasTensor:
        """Returns the dense layer's output, float32 `[..., width]`."""
        hidden = self.dropout(
            encoded[self.reads], keys=dropout_keys, training=training
        )
        return _float32(self.classifier(hidden))


@serializable
class SentenceOrderHead(PooledHead):
    """Two logits from the pooled vector: in order, swapped.

    Or what else the labels of the shards mean: with next-sentence records the
    segment follows or is of another document; single segments train nothing
    here. Without dropout, as in the original.
    """

    outputs = ("sentence_order_logits",)
    labels = (
        Label(
            "sentence_order_logits",
            "sentence_order_labels",
            weighted_cross_entropy,
            lambda head, shape: 2,
        ),
    )

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "sentence_order",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, 2, dropout=False, **kwargs)

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `sentence_order_logits` `[batch, 2]`."""
        return {
            "sentence_order_logits": self.scores(
                encoded, dropout_keys, training
            )
        }


_CLASS = Label(
    "logits",
    "label_ids",
    weighted_cross_entropy,
    lambda head, shape: head.num_labels,
)


@serializable
class ClassificationHead(PooledHead):
    """One of several labels for a text: `logits` `[batch, labels]`."""

    labels = (_CLASS,)
    options = ("num_labels",)

    def __init__(
        self,
        config: ModelConfig | Mapping,
        num_labels: int,
        name: str = "classification",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, num_labels, **kwargs)
        self.num_labels = num_labels

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `logits` `[batch, labels]`."""
        return {"logits": self.scores(encoded, dropout_keys, training)}


@serializable
class RegressionHead(PooledHead):
    """A number for a text (STS-B): `predictions` `[batch]`."""

    outputs = ("predictions",)
    labels = (Label("predictions", "label_ids", weighted_squared_error),)

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "regression",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, 1, **kwargs)

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `predictions` `[batch]`."""
        scores = self.scores(encoded, dropout_keys, training)
        return {"predictions": ops.squeeze(scores, -1)}


@serializable
class MultipleChoiceHead(PooledHead):
    """One of several texts (RACE): `logits` `[batch, choices]`.

    The batch's `input_ids` and the like are `[batch, choices, seq]`.
    """

    labels = (
        Label(
            "logits",
            "label_ids",
            weighted_cross_entropy,
            lambda head, shape: shape[1],
        ),
    )

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "multiple_choice",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, 1, **kwargs)

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `logits` `[batch, choices]`."""
        if len(features["input_ids"].shape) != 3:
            raise UserError(
                "Multiple choice reads input_ids [batch, choices, seq]; they "
                f"have {len(features['input_ids'].shape)} axes."
            )
        scores = self.scores(encoded, dropout_keys, training)
        choices = ops.shape(features["input_ids"])[1]
        return {"logits": ops.reshape(scores, (-1, choices))}


@serializable
class TokenClassificationHead(PooledHead):
    """A label for every token: `logits` `[batch, seq, labels]`.

    `label_ids` and `label_weights` are `[batch, seq]`; a weight of 0 leaves a
    token out (padding, special tokens, the later pieces of a word).
    """

    reads = "sequence_output"
    labels = (_CLASS,)
    label_weights = "label_weights"
    options = ("num_labels",)

    def __init__(
        self,
        config: ModelConfig | Mapping,
        num_labels: int,
        name: str = "token_classification",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, num_labels, **kwargs)
        self.num_labels = num_labels

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `logits` `[batch, seq, labels]`."""
        return {"logits": self.scores(encoded, dropout_keys, training)}


def _position(output: str, name: str) -> Label:
    """Returns the label of a position: half of a span's loss."""
    return Label(
        output,
        name,
        weighted_cross_entropy,
        lambda head, shape: shape[-1],
        factor=0.5,
    )


_SPAN = (
    _position("start_logits", "start_positions"),
    _position("end_logits", "end_positions"),
)


@serializable
class SpanHead(PooledHead):
    """Where an answer starts and ends (SQuAD 1.1), every position scored.

    One dense layer to two numbers, without dropout. `start_logits` and
    `end_logits` are `[batch, seq]`; the loss is the mean of both
    cross-entropies (the original's run_squad_v1).
    """

    reads = "sequence_output"
    outputs = ("start_logits", "end_logits")
    labels = _SPAN

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "span",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, 2, dropout=False, **kwargs)

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `start_logits` and `end_logits` `[batch, seq]`."""
        scores = self.scores(encoded, dropout_keys, training)
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}


@serializable
class AnswerableSpanHead(Head):
    """Where an answer is and whether there is one (SQuAD 2.0).

    The original's run_squad_v2. The end is scored given a start: the labelled
    one where the batch has `start_positions`, and each of the start_n_top
    likeliest ones. `p_mask` `[batch, seq]` is 1 where no answer can be
    (question, separators) and 0 elsewhere; in padding there is none either.

    Outputs, float32: `start_logits` `[batch, seq]`;
    `unanswerable_logits` `[batch]`, high where there is no answer; the beams
    `start_top_log_probs` and `start_top_positions` `[batch, start_n_top]`,
    `end_top_log_probs` and `end_top_positions`
    `[batch, start_n_top, end_n_top]`; and `end_logits` `[batch, seq]` where
    the batch has `start_positions`. In training there are no beams. A
    sequence of fewer tokens than that has as many beams as tokens.

    The loss is half the sum of the cross-entropies of start and end, plus
    half the binary cross-entropy of `is_impossible`.
    """

    reads = "sequence_output"
    features = ("p_mask",)
    outputs = (
        "start_logits",
        "unanswerable_logits",
        "start_top_log_probs",
        "start_top_positions",
        "end_top_log_probs",
        "end_top_positions",
    )
    labels = (
        *_SPAN,
        Label(
            "unanswerable_logits",
            "is_impossible",
            weighted_binary_cross_entropy,
            lambda head, shape: 2,
            factor=0.5,
        ),
    )
    options = ("start_n_top", "end_n_top")

    def __init__(
        self,
        config: ModelConfig | Mapping,
        start_n_top: int = 5,
        end_n_top: int = 5,
        name: str = "answerable_span",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        config, policy = self.config, self.dtype_policy
        width = config.hidden_size
        self.start = dense(config, 1, "start", policy)
        self.end_hidden = dense(config, width, "end_hidden", policy)
        self.end_layer_norm = layer_norm(config, policy, "end_layer_norm")
        self.end = dense(config, 1, "end", policy)
        self.answer_hidden = dense(config, width, "answer_hidden", policy)
        self.dropout = ExampleDropout(
            config.classifier_dropout_prob, dtype=policy
        )
        self.answer = dense(config, 1, "answer", policy, use_bias=False)

    def build(self, input_shape: object = None) -> None:
        """Creates the weights."""
        width = self.config.hidden_size
        for part in (self.start, self.end, self.answer, self.end_layer_norm):
            part.build((None, width))
        for part in (self.end_hidden, self.answer_hidden):
            part.build((None, 2 * width))
        self.built = True

    def _end_logits(
        self, hidden: keras.KerasTensor, start: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Returns unmasked `[batch, starts, seq]`.

        Args:
            hidden: `[batch, seq, H]`.
            start: states of the starts, `[batch, starts, H]`.
        """
        states = ops.expand_dims(hidden, 1)
        given = ops.expand_dims(start, 2)
        shape = ops.shape(ops.add(states[..., :1], given[..., :1]))[:3]
        width = (self.config.hidden_size,)
        pair = ops.concatenate(
            [
                ops.broadcast_to(states, tuple(shape) + width),
                ops.broadcast_to(given, tuple(shape) + width),
            ],
            axis=-1,
        )
        inner = self.end_layer_norm(ops.tanh(self.end_hidden(pair)))
        return _float32(ops.squeeze(self.end(inner), -1))

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the outputs that the class names."""
        hidden = encoded["sequence_output"]
        allowed = 1.0 - _float32(features["p_mask"])
        allowed = allowed * _float32(features["input_mask"])
        barred = (1.0 - allowed) * _IMPOSSIBLE

        def masked(logits: keras.KerasTensor) -> keras.KerasTensor:
            if len(logits.shape) == 3:
                return logits * allowed[:, None] + barred[:, None]
            return logits * allowed + barred

        start_logits = masked(_float32(self.start(hidden))[..., 0])
        probs = ops.softmax(start_logits, axis=-1)
        summary = ops.matmul(
            ops.expand_dims(ops.cast(probs, hidden.dtype), 1), hidden
        )[:, 0]
        answer = ops.concatenate([summary, hidden[:, 0]], axis=-1)
        answer = ops.tanh(self.answer_hidden(answer))
        answer = self.dropout(answer, keys=dropout_keys, training=training)
        outputs = {
            "start_logits": start_logits,
            "unanswerable_logits": _float32(self.answer(answer))[..., 0],
        }
        if "start_positions" in features:
            gold = ops.cast(features["start_positions"], "int32")[:, None]
            end_logits = self._end_logits(hidden, states_at(hidden, gold))
            outputs["end_logits"] = masked(end_logits)[:, 0]
        if training:
            return outputs
        log_probs, starts = _likeliest(start_logits, self.start_n_top)
        end_logits = self._end_logits(hidden, states_at(hidden, starts))
        end_log_probs, ends = _likeliest(masked(end_logits), self.end_n_top)
        outputs["start_top_log_probs"] = log_probs
        outputs["start_top_positions"] = starts
        outputs["end_top_log_probs"] = end_log_probs
        outputs["end_top_positions"] = ends
        return outputs

    @classmethod
    def losses(
        cls, outputs: dict, labels: Mapping, weights: Mapping
    ) -> dict[str, Pair]:
        """Returns (weighted sum, weight) by output, times the factors.

        Raises:
            UserError: when `call` was not given the starts.
        """
        if "end_logits" not in outputs:
            raise UserError(END_NEEDS_START)
        return super().losses(outputs, labels, weights)


def _likeliest(
    logits: keras.KerasTensor, count: int
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Returns log-probabilities and positions `[..., count]`, best first."""
    length = ops.shape(logits)[-1]
    if isinstance(length, int):
        count = min(count, length)
    elif length is not None:
        count = ops.minimum(count, length)
    return ops.top_k(ops.log_softmax(logits, axis=-1), count)


def mean_of_tokens(
    sequence_output: keras.KerasTensor, input_mask: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns the mean state of a text's tokens, float32 `[batch, H]`.

    Args:
        sequence_output: `[batch, seq, H]`.
        input_mask: `[batch, seq]`, 0 for padding.
    """
    mask = _float32(input_mask)[..., None]
    total = ops.sum(_float32(sequence_output) * mask, axis=1)
    return total / ops.maximum(ops.sum(mask, axis=1), 1.0)


@serializable
class SentenceEmbeddingHead(Head):
    """A vector for a text, without weights and without a loss.

    `mean_embedding` is the mean of the states of the tokens, `cls_embedding`
    the state of the first one; float32 `[batch, H]`.
    """

    reads = "sequence_output"
    outputs = ("mean_embedding", "cls_embedding")

    def __init__(
        self,
        config: ModelConfig | Mapping,
        name: str = "sentence_embedding",
        **kwargs: object,
    ) -> None:
        super().__init__(config, name, **kwargs)
        self.built = True

    def call(
        self,
        encoded: dict[str, keras.KerasTensor],
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
    ) -> dict[str, keras.KerasTensor]:
        """Returns `mean_embedding` and `cls_embedding` `[batch, H]`."""
        hidden = encoded["sequence_output"]
        return {
            "mean_embedding": mean_of_tokens(hidden, features["input_mask"]),
            "cls_embedding": _float32(hidden[:, 0]),
        }


# The heads by name; the name is also the attribute of a model that has one.
HEADS: dict[str, type[Head]] = {
    "masked_lm": MaskedLMHead,
    "sentence_order": SentenceOrderHead,
    "classification": ClassificationHead,
    "regression": RegressionHead,
    "multiple_choice": MultipleChoiceHead,
    "token_classification": TokenClassificationHead,
    "span": SpanHead,
    "answerable_span": AnswerableSpanHead,
    "sentence_embedding": SentenceEmbeddingHead,
}
