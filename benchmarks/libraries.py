"""LIBRARIES: the ALBERTs that train and compute the same by turns.

All make one update on a batch of random tokens, gradients clipped to 1, and
compute the encoder's pooled outputs and all of its states. Ours uses LAMB
unless --optimizer says otherwise, the others AdamW, which is less work; ours
computes the last block and the logits only where they are read, KerasHub's the
logits too, transformers' neither.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import lookup, require, shares_whole_groups
from benchmarks.workload import Workload
from bin.command_line import require_packages
from experiments.programs.transformers_albert import (
    albert_of_transformers,
    inputs_of_transformers,
)

Batch = Mapping[str, np.ndarray]
# The loss before an update, or outputs, by job.
Jobs = dict[str, Callable[[], Any]]
TRAINING, POOLED, STATES = "training step", "pooled outputs", "all states"


class Library(NamedTuple):
    """A row of LIBRARIES.

    Attributes:
        make: returns the jobs at a workload, on a batch, in a variant.
        variants: ways to do the work, by precision.
        packages: to be installed beside requirements.txt.
    """

    make: Callable[[Workload, Batch, str], Jobs]
    variants: Mapping[str, Sequence[str]]
    packages: tuple[str, ...] = ()


def check_peers(names: Collection[str], work: Workload) -> list[str]:
    """Returns the names of peers, checked, without repetitions.

    Raises:
        UserError: for a library that is unknown, not installed, or does not
            the same work.
    """
    names = list(dict.fromkeys(names))
    precision = work.training.precision
    for name in names:
        peer = lookup(LIBRARIES, name, "against")
        require_packages(f"A comparison with {name}", peer.packages)
        require(
            shares_whole_groups(work.model),
            f"sharing={work.model.sharing}: the ALBERT of {name} shares whole "
            "layers; choose another --preset.",
        )
        lookup(peer.variants, precision, f"against={name}: precision")
    return names


def _ours(work: Workload, batch: Batch, variant: str) -> Jobs:
    import tensorflow as tf

    from benchmarks.training_probe import make_probe

    trainer = make_probe(work)
    model = trainer.model
    features = {name: tf.constant(value) for name, value in batch.items()}
    # The pooler reads the first position, which is always computed.
    no_positions = tf.zeros((work.batch_size, 0), tf.int32)

    @tf.function(jit_compile=work.training.xla)
    def pooled() -> tf.Tensor:
        return model.encode(
            features, training=False, read_positions=no_positions
        )["pooled_output"]

    @tf.function(jit_compile=work.training.xla)
    def states() -> tf.Tensor:
        return model.encode(features, training=False)["sequence_output"]

    return {
        TRAINING: lambda: trainer.train_steps([batch])[0].loss,
        POOLED: lambda: pooled().numpy(),
        STATES: lambda: states().numpy(),
    }


def _model_of_keras_hub(work: Workload) -> tuple[Any, Any]:
    """Returns AlbertBackbone with two heads, compiled, and the backbone.

    KerasHub has no sentence-order head: a dense layer stands for it.
    """
    import keras
    import keras_hub

    from albert_tf.interchange.keras_hub import make_backbone
    from albert_tf.training.trainer import DTYPE_POLICIES

    keras.utils.set_random_seed(work.training.seed)
    config, policy = work.model, DTYPE_POLICIES[work.training.precision]
    backbone = make_backbone(config, policy)
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    encoded = backbone(backbone.input)
    masked_lm = keras_hub.layers.MaskedLMHead(
        vocabulary_size=config.vocab_size,
        token_embedding=backbone.token_embedding,
        intermediate_activation=lambda x: keras.activations.gelu(
            x, approximate=True
        ),
        dtype=policy,
    )(encoded["sequence_output"], positions)
    order = keras.layers.Dense(2, dtype=policy)(encoded["pooled_output"])
    model = keras.Model(
        {**backbone.input, "mask_positions": positions},
        {"masked_lm": masked_lm, "sentence_order": order},
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        keras.optimizers.AdamW(1e-4, global_clipnorm=1.0),
        loss={"masked_lm": loss, "sentence_order": loss},
    )
    model.optimizer.build(model.trainable_variables)
    return model, backbone


def _keras_hub(work: Workload, batch: Batch, variant: str) -> Jobs:
    import tensorflow as tf

    model, backbone = _model_of_keras_hub(work)
    # fit() calls this. Keras itself does not compile with XLA where operations
    # are deterministic, as in this project's programs.
    compiled = {"jit_compile": variant == "XLA"}
    train = tf.function(model.train_step, **compiled)
    tensors = {name: tf.constant(value) for name, value in batch.items()}
    inputs = {
        "token_ids": tensors["input_ids"],
        "padding_mask": tensors["input_mask"],
        "segment_ids": tensors["segment_ids"],
    }
    encode = tf.function(lambda: backbone(inputs, training=False), **compiled)
    features = {**inputs, "mask_positions": tensors["masked_lm_positions"]}
    labels = {
        "masked_lm": tensors["masked_lm_ids"],
        "sentence_order": tensors["sentence_order_labels"],
    }

    def training_step() -> float:
        # The loss returned is the mean since the last reset.
        model.reset_metrics()
        return float(train((features, labels))["loss"])

    return {
        TRAINING: training_step,
        POOLED: lambda: encode()["pooled_output"].numpy(),
        STATES: lambda: encode()["sequence_output"].numpy(),
    }


def _transformers(work: Workload, batch: Batch, variant: str) -> Jobs:
    import torch

    torch.manual_seed(work.training.seed)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    attention, _, cast = variant.partition(", ")
    model = albert_of_transformers(work.model, attention)
    if cast == "bfloat16 weights":
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    arrays = inputs_of_transformers(batch)
    inputs = {name: torch.tensor(array) for name, array in arrays.items()}
    labels = {n: inputs.pop(n) for n in ("labels", "sentence_order_label")}

    def autocast() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, cast == "autocast")

    def training_step() -> float:
        model.train()
        optimizer.zero_grad()
        with autocast():
            loss = model(**inputs, **labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def output(name: str) -> np.ndarray:
        model.train(False)
        with torch.inference_mode(), autocast():
            found = getattr(model.albert(**inputs), name)
        return found.float().numpy()

    jobs: Jobs = {
        TRAINING: training_step,
        POOLED: lambda: output("pooler_output"),
        STATES: lambda: output("last_hidden_state"),
    }
    if cast == "bfloat16 weights":
        # They lose updates below a 512th of a weight: not the same work.
        del jobs[TRAINING]
    return jobs


OURS = "ours"
LIBRARIES = {
    "keras_hub": Library(
        _keras_hub,
        dict.fromkeys(("float32", "bfloat16"), ("graph", "XLA")),
        ("keras_hub",),
    ),
    "transformers": Library(
        _transformers,
        {
            "float32": ("sdpa", "eager"),
            "bfloat16": (
                *("sdpa, autocast", "sdpa, bfloat16 weights"),
                *("eager, autocast", "eager, bfloat16 weights"),
            ),
        },
        ("torch", "transformers"),
    ),
}


def all_sides(work: Workload, peers: Collection[str]) -> dict[str, Any]:
    """Returns (function that makes the jobs, variant) by side, ours first."""
    sides: dict[str, Any] = {OURS: (_ours, "")}
    for name in peers:
        for variant in LIBRARIES[name].variants[work.training.precision]:
            sides[f"{name}, {variant}"] = (LIBRARIES[name].make, variant)
    return sides
