"""Models: the encoder with heads, one class per head and one of pretraining."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from albert_tf.config import ModelConfig, lookup, require, to_dict
from albert_tf.modeling.dropout import stream_keys
from albert_tf.modeling.encoder import AlbertEncoder
from albert_tf.modeling.heads import HEADS, Head
from albert_tf.modeling.heads.arguments import checked_options, class_names
from albert_tf.modeling.heads.pooling import (
    POOLED_OUTPUT,
    TEXT_VECTOR,
    encoder_output,
    text_vectors,
)
from albert_tf.modeling.inputs import ENCODER_INPUTS, checked_features
from albert_tf.modeling.kernels import states_at
from albert_tf.modeling.layer_changes import apply_layer_changes, layer_changes
from albert_tf.modeling.layers import Config, as_model_config, serializable
from albert_tf.modeling.pretrained_model import PretrainedModel

# The stream of dropout keys that heads use; the encoder's streams count from 0.
_HEAD_STREAM = 1 << 20
# The default name of a model; further ones have a number.
_NAME = "albert"
_DEFAULT_NAME = re.compile(rf"{_NAME}(_\d+)?")


def _new_name() -> str:
    """Returns a default name that no other model has."""
    number = keras.backend.get_uid(_NAME) - 1
    return f"{_NAME}_{number}" if number else _NAME


def _encoder_rows(features: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the encoder's inputs `[batch, seq]`, or `[batch * choices, seq]`.

    The choices of an example become rows of their own.
    """
    rows = {name: features[name] for name in ENCODER_INPUTS}
    if len(rows["input_ids"].shape) == 2:
        return rows
    return {
        name: ops.reshape(ids, (-1, ops.shape(ids)[-1]))
        for name, ids in rows.items()
    }


def _keys_of_rows(
    dropout_keys: Tensor | None, features: Mapping[str, Tensor]
) -> Tensor | None:
    """Returns keys `[batch]`, or of every choice `[batch * choices]`."""
    ids = features["input_ids"]
    if dropout_keys is None or len(ids.shape) == 2:
        return dropout_keys
    keys = [stream_keys(dropout_keys, number) for number in range(ids.shape[1])]
    return ops.reshape(ops.stack(keys, axis=1), (-1,))


