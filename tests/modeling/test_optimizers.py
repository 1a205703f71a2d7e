"""LAMB and AdamW against NumPy, what they leave out, and the schedule."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import SHARING, ModelConfig, OptimizerConfig, override
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForPretraining,
)
from albert_tf.modeling.optimizers import (
    Lamb,
    build_optimizer,
    learning_rate_at,
)

SMALL = override(
    ModelConfig(),
    {
        "vocab_size": 23,
        "embedding_size": 6,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 16,
        "hidden_dropout_prob": 0.1,
    },
)
RULES = {
    "learning_rate": 0.02,
    "beta_1": 0.8,
    "beta_2": 0.95,
    "epsilon": 1e-3,
    "weight_decay_rate": 0.1,
}


def numpy_steps(
    weight, gradients, *, decays, adapts, bias_correction, rules=RULES
):
    """Yields the weight after each update, in double precision."""
    w = weight.astype("float64")
    m = v = np.zeros_like(w)
    b1, b2 = rules["beta_1"], rules["beta_2"]
    for t, g in enumerate(gradients.astype("float64"), 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        scales = (1 - b1**t, 1 - b2**t) if bias_correction else (1, 1)
        u = m / scales[0] / (np.sqrt(v / scales[1]) + rules["epsilon"])
        if decays:
            u = u + rules["weight_decay_rate"] * w
        ratio = 1.0
        if adapts and np.linalg.norm(w) > 0 and np.linalg.norm(u) > 0:
            ratio = np.linalg.norm(w) / np.linalg.norm(u)
        w = w - rules["learning_rate"] * ratio * u
        yield w


# name: (shape, is it left out of decay and adaptation)
VARIABLES = {
    "kernel": ((4, 3), False),
    "embeddings": ((7, 2), False),
    "tensor": ((2, 3, 2), False),
    "dense_bias": ((3,), True),
    "output_bias": ((5,), True),
    "layer_norm_gamma": ((3,), True),
    "layer_norm_beta": ((3,), True),
    "zero_weight": ((3, 2), False),
    "zero_gradient": ((3, 2), False),
    "all_zero": ((2, 2), False),
    "zero_gradient_bias": ((3,), True),
}


def problem(steps=6, seed=0):
    rng = np.random.default_rng(seed)
    weights, gradients = {}, {}
    for name, (shape, _) in VARIABLES.items():
        weight = rng.normal(size=shape)
        gradient = rng.normal(size=(steps, *shape))
        gradient *= 10.0 ** rng.integers(
            -3, 2, size=(steps,) + (1,) * len(shape)
        )
        if name in ("zero_weight", "all_zero"):
            weight *= 0
        if name.startswith("zero_gradient") or name == "all_zero":
            gradient *= 0
        weights[name] = weight.astype("float32")
        gradients[name] = gradient.astype("float32")
    return weights, gradients


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["lamb", "adamw"])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_updates_equal_numpys(seed, kind, bias_correction):
    weights, gradients = problem(seed=seed)
    variables = [
        keras.Variable(value, name=name) for name, value in weights.items()
    ]
    optimizer = build_optimizer(
        override(
            OptimizerConfig(),
            RULES | {"optimizer": kind, "bias_correction": bias_correction},
        )
    )
    optimizer.build(variables)
    expected = {
        name: numpy_steps(
            weights[name],
            gradients[name],
            decays=not excluded,
            adapts=kind == "lamb" and not excluded,
            bias_correction=bias_correction,
        )
        for name, (_, excluded) in VARIABLES.items()
    }
    for step in range(6):
        optimizer.apply([tf.constant(gradients[n][step]) for n in weights])
        for variable, name in zip(variables, weights, strict=True):
            np.testing.assert_allclose(
                variable, next(expected[name]), rtol=2e-5, atol=2e-6
            )
    assert int(optimizer.iterations) == 6
    final = dict(zip(weights, map(np.asarray, variables), strict=True))
    # Decay alone shrinks; what has neither gradient nor decay stays.
    assert np.linalg.norm(final["zero_gradient"]) < np.linalg.norm(
        weights["zero_gradient"]
    )
    np.testing.assert_array_equal(
        final["zero_gradient_bias"], weights["zero_gradient_bias"]
    )
    assert not final["all_zero"].any()
    assert final["zero_weight"].any()


def test_the_first_lamb_update_moves_by_the_rate_times_the_weights_norm():
    weights, gradients = problem()
    variable = keras.Variable(weights["kernel"], name="kernel")
    optimizer = Lamb(learning_rate=0.03)
    optimizer.build([variable])
    optimizer.apply([tf.constant(gradients["kernel"][0])])
    moved = np.linalg.norm(np.asarray(variable) - weights["kernel"])
    size = np.linalg.norm(weights["kernel"])
    assert moved == pytest.approx(0.03 * size, rel=1e-5)


def test_the_defaults_are_the_released_recipe():
    optimizer = build_optimizer(OptimizerConfig())
    assert (
        optimizer.beta_1,
        optimizer.beta_2,
        optimizer.epsilon,
        optimizer.weight_decay_rate,
        optimizer.bias_correction,
        optimizer.layer_adaptation,
        float(optimizer.learning_rate),
    ) == (0.9, 0.999, 1e-6, 0.01, False, True, pytest.approx(0.00176))
    assert optimizer.weight_decay is None
    assert optimizer.global_clipnorm is None


@pytest.mark.parametrize("kind", ["lamb", "adamw"])
@pytest.mark.parametrize("sharing", SHARING)
def test_matrices_decay_and_vectors_do_not(kind, sharing):
    config = override(SMALL, {"sharing": sharing})
    for model in (
        AlbertForPretraining(config),
        AlbertForClassification(config, 2),
    ):
        variables = model.trainable_variables
        optimizer = build_optimizer(OptimizerConfig(optimizer=kind))
        optimizer.build(variables)
        # ALBERT's only vectors are biases, gammas and betas.
        matrices = [len(v.shape) == 2 for v in variables]
        assert 0 < sum(matrices) < len(matrices)
        assert optimizer.decays == matrices
        lamb = kind == "lamb"
        assert optimizer.adapts == [lamb and matrix for matrix in matrices]
        assert len(optimizer.momentums) == len(variables)
        assert len(optimizer.velocities) == len(variables)


def test_exclusions_are_by_path_and_can_differ():
    with keras.name_scope("layer_norm"):
        inside = keras.Variable(np.ones(2), name="gamma")
    outside = keras.Variable(np.ones(2), name="gamma")
    optimizer = Lamb(
        exclude_from_weight_decay=("layer_norm",),
        exclude_from_layer_adaptation=(),
    )
    optimizer.build([inside, outside])
    assert optimizer.decays == [False, True]
    assert optimizer.adapts == [True, True]


def test_its_configuration_makes_it_again():
    optimizer = Lamb(
        **RULES,
        bias_correction=True,
        layer_adaptation=False,
        exclude_from_weight_decay=("a", "b"),
        exclude_from_layer_adaptation=("c",),
        name="mine",
    )
    config = json.loads(json.dumps(optimizer.get_config()))
    again = Lamb.from_config(config)
    assert again.get_config() == optimizer.get_config()
    for name in ("beta_1", "beta_2", "epsilon", "weight_decay_rate"):
        assert config[name] == RULES[name]
    assert config["bias_correction"] is True
    assert config["layer_adaptation"] is False
    assert config["exclude_from_weight_decay"] == ["a", "b"]
    assert config["exclude_from_layer_adaptation"] == ["c"]
    assert config["name"] == "mine"
    assert config["learning_rate"] == pytest.approx(0.02)


def rates(steps, total, **changes):
    config = override(OptimizerConfig(), {"learning_rate": 1.0} | changes)
    return [
        float(learning_rate_at(np.int64(step), config, total)) for step in steps
    ]


@pytest.mark.parametrize(
    ("total", "changes", "expected"),
    [
        # Four steps up, eight steps down; 0 after the last.
        (
            12,
            {"num_warmup_steps": 4},
            [n / 4 for n in (1, 2, 3, 4)]
            + [n / 8 for n in (8, 7, 6, 5, 4, 3, 2, 1)]
            + [0, 0],
        ),
        (
            6,
            {"num_warmup_steps": 2, "decay_power": 2.0, "learning_rate": 3},
            [1.5, 3, 3, 3 * 9 / 16, 3 / 4, 3 / 16, 0],
        ),
        (4, {"num_warmup_steps": 0}, [1, 0.75, 0.5, 0.25, 0, 0]),
        (3, {"num_warmup_steps": 1}, [1, 1, 0.5, 0]),
        (3, {"num_warmup_steps": 0, "decay_power": 0.0}, [1, 1, 1]),
        # A warm-up that is never left.
        (2, {"num_warmup_steps": 4}, [0.25, 0.5]),
        (4, {"num_warmup_steps": 4}, [0.25, 0.5, 0.75, 1.0]),
        (1, {"num_warmup_steps": 0}, [1, 0]),
    ],
)
def test_the_schedule_by_hand(total, changes, expected):
    steps = range(len(expected))
    assert rates(steps, total, **changes) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_the_released_schedule_has_no_jump_and_never_rests(power):
    steps = [*range(3000, 3300), *range(124_900, 125_000)]
    values = rates(
        steps,
        125_000,
        learning_rate=0.00176,
        num_warmup_steps=3125,
        decay_power=power,
    )
    joint = np.array(values[:300])
    assert np.abs(np.diff(joint)).max() < 0.00176 / 3000
    assert joint.max() == pytest.approx(0.00176, rel=1e-6)
    assert int(joint.argmax()) == 3124 - 3000
    assert min(values) > 0
    assert rates([125_000], 125_000) == [0]


def test_the_schedule_runs_in_a_graph():
    config = OptimizerConfig(learning_rate=1.0, num_warmup_steps=4)
    step = tf.Variable(2, dtype=tf.int64)
    rate = tf.function(lambda: learning_rate_at(step, config, 10))
    assert rate().dtype == tf.float32
    assert float(rate()) == 0.75
    step.assign(9)
    assert float(rate()) == pytest.approx(1 / 6)
