"""Probe of tags, on made-up states: of each piece, and of the one before."""

import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.analysis.tag_probe import TaggedSentences, guesses, probe_tags
from albert_tf.config import UserError
from albert_tf.tasks.examples import WordsExample


class PieceBefore:
    """A model of one layer, whose states have the piece before as well."""

    def __init__(self, vocab_size):
        self.pieces = np.eye(vocab_size, dtype=np.float32)

    def encode(self, features, output_hidden_states):
        own = self.pieces[features["input_ids"].numpy()]
        before = np.roll(own, 1, axis=1)
        states = [[own, 0 * before], [own, before]]
        joined = [tf.constant(np.concatenate(s, axis=2)) for s in states]
        return {"hidden_states": joined}


@pytest.fixture(scope="module")
def words(tiny_tokenizer, sentences):
    """Eight words that differ in their first and in their last pieces."""
    ends, found = set(), []
    for word in " ".join(sentences).lower().split():
        ids = tiny_tokenizer.encode(word)
        own = {("first", ids[0]), ("last", ids[-1])}
        if not own & ends and len(found) < 8:
            ends |= own
            found.append(word)
    return found


def tagged(words, tags_of, number, seed):
    rng = random.Random(seed)
    chosen = [tuple(rng.choices(words, k=8)) for _ in range(number)]
    return [WordsExample(c, tuple(tags_of(c)), "made up") for c in chosen]


def probed(tokenizer, words, tags_of, max_seq_length=64):
    return probe_tags(
        PieceBefore(tokenizer.vocab_size),
        tokenizer,
        TaggedSentences(
            tagged(words, tags_of, 80, 1), tagged(words, tags_of, 20, 2)
        ),
        max_seq_length,
    )


def test_tags_of_the_words_themselves_need_no_context(tiny_tokenizer, words):
    def own(sentence):
        return [f"T{words.index(word) % 3}" for word in sentence]

    # Sentences are divided into several rows.
    found = probed(tiny_tokenizer, words, own, max_seq_length=12)
    assert found.accuracies == [1.0, 1.0]
    assert found.by_word == 1.0
    assert 0.3 < found.majority < 0.5


def test_tags_of_the_words_before_need_it(tiny_tokenizer, words):
    def of_word_before(sentence):
        before = [words[0], *sentence[:-1]]
        return [f"T{words.index(word) % 3}" for word in before]

    found = probed(tiny_tokenizer, words, of_word_before)
    embeddings, layer = found.accuracies
    assert embeddings < 0.6
    assert layer > 0.98
    assert found.by_word < 0.6


def test_an_unknown_word_has_the_most_frequent_tag():
    words = ["run", "run", "run", "sea", "sea"]
    tags = np.array([0, 1, 1, 2, 2])
    most_frequent, by_word = guesses(
        [*words, "a"], np.append(tags, 2), ["run", "new"]
    )
    assert most_frequent == 2
    np.testing.assert_array_equal(by_word, [1, 2])


def test_one_tag_is_refused(tiny_tokenizer, words):
    with pytest.raises(UserError, match="have one tag only, 'X'"):
        probed(tiny_tokenizer, words, lambda sentence: ["X"] * len(sentence))