def _states_at_positions(
    outputs: Mapping[str, Tensor], positions: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Returns the states `[batch, n, H]` at the positions of each feature."""
    if "sequence_output" in outputs:
        hidden = outputs["sequence_output"]
        return {name: states_at(hidden, at) for name, at in positions.items()}
    states, start = {}, 0
    for name, at in positions.items():
        end = start + ops.shape(at)[1]
        states[name] = outputs["read_output"][:, start:end]
        start = end
    return states


@serializable
class AlbertModel(PretrainedModel):
    """The encoder; subclasses add heads.

    Called with a dictionary of features it returns a dictionary of outputs;
    `compile(optimizer)` and `fit` on batches that hold the labels minimise the
    heads' losses. Weights exist as soon as a model is made.
    """

    # The rows of HEADS that sit on the encoder.
    head_names: tuple[str, ...] = ()

    def __init__(
        self,
        config: Config,
        num_labels: int | None = None,
        *,
        labels: Sequence[str] | None = None,
        pooler: bool = True,
        remat: str = "none",
        attention: str = "auto",
        head_options: Mapping[str, int | str] | None = None,
        name: str | None = None,
        **kwargs: object,
    ) -> None:
        """Makes the layers and their weights.

        Args:
            config: the architecture.
            num_labels: classes, for models that classify.
            labels: their names, by default LABEL_0, LABEL_1 and so on.
            pooler: whether the encoder has a pooled output.
            remat: activation checkpointing, see AlbertEncoder.
            attention: its form in training, see AlbertEncoder.
            head_options: other arguments of the heads (`start_n_top`;
                `pooling` of embeddings).
            name: of the model, with which the paths of its variables begin;
                by default `albert`, then `albert_1` and so on, all with paths
                that begin with `albert`.
            **kwargs: as any Keras model's; `dtype` for mixed precision.

        Raises:
            UserError: when the labels or the pooler do not fit the heads.
        """
        is_default = not name or bool(_DEFAULT_NAME.fullmatch(name))
        # Variables are made under the one default name, since checkpoints and
        # patterns know them by their paths. Then the model gets a name of its
        # own, which layers of one Functional model must have.
        super().__init__(name=_NAME if is_default else name, **kwargs)
        self.config = as_model_config(config)
        heads = self.head_classes()
        # Tuples: Keras wraps lists and dictionaries that a model has, and what
        # it wraps cannot be pickled for another process.
        self._class_names = self._checked_labels(num_labels, labels)
        options = checked_options(
            type(self).__name__, [*heads.values()], head_options or {}
        )
        self._head_options = tuple(options.items())
        self.remat, self.attention = remat, attention
        self.encoder = AlbertEncoder(
            self.config,
            pooler=pooler,
            remat=remat,
            attention=attention,
            dtype=self.dtype_policy,
        )
        for head_name, kind in heads.items():
            require(
                pooler
                or encoder_output(kind.reads, self.config) != POOLED_OUTPUT,
                f"{type(self).__name__} needs a pooler: its head {head_name} "
                "reads the pooled output.",
            )
            values: dict[str, Any] = {"num_labels": self.num_labels, **options}
            own = {n: values[n] for n in kind.options if n in values}
            head = kind(
                self.config, name=head_name, dtype=self.dtype_policy, **own
            )
            setattr(self, head_name, head)
        self.build()
        if is_default:
            self.name = name or _new_name()

    def _checked_labels(
        self, num_labels: int | None, labels: Sequence[str] | None
    ) -> tuple[str, ...] | None:
        heads = self.head_classes().values()
        return class_names(type(self).__name__, heads, num_labels, labels)

    @property
    def labels(self) -> list[str] | None:
        """Names of the classes, None where there are none; a copy."""
        return None if self._class_names is None else list(self._class_names)

    @labels.setter
    def labels(self, names: Sequence[str] | None) -> None:
        """Renames the classes; raises UserError for another number of them."""
        self._class_names = self._checked_labels(self.num_labels, names)

    @property
    def head_options(self) -> dict[str, int | str]:
        """Other arguments of the heads; a copy."""
        return dict(self._head_options)

    @property
    def num_labels(self) -> int | None:
        """The number of classes, if the model has any."""
        return len(self._class_names) if self._class_names else None

    @classmethod
    def head_classes(cls) -> dict[str, type[Head]]:
        """Returns the classes of the model's heads by name."""
        return {name: HEADS[name] for name in cls.head_names}

    @classmethod
    def takes_labels(cls) -> bool:
        """Returns whether the model has a number of classes to choose."""
        return any(head.takes_labels() for head in cls.head_classes().values())

    @classmethod
    def reads_pooled_output(cls, config: ModelConfig) -> bool:
        """Returns whether a head reads the pooled output of such an encoder."""
        return any(
            encoder_output(head.reads, config) == POOLED_OUTPUT
            for head in cls.head_classes().values()
        )

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
        features: dict[str, Tensor],
        dropout_keys: Tensor | None = None,
        training: bool = False,
        output_hidden_states: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Returns the encoder's outputs for a dictionary of features.

        Inputs `[batch, choices, seq]` are read as batch * choices sequences,
        of which each has a dropout key. `hidden_states` are among the outputs
        with `output_hidden_states`; other arguments are AlbertEncoder's.
        """
        features = self.checked(
            features,
            with_heads=False,
            in_graph=not training or dropout_keys is None,
        )
        outputs = self.encoder(
            _encoder_rows(features),
            dropout_keys=dropout_keys,
            training=training,
            **options,
        )
        if not output_hidden_states:
            del outputs["hidden_states"]
        return outputs

    def call(
        self,
        features: dict[str, Tensor],
        dropout_keys: Tensor | None = None,
        training: bool = False,
        heads_only: bool = False,
        num_applications: int | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> dict[str, Any]:
        """Returns the outputs of the encoder and of every head.

        Args:
            features: `input_ids`, `input_mask`, `segment_ids` `[batch, seq]`
                or `[batch, choices, seq]`, and the heads' features (see
                `Head.features`). Without a mask all are tokens; without
                segments all are of the first.
            dropout_keys: `[batch]` uint32 or None (see ExampleDropout);
                the choices of an example, whose number must then be known,
                are dropped differently.
            training: whether dropout is on.
            heads_only: whether to return the heads' outputs alone. They are
                the same, but the last block computes only the positions
                that heads read: less work where none reads all.
            num_applications: of blocks, see AlbertEncoder.
            output_attentions: whether to return `attentions`.
            output_hidden_states: whether to return `hidden_states`.

        Returns:
            The outputs that the heads name; without heads_only also
            `sequence_output` `[rows, seq, H]`, `pooled_output` `[rows, H]` if
            there is a pooler, and on request `hidden_states` and `attentions`,
            where rows is batch, or batch * choices.

        Raises:
            UserError: for features that do not fit, heads_only with other
                outputs, or more applications than there are.
        """
        features = self.checked(
            features, in_graph=not training or dropout_keys is None
        )
        rows = _encoder_rows(features)
        positions = self._positions_of_heads(features)
        read_positions = None
        if heads_only:
            self._check_heads_only(output_attentions or output_hidden_states)
            read_positions = self._positions_to_compute(rows, positions)
        dropout_keys = _keys_of_rows(dropout_keys, features)
        outputs = self.encoder(
            rows,
            dropout_keys=dropout_keys,
            training=training,
            read_positions=read_positions,
            num_applications=num_applications,
            output_attentions=output_attentions,
        )
        if not output_hidden_states:
            del outputs["hidden_states"]
        encoded = self._inputs_of_heads(outputs, rows, positions)
        found = {} if heads_only else outputs
        for head in self.heads.values():
            found |= head(
                encoded,
                features,
                dropout_keys=stream_keys(dropout_keys, _HEAD_STREAM),
                training=training,
            )
        return found

    def checked(
        self, features: dict, *, in_graph: bool, with_heads: bool = True
    ) -> dict:
        """Returns the features with defaults, see `checked_features`.

        Those of the encoder alone unless `with_heads`.
        A graph that trains with dropout keys asserts nothing in `call`: the
        input pipeline has checked its batches.
        """
        return checked_features(
            features,
            self.config,
            needed=self.features_of_heads() if with_heads else (),
            positions=self.position_features() if with_heads else (),
            known=self._labels().names().union(self.features_of_heads()),
            in_graph=in_graph,
        )

    def features_of_heads(self) -> tuple[str, ...]:
        """Returns the heads' features beside the encoder's inputs."""
        return sum((head.features for head in self.heads.values()), ())

    def position_features(self) -> list[str]:
        """Returns the features that are positions, whose states heads read."""
        return [
            head.reads
            for head in self.heads.values()
            if head.reads in head.features
        ]

    def _check_heads_only(self, returns_others: bool) -> None:
        require(
            bool(self.head_names and not returns_others),
            "heads_only returns the outputs of heads only, which "
            f"{type(self).__name__} must have, without output_hidden_states "
            "and output_attentions.",
        )

    def _positions_to_compute(
        self, rows: Mapping[str, Tensor], positions: Mapping[str, Tensor]
    ) -> Tensor | None:
        """Returns `read_positions` of the encoder; None: it computes all.

        Without positions to read the pooler's first one is left.
        """
        if not self.reads_positions_only():
            return None
        none = ops.cast(rows["input_ids"][:, :0], "int32")
        return ops.concatenate([none, *positions.values()], axis=1)

    def _positions_of_heads(
        self, features: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Returns the positions `[batch, n]` that heads read, by feature."""
        return {
            name: ops.cast(features[name], "int32")
            for name in self.position_features()
        }

    def _inputs_of_heads(
        self,
        outputs: Mapping[str, Tensor],
        rows: Mapping[str, Tensor],
        positions: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """Returns the inputs that heads choose from, by `Head.reads`."""
        encoded = {
            **outputs,
            **_states_at_positions(outputs, positions),
            "word_embeddings": self.encoder.embeddings.word_embeddings,
        }
        if any(head.reads == TEXT_VECTOR for head in self.heads.values()):
            encoded |= text_vectors(self.config, outputs, rows)
        return encoded

    def compute_output_spec(
        self, features: dict, *args: object, **kwargs: object
    ) -> dict:
        """Returns the outputs' shapes and types, for Keras.

        Raises:
            UserError: for features that do not fit.
        """
        # Here they are the user's; in the call there are stand-ins for them.
        self.checked(features, in_graph=False)
        return super().compute_output_spec(features, *args, **kwargs)

    def reads_positions_only(self) -> bool:
        """Returns whether no head reads the states of all positions."""
        return all(
            encoder_output(head.reads, self.config) != "sequence_output"
            for head in self.heads.values()
        )

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "config": to_dict(self.config),
            "labels": self.labels,
            "pooler": self.encoder.pooler is not None,
            "remat": self.remat,
            "attention": self.attention,
            "head_options": self.head_options,
            "changed_layers": layer_changes(self),
        }

    @classmethod
    def from_config(
        cls, config: Mapping, custom_objects: Mapping | None = None
    ) -> "AlbertModel":
        """Returns the model that `get_config` describes."""
        arguments = dict(config)
        # Files of earlier versions have none.
        changes = arguments.pop("changed_layers", {})
        model = super().from_config(arguments, custom_objects)
        apply_layer_changes(model, changes)
        return model


