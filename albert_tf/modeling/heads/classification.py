"""Heads of one dense layer: labels or a number for texts, choices or tokens."""

from collections.abc import Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.heads.base import DenseHead, LabelledOutput, Tensors
from albert_tf.modeling.heads.pooling import TEXT_VECTOR
from albert_tf.modeling.layers import serializable
from albert_tf.modeling.losses import (
    weighted_binary_cross_entropy,
    weighted_squared_error,
)

_CLASS = LabelledOutput(
    "logits", "label_ids", num_classes=lambda head, shape: head.num_labels
)
_CLASSIFIER = (("classifier", "output_*", "classifier"),)


@serializable
class ClassificationHead(DenseHead):
    """One of several labels for a text: `logits` `[batch, labels]`."""

    head_name = "classification"
    model_name = "AlbertForClassification"
    transformers_model = "AlbertForSequenceClassification"
    weight_names = _CLASSIFIER
    reads = TEXT_VECTOR
    problem_type = "single_label_classification"
    labelled_outputs = (_CLASS,)
    options = ("num_labels",)
    pipeline_tag = "text-classification"
    predict_mode = "classify"


@serializable
class MultiLabelHead(DenseHead):
    """Any number of labels for a text: `logits` `[batch, labels]`.

    `label_ids` are 0 or 1, `label_weights` the weights of each; both are
    `[batch, labels]`.
    """

    head_name = "multi_label"
    model_name = "AlbertForMultiLabelClassification"
    transformers_model = "AlbertForSequenceClassification"
    reads = TEXT_VECTOR
    problem_type = "multi_label_classification"
    # google-research/albert has no such task.
    weight_names = (("classifier", None, "classifier"),)
    labelled_outputs = (
        LabelledOutput(
            "logits",
            "label_ids",
            weighted_binary_cross_entropy,
            num_classes=lambda head, shape: 2,
        ),
    )
    label_weights = "label_weights"
    options = ("num_labels",)
    has_several_labels = True
    meanings: Mapping[str, str] = {
        "probabilities": "of each label by itself",
        "labels": 'those of the text, each in its place; "" for the others',
    }
    pipeline_tag = "text-classification"
    predict_mode = "classify"

    @classmethod
    def exported_outputs(
        cls, outputs: Tensors, temperature: float = 1.0
    ) -> Tensors:
        """Returns `probabilities` `[batch, labels]`.

        The temperature is fitted for one of several classes alone.
        """
        return {"probabilities": ops.sigmoid(outputs["logits"])}


@serializable
class RegressionHead(DenseHead):
    """A number for a text (STS-B): `predictions` `[batch]`.

    It is learned as a multiple of `deviation` from `mean`. These are no
    weights: in files the dense layer gives the number itself.
    """

    head_name = "regression"
    model_name = "AlbertForRegression"
    transformers_model = "AlbertForSequenceClassification"
    weight_names = _CLASSIFIER
    reads = TEXT_VECTOR
    problem_type = "regression"
    outputs = ("predictions",)
    labelled_outputs = (
        LabelledOutput("predictions", "label_ids", weighted_squared_error),
    )
    meanings: Mapping[str, str] = {"predictions": "the number"}
    pipeline_tag = "text-classification"
    predict_mode = "rate"
    mean, deviation = 0.0, 1.0

    def outputs_of(self, scores: Tensor, features: Tensors) -> Tensors:
        """Returns `predictions` `[batch]`."""
        numbers = ops.squeeze(scores, -1)
        return {"predictions": self.mean + self.deviation * numbers}

    def value_in_files(self, variable: Any, value: Any) -> Any:
        """Returns the weight with which the dense layer gives the number."""
        value = value * self.deviation
        return value + self.mean * (variable is self.classifier.bias)


@serializable
class MultipleChoiceHead(DenseHead):
    """One of several texts (RACE): `logits` `[batch, choices]`.

    The batch's `input_ids` and the like are `[batch, choices, seq]`.
    """

    head_name = "multiple_choice"
    model_name = "AlbertForMultipleChoice"
    transformers_model = "AlbertForMultipleChoice"
    weight_names = _CLASSIFIER
    reads = TEXT_VECTOR
    labelled_outputs = (
        LabelledOutput(
            "logits", "label_ids", num_classes=lambda head, shape: shape[1]
        ),
    )
    reads_choices = True
    pipeline_tag = "multiple-choice"
    predict_mode = "choose"
    example_text = "A text.\tOne choice.\tAnother."

    def outputs_of(self, scores: Tensor, features: Tensors) -> Tensors:
        """Returns `logits` `[batch, choices]`."""
        choices = ops.shape(features["input_ids"])[1]
        return {"logits": ops.reshape(scores, (-1, choices))}

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature for a text and its choices."""
        return graph.choices(self)


@serializable
class TokenClassificationHead(DenseHead):
    """A label for every token: `logits` `[batch, seq, labels]`.

    `label_ids` and `label_weights` are `[batch, seq]`; a weight of 0 leaves a
    token out (padding, special tokens, the later pieces of a word).
    """

    head_name = "token_classification"
    model_name = "AlbertForTokenClassification"
    transformers_model = "AlbertForTokenClassification"
    # google-research/albert labels no tokens.
    weight_names = (("classifier", None, "classifier"),)
    reads = "sequence_output"
    labelled_outputs = (_CLASS,)
    has_sequence_outputs = True
    label_weights = "label_weights"
    sequence_features = ("label_ids", "label_weights")
    options = ("num_labels",)
    pipeline_tag = "token-classification"
    predict_mode = "tag"

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns the signature for the words of a text."""
        return graph.words(self)
