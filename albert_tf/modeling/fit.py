"""Keras' compile, fit and evaluate for models with heads: labels and losses."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import require
from albert_tf.modeling.checked_steps import CheckedSteps
from albert_tf.modeling.epoch_loss import EpochLoss
from albert_tf.modeling.fit_data import alone, as_arrays, weights_of_classes
from albert_tf.modeling.heads.base import Head, LabelledOutput
from albert_tf.modeling.heads.spans import END_NEEDS_START
from albert_tf.modeling.inputs import (
    checked_features,
    checked_weights,
    in_range,
)
from albert_tf.modeling.losses import Pair, broadcast_weights

_DATA = ("x", "y", "sample_weight")


class FittableModel(CheckedSteps):
    """A model with heads whose batches may hold labels and weights."""

    def features_of_heads(self) -> tuple[str, ...]:
        """Returns the heads' features beside the encoder's inputs."""
        return sum((head.features for head in self.heads.values()), ())

    def _labelled(self) -> dict[str, tuple[Head, LabelledOutput]]:
        """Returns every output that has a label, with its head."""
        return {
            trained.output: (head, trained)
            for head in self.heads.values()
            for trained in head.labelled_outputs
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, also on what transformers' tokenizers return.

        It is a mapping but no dictionary, which Keras would not open.
        """
        if args and isinstance(args[0], Mapping) and type(args[0]) is not dict:
            args = (as_arrays(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    def checked(
        self, features: dict, needed: tuple[str, ...], in_graph: bool
    ) -> dict:
        """Returns the features with defaults, see `checked_features`."""
        known = {
            name
            for head, trained in self._labelled().values()
            for name in (trained.label, head.label_weights)
        }
        return checked_features(
            features,
            self.config,
            needed=needed,
            known=known.union(self.features_of_heads()),
            in_graph=in_graph,
        )

    # `compile` makes its metric of the loss here; a `compile` of our own would
    # not be called when Keras loads a model.

    @property
    def _loss_tracker(self) -> EpochLoss | None:
        return vars(self).get("_epoch_loss")

    @_loss_tracker.setter
    def _loss_tracker(self, metric: keras.metrics.Metric | None) -> None:
        made = metric and EpochLoss(len(self._labelled()))
        self.__dict__["_epoch_loss"] = made

    def fit(self, *args: object, **kwargs: object) -> object:
        """Trains as any Keras model, after a check of the arrays."""
        return self._run(super().fit, args, kwargs)

    def evaluate(self, *args: object, **kwargs: object) -> object:
        """Evaluates as any Keras model, after a check of the arrays."""
        return self._run(super().evaluate, args, kwargs)

    def predict(self, *args: object, **kwargs: object) -> object:
        """Predicts as any Keras model, after a check of the arrays."""
        return self._run(super().predict, args, kwargs)

    def train_on_batch(self, *args: object, **kwargs: object) -> object:
        """Trains on a batch as any Keras model, after a check of it."""
        return self._run(super().train_on_batch, args, kwargs)

    def test_on_batch(self, *args: object, **kwargs: object) -> object:
        """Evaluates a batch as any Keras model, after a check of it."""
        return self._run(super().test_on_batch, args, kwargs)

    def _run(self, method: Callable, args: tuple, kwargs: Mapping) -> object:
        """Calls one of Keras' loops with data that its adapters keep."""
        signature = inspect.signature(method)
        given: dict[str, Any] = dict(signature.bind(*args, **kwargs).arguments)
        given.update(given.pop("kwargs", {}))
        labelled = "y" in signature.parameters
        x, y, weights = (given.get(name) for name in _DATA)
        first = x[0] if isinstance(x, list | np.ndarray) and len(x) else x
        require(
            not isinstance(first, str),
            f"{type(self).__name__} reads token ids, got strings: give it "
            "tokenizer(texts), or put a TextPreprocessor before it.",
        )
        if given.get("class_weight") and self._labelled():
            (x, y), given["class_weight"] = self._class_weighted(
                x, y, given["class_weight"]
            )
        data = self._checked_arrays(x, y, weights, labelled=labelled)
        given.update(
            (name, value)
            for name, value in zip(_DATA, data, strict=True)
            if value is not None
        )
        others = given.get("validation_data")
        if isinstance(others, tuple | list | Mapping):
            others = keras.utils.unpack_x_y_sample_weight(others)
            given["validation_data"] = self._checked_arrays(*others)
        return method(**given)

    def _checked_arrays(
        self, x: Any, y: Any, sample_weight: Any, labelled: bool = True
    ) -> tuple:
        """Returns data, checked where they are arrays: XLA and JAX do not.

        Keras' adapter of arrays drops weights without `y`, and wants them by
        the names in `y`; here both may be given otherwise.
        """
        if not isinstance(x, Mapping) or any(
            isinstance(value, Mapping) for value in x.values()
        ):
            return x, y, sample_weight
        x = as_arrays(x)
        self.checked(x, self.features_of_heads(), in_graph=False)
        is_plain = y is not None or sample_weight is None
        if not (labelled and self._labelled()) or (
            is_plain and self._has_own_step()
        ):
            return x, y, sample_weight
        y, sample_weight = as_arrays(y), as_arrays(sample_weight)
        labels, weights = self._used_labels(x, y, sample_weight)
        require(
            not labels
            or any(
                name not in weights
                or np.any(ops.convert_to_numpy(weights[name]))
                for name in labels
            ),
            "All weights are 0: there is nothing to learn or to evaluate.",
        )
        if sample_weight is None or not isinstance(y, Mapping | None):
            return x, y, sample_weight
        return self._weighted_by_name(x, y or {}, sample_weight)

    def _weighted_by_name(
        self, x: dict, y: Mapping, sample_weight: object
    ) -> tuple[dict, dict, dict]:
        """Returns x, and labels and their weights by the same names."""
        y = dict(y)
        for head in self.heads.values():
            if head.label_weights in y:
                x[head.label_weights] = y.pop(head.label_weights)
        for output, (_, trained) in self._labelled().items():
            if trained.label in x and not {output, trained.label} & y.keys():
                y[output] = x[trained.label]
        weights = dict.fromkeys(y, sample_weight)
        if isinstance(sample_weight, Mapping):
            given = self._by_output(sample_weight, "sample_weight")
            ones = np.ones(len(x["input_ids"]), "float32")
            outputs = self._by_output({name: name for name in y}, "y")
            weights = {
                n: given.get(output, ones) for output, n in outputs.items()
            }
        return x, y, weights

    def _class_weighted(
        self, x: Any, y: Any, given: Any
    ) -> tuple[tuple, dict[int, float]]:
        """Returns x and y that Keras weighs, and the weight of every class.

        It weighs a `y` that is an array, and has no default in `tf.data` sets.
        """
        kind = type(self).__name__
        ((head, trained), *others) = self._labelled().values()
        require(
            not others and head.label_weights == "example_weights",
            "class_weight weighs examples of one label; "
            f"{kind} has many labels in an example. Give their weights as "
            "sample_weight, in the shape of the labels.",
        )
        require(
            trained.num_classes is not None,
            f"class_weight weighs classes, and {kind} predicts numbers: give "
            "sample_weight, a weight for each example.",
        )

        def with_array(*batch: object) -> tuple:
            x, y, weights = keras.utils.unpack_x_y_sample_weight(batch)
            labels, _ = self._labels(x, y, None)
            self._require_labels(labels)
            y = labels[trained.output]
            return (x, y) if weights is None else (x, y, weights)

        if isinstance(x, Mapping):
            x, y = with_array(x, as_arrays(y))
        elif hasattr(x, "element_spec") and hasattr(x, "map"):
            x = x.map(with_array)
        elif isinstance(x, keras.utils.PyDataset):
            require(
                len(x[0]) > 1 and hasattr(x[0][1], "shape"),
                "With class_weight a PyDataset has batches (features, labels), "
                "where the labels are an array; or give weights with each "
                "batch: (features, labels, sample_weight).",
            )
        classes = getattr(head, "num_labels", None)
        return (x, y), weights_of_classes(given, classes)

    def _is_on_one_device(self) -> bool:
        # On TensorFlow; other backends have no such attribute.
        strategy = getattr(self, "distribute_strategy", None)
        return strategy is None or strategy.num_replicas_in_sync == 1

    def check_batch(
        self, x: Any, y: Any, sample_weight: Any, *, labelled: bool
    ) -> None:
        """Raises UserError for values out of range; see `CheckedSteps`."""
        is_own = not (isinstance(x, Mapping) and "input_ids" in x)
        if is_own or not self._is_on_one_device():
            return
        self.checked(dict(x), self.features_of_heads(), in_graph=True)
        if labelled and not self._has_own_step():
            self._used_labels(x, y, sample_weight)

    def _has_own_step(self) -> bool:
        """Returns whether a subclass has a step or a loss of its own.

        Its labels and weights may be any.
        """
        return any(
            getattr(type(self), name) is not getattr(FittableModel, name)
            for name in ("train_step", "test_step", "compute_loss")
        )

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
        require(
            self._is_on_one_device(),
            "fit() trains on one device: with several it would weigh every "
            "replica alike. bin.pretrain and bin.finetune train on several "
            "with --strategy.",
        )
        if training and x is not None:
            # `call` does not check values in a graph that trains.
            self.checked(x, self.features_of_heads(), in_graph=True)
        if self._compile_loss is not None:
            _refuse_probabilities(self._compile_config.config["loss"])
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
        labels, weights = self._labels_in_range(x, y, sample_weight, y_pred)
        pairs: list[Pair] = []
        for head in self.heads.values():
            pairs += head.losses(y_pred, labels, weights).values()
        means = [value / ops.maximum(weight, 1e-12) for value, weight in pairs]
        if self.compiled:
            self._loss_tracker.add(pairs, sum(means))
        return sum(losses + means)

    def _compute_loss(self, *args: object, **kwargs: object) -> Tensor:
        """Returns `compute_loss` in a step of Keras' own, for its metrics.

        A step of a user's own on JAX would not carry their state.
        """
        with self._loss_tracker.step():
            return super()._compute_loss(*args, **kwargs)

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
        self, x: Mapping | None, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels, and the products of the weights given, by output."""
        labelled = self._labelled()
        x = dict(x or {})
        for head in self.heads.values():
            if isinstance(y, Mapping) and head.label_weights in y:
                y = dict(y)
                x[head.label_weights] = y.pop(head.label_weights)
        labels, weights = {}, {}
        for output, (head, trained) in labelled.items():
            if trained.label in x:
                labels[output] = x[trained.label]
            if head.label_weights in x:
                weights[output] = checked_weights(
                    head.label_weights, x[head.label_weights]
                )
        if isinstance(y, Mapping):
            labels.update(self._by_output(y, "y"))
        elif y is not None:
            names = ", ".join(trained.label for _, trained in labelled.values())
            require(
                len(labelled) == 1,
                f"{type(self).__name__} has {len(labelled)} labels; give y by "
                f"name: {names}",
            )
            (output,) = labelled
            labels[output] = y = alone(y)
            require(
                not isinstance(y, list | tuple),
                f"y is a list of several arrays, and {type(self).__name__} has "
                f"one label, {names}; give y as one array.",
            )
        if isinstance(sample_weight, Mapping):
            given = self._by_output(sample_weight, "sample_weight")
        else:
            given = dict.fromkeys(labels, alone(sample_weight))
        for output, value in given.items():
            if value is None:
                continue
            value = checked_weights("sample_weight", value)
            if output in weights and output in labels:
                value = broadcast_weights(value, labels[output])
                value *= broadcast_weights(weights[output], labels[output])
            weights[output] = value
        return labels, weights

    def _by_output(self, values: Mapping, argument: str) -> dict:
        """Returns values by output that are named by output or by label."""
        labelled = self._labelled()
        outputs = {
            trained.label: name for name, (_, trained) in labelled.items()
        }
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
        for output, (head, trained) in self._labelled().items():
            require(
                output in labels,
                f"The batch has no {trained.label}, which the loss of the head "
                f"{head.name} needs.",
            )

    def _used_labels(
        self, x: Mapping, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, in range for heads' losses."""
        if (
            self._compile_loss is None
            and self._labelled()
            and not self._has_own_step()
        ):
            return self._labels_in_range(x, y, sample_weight)
        return self._labels(x, y, sample_weight)

    def _labels_in_range(
        self,
        x: Mapping | None,
        y: object,
        sample_weight: object,
        outputs: Mapping | None = None,
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, all labels in range."""
        labels, weights = self._labels(x, y, sample_weight)
        self._require_labels(labels)
        for output, (head, trained) in self._labelled().items():
            if trained.num_classes is None:
                continue
            counted = None
            if output in weights:
                counted = broadcast_weights(weights[output], labels[output]) > 0
            # Scores have the axis of `input_ids` that tells their number.
            like = x["input_ids"] if x else (outputs or {})[output]
            labels[output] = in_range(
                trained.label,
                labels[output],
                trained.num_classes(head, ops.shape(like)),
                f"classes of the head {head.name}",
                counted=counted,
            )
        return labels, weights


def _refuse_probabilities(losses: Any) -> None:
    """Raises UserError for a loss of probabilities, as Keras' are by default.

    The heads give logits, which it would clip to the range from 0 to 1.
    """
    for loss in keras.tree.flatten(losses):
        found = keras.losses.get(loss) if isinstance(loss, str) else loss
        name = getattr(found, "__name__", type(found).__name__)
        of_logits = getattr(found, "from_logits", None)
        if of_logits is None and inspect.isfunction(found):
            parameters = inspect.signature(found).parameters
            if "from_logits" in parameters:
                of_logits = parameters["from_logits"].default
        require(
            of_logits is not False,
            f"The loss {name} takes probabilities, and the model gives logits: "
            "give compile() the loss of Keras with from_logits=True, or none, "
            "for the model's own.",
        )
