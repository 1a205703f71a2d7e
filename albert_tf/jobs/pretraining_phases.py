"""The phases of pretraining: the shards and the masking of every step."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.config import (
    MaskingConfig,
    PretrainConfig,
    override,
    require,
    shown,
    to_dict,
)
from albert_tf.config.schedules import numbers_of, parse_schedule
from albert_tf.inputs.input_pipeline import PretrainingBatches, masking_of
from albert_tf.inputs.source_schedule import SourceSchedule
from albert_tf.io.json_files import read_json
from albert_tf.records.shard_cache import ShardCache
from albert_tf.records.shards import ShardSet, open_shards
from albert_tf.text.tokenizer_base import Tokenizer

# Fewer steps cannot make up for compiling parts of several widths.
_MIN_STEPS_BY_LENGTH = 2000


class PretrainingShards(NamedTuple):
    """The places of the shards of a run.

    Attributes:
        train: a directory of shards, or a glob, per phase; split "train".
        held_out: the same, or one for all phases; split "eval".
        max_copied_bytes: for shards in buckets, see `ShardCache`.
    """

    train: Sequence[str]
    held_out: Sequence[str]
    max_copied_bytes: float = math.inf


class Phase(NamedTuple):
    """Shards that are trained on from a step on, and those to evaluate on."""

    train: ShardSet
    held_out: ShardSet
    start: int
    batch_size: int


def open_phases(
    config: PretrainConfig, shards: PretrainingShards
) -> list[Phase]:
    """Returns the phases of a run, before it is extended.

    Raises:
        UserError: when directories, steps and sizes are not one per phase, or
            the steps not those of the run.
    """
    settings, training = config.pretraining, config.training
    require(
        training.num_train_steps > 0,
        "num_train_steps=0; pretraining needs at least 1.",
    )
    count = len(shards.train)
    require(
        len(shards.held_out) in (1, count),
        f"--eval_data names {len(shards.held_out)} directories and "
        f"--train_data {count}; give one for all phases, or one for each.",
    )
    steps = [training.num_train_steps]
    if count > 1 or settings.phases:
        steps = numbers_of("phases", settings.phases, count)
    require(
        sum(steps) == training.num_train_steps,
        f"phases={settings.phases} makes {sum(steps)} steps, and "
        f"num_train_steps is {training.num_train_steps}; they must agree.",
    )
    sizes = [training.train_batch_size] * count
    if settings.phase_batch_sizes:
        sizes = numbers_of(
            "phase_batch_sizes", settings.phase_batch_sizes, count
        )
    cache = ShardCache(shards.max_copied_bytes)
    opened = functools.partial(open_shards, cache=cache)
    # First, so that all of theirs fit: no evaluation waits for a bucket.
    held_out = [opened(path, "eval") for path in shards.held_out]
    return [
        Phase(opened(path, "train"), evaluated, start, size)
        for path, evaluated, start, size in zip(
            shards.train,
            held_out * (count // len(held_out)),
            itertools.accumulate(steps[:-1], initial=0),
            sizes,
            strict=True,
        )
    ]


def with_fixed_masks(
    config: PretrainConfig, phases: Sequence[Phase]
) -> PretrainConfig:
    """Returns the settings with the masking of shards whose masks are fixed.

    The run records it. That of phases which differ cannot be recorded as one.

    Raises:
        UserError: where another masking was given.
    """
    first, *others = (masking_of(p.train, config.masking) for p in phases)
    if first == config.masking or any(other != first for other in others):
        return config
    return override(config, to_dict(first))


def unequal_lengths(phases: Sequence[Phase]) -> Iterator[str]:
    """Yields a warning for each phase that is evaluated at another length."""
    for ours, theirs, *_ in phases:
        lengths = [s.metadata["max_seq_length"] for s in (ours, theirs)]
        if lengths[0] != lengths[1]:
            yield (
                f"{ours.directory} has sequences of {lengths[0]} tokens, and "
                f"the held-out ones of {theirs.directory} have {lengths[1]}."
            )


def training_sources(
    config: PretrainConfig,
    phases: Sequence[Phase],
    tokenizer: Tokenizer,
    maskings: Mapping[int, MaskingConfig],
    by_length: bool,
) -> SourceSchedule:
    """Returns a source for each phase and, in it, each way of masking."""
    training = config.training
    weights = _piece_weights(config, phases, tokenizer)
    ends = [*(phase.start for phase in phases[1:]), training.num_train_steps]
    spans: list[tuple[Phase, int, int, int]] = []
    # Rows of each set of shards that earlier phases had.
    rows: Counter[str] = Counter()
    for phase, end in zip(phases, ends, strict=True):
        changes = [step for step in maskings if phase.start < step < end]
        edges = [phase.start, *changes, end]
        before = rows[phase.train.fingerprint]
        spans += [
            (phase, first, last, before)
            for first, last in itertools.pairwise(edges)
        ]
        num_steps = end - phase.start
        rows[phase.train.fingerprint] += num_steps * phase.batch_size
    sources = [
        PretrainingBatches(
            phase.train,
            masking_config=maskings[max(n for n in maskings if n <= first)],
            batch_size=phase.batch_size,
            seed=training.seed,
            training=True,
            by_length=by_length and last - first >= _MIN_STEPS_BY_LENGTH,
            piece_weights=weights,
            first_index=before,
        )
        for phase, first, last, before in spans
    ]
    starts = [first for _, first, *_ in spans]
    return SourceSchedule(sources, starts, [phase.start for phase, *_ in spans])


def held_out_sources(
    config: PretrainConfig, phases: Sequence[Phase]
) -> SourceSchedule:
    """Returns the held-out batches of each phase."""
    sources = [
        PretrainingBatches(
            phase.held_out,
            masking_config=config.masking,
            batch_size=config.training.eval_batch_size,
            seed=config.training.seed,
            training=False,
        )
        for phase in phases
    ]
    return SourceSchedule(sources, [phase.start for phase in phases])


def masking_schedule(
    config: PretrainConfig, phases: Sequence[Phase]
) -> dict[int, MaskingConfig]:
    """Returns the masking of training text by the step it applies from."""
    schedules: tuple[tuple[str, str, type, str], ...] = (
        ("masking_schedule", "masked_lm_prob", float, "2000:0.2"),
        ("ngram_schedule", "max_ngram", int, "2000:3"),
    )
    changes: dict[int, dict[str, Any]] = {0: {}}
    for name, setting, convert, example in schedules:
        text = getattr(config.pretraining, name)
        if not text:
            continue
        for step, value in parse_schedule(name, text, convert, example).items():
            changes.setdefault(step, {})[setting] = value
        _require_dynamic_masks(name, text, phases)
    masking, schedule = config.masking, {}
    for step in sorted(changes):
        schedule[step] = masking = override(masking, changes[step])
    return schedule


def _piece_weights(
    config: PretrainConfig, phases: Sequence[Phase], tokenizer: Tokenizer
) -> np.ndarray | None:
    """Returns the weights `[vocab]` of pieces in masking, if there are any."""
    path = config.pretraining.masking_weights
    if not path:
        return None
    _require_dynamic_masks("masking_weights", path, phases)
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    ids = {piece: number for number, piece in enumerate(pieces)}
    weights = np.ones(len(pieces))
    for piece, weight in read_json(path).items():
        require(
            piece in ids and isinstance(weight, int | float) and weight > 0,
            f"masking_weights={path}: {shown(piece)} has {shown(weight)}; "
            "expected positive numbers of pieces of the vocabulary.",
        )
        weights[ids[piece]] = weight
    return weights


def _require_dynamic_masks(
    name: str, value: str, phases: Sequence[Phase]
) -> None:
    for shards in (phase.train for phase in phases):
        require(
            shards.metadata["record_kind"] == "dynamic",
            f"{name}={value!r}, and the masks of {shards.directory} are "
            "fixed: expected shards built with --record_kind=dynamic, or "
            f"--{name}= for none.",
        )
