"""Training steps: against plain arithmetic, and over replicas."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from training_fixtures import NO_DROPOUT, random_model

from albert_tf.cluster.distribution import make_strategy
from albert_tf.config import MaskingConfig, RuntimeConfig, override
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.jobs.evaluate import evaluate_pretraining
from albert_tf.modeling.models import (
    AlbertForPretraining,
    AlbertForTokenClassification,
)
from albert_tf.optim import lamb
from albert_tf.optim.lamb import Lamb
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import open_shards
from albert_tf.training import gradients
from albert_tf.training import trainer as trainer_module
from albert_tf.training.evaluator import Evaluator
from albert_tf.training.trainer import Trainer
from albert_tf.training.training_loss import head_loss, pretraining_loss

STEPS = 5
# Divisible neither by two replicas nor by a micro-batch.
BATCH_SIZE = 7
# Two layers, which share their weights.
SPLIT = {"num_hidden_layers": 2, "num_train_steps": STEPS, "ema_decay": 0.9}


def strategy_of(replicas):
    kind = "mirrored" if replicas > 1 else "default"
    return make_strategy(RuntimeConfig(strategy=kind, num_replicas=replicas))


@pytest.fixture(scope="module")
def make_trainer(small_config):
    """A function that makes a trainer of one layer, which is traced soon."""

    def make(replicas=1, objective="sop", loss_weight=1.0, **changes):
        config = override(small_config, {"num_hidden_layers": 1, **changes})
        return Trainer(
            functools.partial(AlbertForPretraining, config.model),
            pretraining_loss(SENTENCE_OBJECTIVES[objective], loss_weight),
            strategy_of(replicas),
            config.optimizer,
            config.training,
        )

    return make


def make_batches(shards_dir, batch_size=8, training=True, **options):
    return PretrainingBatches(
        open_shards(shards_dir, "train" if training else "eval"),
        masking_config=MaskingConfig(),
        batch_size=batch_size,
        seed=2,
        training=training,
        **options,
    )


def weights_of(trainer):
    return {
        path: np.array(variable)
        for path, variable in trainer.variables().items()
    }


def uneven(batch):
    """The batch with most masked tokens in its first half."""
    batch = dict(batch)
    weights = batch["masked_lm_weights"].copy()
    weights[len(weights) // 2 :, 1:] = 0.0
    batch["masked_lm_weights"] = weights
    return batch


def masked_lm_loss(outputs, batch):
    """The mean over the global labels, in plain operations."""
    log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"])
    chosen = tf.gather(log_probs, batch["masked_lm_ids"], batch_dims=2)
    weights = batch["masked_lm_weights"]
    return -tf.reduce_sum(chosen * weights) / weights.sum()


def copy_of(trainer):
    """A model of its own with the trainer's weights."""
    model = AlbertForPretraining(trainer.model.config)
    model.set_weights(trainer.model.get_weights())
    return model


