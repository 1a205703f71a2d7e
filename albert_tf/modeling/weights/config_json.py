"""A model's `config.json`, in the form that transformers reads."""

import dataclasses
from collections.abc import Mapping

from albert_tf.config import (
    ModelConfig,
    UserError,
    override,
    setting_fields,
    shown,
)
from albert_tf.modeling.weights.names import check_groups

# What decides the shapes and the heads. A file must say it, for others take
# other defaults, and no shape tells the number of heads.
_ARCHITECTURE = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# The most starts or ends that a head may be asked to follow.
_MOST_BEAMS = 1000
# The most classes that are counted and not named.
_MOST_LABELS = 1 << 16
# Google's "gelu" is the tanh form; Hugging Face's "gelu" is the exact one.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu"}


# (model class here, class in transformers). The first row of a class there
# is what its files are read as, but see _kind_of.
_CLASSES = (
    ("AlbertModel", "AlbertModel"),
    ("AlbertForPretraining", "AlbertForPreTraining"),
    ("AlbertForMaskedLM", "AlbertForMaskedLM"),
    ("AlbertForClassification", "AlbertForSequenceClassification"),
    ("AlbertForRegression", "AlbertForSequenceClassification"),
    ("AlbertForMultipleChoice", "AlbertForMultipleChoice"),
    ("AlbertForTokenClassification", "AlbertForTokenClassification"),
    ("AlbertForQuestionAnswering", "AlbertForQuestionAnswering"),
    # transformers has no such heads; it opens the encoder.
    ("AlbertForAnswerableQuestions", "AlbertModel"),
    ("AlbertForSentenceEmbedding", "AlbertModel"),
)
_PROBLEM_TYPES = {
    "AlbertForClassification": "single_label_classification",
    "AlbertForRegression": "regression",
}
# Ids of [PAD], [CLS] and [SEP] in the released vocabularies.
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """What a `config.json` says.

    Attributes:
        kind: the name of a model class, see models.MODELS.
        config: the architecture.
        max_seq_length: longest text the model was trained on, in tokens.
        labels: names of the classes of a model that has any, else None.
        pooler: whether there is a pooled output; None: as the weights say.
        head_options: other arguments of the heads.
        ours: whether this project wrote it.
    """

    kind: str
    config: ModelConfig
    max_seq_length: int
    labels: list[str] | None = None
    pooler: bool | None = None
    head_options: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ours: bool = True


