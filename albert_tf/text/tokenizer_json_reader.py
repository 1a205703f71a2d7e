"""Reads the `tokenizer.json` of Hugging Face's `tokenizers` library.

`read_tokenizer_json` is the reverse of the module `tokenizer_json`, for
directories that hold nothing else.

What the file lacks of a Unigram model follows from ALBERT's recipe: scores are
log-probabilities, so a piece with a score of 0 is a user-defined symbol. The
scores of BPE follow from the ids, which SentencePiece's trainer gives in order.
"""

import base64
import json
import re
from collections import Counter
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError, require, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.text.added_tokens import piece_of, text_of
from albert_tf.text.normalization import COMBINING, QUOTES
from albert_tf.text.tokenizer_base import (
    SENTENCEPIECE_SPECIALS,
    SPACE,
    SPECIAL_PIECES,
    AddedToken,
    Tokenizer,
    check_number_of_pieces,
)
from albert_tf.text.tokenizer_json import (
    COMPOSE,
    DIGIT_COMMA_PENALTY,
    MERGED_COMMA,
    MODEL_SETTINGS,
    ends_in_digit_comma,
    merges_of,
    normalizers_of,
    post_processor,
    replacement,
    word_normalizers_of,
    word_splits,
)
from albert_tf.text.wordpiece import MARKS

# The piece of a byte, for characters that are no pieces.
_BYTE = re.compile("<0x[0-9A-F]{2}>")

_ONE_SPACE = replacement("Regex", " {2,}", " ")
# The splits of texts into words before WordPiece, as BERT's tokenizer has them.
_WORD_SPLITS = (
    [{"type": "BertPreTokenizer"}],
    *(word_splits(tokenize_chinese_chars=value) for value in (True, False)),
)

# About the largest number that a SentencePiece model can hold.
_MAX_FLOAT32 = 3e38

Settings = dict[str, bool]


def read_tokenizer_json(
    path: str, *, is_run: bool = False
) -> tuple[str, Any, Settings, list[AddedToken]]:
    """Returns the type of the model, its vocabulary, clean-up and added tokens.

    The vocabulary of a "Unigram" or "BPE" is a SentencePiece model, that of a
    "WordPiece" the pieces in the order of their ids. `is_run`: whether
    transformers runs the file as it is. Its other classes put [CLS] and [SEP]
    around a text whatever the file says.

    Raises:
        UserError: for any other kind of tokenizer, another clean-up or
            other pieces than ours, and a file that cannot be read or is
            damaged.
    """
    values = read_json(path)
    try:
        if is_run or values.get("post_processor") is not None:
            _check_frame(values.get("post_processor"))
        return _parsed(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is damaged: its values are not those of a "
            f"tokenizer.json ({shown(error)})."
        ) from None


def has_other_pieces(path: str, tokenizer: Tokenizer) -> bool:
    """Returns whether a tokenizer.json has other pieces than a tokenizer.

    Whoever adds tokens, or trains a vocabulary anew, leaves the vocabulary's
    own file as it was. Fewer pieces, without the added tokens of the tokenizer,
    are no others; so are those of a file that is none of that library.
    """
    values = read_json(path) if files.isfile(path) else {}
    model = values.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocab, list | dict):
        return False
    try:
        pieces = [row[0] for row in vocab]
        if isinstance(vocab, dict):
            pieces = sorted(vocab, key=vocab.__getitem__)
        ids = [token["id"] for token in values.get("added_tokens", [])]
        count = max([len(pieces) - 1, *ids]) + 1
        texts = [text_of(piece) for piece in pieces]
    except (AttributeError, LookupError, TypeError):
        # To read it says what is wrong.
        return True
    known = tokenizer.pieces(range(min(len(pieces), tokenizer.vocab_size)))
    # The piece of an added token has the mark of a space.
    return count > tokenizer.vocab_size or any(
        text != text_of(other)
        for text, other in zip(texts, known, strict=False)
    )


