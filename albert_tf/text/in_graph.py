"""The tokenizer as TensorFlow operations, for raw text in a SavedModel.

`InGraphTokenizer` returns the ids of `Tokenizer.encode` for every input, with
a SentencePiece or a WordPiece vocabulary. Of TensorFlow Text it uses only
NormalizeUTF8, SentencepieceOp, SentencepieceTokenizeOp,
SentencepieceTokenizeWithOffsetsOp and WordpieceTokenizeWithOffsets, which the
released TensorFlow Serving binaries have.

The SentencePiece library must be older than 0.2.2: since then it settles ties
between segmentations of a word differently from TensorFlow Text.
"""

import re
from typing import NamedTuple, cast

import tensorflow as tf

from albert_tf.config import require
from albert_tf.text import normalization
from albert_tf.text.in_graph_vocabularies import (
    SentencePieceInGraph,
    WordPieceInGraph,
)
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from albert_tf.text.words import WORD_ALONE

_SPACE_CODES = [
    code
    for code in range(0x10000)
    if re.fullmatch(normalization.WHITE_SPACE, chr(code))
]

# Longer texts are truncated as by `truncate_utf8`, so that one request cannot
# stall a server.
MAX_BYTES = 20_000
# The maximum length where none is set.
_NO_LIMIT = 1 << 30


class _Origins(NamedTuple):
    """The parts of texts that the bytes of the cleaned texts come from.

    Parts are cleaned up one by one. Clean-up changes the spaces between them,
    so that bytes count without spaces, through all texts.

    Attributes:
        limits: the end of each part, in bytes of the cleaned texts.
        edges: the characters before each part, and those of all.
        text_starts, text_ends: of each text, in characters.
    """

    limits: tf.Tensor
    edges: tf.Tensor
    text_starts: tf.Tensor
    text_ends: tf.Tensor

    def part_of(self, positions: tf.Tensor) -> tf.Tensor:
        """Returns the number of the part that each byte comes from."""
        return tf.searchsorted(self.limits, positions, side="right")


