"""LAMB and AdamW: updates against NumPy, exclusions, Keras' interfaces."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_albert import SMALL
from numpy_optimizers import RULES, numpy_steps

from albert_tf.config import SHARING, OptimizerConfig, UserError, override
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.optim import lamb
from albert_tf.optim.lamb import Lamb
from albert_tf.optim.muon import Muon, NorMuon
from albert_tf.optim.optimizers import build_optimizer


def numpy_updates(weights, gradients, *, layer_adaptation=True, **arguments):
    """Returns `numpy_steps` of each variable, by name."""
    return {
        name: numpy_steps(
            weights[name],
            gradients[name],
            decays=not is_excluded(name),
            adapts=layer_adaptation and not is_excluded(name),
            **arguments,
        )
        for name in weights
    }


def is_excluded(name):
    return "bias" in name or "layer_norm" in name


def build_lamb(weights, **arguments):
    variables = [
        keras.Variable(value, name=name, dtype=value.dtype)
        for name, value in weights.items()
    ]
    optimizer = Lamb(**arguments)
    optimizer.build(variables)
    return optimizer, variables


SHAPES = {
    "kernel": (4, 3),
    "tensor": (2, 3, 2),
    "dense_bias": (3,),
    "layer_norm_gamma": (3,),
    "zero_weight": (3, 2),
    "zero_gradient": (3, 2),
    "all_zero": (2, 2),
    "number": (),
    "empty": (0, 2),
    "zero_gradient_bias": (3,),
}


def problem(steps, seed=0, weight_sizes=(0, 0), gradient_sizes=(-3, 2)):
    """Weights of the powers of ten `weight_sizes`, and their gradients."""
    rng = np.random.default_rng(seed)
    weights, gradients = {}, {}
    for name, shape in SHAPES.items():
        weight = rng.normal(size=shape) * 10 ** rng.uniform(*weight_sizes)
        gradient = rng.normal(size=(steps, *shape))
        # The size differs from one step to the next.
        each = (steps,) + (1,) * len(shape)
        gradient *= 10 ** rng.uniform(*gradient_sizes, size=each)
        if name in ("zero_weight", "all_zero"):
            weight *= 0
        if name.startswith("zero_gradient") or name == "all_zero":
            gradient *= 0
        weights[name] = weight.astype("float32")
        gradients[name] = gradient.astype("float32")
    return weights, gradients


@pytest.fixture(scope="module", params=[-1, lamb.MAX_UNCOMPILED])
def both_ways(request):
    """Every variable's update compiled, and in small operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lamb, "MAX_UNCOMPILED", request.param)
        yield


def test_only_large_variables_are_compiled(monkeypatch):
    shapes = []

    def compiled(function, *constants):
        def call(gradient, *others):
            shapes.append(tuple(gradient.shape))
            return function(*constants, gradient, *others)

        return call

    monkeypatch.setattr(lamb, "compiled", compiled)
    weights = {
        "kernel": np.ones((128, 256), "float32"),
        "large_kernel": np.ones((129, 256), "float32"),
        "large_bias": np.ones(2**15 + 1, "float32"),
    }
    optimizer, _ = build_lamb(weights)
    optimizer.apply([tf.constant(value) for value in weights.values()])
    assert shapes == [(129, 256), (2**15 + 1,)]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("kind", "bias_correction"),
    [("lamb", False), ("lamb", True), ("adamw", False)],
)
def test_updates_equal_numpy(kind, bias_correction):
    weights, gradients = problem(steps=4)
    variables = [keras.Variable(w, name=name) for name, w in weights.items()]
    changes = {"optimizer": kind, "bias_correction": bias_correction}
    optimizer = build_optimizer(override(OptimizerConfig(), RULES | changes))
    optimizer.build(variables)
    expected = numpy_updates(
        weights,
        gradients,
        layer_adaptation=kind == "lamb",
        bias_correction=bias_correction,
    )
    for step in range(4):
        optimizer.apply([tf.constant(gradients[n][step]) for n in weights])
        ratios = optimizer.trust_ratios()
        for variable, name in zip(variables, weights, strict=True):
            weight, ratio = next(expected[name])
            np.testing.assert_allclose(variable, weight, rtol=2e-5, atol=2e-6)
            assert ratios.get(name, 1.0) == pytest.approx(ratio, rel=2e-5)
    assert len(ratios) == (0 if kind == "adamw" else 7)
    assert int(optimizer.iterations) == 4


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


