"""Keras' compile, fit and evaluate for models with heads: labels and losses."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import require
from albert_tf.modeling.heads.base import Head, Label
from albert_tf.modeling.heads.spans import END_NEEDS_START
from albert_tf.modeling.inputs import checked_features, in_range
from albert_tf.modeling.losses import broadcast_weights


class FittableModel(keras.Model):
    """A model with heads whose batches may hold labels and weights."""

    def features_of_heads(self) -> tuple[str, ...]:
        """Returns the heads' features beside the encoder's inputs."""
        return sum((head.features for head in self.heads.values()), ())

    def _labelled(self) -> dict[str, tuple[Head, Label]]:
        """Returns head and label of every output that has a label."""
        return {
            label.output: (head, label)
            for head in self.heads.values()
            for label in head.labels
        }

    def checked(
        self, features: dict, needed: tuple[str, ...], in_graph: bool
    ) -> dict:
        """Returns the features with defaults, see `checked_features`."""
        known = {
            name
            for head, label in self._labelled().values()
            for name in (label.name, head.label_weights)
        }
        return checked_features(
            features,
            self.config,
            needed=needed,
            known=known.union(self.features_of_heads()),
            in_graph=in_graph,
        )

    def fit(self, *args: object, **kwargs: object) -> object:
        """Trains as any Keras model, after a check of the arrays."""
        return self._run(super().fit, args, kwargs)

    def evaluate(self, *args: object, **kwargs: object) -> object:
        """Evaluates as any Keras model, after a check of the arrays."""
        return self._run(super().evaluate, args, kwargs)

    def predict(self, *args: object, **kwargs: object) -> object:
        """Predicts as any Keras model, after a check of the arrays."""
        return self._run(super().predict, args, kwargs)

    def _run(self, method: Callable, args: tuple, kwargs: Mapping) -> object:
        """Calls one of Keras' loops with checked arrays: XLA cannot check."""
        given = inspect.signature(method).bind(*args, **kwargs).arguments
        require(
            not given.get("class_weight")
            or all(
                head.label_weights == "example_weights"
                for head in self.heads.values()
            ),
            "class_weight weighs examples of one label; "
            f"{type(self).__name__} has many labels in an example. Give their "
            "weights as sample_weight, in the shape of the labels.",
        )
        x = given.get("x")
        if isinstance(x, Mapping) and all(
            isinstance(value, np.ndarray) for value in x.values()
        ):
            self.checked(dict(x), self.features_of_heads(), in_graph=False)
            trains = self._compile_loss is None and self._labelled()
            if trains and method.__name__ != "predict":
                weights = given.get("sample_weight")
                self._labels_in_range(dict(x), given.get("y"), weights)
        return method(*args, **kwargs)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the loss and the layers' own losses, for Keras' `fit`.

        The sum of the heads' mean losses, unless `compile` was given a loss.
        Labels and weights are taken from `y` and `sample_weight`, by the name
        of the label or of its output, or without a name where there is one
        label; or from the features.
        """
        # On TensorFlow; other backends have no such attribute.
        strategy = getattr(self, "distribute_strategy", None)
        require(
            strategy is None or strategy.num_replicas_in_sync == 1,
            "fit() trains on one device: with several it would weigh every "
            "replica alike. bin.pretrain and bin.finetune train on several "
            "with --strategy.",
        )
        if training:
            # `call` does not check values in a graph that trains.
            self.checked(x, self.features_of_heads(), in_graph=True)
        if self._compile_loss is not None:
            compared = self._for_keras(x, y, y_pred, sample_weight)
            return super().compute_loss(x, *compared, training=training)
        require(
            not self.compiled
            or not self._compile_config.config["loss_weights"],
            "loss_weights weigh losses that compile() is given, and it was "
            "given none; give it a loss for each of these outputs.",
        )
        losses = [ops.sum(loss) for loss in self.losses]
        require(
            bool(losses or self._labelled()),
            f"{type(self).__name__} has no head with a loss; give compile() "
            "one, or train another model class.",
        )
        labels, weights = self._labels_in_range(x, y, sample_weight)
        for head in self.heads.values():
            for value, weight in head.losses(y_pred, labels, weights).values():
                losses.append(value / ops.maximum(weight, 1e-12))
        return sum(losses)

    def compute_metrics(
        self, x: dict, y: object, y_pred: dict, sample_weight: object = None
    ) -> dict:
        """Returns the metrics of `compile`, for Keras' `fit`."""
        compared = y, y_pred, sample_weight
        if self._compile_metrics is not None:
            compared = self._for_keras(x, *compared)
        return super().compute_metrics(x, *compared)

    def _for_keras(
        self, x: dict, y: object, y_pred: dict, sample_weight: object
    ) -> tuple[object, dict, object]:
        """Returns labels, predictions and weights of outputs that have a label.

        `[batch]` becomes `[batch, 1]`: Keras takes means over the last axis.
        """
        if not self._labelled() and not isinstance(y, Mapping):
            return y, y_pred, sample_weight
        labels, weights = self._labels(x, y, sample_weight)
        if not isinstance(self.loss, Mapping):
            self._require_labels(labels)
        require(
            "end_logits" not in labels or "end_logits" in y_pred,
            END_NEEDS_START,
        )
        predicted = {output: y_pred[output] for output in labels}
        for output, value in predicted.items():
            if len(value.shape) == 1:
                predicted[output] = ops.expand_dims(value, -1)
                if len(labels[output].shape) == 1:
                    labels[output] = ops.expand_dims(labels[output], -1)
        if not weights:
            return labels, predicted, None
        # Keras' losses have a value for each vector of the output.
        spread = {
            output: broadcast_weights(
                weights[output], predicted[output][..., 0]
            )
            for output in weights.keys() & labels.keys()
        }
        return labels, predicted, dict.fromkeys(labels) | spread

    def _labels(
        self, x: dict, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels, and the products of the weights given, by output."""
        labelled = self._labelled()
        x = dict(x)
        for head in self.heads.values():
            if isinstance(y, Mapping) and head.label_weights in y:
                y = dict(y)
                x[head.label_weights] = y.pop(head.label_weights)
        labels, weights = {}, {}
        for output, (head, label) in labelled.items():
            if label.name in x:
                labels[output] = x[label.name]
            if head.label_weights in x:
                weights[output] = x[head.label_weights]
        if isinstance(y, Mapping):
            labels.update(self._by_output(y, "y"))
        elif y is not None:
            names = ", ".join(label.name for _, label in labelled.values())
            require(
                len(labelled) == 1,
                f"{type(self).__name__} has {len(labelled)} labels; give y by "
                f"name: {names}",
            )
            labels[next(iter(labelled))] = y
        if isinstance(sample_weight, Mapping):
            given = self._by_output(sample_weight, "sample_weight")
        else:
            given = dict.fromkeys(labels, sample_weight)
        for output, value in given.items():
            if value is None:
                continue
            if output in weights and output in labels:
                value = broadcast_weights(value, labels[output])
                value *= broadcast_weights(weights[output], labels[output])
            weights[output] = value
        return labels, weights

    def _by_output(self, values: Mapping, argument: str) -> dict:
        """Returns values by output that are named by output or by label."""
        labelled = self._labelled()
        outputs = {label.name: name for name, (_, label) in labelled.items()}
        known = {"sequence_output", "pooled_output", *labelled, *outputs}
        for head in self.heads.values():
            known.update(head.outputs)
        for name in values:
            require(
                name in known,
                f"{argument} has {name!r}, which {type(self).__name__} does "
                f"not know; it has {', '.join(sorted(known))}.",
            )
        return {outputs.get(name, name): v for name, v in values.items()}

    def _require_labels(self, labels: dict) -> None:
        for output, (head, label) in self._labelled().items():
            require(
                output in labels,
                f"The batch has no {label.name}, which the loss of the head "
                f"{head.name} needs.",
            )

    def _labels_in_range(
        self, x: dict, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, all labels in range."""
        labels, weights = self._labels(x, y, sample_weight)
        self._require_labels(labels)
        for output, (head, label) in self._labelled().items():
            if label.classes is None:
                continue
            counted = None
            if output in weights:
                counted = broadcast_weights(weights[output], labels[output]) > 0
            labels[output] = in_range(
                label.name,
                labels[output],
                label.classes(head, ops.shape(x["input_ids"])),
                f"classes of the head {head.name}",
                counted=counted,
            )
        return labels, weights
