"""The interface of heads: what a head declares and computes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.modeling.layers import Config, ConfiguredLayer
from albert_tf.modeling.losses import Pair, weighted_cross_entropy

Tensors = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Label:
    """The label of an output.

    Attributes:
        output: of the head.
        name: of the label, among the batch's features.
        loss: of the output, the labels and their weights.
        classes: their number, of the head and the shape of `input_ids`; None
            where the label is a real number.
        factor: of the output's loss in the head's.
    """

    output: str
    name: str
    loss: Callable[..., Pair] = weighted_cross_entropy
    classes: Callable[["Head", tuple], int] | None = None
    factor: float = 1.0


class Head(ConfiguredLayer):
    """A layer on the encoder, with its features, losses and names in files.

    Its outputs are float32, whatever the precision of its layers.

    Attributes:
        head_name: the row of HEADS, the default name of the layer, and the
            model's attribute.
        model_name: the model class with this head alone; empty if there is
            none.
        transformers_model: the class that opens such a model in
            transformers. It reads the encoder alone where it is AlbertModel.
        problem_type: in config.json, where several heads have the same
            transformers_model.
        is_pretrained: whether the head's weights serve other jobs. Other
            heads belong to one task and its labels.
        weight_names: (attribute, name in Google's checkpoints, name in
            Hugging Face's files) of each weight, or layer with kernel and
            bias (gamma and beta). Google's is None where that code has no
            such head.
        reads: "pooled_output"; "sequence_output", the states of all
            positions; or the feature with the positions that it reads.
        features: of the batch, beside the encoder's inputs.
        outputs: names of the outputs.
        labels: of the outputs that have any.
        label_weights: the feature with the labels' weights; 1 where absent.
        sequence_features: features and labels `[batch, seq]`, beside the
            encoder's inputs.
        options: constructor arguments beside the architecture.
        text_inputs: the raw texts that an exported model takes, a row of
            TEXT_INPUTS (interchange/export/text_inputs.py); empty for heads
            whose model is exported for its embeddings alone.
    """

    head_name: str = ""
    model_name: str = ""
    transformers_model: str = "AlbertModel"
    problem_type: str | None = None
    is_pretrained: bool = False
    weight_names: tuple[tuple[str, str | None, str], ...] = ()
    reads: str = "pooled_output"
    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logits",)
    labels: tuple[Label, ...] = ()
    label_weights: str = "example_weights"
    sequence_features: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    text_inputs: str = "texts"

    def __init__(
        self, config: Config, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, name=name or self.head_name, **kwargs)

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns the outputs by name.

        Args:
            encoded: what the head reads, by that name, and `word_embeddings`.
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

        Labels and weights are given by output; weights are 1 where absent.
        """
        pairs = {}
        for label in cls.labels:
            name = label.output
            total, weight = label.loss(
                outputs[name], labels[name], weights.get(name)
            )
            if label.factor != 1.0:
                total = total * label.factor
            pairs[name] = total, weight
        return pairs

    @classmethod
    def loss(cls, outputs: dict, features: dict) -> Pair | None:
        """Returns (weighted sum, weight); None for a head without labels."""
        labels = {label.output: features[label.name] for label in cls.labels}
        weights = dict.fromkeys(labels, features.get(cls.label_weights))
        pairs = list(cls.losses(outputs, labels, weights).values())
        if not pairs:
            return None
        return sum(total for total, _ in pairs), pairs[0][1]

    @classmethod
    def answers(cls, outputs: Tensors) -> Tensors:
        """Returns the outputs of an exported model, from those of the head.

        The same, or `probabilities` where there is one, of logits that are
        learned with a cross-entropy. With labels the likeliest is added as
        `label`.
        """
        losses = [label.loss for label in cls.labels]
        if losses == [weighted_cross_entropy]:
            return {"probabilities": ops.softmax(outputs[cls.outputs[0]])}
        return {name: outputs[name] for name in cls.outputs}

    @classmethod
    def takes_labels(cls) -> bool:
        """Returns whether the head has a number of classes to choose."""
        return "num_labels" in cls.options

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        options = {name: getattr(self, name) for name in self.options}
        return {**super().get_config(), **options}


class DenseHead(Head):
    """Dropout and one dense layer.

    Attributes:
        width: of the dense layer; num_labels in heads that take labels.
        has_dropout: before the dense layer.
    """

    weight_names: tuple[tuple[str, str | None, str], ...] = (
        ("classifier", "output_*", "classifier"),
    )
    width: int = 1
    has_dropout: bool = True

    def __init__(
        self,
        config: Config,
        num_labels: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.num_labels = num_labels
        self.dropout = self.make_dropout(
            self.config.classifier_dropout_prob * self.has_dropout
        )
        width = (num_labels or 0) if self.takes_labels() else self.width
        self.classifier = self.make_dense("classifier", width)

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns the outputs by name."""
        hidden = self.dropout(
            encoded[self.reads], keys=dropout_keys, training=training
        )
        scores = ops.cast(self.classifier(hidden), "float32")
        return self.outputs_of(scores, features)

    def outputs_of(self, scores: Tensor, features: Tensors) -> Tensors:
        """Returns the outputs by name, of scores `[..., width]`."""
        (output,) = self.outputs
        return {output: scores}
