"""The interface of heads: what a head declares and computes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, require
from albert_tf.modeling.heads.pooling import (
    POOLED_OUTPUT,
    TEXT_NGRAMS,
    is_own_pooling,
    read_width,
    reads_ngrams,
)
from albert_tf.modeling.layers import Config, ConfiguredLayer
from albert_tf.modeling.losses import WeightedSum, weighted_cross_entropy

Tensors = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class LabelledOutput:
    """An output that is trained: its label and its loss.

    Attributes:
        output: its name among the head's outputs.
        label: the label's name among the batch's features.
        loss: a function of the output, the labels and their weights.
        num_classes: a function of the head and the shape of `input_ids`; None
            where the label is a real number.
        loss_weight: the factor of this loss in the head's.
    """

    output: str
    label: str
    loss: Callable[..., WeightedSum] = weighted_cross_entropy
    num_classes: Callable[["Head", tuple], int] | None = None
    loss_weight: float = 1.0


class Head(ConfiguredLayer):
    """A layer on the encoder, and all that the library knows of it.

    A new head is one such class and its row of HEADS. The outputs are float32,
    whatever the precision of its layers.

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
        reads: "pooled_output"; TEXT_VECTOR, that or another vector of the
            text, by the architecture's `pooling` (a DenseHead reads its
            TEXT_NGRAMS too); "sequence_output", the
            states of all positions; or the feature with the positions that it
            reads.
        features: of the batch, beside the encoder's inputs.
        outputs: names of the outputs.
        labelled_outputs: those that are trained, with labels and losses.
        label_weights: the feature with the labels' weights; 1 where absent.
        sequence_features: features and labels `[batch, seq]`, beside the
            encoder's inputs.
        options: constructor arguments beside the architecture.
        option_choices: the values of options that are names; others are whole
            numbers from 1.
        has_sequence_outputs: whether outputs are `[batch, seq, ...]`.
        reads_choices: whether the encoder's inputs are `[batch, choices,
            seq]`.
        has_several_labels: whether a text has any number of the labels.
        meanings: of the outputs of an exported model, for its README.
        pipeline_tag: the Hugging Face hub's name of the task, for a model
            card; None where it has none.
        predict_mode: that of bin.predict.
        example_text: a line for it, with tabs between several texts.
    """

    head_name: str = ""
    model_name: str = ""
    transformers_model: str = "AlbertModel"
    problem_type: str | None = None
    is_pretrained: bool = False
    weight_names: tuple[tuple[str, str | None, str], ...] = ()
    reads: str = POOLED_OUTPUT
    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("logits",)
    labelled_outputs: tuple[LabelledOutput, ...] = ()
    label_weights: str = "example_weights"
    sequence_features: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    option_choices: Mapping[str, tuple[str, ...]] = {}
    has_sequence_outputs: bool = False
    reads_choices: bool = False
    has_several_labels: bool = False
    meanings: Mapping[str, str] = {
        "probabilities": "of the classes, choices or pieces; their sum is 1",
        "label": "the likeliest class",
    }
    pipeline_tag: str | None = None
    # Any model has vectors.
    predict_mode: str = "embed"
    example_text: str = "A text."

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
    ) -> dict[str, WeightedSum]:
        """Returns (weighted sum, weight) by output, times the factors.

        Labels and weights are by output, too; weights are 1 where absent.
        """
        pairs = {}
        for labelled in cls.labelled_outputs:
            name = labelled.output
            total, weight = labelled.loss(
                outputs[name], labels[name], weights.get(name)
            )
            if labelled.loss_weight != 1.0:
                total = total * labelled.loss_weight
            pairs[name] = total, weight
        return pairs

    @classmethod
    def loss(cls, outputs: dict, features: dict) -> WeightedSum | None:
        """Returns (weighted sum, weight); None for a head without labels."""
        labels = {
            labelled.output: features[labelled.label]
            for labelled in cls.labelled_outputs
        }
        weights = dict.fromkeys(labels, features.get(cls.label_weights))
        pairs = list(cls.losses(outputs, labels, weights).values())
        if not pairs:
            return None
        return sum(total for total, _ in pairs), pairs[0][1]

    @classmethod
    def exported_outputs(
        cls, outputs: Tensors, temperature: float = 1.0
    ) -> Tensors:
        """Returns the outputs of an exported model, from those of the head.

        The same, or `probabilities` where there is one, of logits that are
        learned with a cross-entropy, divided by `temperature`. The export adds
        the likeliest class as `label` where the classes have names.
        """
        if cls.has_classes():
            logits = outputs[cls.outputs[0]] / temperature
            return {"probabilities": ops.softmax(logits)}
        return {name: outputs[name] for name in cls.outputs}

    def signatures(self, graph: Any) -> dict[str, Any]:
        """Returns an exported model's signatures for raw texts.

        The default one comes first. Without any the model is exported for its
        embeddings alone.

        Args:
            graph: a TextSignatures (interchange/export/text_signatures.py):
                signatures for texts of several forms, and the tokenizer and
                the model as parts to make others of.
        """
        return graph.texts(self)

    @classmethod
    def count_weights(cls, config: Config, num_labels: int) -> int:
        """Returns the number of the head's weights."""
        options: dict[str, Any] = {}
        if cls.takes_labels():
            options["num_labels"] = num_labels
        head = cls(config, **options)
        head.build()
        return head.count_params()

    @classmethod
    def class_in_transformers(cls, config: ModelConfig) -> str:
        """Returns the class that opens a model of an architecture there."""
        if is_own_pooling(cls.reads, config):
            return "AlbertModel"
        return cls.transformers_model

    @classmethod
    def names_in_files(
        cls, config: ModelConfig
    ) -> tuple[tuple[str, str | None, str], ...]:
        """Returns the `weight_names` of an architecture.

        With a pooling that other libraries lack they are others: under the
        common names transformers would take the weights and give other answers.
        """
        if not is_own_pooling(cls.reads, config):
            return cls.weight_names
        return tuple(
            (attribute, None, f"{config.pooling}_{name}")
            for attribute, _, name in cls.weight_names
        )

    @classmethod
    def has_classes(cls) -> bool:
        """Returns whether the one output has logits of classes."""
        losses = [labelled.loss for labelled in cls.labelled_outputs]
        return losses == [weighted_cross_entropy]

    @classmethod
    def takes_labels(cls) -> bool:
        """Returns whether the head has a number of classes to choose."""
        return "num_labels" in cls.options

    def value_in_files(self, variable: Any, value: Any) -> Any:
        """Returns a value of a weight of the head as files have it."""
        return value

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        options = {name: getattr(self, name) for name in self.options}
        return {**super().get_config(), **options}


class DenseHead(Head):
    """Dropout and one dense layer.

    Its name in files begins with `head_name` where the class has no
    `weight_names`: by that of other libraries' heads they would take the
    weights, and apply them in their way.

    Attributes:
        width: of the dense layer; num_labels in heads that take labels.
        has_dropout: before the dense layer.
    """

    width: int = 1
    has_dropout: bool = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.weight_names:
            name = f"{cls.head_name}_classifier"
            cls.weight_names = (("classifier", None, name),)

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
        self.classifier = self.make_dense(
            "classifier",
            width,
            read_width(self.reads, self.config),
            # A text has many n-grams that no text of training has, and random
            # weights of those would be noise.
            float(not reads_ngrams(self.reads, self.config)),
        )

    def call(
        self,
        encoded: Tensors,
        features: Tensors,
        dropout_keys: Tensor | None = None,
        training: bool = False,
    ) -> Tensors:
        """Returns the outputs by name.

        Raises:
            UserError: for input_ids with another number of axes.
        """
        axes = len(features["input_ids"].shape)
        form = "[batch, choices, seq]" if self.reads_choices else "[batch, seq]"
        require(
            axes == 2 + self.reads_choices,
            f"The head {self.name} reads input_ids {form}; they have {axes} "
            "axes.",
        )
        hidden = encoded[self.reads]
        if training and self.dropout.rate:
            hidden = self.dropout(hidden, keys=dropout_keys, training=True)
        if reads_ngrams(self.reads, self.config):
            # Without one in ten it would be another text, and what two texts
            # have in common would be lost: they have no dropout.
            hidden = ops.concatenate([hidden, encoded[TEXT_NGRAMS]], axis=-1)
        scores = ops.cast(self.classifier(hidden), "float32")
        return self.outputs_of(scores, features)

    def outputs_of(self, scores: Tensor, features: Tensors) -> Tensors:
        """Returns the outputs by name, of scores `[..., width]`."""
        (output,) = self.outputs
        return {output: scores}
