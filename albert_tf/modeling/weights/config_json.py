"""A model's `config.json`, in the form that transformers reads.

The section `albert_tf` holds what transformers has no settings for. It copies
the section into what it saves, whatever has become of the model there, so the
rest of the file decides, and the section adds to it where both agree.
"""

import dataclasses
from collections.abc import Mapping

import keras

from albert_tf.config import (
    ModelConfig,
    UserError,
    from_dict,
    lookup,
    require,
    setting_fields,
    shown,
    to_dict,
)
from albert_tf.modeling.heads import HEADS, Head
from albert_tf.modeling.weights.names import check_groups, file_groups

# Settings of the shapes and of the attention heads. A file must have them:
# others take other defaults, and no shape shows the number of attention heads.
_ARCHITECTURE = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# Settings that transformers has no name for.
_NOT_THEIRS = ("sharing", "pooling", "always_project_embeddings")
# The pooling of transformers, which a file does not name.
_POOLING = "first"
# The most labels without names.
_MAX_LABELS = 1 << 16
# Our activations by Hugging Face's names, whose "gelu" is the exact form;
# Google's is the tanh form.
_ACTIVATIONS = {
    **dict.fromkeys(("gelu_pytorch_tanh", "gelu_fast"), "gelu"),
    **dict.fromkeys(("gelu_accurate", "gelu_python_tanh"), "gelu"),
    # This is written for "gelu".
    "gelu_new": "gelu",
    "gelu_python": "gelu_exact",
    "gelu": "gelu_exact",
    "relu": "relu",
}
# Ids of [PAD], [CLS] and [SEP] in the released vocabularies.
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


def _model_heads() -> dict[str, type[Head]]:
    """Returns the head of every model class that has one, by class name."""
    return {h.model_name: h for h in HEADS.values() if h.model_name}


def transformers_models(config: ModelConfig) -> dict[str, str]:
    """Returns the class in transformers for each model class here."""
    return {
        "AlbertModel": "AlbertModel",
        "AlbertForPretraining": "AlbertForPreTraining",
        **{
            name: head.class_in_transformers(config)
            for name, head in _model_heads().items()
        },
    }


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """The contents of a `config.json`.

    A checkpoint's is derived from its configuration and its weights.

    Attributes:
        kinds: the names of the model classes that it may be, see
            `models.models`; a `config.json` names one. None where only the
            encoder can be read.
        config: the architecture.
        max_seq_length: longest text the model was trained on, in tokens.
        labels: names of the classes of a model that has any, else None.
        head_options: other arguments of the heads.
        ours: whether the section of this project describes this model.
        fault: why the head cannot be read, where there is no kind.
    """

    kinds: tuple[str, ...]
    config: ModelConfig
    max_seq_length: int
    labels: list[str] | None = None
    head_options: Mapping[str, int | str] = dataclasses.field(
        default_factory=dict
    )
    ours: bool = True
    fault: str = ""

    def require_kind(self) -> None:
        """Raises UserError where the head cannot be read."""
        require(bool(self.kinds), self.fault)

    @property
    def heads(self) -> set[str]:
        """The heads of the model classes."""
        heads = {
            name: {head.head_name} for name, head in _model_heads().items()
        }
        heads["AlbertForPretraining"] = {"masked_lm", "sentence_order"}
        return set().union(*(heads.get(kind, ()) for kind in self.kinds))