def chosen(variables, flags):
    return {v.path for v, flag in zip(variables, flags, strict=True) if flag}


@pytest.mark.parametrize("sharing", SHARING)
def test_every_variable_has_one_rule(sharing):
    """Matrices decay and adapt; ALBERT's vectors (biases, γ, β) do not."""
    model = AlbertForPretraining(override(SMALL, {"sharing": sharing}))
    variables = model.trainable_variables
    for kind in ("lamb", "adamw"):
        optimizer = build_optimizer(OptimizerConfig(optimizer=kind))
        optimizer.build(variables)
        matrices = {v.path for v in variables if len(v.shape) == 2}
        assert 0 < len(matrices) < len(variables)
        assert chosen(variables, optimizer.decays) == matrices
        adapting = matrices if kind == "lamb" else set()
        assert chosen(variables, optimizer.adapts) == adapting
        # Before the first update there is no ratio to show.
        assert optimizer.trust_ratios() == {}


def test_exclusions_match_paths():
    variables = []
    for scope in ("layer_norm", "LayerNorm", "bias_free", "norm"):
        with keras.name_scope(scope):
            variables.append(keras.Variable(np.ones(2), name="gamma"))
    optimizer = Lamb()
    optimizer.build(variables)
    assert optimizer.decays == optimizer.adapts == [False, False, True, True]


def test_exclusions_from_a_configuration():
    config = override(
        OptimizerConfig(),
        {
            "exclude_from_weight_decay": "bias, gamma$ ,",
            "exclude_from_layer_adaptation": "",
        },
    )
    optimizer = build_optimizer(config)
    variables = AlbertForPretraining(SMALL).trainable_variables
    optimizer.build(variables)
    assert all(optimizer.adapts)
    paths = {v.path for v in variables}
    kept = paths - chosen(variables, optimizer.decays)
    assert kept == {p for p in paths if "bias" in p or p.endswith("gamma")}
    assert 0 < len(kept) < len(paths)
    bad = override(config, {"exclude_from_layer_adaptation": "bias,(gamma"})
    with pytest.raises(UserError, match="exclude_from_layer_adap.*'.gamma'"):
        build_optimizer(bad)


def test_invalid_arguments():
    for name in ("exclude_from_weight_decay", "exclude_from_layer_adaptation"):
        with pytest.raises(ValueError, match=f"{name}='bias' is one string"):
            Lamb(**{name: "bias"})
    with pytest.raises(ValueError, match="weight_decay=0.1.*weight_decay_rate"):
        Lamb(weight_decay=0.1)
    with pytest.raises(NotImplementedError, match="by path: give it"):
        Lamb().exclude_from_weight_decay(var_names=["bias"])
    optimizer = Lamb()
    optimizer.build([keras.Variable(np.ones((2, 2)), name="kernel")] * 2)
    with pytest.raises(ValueError, match="two variables with the path kernel;"):
        optimizer.trust_ratios()


@pytest.mark.slow
@pytest.mark.usefixtures("both_ways")
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    bias_correction=st.booleans(),
    weight_decay_rate=st.sampled_from([0.0, 0.01]),
    learning_rate=st.sampled_from([1e-3, 0.7]),
)
def test_updates_of_any_magnitude_equal_numpy(
    seed, bias_correction, weight_decay_rate, learning_rate
):
    extreme = (-30, 15)
    weights, gradients = problem(3, seed, extreme, extreme)
    rules = {
        "learning_rate": learning_rate,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-6,
        "weight_decay_rate": weight_decay_rate,
    }
    optimizer, variables = build_lamb(
        weights, **rules, bias_correction=bias_correction
    )
    expected = numpy_updates(
        weights, gradients, bias_correction=bias_correction, rules=rules
    )
    for step in range(3):
        optimizer.apply([tf.constant(gradients[n][step]) for n in weights])
        ratios = optimizer.trust_ratios()
        for variable, name in zip(variables, weights, strict=True):
            weight, ratio = next(expected[name])
            error = np.abs(np.asarray(variable, "float64") - weight)
            assert (error <= 2e-5 * np.abs(weight).max(initial=0)).all()
            # Beyond float32 the ratio itself is infinite, the weight not.
            with np.errstate(over="ignore"):
                ratio = float(np.float32(ratio))
            assert ratios.get(name, 1.0) == pytest.approx(ratio, rel=1e-4)


