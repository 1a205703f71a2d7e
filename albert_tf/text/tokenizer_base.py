"""What the tokenizers of both kinds have in common."""

import abc
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from albert_tf.config import UserError

CONFIG_FILE = "tokenizer_config.json"
# For tokenizer_config.json: transformers 5 gives ALBERT no segments otherwise.
MODEL_INPUT_NAMES = ["input_ids", "token_type_ids", "attention_mask"]
JSON_FILE = "tokenizer.json"


@dataclasses.dataclass(frozen=True)
class Encoding:
    """A text's ids and what each stands for.

    Attributes:
        ids: the ids.
        starts, ends: for each id its slice of the text; neither a space
            before the piece nor the mark of one belongs to it. Starts never
            decrease.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


class Tokenizer(abc.ABC):
    """Text to token ids and back.

    Args:
        pieces: the vocabulary, by id.
        source: names the vocabulary in error messages.

    Attributes:
        settings: what decides the ids beside the vocabulary, by name.
        vocab_size: number of pieces.
        pad_id, unk_id, cls_id, sep_id, mask_id: the special pieces.
        special_ids: those five, sorted.
        replacement_ids: int32 `[n]`, what masking may put in a token's place:
            every piece that a text can hold.
        word_start: bool `[vocab_size]`, whether masking begins a new word at
            a piece.
        fingerprint: sha256 of the vocabulary and the settings; equal for
            equal ids.

    Raises:
        UserError: when a special piece is missing.
    """

    # The role of every special piece, under Hugging Face's names.
    special_tokens: ClassVar[dict[str, str]]

    settings: dict[str, bool]
    replacement_ids: np.ndarray
    word_start: np.ndarray
    fingerprint: str

    def __init__(self, pieces: Sequence[str], source: str) -> None:
        self.vocab_size = len(pieces)
        names = self.special_tokens.values()
        missing = [name for name in names if name not in pieces]
        if missing:
            raise UserError(
                f"{source} has no piece {', '.join(missing)}, which ALBERT "
                f"needs; train a vocabulary with train_vocab."
            )
        ids = [pieces.index(name) for name in names]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self.special_ids = tuple(sorted(ids))

    @property
    def do_lower_case(self) -> bool:
        """Whether text is lower-cased."""
        return self.settings["do_lower_case"]

    @property
    def keep_accents(self) -> bool:
        """Whether accents stay."""
        return self.settings["keep_accents"]

    @abc.abstractmethod
    def __reduce__(self) -> tuple[Any, ...]:
        """Returns how to build the tokenizer anew in another process."""

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces.

        "[SEP]" and the like in the text are plain characters.
        """

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of `encode` and where in `text` they come from.

        An accent that the clean-up drops belongs to its letter; pieces that
        are made of one character ("ﬁ") all have the whole of it. A piece
        that is but the mark of a space is empty, and stands where the next
        one begins.
        """

    @abc.abstractmethod
    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of each id."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special pieces but the unknown have none."""

    @abc.abstractmethod
    def save(
        self,
        directory: str | os.PathLike[str],
        model_max_length: int = 512,
    ) -> None:
        """Writes what `load_tokenizer` and `transformers` read.

        `model_max_length` is where transformers cuts, in tokens.
        """

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of a text whose every "[MASK]" is `mask_id`."""
        first, *rest = self.encode_batch(
            text.split(self.special_tokens["mask_token"])
        )
        for ids in rest:
            first += [self.mask_id, *ids]
        return first

    @property
    def framing_ids(self) -> dict[str, int]:
        """The ids that frame and fill a sequence, by their names here."""
        return {
            "cls_id": self.cls_id,
            "sep_id": self.sep_id,
            "pad_id": self.pad_id,
        }


def fingerprint(vocabulary: bytes, settings: dict[str, bool]) -> str:
    """Returns a digest of what decides the ids."""
    return hashlib.sha256(
        vocabulary + json.dumps(settings, sort_keys=True).encode()
    ).hexdigest()
