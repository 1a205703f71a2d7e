"""The labels and weights that a batch has for each output of the heads."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.config import UserError, require
from albert_tf.modeling.fitting.data import (
    alone,
    as_arrays,
    weights_of_classes,
)
from albert_tf.modeling.heads.base import Head, LabelledOutput
from albert_tf.modeling.inputs import finite, in_range
from albert_tf.modeling.losses import broadcast_weights


class HeadLabels:
    """Finds labels and weights, in whichever form Keras was given them.

    Attributes:
        outputs: every output that has a label, with its head.
    """

    def __init__(self, model: str, heads: Iterable[Head]) -> None:
        """Takes the name of the model, for messages, and its heads."""
        self._model = model
        self._heads = tuple(heads)
        self.outputs: dict[str, tuple[Head, LabelledOutput]] = {
            labelled.output: (head, labelled)
            for head in self._heads
            for labelled in head.labelled_outputs
        }

    def names(self) -> set[str]:
        """Returns the names of labels, and of the heads' weights for them."""
        return {
            name
            for head, labelled in self.outputs.values()
            for name in (labelled.label, head.label_weights)
        }

    def of_batch(
        self, x: Mapping | None, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels, and the products of the weights given, by output."""
        x = dict(x or {})
        for head in self._heads:
            if isinstance(y, Mapping) and head.label_weights in y:
                y = dict(y)
                x[head.label_weights] = y.pop(head.label_weights)
        labels, weights = {}, {}
        for output, (head, labelled) in self.outputs.items():
            if labelled.label in x:
                labels[output] = x[labelled.label]
            if head.label_weights in x:
                weights[output] = finite(
                    head.label_weights, x[head.label_weights], lowest=0
                )
        if isinstance(y, Mapping):
            labels.update(self._by_output(y, "y"))
        elif y is not None:
            labels.update(self._only_label(y))
        if isinstance(sample_weight, Mapping):
            sample_weights = self._by_output(sample_weight, "sample_weight")
        else:
            sample_weights = dict.fromkeys(labels, alone(sample_weight))
        for output, value in sample_weights.items():
            if value is None:
                continue
            value = finite("sample_weight", value, lowest=0)
            if output in weights and output in labels:
                own = broadcast_weights(weights[output], labels[output])
                value = broadcast_weights(value, labels[output]) * own
            weights[output] = value
        return labels, weights

    def in_range(
        self,
        x: Mapping | None,
        y: object,
        sample_weight: object,
        predicted: Mapping | None = None,
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, all in range and finite.

        Args:
            predicted: the model's outputs, for batches without `x`.

        Raises:
            UserError: for a label that is missing, out of range or no number.
        """
        labels, weights = self.of_batch(x, y, sample_weight)
        self.require_all(labels)
        for output, (head, labelled) in self.outputs.items():
            if labelled.num_classes is None:
                labels[output] = finite(labelled.label, labels[output])
                continue
            counted = None
            if output in weights:
                counted = broadcast_weights(weights[output], labels[output]) > 0
            # Scores have the axis of `input_ids` that gives their number.
            like = x["input_ids"] if x else (predicted or {})[output]
            limit_name = f"classes of the head {head.name}"
            if head.has_several_labels:
                limit_name = "values of each label"
            labels[output] = in_range(
                labelled.label,
                labels[output],
                labelled.num_classes(head, ops.shape(like)),
                limit_name,
                counted=counted,
            )
        return labels, weights

    def require_all(self, labels: Mapping) -> None:
        """Raises UserError for an output that has no label."""
        for output, (head, labelled) in self.outputs.items():
            require(
                output in labels,
                f"The batch has no {labelled.label}, which the loss of the "
                f"head {head.name} needs.",
            )

    def by_name(
        self, x: dict, y: Mapping, sample_weight: object
    ) -> tuple[dict, dict, dict]:
        """Returns x, and labels and their weights by the same names.

        In this form Keras' adapter of arrays keeps both.
        """
        y = dict(y)
        for head in self._heads:
            if head.label_weights in y:
                x[head.label_weights] = y.pop(head.label_weights)
        for output, (_, labelled) in self.outputs.items():
            if labelled.label in x and not {output, labelled.label} & y.keys():
                y[output] = x[labelled.label]
        weights = dict.fromkeys(y, sample_weight)
        if isinstance(sample_weight, Mapping):
            sample_weights = self._by_output(sample_weight, "sample_weight")
            ones = np.ones(len(x["input_ids"]), "float32")
            outputs = self._by_output({name: name for name in y}, "y")
            weights = {
                n: sample_weights.get(output, ones)
                for output, n in outputs.items()
            }
        return x, y, weights

    def class_weighted(
        self, x: Any, y: Any, class_weight: Any
    ) -> tuple[tuple, dict[int, float]]:
        """Returns x and y that Keras weighs, and the weight of every class.

        It weighs a `y` that is an array, and has no default in `tf.data` sets.

        Raises:
            UserError: for heads without one label of classes, and for weights
                that do not fit the classes.
        """
        ((head, labelled), *others) = self.outputs.values()
        require(
            not others and head.label_weights == "example_weights",
            "class_weight weighs examples of one label; "
            f"{self._model} has many labels in an example. Give their weights "
            "as sample_weight, in the shape of the labels.",
        )
        # How many choices there are, the features alone know.
        of_head = labelled.num_classes
        classes = of_head(head, (None, None)) if of_head else None
        if classes is None:
            raise UserError(
                f"class_weight weighs classes, and {self._model} predicts "
                "numbers or chooses: give sample_weight, a weight for each "
                "example."
            )

        def with_array(*batch: object) -> tuple:
            x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
            labels, _ = self.of_batch(x, y, None)
            self.require_all(labels)
            y = labels[labelled.output]
            return (x, y) if weights is None else (x, y, weights)

        if isinstance(x, Mapping):
            x, y = with_array(x, as_arrays(y))
        elif hasattr(x, "element_spec") and hasattr(x, "map"):
            x = x.map(with_array)
        elif isinstance(x, keras.utils.PyDataset):
            require(
                not isinstance(x[0], Mapping)
                and len(x[0]) > 1
                and hasattr(x[0][1], "shape"),
                "With class_weight a PyDataset has batches (features, labels), "
                "where the labels are an array; or give weights with each "
                "batch: (features, labels, sample_weight).",
            )
        return (x, y), weights_of_classes(class_weight, classes)

    def _only_label(self, y: object) -> dict:
        """Returns a `y` without a name by its output."""
        names = ", ".join(
            labelled.label for _, labelled in self.outputs.values()
        )
        require(
            len(self.outputs) == 1,
            f"{self._model} has {len(self.outputs)} labels; give y by name: "
            f"{names}",
        )
        y = alone(y)
        require(
            not isinstance(y, list | tuple),
            f"y is a list of several arrays, and {self._model} has one label, "
            f"{names}; give y as one array.",
        )
        (output,) = self.outputs
        return {output: y}

    def _by_output(self, values: Mapping, argument: str) -> dict:
        """Returns values by output that are named by output or by label."""
        outputs = {
            labelled.label: name for name, (_, labelled) in self.outputs.items()
        }
        known = {"sequence_output", "pooled_output", *self.outputs, *outputs}
        for head in self._heads:
            known.update(head.outputs)
        for name in values:
            require(
                name in known,
                f"{argument} has {name!r}, which {self._model} does not know; "
                f"it has {', '.join(sorted(known))}.",
            )
        return {outputs.get(name, name): v for name, v in values.items()}