def _parsed(
    values: dict[str, Any],
) -> tuple[str, Any, Settings, list[AddedToken]]:
    model = values.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    require(
        type(kind) is str and kind in MODEL_SETTINGS,
        "expected a model of type Unigram or BPE (SentencePiece) or "
        f"WordPiece, got {shown(kind)}.",
    )
    for name, expected in MODEL_SETTINGS[str(kind)].items():
        _require_ours(
            model.get(name, expected) == expected,
            f"expected {name} {json.dumps(expected)}, got "
            f"{shown(model.get(name))}",
        )
    is_words = kind == "WordPiece"
    read = _wordpiece_vocabulary if is_words else _sentencepiece_model
    vocabulary, settings = read(values)
    return str(kind), vocabulary, settings, _added_tokens(values)


def _require_ours(condition: bool, difference: str) -> None:
    """Raises UserError for what ALBERT's tokenizers here do otherwise."""
    require(condition, f"{difference}; its ids would differ here.")


def _added_tokens(values: dict[str, Any]) -> list[AddedToken]:
    """Returns the tokens beside the pieces of the model."""
    vocab = values["model"]["vocab"]
    pieces = vocab if isinstance(vocab, dict) else {row[0] for row in vocab}
    added = [
        token
        for token in values.get("added_tokens", [])
        if not token.get("special", True)
        or token["content"] not in SPECIAL_PIECES.intersection(pieces)
    ]
    return [added_token(token, int(token["id"])) for token in added]


def added_token(values: dict[str, Any], token_id: int) -> AddedToken:
    """Returns a token of transformers' lists; raises UserError."""
    content = values["content"]
    _require_ours(
        not values.get("single_word", False),
        f"the added token {shown(content)} is found as a whole word alone",
    )
    is_cleaned = values.get("normalized", not values.get("special", False))
    return AddedToken(content, token_id, bool(is_cleaned))


def _check_frame(processor: Any) -> None:
    """Raises UserError where texts and pairs are framed in another way."""
    ours = post_processor({"[CLS]": 0, "[SEP]": 0})
    parts = processor or {}
    is_ours = all(parts.get(n) == ours[n] for n in ("type", "single", "pair"))
    if parts.get("type") == "BertProcessing":
        is_ours = [parts[n][0] for n in ("cls", "sep")] == ["[CLS]", "[SEP]"]
    _require_ours(
        is_ours,
        f"the post_processor {shown(processor)} does not make [CLS] A [SEP] "
        "and [CLS] A [SEP] B [SEP], B and what follows of type_id 1",
    )


def _check_space_marks(values: dict[str, Any]) -> None:
    """Raises UserError where not every word gets SentencePiece's mark."""
    steps = _flat_steps(values.get("pre_tokenizer"), "pretokenizers")
    marks = [step for step in steps if step["type"] == "Metaspace"]
    _require_ours(
        bool(marks)
        and all(s["type"] in ("WhitespaceSplit", "Metaspace") for s in steps)
        and all(
            step.get("replacement", SPACE) == SPACE
            and step.get("prepend_scheme", "always") == "always"
            and step.get("add_prefix_space", True)
            for step in marks
        ),
        f"the pre_tokenizer {shown(values.get('pre_tokenizer'))} is not that "
        "of an ALBERT tokenizer, a mark before every word",
    )
    cleaned = _flat_steps(values.get("normalizer"), "normalizers")
    require(
        len(steps) > len(marks) or _ONE_SPACE in cleaned,
        "several spaces have several ids with this pre_tokenizer, and one "
        "here; put WhitespaceSplit before Metaspace.",
    )


def _sentencepiece_model(values: dict[str, Any]) -> tuple[bytes, Settings]:
    model = values["model"]
    is_bpe = model["type"] == "BPE"
    if is_bpe:
        pieces = _ranked_pieces(model)
        unknown = model["vocab"][model["unk_token"]]
    else:
        pieces = [
            # A token that was added here, as `sentencepiece_json` has it.
            (piece_of(piece) if score > 0 else piece, score)
            for piece, score in scored_pieces(model.get("vocab"))
        ]
        # Raises for what is not the id of a piece.
        unknown = range(len(pieces)).index(model["unk_id"])
    special = {pieces[unknown][0], *SENTENCEPIECE_SPECIALS.values()}
    for token in values.get("added_tokens", []):
        if token.get("special"):
            special.add(token["content"])
    if is_bpe:
        added = {token.content for token in _added_tokens(values)}
        _check_merges(model, special, added)
    _check_space_marks(values)
    steps = _checked_normalizers(values)
    charsmap = base64.b64decode(
        steps.get("Precompiled", {}).get("precompiled_charsmap") or "",
        validate=True,
    )
    model_bytes = sentencepiece_model(
        pieces,
        unknown=unknown,
        special=special,
        charsmap=charsmap,
        is_bpe=is_bpe,
        has_bytes=bool(model.get("byte_fallback")),
    )
    return model_bytes, {
        "do_lower_case": "Lowercase" in steps,
        "keep_accents": not steps.keys() & {"NFKD", "StripAccents"},
    }


