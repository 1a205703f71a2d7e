"""Every side does the same work; other libraries where they are installed."""

import dataclasses
import importlib.util
import math

import numpy as np
import pytest

from albert_tf.config import (
    ModelConfig,
    TrainingConfig,
    UserError,
    override,
)
from albert_tf.jobs.workload import Workload, random_batch
from albert_tf.modeling.accounting import encoder_flops, training_flops
from bin.benchmarking import peers
from bin.benchmarking.peers import OURS, PEERS, find_peers

WORK = Workload(
    model=ModelConfig(
        vocab_size=101,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=12,
    ),
    batch_size=3,
    seq_length=12,
    num_predictions=4,
    training=TrainingConfig(),
)
installed = [
    pytest.param(
        kind,
        id=name,
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(p) is None for p in kind.packages),
            reason=f"{name} is not installed",
        ),
    )
    for name, kind in {"ours": OURS, **PEERS}.items()
]


def with_model(**changes):
    return dataclasses.replace(WORK, model=override(WORK.model, changes))


def with_training(**changes):
    return dataclasses.replace(WORK, training=override(WORK.training, changes))


@pytest.mark.slow
@pytest.mark.parametrize("kind", installed)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_side_trains_and_computes_in_every_variant(kind, precision):
    work = with_training(precision=precision)
    for variant in kind.variants(work):
        side = kind.make(work, random_batch(work), variant)
        pooled = side.forward()
        assert pooled.shape == (3, 16)
        assert (np.abs(np.asarray(pooled, np.float32)) <= 1).all()
        assert side.states().shape == (3, 12, 16)
        # It knows nothing at first: as likely as any of 101 and of 2.
        first = side.train_step()
        assert first == pytest.approx(math.log(101) + math.log(2), abs=0.3)
        for job in ("train_step", "forward", "states"):
            assert precision in side.does[job]
        # Updates of weights in bfloat16 are lost: no such step is compared.
        assert ("train_step" in side.flops) == (not variant.endswith(", model"))
        assert {"forward", "states"} <= set(side.flops)
        updated = np.asarray(side.forward(), np.float32)
        side.train_step()
        # The rate of ours warms up from nearly nothing.
        if kind is not OURS and precision == "float32":
            assert not np.array_equal(updated, pooled)


@pytest.mark.parametrize("kind", installed)
def test_a_side_counts_the_arithmetic_that_it_does(kind):
    variant, *_ = kind.variants(WORK)
    side = kind.make(WORK, random_batch(WORK), variant)
    predictions = 12 if kind.name == "transformers" else 4
    assert side.flops["train_step"] == training_flops(
        WORK.model,
        batch_size=3,
        seq_length=12,
        num_predictions=predictions,
        read_positions_only=kind is OURS,
    )
    for job in ("forward", "states"):
        assert side.flops[job] == encoder_flops(
            WORK.model,
            batch_size=3,
            seq_length=12,
            read_positions_only=kind is OURS and job == "forward",
        )


def test_ours_is_set_by_the_work():
    from bin.benchmarking.our_side import OurSide

    work = with_training(remat="selective", precision="bfloat16", xla=True)
    side = OurSide(work, random_batch(work))
    assert side.model.remat == "selective"
    assert "again for the gradient: selective" in side.does["train_step"]
    assert side.model.dtype_policy.name == "mixed_bfloat16"
    assert "XLA" in side.does["train_step"]
    assert "computed again" in side.does["train_step"]
    assert "computed again" not in side.does["forward"]


def test_our_pooled_outputs_do_not_need_every_state():
    from bin.benchmarking.our_side import OurSide

    batch = random_batch(WORK)
    side = OurSide(WORK, batch)
    outputs = side.model.encode(batch, training=False)
    np.testing.assert_allclose(
        side.forward(), outputs["pooled_output"], atol=1e-6
    )
    np.testing.assert_allclose(
        side.states(), outputs["sequence_output"], atol=1e-6
    )


def test_a_missing_library_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError) as caught:
        find_peers(["keras_hub", "transformers"])
    assert str(caught.value) == (
        "A comparison with keras_hub and transformers needs keras_hub and "
        "torch and transformers, not installed here: pip install -r "
        "requirements-parity.txt."
    )
    assert find_peers([]) == ()


def test_an_unknown_library_is_told_with_those_there_are(monkeypatch):
    with pytest.raises(UserError) as caught:
        find_peers(["jax"])
    assert str(caught.value) == (
        "against='jax' is not one of transformers, keras_hub."
    )
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: name)
    (found,) = find_peers(["keras_hub", "keras_hub"])
    assert found is PEERS["keras_hub"]


@pytest.mark.parametrize(
    ("name", "work", "said"),
    [
        (
            "transformers",
            with_model(sharing="none"),
            "sharing=none: the ALBERT of transformers shares whole layers",
        ),
        (
            "keras_hub",
            with_model(sharing="attention"),
            "sharing=attention: the ALBERT of KerasHub always takes all",
        ),
        (
            "keras_hub",
            with_model(hidden_dropout_prob=0.1),
            "attention_probs_dropout_prob=0.0: the ALBERT of KerasHub always "
            "takes 0.1",
        ),
        (
            "keras_hub",
            with_model(num_hidden_layers=3, num_hidden_groups=2),
            "num_hidden_groups=2: the ALBERT of KerasHub has groups of one "
            "size, which do not divide num_hidden_layers=3.",
        ),
        (
            "transformers",
            with_training(precision="float16"),
            "precision=float16 is not compared with transformers; float32 "
            "and bfloat16 are.",
        ),
        (
            "keras_hub",
            with_training(precision="float16"),
            "precision=float16 is not compared with keras_hub; float32 and "
            "bfloat16 are.",
        ),
    ],
)
def test_what_a_library_cannot_do_is_told_before_it_is_loaded(name, work, said):
    with pytest.raises(UserError) as caught:
        PEERS[name].variants(work)
    assert said in str(caught.value)
