"""Text to token ids with ALBERT's SentencePiece vocabulary (English models)."""

import dataclasses
import functools
import itertools
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, require, shown
from albert_tf.text.added_tokens import AddedTokens, with_added
from albert_tf.text.character_class import CharacterClass
from albert_tf.text.normalization import normalize, normalized_offsets
from albert_tf.text.tokenizer_base import (
    SENTENCEPIECE_SPECIALS,
    SPACE,
    AddedToken,
    Encoding,
    Tokenizer,
    check_number_of_pieces,
)
from albert_tf.text.tokenizer_json import (
    ends_in_digit_comma,
    no_json_reason,
    sentencepiece_json,
)
from albert_tf.text.wordpiece import WORD_MARKS

# A word that follows a space: its letters and their marks.
_WORD = re.compile(rf"{SPACE}([^\W\d_]+(?:{WORD_MARKS.pattern}+[^\W\d_]*)*)")

# An unknown character's score below the lowest one, as in SentencePiece.
_UNKNOWN_PENALTY = 10.0
# A piece's score above those of the pieces that it was made of, for each of
# them: more than the rounding of scores, less than differences between words.
_PREFERENCE = 1e-3

# The original's list, which lacks the apostrophe and <=>.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_PLAIN = _PUNCTUATION.union(string.ascii_letters)
# The piece of a byte after the first of a character, in UTF-8.
_CONTINUATION_BYTE = re.compile("<0x[89AB][0-9A-F]>")


def starts_word(piece: str) -> bool:
    """Returns whether masking begins a new word at this piece.

    The rule of google-research/albert (`_is_start_piece_sp`): one character
    of punctuation, or anything beside ASCII letters and punctuation, such as
    the mark of a space. So only pieces of plain letters continue a word, and
    the bytes after a character's first, which the original has not.
    """
    return piece in _PUNCTUATION or not (
        _PLAIN.issuperset(piece) or _CONTINUATION_BYTE.fullmatch(piece)
    )


