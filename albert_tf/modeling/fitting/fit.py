"""Keras' compile, fit and evaluate for models with heads: labels and losses."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import require
from albert_tf.modeling.fitting.checked_steps import CheckedSteps
from albert_tf.modeling.fitting.data import as_arrays
from albert_tf.modeling.fitting.epoch_loss import EpochLoss
from albert_tf.modeling.fitting.labels import HeadLabels
from albert_tf.modeling.fitting.metrics import check_metrics
from albert_tf.modeling.heads.spans import END_NEEDS_START
from albert_tf.modeling.losses import WeightedSum, broadcast_weights

_DATA = ("x", "y", "sample_weight")
# Losses of Keras that have no form for logits.
_OF_PROBABILITIES = (
    keras.losses.KLDivergence,
    keras.losses.kl_divergence,
    keras.losses.Dice,
    keras.losses.dice,
    keras.losses.Tversky,
    keras.losses.tversky,
    keras.losses.CategoricalGeneralizedCrossEntropy,
    keras.losses.categorical_generalized_cross_entropy,
)


class FittableModel(CheckedSteps):
    """A model with heads whose batches may hold labels and weights."""

    def _labels(self) -> HeadLabels:
        """Returns the reader of the heads' labels and weights in a batch."""
        return HeadLabels(type(self).__name__, self.heads.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, also on what transformers' tokenizers return.

        It is a mapping but no dictionary, which Keras would not open.
        """
        if args and isinstance(args[0], Mapping) and type(args[0]) is not dict:
            args = (as_arrays(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    # `compile` makes its metric of the loss here; a `compile` of our own would
    # not be called when Keras loads a model.

    @property
    def _loss_tracker(self) -> EpochLoss | None:
        return vars(self).get("_epoch_loss")

    @_loss_tracker.setter
    def _loss_tracker(self, metric: keras.metrics.Metric | None) -> None:
        made = metric and EpochLoss(len(self._labels().outputs))
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
        arguments: dict[str, Any] = dict(
            signature.bind(*args, **kwargs).arguments
        )
        arguments.update(arguments.pop("kwargs", {}))
        labelled = "y" in signature.parameters
        x, y, weights = (arguments.get(name) for name in _DATA)
        first = x[0] if isinstance(x, list | np.ndarray) and len(x) else x
        require(
            not isinstance(first, str),
            f"{type(self).__name__} reads token ids, got strings: give it "
            "tokenizer(texts), or put a TextPreprocessor before it.",
        )
        if arguments.get("class_weight") and self._labels().outputs:
            (x, y), arguments["class_weight"] = self._labels().class_weighted(
                x, y, arguments["class_weight"]
            )
        data = self._checked_arrays(x, y, weights, labelled=labelled)
        arguments.update(
            (name, value)
            for name, value in zip(_DATA, data, strict=True)
            if value is not None
        )
        others = arguments.get("validation_data")
        if isinstance(others, tuple | list | Mapping):
            others = keras.utils.unpack_x_y_sample_weight(others)
            arguments["validation_data"] = self._checked_arrays(*others)
        return method(**arguments)

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
        self.checked(x, in_graph=False)
        is_plain = y is not None or sample_weight is None
        if not (labelled and self._labels().outputs) or (
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
        return self._labels().by_name(x, y or {}, sample_weight)

    def predict_step(self, *args: Any) -> Any:
        """Returns the outputs of Keras' step, for `predict`.

        It keeps those of all batches: not the states of all tokens, unless
        there are no heads.
        """
        made = super().predict_step(*args)
        outputs = made[0] if isinstance(made, tuple) else made
        if self.head_names and isinstance(outputs, dict):
            outputs.pop("sequence_output", None)
        return made

    def _is_on_one_device(self) -> bool:
        # Only models on TensorFlow have this attribute.
        strategy = getattr(self, "distribute_strategy", None)
        return strategy is None or strategy.num_replicas_in_sync == 1

    def check_batch(
        self, x: Any, y: Any, sample_weight: Any, *, labelled: bool
    ) -> None:
        """Raises UserError for values out of range; see `CheckedSteps`."""
        is_own = not (isinstance(x, Mapping) and "input_ids" in x)
        if is_own or not self._is_on_one_device():
            return
        shapes = [
            v.shape for v in keras.tree.flatten((x, y)) if hasattr(v, "shape")
        ]
        require(
            all(getattr(shape, "rank", 0) is not None for shape in shapes),
            "The batches do not say how many axes their features and labels "
            "have: divide the data set by .batch(), and after tf.py_function "
            "name the shape, as tf.ensure_shape(input_ids, (None, None)) does. "
            "Keras forgets it of arrays, too, where labels have another number "
            "of axes than in an earlier call: compile() again, or give both "
            "the same.",
        )
        self.checked(dict(x), in_graph=True)
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

        Raises:
            UserError: on several devices, for labels and weights that do not
                fit, and where there is no loss.
        """
        require(
            self._is_on_one_device(),
            "fit() trains on one device: with several it would weigh every "
            "replica alike. bin.pretrain and bin.finetune train on several "
            "with --strategy.",
        )
        if self._compile_loss is not None:
            self._refuse_probabilities()
            compared = self._for_keras(
                x, y, y_pred, sample_weight, weighted=True
            )
            return super().compute_loss(x, *compared, training=training)
        require(
            not self.compiled
            or not self._compile_config.config["loss_weights"],
            "loss_weights weigh losses that compile() is given, and it was "
            "given none; give it a loss for each of these outputs.",
        )
        losses = [ops.sum(loss) for loss in self.losses]
        require(
            bool(losses or self._labels().outputs),
            f"{type(self).__name__} has no head with a loss: give compile() "
            "one, or train another model class, embeddings by "
            "bin.train_embeddings.",
        )
        labels, weights = self._labels().in_range(x, y, sample_weight, y_pred)
        pairs: list[WeightedSum] = []
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

    def _refuse_probabilities(self) -> None:
        """Raises UserError for a loss of probabilities, as Keras' are.

        The heads give logits, which it would clip to the range from 0 to 1.
        """
        outputs = self._labels().outputs.values()
        of_numbers = all(not own.num_classes for _, own in outputs)
        for loss in keras.tree.flatten(self._compile_config.config["loss"]):
            name = loss if isinstance(loss, str) else None
            name = name or getattr(loss, "__name__", type(loss).__name__)
            require(
                not _takes_probabilities(loss, of_numbers=of_numbers),
                f"The loss {name} takes probabilities, and the model gives "
                "logits: give compile() a loss with from_logits=True, as "
                "CategoricalCrossentropy(from_logits=True) for one-hot labels, "
                "or none, for the model's own.",
            )

    def compute_metrics(
        self, x: dict, y: object, y_pred: dict, sample_weight: object = None
    ) -> dict:
        """Returns the metrics of `compile`, for Keras' `fit`.

        Raises:
            UserError: for one of Keras' that does not fit an output.
        """
        if self._compile_metrics is not None:
            weighted = self._compile_config.config["weighted_metrics"]
            y, y_pred, sample_weight = self._for_keras(
                x, y, y_pred, sample_weight, weighted=bool(weighted)
            )
            outputs = self._labels().outputs
            if outputs and isinstance(y, Mapping):
                known = {name: own for name, (_, own) in outputs.items()}
                check_metrics(self._compile_metrics, y, y_pred, known)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _for_keras(
        self,
        x: dict,
        y: object,
        y_pred: dict,
        sample_weight: object,
        *,
        weighted: bool,
    ) -> tuple[object, dict, object]:
        """Returns labels, predictions and weights of outputs that have a label.

        `[batch]` becomes `[batch, 1]`: Keras takes means over the last axis.
        Weights are left out where nothing is `weighted`.
        """
        known = self._labels()
        if not known.outputs and not isinstance(y, Mapping):
            return y, y_pred, sample_weight
        labels, weights = known.of_batch(x, y, sample_weight)
        if not isinstance(self.loss, Mapping):
            known.require_all(labels)
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
        if not weighted or not weights:
            return labels, predicted, None
        spread = {
            output: _of_vectors(output, weights[output], predicted[output])
            for output in weights.keys() & labels.keys()
        }
        return labels, predicted, dict.fromkeys(labels) | spread

    def _used_labels(
        self, x: Mapping, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, in range for heads' losses."""
        if (
            self._compile_loss is None
            and self._labels().outputs
            and not self._has_own_step()
        ):
            return self._labels().in_range(x, y, sample_weight)
        return self._labels().of_batch(x, y, sample_weight)


def _of_vectors(output: str, weights: Any, predicted: Tensor) -> Tensor:
    """Returns a weight for each vector of an output, as Keras' losses have."""
    require(
        tuple(weights.shape) != tuple(predicted.shape)
        or predicted.shape[-1] == 1,
        f"The loss and the weighted_metrics of compile() weigh whole examples "
        f"of {output}, not each of its labels: give one weight for each "
        "example, or compile() no loss, and its metrics as metrics.",
    )
    return broadcast_weights(weights, predicted[..., 0])


def _takes_probabilities(loss: Any, *, of_numbers: bool) -> bool:
    """Returns whether a loss of Keras is of probabilities, or of rates."""
    if isinstance(loss, str):
        if loss in ("crossentropy", "ce"):  # Keras chooses by the shapes.
            return True
        loss = keras.losses.get(loss)
    kind = loss if inspect.isfunction(loss) else type(loss)
    if kind in _OF_PROBABILITIES:
        return True
    if kind in (keras.losses.Poisson, keras.losses.poisson):
        return not of_numbers
    of_logits = getattr(loss, "from_logits", None)
    if inspect.isfunction(loss):
        parameter = inspect.signature(loss).parameters.get("from_logits")
        of_logits = parameter and parameter.default
    return of_logits is False
