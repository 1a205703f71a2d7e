"""`micro_batch_size=auto`: the largest micro-batch that fits, by formula.

docs/performance.md has the formula, and what was measured beside it.
"""

import os
from typing import TypeVar

import tensorflow as tf

from albert_tf.cluster.distribution import (
    broadcast,
    is_chief,
    lost_workers,
    worker_hosts,
)
from albert_tf.cluster.memory import free_memory
from albert_tf.config import (
    FinetuneConfig,
    ModelConfig,
    PretrainConfig,
    TrainingConfig,
    override,
    require,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json
from albert_tf.modeling.accounting import with_pretraining_heads
from albert_tf.modeling.attention import LONGEST_CHUNK
from albert_tf.rundir.run_directory import CONFIG

JobConfig = TypeVar("JobConfig", PretrainConfig, FinetuneConfig)

AUTO = "auto"
# The rest is left to the system, to readers of data and to evaluations.
_SHARE_OF_FREE = 0.8
# Weights, gradients, their sum, two moments and casts; libraries.
_BYTES_PER_WEIGHT = 28
_BYTES_OF_LIBRARIES = 2**30
# Logits, in float32 and in the layers' precision, and their gradient.
_BYTES_PER_LOGIT = 10


def with_micro_batch_size(
    config: JobConfig,
    strategy: tf.distribute.Strategy,
    run_dir: str,
    model: ModelConfig,
    **example: int,
) -> JobConfig:
    """Returns the configuration with a number in place of `auto`.

    A resumed run keeps the number in its config.json: another one would add
    gradients in another order. `example` is as in `example_bytes`.

    Raises:
        UserError: when not even a single example fits.
        RunStopped: when another worker is lost meanwhile.
    """
    if config.training.micro_batch_size != AUTO:
        return config
    size = 0
    if is_chief(strategy):
        path = os.path.join(run_dir, CONFIG)
        if files.isfile(path):
            training = read_json(path).get("config", {}).get("training", {})
            size = training.get("micro_batch_size", 0)
        if size in (0, AUTO):
            size = _largest(config.training, strategy, model, **example)
    with lost_workers(strategy):
        size = int(broadcast(strategy, size))
    return override(config, {"micro_batch_size": size})


def example_bytes(
    model: ModelConfig,
    training: TrainingConfig,
    *,
    seq_length: int,
    num_predictions: int = 0,
    choices: int = 1,
) -> int:
    """Returns the bytes that a step keeps for an example's backward pass.

    An example has `choices` sequences of so many tokens and masked ones.
    """
    value = 4 if training.precision == "float32" else 2
    layers = model.num_hidden_layers * model.inner_group_num
    # Input, query, key, value, context, attention output, its sum, output;
    # the inner vector; the weights, with dropout before and after it.
    vectors = 8 * model.hidden_size + model.intermediate_size
    weights = model.num_attention_heads * min(seq_length, LONGEST_CHUNK)
    if model.attention_probs_dropout_prob:
        weights *= 2
    # Where there are several chunks of queries, only one has weights at a time.
    passing = weights if seq_length > LONGEST_CHUNK else 0
    weights -= passing
    # Query, key, value, context and attention output.
    of_attention = 5 * model.hidden_size + weights
    values = {
        "none": layers * (vectors + weights),
        "selective": layers * (vectors + weights - of_attention) + of_attention,
        "full": layers * model.hidden_size + 2 * (vectors + weights),
    }[training.remat]
    values += passing
    logits = _BYTES_PER_LOGIT * model.vocab_size * num_predictions
    return choices * (seq_length * value * values + logits)


def largest_micro_batch(batch_size: int, limit: float) -> int:
    """Returns the largest part of a batch that is at most `limit` examples.

    Parts are the batch size divided by 1, 2, 3 and so on, rounded up: others
    would only add padding.
    """
    parts = -(-batch_size // int(limit))
    return -(-batch_size // parts)


def _largest(
    training: TrainingConfig,
    strategy: tf.distribute.Strategy,
    model: ModelConfig,
    batch_size: int,
    **example: int,
) -> int:
    require(
        not tf.config.list_physical_devices("GPU")
        and not isinstance(strategy, tf.distribute.TPUStrategy),
        "micro_batch_size=auto knows the memory of CPUs only; for other "
        "devices give a number.",
    )
    memory = _SHARE_OF_FREE * free_memory() / _num_local_replicas(strategy)
    fixed = _BYTES_OF_LIBRARIES + _BYTES_PER_WEIGHT * (
        with_pretraining_heads(model).total
    )
    each = example_bytes(model, training, **example)
    require(
        fixed + each <= memory,
        f"micro_batch_size=auto: one example needs {_mib(fixed + each)}, and "
        f"{_mib(memory)} are available. Use --remat=full, shorter sequences or "
        "a smaller model.",
    )
    share = -(-batch_size // strategy.num_replicas_in_sync)
    size = largest_micro_batch(share, (memory - fixed) / each)
    print(
        f"micro_batch_size={size} of {share}: {_mib(fixed + size * each)} of "
        f"{_mib(memory)}, by formula.",
        flush=True,
    )
    return size


def _mib(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def _num_local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Returns the number of replicas that share this machine's memory."""
    hosts = worker_hosts(strategy)
    if len(hosts) == 1:
        return strategy.num_replicas_in_sync
    here = hosts.count(hosts[strategy.cluster_resolver.task_id])
    return here * strategy.num_replicas_in_sync // len(hosts)