@pytest.mark.slow
def test_a_step_equals_the_textbook_step(make_trainer, shards_dir):
    """Mean losses over the global labels, clip by the norm, LAMB, averages."""
    # LAMB's own epsilon would make rounding visible where a gradient is little
    # more than that.
    epsilon = 1e-4
    trainer = make_trainer(
        **NO_DROPOUT,
        max_grad_norm=0.5,
        loss_weight=0.3,
        ema_decay=0.99,
        epsilon=epsilon,
    )
    weight = trainer.model.trainable_variables[0]
    average = np.array(weight)
    batch = uneven(make_batches(shards_dir).batch(0))
    reference = copy_of(trainer)
    with tf.GradientTape() as tape:
        outputs = reference(batch)
        masked_lm = masked_lm_loss(outputs, batch)
        order = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["sentence_order_labels"],
                outputs["sentence_order_logits"],
            )
        )
        loss = masked_lm + 0.3 * order
    variables = reference.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    norm = float(tf.linalg.global_norm(gradients))
    assert norm > 0.5
    optimizer = Lamb(learning_rate=0.01 * 1 / 2, epsilon=epsilon)
    optimizer.build(variables)
    optimizer.apply([tf.convert_to_tensor(g) * (0.5 / norm) for g in gradients])

    result = trainer.train_steps([batch])[0]

    assert result.gradient_norm == pytest.approx(norm, rel=1e-5)
    assert result.learning_rate == pytest.approx(0.005)
    loss = float(masked_lm + order)
    assert result.loss == pytest.approx(loss, rel=1e-6)
    total, labels = result.sums["masked_lm_loss"]
    assert total / labels == pytest.approx(float(masked_lm), rel=1e-6)
    for ours, theirs in zip(
        trainer.model.trainable_variables, variables, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-7)
    ratios = trainer.trust_ratios()
    assert ratios == pytest.approx(optimizer.trust_ratios(), rel=1e-3)
    assert set(ratios) == {v.path for v in variables if len(v.shape) == 2}
    assert 1.0 not in ratios.values()
    assert int(trainer.optimizer.iterations.numpy()) == 1
    average += (1 - 1 / 10) * (np.array(weight) - average)
    trainer.train_steps([batch])
    value = np.array(weight)
    average += (1 - 2 / 11) * (value - average)
    # The model is the average in its context; afterwards itself again.
    with trainer.averaged_weights():
        np.testing.assert_allclose(weight, average, rtol=1e-5)
        assert not np.array_equal(weight, value)
    np.testing.assert_array_equal(weight, value)


def assert_same_run(losses, weights, expected):
    """The losses, and every variable by its norm."""
    np.testing.assert_allclose(losses, expected[0], rtol=1e-5)
    for path, value in expected[1].items():
        error = np.linalg.norm(weights[path] - value)
        # The gradient of the keys' bias is 0 in theory: what moves it is
        # rounding alone, 1e-9.
        size = max(np.linalg.norm(value), 1e-3)
        assert error <= 1e-5 * size, path


@pytest.fixture(scope="module")
def whole_batches(make_trainer, shards_dir):
    """Losses and weights of steps over whole batches on one device."""
    trainer = make_trainer(**SPLIT)
    source = make_batches(shards_dir, BATCH_SIZE)
    losses = [
        trainer.train_steps([uneven(source.batch(step))])[0].loss
        for step in range(STEPS)
    ]
    return losses, weights_of(trainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("replicas", "changes"),
    [
        (
            1,
            {
                "micro_batch_size": 3,
                "steps_per_loop": 3,
                "xla": True,
                "remat": "full",
            },
        ),
        (2, {"micro_batch_size": 2, "steps_per_loop": 3, "remat": "selective"}),
    ],
)
def test_a_step_is_the_same_however_its_batch_is_split(
    make_trainer, shards_dir, whole_batches, replicas, changes, monkeypatch
):
    """Dropout on; labels that differ between parts; one that is not full."""
    if replicas == 2:
        # Both kinds of updates: the matrices' is compiled.
        monkeypatch.setattr(lamb, "MAX_UNCOMPILED", 64)
    source = make_batches(shards_dir, BATCH_SIZE)
    trainer = make_trainer(replicas, **SPLIT, **changes)
    rows = trainer.rows(BATCH_SIZE)
    size = replicas * changes.get("micro_batch_size", 1)
    assert len(rows) % size == 0 and len(rows) >= BATCH_SIZE

    def batch(step):
        # The whole batch made uneven, then its padding added.
        whole, padded = source.batch(step), source.batch(step, rows)
        padded["masked_lm_weights"][:BATCH_SIZE] = uneven(whole)[
            "masked_lm_weights"
        ]
        return padded

    losses = []
    stride = changes.get("steps_per_loop", 1)
    for first in range(0, STEPS, stride):
        call = range(first, min(first + stride, STEPS))
        results = trainer.train_steps([batch(step) for step in call])
        assert len(results) == len(call)
        losses += [result.loss for result in results]
    assert_same_run(losses, weights_of(trainer), whole_batches)
    assert int(trainer.optimizer.iterations.numpy()) == STEPS


