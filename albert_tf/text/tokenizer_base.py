"""The tokenizer interface, and the code that both kinds share."""

import abc
import base64
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from albert_tf.config import listed, require, shown
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from albert_tf.text.sequences import (
    check_options,
    checked_texts,
    joined_texts,
    model_inputs,
)

# The mark that SentencePiece puts where a space was.
SPACE = "▁"
CONFIG_FILE = "tokenizer_config.json"
JSON_FILE = "tokenizer.json"
# The file of transformers 4 for tokens beside the vocabulary. It is never
# written.
ADDED_FILE = "added_tokens.json"

# Limits of a vocabulary that users bring; ALBERT's have some 30,000 pieces.
MAX_VOCABULARY_BYTES = 16 << 20
MAX_PIECES = 1_000_000
# Share of unknown tokens above which a vocabulary does not fit a text.
MAX_UNKNOWN = 0.02
# The largest share of pieces that a clean-up may keep from all texts.
_MAX_LOST = 0.02

# The role of every special piece, under Hugging Face's names.
SENTENCEPIECE_SPECIALS = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
WORDPIECE_SPECIALS = {
    **SENTENCEPIECE_SPECIALS,
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}
# Pieces whose text is plain characters here.
SPECIAL_PIECES = {
    *SENTENCEPIECE_SPECIALS.values(),
    *WORDPIECE_SPECIALS.values(),
}


def check_number_of_pieces(count: int, source: str) -> None:
    """Raises UserError for a vocabulary of more than MAX_PIECES."""
    require(
        count <= MAX_PIECES,
        f"{source} has {count:,} pieces; the maximum is {MAX_PIECES:,}.",
    )


@dataclasses.dataclass(frozen=True)
class Encoding:
    """Token ids of a text, each with its slice of the text.

    Neither a space before a piece nor the mark of one belongs to its slice.
    Starts never decrease.
    """

    ids: list[int] = dataclasses.field(default_factory=list)
    starts: list[int] = dataclasses.field(default_factory=list)
    ends: list[int] = dataclasses.field(default_factory=list)


class AddedToken(NamedTuple):
    """A token beside the pieces of a model.

    Attributes:
        content: its text.
        id: that of the token.
        is_cleaned: whether it is found in cleaned texts, and itself cleaned.
    """

    content: str
    id: int
    is_cleaned: bool


