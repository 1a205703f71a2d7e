"""Selects words of a corpus to add to a vocabulary as pieces."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

from albert_tf.config import require
from albert_tf.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer_base import SPACE, Tokenizer

# A word that occurs once has too little to learn its embedding from.
_MIN_OCCURRENCES = 2


def count_words(texts: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Returns the number of occurrences of each word after the clean-up."""
    return Counter(itertools.chain.from_iterable(map(tokenizer.words, texts)))


def new_words(counts: Mapping[str, int], tokenizer: Tokenizer) -> list[str]:
    """Returns the words that occur twice and are split; best first.

    As pieces of their own they shorten the corpus by their occurrences times
    the pieces beyond the first that they have now.
    """
    # A model of SentencePiece may split words that it has a piece for.
    known = {*tokenizer.pieces(range(tokenizer.vocab_size))}
    mark = SPACE if isinstance(tokenizer, SentencePieceTokenizer) else ""
    frequent = (w for w, n in counts.items() if n >= _MIN_OCCURRENCES)
    words = [word for word in frequent if mark + word not in known]
    saved = {}
    for word, ids in zip(words, tokenizer.encode_batch(words), strict=True):
        if len(ids) > 1:
            saved[word] = counts[word] * (len(ids) - 1)
    return sorted(saved, key=lambda word: (-saved[word], word))


def select_words(
    counts: Mapping[str, int], tokenizer: Tokenizer, number: int
) -> list[str]:
    """Returns the words that shorten the corpus most, in tokens; best first.

    Raises:
        UserError: when fewer words have several pieces and occur twice.
    """
    words = new_words(counts, tokenizer)
    require(
        number <= len(words),
        f"num_new_tokens={number}: the corpus has {len(words)} words that "
        f"occur at least {_MIN_OCCURRENCES} times and that the tokenizer "
        "splits; choose at most as many.",
    )
    return words[:number]


def pieces_per_word(counts: Mapping[str, int], tokenizer: Tokenizer) -> float:
    """Returns the mean number of pieces of a word of the corpus."""
    pieces = map(len, tokenizer.encode_batch(counts))
    total = sum(n * k for n, k in zip(counts.values(), pieces, strict=True))
    return total / max(1, counts.total())