@pytest.mark.parametrize("replicas", [1, 2])
def test_xla_compiles_the_whole_step_of_one_replica(
    make_trainer, monkeypatch, replicas
):
    compiled = {}

    class Recorder:
        def __init__(self, function, *, xla=False):
            compiled[function.__name__] = xla

    for module in (trainer_module, gradients):
        monkeypatch.setattr(module, "TracePerShape", Recorder)
    make_trainer(replicas, xla=True)
    assert compiled["graph_step"] == (replicas == 1)
    assert compiled["_forward_and_backward"]


def changed_paths(before, trainer):
    """Paths of the variables that training has changed."""
    after = weights_of(trainer)
    return {p for p in before if not np.array_equal(before[p], after[p])}


@pytest.mark.slow
def test_single_segments_train_the_masked_lm_alone(
    make_trainer, single_segments
):
    """Not even weight decay touches what no label reaches."""
    trainer = make_trainer(2, "none", weight_decay_rate=0.1, **NO_DROPOUT)
    before = weights_of(trainer)
    source = make_batches(single_segments)
    batch = source.batch(0)
    reference = copy_of(trainer)
    with tf.GradientTape() as tape:
        loss = masked_lm_loss(reference(batch), batch)
    gradients = tape.gradient(
        loss, [v.value for v in reference.trainable_variables]
    )
    norm = tf.linalg.global_norm([g for g in gradients if g is not None])

    result = trainer.train_steps([batch])[0]

    assert not any("order" in name for name in result.sums)
    total, weight = result.sums["masked_lm_loss"]
    assert total / weight == pytest.approx(float(loss), rel=1e-6)
    assert result.gradient_norm == pytest.approx(float(norm), rel=1e-5)
    for step in (1, 2):
        trainer.train_steps([source.batch(step)])
    untouched = {
        path for path in before if "sentence_order" in path or "pooler" in path
    }
    assert changed_paths(before, trainer) == (
        {*before} - untouched - {"lamb/learning_rate"}
    )
    # The weights and both moments of two layers, the ratios of the matrices.
    assert len(untouched) == 3 * 4 + 2
    # No 1 of a head that nothing trains among those that are shown.
    ratios = trainer.trust_ratios()
    assert ratios and not untouched & set(ratios)


@pytest.mark.slow
def test_a_loss_without_weight_is_reported_and_trains_nothing(
    make_trainer, shards_dir
):
    trainer = make_trainer(loss_weight=0.0, weight_decay_rate=0.1)
    before = weights_of(trainer)
    result = trainer.train_steps([make_batches(shards_dir).batch(0)])[0]
    assert result.sums["sentence_order_loss"][0] > 0
    changed = changed_paths(before, trainer)
    assert any("word_embeddings" in path for path in changed)
    assert not any("order" in path or "pooler" in path for path in changed)


@pytest.mark.slow
def test_dropout_depends_on_the_seed_and_the_step(make_trainer, shards_dir):
    batch = make_batches(shards_dir).batch(0)
    # A rate of 0: the weights stay.
    one = make_trainer(learning_rate=0.0)
    other = make_trainer(learning_rate=0.0, seed=99)
    other.model.set_weights(one.model.get_weights())
    norms = []
    for trainer in (one, one, other):
        norms.append(trainer.train_steps([batch])[0].gradient_norm)
    one.optimizer.iterations.assign(0)
    assert one.train_steps([batch])[0].gradient_norm == norms[0]
    assert len(set(norms)) == 3


@pytest.fixture(scope="module")
def untrained(make_trainer):
    return make_trainer()


@pytest.mark.slow
def test_evaluation_counts_every_example_once(
    untrained, make_trainer, shards_dir
):
    """Masks depend on the example's number: all see the same ones."""
    two = make_trainer(replicas=2)
    two.model.set_weights(untrained.model.get_weights())
    by_all, *others = (
        evaluate_pretraining(
            trainer, make_batches(shards_dir, size, training=False)
        )
        for trainer, size in ((untrained, 64), (untrained, 7), (two, 6))
    )
    for found in others:
        assert found == pytest.approx(by_all, rel=1e-5)


