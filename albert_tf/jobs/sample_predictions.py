"""What a model makes of a few masked sentences, as text to look at."""

import html
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.text.tokenizer_base import Tokenizer

# Longer texts are cut: what is shown is to be read.
_MOST_TOKENS = 96
_NUM_GUESSES = 3
# TensorBoard shows no HTML.
_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Signs that Markdown or its tables would take for their own.
_MARKDOWN = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\`*_[]#|~"})


def masked_sentences(
    tokenizer: Tokenizer,
    batch: Mapping[str, np.ndarray],
    logits: np.ndarray,
    num_rows: int = 4,
) -> str:
    """Returns the first rows with their masks and guesses, in Markdown.

    Of each row the text as the model saw it, its predicted places numbered
    (a place may show a random or the right piece instead of a mask), and a
    table: the right piece and the likeliest ones with their probabilities.
    The beginning of long texts only.

    Args:
        tokenizer: that of the batch.
        batch: `input_ids` and `input_mask` `[batch, seq]`,
            `masked_lm_positions`, `masked_lm_ids` and `masked_lm_weights`
            `[batch, predictions]`.
        logits: `[batch, predictions, vocab]`.
        num_rows: at most so many rows.
    """
    names: tuple[str, ...] = (
        *("input_ids", "input_mask", "masked_lm_positions"),
        *("masked_lm_ids", "masked_lm_weights"),
    )
    rows = zip(
        *(np.asarray(batch[name])[:num_rows] for name in names), strict=True
    )
    return "\n\n".join(
        _row(tokenizer, row, np.asarray(row_logits))
        for row, row_logits in zip(rows, logits, strict=False)
    )


def _row(
    tokenizer: Tokenizer,
    row: Sequence[np.ndarray],
    logits: np.ndarray,
) -> str:
    input_ids, input_mask, positions, labels, weights = row
    ids = input_ids[: int(input_mask.sum())][:_MOST_TOKENS]
    slots = np.flatnonzero((weights > 0) & (positions < len(ids)))
    slots = slots[np.argsort(positions[slots], kind="stable")]
    numbers = {int(positions[slot]): n for n, slot in enumerate(slots, 1)}
    text = "".join(
        _marked(token, piece, numbers.get(place))
        for place, (token, piece) in enumerate(_tokens(tokenizer, ids))
    )
    if input_mask.sum() > len(ids):
        text += " …"
    table = [
        f"| {number} | {_shown(*tokenizer.pieces([labels[slot]]))} | "
        f"{_guesses(tokenizer, logits[slot])} |"
        for number, slot in enumerate(slots, 1)
    ]
    head = ["| place | right | guesses |", "|---:|---|---|"]
    return "\n".join([f"> {text.strip()}", "", *head, *table])


def _tokens(tokenizer: Tokenizer, ids: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yields what each token adds to the text, and its piece.

    There is a space before a word. Special pieces stand as words.
    """
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
    """Returns a token in Markdown, its number beside it if it has one."""
    if number is None:
        return _shown(token)
    word = token.strip()
    space = " " if token != word else ""
    # A piece may add nothing: the mark of a word alone.
    shown = _shown(word or piece)
    return f"{space}**{shown}**{str(number).translate(_SUPERSCRIPT)}"


def _guesses(tokenizer: Tokenizer, logits: np.ndarray) -> str:
    """Returns the likeliest pieces with their probabilities."""
    scores = np.exp(logits.astype(np.float64) - logits.max())
    best = np.argsort(-scores, kind="stable")[:_NUM_GUESSES]
    return ", ".join(
        f"{_shown(piece)} {score:.0%}"
        for piece, score in zip(
            tokenizer.pieces(best), scores[best] / scores.sum(), strict=True
        )
    )


def _shown(piece: str) -> str:
    """Returns a piece so that Markdown and HTML show it as it is."""
    return html.escape(piece).translate(_MARKDOWN)
