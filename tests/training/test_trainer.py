"""The inner step: against plain arithmetic, and over replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import MaskingConfig, UserError, override
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.modeling.optimizers import Lamb
from albert_tf.text.shards import open_shards
from albert_tf.training.distribution import check_batch_size, make_strategy
from albert_tf.training.evaluate import evaluate_pretraining
from albert_tf.training.input_pipeline import PretrainingBatches
from albert_tf.training.objectives import pretraining_objective
from albert_tf.training.targets import SENTENCE_TARGETS
from albert_tf.training.trainer import RunningMeans, Trainer, check_finite


def make_trainer(config, strategy=None, objective="sop"):
    strategy = strategy or make_strategy("default")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = AlbertForPretraining(config.model)
        return Trainer(
            model,
            pretraining_objective(SENTENCE_TARGETS[objective]),
            strategy=strategy,
            optimizer_config=config.optimizer,
            training_config=config.training,
        )


def make_batches(shards_dir, batch_size=8, training=True):
    return PretrainingBatches(
        open_shards(shards_dir, "train" if training else "eval"),
        masking_config=MaskingConfig(),
        batch_size=batch_size,
        seed=2,
        training=training,
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


def test_a_step_is_the_textbook_step(small_config, shards_dir):
    """Mean losses over the global labels, clip by the norm, LAMB."""
    config = override(
        small_config,
        {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "max_grad_norm": 0.5,
        },
    )
    trainer = make_trainer(config)
    batch = uneven(make_batches(shards_dir).batch(0))
    reference = AlbertForPretraining(config.model)
    reference.set_weights(trainer.model.get_weights())
    with tf.GradientTape() as tape:
        outputs = reference(batch)
        log_probs = tf.nn.log_softmax(outputs["masked_lm_logits"])
        chosen = tf.gather(log_probs, batch["masked_lm_ids"], batch_dims=2)
        weights = batch["masked_lm_weights"]
        masked_lm = -tf.reduce_sum(chosen * weights) / weights.sum()
        order = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(
                batch["sentence_order_labels"],
                outputs["sentence_order_logits"],
            )
        )
        loss = masked_lm + order
    variables = reference.trainable_variables
    gradients = tape.gradient(loss, [v.value for v in variables])
    norm = float(tf.linalg.global_norm(gradients))
    assert norm > 0.5
    optimizer = Lamb(learning_rate=0.01 * 1 / 2)
    optimizer.build(variables)
    optimizer.apply([tf.convert_to_tensor(g) * (0.5 / norm) for g in gradients])

    results = trainer.train_step(batch)

    assert float(results["gradient_norm"]) == pytest.approx(norm, rel=1e-5)
    assert float(results["learning_rate"]) == pytest.approx(0.005)
    mean = results["sum:masked_lm_loss"] / results["weight:masked_lm_loss"]
    assert float(mean) == pytest.approx(float(masked_lm), rel=1e-6)
    for ours, theirs in zip(
        trainer.model.trainable_variables, variables, strict=True
    ):
        # Where a gradient is but rounding error, the first update of LAMB
        # makes it visible: a 5000th of the learning rate is allowed.
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    ratios = trainer.trust_ratios()
    assert ratios == pytest.approx(optimizer.trust_ratios(), rel=1e-3)
    assert set(ratios) == {v.path for v in variables if len(v.shape) == 2}
    assert 1.0 not in ratios.values()
    assert int(trainer.optimizer.iterations.numpy()) == 1


def test_two_replicas_do_what_one_does(small_config, shards_dir):
    """Dropout on, and masked tokens that differ between the replicas."""
    one = make_trainer(small_config)
    two = make_trainer(small_config, make_strategy("mirrored", 2))
    assert two.strategy.num_replicas_in_sync == 2
    two.model.set_weights(one.model.get_weights())
    source = make_batches(shards_dir)
    for step in range(5):
        batch = uneven(source.batch(step))
        results = [t.train_step(batch) for t in (one, two)]
        for name in results[0]:
            np.testing.assert_allclose(
                results[0][name], results[1][name], rtol=1e-5, err_msg=name
            )
    for path, value in weights_of(one).items():
        np.testing.assert_allclose(
            value, weights_of(two)[path], rtol=1e-4, atol=1e-6, err_msg=path
        )
    assert two.trust_ratios() == pytest.approx(one.trust_ratios(), rel=1e-4)


def unchanged_paths(before, trainer):
    """Paths of the weights and moments that training has left alone."""
    after = weights_of(trainer)
    return {
        path
        for path, value in before.items()
        if np.array_equal(value, after[path])
        and not path.endswith("/learning_rate")
    }


@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [("default", "lamb"), ("mirrored", "lamb"), ("default", "adamw")],
)
def test_single_segments_train_the_masked_lm_alone(
    small_config, single_segments, strategy, optimizer
):
    """Not even weight decay touches what no label reaches."""
    config = override(
        small_config,
        {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "weight_decay_rate": 0.1,
            "optimizer": optimizer,
        },
    )
    trainer = make_trainer(config, make_strategy(strategy), "none")
    before = weights_of(trainer)
    source = make_batches(single_segments)
    batch = source.batch(0)
    reference = AlbertForPretraining(config.model)
    reference.set_weights(trainer.model.get_weights())
    with tf.GradientTape() as tape:
        log_probs = tf.nn.log_softmax(reference(batch)["masked_lm_logits"])
        chosen = tf.gather(log_probs, batch["masked_lm_ids"], batch_dims=2)
        weights = batch["masked_lm_weights"]
        loss = -tf.reduce_sum(chosen * weights) / weights.sum()
    gradients = tape.gradient(
        loss, [v.value for v in reference.trainable_variables]
    )
    norm = tf.linalg.global_norm([g for g in gradients if g is not None])

    results = trainer.train_step(batch)

    assert sorted(results) == [
        "gradient_norm",
        "learning_rate",
        "sum:masked_lm_accuracy",
        "sum:masked_lm_loss",
        "weight:masked_lm_accuracy",
        "weight:masked_lm_loss",
    ]
    mean = results["sum:masked_lm_loss"] / results["weight:masked_lm_loss"]
    assert float(mean) == pytest.approx(float(loss), rel=1e-6)
    assert float(results["gradient_norm"]) == pytest.approx(
        float(norm), rel=1e-5
    )
    for step in (1, 2):
        trainer.train_step(source.batch(step))
    untouched = ("sentence_order", "pooler")
    unchanged = unchanged_paths(before, trainer)
    for path in unchanged:
        assert any(part in path for part in untouched), path
    of_model = [v.path for v in trainer.model.trainable_variables]
    kept = [p for p in of_model if any(part in p for part in untouched)]
    assert len(kept) == 4
    # The weights and both moments of each, and the ratios of the matrices.
    adapted = {p for p in of_model if p in trainer.optimizer.trust_ratios()}
    assert len(unchanged) == 3 * len(kept) + len(adapted & set(kept))
    # No 1 of a head that nothing trains among those that are shown.
    assert set(trainer.trust_ratios()) == adapted - set(kept)
    assert bool(trainer.trust_ratios()) == (optimizer == "lamb")


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_pairs_train_every_variable(small_config, next_sentences, objective):
    trainer = make_trainer(small_config, objective=objective)
    before = weights_of(trainer)
    trainer.train_step(make_batches(next_sentences).batch(0))
    assert not unchanged_paths(before, trainer)


def test_next_sentence_is_the_same_step_under_other_names(
    small_config, next_sentences
):
    config = override(small_config, {"hidden_dropout_prob": 0.0})
    one, other = (
        make_trainer(config, objective=name) for name in ("sop", "nsp")
    )
    other.model.set_weights(one.model.get_weights())
    batch = make_batches(next_sentences).batch(0)
    a, b = one.train_step(batch), other.train_step(batch)
    assert {
        name.replace("sentence_order", "next_sentence"): float(value)
        for name, value in a.items()
    } == {name: float(value) for name, value in b.items()}
    assert "sum:next_sentence_loss" in b
    assert "sum:next_sentence_accuracy" in b
    after = weights_of(other)
    for path, value in weights_of(one).items():
        np.testing.assert_array_equal(value, after[path], err_msg=path)


def test_evaluation_of_single_segments_has_no_sentence_measures(
    small_config, single_segments
):
    trainer = make_trainer(small_config, objective="none")
    results = evaluate_pretraining(
        trainer, make_batches(single_segments, training=False)
    )
    assert list(results) == [
        "masked_lm_loss",
        "masked_lm_accuracy",
        "masked_lm_perplexity",
        "most_frequent_token_accuracy",
    ]
    assert np.isfinite(list(results.values())).all()


def test_the_baseline_of_next_sentence(small_config, next_sentences):
    trainer = make_trainer(small_config, objective="nsp")
    source = make_batches(next_sentences, training=False)
    labels = [
        label
        for step in range(source.num_steps)
        for label, weight in zip(
            source.batch(step)["sentence_order_labels"],
            source.batch(step)["example_weights"],
            strict=True,
        )
        if weight
    ]
    assert 0 < sum(labels) < len(labels) / 2
    results = evaluate_pretraining(trainer, source)
    assert list(results) == [
        "masked_lm_loss",
        "next_sentence_loss",
        "masked_lm_accuracy",
        "next_sentence_accuracy",
        "masked_lm_perplexity",
        "most_frequent_token_accuracy",
        "majority_next_sentence_accuracy",
    ]
    assert results["majority_next_sentence_accuracy"] == pytest.approx(
        1 - sum(labels) / len(labels)
    )


def test_dropout_repeats_for_the_same_step(small_config, shards_dir):
    batch = make_batches(shards_dir).batch(0)
    one, other = (make_trainer(small_config) for _ in range(2))
    other.model.set_weights(one.model.get_weights())
    a, b = (float(t.train_step(batch)["gradient_norm"]) for t in (one, other))
    assert a == b
    plain = make_trainer(override(small_config, {"hidden_dropout_prob": 0.0}))
    plain.model.set_weights(one.model.get_weights())
    changed = make_trainer(override(small_config, {"seed": 99}))
    changed.model.set_weights(plain.model.get_weights())
    assert float(plain.train_step(batch)["gradient_norm"]) != a
    assert float(changed.train_step(batch)["gradient_norm"]) != a


def test_evaluation_counts_every_example_once(small_config, shards_dir):
    trainer = make_trainer(small_config)
    by_seven, by_all = (
        evaluate_pretraining(
            trainer, make_batches(shards_dir, size, training=False)
        )
        for size in (7, 64)
    )
    # Masks depend on the example's number, so both see the same ones.
    assert by_seven.keys() == by_all.keys()
    for name in by_seven:
        assert by_seven[name] == pytest.approx(by_all[name], rel=1e-5), name
    assert 0 < by_all["most_frequent_token_accuracy"] < 1
    assert 0.5 <= by_all["majority_order_accuracy"] < 1


def test_two_replicas_evaluate_what_one_does(small_config, shards_dir):
    one = make_trainer(small_config)
    two = make_trainer(small_config, make_strategy("mirrored", 2))
    two.model.set_weights(one.model.get_weights())
    results = [
        evaluate_pretraining(t, make_batches(shards_dir, 6, training=False))
        for t in (one, two)
    ]
    for name, value in results[0].items():
        assert results[1][name] == pytest.approx(value, rel=1e-5), name


def test_an_evaluation_may_be_cut_short(small_config, shards_dir):
    trainer = make_trainer(small_config)
    source = make_batches(shards_dir, 4, training=False)
    first = {**source.batch(0)}
    expected = first["sentence_order_labels"].mean()
    got = evaluate_pretraining(trainer, source, max_steps=1)
    assert got["majority_order_accuracy"] == max(expected, 1 - expected)


def test_the_baseline_is_the_commonest_masked_token(small_config, shards_dir):
    trainer = make_trainer(small_config)
    source = make_batches(shards_dir, training=False)
    labels = []
    for step in range(source.num_steps):
        batch = source.batch(step)
        labels += list(batch["masked_lm_ids"][batch["masked_lm_weights"] > 0])
    expected = max(labels.count(label) for label in set(labels)) / len(labels)
    results = evaluate_pretraining(trainer, source)
    assert results["most_frequent_token_accuracy"] == pytest.approx(expected)


def test_running_means():
    means = RunningMeans()
    means.add({"sum:loss": tf.constant(6.0), "weight:loss": tf.constant(2.0)})
    means.add({"sum:loss": tf.constant(1.0), "weight:loss": tf.constant(5.0)})
    means.add({"gradient_norm": tf.constant(9.0)})
    assert means.means() == {"loss": 1.0}
    again = RunningMeans(means.sums)
    assert again.means() == {"loss": 1.0}
    with pytest.raises(UserError, match="loss is nan at step 7"):
        check_finite({"loss": float("nan")}, 7)


def test_strategies():
    with pytest.raises(UserError, match="'tower' is not one of default"):
        make_strategy("tower")
    with pytest.raises(UserError, match="needs --strategy=mirrored"):
        make_strategy("default", 2)
    with pytest.raises(UserError, match="num_replicas=9.*has 2 CPU"):
        make_strategy("mirrored", 9)
    with pytest.raises(UserError, match="train_batch_size=7.*2 replicas"):
        check_batch_size("train_batch_size", 7, make_strategy("mirrored", 2))
