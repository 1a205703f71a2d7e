"""Pairs of texts that belong together, for the training of embeddings."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from albert_tf.inputs.input_pipeline import Batch
from albert_tf.inputs.length_buckets import TaskBatches
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.text.tokenizer_base import Tokenizer

# The passages of a document, in their order; or the texts of a table's row.
Document = Sequence[str]
TextPair = tuple[str, str]


def _neighbours(document: Document) -> Iterator[TextPair]:
    return itertools.pairwise(document)


def separate_pairs(document: Document) -> Iterator[TextPair]:
    """Returns neighbours of which none has a text of another.

    Otherwise what is nearest to a first text would be itself, as the second
    one of the pair before.
    """
    return zip(document[::2], document[1::2], strict=False)


def _same_text(document: Document) -> Iterator[TextPair]:
    return ((text, text) for text in document)


# Functions of a document that return the pairs that are learned. Those that
# are evaluated are `separate_pairs` always: a text and itself without dropout
# have the same vector. The names are choices in the settings, too
# (config/training.py); the documents of "columns" are rows of a table.
PAIR_SOURCES: dict[str, Callable[[Document], Iterator[TextPair]]] = {
    "neighbours": _neighbours,
    "dropout": _same_text,
    "columns": _neighbours,
}


def distinct_pairs(
    pairs: Iterable[TextPair], held_out: Iterable[TextPair] = ()
) -> list[TextPair]:
    """Returns the pairs of which no two have the same first or second text.

    Of such pairs the first one stays: what stands in many documents tells none
    of them apart, and would be a wrong answer for itself. Nor has one a text of
    those that are `held_out`.
    """
    evaluated = set(itertools.chain.from_iterable(held_out))
    found, seen = [], (set[str](), set[str]())
    for pair in pairs:
        if (
            pair[0] not in seen[0]
            and pair[1] not in seen[1]
            and evaluated.isdisjoint(pair)
        ):
            seen[0].add(pair[0])
            seen[1].add(pair[1])
            found.append(pair)
    return found


def pair_features(
    pairs: Sequence[TextPair], tokenizer: Tokenizer, max_seq_length: int
) -> Features:
    """Returns a row of two sequences, [CLS] text [SEP], for each pair."""
    texts = list(dict.fromkeys(itertools.chain.from_iterable(pairs)))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    sequences = [[ids[text]] for pair in pairs for text in pair]
    return dataclasses.replace(
        sequence_features(sequences, tokenizer, max_seq_length, {}),
        example_numbers=np.arange(len(pairs)),
        choices=2,
    )


class PairBatches(TaskBatches):
    """Batches of pairs, `input_ids` and the like int32 `[batch, 2, seq]`.

    They have no `part_widths`: the texts of a batch are computed together,
    since each is compared with all.
    """

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """Returns rows of the global batch of a step; None: all of it.

        A pair that is in it twice, where two epochs meet, counts once: it
        would be a wrong answer for itself.
        """
        batch = super().batch(step, rows)
        batch.pop("part_widths", None)
        _, firsts = np.unique(self.record_numbers(step), return_index=True)
        batch["example_weights"] *= np.isin(batch["example_numbers"], firsts)
        return batch
