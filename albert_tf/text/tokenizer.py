"""Text to token ids: `load_tokenizer` opens a vocabulary or its directory.

A directory holds `spiece.model` (SentencePiece, as the released English
models) or `vocab.txt` (WordPiece, as the Chinese ones) and, beside it,
`tokenizer_config.json`, which says how text is cleaned up first. A directory
with neither may have one vocabulary of another name, or a `tokenizer.json`,
which transformers 5 writes alone.
"""

import fnmatch
import itertools
import os
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_at_most, read_json
from albert_tf.text import from_tokenizer_json
from albert_tf.text.sentencepiece_tokenizer import (
    MODEL_FILE,
    SentencePieceTokenizer,
)
from albert_tf.text.tokenizer_base import CONFIG_FILE, JSON_FILE, Tokenizer
from albert_tf.text.vocabulary_limits import (
    MAX_VOCABULARY_BYTES,
    check_number_of_pieces,
)
from albert_tf.text.wordpiece_tokenizer import (
    VOCAB_FILE,
    WordPieceTokenizer,
    read_vocabulary,
)

# Where no file has our name: as released, then what says less than those.
_OTHER_NAMES = (("*.model", "vocab*.txt"), (JSON_FILE,), ("*.vocab",))

# transformers' class -> the file of its vocabulary.
_FILES = {"AlbertTokenizer": MODEL_FILE, "BertTokenizer": VOCAB_FILE}


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a directory, or of a vocabulary's file.

    A file is a SentencePiece model, the pieces and scores of one (`*.vocab`)
    or a WordPiece vocabulary (`*.txt`), whatever its name. Without a
    `tokenizer_config.json` beside it the settings are those of the released
    uncased models: lower case, no accents.

    Raises:
        UserError: when there is none, or it is unusable.
    """
    path = os.fspath(path)
    if not files.exists(path):
        raise UserError(f"The tokenizer {path} does not exist.")
    directory = path if files.isdir(path) else os.path.dirname(path)
    config_path = os.path.join(directory, CONFIG_FILE)
    config = read_json(config_path) if files.exists(config_path) else {}
    if files.isdir(path):
        path = os.path.join(path, _vocabulary_file(path, config))
    if os.path.basename(path) == JSON_FILE:
        return _from_json(path, config, config_path)
    if path.endswith(".txt"):
        return WordPieceTokenizer(
            read_vocabulary(path),
            source=path,
            **_wordpiece_settings(config, config_path),
        )
    read = _read_pieces if path.endswith(".vocab") else _read_model
    return SentencePieceTokenizer(
        read(path),
        source=path,
        **_switches(config, config_path, "do_lower_case", "keep_accents"),
    )


def _read_pieces(path: str) -> bytes:
    """Returns the SentencePiece model of a file of pieces and scores."""
    lines = read_at_most(path, MAX_VOCABULARY_BYTES).split(b"\n")
    rows = []
    for number, line in enumerate(lines[:-1] if lines[-1] == b"" else lines, 1):
        try:
            piece, score = line.decode().rstrip("\r").split("\t")
            rows.append([piece, float(score)])
        except ValueError:
            raise UserError(
                f"{path}, line {number}: expected a piece, a tab and its "
                f"score, got {shown(line.decode(errors='replace'))}."
            ) from None
    return from_tokenizer_json.model_of_pieces(rows, path)


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
    names = files.listdir(directory)
    present = [name for name in _FILES.values() if name in names]
    if not present:
        return _other_vocabulary_file(directory, names)
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


def _other_vocabulary_file(
    directory: str | os.PathLike[str], names: Sequence[str]
) -> str:
    """Returns the file of a tokenizer under another name than ours."""
    for patterns in _OTHER_NAMES:
        found = [
            name
            for name in names
            if not name.startswith(".")
            and any(fnmatch.fnmatchcase(name, p) for p in patterns)
            and not files.isdir(os.path.join(directory, name))
        ]
        if len(found) > 1:
            raise UserError(
                f"{directory} holds {len(found)} vocabularies, "
                f"{', '.join(found)}; name one of them."
            )
        if found:
            return found[0]
    patterns = ", ".join(itertools.chain.from_iterable(_OTHER_NAMES))
    raise UserError(
        f"{directory} has no tokenizer, none of {patterns}; --tokenizer names "
        "another directory or such a file, train_vocab makes one."
    )


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