def _ranked_pieces(model: dict[str, Any]) -> list[tuple[str, float]]:
    """Returns the pieces of a BPE, each with the score that its id has."""
    pieces = _in_order(model["vocab"])
    return [(piece, -float(i)) for i, piece in enumerate(pieces)]


def _check_merges(
    model: dict[str, Any], special: set[str], added: set[str]
) -> None:
    """Raises UserError for merges that SentencePiece would not make so.

    Those of added tokens do not matter, which are found in a text before.
    """
    ids = model["vocab"]
    others = special | added
    scores = {p: -float(i) for p, i in ids.items() if p not in others}
    _require_ours(not any(map(ends_in_digit_comma, scores)), MERGED_COMMA)
    pairs = [
        tuple(pair.split(" ") if isinstance(pair, str) else pair)
        for pair in model["merges"]
    ]
    pairs = [p for p in pairs if added.isdisjoint((*p, "".join(p)))]
    made = [ids["".join(pair)] for pair in pairs]
    _require_ours(
        made == sorted(made) and set(pairs) == set(merges_of(scores)),
        "its merges are not those of a SentencePiece model, which merges "
        "whatever makes a piece, in the order of ids",
    )


def sentencepiece_model(
    pieces: list[tuple[str, float]],
    *,
    unknown: int,
    special: set[str],
    charsmap: bytes,
    is_bpe: bool = False,
    has_bytes: bool = False,
) -> bytes:
    """Returns the bytes of a SentencePiece model of pieces with scores."""
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for number, (piece, score) in enumerate(pieces):
        kind = None  # the default: a piece of text
        if number == unknown:
            kind = kinds.UNKNOWN
        elif piece in special:
            kind = kinds.CONTROL
        elif has_bytes and _BYTE.fullmatch(piece):
            kind = kinds.BYTE
        elif is_bpe:
            pass
        elif score == 0.0:
            kind = kinds.USER_DEFINED
        elif ends_in_digit_comma(piece) and score <= -DIGIT_COMMA_PENALTY:
            score += DIGIT_COMMA_PENALTY
        model.pieces.add(piece=piece, score=score, type=kind)
    trainer = model.trainer_spec
    trainer.model_type = trainer.BPE if is_bpe else trainer.UNIGRAM
    trainer.byte_fallback = has_bytes
    trainer.vocab_size = len(pieces)
    trainer.unk_id = unknown
    trainer.pad_id = 0
    trainer.bos_id = trainer.eos_id = -1
    model.normalizer_spec.precompiled_charsmap = charsmap
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    return model.SerializeToString()


def _wordpiece_vocabulary(values: dict[str, Any]) -> tuple[list[str], Settings]:
    pieces = _in_order(values["model"]["vocab"])
    splits = values.get("pre_tokenizer")
    _require_ours(
        _flat_steps(splits, "pretokenizers") in _WORD_SPLITS,
        f"the pre_tokenizer {shown(splits)} is not that of BERT, "
        "BertPreTokenizer, for which every punctuation mark is a word",
    )
    steps = _checked_normalizers(values)
    if "BertNormalizer" in steps:
        bert = steps["BertNormalizer"]
        lower = bool(bert.get("lowercase", True))
        strip = bert.get("strip_accents")
        settings = {
            "do_lower_case": lower,
            "keep_accents": not (lower if strip is None else strip),
            "tokenize_chinese_chars": bool(
                bert.get("handle_chinese_chars", True)
            ),
        }
    else:
        settings = {
            "do_lower_case": "Lowercase" in steps,
            "keep_accents": "NFD" not in steps,
            "tokenize_chinese_chars": _flat_steps(splits, "pretokenizers")
            == word_splits(tokenize_chinese_chars=True),
        }
    return pieces, settings


