"""Text to token ids with ALBERT's SentencePiece vocabulary.

`load_tokenizer` opens a directory with `spiece.model` and, beside it,
`tokenizer_config.json`, which says how text is cleaned up first.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, read_json, write_json
from albert_tf.text.normalization import normalize
from albert_tf.text.tokenizer_json import (
    SPECIAL_TOKENS,
    ends_in_digit_comma,
    tokenizer_json,
)

MODEL_FILE = "spiece.model"
CONFIG_FILE = "tokenizer_config.json"
JSON_FILE = "tokenizer.json"

# The mark that SentencePiece puts where a space was.
SPACE = "▁"

_ASCII_LETTERS = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)
# The original's list, which the apostrophe is missing from.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')


def starts_word(piece: str) -> bool:
    """Returns whether masking begins a new word at this piece.

    The rule of google-research/albert (`_is_start_piece_sp`): one character
    of punctuation, or anything beside ASCII letters and punctuation, such as
    the mark of a space. So only pieces of plain letters continue a word.
    """
    plain = _ASCII_LETTERS | _PUNCTUATION
    return piece in _PUNCTUATION or not plain.issuperset(piece)


class SentencePieceTokenizer:
    """ALBERT's tokenizer: clean-up, SentencePiece, digits before a comma.

    Args:
        model_bytes: a SentencePiece model with the special pieces <pad>,
            <unk>, [CLS], [SEP] and [MASK].
        do_lower_case: whether text is lower-cased first.
        keep_accents: whether accents stay.
        source: names the model in error messages.

    Attributes:
        vocab_size: number of pieces.
        pad_id, unk_id, cls_id, sep_id, mask_id: the special pieces.
        special_ids: those five, sorted.
        replacement_ids: int32 `[n]`, what masking may put in a token's place:
            every piece that a text can hold.
        word_start: bool `[vocab_size]`, see `starts_word`.
        expansions: for the id of every piece that ends in a comma after a
            digit, the ids that take its place.
        fingerprint: sha256 of the model and the settings; equal for equal
            ids.

    Raises:
        UserError: when `model_bytes` is no such model.
    """

    def __init__(
        self,
        model_bytes: bytes,
        *,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        source: str = "the SentencePiece model",
    ) -> None:
        self.model_bytes = model_bytes
        self.do_lower_case = do_lower_case
        self.keep_accents = keep_accents
        self._processor = _open_model(model_bytes, source)
        self.vocab_size = self._processor.get_piece_size()
        pieces = self.pieces(range(self.vocab_size))
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            _find_specials(pieces, source)
        )
        self.special_ids = tuple(
            sorted(
                (
                    self.pad_id,
                    self.unk_id,
                    self.cls_id,
                    self.sep_id,
                    self.mask_id,
                )
            )
        )
        self.replacement_ids = np.array(
            [i for i in range(self.vocab_size) if self._is_text(i)], np.int32
        )
        self.word_start = np.array([starts_word(p) for p in pieces], bool)
        self.expansions = {
            i: self._split_comma(piece)
            for i, piece in enumerate(pieces)
            if ends_in_digit_comma(piece) and self._is_text(i)
        }
        self.fingerprint = hashlib.sha256(
            model_bytes + json.dumps(self.settings, sort_keys=True).encode()
        ).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # SentencePiece's own state travels as the model's bytes.
        return (
            _from_settings,
            (self.model_bytes, self.do_lower_case, self.keep_accents),
        )

    @property
    def settings(self) -> dict[str, bool]:
        """Returns what decides the ids beside the model."""
        return {
            "do_lower_case": self.do_lower_case,
            "keep_accents": self.keep_accents,
        }

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces.

        "[SEP]" and the like in the text are plain characters.
        """
        cleaned = normalize(text, **self.settings)
        return self._expand(self._processor.encode(cleaned, out_type=int))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        cleaned = [normalize(text, **self.settings) for text in texts]
        # One thread: callers that want more have several processes.
        batch = self._processor.encode(cleaned, out_type=int, num_threads=1)
        return [self._expand(ids) for ids in batch]

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of a text whose every "[MASK]" is `mask_id`."""
        first, *rest = self.encode_batch(
            text.split(SPECIAL_TOKENS["mask_token"])
        )
        for ids in rest:
            first += [self.mask_id, *ids]
        return first

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special pieces but <unk> have none."""
        return self._processor.decode([int(i) for i in ids])

    @property
    def framing_ids(self) -> dict[str, int]:
        """The ids that frame and fill a sequence, by `pack_single`'s names."""
        return {
            "cls_id": self.cls_id,
            "sep_id": self.sep_id,
            "pad_id": self.pad_id,
        }

    def save(
        self,
        directory: str | os.PathLike[str],
        model_max_length: int = 512,
    ) -> None:
        """Writes what `load_tokenizer` and `transformers` read.

        `model_max_length` is where transformers cuts, in tokens.
        """
        os.makedirs(directory, exist_ok=True)
        _write_bytes(os.path.join(directory, MODEL_FILE), self.model_bytes)
        contents = tokenizer_json(self.model_bytes, **self.settings)
        write_json(os.path.join(directory, JSON_FILE), contents)
        config = {
            "tokenizer_class": "AlbertTokenizer",
            **self.settings,
            "remove_space": True,
            "model_max_length": model_max_length,
            "bos_token": SPECIAL_TOKENS["cls_token"],
            "eos_token": SPECIAL_TOKENS["sep_token"],
            **SPECIAL_TOKENS,
        }
        write_json(os.path.join(directory, CONFIG_FILE), config)

    def _is_text(self, piece_id: int) -> bool:
        model = self._processor
        return not (
            model.is_control(piece_id)
            or model.is_unknown(piece_id)
            or model.is_unused(piece_id)
        )

    def _expand(self, ids: list[int]) -> list[int]:
        if self.expansions.keys().isdisjoint(ids):
            return ids
        expanded: list[int] = []
        for i in ids:
            expanded += self.expansions.get(i, (i,))
        return expanded

    def _split_comma(self, piece: str) -> tuple[int, ...]:
        """Returns the ids of "8" and "," for "8,".

        As in `encode_pieces` of google-research/albert: the number is
        tokenized anew, and loses the space in front that it had not before.
        """
        number = piece[:-1].replace(SPACE, "")
        parts = self._processor.encode(number, out_type=str)
        if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
            parts = [part for part in (parts[0][1:], *parts[1:]) if part]
        return tuple(self._processor.piece_to_id(p) for p in (*parts, ","))


