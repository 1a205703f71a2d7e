"""A tokenizer in the JSON form of Hugging Face's `tokenizers` library.

`sentencepiece_json` and `wordpiece_json` return the contents of a
`tokenizer.json`, so that `transformers` opens a model directory without
converting anything.
"""

import base64
from collections.abc import Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.text import normalization, wordpiece
from albert_tf.text.tokenizer_base import (
    SENTENCEPIECE_SPECIALS,
    WORDPIECE_SPECIALS,
)

# Subtracted from the score of pieces like "8,", which ALBERT splits again: any
# other segmentation is then better. As in Hugging Face's converter.
DIGIT_COMMA_PENALTY = 100.0


def ends_in_digit_comma(piece: str) -> bool:
    """Returns whether ALBERT splits the comma off this piece."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def sentencepiece_json(
    model_bytes: bytes, *, do_lower_case: bool, keep_accents: bool
) -> dict[str, Any]:
    """Returns the contents of `tokenizer.json` for a SentencePiece model.

    Differs from SentencePieceTokenizer: digits before a comma are split as
    the vocabulary's scores have it, not by a second tokenization; and a
    special piece written out in a text ("[SEP]") is that piece.
    """
    model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    pieces = [piece.piece for piece in model.pieces]
    metaspace = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    return _tokenizer_json(
        specials={
            name: pieces.index(name) for name in SENTENCEPIECE_SPECIALS.values()
        },
        normalizers=normalizers(
            model.normalizer_spec.precompiled_charsmap,
            do_lower_case=do_lower_case,
            keep_accents=keep_accents,
        ),
        pre_tokenizers=[{"type": "WhitespaceSplit"}, metaspace],
        decoder=metaspace,
        model={
            "type": "Unigram",
            "unk_id": pieces.index(SENTENCEPIECE_SPECIALS["unk_token"]),
            "vocab": [
                [
                    piece.piece,
                    piece.score
                    - DIGIT_COMMA_PENALTY * ends_in_digit_comma(piece.piece),
                ]
                for piece in model.pieces
            ],
            "byte_fallback": False,
        },
    )


def wordpiece_json(
    pieces: Sequence[str],
    *,
    do_lower_case: bool,
    keep_accents: bool,
    tokenize_chinese_chars: bool,
) -> dict[str, Any]:
    """Returns the contents of `tokenizer.json` for a WordPiece vocabulary.

    Differs from WordPieceTokenizer: a special piece written out in a text
    ("[SEP]") is that piece.
    """
    ids = {piece: i for i, piece in enumerate(pieces)}
    split_off = wordpiece.SINGLE_CHARACTER_WORDS[tokenize_chinese_chars].pattern
    return _tokenizer_json(
        specials={name: ids[name] for name in WORDPIECE_SPECIALS.values()},
        normalizers=word_normalizers(
            do_lower_case=do_lower_case, keep_accents=keep_accents
        ),
        pre_tokenizers=[
            {"type": "WhitespaceSplit"},
            {
                "type": "Split",
                "pattern": {"Regex": split_off},
                "behavior": "Isolated",
                "invert": False,
            },
        ],
        decoder={
            "type": "WordPiece",
            "prefix": wordpiece.CONTINUATION,
            "cleanup": False,
        },
        model={
            "type": "WordPiece",
            "unk_token": WORDPIECE_SPECIALS["unk_token"],
            "continuing_subword_prefix": wordpiece.CONTINUATION,
            "max_input_chars_per_word": wordpiece.MAX_WORD_LENGTH,
            "vocab": ids,
        },
    )


def _tokenizer_json(
    *,
    specials: dict[str, int],
    normalizers: list[dict[str, Any]],
    pre_tokenizers: list[dict[str, Any]],
    decoder: dict[str, Any],
    model: dict[str, Any],
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index,
                "content": name,
                "single_word": False,
                # The space before a mask is part of it: "is [MASK]" and
                # "is[MASK]".
                "lstrip": name == "[MASK]",
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for name, index in sorted(specials.items(), key=lambda x: x[1])
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": _post_processor(specials),
        "decoder": decoder,
        "model": model,
    }


def normalizers(
    charsmap: bytes, *, do_lower_case: bool, keep_accents: bool
) -> list[dict[str, Any]]:
    """Returns the steps of `normalization.normalize`, then the model's own."""
    # Some control characters are white space to Python alone.
    steps = [replace("Regex", normalization.WHITE_SPACE, " ")]
    steps += [replace("String", *pair) for pair in normalization.QUOTES]
    steps.append(_REPLACE_VERSION_DEPENDENT)
    if not keep_accents:
        accents = replace("Regex", normalization.COMBINING.pattern, "")
        steps += [{"type": "NFKD"}, accents]
    if do_lower_case:
        steps.append(_LOWERCASE)
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return steps


def word_normalizers(
    *, do_lower_case: bool, keep_accents: bool
) -> list[dict[str, Any]]:
    """Returns the steps of `wordpiece.split_words` before it splits."""
    steps = [
        replace("Regex", wordpiece.CONTROL.pattern, ""),
        _REPLACE_VERSION_DEPENDENT,
    ]
    if do_lower_case:
        steps.append(_LOWERCASE)
    if not keep_accents:
        steps += [
            {"type": "NFD"},
            replace("Regex", wordpiece.MARKS.pattern, ""),
        ]
    return steps


def replace(kind: str, pattern: str, content: str) -> dict[str, Any]:
    """Returns the step that replaces a pattern: a "String" or a "Regex"."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


_REPLACE_VERSION_DEPENDENT = replace(
    "Regex", normalization.VERSION_DEPENDENT.pattern, normalization.REPLACEMENT
)
# Letter by letter, so that capital sigma is never the final one.
_LOWERCASE = {"type": "Lowercase"}


def _post_processor(specials: dict[str, int]) -> dict[str, Any]:
    """Returns [CLS] A [SEP] and [CLS] A [SEP] B [SEP], B in segment 1."""

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def sequence(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("[CLS]", 0), sequence("A", 0), special("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), special("[SEP]", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [specials[name]], "tokens": [name]}
            for name in ("[CLS]", "[SEP]")
        },
    }