def _in_order(vocab: dict[str, int]) -> list[str]:
    """Returns the pieces of a vocabulary by id."""
    check_number_of_pieces(len(vocab), "the vocabulary")
    require(
        sorted(vocab.values()) == list(range(len(vocab))),
        "expected a vocabulary with ids 0 to n - 1.",
    )
    return sorted(vocab, key=vocab.__getitem__)


def scored_pieces(vocab: Any) -> list[tuple[str, float]]:
    """Returns the pairs of a piece and its score; raises UserError."""
    if not isinstance(vocab, list) or not vocab:
        raise UserError("the model has no list of pieces.")
    check_number_of_pieces(len(vocab), "the vocabulary")
    for number, row in enumerate(vocab):
        match row:
            case [str(), int() | float() as score] if abs(score) < _MAX_FLOAT32:
                continue
        raise UserError(f"piece {number} is not a pair of a text and a score.")
    counts = Counter(piece for piece, _ in vocab)
    repeated = [piece for piece, count in counts.items() if count > 1]
    require(
        not repeated,
        f"the pieces {shown(repeated)} have two ids each, as "
        "train_new_from_iterator leaves symbols of the vocabulary before; "
        "train one with train_vocab.",
    )
    return [(piece, float(score)) for piece, score in vocab]


def _checked_normalizers(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the normalizers by type, refusing what our clean-up lacks.

    Known are those that we write and those of transformers' own classes.
    """
    known: list[dict[str, Any]] = [{"type": "StripAccents"}]
    uncased = {"do_lower_case": True, "keep_accents": False}
    # One more is known, whose values vary.
    if values["model"]["type"] == "WordPiece":
        varying = "BertNormalizer"
        known += word_normalizers_of(**uncased)
    else:
        varying = "Precompiled"
        known += [
            *normalizers_of(b"", **uncased),
            {"type": "Strip", "strip_left": True, "strip_right": True},
            _ONE_SPACE,
        ]
    steps = _flat_steps(values.get("normalizer"), "normalizers")
    if {"NFKD", "Precompiled"} <= {step["type"] for step in steps}:
        # It composes what a character map composes here after NFKD.
        known.append(COMPOSE)
    for step in steps:
        is_clean = step["type"] == varying and step.get("clean_text", True)
        require(
            bool(is_clean) or step in known,
            f"the normalizer {shown(step)} is none of an ALBERT tokenizer; its "
            "ids would differ here. Use a tokenizer without it.",
        )
    _check_accents_and_quotes(steps, is_words=varying == "BertNormalizer")
    # The first of a type, as in the file.
    return {step["type"]: step for step in reversed(steps)}


def _check_accents_and_quotes(
    steps: list[dict[str, Any]], *, is_words: bool
) -> None:
    """Raises UserError for half a removal of accents, and without quotes."""
    form, marks = ("NFD", MARKS) if is_words else ("NFKD", COMBINING)
    removals = (
        {"type": "StripAccents"},
        replacement("Regex", marks.pattern, ""),
    )
    found = [s for s in steps if s in ({"type": form}, *removals)]
    _require_ours(
        found in ([], *([{"type": form}, removal] for removal in removals)),
        f"expected a normalizer {form} with StripAccents after it, or neither, "
        f"got {', '.join(step['type'] for step in found)}",
    )
    _require_ours(
        is_words or all(replacement("String", *q) in steps for q in QUOTES),
        "the normalizers make no '\"' of `` and ''",
    )


def _flat_steps(value: Any, parts: str) -> list[dict[str, Any]]:
    """Returns the steps of a normalizer or the like, sequences flattened.

    `parts` is the name of a sequence's steps.
    """
    if value is None:
        return []
    if value["type"] != "Sequence":
        return [value]
    return [step for part in value[parts] for step in _flat_steps(part, parts)]