def to_json(
    model: keras.Model,
    max_seq_length: int,
    *,
    special_ids: Mapping[str, int] = SPECIAL_IDS,
    own_settings: bool = True,
) -> dict:
    """Returns a `config.json` that transformers and this project read.

    `own_settings` adds the settings that transformers lacks.
    """
    config, kind = model.config, type(model).__name__
    head = _model_heads().get(kind)
    values = {
        "architectures": [
            lookup(transformers_models(config), kind, "model class")
        ],
        "model_type": "albert",
        **{
            name: getattr(config, name)
            for name in setting_fields(config)
            if name not in _NOT_THEIRS
        },
        **special_ids,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if own_settings:
        values["albert_tf"] = {
            "model": kind,
            "sharing": config.sharing,
            "num_hidden_groups": config.num_hidden_groups,
            "max_seq_length": max_seq_length,
            "head_options": dict(model.head_options),
        }
        if config.pooling != _POOLING:
            values["albert_tf"]["pooling"] = config.pooling
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    values["hidden_act"] = theirs[config.hidden_act]
    values["num_hidden_groups"] = file_groups(config)
    labels = model.labels
    problem = head and head.problem_type
    if problem == "regression":
        # transformers takes the number of outputs from the labels.
        labels = ["LABEL_0"]
    if labels:
        values["id2label"] = {str(n): name for n, name in enumerate(labels)}
        values["label2id"] = {name: n for n, name in enumerate(labels)}
    if problem:
        values["problem_type"] = problem
    return values


def from_json(values: dict, path: str) -> ModelDescription:
    """Returns the contents of a `config.json`; errors name its `path`.

    A head that is unknown here leaves the encoder to be read.
    """
    own = values.get("albert_tf", {})
    require(
        isinstance(own, dict),
        f"{path}: albert_tf={shown(own)} is not an object.",
    )
    config = _with_pooling(
        _config_from_json(values, own, path), values, own, path
    )
    kinds: tuple[str, ...] = ()
    labels, fault = None, ""
    try:
        kind = _kind_of(values, own, config, path)
        labels = _labels_of(kind, values, path)
        kinds = (kind,)
    except UserError as error:
        fault = str(error)
    options = own.get("head_options", {})
    require(
        isinstance(options, dict),
        f"{path}: head_options={shown(options)} must be an object.",
    )
    limit = config.max_position_embeddings
    length = own.get("max_seq_length", limit)
    require(
        type(length) is int and length >= 3,
        f"{path}: max_seq_length={shown(length)} must be a whole number from "
        "3.",
    )
    pooling = own.get("pooling", _POOLING)
    ours = own.get("model") in kinds and pooling == config.pooling
    return ModelDescription(
        kinds=kinds,
        config=config,
        # There may be fewer positions than the section knows of.
        max_seq_length=min(length, limit),
        labels=labels,
        head_options=options if ours else {},
        ours=ours,
        fault=fault,
    )


def _labels_of(kind: str, values: dict, path: str) -> list[str] | None:
    """Returns the labels of a model class, None where it has none."""
    head = _model_heads().get(kind)
    if head is None or not (head.takes_labels() or head.problem_type):
        return None
    labels = labels_from_json(values, path)
    if head.takes_labels():
        return labels
    require(
        len(labels) == 1,
        f"{path}: problem_type={head.problem_type} with {len(labels)} labels; "
        "only one number can be predicted.",
    )
    return None


def _with_pooling(
    config: ModelConfig, values: dict, own: dict, path: str
) -> ModelConfig:
    """Returns the architecture with the section's pooling.

    It counts while it explains the class that the file has in transformers,
    which pools in one way alone.
    """
    if "pooling" not in own:
        return config
    pooling = {"pooling": own["pooling"]}
    pooled = from_dict(ModelConfig, to_dict(config) | pooling, path)
    classes = transformers_models(pooled)
    explained = classes.get(str(own.get("model")))
    return pooled if _class_there(values) in (None, explained) else config


def _class_there(values: dict) -> object:
    """Returns the class of a `config.json` in transformers, or None."""
    names = values.get("architectures")
    return names[0] if isinstance(names, list) and names else None


def _kind_of(values: dict, own: dict, config: ModelConfig, path: str) -> str:
    """Returns the name of the model class of a `config.json`."""
    classes = transformers_models(config)
    names = values.get("architectures")
    theirs = _class_there(values)
    if "model" in own:
        ours = lookup(
            classes, str(own["model"]), f"{path}: model", extensible=True
        )
        if config.pooling != _POOLING:
            # It is that of the section's model.
            return str(own["model"])
        theirs = theirs or ours
    known = [kind for kind, name in classes.items() if name == theirs]
    require(
        bool(known),
        f"{path}: architectures is {shown(names)}; one of "
        f"{', '.join(dict.fromkeys(classes.values()))} is needed.",
    )
    problems = {
        str(head.problem_type): kind
        for kind, head in _model_heads().items()
        if kind in known and head.problem_type
    }
    if not problems:
        # Classes of ours for which transformers has one.
        return own["model"] if own.get("model") in known else known[0]
    problem = values.get("problem_type")
    if problem is None:
        # transformers decides so.
        one = len(labels_from_json(values, path)) == 1
        problem = "regression" if one else "single_label_classification"
    return lookup(problems, str(problem), f"{path}: problem_type")


def _config_from_json(values: dict, own: dict, path: str) -> ModelConfig:
    """Returns the architecture of a `config.json`.

    The section's sharing counts while it explains the file's groups.
    """
    require(
        values.get("model_type") == "albert",
        f"{path}: model_type is {shown(values.get('model_type'))}; only "
        "'albert' can be read.",
    )
    positions = values.get("position_embedding_type", "absolute")
    require(
        positions == "absolute",
        f"{path}: position_embedding_type is {shown(positions)}; only "
        "'absolute' can be read.",
    )
    require_architecture(values, path)
    known = [name for name in setting_fields(ModelConfig) if name != "pooling"]
    changes = {name: values[name] for name in known if name in values}
    if changes.get("classifier_dropout_prob", 0.0) is None:
        # There the rate of the hidden states counts in its place.
        changes["classifier_dropout_prob"] = changes.get(
            "hidden_dropout_prob", 0.0
        )
    act = str(changes.get("hidden_act", "gelu_new"))
    changes["hidden_act"] = lookup(_ACTIVATIONS, act, f"{path}: hidden_act")
    config = from_dict(ModelConfig, changes, path)
    added = {n: own[n] for n in ("sharing", "num_hidden_groups") if n in own}
    groups = added.get("num_hidden_groups", 1)
    if type(groups) is not int or groups <= config.num_hidden_layers:
        described = from_dict(ModelConfig, changes | added, path)
        if added and file_groups(described) == config.num_hidden_groups:
            return described
    check_groups(config, "huggingface", path)
    return config


def require_architecture(values: Mapping, path: str) -> None:
    """Raises UserError where a configuration read from `path` lacks a part."""
    absent = [name for name in _ARCHITECTURE if name not in values]
    require(
        not absent,
        f"{path} lacks {' and '.join(absent)}; all of these are required.",
    )


def labels_from_json(values: dict, path: str) -> list[str]:
    """Returns the class names in a `config.json`, in order.

    `num_labels` (by default 2) decides without names or with another number
    of them, as in transformers. Names that `label2id` has alone count too.
    """
    names, count = values.get("id2label"), values.get("num_labels")
    ids = values.get("label2id")
    if names is None and isinstance(ids, dict) and ids:
        names = {str(i): name for name, i in ids.items()}
    require(
        count is None or (type(count) is int and 1 <= count <= _MAX_LABELS),
        f"{path}: num_labels={shown(count)} must be a whole number from 1 to "
        f"{_MAX_LABELS}.",
    )
    named = len(names) if isinstance(names, dict) else None
    if names is None or (named is not None and count not in (None, named)):
        return [f"LABEL_{n}" for n in range(count or 2)]
    # transformers takes numbers for names.
    labels = [
        str(label) if type(label) is int else label
        for label in (names.get(str(number)) for number in range(named or 0))
    ]
    require(
        bool(labels)
        and all(type(label) is str and label for label in labels)
        and len(set(labels)) == len(labels),
        f"{path}: id2label={shown(names)} must give the classes 0 to n - 1 a "
        "name each, all different.",
    )
    return labels
