"""Text to token ids: `load_tokenizer` opens a vocabulary or its directory.

A directory holds `spiece.model` (SentencePiece, as the released English
models) or `vocab.txt` (WordPiece, as the Chinese ones) and, beside it,
`tokenizer_config.json` with the settings of the clean-up. A directory with
neither may have one vocabulary of another name, or a `tokenizer.json`, which
transformers 5 writes alone. Where that has other pieces it counts, as there.
"""

import base64
import fnmatch
import itertools
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.config import UserError, lookup, require, shown
from albert_tf.io import files, hub
from albert_tf.io.json_files import read_at_most, read_json
from albert_tf.text.piece_scores import read_piece_scores
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import (
    ADDED_FILE,
    CONFIG_FILE,
    JSON_FILE,
    MAX_VOCABULARY_BYTES,
    SPECIAL_PIECES,
    AddedToken,
    Tokenizer,
)
from albert_tf.text.tokenizer_json_reader import (
    added_token,
    has_other_pieces,
    read_tokenizer_json,
)
from albert_tf.text.wordpiece_tokenizer import (
    WordPieceTokenizer,
    read_vocabulary,
)

KINDS: tuple[type[Tokenizer], ...] = (
    SentencePieceTokenizer,
    WordPieceTokenizer,
)
# The SentencePiece model of a preset, beside a tokenizer.json of Keras.
_KERAS_HUB_FILE = "assets/tokenizer/vocabulary.spm"
# Files that are downloaded of a model on the hub.
HUB_FILES = (
    *(kind.vocabulary_file for kind in KINDS),
    JSON_FILE,
    CONFIG_FILE,
    ADDED_FILE,
    _KERAS_HUB_FILE,
)
# Classes of transformers that run a tokenizer.json as it is.
_GENERIC_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# They make ALBERT's ids with a SentencePiece model; without a name the class is
# that of the model.
_OUR_CLASSES = (None, "AlbertTokenizer", "AlbertTokenizerFast")
# It reads a WordPiece vocabulary, and splits by a dictionary of words.
_BY_DICTIONARY = "BertJapaneseTokenizer"
# Patterns for directories without our names; the first that fits decides.
_OTHER_NAMES = (("*.model", "vocab*.txt"), (JSON_FILE,), ("*.vocab",))


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a directory, or of a vocabulary's file.

    A directory may be that of a model on the hub, `hf://owner/name`.
    A file is a SentencePiece model, the pieces and scores of one (`*.vocab`)
    or a WordPiece vocabulary (`*.txt`), whatever its name. Without a
    `tokenizer_config.json` beside it the settings are those of the released
    uncased models: lower case, no accents.

    Raises:
        UserError: when there is none, or it is unusable.
    """
    path = os.fspath(path)
    if hub.is_on_hub(path):
        path, name = hub.download(path, HUB_FILES), path
        require(
            files.exists(path),
            f"{name} has no tokenizer, none of {', '.join(HUB_FILES)}.",
        )
    require(
        files.exists(path),
        f"The tokenizer {path} does not exist.{hub.hint(path)}",
    )
    directory = path if files.isdir(path) else os.path.dirname(path)
    config_path = os.path.join(directory, CONFIG_FILE)
    config = read_json(config_path) if files.exists(config_path) else {}
    json_path = os.path.join(directory, JSON_FILE)
    has_json = files.isfile(json_path)
    cut = (read_json(json_path) if has_json else {}).get("truncation")
    by_json = cut.get("direction") if isinstance(cut, dict) else None
    side = config.get("truncation_side", by_json)
    require(
        str(side).lower() != "left",
        f"{json_path if side == by_json else config_path}: truncation on the "
        "left cuts the beginnings of long texts; here their ends are cut, as "
        "with right. Change it there if that is what you want.",
    )
    if not files.isdir(path):
        return _opened(path, config, config_path)
    vocabulary = os.path.join(path, _vocabulary_file(path, config))
    _check_class(vocabulary, config)
    tokenizer = _opened(vocabulary, config, config_path)
    json_path = os.path.join(path, JSON_FILE)
    if vocabulary != json_path and has_other_pieces(json_path, tokenizer):
        # transformers reads this file first, and writes no other.
        return _opened(json_path, config, config_path)
    return tokenizer


def _opened(path: str, config: dict[str, Any], config_path: str) -> Tokenizer:
    """Returns the tokenizer of a file, with the settings of its directory."""
    added = None
    kind: Any = SentencePieceTokenizer
    vocabulary: Any
    settings: dict[str, bool] = {}
    is_run = False
    if os.path.basename(path) == JSON_FILE:
        is_run = config.get("tokenizer_class") in _GENERIC_CLASSES
        model, vocabulary, settings, added = read_tokenizer_json(
            path, is_run=is_run
        )
        if model == "WordPiece":
            kind = WordPieceTokenizer
    elif path.endswith(".txt"):
        kind, vocabulary = WordPieceTokenizer, read_vocabulary(path)
    elif path.endswith(".vocab"):
        vocabulary = read_piece_scores(path)
    else:
        vocabulary = read_at_most(path, MAX_VOCABULARY_BYTES)
    if not is_run:
        _check_roles(kind, config, config_path)
        settings = settings | _configured(kind, config, config_path)
    tokenizer = kind(vocabulary, source=path, **settings)
    if added is None:
        directory = os.path.dirname(path)
        added = _added_tokens(directory, config, tokenizer.vocab_size)
    try:
        return tokenizer.with_added_tokens(added) if added else tokenizer
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def tokenizer_from_config(config: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer that `Tokenizer.get_config` describes.

    Raises:
        UserError: for another kind of tokenizer.
    """
    kinds: dict[str, Any] = {kind.__name__: kind for kind in KINDS}
    kind = lookup(kinds, config["kind"], "tokenizer")
    vocabulary = config["vocabulary"]
    if isinstance(vocabulary, str):
        vocabulary = base64.b64decode(vocabulary)
    return kind(vocabulary, **config["settings"])


