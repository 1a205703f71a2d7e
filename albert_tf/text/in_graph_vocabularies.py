"""The two kinds of vocabulary as TensorFlow operations, for `in_graph`."""

import hashlib
import re

import numpy as np
import tensorflow as tf

from albert_tf.config import UserError
from albert_tf.text import normalization, wordpiece
from albert_tf.text.character_class import CharacterClass
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import SPACE
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

try:
    import tensorflow_text
    from tensorflow_text.python.ops import sentencepiece_tokenizer
except ImportError as error:
    raise UserError(
        f"Text in the graph needs TensorFlow Text, which cannot be imported "
        f"({error}); pip install tensorflow-text."
    ) from None

# Ids with their first bytes and the ones after the last.
Spans = tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]

# Characters without a meaning, for tokens that no clean-up may change.
_FIRST_STAND_IN = 0xF0000
_STAND_INS = "[\U000f0000-\U000ffffd]"

# Separates the parts of a text, which has none itself.
_NUL = "\0"


class _NamedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that stays, named after its content.

    TensorFlow Text's own belongs to the operation that made it, and goes when
    TensorFlow forgets that: `keras.utils.set_random_seed`, `tf.random.set_seed`
    and `clear_session` empty its cache of operations. (Keras Hub's issue 1573:
    "Resource localhost/_0_SentencepieceOp does not exist".)
    """

    def __init__(self, model: bytes) -> None:
        super().__init__()
        self._model = model
        self._name = f"sentencepiece-{hashlib.sha256(model).hexdigest()}"
        # It is made now, outside of the graphs that use it.
        _ = self.resource_handle

    def _create_resource(self) -> tf.Tensor:
        operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
        return operations.sentencepiece_op(
            model=self._model, shared_name=self._name
        )


class SentencePieceInGraph(tf.Module):
    """The steps of SentencePieceTokenizer."""

    def __init__(self, tokenizer: SentencePieceTokenizer) -> None:
        super().__init__()
        self._settings = tokenizer.settings
        self._added = tokenizer.added
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(
            model=tokenizer.model_bytes, out_type=tf.int32
        )
        self._sentencepiece._model_resource = _NamedModel(tokenizer.model_bytes)
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
        """Returns texts after the clean-up, with their white space."""
        written = {
            chr(_FIRST_STAND_IN + i): token
            for i, token in enumerate(self._added.written)
        }
        if written:
            texts = tf.strings.regex_replace(
                texts, _STAND_INS, normalization.REPLACEMENT
            )
        for stand_in, token in written.items():
            texts = tf.strings.regex_replace(
                texts, re.escape(token), f" {stand_in} "
            )
        for ticks, quote in normalization.QUOTES:
            texts = tf.strings.regex_replace(texts, re.escape(ticks), quote)
        texts = _replace_version_dependent(texts)
        if not self._settings["keep_accents"]:
            texts = tensorflow_text.normalize_utf8(texts, "NFKD")
            texts = tf.strings.regex_replace(
                texts, normalization.COMBINING.pattern, ""
            )
        if self._settings["do_lower_case"]:
            texts = _lower(texts)
        if self._added.cleaned:
            texts = tf.strings.regex_replace(
                texts, self._added.cleaned, r" \0 "
            )
        for stand_in, token in written.items():
            texts = tf.strings.regex_replace(texts, stand_in, _literal(token))
        return texts

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts that are cleaned up."""
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

    def encode_with_offsets(self, texts: tf.Tensor) -> Spans:
        """Returns ids with the bytes of tokens, spaces not counted."""
        ids, *offsets = self._sentencepiece.tokenize_with_offsets(texts)
        text = ids.value_rowids()
        begins, limits = self._without_marks(
            tf.gather(texts, text),
            *(tf.cast(offset.flat_values, tf.int32) for offset in offsets),
        )
        first_byte = tf.cumsum(tf.strings.length(texts), exclusive=True)
        first_byte = tf.gather(first_byte, text)
        counted = _letters_before(texts)
        begins = tf.gather(counted, first_byte + begins)
        limits = tf.gather(counted, first_byte + limits)
        limits = self._limits_of_characters(ids.flat_values, begins, limits)
        return self._expanded(ids, begins, limits)

    def _without_marks(
        self, texts: tf.Tensor, begins: tf.Tensor, limits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns offsets in each text without the marks of spaces."""
        surface = tf.strings.substr(texts, begins, limits - begins)
        head = tf.strings.regex_replace(surface, self._head, "")
        begins = limits - tf.strings.length(head)
        tail = tf.strings.regex_replace(head, f"[ {SPACE}]+$", "")
        return begins, begins + tf.strings.length(tail)

    def _limits_of_characters(
        self, ids: tf.Tensor, begins: tf.Tensor, limits: tf.Tensor
    ) -> tf.Tensor:
        """Returns limits, for each of a character's pieces that of the last.

        SentencePiece gives a character's end to the last of its pieces alone.
        """
        is_mark = tf.gather(tf.constant(self._is_mark), ids)
        is_new = is_mark[1:] | is_mark[:-1] | (begins[1:] > begins[:-1])
        group = tf.concat(
            [begins[:1] * 0, tf.cumsum(tf.cast(is_new, tf.int32))], 0
        )
        return tf.gather(tf.math.segment_max(limits, group), group)

    def _expanded(
        self, ids: tf.RaggedTensor, begins: tf.Tensor, limits: tf.Tensor
    ) -> Spans:
        """Returns the spans of what digits and commas are split into."""
        expanded = tf.gather(self._expansions, ids)
        token = expanded.values.value_rowids()
        number = tf.gather(
            self._expansions.with_flat_values(tf.range(len(self._part_spans))),
            ids,
        ).flat_values
        first, last = tf.unstack(tf.gather(self._part_spans, number), axis=1)
        begins, limits = tf.gather(begins, token), tf.gather(limits, token)
        limits = tf.where(last < 0, limits, begins + last)
        return expanded.merge_dims(1, 2), begins + first, limits


class WordPieceInGraph(tf.Module):
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
        """Returns texts after the clean-up, with their white space."""
        texts = tf.strings.regex_replace(texts, wordpiece.CONTROL.pattern, "")
        texts = _replace_version_dependent(texts)
        if self._settings["do_lower_case"]:
            texts = _lower(texts)
        if not self._settings["keep_accents"]:
            texts = tensorflow_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, wordpiece.MARKS.pattern, "")
        return tf.strings.regex_replace(texts, self._single, r" \0 ")

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of texts that are cleaned up."""
        words = tf.strings.split(texts)
        ids = self._wordpiece.tokenize(self._checked(words))
        return ids.merge_dims(1, 2)

    def parts(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the parts of texts that are cleaned up one by one."""
        # Another control character, which is dropped like it.
        texts = tf.strings.regex_replace(texts, r"\x00", "\x01")
        return _split(_replace_version_dependent(texts), self._parts)

    def encode_with_offsets(self, texts: tf.Tensor) -> Spans:
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


def _letters_before(texts: tf.Tensor) -> tf.Tensor:
    """Returns for each byte of all texts how many before it are no spaces."""
    codes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    counted = tf.cumsum(tf.cast(codes != ord(" "), tf.int32))
    return tf.concat([[0], counted], 0)


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


def _literal(text: str) -> str:
    """Returns the replacement that `regex_replace` writes as this text."""
    return text.replace("\\", r"\\")


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
