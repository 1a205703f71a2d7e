"""Features of many examples: built in parallel, and cached."""

import dataclasses
import functools
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from albert_tf.config import FeatureConfig, Log, UserError, to_dict
from albert_tf.io import files
from albert_tf.io.workers import Workers
from albert_tf.tasks.features import Features, concatenated
from albert_tf.tasks.kinds.base import Kind
from albert_tf.text.tokenizer_base import MAX_UNKNOWN, Tokenizer

# Incremented when features, or their names, change for equal examples and
# settings.
_VERSION = 4
# Examples in a task of a process, and the fewest tasks for a process:
# starting one takes as long as some thousands of examples.
_CHUNK = 1000
_MIN_CHUNKS = 4

# Settings that only predictions depend on.
DECODING_SETTINGS = (
    *("null_threshold", "label_thresholds", "n_best_size"),
    *("max_answer_length", "word_boundaries", "temperature"),
)

# The names in transformers of classes that nobody named.
_UNNAMED = re.compile(r"LABEL_\d+")

_Value = TypeVar("_Value")
# Arrays by name.
Arrays = dict[str, Any]
_FIELDS = ("sequences", "scalars", "decoding")


@dataclasses.dataclass(frozen=True)
class FeatureBuilder:
    """Builds the features of examples for a model.

    Attributes:
        workers: processes; 1: no other than this one.
        cache_dir: of features; empty: no cache.
        log: takes one line.
    """

    kind: Kind
    tokenizer: Tokenizer
    config: FeatureConfig
    labels: Sequence[str]
    workers: int = 1
    cache_dir: str = ""
    log: Log = print

    def build(self, examples: Sequence[Any], *, training: bool) -> Features:
        """Returns the features of examples, cached ones if there are any.

        Logs warnings: of defective and of truncated examples, of training
        texts that the vocabulary does not know, and of answers that cannot be
        predicted. Raises UserError for examples that no
        features can be made of.
        """
        self.kind.check(examples)
        self._check_labels(examples, training)
        for warning in self.kind.warnings(examples, training=training):
            self.log(warning)
        features = cached(
            self.cache_dir,
            lambda: self._description(examples, training),
            lambda: self._build_all(examples, training),
            arrays_of=arrays_of,
            value_of=features_of,
            log=self.log,
        )
        if features.truncated:
            first = examples[features.truncated[0]].location
            names = ["max_seq_length", *self.kind.lengths]
            limits = " or ".join(
                f"{name}={getattr(self.config, name)}"
                for name in names
                if name.startswith("max_")
            )
            self.log(
                f"{len(features.truncated)} of {len(examples)} examples were "
                f"truncated to {limits} (first: {first})."
            )
        if training:
            clean_up = self.tokenizer.clean_up_warning()
            for line in (clean_up, self._unknown_line(examples, features)):
                if line:
                    self.log(line)
        kind = self.kind
        for warning in kind.feature_warnings(examples, features, self.config):
            self.log(warning)
        return features

    def _check_labels(self, examples: Sequence[Any], training: bool) -> None:
        try:
            self.kind.check_labels(examples, self.labels)
        except UserError as error:
            if training or not self.labels:
                raise
            reason = (
                "Others are not in the training file, so that the model cannot "
                "predict them."
            )
            if all(_UNNAMED.fullmatch(label) for label in self.labels):
                reason = (
                    "The model's classes have no names; bin.convert --labels "
                    "gives them some, in the order of its outputs."
                )
            raise UserError(f"{error} {reason}") from None

    def _unknown_line(self, examples: Sequence[Any], features: Features) -> str:
        share = unknown_share(features, self.tokenizer)
        if share <= MAX_UNKNOWN:
            return ""
        ids = features.sequences["input_ids"]
        first = int(np.argmax(ids == self.tokenizer.unk_id))
        sequence = np.searchsorted(features.offsets, first, "right") - 1
        row = sequence // (features.choices or 1)
        location = examples[features.example_numbers[row]].location
        return (
            f"WARNING: {share:.0%} of the tokens of training are unknown to "
            f"the model's vocabulary (first: {location}), which cannot "
            "distinguish them; start from a model whose vocabulary knows the "
            "text: this one extended by bin.extend_vocab, or another."
        )

    def _build_all(self, examples: Sequence[Any], training: bool) -> Features:
        build = functools.partial(
            _features_of_chunks,
            self.kind.features,
            tokenizer=self.tokenizer,
            config=self.config,
            labels=self.labels,
            training=training,
        )
        chunks = [
            examples[start : start + _CHUNK]
            for start in range(0, len(examples), _CHUNK)
        ]
        workers = min(self.workers, len(chunks) // _MIN_CHUNKS)
        if workers < 2:
            return build(chunks)
        # The tokenizer is sent to each process only once.
        size = -(-len(chunks) // workers)
        shares = [
            chunks[start : start + size]
            for start in range(0, len(chunks), size)
        ]
        with Workers(workers) as pool:
            return concatenated(list(pool.map(build, shares)))

    def _description(
        self, examples: Sequence[Any], training: bool
    ) -> list[Any]:
        settings = to_dict(self.config)
        for name in DECODING_SETTINGS:
            del settings[name]
        return [
            _VERSION,
            type(self.kind).__name__,
            self.tokenizer.fingerprint,
            settings,
            list(self.labels),
            training,
            examples_digest(examples),
        ]


def _features_of_chunks(
    features: Callable[..., Features],
    chunks: Sequence[Sequence[Any]],
    **arguments: Any,
) -> Features:
    return concatenated([features(chunk, **arguments) for chunk in chunks])


def cached(
    cache_dir: str,
    describe: Callable[[], Sequence[Any]],
    build: Callable[[], _Value],
    *,
    arrays_of: Callable[[_Value], Arrays],
    value_of: Callable[[Arrays], _Value],
    log: Log,
) -> _Value:
    """Returns a value from its file in the cache; builds and writes it else.

    `describe` returns JSON of all that decides the value; `cache_dir` is empty
    for no cache. A damaged file is replaced.
    """
    if not cache_dir:
        return build()
    text = json.dumps(describe())
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = os.path.join(cache_dir, f"{digest[:32]}.npz")
    if files.isfile(path):
        try:
            with files.open(path) as file:
                content = io.BytesIO(file.read())
            with np.load(content, allow_pickle=False) as stored:
                return value_of(dict(stored))
        except (*files.ZIP_FAULTS, TypeError):
            log(f"{path} cannot be read; what it held is computed again.")
    value = build()
    try:
        files.makedirs(cache_dir)
        with files.replacing(path) as file:
            np.savez(file, **arrays_of(value))
    except OSError as error:
        log(
            f"{path}: {error.strerror or error}; the next run computes it "
            "again (--feature_cache)."
        )
    return value


def unknown_share(features: Features, tokenizer: Tokenizer) -> float:
    """Returns the share of tokens that the vocabulary lacks."""
    ids = features.sequences["input_ids"]
    of_texts = ~np.isin(ids, [tokenizer.cls_id, tokenizer.sep_id])
    return float((ids == tokenizer.unk_id).sum() / max(of_texts.sum(), 1))


def examples_digest(examples: Sequence[Any]) -> str:
    """Returns a digest of examples, without their locations."""
    digest = hashlib.sha256()
    names = [field.name for field in dataclasses.fields(examples[0])]
    names.remove("location")
    for example in examples:
        fields = [getattr(example, name) for name in names]
        # Which characters `repr` shows changes with the version of Python.
        digest.update(ascii(fields).encode())
    return digest.hexdigest()


def arrays_of(features: Features) -> Arrays:
    """Returns features as arrays by name."""
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
        "truncated": list(features.truncated),
        "answer_lengths": list(features.answer_lengths),
    }
    arrays["rest"] = np.frombuffer(json.dumps(rest).encode(), np.uint8)
    return arrays


def features_of(arrays: Arrays) -> Features:
    """Returns the features that `arrays_of` made arrays of."""
    rest = json.loads(arrays.pop("rest").tobytes())
    parts: dict[str, Any] = {field: {} for field in _FIELDS}
    for name in [name for name in arrays if "." in name]:
        field, key = name.split(".")
        parts[field][key] = arrays.pop(name)
    return Features(**arrays, **parts, **rest)
