"""Distances of layers' inputs and outputs, beside NumPy's."""

import numpy as np
from training_fixtures import random_model

from albert_tf.analysis.layer_distances import distances, layer_distances


def test_distances_of_known_states():
    before = np.array([[3.0, 4.0], [1.0, 0.0]])
    after = np.array([[0.0, 0.0], [0.0, 2.0]])
    (distance,), (cosine,) = distances([before, after])
    np.testing.assert_allclose(distance, [5.0, np.sqrt(5.0)])
    np.testing.assert_allclose(cosine, [0.0, 0.0])
    _, (opposite,) = distances([before, -2 * before])
    np.testing.assert_allclose(opposite, [-1.0, -1.0])


def test_means_are_over_tokens_and_not_over_padding():
    model = random_model("masked_lm")
    ids = np.arange(1, 25).reshape(3, 8) % 20 + 5
    lengths = [8, 3, 5]
    mask = (np.arange(8) < np.array(lengths)[:, None]).astype(np.int32)
    batch = {"input_ids": ids.astype(np.int32), "input_mask": mask}
    found = layer_distances(model, [batch, batch])
    rows = []
    for row, length in enumerate(lengths):
        states = model.encode(
            {"input_ids": ids[row : row + 1, :length]},
            output_hidden_states=True,
        )["hidden_states"]
        rows.append(distances([s.numpy()[0] for s in states]))
    expected = np.concatenate(rows, axis=2).mean(axis=2)
    np.testing.assert_allclose(found.l2_distance, expected[0], rtol=1e-4)
    np.testing.assert_allclose(found.cosine_similarity, expected[1], rtol=1e-4)
    assert found.num_tokens == 2 * sum(lengths)
    assert len(found.l2_distance) == model.config.num_hidden_layers
    assert found.l2_distance.min() > 0.1


def test_a_layer_of_several_blocks_has_a_distance_for_each():
    model = random_model("masked_lm", inner_group_num=2)
    ids = np.arange(1, 9).reshape(1, 8).astype(np.int32)
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    found = layer_distances(model, [batch])
    assert len(found.l2_distance) == 2 * model.config.num_hidden_layers
