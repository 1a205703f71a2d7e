"""Probe of tags: what a linear model reads off the states of words."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.analysis.probes import linear_model
from albert_tf.config import FeatureConfig
from albert_tf.modeling.inputs import ENCODER_INPUTS
from albert_tf.modeling.models import AlbertModel
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.token_classification import TokenClassification
from albert_tf.text.tokenizer_base import Tokenizer

_BATCH_SIZE = 32


class TaggedSentences(NamedTuple):
    """Sentences with a tag for each word, to learn from and held out."""

    train: Sequence[WordsExample]
    held_out: Sequence[WordsExample]


@dataclasses.dataclass(frozen=True)
class ProbedTags:
    """Accuracies on the words of held-out sentences.

    Attributes:
        accuracies: of the probe by layer, the embeddings first.
        majority: of guessing the most frequent tag.
        by_word: of guessing each word's most frequent tag, which needs no
            context; the most frequent one for unknown words.
    """

    accuracies: list[float]
    majority: float
    by_word: float


def probe_tags(
    model: AlbertModel,
    tokenizer: Tokenizer,
    sentences: TaggedSentences,
    max_seq_length: int,
) -> ProbedTags:
    """Returns the accuracy of a linear model by layer, beside guessing.

    It reads the state of each word's first piece.

    Raises:
        UserError: when the training sentences have only one tag.
    """
    kind = TokenClassification()
    # No linear model learns a single tag.
    kind.labels(sentences.train)
    examples = [*sentences.train, *sentences.held_out]
    labels = kind.labels(examples)
    features = kind.features(
        examples,
        tokenizer,
        FeatureConfig(max_seq_length=max_seq_length),
        labels=labels,
        training=False,
    )
    number = sum(len(example.words) for example in sentences.train)
    words = [word for example in examples for word in example.words]
    tags = kind.label_ids(examples, labels)
    accuracies = []
    for states in _states_of_words(model, features):
        linear = linear_model().fit(states[:number], tags[:number])
        accuracies.append(float(linear.score(states[number:], tags[number:])))
    majority, by_word = (
        float(np.mean(tags[number:] == guess))
        for guess in guesses(words[:number], tags[:number], words[number:])
    )
    return ProbedTags(accuracies, majority, by_word)


def guesses(
    words: Sequence[str], tags: np.ndarray, asked: Sequence[str]
) -> tuple[int, np.ndarray]:
    """Returns the most frequent tag, and that of each word that is asked.

    `tags` are those of `words`; the tag of an unknown word is the most
    frequent one of all.
    """
    of_word: dict[str, collections.Counter] = collections.defaultdict(
        collections.Counter
    )
    for word, tag in zip(words, tags.tolist(), strict=True):
        of_word[word][tag] += 1
    most_frequent = int(np.bincount(tags).argmax())
    likeliest = {w: found.most_common(1)[0][0] for w, found in of_word.items()}
    by_word = [likeliest.get(word, most_frequent) for word in asked]
    return most_frequent, np.array(by_word)


def _states_of_words(model: AlbertModel, features: Features) -> np.ndarray:
    """Returns `[layers + 1, words, hidden]`, at the first piece of each."""
    found = []
    for start in range(0, len(features), _BATCH_SIZE):
        rows = np.arange(start, min(start + _BATCH_SIZE, len(features)))
        batch = features.batch(rows)
        inputs = {name: tf.constant(batch[name]) for name in ENCODER_INPUTS}
        outputs = model.encode(inputs, output_hidden_states=True)
        is_first = batch["label_weights"] > 0
        found.append([s.numpy()[is_first] for s in outputs["hidden_states"]])
    return np.concatenate(found, axis=1)