@functools.cache
def _class_with_head(head: type[Head]) -> type[AlbertModel]:
    attributes = {
        "__doc__": f"The encoder with a {head.__name__}.",
        "__module__": __name__,
        "head_names": (head.head_name,),
    }
    return serializable(type(head.model_name, (AlbertModel,), attributes))


def model_class(head: str) -> type[AlbertModel]:
    """Returns the model class with one head, a row of HEADS.

    Raises:
        UserError: for another name, and a row without a `model_name` of its
            own, or that reads what the encoder does not give.
    """
    row = lookup(HEADS, head, "head")
    allowed = (POOLED_OUTPUT, TEXT_VECTOR, "sequence_output", *row.features)
    require(
        row.reads in allowed,
        f"{row.__name__}.reads={row.reads!r} is none of {', '.join(allowed)}.",
    )
    others = [h.model_name for h in HEADS.values() if h is not row]
    require(
        row.model_name not in ("", "AlbertModel", *others),
        f"{row.__name__}.model_name={row.model_name!r}: expected the name of a "
        "model class that no other head has, by which files name it.",
    )
    return _class_with_head(row)  # type: ignore[arg-type]


@serializable
class AlbertForPretraining(AlbertModel):
    """Masked language modelling and sentence order on one encoder."""

    head_names = ("masked_lm", "sentence_order")


AlbertForMaskedLM = model_class("masked_lm")
AlbertForClassification = model_class("classification")
AlbertForMultiLabelClassification = model_class("multi_label")
AlbertForRegression = model_class("regression")
AlbertForMultipleChoice = model_class("multiple_choice")
AlbertForTokenClassification = model_class("token_classification")
AlbertForQuestionAnswering = model_class("span")
AlbertForAnswerableQuestions = model_class("answerable_span")
AlbertForSentenceEmbedding = model_class("sentence_embedding")


def models() -> dict[str, type[AlbertModel]]:
    """Returns every model class by its name, which config.json records."""
    kinds = [AlbertModel, AlbertForPretraining]
    kinds += [model_class(n) for n, head in HEADS.items() if head.model_name]
    return {kind.__name__: kind for kind in kinds}
