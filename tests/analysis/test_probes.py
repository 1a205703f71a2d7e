"""Probes of frozen states: what is asked, and that it can be read off."""

import numpy as np
import pytest
from training_fixtures import random_model

from albert_tf.analysis.probes import (
    can_be_probed,
    in_long_documents,
    longer_than_the_median,
    mean_states,
    neighbours_in_order,
    run_probe,
)


def test_half_of_the_pairs_are_swapped():
    texts = [str(n) for n in range(400)]
    pairs, labels = neighbours_in_order(texts, seed=1)
    for (first, second), swapped in zip(pairs, labels, strict=True):
        assert int(second) - int(first) == (-1 if swapped else 1)
    assert 0.4 < np.mean(labels) < 0.6
    assert neighbours_in_order(texts, seed=1) == (pairs, labels)


def test_longer_than_the_median():
    texts = ["a", "a b", "a b c", "a b c d"]
    assert longer_than_the_median(texts) == [0, 0, 1, 1]


def test_documents_with_few_texts_are_left_out():
    kept = in_long_documents([1] * 10 + [2] * 9 + [3] * 12)
    assert kept == [*range(10), *range(19, 31)]


@pytest.mark.parametrize(
    ("labels", "can_be"),
    [([0] * 5 + [1] * 5, True), ([0] * 6 + [1] * 4, False), ([0] * 9, False)],
)
def test_every_part_of_a_cross_validation_has_two_labels(labels, can_be):
    assert can_be_probed(labels) == can_be


def test_states_are_means_over_tokens(tiny_tokenizer):
    model = random_model("masked_lm")
    texts = ["bada gule", "the"]
    found = mean_states(model, tiny_tokenizer, texts, 24)
    assert found.shape == (3, 2, model.config.hidden_size)
    for number, text in enumerate(texts):
        alone = model.encode(tiny_tokenizer([text]), output_hidden_states=True)
        for layer, state in enumerate(alone["hidden_states"]):
            np.testing.assert_allclose(
                found[layer, number], state.numpy()[0].mean(axis=0), atol=1e-5
            )


def test_words_can_be_read_off_the_embeddings(tiny_tokenizer, sentences):
    texts = [
        f"{s} {'bada bada' if n % 2 else 'gule gule'}"
        for n, s in enumerate(sentences[:60])
    ]
    states = mean_states(random_model("masked_lm"), tiny_tokenizer, texts, 24)
    found = run_probe("word", states, [n % 2 for n in range(60)])
    assert found.majority == 0.5
    assert len(found.accuracies) == 3
    assert found.accuracies[0] > 0.7
