"""Sentence objectives: how segments are drawn, labelled and learned.

`SENTENCE_OBJECTIVES` has a row for each. To add one, add a row: builds,
verification, training and reports read it from here.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf.config import PretrainingDataConfig
from albert_tf.records.loss_terms import MASKED_LM, LossTerm
from albert_tf.records.segments import (
    DocumentCutter,
    Draws,
    Instance,
    TokenizedDocument,
    random_segment,
)


@dataclasses.dataclass(frozen=True)
class SentenceObjective:
    """A way to cut documents into instances, and its labels."""

    name: str
    meaning: str  # one line for reports
    # Returns the instance at a position of the document, given its draws.
    instance_at: Callable[[DocumentCutter, int, Draws], Instance]
    # The meaning of each label; of two, each is drawn half of the time.
    label_words: tuple[str, ...]
    loss_terms: tuple[LossTerm, ...]  # terms of the heads that learn labels
    num_segments: int = 2
    needs_other_documents: bool = False  # instances may take segments of them

    def instances(
        self,
        documents: Sequence[TokenizedDocument],
        with_text: Sequence[int],
        number: int,
        word_starts: np.ndarray,
        config: PretrainingDataConfig,
        counts: Counter[str],
    ) -> Iterator[tuple[int, Instance]]:
        """Yields the instances of `documents[number]`, copy after copy.

        Each with a key of its own. `with_text` are the numbers of documents
        that are not empty.
        """
        cutter = DocumentCutter(
            documents,
            with_text,
            number,
            word_starts,
            config,
            self.num_segments,
            counts,
        )
        if not cutter.is_cuttable():
            return
        begin, end = cutter.borders[0], cutter.borders[-1]
        for draws_of_copy in cutter.draws():
            position = begin
            while position < end:
                key, draws = next(draws_of_copy)
                instance = self.instance_at(cutter, position, draws)
                yield key, instance
                position = instance.next_begin


def _sentence_order(
    cutter: DocumentCutter, position: int, draws: Draws
) -> Instance:
    """Returns consecutive segments, half of the time swapped.

    Unlike google-research/albert, never segments of two documents, where a
    label 1 would be given away by the topic.
    """
    begin, split, end = cutter.chunk(position, draws)
    cutter.counts["repeated_tokens"] += position - begin
    if draws.label < 0.5:
        return Instance((split, end), (begin, split), 1, end)
    return Instance((begin, split), (split, end), 0, end)


def _next_sentence(
    cutter: DocumentCutter, position: int, draws: Draws
) -> Instance:
    """Returns a pair whose second half is random half of the time.

    As in BERT, the text that the random segment replaced begins the next
    instance. Without another document all pairs are real.
    """
    begin, split, end = cutter.chunk(position, draws)
    is_random = draws.label < 0.5
    if is_random and not cutter.has_partner():
        cutter.counts["without_other_document"] += 1
    if not is_random or not cutter.has_partner():
        cutter.counts["repeated_tokens"] += position - begin
        return Instance((begin, split), (split, end), 0, end)
    if begin < position:  # a last sentence alone: it needs no text before it
        begin, split, end = position, end, end + split - begin
    segment = random_segment(
        cutter.partner(draws.partner).borders,
        draws.partner_sentence,
        end - split,
        cutter.max_tokens - (split - begin),
    )
    return Instance((begin, split), segment, 1, split)


def _single_segment(
    cutter: DocumentCutter, position: int, draws: Draws
) -> Instance:
    """Returns one run of sentences as the only segment, without a label."""
    begin, end = cutter.run(position, draws)
    return Instance((begin, end), (end, end), 0, end)


SENTENCE_OBJECTIVES: dict[str, SentenceObjective] = {
    row.name: row
    for row in (
        # Paper, section 3.1, inter-sentence coherence loss.
        SentenceObjective(
            "sop",
            "are two segments in their order",
            _sentence_order,
            ("in order", "swapped"),
            loss_terms=(
                LossTerm(
                    title="sentence-order accuracy",
                    loss="sentence_order_loss",
                    accuracy="sentence_order_accuracy",
                    baseline="majority_order_accuracy",
                    baseline_label="more frequent order",
                ),
            ),
        ),
        SentenceObjective(
            "nsp",
            "does the second segment follow the first",
            _next_sentence,
            ("B follows A", "B is random"),
            loss_terms=(
                LossTerm(
                    title="next-sentence accuracy",
                    loss="next_sentence_loss",
                    accuracy="next_sentence_accuracy",
                    baseline="majority_next_sentence_accuracy",
                    baseline_label="more frequent answer",
                ),
            ),
            needs_other_documents=True,
        ),
        SentenceObjective(
            "none",
            "single segments, masked LM alone; the pooler and the sentence "
            "head stay as they are",
            _single_segment,
            ("",),
            loss_terms=(),
            num_segments=1,
        ),
    )
}


def pretraining_loss_terms() -> tuple[LossTerm, ...]:
    """Returns the losses of masked LM and of all sentence objectives."""
    rows = SENTENCE_OBJECTIVES.values()
    return (MASKED_LM, *(term for row in rows for term in row.loss_terms))
