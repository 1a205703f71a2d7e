"""A tokenizer in the JSON form of Hugging Face's `tokenizers` library.

`sentencepiece_json` and `wordpiece_json` return the contents of a
`tokenizer.json`, so that `transformers` opens a model directory without
converting anything.

SentencePiece's type Unigram is one of that library too. So is BPE, which there
has its merges in place of scores; a model of characters is one
without merges. A model of words has no counterpart: neighbouring unknown words
are one piece.
"""

import base64
from collections.abc import Sequence
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.text import normalization, wordpiece
from albert_tf.text.added_tokens import AddedTokens, is_added, text_of
from albert_tf.text.tokenizer_base import (
    SENTENCEPIECE_SPECIALS,
    SPACE,
    WORDPIECE_SPECIALS,
)

_USER_DEFINED = sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED
# Subtracted from the score of pieces like "8,", which ALBERT splits: any
# other segmentation is then better. As in Hugging Face's converter.
DIGIT_COMMA_PENALTY = 100.0


# Scores can keep a Unigram from such a piece. In a BPE others are made of it.
MERGED_COMMA = (
    'it merges a digit and a comma after it ("8,"), which ALBERT splits again'
)

# Settings of each type of model that change ids, with the value of ALBERT.
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "Unigram": {},
    "BPE": {
        "unk_token": SENTENCEPIECE_SPECIALS["unk_token"],
        "fuse_unk": True,
        "ignore_merges": False,
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
    },
    "WordPiece": {
        "unk_token": WORDPIECE_SPECIALS["unk_token"],
        "continuing_subword_prefix": wordpiece.CONTINUATION,
    },
}


