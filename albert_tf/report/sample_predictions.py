"""Sample predictions for masked sentences, also as Markdown for TensorBoard."""

import dataclasses
import html
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.text.tokenizer_base import Tokenizer

# Longer texts are truncated.
_MAX_TOKENS = 96
_TOP_K = 3
# TensorBoard shows no HTML.
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Characters with a meaning in Markdown or its tables.
_MARKDOWN = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]#|~"})


@dataclasses.dataclass(frozen=True)
class MaskedSample:
    """The beginning of a text as the model saw it, and its predictions.

    Attributes:
        tokens: the text that each token adds, a space before words; its piece;
            the number of its mask, None without one.
        labels: of the masks, in the order of their numbers, from 1.
        predictions: the likeliest (piece, probability) of each mask.
        is_cut: whether the text goes on.
    """

    tokens: list[tuple[str, str, int | None]]
    labels: list[str]
    predictions: list[list[tuple[str, float]]]
    is_cut: bool


def masked_samples(
    tokenizer: Tokenizer,
    batch: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> list[MaskedSample]:
    """Returns the rows of a batch with their masks and predictions.

    The batch is one of pretraining, its logits `[rows, predictions, vocab]`.
    """
    return [
        _sample(
            tokenizer,
            {name: np.asarray(values[row]) for name, values in batch.items()},
            np.asarray(logits[row]),
        )
        for row in range(len(logits))
    ]


def masked_sentences(samples: Sequence[MaskedSample]) -> str:
    """Returns samples in Markdown.

    Each is its text, with numbers at the masks, and a table of their labels
    and predictions.
    """
    return "\n\n".join(map(_markdown, samples))


def shown_prediction(prediction: tuple[str, float]) -> str:
    """Returns a piece with its probability."""
    piece, probability = prediction
    return f"{piece} {probability:.0%}"


def superscript(number: int) -> str:
    """Returns a number in small raised digits."""
    return str(number).translate(_SUPERSCRIPT)


def _sample(
    tokenizer: Tokenizer, features: Mapping[str, np.ndarray], logits: np.ndarray
) -> MaskedSample:
    length = int(features["input_mask"].sum())
    ids = features["input_ids"][:length][:_MAX_TOKENS]
    positions = features["masked_lm_positions"]
    slots = np.flatnonzero(
        (features["masked_lm_weights"] > 0) & (positions < len(ids))
    )
    slots = slots[np.argsort(positions[slots], kind="stable")]
    numbers = {int(positions[slot]): n for n, slot in enumerate(slots, 1)}
    return MaskedSample(
        tokens=[
            (token, piece, numbers.get(position))
            for position, (token, piece) in enumerate(_tokens(tokenizer, ids))
        ],
        labels=list(tokenizer.pieces(features["masked_lm_ids"][slots])),
        predictions=[_top_k(tokenizer, logits[slot]) for slot in slots],
        is_cut=length > len(ids),
    )


def _markdown(sample: MaskedSample) -> str:
    text = "".join(_marked(*token) for token in sample.tokens)
    if sample.is_cut:
        text += " …"
    rows = zip(sample.labels, sample.predictions, strict=True)
    table = [
        f"| {number} | {_escaped(label)} | "
        f"{_escaped(', '.join(map(shown_prediction, predictions)))} |"
        for number, (label, predictions) in enumerate(rows, 1)
    ]
    head = ["| mask | label | predictions |", "|---:|---|---|"]
    return "\n".join([f"> {text.strip()}", "", *head, *table])


def _tokens(tokenizer: Tokenizer, ids: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yields the text that each token adds, a space before words; its piece."""
    before = ""
    for end, piece in enumerate(tokenizer.pieces(ids), 1):
        text = tokenizer.decode(ids[:end])
        added = text[len(before) :]
        if not added and ids[end - 1] in tokenizer.special_ids:
            added = f" {piece}"
        elif added and not before:
            # A text does not begin with the space of its first word.
            added = f" {added}"
        yield added, piece
        before = text


def _marked(token: str, piece: str, number: int | None) -> str:
    """Returns a token in Markdown, with its number if it is masked."""
    if number is None:
        return _escaped(token)
    word = token.strip()
    space = " " if token != word else ""
    # A piece may add nothing: the mark of a word alone.
    shown = _escaped(word or piece)
    return f"{space}**{shown}**{superscript(number)}"


def _top_k(tokenizer: Tokenizer, logits: np.ndarray) -> list[tuple[str, float]]:
    scores = np.exp(logits.astype(np.float64) - logits.max())
    best = np.argsort(-scores, kind="stable")[:_TOP_K]
    shares = (scores[best] / scores.sum()).tolist()
    return list(zip(tokenizer.pieces(best), shares, strict=True))


def _escaped(piece: str) -> str:
    return html.escape(piece).translate(_MARKDOWN)
