"""Probes of frozen states: what is asked, and that it can be read off."""

import numpy as np
from training_fixtures import random_model

from albert_tf.analysis.probes import (
    Probe,
    length_probe,
    mean_states,
    order_probe,
    run_probe,
    source_probe,
)


def test_half_of_the_pairs_are_swapped():
    texts = [str(n) for n in range(400)]
    probe = order_probe(texts, seed=1)
    for (first, second), swapped in zip(probe.texts, probe.labels, strict=True):
        assert int(second) - int(first) == (-1 if swapped else 1)
    assert 0.4 < np.mean(probe.labels) < 0.6
    assert order_probe(texts, seed=1) == probe


def test_longer_than_the_median():
    probe = length_probe(["a", "a b", "a b c", "a b c d"])
    assert probe.labels == [0, 0, 1, 1]


def test_documents_with_few_texts_are_left_out():
    sources = [1] * 10 + [2] * 9 + [3] * 12
    probe = source_probe([str(n) for n in range(31)], sources)
    assert set(probe.labels) == {1, 3}
    assert probe.texts[10] == "19"
    assert source_probe(["a"] * 10, [1] * 10) is None


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
    probe = Probe("word", texts, [n % 2 for n in range(60)])
    found = run_probe(probe, random_model("masked_lm"), tiny_tokenizer, 24)
    assert found.majority == 0.5
    assert len(found.accuracies) == 3
    assert found.accuracies[0] > 0.7
