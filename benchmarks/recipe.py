"""The search for a pretraining recipe: candidates, costs, survivors.

Successive halving (Jamieson and Talwalkar 2016): all candidates get a share of
the arithmetic, the better half continues to twice as much, until the last few
have all of it. A run that is stopped resumes later, so nothing is repeated;
every run has the learning-rate schedule of the full length from the start.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import PretrainConfig, override
from albert_tf.io import files
from albert_tf.modeling.accounting import training_flops
from albert_tf.rundir.run_results import METRICS_FILE, TIMING_FILE, log_lines

# Evaluations of a full run, at equal distances.
NUM_EVALUATIONS = 16
# Evaluations after which the candidates behind are stopped.
RUNGS = (4, 8, NUM_EVALUATIONS)
# Share of the candidates that continues after each rung but the last.
KEEP = 0.5
WARMUP_SHARE = 0.05
# The shards that all candidates read.
EVAL_FRACTION = 0.05
DUPE_FACTOR = 4


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A row of CANDIDATES.

    Attributes:
        settings: of `PretrainConfig`, where they differ from BASE. Those of
            masking may not: held-out losses would no longer compare.
        depths: number of block applications from a share of the arithmetic
            on; empty: all, always.
        masking: share of tokens to predict in training from a share of the
            arithmetic on; empty: masked_lm_prob, always.
        ngrams: longest n-gram masked in training from a share of the
            arithmetic on; empty: max_ngram, always.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    depths: tuple[tuple[float, int], ...] = ()
    masking: tuple[tuple[float, float], ...] = ()
    ngrams: tuple[tuple[float, int], ...] = ()


BASE: dict[str, Any] = {
    "embedding_size": 64,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "initializer_range": 0.05,
    "position_init": "sinusoidal",
    "optimizer": "lamb",
    "learning_rate": 0.01,
    "precision": "bfloat16",
    "train_batch_size": 64,
    "max_eval_steps": 40,
    "keep_checkpoint_max": 1,
}


_ADAMW = {"optimizer": "adamw", "beta_2": 0.98, "bias_correction": True}
_MUON = {"optimizer": "muon", "beta_2": 0.98, "learning_rate": 0.002}
_NORMUON = {**_MUON, "optimizer": "normuon", "learning_rate": 0.004}
# Four applications with small output kernels: 1 / sqrt(2 x applications).
_DEEP = {"num_hidden_layers": 4, "output_init_scale": 0.354}
_SINGLE_WORDS_FIRST = ((0.0, 1), (0.75, 3))
# One row each: what differs from BASE.
CANDIDATES: dict[str, Candidate] = {
    "lamb-0.01": Candidate(),
    "lamb-0.003": Candidate({"learning_rate": 0.003}),
    "lamb-normal-positions": Candidate({"position_init": "normal"}),
    "lamb-small-outputs": Candidate({"output_init_scale": 0.25}),
    "lamb-deep-4": Candidate({"num_hidden_layers": 4}),
    "lamb-deep-4-small-outputs": Candidate(_DEEP),
    "adamw-0.001": Candidate({**_ADAMW, "learning_rate": 0.001}),
    "adamw-0.002": Candidate({**_ADAMW, "learning_rate": 0.002}),
    "adamw-0.004": Candidate({**_ADAMW, "learning_rate": 0.004}),
    "adamw-0.002-clip-0.5": Candidate(
        {**_ADAMW, "learning_rate": 0.002, "max_grad_norm": 0.5}
    ),
    "muon-0.002": Candidate(_MUON),
    "muon-0.004": Candidate({**_MUON, "learning_rate": 0.004}),
    "muon-0.01": Candidate({**_MUON, "learning_rate": 0.01}),
    "muon-deep-4": Candidate({**_DEEP, **_MUON}),
    "muon-deepening": Candidate(
        {**_DEEP, **_MUON}, depths=((0.0, 2), (0.5, 4))
    ),
    "muon-batch-32": Candidate({**_MUON, "train_batch_size": 32}),
    "muon-batch-128": Candidate({**_MUON, "train_batch_size": 128}),
    "muon-wide-256": Candidate(
        {
            **_MUON,
            "learning_rate": 0.0028,
            "initializer_range": 0.035,
            "hidden_size": 256,
            "intermediate_size": 1024,
            "num_attention_heads": 4,
            "embedding_size": 128,
        }
    ),
    "muon-masking-0.25": Candidate(_MUON, masking=((0.0, 0.25),)),
    "muon-masking-0.4": Candidate(_MUON, masking=((0.0, 0.4),)),
    "muon-masking-falling": Candidate(_MUON, masking=((0.0, 0.4), (0.5, 0.2))),
    "muon-one-cycle": Candidate({**_MUON, "learning_rate_decay": "cosine"}),
    "normuon-0.002": Candidate({**_NORMUON, "learning_rate": 0.002}),
    "normuon-0.004": Candidate(_NORMUON),
    "normuon-single-words": Candidate(_NORMUON, ngrams=_SINGLE_WORDS_FIRST),
    "normuon-single-words-masking-falling": Candidate(
        _NORMUON, masking=((0.0, 0.4), (0.75, 0.2)), ngrams=_SINGLE_WORDS_FIRST
    ),
    # The tiny preset, but for the weight of its sentence loss.
    "normuon-wide-embeddings": Candidate(
        {**_NORMUON, "embedding_size": 128},
        masking=((0.0, 0.4), (0.6, 0.2)),
        ngrams=((0.0, 1), (0.6, 3)),
    ),
}

# The usual recipe of transformers: its initial weights, and AdamW as in its
# Trainer.
_TRAINER = {
    "initializer_range": 0.02,
    "position_init": "normal",
    "optimizer": "adamw",
    "bias_correction": True,
    "epsilon": 1e-8,
}
PEERS: dict[str, Candidate] = {
    "transformers-0.0001": Candidate({**_TRAINER, "learning_rate": 1e-4}),
    "transformers-0.0005": Candidate({**_TRAINER, "learning_rate": 5e-4}),
}


def configuration(
    candidate: Candidate,
    *,
    flops: float,
    vocab_size: int,
    seq_length: int,
    seed: int,
) -> PretrainConfig:
    """Returns the settings of a run whose training takes `flops` operations.

    `vocab_size` and `seq_length` are those of the shards.
    """
    config = override(
        PretrainConfig(),
        {
            **BASE,
            **candidate.settings,
            "vocab_size": vocab_size,
            "max_position_embeddings": seq_length,
            "seed": seed,
        },
    )
    depths = dict(candidate.depths or [(0.0, config.model.num_hidden_layers)])
    masking = dict(candidate.masking or [(0.0, config.masking.masked_lm_prob)])
    shares = sorted({*depths, *masking, *dict(candidate.ngrams)})
    starts: dict[float, int] = {}
    step = 0
    for share, end in itertools.pairwise([*shares, 1.0]):
        starts[share] = step
        cost = flops_per_step(
            config,
            seq_length,
            depths[max(s for s in depths if s <= share)],
            masking[max(s for s in masking if s <= share)],
        )
        step += round((end - share) * flops / cost)

    def schedule(row: Sequence[tuple[float, float]]) -> str:
        return ",".join(f"{starts[share]}:{value}" for share, value in row)

    interval = max(1, round(step / NUM_EVALUATIONS))
    changes = {
        "num_train_steps": interval * NUM_EVALUATIONS,
        "num_warmup_steps": round(WARMUP_SHARE * interval * NUM_EVALUATIONS),
        "eval_steps": interval,
        "log_steps": interval,
        "save_checkpoints_steps": interval,
        "depth_schedule": schedule(candidate.depths),
        "masking_schedule": schedule(candidate.masking),
        "ngram_schedule": schedule(candidate.ngrams),
    }
    return override(config, changes)


def flops_per_step(
    config: PretrainConfig,
    seq_length: int,
    num_applications: int,
    masked_lm_prob: float,
) -> int:
    """Returns the operations of a training step at a depth and masking."""
    predictions = math.ceil(seq_length * masked_lm_prob)
    return training_flops(
        config.model,
        batch_size=config.training.train_batch_size,
        seq_length=seq_length,
        num_predictions=predictions,
        read_positions_only=True,
        num_applications=num_applications,
    )


@dataclasses.dataclass(frozen=True)
class Point:
    """An evaluation of a run.

    Attributes:
        flops: arithmetic of training until then.
        seconds: of training until then, without compilation and evaluations.
        metrics: of the held-out shards, with `step`.
    """

    flops: float
    seconds: float
    metrics: Mapping[str, Any]


def read_curve(run_dir: str, config: PretrainConfig) -> list[Point]:
    """Returns the evaluations of a run so far.

    Raises:
        UserError: for a damaged log.
    """
    logs = [os.path.join(run_dir, n) for n in (METRICS_FILE, TIMING_FILE)]
    if not all(map(files.isfile, logs)):
        return []
    metrics_lines, timing_lines = map(log_lines, logs)
    # A resumed run repeats the lines after its checkpoint, and its first step
    # is not timed: a line of that step alone has no rates.
    timings = {
        line["step"]: line
        for line in timing_lines
        if "sequences_per_second" in line
    }
    if not timings:
        return []
    training = config.training
    flops = seconds = 0.0
    points = []
    for metrics in metrics_lines:
        if metrics["split"] != "eval":
            continue
        nearest = min(timings, key=lambda step: abs(step - metrics["step"]))
        timing = timings[nearest]
        passed = (
            training.eval_steps
            * training.train_batch_size
            / timing["sequences_per_second"]
        )
        seconds += passed
        flops += passed * timing["flops_per_second"]
        points.append(Point(flops, seconds, metrics))
    return points


@dataclasses.dataclass(frozen=True)
class Lead:
    """The distance of one curve below another at equal arithmetic or time.

    Attributes:
        share: of the other's whole work, where the first has the best value
            of the other; infinite where it never has.
        smallest: least difference at the evaluations of both; negative where
            the first is behind.
        last: at the end of the shorter one.
    """

    share: float
    smallest: float
    largest: float
    last: float


def lead(
    ours: Sequence[Point], theirs: Sequence[Point], metric: str, axis: str
) -> Lead:
    """Returns the lead of a curve over another, interpolated linearly.

    Only where both have been evaluated is there a difference. The metric is
    better when lower; `axis` is "flops" or "seconds".
    """
    (our_work, our_values), (their_work, their_values) = (
        (
            np.array([getattr(point, axis) for point in curve]),
            np.array([point.metrics[metric] for point in curve]),
        )
        for curve in (ours, theirs)
    )
    end = min(our_work[-1], their_work[-1])
    work = np.union1d(our_work, their_work)
    work = work[(work >= max(our_work[0], their_work[0])) & (work <= end)]
    differences = np.interp(work, their_work, their_values) - np.interp(
        work, our_work, our_values
    )
    # The lowest value until each evaluation falls, so it can be inverted.
    lowest = np.minimum.accumulate(our_values)
    best = their_values.min()
    reached = math.inf
    if lowest[-1] <= best:
        reached = np.interp(-best, -lowest, our_work)
    return Lead(
        share=float(reached / their_work[-1]),
        smallest=float(differences.min()),
        largest=float(differences.max()),
        last=float(differences[-1]),
    )


def survivors(losses: Mapping[str, float]) -> list[str]:
    """Returns the better half, best first, without infinite losses."""
    ranked = sorted(losses, key=lambda name: (losses[name], name))
    finite = [name for name in ranked if math.isfinite(losses[name])]
    return finite[: math.ceil(len(losses) * KEEP)]
