"""Makes pairs of segments, in order or swapped, of a document's sentences.

`document_instances` is a pure function of the document's sentences and a key
(paper, section 3.1, inter-sentence coherence loss). Both segments come from
consecutive sentences of one document, always: the label says no more and no
less than whether they were swapped.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.text import counter_rng

NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]

# What an instance draws, counted under its key; a stream of its own decides
# where truncation takes tokens.
_IS_SHORT, _LENGTH, _SPLIT, _SWAP, _NUM_DRAWS = range(5)
_TRUNCATION = 1


@dataclasses.dataclass(frozen=True)
class Instance:
    """A pair of segments as the model reads it."""

    input_ids: tuple[int, ...]  # [CLS] A [SEP] B [SEP]
    segment_ids: tuple[int, ...]  # 0 to the first [SEP], then 1
    sentence_order_label: int  # 0: in the text's order, 1: swapped
    key: np.uint64  # unique to the instance
    num_truncated: int  # tokens of its sentences that it had no room for


def document_instances(
    sentences: Sequence[Sequence[int]],
    *,
    max_seq_length: int,
    short_seq_prob: float,
    cls_id: int,
    sep_id: int,
    key: np.uint64,
) -> Iterator[Instance]:
    """Yields the instances of a document, in the order of its text.

    Sentences are gathered into chunks; a chunk is cut into A and B between
    two of its sentences and the two are swapped with probability 0.5. A
    document of one sentence has no order to judge and yields nothing.

    Differs from google-research/albert: the length is drawn per instance,
    not per document; a sentence that would overflow a chunk of two or more
    begins the next chunk instead of being cut; and no chunk is filled with a
    random document (a label 1 that a topic gives away): a sentence left alone
    at the document's end is paired with the one before it, which is then in
    two instances.

    Args:
        sentences: ids of each sentence, none empty.
        max_seq_length: most tokens of an instance, special ones included.
        short_seq_prob: share of instances with a length drawn from
            [2, max_seq_length - 3].
        cls_id: id of [CLS].
        sep_id: id of [SEP].
        key: the document's key, see `counter_rng`.
    """
    if len(sentences) < 2:
        return
    max_tokens = max_seq_length - NUM_SPECIAL_TOKENS
    begin = number = 0
    while begin < len(sentences):
        begin = min(begin, len(sentences) - 2)
        (instance_key,) = counter_rng.fold_in(key, number)
        draws = counter_rng.uniforms(instance_key, _NUM_DRAWS)[0]
        target = max_tokens
        if draws[_IS_SHORT] < short_seq_prob:
            target = 2 + int(draws[_LENGTH] * (max_tokens - 1))
        end = _chunk_end(sentences, begin, target)
        split = begin + 1 + int(draws[_SPLIT] * (end - begin - 1))
        first = [t for sentence in sentences[begin:split] for t in sentence]
        second = [t for sentence in sentences[split:end] for t in sentence]
        label = int(draws[_SWAP] < 0.5)
        if label:
            first, second = second, first
        num_tokens = len(first) + len(second)
        first, second = truncate_pair(
            first,
            second,
            max_tokens,
            key=counter_rng.fold_in(instance_key, _TRUNCATION)[0],
        )
        yield Instance(
            input_ids=(cls_id, *first, sep_id, *second, sep_id),
            segment_ids=(0,) * (len(first) + 2) + (1,) * (len(second) + 1),
            sentence_order_label=label,
            key=instance_key,
            num_truncated=num_tokens - len(first) - len(second),
        )
        begin = end
        number += 1


def _chunk_end(
    sentences: Sequence[Sequence[int]], begin: int, target: int
) -> int:
    """Returns the end of the chunk: at least two sentences from `begin` on."""
    end = begin + 2
    length = len(sentences[begin]) + len(sentences[begin + 1])
    while end < len(sentences) and length + len(sentences[end]) <= target:
        length += len(sentences[end])
        end += 1
    return end


def truncate_pair(
    first: list[int], second: list[int], max_tokens: int, *, key: np.uint64
) -> tuple[list[int], list[int]]:
    """Returns two segments of at most `max_tokens` tokens together.

    As in google-research/albert the longer one (the second, if both are
    equally long) loses a token at a time, from either end with probability
    0.5. How many each loses needs no loop; only from which end is drawn.
    """
    excess = len(first) + len(second) - max_tokens
    if excess <= 0:
        return first, second
    if len(first) > len(second):
        first_length = max(max_tokens - len(second), (max_tokens + 1) // 2)
    else:
        first_length = min(len(first), (max_tokens + 1) // 2)
    from_front = counter_rng.uniforms(key, excess)[0] < 0.5
    first_loss = len(first) - first_length
    return (
        _trim(first, from_front[:first_loss]),
        _trim(second, from_front[first_loss:]),
    )


def _trim(tokens: list[int], from_front: np.ndarray) -> list[int]:
    """Returns `tokens` less one for each entry of `from_front`."""
    front = int(from_front.sum())
    return tokens[front : len(tokens) - (len(from_front) - front)]
