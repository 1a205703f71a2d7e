"""Frozen variables and layer-wise learning rates."""

import pytest
from numpy_albert import SMALL

from albert_tf.config import UserError, override
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.weights.adapters import add_adapters
from albert_tf.optim.variable_rules import (
    EXCLUDED_PATTERNS,
    matches,
    path_patterns,
    rate_multipliers,
    trained_variables,
)


def small(**changes):
    return override(SMALL, {"num_hidden_layers": 4} | changes)


def by_part(config, decay):
    """Returns part -> the one multiplier that its weights have."""
    model = AlbertForPretraining(config)
    multipliers = rate_multipliers(model, decay)
    assert set(multipliers) == {v.path for v in model.trainable_variables}
    found = {}
    for path, multiplier in multipliers.items():
        parts = path.removeprefix("albert/").removeprefix("encoder/").split("/")
        # What lies in a block has the name of its part.
        part = parts[1] if parts[0].startswith("block") else parts[0]
        assert found.setdefault(part, multiplier) == multiplier, path
    return found


TWO_BLOCKS = {
    "attention_1": 1,
    "feed_forward_1": 1,
    "attention": 2,
    "feed_forward": 2,
    "embeddings": 3,
}


@pytest.mark.parametrize(
    ("changes", "levels"),
    [
        # One block for all layers is one level.
        ({}, {"attention": 1, "feed_forward": 1, "embeddings": 2}),
        (
            {"sharing": "none"},
            {
                "attention_3": 1,
                "feed_forward_3": 1,
                "attention_2": 2,
                "feed_forward_2": 2,
                "attention_1": 3,
                "feed_forward_1": 3,
                "attention": 4,
                "feed_forward": 4,
                "embeddings": 5,
            },
        ),
        # What all blocks share is as high as the highest of them.
        (
            {"sharing": "attention"},
            {
                "attention": 1,
                "feed_forward_3": 1,
                "feed_forward_2": 2,
                "feed_forward_1": 3,
                "feed_forward": 4,
                "embeddings": 5,
            },
        ),
        ({"num_hidden_groups": 2}, TWO_BLOCKS),
        # Blocks that take turns: in the order of first use.
        ({"inner_group_num": 2}, TWO_BLOCKS),
    ],
)
def test_layer_wise_decay(changes, levels):
    found = by_part(small(**changes), 0.5)
    expected = {part: 0.5**level for part, level in levels.items()}
    expected["projection"] = expected["embeddings"]
    heads = dict.fromkeys(("pooler", "masked_lm", "sentence_order"), 1.0)
    assert found == expected | heads


def test_layer_wise_decay_without_a_projection():
    found = rate_multipliers(AlbertForPretraining(small(embedding_size=8)), 0.5)
    assert sorted(set(found.values())) == [0.25, 0.5, 1.0]


def test_frozen_variables_are_left_out():
    model = AlbertForClassification(small(), num_labels=3)
    everything = [v.path for v in model.trainable_variables]

    def paths(freeze):
        return [v.path for v in trained_variables(model, freeze)]

    assert paths("") == everything
    assert paths("encoder") == [p for p in everything if "encoder/" not in p]
    assert len(paths("encoder")) == 2
    assert paths("embeddings/, bias$") == [
        p
        for p in everything
        if "embeddings/" not in p and not p.endswith("bias")
    ]
    # The very variables, for the gradient.
    assert trained_variables(model, "")[0] is model.trainable_variables[0]


def test_errors_name_the_pattern():
    model = AlbertForClassification(small(), num_labels=3)
    with pytest.raises(UserError) as caught:
        trained_variables(model, "encoder,block_7")
    message = str(caught.value)
    assert "'block_7' matches none of the 27 variables" in message
    assert "albert/encoder/embeddings/word_embeddings" in message
    assert len(message) < 500
    with pytest.raises(UserError, match="freeze='.' matches every variable"):
        trained_variables(model, ".")


def test_a_freeze_that_leaves_no_adapter_is_refused():
    model = AlbertForClassification(small(), num_labels=3)
    add_adapters(model, 2, 0.0, trains_pooler=False)
    with pytest.raises(UserError, match="'encoder' matches every low-rank ada"):
        trained_variables(model, "encoder")
    trained = trained_variables(model, "lora_kernel_a,classifier")
    assert {v.name for v in trained} == {"lora_kernel_b"}


def test_a_models_name_excludes_nothing_from_decay():
    model = AlbertForClassification(SMALL, 2, name="bias_and_layer_norm")
    paths = [v.path for v in model.trainable_variables]
    excluded = {p for p in paths if matches(p, EXCLUDED_PATTERNS)}
    assert excluded == {
        p for p in paths if "/layer_norm/" in p or p.endswith("/bias")
    }
    assert 0 < len(excluded) < len(paths)


def test_patterns_of_a_setting():
    assert path_patterns("freeze", "") == ()
    # Nothing between two commas would match everything.
    assert path_patterns("freeze", " a ,, b$,") == ("a", "b$")
    with pytest.raises(UserError, match=r"x_y: '\(a\{1' is not"):
        path_patterns("x_y", "(a{1,2})")
