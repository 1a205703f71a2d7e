"""A vocabulary out of a `tokenizer.json`, the one file that transformers 5
writes.

The reverse of tokenizer_json. What the file does not say of a SentencePiece
model follows from ALBERT's recipe: scores are log-probabilities, so a piece
with a score of 0 is a symbol that was given.
"""

import base64
import binascii
import io
import math
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, shown
from albert_tf.text import wordpiece
from albert_tf.text.tokenizer_json import (
    DIGIT_COMMA_PENALTY,
    SENTENCEPIECE_SPECIALS,
    ends_in_digit_comma,
    normalizers,
    replace,
    word_normalizers,
)
from albert_tf.text.vocabulary_limits import check_number_of_pieces

# Steps of a clean-up that ours does as well: those that are written here,
# and transformers' own.
_STEPS = {
    "Unigram": (
        *normalizers(b"", do_lower_case=True, keep_accents=False),
        {"type": "StripAccents"},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        replace("Regex", " {2,}", " "),
    ),
    "WordPiece": (
        *word_normalizers(do_lower_case=True, keep_accents=False),
        {"type": "StripAccents"},
    ),
}
_STEPS_WITH_VALUES = {"Unigram": "Precompiled", "WordPiece": "BertNormalizer"}

Settings = dict[str, bool]


def model_type(values: dict[str, Any], path: str) -> str:
    """Returns "Unigram" (SentencePiece) or "WordPiece".

    Raises:
        UserError: for any other kind of tokenizer.
    """
    model = values.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if kind not in ("Unigram", "WordPiece"):
        raise UserError(
            f"{path}: the model is of type {kind!r}; Unigram (SentencePiece) "
            "and WordPiece can be read."
        )
    return kind


def sentencepiece_model(
    values: dict[str, Any], path: str
) -> tuple[bytes, Settings]:
    """Returns a SentencePiece model and the clean-up before it.

    Raises:
        UserError: when the contents are not what such a file holds.
    """
    pieces = _scored_pieces(values["model"].get("vocab"), path)
    unknown = values["model"].get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(pieces):
        raise UserError(
            f"{path}: unk_id={unknown!r} is not the number of a piece."
        )
    steps = _checked_steps(values, path)
    model_bytes = _model(
        pieces,
        unknown=unknown,
        special=_special_pieces(values, path),
        charsmap=_charsmap(steps, path),
    )
    kinds_of_steps = {step["type"] for step in steps}
    return model_bytes, {
        "do_lower_case": "Lowercase" in kinds_of_steps,
        "keep_accents": not kinds_of_steps & {"NFKD", "StripAccents"},
    }


def model_of_pieces(rows: list, path: str) -> bytes:
    """Returns the SentencePiece model of pairs of a piece and its score.

    Its clean-up is that of SentencePiece's trainer, and of the released
    models: nmt_nfkc.

    Raises:
        UserError: when they are no pieces, or <unk> is not among them.
    """
    pieces = _scored_pieces(rows, path)
    names = [piece for piece, _ in pieces]
    unknown = SENTENCEPIECE_SPECIALS["unk_token"]
    if unknown not in names:
        raise UserError(f"{path} has no piece {unknown}, which ALBERT needs.")
    return _model(
        pieces,
        unknown=names.index(unknown),
        special=set(SENTENCEPIECE_SPECIALS.values()),
        charsmap=_trainers_charsmap(),
    )


