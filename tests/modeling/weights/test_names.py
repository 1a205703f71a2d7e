"""Names of weights in files; filling a model is all or nothing."""

import numpy as np
import pytest
from numpy_albert import SMALL, randomise

from albert_tf.config import SHARING, UserError, override
from albert_tf.modeling.models import (
    AlbertForPretraining,
)
from albert_tf.modeling.weights.names import POOLER, file_groups, named_weights
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    assign_weights,
    stored_arrays,
)

# The names that transformers gives, written out; Google's are those of a
# recorded checkpoint (test_original.py).
GOOGLE_GROUP = "bert/encoder/transformer/group_{g}/inner_group_{i}/"
PAIR = (".weight", ".bias")


def pairs(prefix, *names):
    return [prefix + name + ending for name in names for ending in PAIR]


TRUNK = [
    "albert.embeddings.word_embeddings.weight",
    "albert.embeddings.token_type_embeddings.weight",
    "albert.embeddings.position_embeddings.weight",
    *pairs(
        "albert.",
        "embeddings.LayerNorm",
        "encoder.embedding_hidden_mapping_in",
        "pooler",
    ),
]
BLOCK = pairs(
    "albert.encoder.albert_layer_groups.{g}.albert_layers.{i}.",
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.dense",
    "attention.LayerNorm",
    "ffn",
    "ffn_output",
    "full_layer_layer_norm",
)
HEADS = [
    *pairs("predictions.", "dense", "LayerNorm"),
    "predictions.bias",
    *pairs("sop_classifier.", "classifier"),
]


def stored(values, form):
    """Returns arrays as if they lay in a file."""
    shapes = {name: value.shape for name, value in values.items()}
    return StoredWeights("a file", form, shapes, values.__getitem__)


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 2)])
def test_every_weight_is_named_as_elsewhere(sharing, groups, inner):
    config = override(
        SMALL,
        {
            "sharing": sharing,
            "num_hidden_groups": groups,
            "inner_group_num": inner,
            "hidden_dropout_prob": 0.1,
        },
    )
    model = AlbertForPretraining(config)
    rows = named_weights(model)
    googles = named_weights(model, "google")
    assert {id(row.variable) for row in rows} == {
        id(variable) for variable in model.trainable_variables
    }
    # Files know groups; whatever shares by parts has one for every layer.
    count = groups if sharing == "all" else 3
    assert file_groups(config) == count
    blocks = [{"g": g, "i": i} for g in range(count) for i in range(inner)]
    named = [name.format(**block) for block in blocks for name in BLOCK]
    assert sorted(row.name for row in rows) == sorted(TRUNK + named + HEADS)
    for block in blocks:
        prefix = GOOGLE_GROUP.format(**block)
        assert sum(row.name.startswith(prefix) for row in googles) == len(BLOCK)
    encoder = {id(variable) for variable in model.encoder.trainable_variables}
    for row in rows:
        assert (row.head in ("", POOLER)) == (id(row.variable) in encoder)


def test_the_same_name_is_the_same_weight_in_both_forms():
    model = AlbertForPretraining(SMALL)
    forms = [named_weights(model, form) for form in ("google", "huggingface")]
    pairs = {
        google.name: theirs.name for google, theirs in zip(*forms, strict=True)
    }
    google = "bert/encoder/transformer/group_0/inner_group_0/"
    ours = "albert.encoder.albert_layer_groups.0.albert_layers.0."
    for a, b in {
        "attention_1/self/query/kernel": "attention.query.weight",
        "attention_1/self/key/bias": "attention.key.bias",
        "attention_1/self/value/kernel": "attention.value.weight",
        "attention_1/output/dense/kernel": "attention.dense.weight",
        "LayerNorm/gamma": "attention.LayerNorm.weight",
        "LayerNorm/beta": "attention.LayerNorm.bias",
        "ffn_1/intermediate/dense/kernel": "ffn.weight",
        "ffn_1/intermediate/output/dense/bias": "ffn_output.bias",
        "LayerNorm_1/gamma": "full_layer_layer_norm.weight",
    }.items():
        assert pairs[google + a] == ours + b
    assert pairs["cls/predictions/output_bias"] == "predictions.bias"
    assert pairs["cls/seq_relationship/output_weights"] == (
        "sop_classifier.classifier.weight"
    )
    assert pairs["bert/pooler/dense/kernel"] == "albert.pooler.weight"


