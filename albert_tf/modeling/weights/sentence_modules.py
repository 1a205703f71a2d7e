"""What sentence-transformers writes beside an encoder: how it makes a vector.

`modules.json` lists the encoder, its pooling and what follows, each with its
directory. Without the file the library takes the mean of the states.
"""

import os
from collections.abc import Mapping

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_json, read_json_list, write_json
from albert_tf.text.tokenizer_base import CONFIG_FILE

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
SETTINGS_FILE = "config_sentence_transformers.json"
_POOLING_DIRECTORY = "1_Pooling"
# Files that `write_modules` writes and `read_modules` reads.
FILES = (MODULES_FILE, LENGTH_FILE, _POOLING_DIRECTORY)
_KINDS = ("Transformer", "Pooling", "Normalize")
HUB_FILES = (
    *(MODULES_FILE, LENGTH_FILE, SETTINGS_FILE),
    "*_Pooling/config.json",
)

# Rows of EMBEDDINGS by the library's names of them.
_POOLINGS = {("cls",): "first", ("mean",): "mean", ("mean", "max"): "mean_max"}
# Settings of earlier releases, in the order in which they join the vectors.
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


def read_modules(directory: str) -> dict[str, str]:
    """Returns the options of SentenceEmbeddingHead; none without the file.

    Raises:
        UserError: for other modules and poolings, and for settings with which
            the library makes another vector of the same text.
    """
    path = os.path.join(directory, MODULES_FILE)
    if not files.isfile(path):
        return {}
    advice = f"without {path} its encoder is read alone"
    try:
        modules = read_json_list(path)
        kinds = tuple(m["type"].rpartition(".")[2] for m in modules)
        paths = [os.path.basename(module["path"]) for module in modules]
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{path}: expected a list of modules, each with a type and a path."
        ) from None
    require(
        kinds in (_KINDS[:2], _KINDS),
        f"{path} has the modules {', '.join(map(shown, kinds))}; only "
        f"{', '.join(_KINDS)} are read, and {advice}.",
    )
    path = os.path.join(directory, paths[1], "config.json")
    pooling = read_json(path)
    mode = pooling.get("pooling_mode")
    if mode is None:
        mode = [name for name, flag in _FLAGS.items() if pooling.get(flag)]
    modes = tuple(mode) if isinstance(mode, list) else (mode,)
    known = [row for names, row in _POOLINGS.items() if modes == names]
    require(
        bool(known),
        f"{path}: the pooling {shown(mode)} is none of cls, mean and "
        f"['mean', 'max']; {advice}.",
    )
    _check_settings(os.path.join(directory, SETTINGS_FILE))
    _check_case(directory)
    options = {"pooling": known[0]}
    return options | ({"length": "unit"} if kinds == _KINDS else {})


def refuse_inner_encoder(directory: str) -> None:
    """Raises UserError where the encoder has a directory of its own.

    Early releases wrote it so. By itself it would lose its pooling.
    """
    path = os.path.join(directory, MODULES_FILE)
    modules = read_json_list(path) if files.isfile(path) else []
    first = modules[0] if modules and isinstance(modules[0], dict) else {}
    inner = first.get("path")
    require(
        not inner,
        f"{path}: the encoder is in the directory {shown(inner)}; move its "
        f"files beside {MODULES_FILE} and let its path there be empty, so that "
        "it is read with its pooling.",
    )


def _check_settings(path: str) -> None:
    """Raises UserError for a default prompt, and vectors that are cut."""
    settings = read_json(path) if files.isfile(path) else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    is_named = isinstance(prompts, dict) and isinstance(name, str)
    prompt = prompts.get(name) if is_named else None
    require(
        not prompt,
        f"{path}: the prompt {shown(prompt)} is put before every text there; "
        "put it before your texts yourself, and let default_prompt_name be "
        "null.",
    )
    size = settings.get("truncate_dim")
    require(
        size is None,
        f"{path}: truncate_dim={shown(size)} cuts vectors there; let it be "
        "null, and cut them yourself.",
    )


def _check_case(directory: str) -> None:
    """Raises UserError where texts are lowered before a cased tokenizer."""
    path = os.path.join(directory, LENGTH_FILE)
    tokenizer_path = os.path.join(directory, CONFIG_FILE)
    settings, own = (
        read_json(p) if files.isfile(p) else {} for p in (path, tokenizer_path)
    )
    require(
        not settings.get("do_lower_case")
        or own.get("do_lower_case") is not False,
        f"{path}: do_lower_case=True lowers texts there before the tokenizer, "
        f"which keeps capitals; set do_lower_case to true in {tokenizer_path}.",
    )


def read_length(directory: str) -> object:
    """Returns the library's maximum sequence length; None without one."""
    path = os.path.join(directory, LENGTH_FILE)
    return read_json(path).get("max_seq_length") if files.isfile(path) else None


def write_modules(
    directory: str,
    options: Mapping[str, object],
    width: int,
    max_seq_length: int,
) -> None:
    """Writes the files with which the library makes the same vectors.

    `options` are those of SentenceEmbeddingHead.
    """
    pooling = options.get("pooling", "mean")
    (modes,) = (modes for modes, row in _POOLINGS.items() if row == pooling)
    settings: dict[str, object] = {"embedding_dimension": width}
    if len(modes) == 1:
        # Every release reads these.
        settings = {"word_embedding_dimension": width}
        settings |= {flag: (name,) == modes for name, flag in _FLAGS.items()}
    else:
        settings["pooling_mode"] = modes
    write_json(
        os.path.join(directory, LENGTH_FILE),
        {"max_seq_length": max_seq_length, "do_lower_case": False},
    )
    files.makedirs(os.path.join(directory, _POOLING_DIRECTORY))
    write_json(
        os.path.join(directory, _POOLING_DIRECTORY, "config.json"), settings
    )
    parts = {"Transformer": "", "Pooling": _POOLING_DIRECTORY}
    if options.get("length") == "unit":
        # It has no settings, and so no directory.
        parts["Normalize"] = "2_Normalize"
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": part,
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, (kind, part) in enumerate(parts.items())
    ]
    write_json(os.path.join(directory, MODULES_FILE), modules)
