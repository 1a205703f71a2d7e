"""The tokenizer as TensorFlow operations, for raw text in a SavedModel.

`InGraphTokenizer` returns the ids of `Tokenizer.encode` for every input, with
a SentencePiece or a WordPiece vocabulary. Of TensorFlow Text it uses only
NormalizeUTF8, SentencepieceOp, SentencepieceTokenizeOp and
WordpieceTokenizeWithOffsets, which the released TensorFlow Serving binaries
have.

The SentencePiece library must be older than 0.2.2: since then it settles ties
between segmentations of a word differently from TensorFlow Text.
"""

import re
from typing import cast

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.text import normalization, wordpiece
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

try:
    import tensorflow_text
except ImportError as error:
    raise UserError(
        f"Text in the graph needs TensorFlow Text, which cannot be imported "
        f"({error}); pip install tensorflow-text."
    ) from None


class InGraphTokenizer(tf.Module):
    """Token ids of a batch of UTF-8 strings, as graph operations.

    Args:
        tokenizer: the one to reproduce.
        max_bytes: longer texts are truncated here, at the end of a character,
            so that one request cannot stall a server; the ids are those of
            `tokenizer.encode(truncate_utf8(text, max_bytes))`.

    Attributes:
        max_bytes: as given.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, max_bytes: int = 20_000
    ) -> None:
        super().__init__()
        if max_bytes < 4:
            raise ValueError(f"max_bytes={max_bytes} is less than a character.")
        self.max_bytes = max_bytes
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

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns each string `[batch]` cleaned up.

        By `normalization.normalize`, or as the words of
        `wordpiece.split_words` with a space between two.
        """
        return self._clean(self.decode(texts))

    def _clean(self, texts: tf.Tensor) -> tf.Tensor:
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
        from the second text on; padded to the longest row.

        Args:
            first: ids `[batch, (tokens)]`.
            second: of the second texts of pairs.
            max_seq_length: special tokens included.

        Returns:
            `input_ids`, `input_mask` and `segment_ids`, int32 `[batch, seq]`.
        """
        texts = [first] if second is None else [first, second]
        room = max_seq_length - 1 - len(texts)
        if second is None:
            texts = [first[:, :room]]
        else:
            lengths = first.row_lengths(), second.row_lengths()
            own = tf.minimum(
                lengths[0], room - tf.minimum(lengths[1], room // 2)
            )
            texts = [
                part(first, 0, own),
                part(second, 0, tf.minimum(lengths[1], room - own)),
            ]
        edge = tf.ones([first.nrows(), 1], tf.int32)
        rows = [edge * self._tokenizer.cls_id]
        for text in texts:
            rows += text, edge * self._tokenizer.sep_id
        packed = tf.concat(rows, 1)
        # A batch of no texts has the columns of an empty one.
        width = tf.maximum(packed.bounding_shape(axis=1), 1 + len(texts))
        input_ids = packed.to_tensor(
            self._tokenizer.pad_id, shape=[packed.nrows(), width]
        )
        columns = tf.range(width)
        is_token = columns < packed.row_lengths()[:, None]
        is_second = columns >= texts[0].row_lengths()[:, None] + 2
        return {
            "input_ids": input_ids,
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(is_token & is_second, tf.int32),
        }

    def _truncate(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns `normalization.truncate_utf8` of each string `[batch]`."""
        is_long = tf.strings.length(texts) > self.max_bytes
        start = tf.where(is_long, self.max_bytes - 2, 0)
        # The byte after the limit and the two before it; where all three
        # continue a character (10xxxxxx), the text ends before the fourth.
        window = tf.strings.substr(texts, start, tf.where(is_long, 3, 0))
        codes = tf.io.decode_raw(window, tf.uint8, fixed_length=3)
        continues = tf.cast(codes & 0xC0 == 0x80, tf.int32)
        back = tf.reduce_sum(tf.math.cumprod(continues[:, ::-1], axis=1), 1)
        return tf.strings.substr(
            texts, tf.zeros_like(back), self.max_bytes - back
        )


class _SentencePiece(tf.Module):
    """The steps of SentencePieceTokenizer."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        self._settings = tokenizer.settings
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(
            model=tokenizer.model_bytes, out_type=tf.int32
        )
        rows = [
            tokenizer.expansions.get(piece, (piece,))
            for piece in range(tokenizer.vocab_size)
        ]
        self._expansions = tf.RaggedTensor.from_row_lengths(
            np.concatenate(rows).astype(np.int32), [len(row) for row in rows]
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
        return tf.gather(self._expansions, ids).merge_dims(1, 2)


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
        # The operation limits words in bytes; the limit is in characters.
        length = tf.strings.length(words.flat_values, unit="UTF8_CHAR")
        checked = tf.where(
            length > wordpiece.MAX_WORD_LENGTH,
            "x" * (self._MAX_WORD_BYTES + 1),
            words.flat_values,
        )
        ids = self._wordpiece.tokenize(words.with_flat_values(checked))
        return ids.merge_dims(1, 2)


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
