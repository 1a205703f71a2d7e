"""A model's `config.json`, in the form that transformers reads."""

from albert_tf.config import ModelConfig, UserError, override, setting_fields

# Google's "gelu" is the tanh form; Hugging Face's "gelu" is the exact one.
_ACTIVATIONS = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu"}


def config_to_json(
    config: ModelConfig,
    *,
    architecture: str,
    file_groups: int,
    special_ids: dict[str, int],
    labels: list[str] | None,
    max_seq_length: int,
) -> dict:
    """Returns a `config.json` that transformers and this project read.

    Args:
        config: the architecture.
        architecture: the name of the class with these heads.
        file_groups: layer groups in the weight file.
        special_ids: pad_token_id, bos_token_id and eos_token_id.
        labels: names of the classes, if it classifies.
        max_seq_length: longest text the model was trained on, in tokens.
    """
    values = {
        "architectures": [architecture],
        "model_type": "albert",
        **{
            name: getattr(config, name)
            for name in setting_fields(config)
            if name != "sharing"
        },
        **special_ids,
        "tie_word_embeddings": True,
        "dtype": "float32",
        # What transformers has no word for.
        "albert_tf": {
            "sharing": config.sharing,
            "num_hidden_groups": config.num_hidden_groups,
            "max_seq_length": max_seq_length,
        },
    }
    values["hidden_act"] = _ACTIVATIONS[config.hidden_act]
    values["num_hidden_groups"] = file_groups
    if labels:
        values["id2label"] = {str(n): name for n, name in enumerate(labels)}
        values["label2id"] = {name: n for n, name in enumerate(labels)}
        values["problem_type"] = "single_label_classification"
    return values


def config_from_json(values: dict, path: str) -> ModelConfig:
    """Returns the architecture in a `config.json` read from `path`.

    Raises:
        UserError: naming the file and what is wrong with it.
    """
    if values.get("model_type") != "albert":
        raise UserError(
            f"{path}: model_type is {values.get('model_type')!r}; only "
            "'albert' can be read. (A run has a model when it has ended.)"
        )
    known = setting_fields(ModelConfig)
    changes = {name: values[name] for name in known if name in values}
    activations = {theirs: ours for ours, theirs in _ACTIVATIONS.items()}
    act = changes.get("hidden_act", "gelu_new")
    if type(act) is not str or act not in activations:
        raise UserError(
            f"{path}: hidden_act={act!r} is not one of "
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


def architecture_from_json(values: dict) -> str:
    """Returns the class name in a `config.json`, "none" if there is none."""
    names = values.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "none"


def labels_from_json(values: dict, path: str) -> list[str]:
    """Returns the class names in a `config.json`, in order.

    Without any there are two of them, which is what transformers leaves out.

    Raises:
        UserError: when they are not the names of classes 0 to n - 1.
    """
    names = values.get("id2label")
    if names is None:
        return ["LABEL_0", "LABEL_1"]
    numbers = range(len(names)) if isinstance(names, dict) else ()
    labels = [names[str(n)] for n in numbers if str(n) in names]
    if (
        not labels
        or len(labels) != len(names)
        or any(type(label) is not str for label in labels)
        or len(set(labels)) < len(labels)
    ):
        raise UserError(
            f"{path}: id2label={names!r} must give the classes 0 to n - 1 a "
            "name each, all different."
        )
    return labels


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
            f"{path}: max_seq_length={length!r} must be a whole number from "
            f"3 to max_position_embeddings={most}."
        )
    return length


def _own_settings(values: dict, path: str) -> dict:
    """Returns the part that only this project writes."""
    own = values.get("albert_tf", {})
    if not isinstance(own, dict):
        raise UserError(f"{path}: albert_tf={own!r} is not an object.")
    return own