def to_json(
    description: ModelDescription,
    *,
    file_groups: int,
    special_ids: Mapping[str, int] = SPECIAL_IDS,
    own_settings: bool = True,
) -> dict:
    """Returns a `config.json` that transformers and this project read.

    Args:
        description: of the model.
        file_groups: layer groups in the weight file.
        special_ids: pad_token_id, bos_token_id and eos_token_id.
        own_settings: whether to add what transformers has no word for.
    """
    config = description.config
    values = {
        "architectures": [dict(_CLASSES)[description.kind]],
        "model_type": "albert",
        **{
            name: getattr(config, name)
            for name in setting_fields(config)
            if name not in ("sharing", "always_project_embeddings")
        },
        **special_ids,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if own_settings:
        values["albert_tf"] = {
            "model": description.kind,
            "sharing": config.sharing,
            "num_hidden_groups": config.num_hidden_groups,
            "max_seq_length": description.max_seq_length,
            "pooler": description.pooler,
            "head_options": dict(description.head_options),
        }
    values["hidden_act"] = _ACTIVATIONS[config.hidden_act]
    values["num_hidden_groups"] = file_groups
    labels = description.labels
    if description.kind == "AlbertForRegression":
        # What transformers takes the number of outputs from.
        labels = ["LABEL_0"]
    if labels:
        values["id2label"] = {str(n): name for n, name in enumerate(labels)}
        values["label2id"] = {name: n for n, name in enumerate(labels)}
    if description.kind in _PROBLEM_TYPES:
        values["problem_type"] = _PROBLEM_TYPES[description.kind]
    return values


def from_json(values: dict, path: str) -> ModelDescription:
    """Returns what a `config.json` read from `path` says.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    config = config_from_json(values, path)
    own = _own_settings(values, path)
    if not own:
        check_groups(config, "huggingface", path)
    kind = _kind_of(values, own, path)
    labels = None
    if kind in ("AlbertForClassification", "AlbertForTokenClassification"):
        labels = labels_from_json(values, path)
    options = own.get("head_options", {})
    if not isinstance(options, dict) or any(
        type(value) is not int or not 1 <= value <= _MOST_BEAMS
        for value in options.values()
    ):
        raise UserError(
            f"{path}: head_options={shown(options)} must be an object of whole "
            f"numbers from 1 to {_MOST_BEAMS}."
        )
    pooler = own.get("pooler")
    if pooler is not None and type(pooler) is not bool:
        raise UserError(f"{path}: pooler={shown(pooler)} is not true or false.")
    return ModelDescription(
        kind=kind,
        config=config,
        max_seq_length=max_seq_length_from_json(values, config, path),
        labels=labels,
        pooler=pooler,
        head_options=options,
        ours=bool(own),
    )


def _kind_of(values: dict, own: dict, path: str) -> str:
    """Returns the name of the model class of a `config.json`."""
    if "model" in own:
        kind = own["model"]
        if type(kind) is not str or kind not in dict(_CLASSES):
            raise UserError(
                f"{path}: the model {shown(kind)} is not one of "
                f"{', '.join(dict(_CLASSES))}."
            )
        return kind
    names = values.get("architectures")
    theirs = names[0] if isinstance(names, list) and names else None
    known = [kind for kind, name in _CLASSES if name == theirs]
    if not known:
        raise UserError(
            f"{path}: architectures is {shown(names)}; one of "
            f"{', '.join(dict.fromkeys(dict(_CLASSES).values()))} is needed."
        )
    if known[0] != "AlbertForClassification":
        return known[0]
    # As transformers decides where nothing is said.
    problem = values.get("problem_type")
    if problem is None:
        one = len(labels_from_json(values, path)) == 1
        problem = "regression" if one else "single_label_classification"
    for kind, name in _PROBLEM_TYPES.items():
        if problem == name:
            return kind
    raise UserError(
        f"{path}: problem_type={shown(problem)} is not one of "
        f"{', '.join(_PROBLEM_TYPES.values())}."
    )


def config_from_json(values: dict, path: str) -> ModelConfig:
    """Returns the architecture in a `config.json` read from `path`.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    if values.get("model_type") != "albert":
        raise UserError(
            f"{path}: model_type is {shown(values.get('model_type'))}; only "
            "'albert' can be read. (A run has a model when it has ended.)"
        )
    check_architecture_is_said(values, path)
    known = setting_fields(ModelConfig)
    changes = {name: values[name] for name in known if name in values}
    activations = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    # Another name of the tanh form.
    activations["gelu_pytorch_tanh"] = "gelu"
    act = changes.get("hidden_act", "gelu_new")
    if type(act) is not str or act not in activations:
        raise UserError(
            f"{path}: hidden_act={shown(act)} is not one of "
            f"{', '.join(activations)}."
        )
    changes["hidden_act"] = activations[act]
    own = _own_settings(values, path)
    for name in ("sharing", "num_hidden_groups"):
        if name in own:
            changes[name] = own[name]
    try:
        return override(ModelConfig(), changes)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def check_architecture_is_said(values: Mapping, path: str) -> None:
    """Raises UserError where a configuration leaves to defaults what it is.

    Args:
        values: the configuration, of any owner.
        path: where it was read.
    """
    absent = [name for name in _ARCHITECTURE if name not in values]
    if absent:
        raise UserError(
            f"{path} lacks {' and '.join(absent)}; it must say them all."
        )


def labels_from_json(values: dict, path: str) -> list[str]:
    """Returns the class names in a `config.json`, in order.

    As transformers: without names, or with another number of them,
    `num_labels` says how many classes there are; without that there are two.

    Raises:
        UserError: when they are not the names of classes 0 to n - 1.
    """
    names, count = values.get("id2label"), values.get("num_labels")
    if count is not None and (
        type(count) is not int or not 1 <= count <= _MOST_LABELS
    ):
        raise UserError(
            f"{path}: num_labels={shown(count)} must be a whole number from 1 "
            f"to {_MOST_LABELS}."
        )
    if names is None:
        return _unnamed_labels(count or 2)
    if count and isinstance(names, dict) and len(names) != count:
        return _unnamed_labels(count)
    numbers = range(len(names)) if isinstance(names, dict) else ()
    labels = [names[str(n)] for n in numbers if str(n) in names]
    if (
        not labels
        or len(labels) != len(names)
        or any(type(label) is not str for label in labels)
        or len(set(labels)) < len(labels)
    ):
        raise UserError(
            f"{path}: id2label={shown(names)} must give the classes 0 to "
            "n - 1 a "
            "name each, all different."
        )
    return labels


def _unnamed_labels(count: int) -> list[str]:
    return [f"LABEL_{n}" for n in range(count)]


def max_seq_length_from_json(
    values: dict, config: ModelConfig, path: str
) -> int:
    """Returns the longest input in a `config.json`, by default the model's.

    Raises:
        UserError: when it is not a number of tokens that the model can read.
    """
    most = config.max_position_embeddings
    length = _own_settings(values, path).get("max_seq_length", most)
    if type(length) is not int or not 3 <= length <= most:
        raise UserError(
            f"{path}: max_seq_length={shown(length)} must be a whole number "
            "from "
            f"3 to max_position_embeddings={most}."
        )
    return length


def _own_settings(values: dict, path: str) -> dict:
    """Returns the part that only this project writes."""
    own = values.get("albert_tf", {})
    if not isinstance(own, dict):
        raise UserError(f"{path}: albert_tf={shown(own)} is not an object.")
    return own
