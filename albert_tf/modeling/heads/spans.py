"""Heads of answers in a text: SQuAD 1.1 and 2.0."""

from collections.abc import Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import require
from albert_tf.modeling.heads.base import (
    DenseHead,
    Head,
    LabelledOutput,
    Tensors,
)
from albert_tf.modeling.kernels import ON_TENSORFLOW, states_at
from albert_tf.modeling.layers import Config, serializable
from albert_tf.modeling.losses import WeightedSum, weighted_binary_cross_entropy

# Added to logits of positions that cannot be an answer (the original's value).
_IMPOSSIBLE = -1e30

END_NEEDS_START = (
    "The end of an answer is scored given its start: start_positions must be "
    "among the features that the model is called with, not with the labels "
    "alone."
)


def _float32(x: Tensor) -> Tensor:
    return ops.cast(x, "float32")


def _position(output: str, label: str) -> LabelledOutput:
    """Returns the output of a position, which is half of a span's loss."""
    return LabelledOutput(
        output,
        label,
        num_classes=lambda head, shape: shape[-1],
        loss_weight=0.5,
    )


_SPAN = (
    _position("start_logits", "start_positions"),
    _position("end_logits", "end_positions"),
)


@serializable
class SpanHead(DenseHead):
    """Start and end logits of an answer (SQuAD 1.1) at every position.

    One dense layer to two numbers, without dropout. `start_logits` and
    `end_logits` are `[batch, seq]`; the loss is the mean of both
    cross-entropies (the original's run_squad_v1).
    """

    head_name = "span"
    model_name = "AlbertForQuestionAnswering"
    transformers_model = "AlbertForQuestionAnswering"
    weight_names = (("classifier", "cls/squad/output_*", "qa_outputs"),)
    reads = "sequence_output"
    outputs = ("start_logits", "end_logits")
    has_sequence_outputs = True
    labelled_outputs = _SPAN
    width = 2
    has_dropout = False
    pipeline_tag = "question-answering"
    predict_mode = "answer"
    example_text = "A question?\tA paragraph."

    def outputs_of(self, scores: Tensor, features: Tensors) -> Tensors:
        """Returns `start_logits` and `end_logits` `[batch, seq]`."""
        return {"start_logits": scores[..., 0], "end_logits": scores[..., 1]}

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature for a question and its context."""
        return graph.questions(self)


@serializable
class AnswerableSpanHead(Head):
    """The span of an answer and its absence (SQuAD 2.0).

    The original's run_squad_v2. The end is scored given a start: the labelled
    one where the batch has `start_positions`, and each of the start_n_top
    likeliest. `p_mask` `[batch, seq]` is 1 where no answer can be (question,
    separators); in padding there is none either.

    Outputs, float32: `start_logits` `[batch, seq]`; `unanswerable_logits`
    `[batch]`, high where there is no answer; except in training the beams
    `start_top_log_probs` and `start_top_positions` `[batch, start_n_top]`,
    `end_top_log_probs` and `end_top_positions` `[batch, start_n_top,
    end_n_top]`, at most as many as tokens; and `end_logits` `[batch, seq]`
    where the batch has `start_positions`.

    The loss is half the sum of the cross-entropies of start and end, plus half
    the binary cross-entropy of `is_impossible`.
    """

    head_name = "answerable_span"
    model_name = "AlbertForAnswerableQuestions"
    # transformers has no such head for ALBERT.
    weight_names = tuple(
        (attribute, name, name.replace("/", "."))
        for attribute, name in (
            ("start", "start_logits/dense"),
            ("end_hidden", "end_logits/dense_0"),
            ("end_layer_norm", "end_logits/LayerNorm"),
            ("end", "end_logits/dense_1"),
            ("answer_hidden", "answer_class/dense_0"),
            ("answer", "answer_class/dense_1"),
        )
    )
    reads = "sequence_output"
    features = ("p_mask",)
    sequence_features = ("p_mask",)
    has_sequence_outputs = True
    outputs = (
        "start_logits",
        "unanswerable_logits",
        "start_top_log_probs",
        "start_top_positions",
        "end_top_log_probs",
        "end_top_positions",
    )
    labelled_outputs = (
        *_SPAN,
        LabelledOutput(
            "unanswerable_logits",
            "is_impossible",
            weighted_binary_cross_entropy,
            num_classes=lambda head, shape: 2,
            loss_weight=0.5,
        ),
    )
    options = ("start_n_top", "end_n_top")
    pipeline_tag = "question-answering"
    predict_mode = "answer"
    example_text = "A question?\tA paragraph."

    def __init__(
        self,
        config: Config,
        start_n_top: int = 5,
        end_n_top: int = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.start_n_top = start_n_top
        self.end_n_top = end_n_top
        width = self.config.hidden_size
        self.start = self.make_dense("start", 1)
        self.end_hidden = self.make_dense("end_hidden", width, 2 * width)
        self.end_layer_norm = self.make_layer_norm("end_layer_norm")
        self.end = self.make_dense("end", 1)
        self.answer_hidden = self.make_dense("answer_hidden", width, 2 * width)
        self.dropout = self.make_dropout(self.config.classifier_dropout_prob)
        self.answer = self.make_dense("answer", 1, use_bias=False)

    def _unanswerable_logits(
        self,
        hidden: Tensor,
        start_logits: Tensor,
        dropout_keys: Tensor | None,
        training: bool,
    ) -> Tensor:
        """Returns `[batch]`, from [CLS] and the states of likely starts.

        `start_logits` are `[batch, 1, seq]`.
        """
        probs = ops.cast(ops.softmax(start_logits), hidden.dtype)
        summary = ops.matmul(probs, hidden)[:, 0]
        answer = ops.concatenate([summary, hidden[:, 0]], axis=-1)
        answer = ops.tanh(self.answer_hidden(answer))
        answer = self.dropout(answer, keys=dropout_keys, training=training)
        return _float32(self.answer(answer))[..., 0]

    def _end_logits(self, hidden: Tensor, start: Tensor) -> Tensor:
        """Returns unmasked `[batch, starts, seq]` for starts' states."""
        states = ops.expand_dims(hidden, 1)
        starts = ops.expand_dims(start, 2)
        shape = ops.shape(ops.add(states[..., :1], starts[..., :1]))[:3]
        width = (self.config.hidden_size,)
        pair = ops.concatenate(
            [
                ops.broadcast_to(states, tuple(shape) + width),
                ops.broadcast_to(starts, tuple(shape) + width),
            ],
            axis=-1,
        )
        inner = self.end_layer_norm(ops.tanh(self.end_hidden(pair)))
        return _float32(ops.squeeze(self.end(inner), -1))

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns the outputs that the class names."""
        hidden = encoded["sequence_output"]
        allowed = 1.0 - _float32(features["p_mask"])
        allowed = ops.expand_dims(allowed * _float32(features["input_mask"]), 1)
        barred = (1.0 - allowed) * _IMPOSSIBLE

        def masked(logits: Tensor) -> Tensor:
            """Returns `[batch, starts, seq]`."""
            return logits * allowed + barred

        logits = _float32(ops.squeeze(self.start(hidden), -1))
        start_logits = masked(ops.expand_dims(logits, 1))
        unanswerable_logits = self._unanswerable_logits(
            hidden, start_logits, dropout_keys, training
        )
        start_logits = start_logits[:, 0]
        outputs = {
            "start_logits": start_logits,
            "unanswerable_logits": unanswerable_logits,
        }
        if "start_positions" in features:
            gold = ops.cast(features["start_positions"], "int32")[:, None]
            end_logits = self._end_logits(hidden, states_at(hidden, gold))
            outputs["end_logits"] = masked(end_logits)[:, 0]
        if training:
            return outputs
        # A shape that Keras infers without a length must fit the longest too.
        most = self.config.max_position_embeddings
        log_probs, starts = _likeliest(
            start_logits, min(self.start_n_top, most)
        )
        end_logits = self._end_logits(hidden, states_at(hidden, starts))
        end_log_probs, ends = _likeliest(
            masked(end_logits), min(self.end_n_top, most)
        )
        outputs["start_top_log_probs"] = log_probs
        outputs["start_top_positions"] = starts
        outputs["end_top_log_probs"] = end_log_probs
        outputs["end_top_positions"] = ends
        return outputs

    @classmethod
    def losses(
        cls, outputs: dict, labels: Mapping, weights: Mapping
    ) -> dict[str, WeightedSum]:
        """Returns (weighted sum, weight) by output, times the factors.

        Raises:
            UserError: without `end_logits`, which need the labelled starts.
        """
        require("end_logits" in outputs, END_NEEDS_START)
        return super().losses(outputs, labels, weights)

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature for a question that may have no answer."""
        return graph.answerable_questions(self)


def _likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities and positions `[..., count]`, best first."""
    length = ops.shape(logits)[-1]
    if isinstance(length, int):
        count = min(count, length)
    elif not ON_TENSORFLOW:
        # JAX infers shapes, and cannot compare a length that is not known.
        logits = ops.repeat(logits[..., :1], count, axis=-1)
    elif length is not None:
        count = ops.minimum(count, length)
    return ops.top_k(ops.log_softmax(logits, axis=-1), count)