def _trainers_charsmap() -> bytes:
    """Returns the table that every model holds which is trained here."""
    trained = io.BytesIO()
    # SentencePiece gives its table to models only.
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a"]),
        model_writer=trained,
        model_type="char",
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(trained.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def _model(
    pieces: list[tuple[str, float]],
    *,
    unknown: int,
    special: set[str],
    charsmap: bytes,
) -> bytes:
    """Returns a SentencePiece model by ALBERT's recipe."""
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for number, (piece, score) in enumerate(pieces):
        kind = None  # that of most: a piece of text
        if number == unknown:
            kind = kinds.UNKNOWN
        elif piece in special:
            kind = kinds.CONTROL
        elif score == 0.0:
            kind = kinds.USER_DEFINED
        elif ends_in_digit_comma(piece) and score <= -DIGIT_COMMA_PENALTY:
            score += DIGIT_COMMA_PENALTY
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.trainer_spec.vocab_size = len(pieces)
    model.trainer_spec.unk_id = unknown
    model.trainer_spec.pad_id = 0
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    return model.SerializeToString()


def wordpiece_vocabulary(
    values: dict[str, Any], path: str
) -> tuple[list[str], Settings]:
    """Returns the pieces in the order of their ids, and the clean-up.

    Raises:
        UserError: when the contents are not what such a file holds.
    """
    vocab = values["model"].get("vocab")
    if isinstance(vocab, dict):
        check_number_of_pieces(len(vocab), path)
    if not isinstance(vocab, dict) or sorted(
        number for number in vocab.values() if type(number) is int
    ) != list(range(len(vocab))):
        raise UserError(
            f"{path}: the vocabulary does not number its pieces 0 to n - 1."
        )
    steps = _checked_steps(values, path)
    bert = [step for step in steps if step["type"] == "BertNormalizer"]
    if bert:
        lower = bool(bert[0].get("lowercase", True))
        strip = bert[0].get("strip_accents")
        settings = {
            "do_lower_case": lower,
            "keep_accents": not (lower if strip is None else strip),
            "tokenize_chinese_chars": bool(
                bert[0].get("handle_chinese_chars", True)
            ),
        }
    else:
        kinds = {step["type"] for step in steps}
        settings = {
            "do_lower_case": "Lowercase" in kinds,
            "keep_accents": "NFD" not in kinds,
            "tokenize_chinese_chars": wordpiece.LONE[True].pattern
            in _patterns(values.get("pre_tokenizer")),
        }
    return sorted(vocab, key=vocab.__getitem__), settings


def _scored_pieces(vocab: Any, path: str) -> list[tuple[str, float]]:
    if not isinstance(vocab, list) or not vocab:
        raise UserError(f"{path}: the model has no list of pieces.")
    check_number_of_pieces(len(vocab), path)
    for number, row in enumerate(vocab):
        if (
            not isinstance(row, list)
            or len(row) != 2
            or not isinstance(row[0], str)
            or type(row[1]) not in (int, float)
            or not math.isfinite(row[1])
        ):
            raise UserError(
                f"{path}: piece {number} is not a pair of a text and a score."
            )
    return [(piece, float(score)) for piece, score in vocab]


def _special_pieces(values: dict[str, Any], path: str) -> set[str]:
    tokens = values.get("added_tokens", [])
    if not isinstance(tokens, list) or not all(
        isinstance(token, dict) and isinstance(token.get("content"), str)
        for token in tokens
    ):
        raise UserError(f"{path}: added_tokens is not a list of tokens.")
    named = {token["content"] for token in tokens if token.get("special")}
    return named.union(SENTENCEPIECE_SPECIALS.values())


def _checked_steps(values: dict[str, Any], path: str) -> list[dict[str, Any]]:
    """Returns the steps of the clean-up, each of which ours does as well."""
    kind = values["model"]["type"]
    steps = _steps(values.get("normalizer"), path)
    for step in steps:
        cleans = step.get("clean_text", True)
        if step["type"] == _STEPS_WITH_VALUES[kind] and cleans:
            continue
        if step not in _STEPS[kind]:
            raise UserError(
                f"{path}: the normalizer {shown(step)} is none that an ALBERT "
                f"tokenizer has; its ids would be others here. Use a tokenizer "
                "without it."
            )
    return steps


def _steps(value: Any, path: str) -> list[dict[str, Any]]:
    """Returns the steps of a normalizer, sequences opened up."""
    if value is None:
        return []
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise UserError(f"{path}: the normalizer is not an object with a type.")
    if value["type"] != "Sequence":
        return [value]
    parts = value.get("normalizers")
    if not isinstance(parts, list):
        raise UserError(f"{path}: a sequence of normalizers is not a list.")
    return [step for part in parts for step in _steps(part, path)]


def _charsmap(steps: list[dict[str, Any]], path: str) -> bytes:
    for step in steps:
        if step["type"] == "Precompiled":
            try:
                return base64.b64decode(
                    step.get("precompiled_charsmap") or "", validate=True
                )
            except (binascii.Error, TypeError, ValueError):
                raise UserError(
                    f"{path}: the precompiled_charsmap is not base64."
                ) from None
    return b""


def _patterns(value: Any) -> set[str]:
    """Returns every regular expression within a pre-tokenizer."""
    if isinstance(value, dict):
        regex = value.get("Regex")
        own = {regex} if isinstance(regex, str) else set()
        return own.union(*map(_patterns, value.values()))
    if isinstance(value, list):
        return set().union(*map(_patterns, value))
    return set()