def test_a_truncated_evaluation_and_its_baselines(untrained, shards_dir):
    source = make_batches(shards_dir, 4, training=False)
    batch = source.batch(0)
    found = evaluate_pretraining(untrained, source, max_steps=1)
    swapped = batch["sentence_order_labels"].mean()
    assert found["majority_order_accuracy"] == max(swapped, 1 - swapped)
    labels = list(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0])
    expected = max(labels.count(label) for label in labels) / len(labels)
    assert found["most_frequent_token_accuracy"] == pytest.approx(expected)


def poisoned(batch, row):
    """The batch with an infinite weight in one row: an infinite loss."""
    weights = batch["masked_lm_weights"].copy()
    weights[row, 0] = np.inf
    return {**batch, "masked_lm_weights": weights}


@pytest.mark.slow
def test_skipped_steps_change_no_weight_on_any_replica(
    make_trainer, shards_dir
):
    trainer = make_trainer(replicas=2, precision="float16", ema_decay=0.9)
    source = make_batches(shards_dir)
    trainer.train_steps([source.batch(0)])
    before = weights_of(trainer)
    # Rows of the first and of the second replica.
    for row in (0, 7):
        result = trainer.train_steps([poisoned(source.batch(1), row)])[0]
        assert result.skipped == result.nonfinite == 1
    # A loss above the limit.
    (result,) = trainer.train_steps([source.batch(1)], loss_limit=1.0)
    assert result.loss > 1.0
    assert (result.skipped, result.nonfinite) == (1, 0)
    changed = changed_paths(before, trainer)
    assert {p for p in changed if not p.startswith("loss_scale")} == {
        "lamb/iteration"
    }
    for variable in trainer.model.trainable_variables:
        first, second = variable.value.values
        np.testing.assert_array_equal(first, second)
    result = trainer.train_steps([source.batch(2)])[0]
    assert result.skipped == result.nonfinite == 0


@pytest.mark.slow
def test_float16_adapts_its_loss_scale(make_trainer, shards_dir):
    """Down at an overflow, without an update; up after 2,000 good steps."""
    trainer = make_trainer(precision="float16", num_train_steps=100)
    variables = trainer.variables()
    # Too large for these gradients.
    variables["loss_scale/scale"].assign(2.0**40)
    batch = make_batches(shards_dir).batch(0)
    before = weights_of(trainer)
    of_model = {v.path for v in trainer.model.trainable_variables}
    result = trainer.train_steps([batch])[0]
    assert (result.skipped, result.nonfinite) == (1, 0)
    assert not of_model & changed_paths(before, trainer)
    scales = []
    while result.skipped:
        scales.append(result.loss_scale)
        assert len(scales) < 40
        result = trainer.train_steps([batch])[0]
    assert scales == [2.0 ** (40 - n) for n in range(len(scales))]
    assert of_model <= changed_paths(before, trainer)
    # Far below what overflows.
    scale = 2.0**10
    variables["loss_scale/scale"].assign(scale)
    variables["loss_scale/good_steps"].assign(1998)
    trainer.train_steps([batch])
    assert float(variables["loss_scale/scale"]) == scale
    trainer.train_steps([batch])
    assert float(variables["loss_scale/scale"]) == 2 * scale
    assert int(variables["loss_scale/good_steps"]) == 0


@pytest.mark.slow
def test_less_precise_arithmetic_takes_nearly_the_same_steps(
    make_trainer, shards_dir
):
    source = make_batches(shards_dir)
    losses = {}
    for name in ("float32", "bfloat16", "float16"):
        trainer = make_trainer(precision=name)
        losses[name] = [
            trainer.train_steps([source.batch(step)])[0].loss
            for step in range(5)
        ]
        dtypes = {v.dtype for v in trainer.model.trainable_variables}
        assert dtypes == {"float32"}
    expected = losses.pop("float32")
    for found in losses.values():
        np.testing.assert_allclose(found, expected, rtol=0.02)
        assert found != expected


