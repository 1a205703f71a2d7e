"""Sample predictions for masked sentences, as Markdown for TensorBoard."""

import html
from collections.abc import Iterator, Mapping

import numpy as np

from albert_tf.text.tokenizer_base import Tokenizer

# Longer texts are truncated.
_MAX_TOKENS = 96
_TOP_K = 3
# TensorBoard shows no HTML.
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Characters with a meaning in Markdown or its tables.
_MARKDOWN = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]#|~"})


def masked_sentences(
    tokenizer: Tokenizer,
    batch: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> str:
    """Returns the rows with their masks and predictions, in Markdown.

    Each row is the beginning of the text as the model saw it, its masked
    positions numbered, and a table: the label and the likeliest pieces of each.

    The batch is one of pretraining, its logits `[rows, predictions, vocab]`.
    """
    return "\n\n".join(
        _row(
            tokenizer,
            {name: np.asarray(values[row]) for name, values in batch.items()},
            np.asarray(logits[row]),
        )
        for row in range(len(logits))
    )


def _row(
    tokenizer: Tokenizer, features: Mapping[str, np.ndarray], logits: np.ndarray
) -> str:
    length = int(features["input_mask"].sum())
    ids = features["input_ids"][:length][:_MAX_TOKENS]
    positions = features["masked_lm_positions"]
    slots = np.flatnonzero(
        (features["masked_lm_weights"] > 0) & (positions < len(ids))
    )
    slots = slots[np.argsort(positions[slots], kind="stable")]
    numbers = {int(positions[slot]): n for n, slot in enumerate(slots, 1)}
    text = "".join(
        _marked(token, piece, numbers.get(position))
        for position, (token, piece) in enumerate(_tokens(tokenizer, ids))
    )
    if length > len(ids):
        text += " …"
    labels = tokenizer.pieces(features["masked_lm_ids"][slots])
    table = [
        f"| {number} | {_escaped(label)} | {_top_k(tokenizer, logits[slot])} |"
        for number, (slot, label) in enumerate(
            zip(slots, labels, strict=True), 1
        )
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
    return f"{space}**{shown}**{str(number).translate(_SUPERSCRIPT)}"


def _top_k(tokenizer: Tokenizer, logits: np.ndarray) -> str:
    scores = np.exp(logits.astype(np.float64) - logits.max())
    best = np.argsort(-scores, kind="stable")[:_TOP_K]
    return ", ".join(
        f"{_escaped(piece)} {score:.0%}"
        for piece, score in zip(
            tokenizer.pieces(best), scores[best] / scores.sum(), strict=True
        )
    )


def _escaped(piece: str) -> str:
    return html.escape(piece).translate(_MARKDOWN)
