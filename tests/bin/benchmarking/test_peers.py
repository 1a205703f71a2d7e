"""Every side does the same work; other libraries where they are installed."""

import dataclasses
import importlib.util
import math

import numpy as np
import pytest

from albert_tf.config import UserError, override
from albert_tf.jobs.workload import random_batch
from albert_tf.modeling.accounting import encoder_flops, training_flops
from bin.benchmarking.side import JOBS, OurSide
from bin.benchmarking.training_stages import PEERS, check_peers

SIDES = [
    pytest.param(
        side,
        id=side.name,
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(p) is None for p in side.packages),
            reason=f"{side.name} is not installed",
        ),
    )
    for side in (OurSide, *PEERS.values())
]


def changed(work, **parts):
    changes = {n: override(getattr(work, n), c) for n, c in parts.items()}
    return dataclasses.replace(work, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_side_trains_and_computes_in_every_variant(work, kind, precision):
    work = changed(work, training={"precision": precision})
    predictions = 32 if kind.name == "transformers" else 5
    shape = {"batch_size": 4, "seq_length": 32}
    first_only = {"read_positions_only": kind is OurSide}
    for variant in kind.variants(work):
        side = kind(work, random_batch(work), variant)
        pooled = side.forward()
        assert pooled.shape == (4, 16)
        assert (np.abs(np.asarray(pooled, np.float32)) <= 1).all()
        assert side.states().shape == (4, 32, 16)
        # Untrained: uniform over 200 pieces, and over 2 orders.
        first = side.train_step()
        assert first == pytest.approx(math.log(200) + math.log(2), abs=0.3)
        for job in JOBS:
            assert precision in side.does[job]
        expected = {
            "train_step": training_flops(
                work.model, **shape, **first_only, num_predictions=predictions
            ),
            "forward": encoder_flops(work.model, **shape, **first_only),
            "states": encoder_flops(
                work.model, **shape, read_positions_only=False
            ),
        }
        # Updates of weights in bfloat16 are lost: no such step is compared.
        if variant.endswith(", model"):
            del expected["train_step"]
        assert side.flops == expected
        updated = np.asarray(side.forward(), np.float32)
        # The learning rate of ours warms up from nearly nothing.
        if kind is not OurSide and precision == "float32":
            assert not np.array_equal(updated, pooled)


def test_ours_has_the_settings_of_the_work_and_the_outputs_of_the_encoder(work):
    batch = random_batch(work)
    side = OurSide(changed(work, training={"remat": "selective"}), batch)
    assert side.model.remat == "selective"
    assert "computed again" not in side.does["forward"]
    assert "again for the gradient: selective" in side.does["train_step"]
    outputs = side.model.encode(batch, training=False)
    np.testing.assert_allclose(
        side.forward(), outputs["pooled_output"], atol=1e-6
    )
    np.testing.assert_allclose(
        side.states(), outputs["sequence_output"], atol=1e-6
    )


def test_a_peer_that_is_not_installed(monkeypatch, work):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError,
        match="with transformers needs torch and transformers, not installed "
        "here: pip install -r requirements-parity.txt",
    ):
        check_peers(["transformers"], work)
    assert check_peers([], work) == []


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "transformers",
            {"model": {"sharing": "none"}},
            "sharing=none: .* transformers shares whole layers",
        ),
        (
            "keras_hub",
            {"training": {"precision": "float16"}},
            "precision=float16 is not measured for keras_hub",
        ),
    ],
)
def test_work_that_a_peer_cannot_do(monkeypatch, work, name, changes, message):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert check_peers([name, name], work) == [name]
    with pytest.raises(UserError, match=message):
        check_peers([name], changed(work, **changes))
