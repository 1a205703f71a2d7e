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
from typing import cast

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.text import normalization, wordpiece
from albert_tf.text.character_class import CharacterClass
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import SPACE, Tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

try:
    import tensorflow_text
except ImportError as error:
    raise UserError(
        f"Text in the graph needs TensorFlow Text, which cannot be imported "
        f"({error}); pip install tensorflow-text."
    ) from None


# Ids with their first bytes and the ones after the last.
_Spans = tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]

_SPACE_CODES = [
    code
    for code in range(0x10000)
    if re.fullmatch(normalization.WHITE_SPACE, chr(code))
]

# Longer texts are truncated as by `truncate_utf8`, so that one request cannot
# stall a server.
MAX_BYTES = 20_000

# Separates the parts of a text, which has none itself.
_NUL = "\0"


class InGraphTokenizer(tf.Module):
    """Token ids of a batch of UTF-8 strings, as graph operations."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        # An attribute, so that the vocabulary in it is tracked and saved.
        self._vocabulary = (
            _WordPiece(tokenizer)
            if isinstance(tokenizer, WordPieceTokenizer)
            else _SentencePiece(cast(SentencePieceTokenizer, tokenizer))
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

        Those of `Tokenizer.encode_with_offsets`, in characters.
        """
        # Parts of a text that can be cleaned up one by one. Clean-up changes
        # the spaces between them, so that offsets count the other bytes,
        # through all texts.
        parts = self._vocabulary.parts(texts)
        distinct, numbers = tf.unique(parts.flat_values)
        cleaned = _spaced(self._vocabulary.clean(distinct))
        letters = tf.strings.regex_replace(cleaned, " ", "")
        num_bytes = tf.strings.length(letters)
        limits = tf.cumsum(tf.gather(num_bytes, numbers))
        characters = tf.strings.length(parts.flat_values, unit="UTF8_CHAR")
        edges = tf.concat([[0], tf.cumsum(characters)], 0)

        def part_of(positions: tf.Tensor) -> tf.Tensor:
            return tf.searchsorted(limits, positions, side="right")

        ids, begins, stops = self._vocabulary.encode_with_offsets(
            self._clean(texts)
        )
        text = ids.value_rowids()
        base, end_of_text = (
            tf.gather(tf.gather(edges, ends), text)
            for ends in (parts.row_starts(), parts.row_limits())
        )
        starts = tf.gather(edges, part_of(begins))
        # An empty token is where the next one begins, if one does.
        starts = tf.minimum(starts, end_of_text)
        is_empty = begins >= stops
        last = tf.where(is_empty, -1, part_of(stops - 1))
        ends = tf.where(is_empty, starts, tf.gather(edges, last + 1))
        return (
            ids,
            ids.with_flat_values(starts - base),
            ids.with_flat_values(ends - base),
        )

    def characters(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns what `decode` of each string `[batch]` consists of.

        Whether each character is white space, `[batch, (characters)]`, and
        its first byte in the string as it was given, with the end of the
        last `[batch, (characters + 1)]`.
        """
        given = self._truncate(texts)
        codes, first = tf.strings.unicode_decode_with_offsets(
            given, "UTF-8", errors="replace"
        )
        is_space = tf.reduce_any(codes.flat_values[:, None] == _SPACE_CODES, 1)
        end = tf.strings.length(given)[:, None]
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

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words `[batch, (words)]` between white space."""
        return tf.strings.split(_spaced(self.decode(texts)))

    def decode(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns each string `[batch]` truncated, as valid UTF-8."""
        return tf.strings.unicode_transcode(
            self._truncate(texts), "UTF-8", "UTF-8", errors="replace"
        )

    def _clean(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `normalization.normalize` of UTF-8 strings `[batch]`.

        Or the words of `wordpiece.split_words` with a space between two.
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
        room = max_seq_length - 1 - len(texts)
        lengths = [tf.cast(text.row_lengths(), tf.int32) for text in texts]
        if second is None:
            lengths = [tf.minimum(lengths[0], room)]
        else:
            own = tf.minimum(
                lengths[0], room - tf.minimum(lengths[1], room // 2)
            )
            lengths = [own, tf.minimum(lengths[1], room - own)]
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


class _SentencePiece(tf.Module):
    """The steps of SentencePieceTokenizer."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        self._settings = tokenizer.settings
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(
            model=tokenizer.model_bytes, out_type=tf.int32
        )
        pieces = tokenizer.pieces(range(tokenizer.vocab_size))
        rows = [
            _in_bytes(piece, tokenizer.splits[i])
            if i in tokenizer.splits
            else [(i, 0, -1)]
            for i, piece in enumerate(pieces)
        ]
        parts = np.concatenate(rows).astype(np.int32)
        self._expansions = tf.RaggedTensor.from_row_lengths(
            parts[:, 0], [len(row) for row in rows]
        )
        # Offsets of those parts, in bytes that are no marks of spaces; -1 for
        # the end of the piece.
        self._part_spans = parts[:, 1:]
        self._is_mark = np.array([not piece.strip(SPACE) for piece in pieces])
        silent = tokenizer.silent_characters().codes
        marks_of_spaces = CharacterClass({*silent, ord(" "), ord(SPACE)})
        self._head = f"^{marks_of_spaces.pattern}+"
        self._parts = normalization.parts_pattern(
            keep_accents=tokenizer.settings["keep_accents"]
        )

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        for ticks, quote in normalization.QUOTES:
            texts = tf.strings.regex_replace(texts, re.escape(ticks), quote)
        texts = _replace_version_dependent(texts)
        if not self._settings["keep_accents"]:
            texts = tensorflow_text.normalize_utf8(texts, "NFKD")
            texts = tf.strings.regex_replace(
                texts, normalization.COMBINING.pattern, ""
            )
        return _lower(texts) if self._settings["do_lower_case"] else texts

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ids = self._sentencepiece.tokenize(texts)
        # (A gather of ragged rows checks them with 30 operations.)
        tokens = tf.gather(self._expansions, ids.flat_values)
        return tf.RaggedTensor.from_row_splits(
            tokens.flat_values,
            tf.gather(tokens.row_splits, ids.row_splits),
            validate=False,
        )

    def parts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the parts of texts that are cleaned up one by one."""
        return _split(_replace_version_dependent(texts), self._parts)

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids with the bytes of tokens, spaces not counted."""
        ids, begins, limits = self._sentencepiece.tokenize_with_offsets(texts)
        text = ids.value_rowids()
        begins, limits = (
            tf.cast(offsets.flat_values, tf.int32)
            for offsets in (begins, limits)
        )
        # The offsets include the mark of a space.
        surface = tf.strings.substr(
            tf.gather(texts, text), begins, limits - begins
        )
        head = tf.strings.regex_replace(surface, self._head, "")
        begins = limits - tf.strings.length(head)
        tail = tf.strings.regex_replace(head, f"[ {SPACE}]+$", "")
        limits = begins + tf.strings.length(tail)
        lengths = tf.strings.length(texts)
        first_byte = tf.gather(tf.cumsum(lengths, exclusive=True), text)
        codes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
        counted = tf.cumsum(tf.cast(codes != ord(" "), tf.int32))
        counted = tf.concat([[0], counted], 0)
        begins = tf.gather(counted, first_byte + begins)
        limits = tf.gather(counted, first_byte + limits)
        # Only the last of the pieces of one character has its end.
        is_mark = tf.gather(tf.constant(self._is_mark), ids.flat_values)
        is_new = is_mark[1:] | is_mark[:-1] | (begins[1:] > begins[:-1])
        group = tf.concat(
            [begins[:1] * 0, tf.cumsum(tf.cast(is_new, tf.int32))], 0
        )
        limits = tf.gather(tf.math.segment_max(limits, group), group)
        expanded = tf.gather(self._expansions, ids)
        of_token = expanded.values.value_rowids()
        number = tf.gather(
            self._expansions.with_flat_values(tf.range(len(self._part_spans))),
            ids,
        ).flat_values
        first, last = tf.unstack(tf.gather(self._part_spans, number), axis=1)
        begins, limits = (
            tf.gather(begins, of_token),
            tf.gather(limits, of_token),
        )
        limits = tf.where(last < 0, limits, begins + last)
        return expanded.merge_dims(1, 2), begins + first, limits


class _WordPiece(tf.Module):
    """The steps of WordPieceTokenizer."""

    # A character takes at most four bytes in UTF-8.
    _MAX_WORD_BYTES = 4 * wordpiece.MAX_WORD_LENGTH

    def __init__(self, tokenizer: WordPieceTokenizer) -> None:
        super().__init__()
        self._settings = tokenizer.settings
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant([p.encode() for p in tokenizer.vocabulary]),
                tf.range(tokenizer.vocab_size, dtype=tf.int64),
            ),
            default_value=tokenizer.unk_id,
        )
        self._wordpiece = tensorflow_text.WordpieceTokenizer(
            self._table,
            suffix_indicator=wordpiece.CONTINUATION,
            max_bytes_per_word=self._MAX_WORD_BYTES,
            token_out_type=tf.int32,
            unknown_token=tokenizer.special_tokens["unk_token"],
        )
        chinese = tokenizer.settings["tokenize_chinese_chars"]
        self._single = wordpiece.SINGLE_CHARACTER_WORDS[chinese].pattern
        self._parts = wordpiece.parts_pattern(
            keep_accents=tokenizer.settings["keep_accents"],
            tokenize_chinese_chars=chinese,
        )

    def clean(self, texts: tf.Tensor) -> tf.Tensor:
        texts = tf.strings.regex_replace(texts, wordpiece.CONTROL.pattern, "")
        texts = _replace_version_dependent(texts)
        if self._settings["do_lower_case"]:
            texts = _lower(texts)
        if not self._settings["keep_accents"]:
            texts = tensorflow_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, wordpiece.MARKS.pattern, "")
        return tf.strings.regex_replace(texts, self._single, r" \0 ")

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = tf.strings.split(texts)
        ids = self._wordpiece.tokenize(self._checked(words))
        return ids.merge_dims(1, 2)

    def parts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the parts of texts that are cleaned up one by one."""
        # Another control character, which is dropped like it.
        texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
        return _split(_replace_version_dependent(texts), self._parts)

    def encode_with_offsets(self, texts: tf.Tensor) -> _Spans:
        """Returns ids with the bytes of tokens, spaces not counted."""
        words = tf.strings.split(texts)
        ids, begins, limits = self._wordpiece.tokenize_with_offsets(
            self._checked(words)
        )
        lengths = tf.strings.length(words.flat_values)
        word = ids.values.value_rowids()
        first_byte = tf.gather(tf.cumsum(lengths, exclusive=True), word)
        # For words that are too long the operation returns other limits.
        limit = tf.where(
            tf.gather(_is_too_long(words.flat_values), word),
            tf.gather(lengths, word),
            tf.cast(limits.flat_values, tf.int32),
        )
        begin = tf.cast(begins.flat_values, tf.int32)
        return ids.merge_dims(1, 2), first_byte + begin, first_byte + limit

    def _checked(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        # The operation limits words in bytes; the limit is in characters.
        too_long = "x" * (self._MAX_WORD_BYTES + 1)
        return words.with_flat_values(
            tf.where(
                _is_too_long(words.flat_values), too_long, words.flat_values
            )
        )


def _is_too_long(words: tf.Tensor) -> tf.Tensor:
    return (
        tf.strings.length(words, unit="UTF8_CHAR") > wordpiece.MAX_WORD_LENGTH
    )


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


def _split(texts: tf.Tensor, pattern: str) -> tf.RaggedTensor:
    """Returns the matches of a pattern, which every character is part of."""
    ended = tf.strings.regex_replace(texts, pattern, "\\0" + _NUL)
    return tf.strings.split(ended, _NUL)[:, :-1]


def _in_bytes(
    piece: str, split: tuple[tuple[int, int, int], ...]
) -> list[tuple[int, int, int]]:
    """Returns `split` with offsets in bytes, spaces not counted."""
    shown = piece.lstrip(SPACE)

    def before(character: int) -> int:
        return len(shown[:character].replace(SPACE, "").encode())

    return [(i, before(first), before(last)) for i, first, last in split]


def _spaced(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(texts, normalization.WHITE_SPACE, " ")


def _replace_version_dependent(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(
        texts,
        normalization.VERSION_DEPENDENT.pattern,
        normalization.REPLACEMENT,
    )


def _lower(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.regex_replace(texts, *normalization.SIGMA)
    # First ASCII alone: under a Turkish locale a server's lower case of I is
    # the dotless i.
    texts = tf.strings.lower(texts)
    return tf.strings.lower(texts, encoding="utf-8")