def test_a_ratio_beyond_float32_makes_a_finite_update():
    weight = np.full((2, 2), 1e15, "float32")
    optimizer, (variable,) = build_lamb(
        {"kernel": weight}, learning_rate=0.25, weight_decay_rate=0.0
    )
    optimizer.apply([tf.fill((2, 2), 1e-30)])
    assert optimizer.trust_ratios() == {"kernel": float("inf")}
    np.testing.assert_allclose(variable, 0.75 * weight, rtol=1e-6)


@pytest.mark.usefixtures("both_ways")
def test_infinite_squares_keep_the_decay_and_nan_propagates():
    weight = np.float32([[1, -2], [3, 4]])
    optimizer, (variable,) = build_lamb({"kernel": weight}, learning_rate=0.25)
    for gradient in (1e20, 1.0):
        expected = 0.75 * np.array(variable)
        optimizer.apply([tf.fill((2, 2), gradient)])
        np.testing.assert_allclose(variable, expected, rtol=1e-6)
    optimizer.apply([tf.constant([[1.0, np.nan], [1.0, 1.0]])])
    assert np.isnan(variable).any()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_variables_of_other_dtypes(dtype):
    """Half precision trains with float32 moments: g² and β have no room."""
    weights, gradients = problem(steps=3)
    weight, gradients = weights["kernel"], gradients["kernel"] * 1e-3
    variable = keras.Variable(weight, name="kernel", dtype=dtype)
    weight = np.asarray(tf.cast(variable.value, "float64"))
    rules = RULES | {"beta_2": 0.999, "epsilon": 1e-6}
    optimizer = Lamb(**rules, bias_correction=True)
    optimizer.build([variable])
    kept = "float64" if dtype == "float64" else "float32"
    assert optimizer.momentums[0].dtype == kept
    assert optimizer.velocities[0].dtype == kept
    updates = numpy_updates(
        {"kernel": weight},
        {"kernel": gradients},
        bias_correction=True,
        rules=rules,
    )
    for gradient, (expected, _) in zip(
        gradients, updates["kernel"], strict=True
    ):
        optimizer.apply([tf.cast(gradient, dtype)])
        np.testing.assert_allclose(
            tf.cast(variable.value, "float64"),
            expected,
            atol={"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-6),
        )


def test_rows_of_an_embedding_are_summed():
    """TensorFlow's gradient of a look-up, with a row that came twice."""
    table = np.float32([[1, 2], [3, 4], [5, 6]])
    rows = tf.IndexedSlices(
        tf.constant([[1.0, -2.0], [3.0, 0.5]]), tf.constant([1, 1]), (3, 2)
    )
    dense = tf.constant([[0, 0], [4, -1.5], [0, 0]])
    (one, sparse), (other, full) = (
        build_lamb({"table": table}, **RULES) for _ in range(2)
    )
    for _ in range(2):
        one.apply([rows])
        other.apply([dense])
    np.testing.assert_array_equal(sparse[0], full[0])


def test_accumulated_gradients_are_one_update_with_their_mean():
    weights, gradients = problem(steps=6)
    arguments = RULES | {"bias_correction": True}
    one, expected = build_lamb(weights, **arguments)
    other, variables = build_lamb(
        weights, **arguments, gradient_accumulation_steps=3
    )
    for update in range(2):
        three = [g[3 * update : 3 * update + 3] for g in gradients.values()]
        before = [np.array(v) for v in variables]
        ratios = other.trust_ratios()
        for micro in range(3):
            assert int(other.iterations) == update
            assert other.trust_ratios() == ratios
            for value, variable in zip(before, variables, strict=True):
                np.testing.assert_array_equal(variable, value)
            other.apply([tf.constant(g[micro]) for g in three])
        one.apply([tf.constant(g.mean(axis=0)) for g in three])
        for a, b in zip(expected, variables, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert other.trust_ratios() == pytest.approx(
            one.trust_ratios(), rel=1e-5
        )
    assert int(other.iterations) == int(one.iterations) == 2


@pytest.mark.parametrize("jit_compile", [False, True])
def test_updates_in_a_graph(jit_compile):
    weights, gradients = problem(steps=2)
    names = ("kernel", "dense_bias", "zero_weight")
    weights = {name: weights[name] for name in names}
    eager, expected = build_lamb(weights, **RULES)
    compiled, variables = build_lamb(weights, **RULES)
    step = tf.function(compiled.apply, jit_compile=jit_compile)
    for number in range(2):
        given = [tf.constant(gradients[name][number]) for name in names]
        eager.apply(given)
        step(given)
        for a, b in zip(expected, variables, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
        ratios = compiled.trust_ratios()
        assert ratios == pytest.approx(eager.trust_ratios(), rel=1e-5)
        assert ratios["kernel"] != 1.0
    assert int(compiled.iterations) == 2


def test_keras_apply_over_replicas():
    """The sum of the replicas' gradients; each has the trust ratio."""
    weights, gradients = problem(steps=2)
    weights = {"kernel": weights["kernel"]}
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        optimizer, variables = build_lamb(weights)
    one, expected = build_lamb(weights)

    @tf.function
    def step(gradient):
        strategy.run(lambda: optimizer.apply([gradient / 2]))

    for gradient in gradients["kernel"]:
        step(tf.constant(gradient))
        one.apply([tf.constant(gradient)])
    np.testing.assert_allclose(variables[0], expected[0], rtol=1e-5)
    copies = strategy.experimental_local_results(
        optimizer.last_trust_ratios[0].value
    )
    assert len(copies) == 2
    assert float(copies[0]) == float(copies[1]) != 1.0


@pytest.mark.slow
def test_float16_with_keras_loss_scaling():
    inputs = np.random.default_rng(0).normal(size=(80, 4)).astype("float32")
    targets = inputs.mean(axis=1, keepdims=True)
    keras.utils.set_random_seed(3)
    layer = keras.layers.Dense(1, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((4,)), layer])
    inner = Lamb(0.05)
    # The first scales make float16 infinite: those steps change nothing.
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=2**17)
    model.compile(optimizer, "mse", jit_compile=False)
    before = model.get_weights()
    model.train_on_batch(inputs[:8], targets[:8])
    assert int(inner.iterations) == 0
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    fit = model.fit(inputs, targets, batch_size=8, epochs=3, verbose=0)
    assert fit.history["loss"][-1] < 0.5 * fit.history["loss"][0]
    assert 20 < int(inner.iterations) < 30


def test_serialization():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    arguments = {
        "beta_1": 0.8,
        "beta_2": 0.95,
        "epsilon": 1e-3,
        "weight_decay_rate": 0.1,
        "bias_correction": True,
        "layer_adaptation": False,
        "exclude_from_weight_decay": ["a", "b"],
        "exclude_from_layer_adaptation": ["c"],
        "name": "mine",
        "gradient_accumulation_steps": 2,
        "clipnorm": 1.0,
    }
    optimizer = Lamb(schedule, **arguments)
    written = json.dumps(keras.optimizers.serialize(optimizer))
    assert '"registered_name": "albert_tf>Lamb"' in written
    again = keras.optimizers.deserialize(json.loads(written))
    config = again.get_config()
    assert config == optimizer.get_config()
    assert {name: config[name] for name in arguments} == arguments


def test_plain_variables_of_tensorflow_are_updated_alike():
    """They are known by name, where variables of Keras have paths."""
    weights = {"scope/kernel": [[1.0, 2.0], [3.0, 4.0]], "scope/bias": [1.0]}
    found = []
    for kind in (keras.Variable, tf.Variable):
        variables = [
            kind(value, name=name.replace("/", "_"))
            for name, value in weights.items()
        ]
        optimizer = Lamb(0.1)
        for _ in range(2):
            optimizer.apply_gradients(
                [
                    (tf.constant(np.full(v.shape, 0.1, "f")), v)
                    for v in variables
                ]
            )
        assert optimizer.decays == [True, False]
        found.append([np.array(variable) for variable in variables])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss_scale_factor": 128.0},
        {"clipnorm": 0.5},
        {"clipvalue": 0.1},
        {"global_clipnorm": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [Lamb, Muon, NorMuon])
def test_a_word_that_occurs_often_has_the_sum_as_its_gradient(kind, options):
    """Keras clips and squares the occurrences one by one."""
    rows = tf.IndexedSlices(
        tf.constant([[1.0, -2.0]] * 9 + [[0.5, 0.25]]),
        tf.constant([2] * 9 + [0]),
        (3, 2),
    )
    dense = tf.constant([[0.5, 0.25], [0.0, 0.0], [9.0, -18.0]])
    found = []
    for gradient in (rows, dense):
        table = keras.Variable(np.ones((3, 2), "float32"), name="embeddings")
        optimizer = kind(0.1, **options)
        for _ in range(2):
            optimizer.apply([gradient], [table])
        state = [np.array(v) for v in optimizer.variables[2:]]
        found.append([np.array(table), *state])
    assert (found[0][0] != 1.0).any()
    for sparse, full in zip(*found, strict=True):
        np.testing.assert_array_equal(sparse, full)