class InGraphTokenizer(tf.Module):
    """Token ids of a batch of UTF-8 strings, as graph operations."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        # An attribute, so that the vocabulary in it is tracked and saved.
        self._vocabulary = (
            WordPieceInGraph(tokenizer)
            if isinstance(tokenizer, WordPieceTokenizer)
            else SentencePieceInGraph(cast(SentencePieceTokenizer, tokenizer))
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns int32 ids `[batch, (tokens)]` of strings `[batch]`.

        Bytes that are not UTF-8 count as U+FFFD.
        """
        return self.encode(self.decode(texts))

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of UTF-8 strings, none of which is too long."""
        return self._vocabulary.encode(self._clean(texts))

    def encode_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Returns ids, starts and ends `[batch, (tokens)]` of UTF-8 strings.

        They are those of `Tokenizer.encode_with_offsets`, in characters.
        """
        origins = self._origins(texts)
        ids, begins, stops = self._vocabulary.encode_with_offsets(
            self._clean(texts)
        )
        text = ids.value_rowids()
        text_start = tf.gather(origins.text_starts, text)
        # An empty token is where the next one begins, if one does.
        starts = tf.minimum(
            tf.gather(origins.edges, origins.part_of(begins)),
            tf.gather(origins.text_ends, text),
        )
        is_empty = begins >= stops
        last = tf.where(is_empty, -1, origins.part_of(stops - 1))
        ends = tf.where(is_empty, starts, tf.gather(origins.edges, last + 1))
        return (
            ids,
            ids.with_flat_values(starts - text_start),
            ids.with_flat_values(ends - text_start),
        )

    def _origins(self, texts: tf.Tensor) -> "_Origins":
        """Returns the source position of each byte of the cleaned texts."""
        parts = self._vocabulary.parts(texts)
        distinct, numbers = tf.unique(parts.flat_values)
        cleaned = _spaced(self._vocabulary.clean(distinct))
        letters = tf.strings.regex_replace(cleaned, " ", "")
        num_bytes = tf.gather(tf.strings.length(letters), numbers)
        characters = tf.strings.length(parts.flat_values, unit="UTF8_CHAR")
        edges = tf.concat([[0], tf.cumsum(characters)], 0)
        return _Origins(
            limits=tf.cumsum(num_bytes),
            edges=edges,
            text_starts=tf.gather(edges, parts.row_starts()),
            text_ends=tf.gather(edges, parts.row_limits()),
        )

    def characters(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns what `decode` of each string `[batch]` consists of.

        Whether each character is white space, `[batch, (characters)]`, and
        its first byte in the string before `decode`, with the end of the
        last `[batch, (characters + 1)]`.
        """
        texts = self._truncate(texts)
        codes, first = tf.strings.unicode_decode_with_offsets(
            texts, "UTF-8", errors="replace"
        )
        is_space = tf.reduce_any(codes.flat_values[:, None] == _SPACE_CODES, 1)
        end = tf.strings.length(texts)[:, None]
        edges = tf.concat([tf.cast(first, tf.int32), end], 1)
        return codes.with_flat_values(is_space), edges

    def encode_with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids with that of the mask for every "[MASK]" in a text."""
        parts = tf.strings.split(
            self.decode(texts), self._tokenizer.special_tokens["mask_token"]
        )
        ids = self.encode(parts.flat_values)
        mask = tf.fill([ids.nrows(), 1], self._tokenizer.mask_id)
        ended = parts.with_flat_values(tf.concat([ids, mask], 1))
        return ended.merge_dims(1, 2)[:, :-1]

    def words(
        self, texts: tf.Tensor, *, punctuation: bool = False
    ) -> tf.RaggedTensor:
        """Returns the words `[batch, (words)]` between white space.

        With `punctuation` those of `words.finer_words`.
        """
        spaced = _spaced(self.decode(texts))
        if punctuation:
            spaced = tf.strings.regex_replace(spaced, WORD_ALONE, r" \0 ")
        return tf.strings.split(spaced)

    def decode(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns each string `[batch]` truncated, as valid UTF-8."""
        return _valid(self._truncate(texts))

    def _clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `normalization.normalize` of UTF-8 strings `[batch]`.

        WordPiece: the words of `wordpiece.split_words`, a space between two.
        """
        return tf.strings.strip(_spaced(self._vocabulary.clean(texts)))

    def pack(
        self,
        first: tf.RaggedTensor,
        second: tf.RaggedTensor | None = None,
        *,
        max_seq_length: int,
    ) -> dict[str, tf.Tensor]:
        """Returns model inputs, truncated as by `sequence_features`.

        [CLS] first [SEP], or [CLS] first [SEP] second [SEP] with segment 1
        from the second text on; padded to the longest row: `input_ids`,
        `input_mask` and `segment_ids`, int32 `[batch, seq]`.
        """
        texts = [first] if second is None else [first, second]
        lengths = _truncated_lengths(texts, max_seq_length - 1 - len(texts))
        # A batch of no texts has the columns of an empty one.
        longest = tf.maximum(tf.reduce_max(sum(lengths)), 0)
        columns = tf.range(longest + 1 + len(texts))
        # Each column's place among these and the tokens of the texts. (Rows
        # of ragged tensors, joined, are four times the operations.)
        special = ("cls_id", "sep_id", "pad_id")
        tokens = [[getattr(self._tokenizer, name) for name in special]]
        place = tf.where(columns == 0, 0, 2)
        begin, num_before = tf.ones_like(lengths[0]), len(special)
        for text, length in zip(texts, lengths, strict=True):
            number = columns - begin[:, None]
            start = num_before + tf.cast(text.row_starts(), tf.int32)
            is_inside = (number >= 0) & (number < length[:, None])
            place = tf.where(is_inside, start[:, None] + number, place)
            place = tf.where(number == length[:, None], 1, place)
            tokens.append(text.flat_values)
            begin += length + 1
            num_before += tf.size(text.flat_values)
        is_token = columns < begin[:, None]
        is_second = columns >= lengths[0][:, None] + 2
        return {
            "input_ids": tf.gather(tf.concat(tokens, 0), place),
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(is_token & is_second, tf.int32),
        }

    def model_inputs(
        self,
        first: tf.Tensor,
        second: tf.Tensor | None = None,
        *,
        max_seq_length: int | None,
        padding: str,
    ) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Returns what `Tokenizer.__call__` does, of strings `[batch]`.

        Without padding ragged tensors. Texts of any length are read whole.

        Raises:
            UserError: for other tensors.
        """
        texts = [first] if second is None else [first, second]
        for each in texts:
            require(
                each.dtype == tf.string and each.shape.rank == 1,
                "The texts must be strings of shape [batch]; they are "
                f"{each.dtype.name} of shape {each.shape}. (Batch a data set "
                "before it is mapped.)",
            )
        inputs = self.pack(
            *(self.encode(_valid(each)) for each in texts),
            max_seq_length=max_seq_length or _NO_LIMIT,
        )
        if padding == "none":
            lengths = tf.reduce_sum(inputs["input_mask"], 1)
            return {
                name: tf.RaggedTensor.from_tensor(value, lengths)
                for name, value in inputs.items()
            }
        if padding == "max":
            pad_ids = {"input_ids": self._tokenizer.pad_id}
            for name, value in inputs.items():
                rest = max_seq_length - tf.shape(value)[1]
                inputs[name] = tf.ensure_shape(
                    tf.pad(
                        value,
                        [[0, 0], [0, rest]],
                        constant_values=pad_ids.get(name, 0),
                    ),
                    [None, max_seq_length],
                )
        return inputs

    def _truncate(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `normalization.truncate_utf8` of each string `[batch]`."""
        is_long = tf.strings.length(texts) > MAX_BYTES
        start = tf.where(is_long, MAX_BYTES - 2, 0)
        # The byte after the limit and the two before it; where all three
        # continue a character (10xxxxxx), the text ends before the fourth.
        window = tf.strings.substr(texts, start, tf.where(is_long, 3, 0))
        codes = tf.io.decode_raw(window, tf.uint8, fixed_length=3)
        continues = tf.cast(codes & 0xC0 == 0x80, tf.int32)
        back = tf.reduce_sum(tf.math.cumprod(continues[:, ::-1], axis=1), 1)
        return tf.strings.substr(texts, tf.zeros_like(back), MAX_BYTES - back)


def part(
    rows: tf.RaggedTensor, starts: tf.Tensor | int, ends: tf.Tensor
) -> tf.RaggedTensor:
    """Returns of each row `[batch, (values)]` those in `[start, end)`.

    All of them exist. (A gather of ragged ranges is ten times the graph.)
    """
    row = rows.value_rowids()
    position = tf.range(tf.size(row, tf.int64))
    position -= tf.gather(rows.row_starts(), row)
    starts = tf.broadcast_to(tf.cast(starts, tf.int64), tf.shape(ends))
    kept = (position >= tf.gather(starts, row)) & (
        position < tf.gather(ends, row)
    )
    return tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(rows.flat_values, kept), ends - starts, validate=False
    )


def _truncated_lengths(
    texts: list[tf.RaggedTensor], room: int
) -> list[tf.Tensor]:
    """Returns how many tokens of each text, or of both, fit in `room`."""
    lengths = [tf.cast(text.row_lengths(), tf.int32) for text in texts]
    if len(texts) == 1:
        return [tf.minimum(lengths[0], room)]
    own = tf.minimum(lengths[0], room - tf.minimum(lengths[1], room // 2))
    return [own, tf.minimum(lengths[1], room - own)]


def _valid(texts: tf.Tensor) -> tf.Tensor:
    """Returns strings with U+FFFD for bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace"
    )


def _spaced(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(texts, normalization.WHITE_SPACE, " ")
