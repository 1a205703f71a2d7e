"""The stages of the benchmark, one row each."""

from albert_tf.config import UserError
from bin.benchmarking.data_stages import data_preparation, reading
from bin.benchmarking.finetuning_stages import featurisation, finetuning
from bin.benchmarking.measures import Stage, repeated
from bin.benchmarking.training_stages import (
    data_wait,
    memory,
    recomputation,
    training,
)

STAGES: dict[str, Stage] = {
    row.name: row
    for row in (
        Stage(
            "data_preparation",
            "bin.build_pretraining_data: static records, from text to shards "
            "on disk, by one worker on one core and by two on two; and each "
            "of its steps alone, on one core",
            repeated(data_preparation),
        ),
        Stage(
            "reading",
            "batches for pretraining out of shards, on one core; dynamic "
            "records are masked as they are read",
            repeated(reading),
        ),
        Stage(
            "training",
            "pretraining steps and forward passes on random tokens, all "
            "sides by turns in one process, beside the machine's rate of "
            "matrix multiplication; ratios above 1: ours is faster",
            training,
        ),
        Stage(
            "memory",
            "what is resident at the peak of training steps, each side in a "
            "process of its own, libraries included; ratios below 1: ours "
            "takes less",
            memory,
        ),
        Stage(
            "recomputation",
            "forward and backward of a training step, by what --remat computes "
            "again for the gradient instead of keeping it",
            repeated(recomputation),
        ),
        Stage(
            "data_wait",
            "training on records that are read and masked meanwhile, as by "
            "bin.pretrain, and the share of the time without a batch",
            data_wait,
        ),
        Stage(
            "featurisation",
            "features of the examples of a task, on one core; questions with "
            "their paragraphs become several sequences",
            repeated(featurisation),
        ),
        Stage(
            "finetuning",
            "training and evaluating on examples of a task, in batches by "
            "length and in batches padded to max_seq_length, by turns; ratios "
            "above 1: those by length are faster",
            finetuning,
        ),
    )
}


def find_stage(name: str) -> Stage:
    """Returns a row of STAGES.

    Raises:
        UserError: for an unknown name.
    """
    if name not in STAGES:
        raise UserError(
            f"--stages names {name!r}, which is none of {', '.join(STAGES)}."
        )
    return STAGES[name]