def _vocabulary_file(directory: str, config: dict[str, Any]) -> str:
    """Returns the name of the file in a directory that holds the pieces."""
    names = files.listdir(directory)
    by_class = {kind.transformers_class: kind.vocabulary_file for kind in KINDS}
    present = [name for name in by_class.values() if name in names]
    if len(present) > 1:
        # transformers 4 called a class written in Rust by this suffix.
        chosen = str(config.get("tokenizer_class")).removesuffix("Fast")
        require(
            chosen in by_class,
            f"{directory} has both {' and '.join(present)}; remove one, or "
            f"let tokenizer_class in {CONFIG_FILE} be one of "
            f"{', '.join(by_class)}.",
        )
        return by_class[chosen]
    if present:
        return present[0]
    if files.isfile(os.path.join(directory, _KERAS_HUB_FILE)):
        return _KERAS_HUB_FILE
    for patterns in _OTHER_NAMES:
        found = [
            name
            for name in names
            if not name.startswith(".")
            and any(fnmatch.fnmatchcase(name, p) for p in patterns)
            and not files.isdir(os.path.join(directory, name))
        ]
        require(
            len(found) <= 1,
            f"{directory} holds {len(found)} vocabularies, "
            f"{', '.join(found)}; name one of them.",
        )
        if found:
            return found[0]
    expected = ", ".join(itertools.chain.from_iterable(_OTHER_NAMES))
    raise UserError(
        f"{directory} has no tokenizer, none of {expected}: copy that of the "
        "model there, or name it with --tokenizer where a program has it; "
        "train_vocab makes one for a new model."
    )


def _check_class(path: str, config: dict[str, Any]) -> None:
    """Raises UserError where transformers reads a vocabulary in another way."""
    name = config.get("tokenizer_class")
    if path.endswith(".txt"):
        is_ours = name != _BY_DICTIONARY
    else:
        # A tokenizer.json is checked by itself.
        is_ours = path.endswith(".json") or name in (
            *_OUR_CLASSES,
            *_GENERIC_CLASSES,
        )
    require(
        is_ours,
        f"{os.path.join(os.path.dirname(path), CONFIG_FILE)}: tokenizer_class="
        f"{shown(name)} makes other ids with {os.path.basename(path)} than the "
        "tokenizers here; take that line out if the model was not trained with "
        "it.",
    )


def _check_roles(
    kind: type[Tokenizer], config: dict[str, Any], path: str
) -> None:
    """Raises UserError for other pieces in the roles of special ones."""
    for role, ours in kind.special_tokens.items():
        given = config.get(role)
        name = given.get("content") if isinstance(given, dict) else given
        # Padding is masked, whatever it is.
        require(
            name in (None, ours) or role == "pad_token",
            f"{path}: {role}={shown(name)} makes other ids than the tokenizers "
            f"here, whose {role} is {ours}.",
        )


def _added_tokens(
    directory: str, config: dict[str, Any], num_pieces: int
) -> list[AddedToken]:
    """Returns the tokens that transformers 4 lists beside the vocabulary."""
    path = os.path.join(directory, ADDED_FILE)
    contents = read_json(path) if files.exists(path) else {}
    listed = config.get("added_tokens_decoder") or {}
    try:
        found = {
            int(i): added_token(t, int(i))
            for i, t in listed.items()
            if int(i) >= num_pieces
            or not t.get("special", True)
            or t["content"] not in SPECIAL_PIECES
        }
        for content, i in contents.items():
            if i >= num_pieces:
                found.setdefault(i, AddedToken(content, i, is_cleaned=True))
        return list(found.values())
    except UserError as error:
        raise UserError(f"{directory}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{directory}: expected ids with tokens as added_tokens_decoder in "
            f"{CONFIG_FILE} and tokens with ids in {ADDED_FILE} "
            f"({shown(error)})."
        ) from None


def _configured(
    kind: type[Tokenizer], config: dict[str, Any], path: str
) -> dict[str, bool]:
    """Returns the settings of `kind` in a tokenizer_config.json."""
    names = kind.setting_names
    # Hugging Face's null means: stripped from lower-cased text.
    if kind is WordPieceTokenizer and config.get("strip_accents") is not None:
        names = (*names, "strip_accents")
    settings = {name: config[name] for name in names if name in config}
    for name, value in settings.items():
        require(
            isinstance(value, bool),
            f"{path}: expected {name} to be true or false, got {shown(value)}.",
        )
    if "strip_accents" in settings:
        settings["keep_accents"] = not settings.pop("strip_accents")
    return settings