def load_tokenizer(
    directory: str | os.PathLike[str],
) -> SentencePieceTokenizer:
    """Returns the tokenizer that a directory holds.

    Without a `tokenizer_config.json` the settings are those of the released
    English models: lower case, no accents.

    Raises:
        UserError: when the directory or its files are missing or unusable.
    """
    path = os.path.join(directory, MODEL_FILE)
    if not os.path.isdir(directory):
        raise UserError(f"{directory} is not a directory with a tokenizer.")
    try:
        with open(path, "rb") as file:
            model_bytes = file.read()
    except FileNotFoundError:
        raise UserError(
            f"{directory} has no {MODEL_FILE}; train_vocab makes one."
        ) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}.") from None
    settings = _read_settings(os.path.join(directory, CONFIG_FILE))
    return SentencePieceTokenizer(model_bytes, source=path, **settings)


def _read_settings(path: str) -> dict[str, bool]:
    if not os.path.exists(path):
        return {}
    config = read_json(path)
    settings = {}
    for name in ("do_lower_case", "keep_accents"):
        if name in config:
            if not isinstance(config[name], bool):
                raise UserError(
                    f"{path}: {name}={config[name]!r} is neither true nor "
                    f"false."
                )
            settings[name] = config[name]
    return settings


def _open_model(
    model_bytes: bytes, source: str
) -> sentencepiece.SentencePieceProcessor:
    processor = sentencepiece.SentencePieceProcessor()
    try:
        # SentencePiece takes a file that is cut between two pieces for a
        # smaller vocabulary; the settings after the pieces are then missing.
        model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
        if not model.HasField("normalizer_spec"):
            raise DecodeError("its end is missing")
        processor.LoadFromSerializedProto(model_bytes)
    except (DecodeError, RuntimeError) as error:
        raise UserError(
            f"{source} is not a whole SentencePiece model "
            f"({len(model_bytes)} bytes: {' '.join(str(error).split())}); "
            f"copy it anew or train one with train_vocab."
        ) from None
    return processor


def _find_specials(pieces: list[str], source: str) -> list[int]:
    """Returns the ids of SPECIAL_TOKENS, in their order."""
    missing = [name for name in SPECIAL_TOKENS.values() if name not in pieces]
    if missing:
        raise UserError(
            f"{source} has no piece {', '.join(missing)}, which ALBERT needs; "
            f"train a vocabulary with train_vocab."
        )
    return [pieces.index(name) for name in SPECIAL_TOKENS.values()]


def _from_settings(
    model_bytes: bytes, do_lower_case: bool, keep_accents: bool
) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(
        model_bytes, do_lower_case=do_lower_case, keep_accents=keep_accents
    )


def _write_bytes(path: str, data: bytes) -> None:
    """Writes under a temporary name, flushes it to disk and renames."""
    temporary = f"{path}.tmp-{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