@dataclasses.dataclass(frozen=True)
class _TracedText:
    """A text with the slice of the original that each character was made of."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def source(self, begin: int, end: int) -> tuple[int, int]:
        """Returns the slice of the original that a part was made of.

        An empty part has an empty one, where the next character begins.
        """
        if begin < end:
            return self.starts[begin], self.ends[end - 1]
        at = self.starts[begin] if begin < len(self.text) else self.ends[-1]
        return at, at


class SentencePieceTokenizer(Tokenizer):
    """Clean-up, SentencePiece pieces, digits split from a comma after them.

    Args:
        model_bytes: a SentencePiece model with the special pieces <pad>,
            <unk>, [CLS], [SEP] and [MASK].
        do_lower_case, keep_accents: see `normalization.normalize`.
        source: names the model in error messages.

    Attributes:
        added: the tokens that were added beside the pieces.
        splits: for the id of every piece that ends in a comma after a digit,
            what replaces it: rows of id, begin and end, which count from the
            piece's first character that is no mark of a space.

    Raises:
        UserError: when `model_bytes` is no such model.
    """

    vocabulary_file = "spiece.model"
    setting_names = ("do_lower_case", "keep_accents")
    special_tokens = SENTENCEPIECE_SPECIALS
    transformers_class = "AlbertTokenizer"
    other_roles: ClassVar = {"bos_token": "[CLS]", "eos_token": "[SEP]"}

    def __init__(
        self,
        model_bytes: bytes,
        *,
        do_lower_case: bool = True,
        keep_accents: bool = False,
        source: str = "the SentencePiece model",
    ) -> None:
        self.model_bytes = model_bytes
        self._processor = _open_model(model_bytes, source)
        settings = {
            "do_lower_case": do_lower_case,
            "keep_accents": keep_accents,
        }
        self.added = AddedTokens(
            self._model(),
            functools.partial(
                normalize,
                do_lower_case=do_lower_case,
                keep_accents=keep_accents,
            ),
        )
        ids = range(self._processor.get_piece_size())
        pieces = [self._processor.id_to_piece(i) for i in ids]
        super().__init__(
            model_bytes,
            vocabulary_bytes=model_bytes,
            pieces=pieces,
            word_start=[starts_word(piece) for piece in pieces],
            settings=settings,
            source=source,
        )
        # The pieces of byte fallback, in models that have it.
        self._byte_ids = frozenset(
            filter(self._processor.is_byte, range(self.vocab_size))
        )
        self.replacement_ids = np.array(
            [i for i in range(self.vocab_size) if self._is_text(i)], np.int32
        )
        self.splits = {
            i: self._split_comma(piece)
            for i, piece in enumerate(pieces)
            if ends_in_digit_comma(piece) and self._is_text(i)
        }

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, without special pieces."""
        cleaned = self.added.clean(text)
        return self._expand(self._processor.encode(cleaned, out_type=int))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the ids of each text."""
        cleaned = [self.added.clean(text) for text in texts]
        # One thread: callers that want more have several processes.
        batch = self._processor.encode(cleaned, out_type=int, num_threads=1)
        return [self._expand(ids) for ids in batch]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Returns the ids of `encode` with their character offsets in `text`.

        Adjacent unknown characters are one piece. With byte fallback, each
        byte has the offsets of its character.
        """
        cleaned = self.added.clean(text)
        offsets = normalized_offsets(text, **self.settings)
        normalized = self._normalized(cleaned, *offsets)
        encoding = Encoding()
        for token, begin, end in self._spans(cleaned, normalized.text):
            whole = ((token, 0, end - begin),)
            for i, first, last in self.splits.get(token, whole):
                start, stop = normalized.source(begin + first, begin + last)
                encoding.ids.append(i)
                encoding.starts.append(start)
                encoding.ends.append(stop)
        return encoding

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special pieces but <unk> have none."""
        return self._processor.decode([int(i) for i in ids])

    def words(self, text: str) -> list[str]:
        """Returns the letters after each space, up to another character."""
        cleaned = self.added.clean(text)
        return _WORD.findall(self._processor.normalize(cleaned))

    def is_lost(self, piece: str) -> bool:
        """Returns whether the clean-up leaves no text that has this piece."""
        if self._processor.is_byte(self._processor.piece_to_id(piece)):
            return False
        text = piece.replace(SPACE, " ").strip()
        return normalize(text, **self.settings) != text

    def with_words(self, words: Iterable[str]) -> "SentencePieceTokenizer":
        """Returns a tokenizer with one more piece for each of these words.

        A word is as probable as the pieces that it was made of, and so little
        more that it is preferred to them.

        Raises:
            UserError: for a model of another type than unigram, which chooses
                no pieces by probability.
        """
        model = self._model()
        trainer = model.trainer_spec
        require(
            trainer.model_type == trainer.UNIGRAM,
            "new words need a vocabulary of type unigram, or a WordPiece one, "
            f"got {trainer.ModelType.Name(trainer.model_type)}, which would "
            "never use them; train a vocabulary with train_vocab.",
        )
        scores = [piece.score for piece in model.pieces]
        unknown = min(scores) - _UNKNOWN_PENALTY
        for word in words:
            ids = self._processor.encode(word, out_type=int)
            score = sum(
                scores[i]
                if self._is_text(i) and i not in self._byte_ids
                else unknown
                for i in ids
            )
            model.pieces.add(
                piece=SPACE + word, score=score + _PREFERENCE * len(ids)
            )
        trainer.vocab_size = len(model.pieces)
        settings: dict[str, Any] = self.settings
        return SentencePieceTokenizer(model.SerializeToString(), **settings)

    def with_added_tokens(
        self, tokens: Iterable[AddedToken]
    ) -> "SentencePieceTokenizer":
        """Returns a tokenizer with more tokens, found wherever they stand.

        Raises:
            UserError: for a token that is none after the clean-up, and ids
                that do not follow those of the pieces.
        """
        model = with_added(self._model(), tokens, self.added.normalize)
        settings: dict[str, Any] = self.settings
        extended = SentencePieceTokenizer(model.SerializeToString(), **settings)
        for i, text in extended.added.texts.items():
            found = extended.encode(text)
            require(
                found == [i],
                f"the added token {shown(text)} is read as {shown(found)}: "
                "this kind of vocabulary, or its own clean-up, has none, and "
                "none of symbols that are always pieces of their own.",
            )
        return extended

    def with_unused(self, count: int) -> "SentencePieceTokenizer":
        """Returns a tokenizer with `count` more pieces, which no text has."""
        model = self._model()
        for i in range(self.vocab_size, self.vocab_size + count):
            unused = model.SentencePiece.UNUSED
            model.pieces.add(piece=f"<unused{i}>", type=unused)
        model.trainer_spec.vocab_size = len(model.pieces)
        settings: dict[str, Any] = self.settings
        return SentencePieceTokenizer(model.SerializeToString(), **settings)

    def silent_characters(self) -> CharacterClass:
        """Returns those that the model's own clean-up leaves no letter of.

        It drops them or puts the mark of a space there.
        """
        normalize = self._processor.normalize
        nothing = {normalize("aa"), normalize("a a")}
        return CharacterClass(
            code
            for code in (*range(0x20000), *range(0xE0000, 0xE0200))
            if unicodedata.category(chr(code))[0] in "CMSZ"
            and unicodedata.category(chr(code)) != "Cs"
            and normalize(f"a{chr(code)}a") in nothing
        )

    def no_json_reason(self) -> str:
        """Returns why tokenizer.json cannot hold this; empty if it can."""
        return no_json_reason(self._model())

    def _json(self) -> dict[str, Any]:
        return sentencepiece_json(self.model_bytes, **self.settings)

    def _model(self) -> sentencepiece_model_pb2.ModelProto:
        return sentencepiece_model_pb2.ModelProto.FromString(self.model_bytes)

    def _config(self) -> dict[str, Any]:
        return {
            **self.settings,
            "remove_space": True,
            # It runs tokenizer.json as it is. AlbertTokenizer of version 5
            # makes a Unigram of any vocabulary, and drops vowel signs.
            "tokenizer_class": "PreTrainedTokenizerFast",
        }

    def _is_text(self, piece_id: int) -> bool:
        model = self._processor
        return not (
            model.is_control(piece_id)
            or model.is_unknown(piece_id)
            or model.is_unused(piece_id)
        )

    def _expand(self, ids: list[int]) -> list[int]:
        if self.splits.keys().isdisjoint(ids):
            return ids
        return [
            part for i in ids for part, _, _ in self.splits.get(i, ((i, 0, 0),))
        ]

    def _normalized(
        self, cleaned: str, starts: Sequence[int], ends: Sequence[int]
    ) -> _TracedText:
        """Returns the text as the model's own clean-up leaves it.

        `starts` and `ends` are those of the characters of `cleaned` but
        spaces.
        """
        text, sources = self._processor.normalize(cleaned, with_offsets=True)
        # A character was made of all from its own source up to the next
        # larger one.
        stops = list(sources[1:])
        if len(set(sources)) < len(sources):
            for i in range(len(text) - 2, -1, -1):
                if stops[i] == sources[i]:
                    stops[i] = stops[i + 1]
        number = [0, *itertools.accumulate(map(" ".__ne__, cleaned))]
        # A mark can be put where the text ends.
        starts = [*starts, *ends[-1:]]
        return _TracedText(
            text,
            [starts[number[source]] for source in sources[:-1]],
            [ends[number[stop] - 1] for stop in stops],
        )

    def _spans(
        self, cleaned: str, normalized: str
    ) -> Iterator[tuple[int, int, int]]:
        """Yields each id with its begin and end in `normalized`.

        Without the marks of spaces, so that a bare mark is empty.
        """
        ids = self._processor.encode(cleaned, out_type=int)
        pieces = self._processor.encode(cleaned, out_type=str)
        at = num_bytes = 0
        for i, piece in zip(ids, pieces, strict=True):
            surface = piece
            if i in self._byte_ids:
                surface = normalized[at]
                num_bytes += 1
            end = at + len(surface)
            begin = end - len(surface.lstrip(SPACE))
            limit = end
            if surface.endswith(SPACE):
                limit = max(begin, at + len(surface.rstrip(SPACE)))
            yield i, begin, limit
            if surface is piece or num_bytes == len(surface.encode()):
                at, num_bytes = end, 0

    def _split_comma(self, piece: str) -> tuple[tuple[int, int, int], ...]:
        """Returns the row of `splits` of a piece: "8" and "," for "8,".

        This is `encode_pieces` of google-research/albert: the number is
        tokenized again, and loses the space in front that is new.
        """
        number = piece[:-1].replace(SPACE, "")
        parts = self._processor.encode(number, out_type=str)
        if not piece.startswith(SPACE):
            parts[0] = parts[0].removeprefix(SPACE)
        edges = range(len(number) + 1)
        normalized = self._normalized(number, edges[:-1], edges[1:])
        # Where the characters of the number and the comma are in the piece.
        shown = piece.lstrip(SPACE)
        places = [i for i, c in enumerate(shown) if c != SPACE]
        number_and_comma = _TracedText(
            f"{number},", places, [i + 1 for i in places]
        )
        rows = []
        for part, (_, begin, end) in zip(
            parts, self._spans(number, normalized.text), strict=True
        ):
            if part:
                span = number_and_comma.source(*normalized.source(begin, end))
                rows.append((self._processor.piece_to_id(part), *span))
        comma = self._processor.piece_to_id(",")
        return (*rows, (comma, len(shown) - 1, len(shown)))


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
        check_number_of_pieces(len(model.pieces), source)
        processor.LoadFromSerializedProto(model_bytes)
    except (DecodeError, RuntimeError) as error:
        raise UserError(
            f"{source} is not a complete SentencePiece model "
            f"({len(model_bytes)} bytes: {' '.join(str(error).split())}); "
            "copy it again or train one with train_vocab."
        ) from None
    return processor
