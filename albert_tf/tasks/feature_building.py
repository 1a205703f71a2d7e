"""Features of many examples: built in parallel, kept for the next run."""

import concurrent.futures
import dataclasses
import hashlib
import io
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, to_dict
from albert_tf.io import files
from albert_tf.tasks.features import Features, concatenated
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.tokenizer_base import Tokenizer

# Counts up when features change though nothing that decides them does.
_VERSION = 3
# Examples that a process takes at a time, and so many for each process at
# least: to start one takes as long as some thousands of examples.
_CHUNK = 1000
_FEWEST_CHUNKS = 4

# Settings that decide answers, and no features.
_OF_ANSWERS = ("null_threshold", "n_best_size", "max_answer_length")

_FIELDS = ("sequences", "scalars", "decoding")


@dataclasses.dataclass(frozen=True)
class FeatureBuilder:
    """What makes features of examples.

    Attributes:
        kind: of the task.
        tokenizer: the model's.
        config: lengths.
        labels: of the model.
        workers: processes; 1: this one.
        cache_dir: where features are kept; empty: nowhere.
        log: takes a line for people.
    """

    kind: Kind
    tokenizer: Tokenizer
    config: FeatureConfig
    labels: Sequence[str]
    workers: int = 1
    cache_dir: str = ""
    log: Callable[[str], None] = print

    def build(self, examples: Sequence[Any], *, training: bool) -> Features:
        """Returns the features of examples, from the cache where they are.

        What is wrong with examples, how many are cut, and how many answers
        cannot be predicted, is said.

        Raises:
            UserError: for examples that no features can be made of.
        """
        self.kind.check(examples)
        for warning in self.kind.warnings(examples, training=training):
            self.log(warning)
        features = self._cached(examples, training)
        if features.cut:
            first = examples[features.cut[0]].location
            self.log(
                f"Of {len(features.cut)} of {len(examples)} examples something "
                f"finds no room and is cut, the first {first}: "
                f"--max_seq_length={self.config.max_seq_length} and the like "
                "decide."
            )
        warnings = self.kind.feature_warnings(examples, features, self.config)
        for warning in warnings:
            self.log(warning)
        return features

    def _cached(self, examples: Sequence[Any], training: bool) -> Features:
        path = ""
        if self.cache_dir:
            name = f"{self._digest(examples, training)}.npz"
            path = os.path.join(self.cache_dir, name)
            found = read_features(path, self.log)
            if found is not None:
                return found
        features = concatenated(list(self._parts(examples, training)))
        if path:
            self._keep(path, features)
        return features

    def _parts(
        self, examples: Sequence[Any], training: bool
    ) -> Iterator[Features]:
        chunks = [
            examples[start : start + _CHUNK]
            for start in range(0, len(examples), _CHUNK)
        ]
        workers = min(self.workers, len(chunks) // _FEWEST_CHUNKS)
        arguments = (self.kind, self.tokenizer, self.config, self.labels)
        if workers < 2:
            for chunk in chunks:
                yield _features(*arguments, training, chunk)
            return
        # Not forked: TensorFlow's threads do not survive that.
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(
            workers, context, _take, (*arguments, training)
        ) as pool:
            yield from pool.map(_features_here, chunks)

    def _digest(self, examples: Sequence[Any], training: bool) -> str:
        settings = to_dict(self.config)
        for name in _OF_ANSWERS:
            del settings[name]
        head = [
            _VERSION,
            type(self.kind).__name__,
            self.tokenizer.fingerprint,
            settings,
            list(self.labels),
            training,
        ]
        head.append(examples_digest(examples))
        return hashlib.sha256(json.dumps(head).encode()).hexdigest()[:32]

    def _keep(self, path: str, features: Features) -> None:
        """Writes features; a cache that takes none is said, and no more."""
        try:
            files.makedirs(self.cache_dir)
            write_features(path, features)
        except OSError as error:
            self.log(
                f"{path}: {error.strerror or error}; the features are not "
                "kept, and the next run makes them again (--feature_cache)."
            )


def examples_digest(examples: Sequence[Any]) -> str:
    """Returns a digest of what examples hold, wherever they lie."""
    digest = hashlib.sha256()
    names = [
        field.name
        for field in dataclasses.fields(examples[0])
        if field.name != "location"
    ]
    for example in examples:
        fields = [getattr(example, name) for name in names]
        # Of `repr` the version of Python decides which characters it shows.
        digest.update(ascii(fields).encode())
    return digest.hexdigest()


def _features(
    kind: Kind,
    tokenizer: Tokenizer,
    config: FeatureConfig,
    labels: Sequence[str],
    training: bool,
    examples: Sequence[Any],
) -> Features:
    return kind.features(
        examples, tokenizer, config, labels=labels, training=training
    )


# What a worker process was given when it started.
_taken: list[tuple] = []


def _take(*arguments: Any) -> None:
    _taken[:] = [arguments]


def _features_here(examples: Sequence[Any]) -> Features:
    return _features(*_taken[0], examples)


def write_features(path: str, features: Features) -> None:
    """Writes features to a file, whole or not at all."""
    arrays = {
        "offsets": features.offsets,
        "example_numbers": features.example_numbers,
    }
    for field in _FIELDS:
        for name, values in getattr(features, field).items():
            arrays[f"{field}.{name}"] = values
    rest = {
        "padding": dict(features.padding),
        "choices": features.choices,
        "cut": list(features.cut),
        "answer_lengths": list(features.answer_lengths),
    }
    arrays["rest"] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
    with files.replacing(path) as file:
        np.savez(file, **arrays)


def read_features(path: str, log: Callable[[str], None]) -> Features | None:
    """Returns the features in a file; None where it is missing or damaged."""
    if not files.isfile(path):
        return None
    try:
        with files.open(path) as file:
            content = file.read()
    except OSError as error:
        log(f"{path}: {error.strerror or error}; its features are made again.")
        return None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = dict(stored)
        rest = json.loads(arrays.pop("rest").tobytes())
        parts: dict[str, dict] = {field: {} for field in _FIELDS}
        for name in [name for name in arrays if "." in name]:
            field, _, key = name.partition(".")
            parts[field][key] = arrays.pop(name)
        return Features(**arrays, **parts, **rest)
    except (*files.ZIP_FAULTS, TypeError):
        log(f"{path} is damaged; its features are made again.")
        return None