@pytest.mark.parametrize(
    ("changes", "attention", "feed_forward"),
    [
        # One number per (group, inner) of the file, in that order.
        ({"num_hidden_groups": 2}, [0, 1], [0, 1]),
        (
            {"num_hidden_groups": 2, "inner_group_num": 2},
            [0, 1, 2, 3],
            [0, 1, 2, 3],
        ),
        ({"sharing": "attention"}, [0, 0, 0], [0, 1, 2]),
        ({"sharing": "ffn"}, [0, 1, 2], [0, 0, 0]),
        ({"sharing": "none"}, [0, 1, 2], [0, 1, 2]),
        (
            {"sharing": "ffn", "num_hidden_groups": 2, "inner_group_num": 2},
            [0, 1, 2, 3, 4, 5],
            [0, 1, 0, 1, 2, 3],
        ),
    ],
)
def test_groups_of_files_hold_the_right_layers(
    changes, attention, feed_forward
):
    model = AlbertForPretraining(override(SMALL, changes))
    for ending, part, expected in (
        ("query.weight", "attention", attention),
        ("ffn.weight", "feed_forward", feed_forward),
    ):
        rows = sorted(
            (row.name, row.variable.path)
            for row in named_weights(model)
            if row.name.endswith(ending)
        )
        layers = [path.split("/")[-3] for _, path in rows]
        assert layers == [f"{part}_{n}" if n else part for n in expected]


def assert_refused(model, values):
    """Returns the message; not one weight may have changed."""
    before = [np.asarray(v) for v in model.trainable_variables]
    with pytest.raises(UserError) as caught:
        assign_weights(named_weights(model, "google"), stored(values, "google"))
    for variable, old in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)
    message = str(caught.value)
    assert message.startswith("a file does not fit the model: ")
    assert "\n" not in message
    return message


def test_every_fault_is_reported_and_nothing_assigned():
    model = randomise(AlbertForPretraining(SMALL), 0)
    values = stored_arrays(randomise(AlbertForPretraining(SMALL), 1), "google")
    del values["bert/pooler/dense/bias"]
    del values["cls/predictions/output_bias"]
    values["bert/embeddings/word_embeddings"] = np.zeros((22, 6))
    values["cls/seq_relationship/output_weights"] = np.zeros((8, 2))
    message = assert_refused(model, values)
    for part in (
        "missing: bert/pooler/dense/bias, cls/predictions/output_bias;",
        "bert/embeddings/word_embeddings has shape [22, 6] and the model "
        "needs [23, 6];",
        "cls/seq_relationship/output_weights has shape [8, 2] and the model "
        "needs [2, 8] (its axes are swapped)",
    ):
        assert part in message
    # Values are read when names and shapes fit.
    values = stored_arrays(randomise(AlbertForPretraining(SMALL), 1), "google")
    values["bert/embeddings/LayerNorm/beta"] = np.full(6, np.nan)
    values["bert/embeddings/LayerNorm/gamma"] = np.array([np.inf] * 6)
    message = assert_refused(model, values)
    for name in ("beta", "gamma"):
        assert f"LayerNorm/{name} holds NaN or infinity" in message


def test_a_weight_without_a_name_is_an_assertion_error():
    class WithMore(AlbertForPretraining):
        def build(self):
            self.extra = self.add_weight(shape=(1,), name="extra")
            super().build()

    with pytest.raises(AssertionError, match="extra has no name in files"):
        named_weights(WithMore(SMALL))
