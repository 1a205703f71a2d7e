"""Text to token ids: `load_tokenizer` opens a directory with a vocabulary,
`load_tokenizer_file` a vocabulary alone.

The directory holds `spiece.model` (SentencePiece, as the released English
models) or `vocab.txt` (WordPiece, as the Chinese ones) and, beside it,
`tokenizer_config.json`, which says how text is cleaned up first. A directory
with neither may have a `tokenizer.json`, which transformers 5 writes alone.
"""

import os
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf import files
from albert_tf.config import (
    MAX_VOCABULARY_BYTES,
    UserError,
    check_number_of_pieces,
    read_at_most,
    read_json,
)
from albert_tf.text import from_tokenizer_json
from albert_tf.text.sentencepiece_tokenizer import (
    MODEL_FILE,
    SentencePieceTokenizer,
)
from albert_tf.text.tokenizer_base import CONFIG_FILE, JSON_FILE, Tokenizer
from albert_tf.text.wordpiece_tokenizer import (
    VOCAB_FILE,
    WordPieceTokenizer,
    read_vocabulary,
)

# transformers' class -> the file of its vocabulary.
_FILES = {"AlbertTokenizer": MODEL_FILE, "BertTokenizer": VOCAB_FILE}


def load_tokenizer(directory: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer that a directory holds.

    Without a `tokenizer_config.json` the settings are those of the released
    uncased models: lower case, no accents.

    Raises:
        UserError: when the directory or its files are missing or unusable.
    """
    if not files.isdir(directory):
        raise UserError(f"{directory} is not a directory with a tokenizer.")
    config_path = os.path.join(directory, CONFIG_FILE)
    config = read_json(config_path) if files.exists(config_path) else {}
    name = _vocabulary_file(directory, config)
    path = os.path.join(directory, name)
    if name == JSON_FILE:
        return _from_json(path, config, config_path)
    if name == VOCAB_FILE:
        return WordPieceTokenizer(
            read_vocabulary(path),
            source=path,
            **_wordpiece_settings(config, config_path),
        )
    return SentencePieceTokenizer(
        _read_model(path),
        source=path,
        **_switches(config, config_path, "do_lower_case", "keep_accents"),
    )


def load_tokenizer_file(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a vocabulary alone, however it is called.

    A file `*.txt` is a WordPiece vocabulary, any other a SentencePiece model.
    The settings are those of the released uncased models: lower case, no
    accents.

    Raises:
        UserError: when the file is missing, no regular file, or unusable.
    """
    path = os.fspath(path)
    if path.endswith(".txt"):
        return WordPieceTokenizer(read_vocabulary(path), source=path)
    return SentencePieceTokenizer(_read_model(path), source=path)


def _read_model(path: str) -> bytes:
    """Returns a SentencePiece model that is not far too large."""
    model_bytes = read_at_most(path, MAX_VOCABULARY_BYTES)
    try:
        model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    except DecodeError:
        # The tokenizer says what is wrong with it.
        return model_bytes
    check_number_of_pieces(len(model.pieces), path)
    return model_bytes


def _from_json(
    path: str, config: dict[str, Any], config_path: str
) -> Tokenizer:
    """Returns the tokenizer of a tokenizer.json.

    The settings of tokenizer_config.json go first.
    """
    values = read_json(path, MAX_VOCABULARY_BYTES)
    if from_tokenizer_json.model_type(values, path) == "WordPiece":
        pieces, settings = from_tokenizer_json.wordpiece_vocabulary(
            values, path
        )
        own = _wordpiece_settings(config, config_path)
        return WordPieceTokenizer(pieces, source=path, **(settings | own))
    model_bytes, settings = from_tokenizer_json.sentencepiece_model(
        values, path
    )
    own = _switches(config, config_path, "do_lower_case", "keep_accents")
    return SentencePieceTokenizer(model_bytes, source=path, **(settings | own))


def _vocabulary_file(
    directory: str | os.PathLike[str], config: dict[str, Any]
) -> str:
    """Returns which of the files says what the pieces are."""
    present = [
        name
        for name in _FILES.values()
        if files.exists(os.path.join(directory, name))
    ]
    if not present:
        if files.exists(os.path.join(directory, JSON_FILE)):
            return JSON_FILE
        raise UserError(
            f"{directory} has neither {MODEL_FILE} nor {VOCAB_FILE} nor "
            f"{JSON_FILE}; train_vocab makes a {MODEL_FILE}."
        )
    if len(present) == 1:
        return present[0]
    # transformers 4 called a class written in Rust by this suffix.
    kind = str(config.get("tokenizer_class")).removesuffix("Fast")
    if kind not in _FILES:
        raise UserError(
            f"{directory} has both {MODEL_FILE} and {VOCAB_FILE}; remove one, "
            f"or let tokenizer_class in {CONFIG_FILE} be one of "
            f"{', '.join(_FILES)}."
        )
    return _FILES[kind]


def _wordpiece_settings(config: dict[str, Any], path: str) -> dict[str, bool]:
    """Returns the settings, `strip_accents` turned into `keep_accents`."""
    settings = _switches(
        config, path, "do_lower_case", "keep_accents", "tokenize_chinese_chars"
    )
    # Hugging Face's null stands for what the case says.
    if config.get("strip_accents") is not None:
        strips = _switches(config, path, "strip_accents")["strip_accents"]
        if settings.setdefault("keep_accents", not strips) == strips:
            raise UserError(
                f"{path}: strip_accents and keep_accents are both "
                f"{str(strips).lower()}; remove one of them."
            )
    return settings


def _switches(
    config: dict[str, Any], path: str, *names: str
) -> dict[str, bool]:
    """Returns those of the named settings that a file has."""
    switches = {name: config[name] for name in names if name in config}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise UserError(
                f"{path}: {name}={value!r} is neither true nor false."
            )
    return switches
