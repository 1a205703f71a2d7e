"""Tokens that were added beside the pieces of a SentencePiece model.

transformers (`add_tokens`, `add_special_tokens`) finds them in a text before
anything else, in the middle of a word too. Here each is a piece behind the mark
of a space, with a score above all others, and the clean-up puts spaces around
it. So a vocabulary's file holds them like its other pieces.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import require, shown
from albert_tf.text.normalization import WHITE_SPACE
from albert_tf.text.tokenizer_base import SPACE, AddedToken

# Scores of tokens that are found before the clean-up of a text, and after it.
# The logarithm of a probability, which others have, is not above 0. Nearly
# alike, since the largest score is also that of user-defined symbols.
_WRITTEN, _CLEANED = 1.0 + 2**-20, 1.0

# What the clean-up may merge, with a tick beside the token too.
_TICKS = re.compile("``|''|^[`']|[`']$")


class AddedTokens:
    """The added tokens of a model, and the clean-up of texts with them.

    Attributes:
        normalize: the clean-up without them.
        texts: those of the tokens, by id.
        written: those that are found before the clean-up, the longest first.
        cleaned: the pattern of the others, or empty.
    """

    def __init__(
        self,
        model: sentencepiece_model_pb2.ModelProto,
        normalize: Callable[[str], str],
    ) -> None:
        self.normalize = normalize
        added = [(i, p) for i, p in enumerate(model.pieces) if is_added(p)]
        self.texts = {i: text_of(piece.piece) for i, piece in added}
        self.written = _longest_first(
            self.texts[i] for i, piece in added if piece.score > _CLEANED
        )
        self._as_written = "|".join(map(re.escape, self.written))
        others = {*self.texts.values()}.difference(self.written)
        # RE2 reads it too, in texts whose white space is not collapsed yet.
        self.cleaned = "|".join(map(re.escape, _longest_first(others))).replace(
            r"\ ", WHITE_SPACE
        )

    def clean(self, text: str) -> str:
        """Returns a cleaned text with spaces around every token."""
        if not self.texts:
            return self.normalize(text)
        parts = [text]
        if self.written:
            parts = re.split(f"({self._as_written})", text)
        parts[::2] = map(self.normalize, parts[::2])
        if self.cleaned:
            parts[::2] = [
                re.sub(self.cleaned, r" \g<0> ", part) for part in parts[::2]
            ]
        return " ".join(" ".join(parts).split())


def is_added(piece: Any) -> bool:
    """Returns whether a piece of a model is an added token."""
    return piece.type == piece.NORMAL and piece.score > 0


def text_of(piece: str) -> str:
    """Returns the text of an added token's piece."""
    return piece.removeprefix(SPACE).replace(SPACE, " ")


def piece_of(text: str) -> str:
    """Returns the piece of an added token."""
    return SPACE + " ".join(text.split()).replace(" ", SPACE)


def with_added(
    model: sentencepiece_model_pb2.ModelProto,
    tokens: Iterable[AddedToken],
    normalize: Callable[[str], str],
) -> sentencepiece_model_pb2.ModelProto:
    """Returns a model with these tokens, as further pieces or such as it has.

    Raises:
        UserError: for ids that do not follow those of the pieces, tokens that
            are no texts, and tokens that are the same after the clean-up.
    """
    extended = sentencepiece_model_pb2.ModelProto()
    extended.CopyFrom(model)
    pieces = extended.pieces
    ids = {piece.piece: i for i, piece in enumerate(pieces)}
    for token in sorted(tokens, key=lambda token: token.id):
        _check(token, len(pieces))
        text = normalize(token.content)
        is_written = (
            not token.is_cleaned
            and text != token.content
            # Characters of others may not be as many after the clean-up.
            and token.content.isascii()
        )
        if is_written:
            text = token.content
            require(
                not _TICKS.search(text),
                f"the added token {shown(text)} has ticks that the clean-up of "
                "texts makes a quotation mark of, with those around it.",
            )
        name = piece_of(text)
        known = ids.get(name)
        if known is not None and is_added(pieces[known]):
            require(known == token.id, f"{_fault(token)} another one after it.")
            continue
        require(name != SPACE, f"{_fault(token)} nothing after it.")
        if known is not None:
            # No text has two marks; each such word is the token from now on.
            pieces[known].piece = SPACE + name
        if token.id == len(pieces):
            pieces.add()
        ids[name] = token.id
        pieces[token.id].piece = name
        pieces[token.id].type = pieces[token.id].NORMAL
        pieces[token.id].score = _WRITTEN if is_written else _CLEANED
    extended.trainer_spec.vocab_size = len(extended.pieces)
    return extended


def _check(token: AddedToken, next_id: int) -> None:
    """Raises UserError for what is no text and for an id beyond the next."""
    require(
        isinstance(token.content, str),
        f"expected the added token of id {token.id} to be a text, got "
        f"{shown(token.content)}.",
    )
    require(
        0 <= token.id <= next_id,
        f"the added token {shown(token.content)} has the id {token.id}; "
        f"expected {next_id}, the next one.",
    )


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))


def _fault(token: AddedToken) -> str:
    return (
        f"the added token {shown(token.content)}, found after the clean-up of "
        "texts, is"
    )