@pytest.mark.slow
def test_frozen_variables_stay_and_layers_below_move_less(
    make_trainer, shards_dir
):
    changes = {
        **NO_DROPOUT,
        "optimizer": "adamw",
        "weight_decay_rate": 0.0,
        # The norm, and so a clipped gradient, depends on what is trained.
        "max_grad_norm": 0.0,
    }
    batch = make_batches(shards_dir).batch(0)
    plain = make_trainer(**changes)
    slow = make_trainer(
        freeze="pooler,word_embeddings", layer_decay=0.5, **changes
    )
    assert (plain.trains_all, slow.trains_all) == (True, False)
    slow.model.set_weights(plain.model.get_weights())
    before = weights_of(plain)
    of_model = [v.path for v in slow.model.trainable_variables]
    moved = []
    for trainer in (plain, slow):
        trainer.train_steps([batch])
        after = weights_of(trainer)
        moved.append({path: after[path] - before[path] for path in of_model})
    expected = {
        "pooler": 0.0,
        "word_embeddings": 0.0,
        "masked_lm": 1.0,
        "block": 0.5,
        "position_embeddings": 0.25,
    }
    for part, factor in expected.items():
        paths = [path for path in of_model if part in path]
        assert paths
        for path in paths:
            np.testing.assert_allclose(
                moved[1][path], factor * moved[0][path], rtol=1e-3, atol=1e-7
            )


def random_texts(width):
    """Six rows, the last of which fills the batch up."""
    shape = (6, width)
    return {
        "input_ids": np.random.default_rng(0).integers(5, 50, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
        "label_ids": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "example_weights": np.array([1, 1, 1, 1, 1, 0], np.float32),
    }


def classifier(replicas=1):
    strategy = strategy_of(replicas)
    with strategy.scope():
        return Evaluator(
            random_model("classification", num_hidden_layers=1),
            head_loss("classification"),
            strategy=strategy,
        )


@pytest.mark.slow
def test_predictions_are_those_of_the_whole_batch():
    """Whichever replica had a row, and in the rows' order."""
    batch = random_texts(8)
    found = [
        classifier(number).evaluation_step(batch, with_outputs=True)
        for number in (1, 2)
    ]
    (sums, outputs), (of_replicas, gathered) = found
    total, weight = sums["loss"]
    assert of_replicas["loss"] == pytest.approx((total, weight), rel=1e-6)
    assert weight == 5
    assert outputs["logits"].shape == (6, 3)
    np.testing.assert_allclose(
        gathered["logits"], outputs["logits"], rtol=1e-5, atol=1e-7
    )
    shifted = outputs["logits"] - outputs["logits"].max(axis=1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    of_labels = log_probs[np.arange(5), batch["label_ids"][:5]]
    assert total == pytest.approx(-of_labels.sum(), rel=1e-5)


@pytest.mark.slow
def test_parts_of_a_batch_are_cut_to_their_widths(small_config):
    """The step is that of the whole batch; only padding is cut.

    Dropout is on: a row's masks are those of its number.
    """
    config = override(
        small_config,
        {
            "num_hidden_layers": 1,
            "num_warmup_steps": 0,
            "train_batch_size": 6,
        },
    )
    rng = np.random.default_rng(3)
    lengths = np.array([2, 4, 3, 4, 12, 9])
    mask = (np.arange(12) < lengths[:, None]).astype(np.int32)
    batch = {
        "input_ids": rng.integers(5, 100, (6, 12)).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "label_ids": rng.integers(0, 3, (6, 12)).astype(np.int32),
        "label_weights": mask.astype(np.float32),
        "example_numbers": np.arange(6, dtype=np.int32),
    }

    def step(batch, micro_batch_size):
        trainer = Trainer(
            functools.partial(
                AlbertForTokenClassification,
                config.model,
                labels=["a", "b", "c"],
            ),
            head_loss("token_classification"),
            strategy_of(1),
            config.optimizer,
            override(config.training, {"micro_batch_size": micro_batch_size}),
        )
        return trainer, trainer.train_steps([batch])[0]

    parts = {**batch, "part_widths": np.array([4, 4, 12], np.int32)}
    reference, expected = step(batch, 0)
    trainer, found = step(parts, 1)
    assert trainer.part_widths(parts) == (4, 4, 12)
    np.testing.assert_allclose(
        tf.nest.flatten(found), tf.nest.flatten(expected), rtol=1e-5
    )
    for path, value in weights_of(reference).items():
        np.testing.assert_allclose(
            weights_of(trainer)[path], value, rtol=1e-4, atol=1e-6
        )
