"""Models: the encoder with the heads of a job, one class per job."""

import inspect
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np
from keras import ops

from albert_tf.config import ModelConfig, UserError, to_dict
from albert_tf.io import files
from albert_tf.modeling.dropout import fold_in
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import END_NEEDS_START, HEADS, Head, Label
from albert_tf.modeling.inputs import ENCODER_INPUTS, checked_features, in_range
from albert_tf.modeling.layers import (
    as_model_config,
    serializable,
    states_at,
)
from albert_tf.modeling.losses import spread_weights
from albert_tf.modeling.weights import pretrained
from albert_tf.modeling.weights.names import fill_model, heads_in

# The stream of dropout keys that heads use; the encoder's sites count from 0.
_HEAD_SITE = 1 << 20


@serializable
class AlbertModel(keras.Model):
    """The encoder, and in the classes made from this one the heads of a job.

    Weights exist as soon as a model is made. Called with a dictionary of
    features it returns a dictionary of outputs; `compile(optimizer)` and
    `fit` on batches that hold the labels minimise the heads' losses.

    Attributes:
        head_names: the rows of HEADS that sit on the encoder.
        config: the architecture.
        encoder: the AlbertEncoder.
    """

    head_names: tuple[str, ...] = ()

    def __init__(
        self,
        config: ModelConfig | Mapping,
        num_labels: int | None = None,
        *,
        labels: Sequence[str] | None = None,
        pooler: bool = True,
        remat: str = "none",
        head_options: Mapping[str, int] | None = None,
        name: str = "albert",
        **kwargs: object,
    ) -> None:
        """Makes the layers and their weights.

        Args:
            config: the architecture.
            num_labels: classes, for models that classify.
            labels: their names, by default LABEL_0, LABEL_1 and so on.
            pooler: whether the encoder has a pooled output; needed by the
                heads that read it.
            remat: "none", "selective" or "full": whether training keeps less
                and computes more, see AlbertEncoder.
            head_options: other arguments of the heads (`start_n_top`).
            name: the model's name.
            **kwargs: as any Keras model's; `dtype` for mixed precision.

        Raises:
            UserError: when the labels or the pooler do not fit the heads.
        """
        super().__init__(name=name, **kwargs)
        self.config = as_model_config(config)
        self.labels = self._checked_labels(num_labels, labels)
        self.head_options = self._checked_options(head_options or {})
        self.remat = remat
        self.encoder = AlbertEncoder(
            self.config, pooler=pooler, remat=remat, dtype=self.dtype_policy
        )
        for head_name in self.head_names:
            kind = HEADS[head_name]
            if kind.reads == "pooled_output" and not pooler:
                raise UserError(
                    f"{type(self).__name__} needs a pooler: its head "
                    f"{head_name} reads the pooled output."
                )
            given = {"num_labels": self.num_labels, **self.head_options}
            options = {n: given[n] for n in kind.options if n in given}
            setattr(
                self,
                head_name,
                kind(
                    self.config,
                    name=head_name,
                    dtype=self.dtype_policy,
                    **options,
                ),
            )
        self.build()

    def _checked_labels(
        self, num_labels: int | None, labels: Sequence[str] | None
    ) -> list[str] | None:
        """Returns the names of the classes, None where there are none."""
        kind = type(self).__name__
        if not self.takes_labels():
            if num_labels is not None or labels is not None:
                raise UserError(
                    f"{kind} has no classes; num_labels={num_labels!r} and "
                    f"labels={labels!r} have no place in it."
                )
            return None
        if labels is None:
            if type(num_labels) is not int or num_labels < 1:
                raise UserError(
                    f"{kind} needs num_labels, a number of classes; it is "
                    f"{num_labels!r}."
                )
            return [f"LABEL_{number}" for number in range(num_labels)]
        if num_labels not in (None, len(labels)):
            raise UserError(
                f"num_labels={num_labels!r} and {len(labels)} labels do not "
                "agree."
            )
        if not labels or len(set(labels)) < len(labels) or not all(labels):
            raise UserError(
                f"labels={list(labels)} must be names, all different."
            )
        return list(labels)

    def _checked_options(self, options: Mapping[str, int]) -> dict[str, int]:
        """Returns the arguments of the heads, all known and positive."""
        known = {
            option
            for name in self.head_names
            for option in HEADS[name].options
            if option != "num_labels"
        }
        for name, value in options.items():
            if name not in known:
                raise UserError(
                    f"{type(self).__name__} has no head option {name!r}; "
                    f"it has {', '.join(sorted(known)) or 'none'}."
                )
            if type(value) is not int or value < 1:
                raise UserError(
                    f"The head option {name}={value!r} must be a whole "
                    "number from 1."
                )
        return dict(options)

    @property
    def num_labels(self) -> int | None:
        """The number of classes, if the model has any."""
        return len(self.labels) if self.labels else None

    @classmethod
    def takes_labels(cls) -> bool:
        """Returns whether the model has a number of classes."""
        return any("num_labels" in HEADS[n].options for n in cls.head_names)

    @property
    def heads(self) -> dict[str, Head]:
        """The heads by name."""
        return {name: getattr(self, name) for name in self.head_names}

    def build(self, input_shape: object = None) -> None:
        """Creates every weight."""
        for layer in self.layers:
            if not layer.built:
                layer.build(None)
        self.built = True

    def encode(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
        **options: object,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the encoder's outputs for a dictionary of features.

        Inputs `[batch, choices, seq]` are read as batch * choices sequences,
        each with a key of its own.

        Raises:
            UserError: when they are not what the model reads.
        """
        features = self._checked(features, (), in_graph=not training)
        return self._encode(features, dropout_keys, training, **options)

    def _encode(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None,
        training: bool,
        **options: object,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the encoder's outputs for features that are checked."""
        inputs = [features[name] for name in ENCODER_INPUTS]
        if len(inputs[0].shape) == 3:
            inputs = [
                ops.reshape(value, (-1, ops.shape(value)[-1]))
                for value in inputs
            ]
        return self.encoder(
            *inputs, dropout_keys=dropout_keys, training=training, **options
        )

    def call(
        self,
        features: dict[str, keras.KerasTensor],
        dropout_keys: keras.KerasTensor | None = None,
        training: bool = False,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
        heads_only: bool = False,
        num_applications: int | None = None,
    ) -> dict[str, keras.KerasTensor]:
        """Returns the outputs of the encoder and of every head.

        Args:
            features: `input_ids`, `input_mask`, `segment_ids` `[batch, seq]`
                and what the heads read (see heads.py). Without a mask all
                are tokens; without segments all are of the first.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout);
                the choices of an example are dropped differently.
            training: whether dropout is on.
            output_hidden_states: see AlbertEncoder.
            output_attentions: see AlbertEncoder.
            heads_only: whether to return the heads' outputs alone. They are
                the same, but the last block computes only the positions
                that heads read: less work where none reads all.
            num_applications: see AlbertEncoder.

        Returns:
            `sequence_output` `[batch, seq, H]`, `pooled_output`
            `[batch, H]`, and the outputs that the heads name.

        Raises:
            UserError: when the features are not what the model reads, more
                than the heads' outputs is asked for with heads_only, or more
                applications than there are.
        """
        features = self._checked(
            features, self._features_of_heads(), in_graph=not training
        )
        if heads_only:
            self._check_heads_only(output_hidden_states, output_attentions)
        places = self._places_read(features)
        read_positions = None
        if heads_only and self.reads_places_only():
            read_positions = _side_by_side(places, features)
        if dropout_keys is not None and len(features["input_ids"].shape) == 3:
            dropout_keys = _keys_of_choices(dropout_keys, features)
        outputs = self._encode(
            features,
            dropout_keys,
            training,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
            read_positions=read_positions,
            num_applications=num_applications,
        )
        head_keys = None
        if dropout_keys is not None:
            head_keys = fold_in(dropout_keys, _HEAD_SITE)
        encoded = {
            **outputs,
            **_states_read(outputs, places),
            "word_embeddings": self.encoder.embeddings.word_embeddings,
        }
        given = {} if heads_only else outputs
        for head in self.heads.values():
            given.update(
                head(
                    encoded,
                    features,
                    dropout_keys=head_keys,
                    training=training,
                )
            )
        return given

    def _check_heads_only(self, hidden_states: bool, attentions: bool) -> None:
        if not self.head_names:
            raise UserError(
                f"{type(self).__name__} has no heads; heads_only would leave "
                "nothing."
            )
        if hidden_states or attentions:
            raise UserError(
                "heads_only leaves out output_hidden_states and "
                "output_attentions; ask for one or the other."
            )

    def reads_places_only(self) -> bool:
        """Returns whether no head reads the states of all positions.

        Then the last block computes only what heads read.
        """
        return all(h.reads != "sequence_output" for h in self.heads.values())

    def _places_read(
        self, features: dict[str, keras.KerasTensor]
    ) -> dict[str, keras.KerasTensor]:
        """Returns the positions `[batch, n]` that heads read, by feature."""
        return {
            head.reads: ops.cast(features[head.reads], "int32")
            for head in self.heads.values()
            if head.reads in head.features
        }

    def _features_of_heads(self) -> tuple[str, ...]:
        """Returns the features of the heads beside the encoder's inputs."""
        return sum((head.features for head in self.heads.values()), ())

    def _learnt(self) -> dict[str, tuple[Head, Label]]:
        """Returns the outputs that heads learn, each with its label."""
        return {
            label.output: (head, label)
            for head in self.heads.values()
            for label in head.labels
        }

    def _checked(
        self, features: dict, needed: tuple[str, ...], in_graph: bool
    ) -> dict:
        """Returns the features with defaults, see `checked_features`."""
        known = {
            name
            for head, label in self._learnt().values()
            for name in (label.name, head.label_weights)
        }
        return checked_features(
            features,
            self.config,
            needed=needed,
            known=known.union(self._features_of_heads()),
            in_graph=in_graph,
        )

    def fit(self, *args: object, **kwargs: object) -> object:
        """Trains as any Keras model's `fit`; arrays are checked before."""
        self._check_arrays(super().fit, args, kwargs)
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: object, **kwargs: object) -> object:
        """Evaluates as any Keras model; arrays are checked before."""
        self._check_arrays(super().evaluate, args, kwargs)
        return super().evaluate(*args, **kwargs)

    def predict(self, *args: object, **kwargs: object) -> object:
        """Predicts as any Keras model; arrays are checked before."""
        self._check_arrays(super().predict, args, kwargs)
        return super().predict(*args, **kwargs)

    def _check_arrays(
        self, method: Callable, args: tuple, kwargs: Mapping
    ) -> None:
        """Checks the arrays that one of Keras' loops is given.

        Under XLA and on JAX nothing can check them later.

        Raises:
            UserError: naming the value that is wrong.
        """
        given = inspect.signature(method).bind(*args, **kwargs).arguments
        x, y = given.get("x"), given.get("y")
        if given.get("class_weight") and any(
            head.label_weights != "example_weights"
            for head in self.heads.values()
        ):
            raise UserError(
                "class_weight weighs examples of one label; "
                f"{type(self).__name__} has many labels in an example. Give "
                "their weights as sample_weight, in the shape of the labels."
            )
        if not isinstance(x, Mapping):
            return
        arrays = {n: v for n, v in x.items() if isinstance(v, np.ndarray)}
        if len(arrays) < len(x):
            return
        self._checked(arrays, self._features_of_heads(), in_graph=False)
        trains = self._compile_loss is None and self._learnt()
        if trains and method.__name__ != "predict":
            self._labels_in_range(x, y, given.get("sample_weight"))

    def compute_loss(
        self,
        x: dict | None = None,
        y: object = None,
        y_pred: dict | None = None,
        sample_weight: object = None,
        training: bool = True,
    ) -> keras.KerasTensor:
        """Returns the loss and the layers' own losses, for Keras' `fit`.

        The sum of the heads' mean losses, unless `compile` was given a loss.
        Labels and weights are taken from `y` and `sample_weight`, by the name
        of the label or of the output that learns it, or without a name where
        there is one label; or from the features.

        Raises:
            UserError: when nothing trains the model, or a label is missing,
                unknown or out of range.
        """
        # On TensorFlow; other backends have no such attribute.
        strategy = getattr(self, "distribute_strategy", None)
        if strategy is not None and strategy.num_replicas_in_sync > 1:
            raise UserError(
                "fit() trains on one device: with several it would weigh "
                "every replica alike. bin.pretrain and bin.finetune train on "
                "several with --strategy."
            )
        if training:
            # `call` leaves values alone in a graph that trains.
            self._checked(x, self._features_of_heads(), in_graph=True)
        if self._compile_loss is not None:
            compared = self._compared(x, y, y_pred, sample_weight)
            return super().compute_loss(x, *compared, training=training)
        if self.compiled and self._compile_config.config["loss_weights"]:
            raise UserError(
                "loss_weights weigh losses that compile() is given, and it "
                "was given none; give it a loss for each of these outputs."
            )
        losses = [ops.sum(loss) for loss in self.losses]
        if not losses and not self._learnt():
            raise UserError(
                f"{type(self).__name__} has no head with a loss; give "
                "compile() one, or train another model class."
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
        if self._compile_metrics is not None:
            y, y_pred, sample_weight = self._compared(
                x, y, y_pred, sample_weight
            )
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _compared(
        self, x: dict, y: object, y_pred: dict, sample_weight: object
    ) -> tuple[object, dict, object]:
        """Returns labels, predictions and weights as Keras compares them.

        By output, and only those that have a label. `[batch]` becomes
        `[batch, 1]`, since Keras takes means over the last axis.

        Raises:
            UserError: when a label or an output is missing.
        """
        learnt = self._learnt()
        if not learnt and not isinstance(y, Mapping):
            return y, y_pred, sample_weight
        labels, weights = self._labels(x, y, sample_weight)
        if not isinstance(self.loss, Mapping):
            self._require_labels(labels)
        if "end_logits" in labels and "end_logits" not in y_pred:
            raise UserError(END_NEEDS_START)
        predicted = {output: y_pred[output] for output in labels}
        for output, value in predicted.items():
            if len(value.shape) == 1:
                predicted[output] = ops.expand_dims(value, -1)
                if len(labels[output].shape) == 1:
                    labels[output] = ops.expand_dims(labels[output], -1)
        if not weights:
            return labels, predicted, None
        spread = dict.fromkeys(labels)
        for output in weights.keys() & labels.keys():
            # Keras' losses have a value for each vector of the output.
            spread[output] = spread_weights(
                weights[output], predicted[output][..., 0]
            )
        return labels, predicted, spread

    def _labels(
        self, x: dict, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output.

        Weights in the features and `sample_weight` are multiplied.

        Raises:
            UserError: when `y` or `sample_weight` do not fit the outputs.
        """
        learnt = self._learnt()
        x = dict(x)
        for head in self.heads.values():
            if isinstance(y, Mapping) and head.label_weights in y:
                y = dict(y)
                x[head.label_weights] = y.pop(head.label_weights)
        labels, weights = {}, {}
        for output, (head, label) in learnt.items():
            if label.name in x:
                labels[output] = x[label.name]
            if head.label_weights in x:
                weights[output] = x[head.label_weights]
        if isinstance(y, Mapping):
            labels.update(self._by_output(y, "y"))
        elif y is not None and len(learnt) != 1:
            raise UserError(
                f"{type(self).__name__} has {len(learnt)} labels; give y by "
                f"name: {', '.join(label.name for _, label in learnt.values())}"
            )
        elif y is not None:
            labels[next(iter(learnt))] = y
        if isinstance(sample_weight, Mapping):
            given = self._by_output(sample_weight, "sample_weight")
        elif sample_weight is not None:
            given = dict.fromkeys(labels, sample_weight)
        else:
            given = {}
        for output, value in given.items():
            if value is not None and output in weights and output in labels:
                value = spread_weights(value, labels[output])
                value *= spread_weights(weights[output], labels[output])
            if value is not None:
                weights[output] = value
        return labels, weights

    def _by_output(self, values: Mapping, what: str) -> dict:
        """Returns values by output that are named by output or by label."""
        learnt = self._learnt()
        outputs = {label.name: name for name, (_, label) in learnt.items()}
        known = {"sequence_output", "pooled_output", *learnt, *outputs}
        for head in self.heads.values():
            known.update(head.outputs)
        for name in values:
            if name not in known:
                raise UserError(
                    f"{what} has {name!r}, which {type(self).__name__} does "
                    f"not know; it has {', '.join(sorted(known))}."
                )
        return {outputs.get(name, name): v for name, v in values.items()}

    def _require_labels(self, labels: dict) -> None:
        for output, (head, label) in self._learnt().items():
            if output not in labels:
                raise UserError(
                    f"The batch has no {label.name}, which the loss of the "
                    f"head {head.name} needs."
                )

    def _labels_in_range(
        self, x: dict, y: object, sample_weight: object
    ) -> tuple[dict, dict]:
        """Returns labels and weights by output, classes that there are.

        A label that weighs nothing may be anything.

        Raises:
            UserError: when a label is missing, or known and out of range.
        """
        labels, weights = self._labels(x, y, sample_weight)
        self._require_labels(labels)
        for output, (head, label) in self._learnt().items():
            if label.classes is None:
                continue
            kept = None
            if output in weights:
                kept = spread_weights(weights[output], labels[output]) > 0
            labels[output] = in_range(
                label.name,
                labels[output],
                label.classes(head, ops.shape(x["input_ids"])),
                f"classes of the head {head.name}",
                kept=kept,
            )
        return labels, weights

    def export(
        self,
        filepath: str,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: object = None,
        **kwargs: object,
    ) -> None:
        """Exports the model as Keras does, by default for any batch and length.

        Keras itself would take the length of the first call, and numbers for
        token ids in the type that the layers compute in.
        """
        if input_signature is None:
            read = [n for head in self.heads.values() for n in head.features]
            axes = dict.fromkeys((*ENCODER_INPUTS, *read), 2)
            if "multiple_choice" in self.head_names:
                axes |= dict.fromkeys(ENCODER_INPUTS, 3)
            input_signature = [
                {
                    name: keras.InputSpec("int32", (None,) * number, name=name)
                    for name, number in axes.items()
                }
            ]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": to_dict(self.config),
            "labels": self.labels,
            "pooler": self.encoder.pooler is not None,
            "remat": self.remat,
            "head_options": dict(self.head_options),
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: object = None) -> object:
        """Returns the model that `get_config` described."""
        config = dict(config)
        config["dtype"] = keras.saving.deserialize_keras_object(config["dtype"])
        return cls(**config)

    @classmethod
    def from_pretrained(
        cls,
        directory: str,
        *,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        allow_missing: bool = False,
        **kwargs: object,
    ) -> "AlbertModel":
        """Returns the model in a directory, of ours or saved by transformers.

        A directory of another model class gives its encoder, and those of
        its heads that this class has too; what it has beside is left out.
        What is initialised or left out is printed.

        Args:
            directory: with `config.json` and `model.safetensors`.
            num_labels: classes of a new head; by default those of the file.
            labels: their names.
            allow_missing: whether weights that the directory has not may
                keep their initial values: a new head must be asked for.
            **kwargs: as the constructor's: `remat`, `dtype`.

        Raises:
            UserError: naming each weight that is missing, unexpected,
                misshapen or damaged.
        """
        description, stored = pretrained.read_model_files(directory)
        arguments = pretrained.constructor_arguments(description, stored)
        if description.kind != cls.__name__:
            arguments |= {"labels": None, "head_options": {}}
        if any(HEADS[n].reads == "pooled_output" for n in cls.head_names):
            # Where the file has none, it is missing like any other weight.
            arguments["pooler"] = True
        kept = arguments["labels"]
        if labels is not None or (
            num_labels is not None and num_labels != len(kept or ())
        ):
            arguments |= {"num_labels": num_labels, "labels": labels}
        model = cls(description.config, **{**arguments, **kwargs})
        said = MODELS[description.kind].head_names
        held = heads_in(stored, said)
        new_heads = [
            name
            for name in cls.head_names
            if model.heads[name].weights
            and (
                name not in held.union(said)
                or model.labels != description.labels
            )
        ]
        if new_heads and not allow_missing:
            raise UserError(
                f"{directory} holds an {description.kind} with the labels "
                f"{description.labels}; the {cls.__name__} with the labels "
                f"{model.labels} needs a new head {' and '.join(new_heads)}, "
                "which allow_missing=True initialises."
            )
        filled = fill_model(
            model,
            stored,
            new_heads=tuple(new_heads),
            drop_other_heads=bool(new_heads)
            or description.kind != cls.__name__,
            allow_missing=allow_missing,
        )
        for line in filled.lines():
            print(line, flush=True)
        return model

    def save_pretrained(self, directory: str) -> None:
        """Writes `config.json` and `model.safetensors`; others stay.

        `from_pretrained` and transformers open the directory.
        """
        if files.exists(directory) and not files.isdir(directory):
            raise UserError(f"{directory} is a file; name a directory.")
        with files.local_directory(
            directory, last=pretrained.CONFIG_FILE
        ) as place:
            pretrained.write_model_files(place, self, pretrained.describe(self))


def _side_by_side(
    places: dict[str, keras.KerasTensor],
    features: dict[str, keras.KerasTensor],
) -> keras.KerasTensor:
    """Returns positions `[batch, n]`, of all features in order."""
    if places:
        return ops.concatenate(list(places.values()), axis=1)
    ids = features["input_ids"]
    return ops.reshape(ids, (-1, ops.shape(ids)[-1]))[:, :0]


def _states_read(
    outputs: dict[str, keras.KerasTensor],
    places: dict[str, keras.KerasTensor],
) -> dict[str, keras.KerasTensor]:
    """Returns the states `[batch, n, H]` at the places, by feature."""
    if "sequence_output" in outputs:
        hidden = outputs["sequence_output"]
        return {name: states_at(hidden, at) for name, at in places.items()}
    found, start = {}, 0
    for name, positions in places.items():
        end = start + ops.shape(positions)[1]
        found[name] = outputs["read_output"][:, start:end]
        start = end
    return found


def _keys_of_choices(
    dropout_keys: keras.KerasTensor, features: dict[str, keras.KerasTensor]
) -> keras.KerasTensor:
    """Returns keys `[batch * choices]` for keys `[batch]`."""
    choices = features["input_ids"].shape[1]
    if choices is None:
        raise UserError(
            "Dropout keys need a known number of choices; input_ids have the "
            f"shape {list(features['input_ids'].shape)}."
        )
    keys = [fold_in(dropout_keys, number) for number in range(choices)]
    return ops.reshape(ops.stack(keys, axis=1), (-1,))


@serializable
class AlbertForPretraining(AlbertModel):
    """Masked language modelling and sentence order on one encoder."""

    head_names = ("masked_lm", "sentence_order")


@serializable
class AlbertForMaskedLM(AlbertModel):
    """Masked language modelling alone."""

    head_names = ("masked_lm",)


@serializable
class AlbertForClassification(AlbertModel):
    """One label for a text or a pair."""

    head_names = ("classification",)


@serializable
class AlbertForRegression(AlbertModel):
    """A number for a text or a pair."""

    head_names = ("regression",)


@serializable
class AlbertForMultipleChoice(AlbertModel):
    """The right one of several texts."""

    head_names = ("multiple_choice",)


@serializable
class AlbertForTokenClassification(AlbertModel):
    """A label for every token."""

    head_names = ("token_classification",)


@serializable
class AlbertForQuestionAnswering(AlbertModel):
    """The span of an answer, as in SQuAD 1.1."""

    head_names = ("span",)


@serializable
class AlbertForAnswerableQuestions(AlbertModel):
    """The span of an answer and whether there is one, as in SQuAD 2.0."""

    head_names = ("answerable_span",)


@serializable
class AlbertForSentenceEmbedding(AlbertModel):
    """A vector for a text."""

    head_names = ("sentence_embedding",)


# Every model class by its name, which a model directory records.
MODELS: dict[str, type[AlbertModel]] = {
    kind.__name__: kind
    for kind in (
        AlbertModel,
        AlbertForPretraining,
        AlbertForMaskedLM,
        AlbertForClassification,
        AlbertForRegression,
        AlbertForMultipleChoice,
        AlbertForTokenClassification,
        AlbertForQuestionAnswering,
        AlbertForAnswerableQuestions,
        AlbertForSentenceEmbedding,
    )
}


def model_class(head: str) -> type[AlbertModel]:
    """Returns the model class that has one head only, of this name."""
    (found,) = (kind for kind in MODELS.values() if kind.head_names == (head,))
    return found