def ends_in_digit_comma(piece: str) -> bool:
    """Returns whether ALBERT splits the comma off this piece."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def no_json_reason(model: sentencepiece_model_pb2.ModelProto) -> str:
    """Returns why `tokenizer.json` cannot hold a model; empty if it can."""
    kinds = model.SentencePiece
    spec, trainer = model.normalizer_spec, model.trainer_spec
    texts = [p for p in model.pieces if p.type in (kinds.NORMAL, _USER_DEFINED)]
    normal = _scores_of_text(model)
    merged = [score for piece, score in normal.items() if len(piece) > 1]
    reasons = {
        "it is a model of words": trainer.model_type == trainer.WORD,
        "it has no mark of a space before each word": not (
            spec.add_dummy_prefix and spec.escape_whitespaces
        ),
        "its own clean-up keeps several spaces": (
            not spec.remove_extra_whitespaces
        ),
        "it has pieces of several words": any(
            SPACE in p.piece.lstrip(SPACE) for p in texts if not is_added(p)
        ),
        "it has unused pieces": any(
            p.type == kinds.UNUSED for p in _listed(model)
        ),
    }
    if trainer.model_type != trainer.UNIGRAM:
        reasons |= {
            "it has user-defined pieces of several characters": any(
                p.type == _USER_DEFINED and len(p.piece) > 1 for p in texts
            ),
            "it has pieces of characters that are no pieces": not {
                p.piece for p in texts
            }.issuperset("".join(normal)),
            "several of its merges rank alike": (
                len(set(merged)) < len(merged)
            ),
            MERGED_COMMA: any(map(ends_in_digit_comma, normal)),
        }
    return next((reason for reason, is_so in reasons.items() if is_so), "")


def sentencepiece_json(
    model_bytes: bytes, *, do_lower_case: bool, keep_accents: bool
) -> dict[str, Any]:
    """Returns the contents of `tokenizer.json` for a SentencePiece model.

    One of which `no_json_reason` has none.

    Differs from SentencePieceTokenizer: digits before a comma are split as
    the vocabulary's scores have it, not by a second tokenization; and a
    special piece written out in a text ("[SEP]") is that piece.
    """
    model = sentencepiece_model_pb2.ModelProto.FromString(model_bytes)
    pieces = [piece.piece for piece in model.pieces]
    added = AddedTokens(model, str)
    metaspace = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    is_unigram = model.trainer_spec.model_type == model.trainer_spec.UNIGRAM
    return _tokenizer_json(
        specials={
            name: pieces.index(name) for name in SENTENCEPIECE_SPECIALS.values()
        },
        others=[
            _added_token(i, text, is_special=text in added.written)
            for i, text in added.texts.items()
        ],
        normalizers=normalizers_of(
            model.normalizer_spec.precompiled_charsmap,
            do_lower_case=do_lower_case,
            keep_accents=keep_accents,
        ),
        pre_tokenizers=[{"type": "WhitespaceSplit"}, metaspace],
        decoder=metaspace,
        model=_unigram(model) if is_unigram else _bpe(model),
    )


def _listed(
    model: sentencepiece_model_pb2.ModelProto,
) -> list[sentencepiece_model_pb2.ModelProto.SentencePiece]:
    """Returns the pieces up to the last one that is neither added nor unused.

    Added tokens are listed apart, and unused pieces have no place there.
    """
    pieces = list(model.pieces)
    while is_added(pieces[-1]) or pieces[-1].type == pieces[-1].UNUSED:
        pieces.pop()
    return pieces


def _name(piece: Any) -> str:
    """Returns the text of an added token, any other piece as it is."""
    return text_of(piece.piece) if is_added(piece) else piece.piece


def _unigram(model: sentencepiece_model_pb2.ModelProto) -> dict[str, Any]:
    pieces = [piece.piece for piece in model.pieces]
    return {
        "type": "Unigram",
        "unk_id": pieces.index(SENTENCEPIECE_SPECIALS["unk_token"]),
        "vocab": [
            [
                _name(piece),
                piece.score
                - DIGIT_COMMA_PENALTY * ends_in_digit_comma(piece.piece),
            ]
            for piece in _listed(model)
        ],
        "byte_fallback": model.trainer_spec.byte_fallback,
    }


def _bpe(model: sentencepiece_model_pb2.ModelProto) -> dict[str, Any]:
    return {
        "type": "BPE",
        **MODEL_SETTINGS["BPE"],
        "byte_fallback": model.trainer_spec.byte_fallback,
        "vocab": {_name(p): i for i, p in enumerate(_listed(model))},
        # A pair as one text is read by every release.
        "merges": [
            " ".join(pair) for pair in merges_of(_scores_of_text(model))
        ],
    }


def _scores_of_text(
    model: sentencepiece_model_pb2.ModelProto,
) -> dict[str, float]:
    """Returns the scores of pieces that are no signs and no added tokens."""
    return {
        piece.piece: piece.score
        for piece in model.pieces
        if piece.type == piece.NORMAL and not is_added(piece)
    }


def merges_of(scores: dict[str, float]) -> list[tuple[str, str]]:
    """Returns every pair of pieces that makes a third one, the best first.

    SentencePiece merges whatever makes a piece.
    """
    pairs = [
        (piece[:end], piece[end:])
        for piece in scores
        for end in range(1, len(piece))
    ]
    made = [pair for pair in pairs if scores.keys() >= set(pair)]
    # A piece's longest beginning comes first, as in transformers.
    made.sort(key=lambda pair: (scores["".join(pair)], len(pair[0])))
    return made[::-1]


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
    return _tokenizer_json(
        specials={name: ids[name] for name in WORDPIECE_SPECIALS.values()},
        normalizers=word_normalizers_of(
            do_lower_case=do_lower_case, keep_accents=keep_accents
        ),
        pre_tokenizers=word_splits(
            tokenize_chinese_chars=tokenize_chinese_chars
        ),
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
    others: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            *(
                _added_token(index, name, is_special=True)
                for name, index in sorted(specials.items(), key=lambda x: x[1])
            ),
            *others,
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre_tokenizers},
        "post_processor": post_processor(specials),
        "decoder": decoder,
        "model": model,
    }


def _added_token(index: int, text: str, *, is_special: bool) -> dict[str, Any]:
    """Returns a token that is found before others, as it is if special."""
    return {
        "id": index,
        "content": text,
        "single_word": False,
        # The space before a mask is part of it: "is [MASK]" and "is[MASK]".
        "lstrip": text == "[MASK]",
        "rstrip": False,
        "normalized": not is_special,
        "special": is_special,
    }


def normalizers_of(
    charsmap: bytes, *, do_lower_case: bool, keep_accents: bool
) -> list[dict[str, Any]]:
    """Returns the steps of `normalization.normalize`, then the model's own."""
    # Some control characters are white space to Python alone.
    steps = [replacement("Regex", normalization.WHITE_SPACE, " ")]
    steps += [replacement("String", *pair) for pair in normalization.QUOTES]
    steps.append(_REPLACE_VERSION_DEPENDENT)
    if not keep_accents:
        accents = replacement("Regex", normalization.COMBINING.pattern, "")
        steps += [{"type": "NFKD"}, accents]
    if do_lower_case:
        steps.append(_LOWERCASE)
    if charsmap and not keep_accents:
        # A `Precompiled` composes nothing of more than five bytes, such as a
        # syllable of Korean. With accents NFC would reorder those of Hebrew.
        steps.append(COMPOSE)
    if charsmap:
        encoded = base64.b64encode(charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return steps


def word_normalizers_of(
    *, do_lower_case: bool, keep_accents: bool
) -> list[dict[str, Any]]:
    """Returns the steps of `wordpiece.split_words` before it splits."""
    steps = [
        replacement("Regex", wordpiece.CONTROL.pattern, ""),
        _REPLACE_VERSION_DEPENDENT,
    ]
    if do_lower_case:
        steps.append(_LOWERCASE)
    if not keep_accents:
        steps += [
            {"type": "NFD"},
            replacement("Regex", wordpiece.MARKS.pattern, ""),
        ]
    return steps


def word_splits(*, tokenize_chinese_chars: bool) -> list[dict[str, Any]]:
    """Returns the steps of `wordpiece.split_words` that split."""
    alone = wordpiece.SINGLE_CHARACTER_WORDS[tokenize_chinese_chars].pattern
    return [
        {"type": "WhitespaceSplit"},
        {
            "type": "Split",
            "pattern": {"Regex": alone},
            "behavior": "Isolated",
            "invert": False,
        },
    ]


def replacement(kind: str, pattern: str, content: str) -> dict[str, Any]:
    """Returns the step that replaces a pattern: a "String" or a "Regex"."""
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


_REPLACE_VERSION_DEPENDENT = replacement(
    "Regex", normalization.VERSION_DEPENDENT.pattern, normalization.REPLACEMENT
)
# Letter by letter, so that capital sigma is never the final one.
_LOWERCASE = {"type": "Lowercase"}
COMPOSE = {"type": "NFC"}


def post_processor(specials: dict[str, int]) -> dict[str, Any]:
    """Returns [CLS] A [SEP] and [CLS] A [SEP] B [SEP], B in segment 1."""

    def item(name: str, segment: int) -> dict[str, Any]:
        kind = "SpecialToken" if name in specials else "Sequence"
        return {kind: {"id": name, "type_id": segment}}

    single = [item("[CLS]", 0), item("A", 0), item("[SEP]", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, item("B", 1), item("[SEP]", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [specials[name]], "tokens": [name]}
            for name in ("[CLS]", "[SEP]")
        },
    }