class Tokenizer(abc.ABC):
    """Text to token ids and back.

    Args:
        vocabulary: the first argument of the class, for pickling.
        vocabulary_bytes: contents of its file.
        pieces: the vocabulary, by id.
        settings: keyword arguments of the class, which decide the ids too.
        source: names the vocabulary in error messages.

    Attributes:
        pad_id, unk_id, cls_id, sep_id, mask_id: the special pieces.
        special_ids: those five, sorted.
        replacement_ids: int32 `[n]`, the pieces that masking may replace a
            token by: every piece that a text can hold.
        word_start: bool `[vocab_size]`, where masking begins a new word.
        fingerprint: sha256 of vocabulary and settings.

    Raises:
        UserError: when a special piece is missing.
    """

    vocabulary_file: ClassVar[str]
    setting_names: ClassVar[tuple[str, ...]]
    special_tokens: ClassVar[dict[str, str]]
    # The class that opens the directory in transformers.
    transformers_class: ClassVar[str]
    # Roles that its tokenizer_config.json gives pieces besides.
    other_roles: ClassVar[dict[str, str]] = {}

    replacement_ids: np.ndarray

    def __init__(
        self,
        vocabulary: Any,
        *,
        vocabulary_bytes: bytes,
        pieces: Sequence[str],
        word_start: Sequence[bool],
        settings: dict[str, bool],
        source: str,
    ) -> None:
        self._vocabulary = vocabulary
        self._vocabulary_bytes = vocabulary_bytes
        self._pieces = pieces
        self.settings = settings
        self.vocab_size = len(pieces)
        self.word_start = np.array(word_start, bool)
        names = self.special_tokens.values()
        missing = ", ".join(name for name in names if name not in pieces)
        require(
            not missing,
            f"{source} has no piece {missing}, which ALBERT needs; train a "
            "vocabulary with train_vocab.",
        )
        ids = [pieces.index(name) for name in names]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self.special_ids = tuple(sorted(ids))
        self.fingerprint = hashlib.sha256(
            vocabulary_bytes + json.dumps(settings, sort_keys=True).encode()
        ).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        # Tables are rebuilt, so that a pickle is no larger than the vocabulary.
        settings: dict[str, Any] = self.settings
        kind = functools.partial(type(self), self._vocabulary, **settings)
        return kind, ()

    def __call__(
        self,
        texts: Iterable[Any],
        pairs: Iterable[str] | None = None,
        *,
        max_seq_length: int | None = 512,
        padding: str = "longest",
    ) -> dict[str, Any]:
        """Returns a model's inputs for texts or pairs of texts.

        `input_ids`, `input_mask` and `segment_ids`, int32 arrays `[batch,
        seq]`: [CLS] text [SEP], or [CLS] first [SEP] second [SEP] with segment
        1 from the second text on. "[SEP]" and the like in a text are plain
        characters.

        Args:
            texts: strings, or pairs of strings.
            pairs: the second text of each, where `texts` are strings.
            max_seq_length: tokens to truncate to, special ones included, of
                a pair those of the longer text first; None: no truncation.
            padding: "longest": to the longest row; "max": to
                `max_seq_length`; "none": lists of arrays `[seq]`.

        Raises:
            UserError: for what are no texts, naming the first.
        """
        check_options(max_seq_length, padding)
        rows = checked_texts(texts, pairs)
        ids = iter(self.encode_batch(text for row in rows for text in row))
        joined = joined_texts(
            [[next(ids) for _ in row] for row in rows],
            cls_id=self.cls_id,
            sep_id=self.sep_id,
            max_seq_length=max_seq_length,
        )
        return model_inputs(
            joined, pad_id=self.pad_id, padding=padding, width=max_seq_length
        )

    @abc.abstractmethod
    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces.

        "[SEP]" and the like in the text are plain characters.
        """

    @abc.abstractmethod
    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of `encode` with their character offsets in `text`.

        An accent that the clean-up drops belongs to its letter; each piece of
        one character ("ﬁ") has that character. A piece that is only the mark
        of a space is empty, where the next one begins.
        """

    @abc.abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special pieces but the unknown have none."""

    @abc.abstractmethod
    def words(self, text: str) -> list[str]:
        """Returns the words of a text after the clean-up, of letters only."""

    @abc.abstractmethod
    def is_lost(self, piece: str) -> bool:
        """Returns whether the clean-up leaves no text that has this piece."""

    @abc.abstractmethod
    def with_words(self, words: Iterable[str]) -> Self:
        """Returns a tokenizer with one more piece for each of these words.

        The words are of the form that `words` returns. The ids of the other
        pieces stay.
        """

    @abc.abstractmethod
    def with_added_tokens(self, tokens: Iterable[AddedToken]) -> Self:
        """Returns a tokenizer with more tokens, found wherever they stand.

        Raises:
            UserError: for tokens that this kind cannot have.
        """

    @abc.abstractmethod
    def with_unused(self, count: int) -> Self:
        """Returns a tokenizer with `count` more pieces, which no text has."""

    @abc.abstractmethod
    def _json(self) -> dict[str, Any]:
        """Returns the contents of tokenizer.json."""

    def no_json_reason(self) -> str:
        """Returns why tokenizer.json cannot hold this; empty if it can."""
        return ""

    def _config(self) -> dict[str, Any]:
        """Returns the settings by the names of transformers."""
        return self.settings

    def get_config(self) -> dict[str, Any]:
        """Returns everything for `tokenizer_from_config`, JSON-ready."""
        vocabulary = self._vocabulary
        if isinstance(vocabulary, bytes):
            vocabulary = base64.b64encode(vocabulary).decode("ascii")
        return {
            "kind": type(self).__name__,
            "vocabulary": vocabulary,
            "settings": dict(self.settings),
        }

    def save(
        self,
        directory: str | os.PathLike[str],
        model_max_length: int = 512,
    ) -> None:
        """Writes the files that `load_tokenizer` and transformers read.

        Where transformers has no such tokenizer, prints a line and leaves
        `tokenizer.json` out, without which it opens none.

        `model_max_length` is where transformers truncates, in tokens.
        """
        files.makedirs(directory)
        files.write(
            os.path.join(directory, self.vocabulary_file),
            self._vocabulary_bytes,
        )
        path, reason = os.path.join(directory, JSON_FILE), self.no_json_reason()
        if not reason:
            write_json(path, self._json())
        else:
            print(
                f"Not written: {path}, since transformers has no tokenizer "
                f"like this SentencePiece model: {reason}.",
                flush=True,
            )
            if files.exists(path):
                files.remove(path)
        stale = os.path.join(directory, ADDED_FILE)
        if files.exists(stale):
            files.remove(stale)
        config = {
            "tokenizer_class": self.transformers_class,
            **self._config(),
            "model_max_length": model_max_length,
            # Without it transformers 5 gives ALBERT no segment ids.
            "model_input_names": [
                "input_ids",
                "token_type_ids",
                "attention_mask",
            ],
            **self.other_roles,
            **self.special_tokens,
        }
        write_json(os.path.join(directory, CONFIG_FILE), config)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the piece of each id."""
        return [self._pieces[int(i)] for i in ids]

    def clean_up_warning(self) -> str:
        """Returns a warning on a vocabulary that was made for another clean-up.

        Empty if nearly all of its pieces occur in texts after this one.
        """
        pieces = self.pieces(self.replacement_ids)
        lost = [piece for piece in pieces if self.is_lost(piece)]
        if len(lost) <= _MAX_LOST * len(pieces):
            return ""
        return (
            f"WARNING: {len(lost)} of the vocabulary's {len(pieces)} pieces, "
            f"such as {shown(max(lost, key=len))}, occur in no text after its "
            f"clean-up ({listed(f'{n}={v}' for n, v in self.settings.items())}"
            f"). A cased vocabulary needs a {CONFIG_FILE} with "
            '{"do_lower_case": false, "keep_accents": true} beside it.'
        )

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        return [self.encode(text) for text in texts]

    def encode_with_masks(self, text: str) -> list[int]:
        """Returns the ids of a text, `mask_id` for every "[MASK]" in it."""
        first, *rest = self.encode_batch(
            text.split(self.special_tokens["mask_token"])
        )
        for ids in rest:
            first += [self.mask_id, *ids]
        return first
