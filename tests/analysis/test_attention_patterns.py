"""Where heads attend to, beside loops in Python."""

import numpy as np
from traced_memory import peak_memory
from training_fixtures import random_model

from albert_tf.analysis.attention_patterns import (
    attentions,
    mean_distance,
    mean_distances,
    uniform_distance,
)

MASK = np.array([[1, 1, 1, 1], [1, 1, 0, 0]])


def test_distance_is_a_mean_over_tokens():
    rng = np.random.default_rng(5)
    weights = rng.random((2, 3, 4, 4))
    expected = np.zeros((2, 3))
    for layer in range(2):
        for head in range(3):
            sums = [
                sum(weights[layer, head, i, j] * abs(i - j) for j in range(4))
                for i in range(4)
            ]
            expected[layer, head] = np.mean(sums)
    np.testing.assert_allclose(mean_distance(weights), expected)


def one_text(length):
    ids = np.arange(5, 5 + length)[None]
    return {"input_ids": ids, "input_mask": np.ones_like(ids)}


def test_distances_of_texts_are_a_mean_over_the_tokens_of_all():
    model = random_model("masked_lm")
    four, two = (
        mean_distance(attentions(model, one_text(length))[:, 0])
        for length in (4, 2)
    )
    found = mean_distances(model, [one_text(4), one_text(2)])
    np.testing.assert_allclose(found, (4 * four + 2 * two) / 6)


def test_attention_of_many_texts_takes_the_memory_of_one():
    model = random_model("masked_lm")

    def peak(number):
        texts = [one_text(24)] * number
        return peak_memory(lambda: mean_distances(model, texts))

    assert peak(4) < 2 * peak(1)


def test_a_head_that_attends_to_all_alike():
    # Four tokens have distances 6/4, 4/4, 4/4 and 6/4; two have 1/2 each.
    assert uniform_distance([4, 2]) == (20 / 4 + 2 / 2) / 6


def test_attentions_are_shares_of_the_real_tokens():
    batch = {
        "input_ids": np.array([[5, 6, 7, 8], [9, 10, 0, 0]]),
        "input_mask": MASK,
    }
    found = attentions(random_model("masked_lm"), batch)
    layers, texts, _, rows, columns = found.shape
    assert (layers, texts, rows, columns) == (2, 2, 4, 4)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found[:, 1, :, :, 2:], 0.0, atol=1e-6)
