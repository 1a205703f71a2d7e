"""Low-rank adapters (LoRA, arXiv:2106.09685) without the model they adapt.

In the form of Hugging Face's PEFT: `adapter_config.json`, and
`adapter_model.safetensors` with the factors of each adapter and, whole, what
else was trained beside the encoder.
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from albert_tf.config import require, shown
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from albert_tf.io.safetensors_header import read_header
from albert_tf.modeling.weights.names import NamedWeight, named_weights
from albert_tf.modeling.weights.stored_weights import (
    StoredWeights,
    assign_weights,
    listed,
)
from albert_tf.modeling.weights.weights_file import (
    MAX_HEADER_BYTES,
    open_weights,
    write_weights,
)

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_ENCODER = "albert."
# In the header of the file: digests of what they adapt, with them added and
# without.
_MERGED, _BASE = "merged_sha256", "base_sha256"
# Settings of PEFT that change what an adapter computes, as they are here.
_PLAIN = {
    "peft_type": "LORA",
    "bias": "none",
    "fan_in_fan_out": False,
    "use_dora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
}
# First values of adapters with which PEFT leaves the adapted weights as they
# are. Others, such as "pissa", take them off the weights.
_INITIAL = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
_MERGE = "open the model that PEFT makes with merge_and_unload()."


def add_adapters(
    model: keras.Model, rank: int, alpha: float, *, trains_pooler: bool
) -> str:
    """Adds adapters to queries and values, and freezes what they adapt.

    An attention that layers share has one. The heads stay trainable, and a
    pooler that is new (`trains_pooler`). `alpha` of 0 is the rank.

    Returns:
        A line for the log, with the number of parameters that are trained.
    """
    kept = model.encoder.pooler if trains_pooler else None
    is_kept = {id(variable) for variable in (kept.weights if kept else ())}
    for variable in model.encoder.weights:
        variable.trainable = id(variable) in is_kept
    attentions = {id(b.attention): b.attention for b in model.encoder.blocks}
    for attention in attentions.values():
        for layer in (attention.query, attention.value):
            layer.enable_lora(rank, lora_alpha=alpha or rank)
    trained = sum(math.prod(v.shape) for v in model.trainable_variables)
    total = model.count_params()
    return (
        f"LoRA of rank {rank}: {trained:,} of {total:,} parameters are trained "
        f"({trained / total:.2%}), the adapters of queries and values, and the "
        "head."
    )


def _factors(module: str) -> list[str]:
    """Returns the names of an adapter's factors, `[r, in]` and `[out, r]`."""
    return [f"{module}.lora_{factor}.weight" for factor in "AB"]


def write_adapters(directory: str, model: keras.Model) -> None:
    """Writes the two files of a model's adapters.

    Raises:
        UserError: for a model without adapters, adapters of several ranks, and
            other weights of the encoder that can be trained, which would be
            lost.
    """
    rows, rank, alpha = _trained(named_weights(model, "huggingface"))
    # In transformers' AlbertModel the encoder has no name.
    is_bare = all(
        head.class_in_transformers(model.config) == "AlbertModel"
        for head in model.heads.values()
    )
    prefix = _ENCODER if is_bare else ""
    named = {row.name.removeprefix(prefix): row for row in rows}
    arrays, modules = {}, []
    for name, row in named.items():
        if not row.adapted:
            arrays[_PREFIX + name] = row.transposed(row.value())
            continue
        modules.append(name.removesuffix(".weight"))
        factors = row.adapted.lora_kernel_a, row.adapted.lora_kernel_b
        for factor_name, factor in zip(
            _factors(modules[-1]), factors, strict=True
        ):
            value = keras.ops.convert_to_numpy(factor)
            arrays[_PREFIX + factor_name] = np.asarray(value, np.float32).T
    config = {
        **_PLAIN,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "modules_to_save": sorted({_part(r) for r in rows if not r.adapted})
        or None,
        "inference_mode": True,
        "task_type": None,
        "base_model_name_or_path": None,
    }
    adapted = [row for row in rows if row.adapted]
    metadata = {_BASE: _digest(row.value(adapters=False) for row in adapted)}
    # Adapters begin with 0, which changes no weight.
    if any(keras.ops.any(row.adapted.lora_kernel_b) for row in adapted):
        metadata[_MERGED] = _digest(row.value() for row in adapted)
    write_weights(os.path.join(directory, WEIGHTS_FILE), arrays, **metadata)
    write_json(os.path.join(directory, CONFIG_FILE), config)


def _trained(rows: list[NamedWeight]) -> tuple[list[NamedWeight], int, float]:
    """Returns the weights to write, adapted ones first, rank and lora_alpha."""
    adapted = [row for row in rows if row.adapted]
    require(
        bool(adapted),
        "The model has no adapters; layer.enable_lora(rank) adds one to a "
        "dense layer.",
    )
    sizes = {(r.adapted.lora_rank, r.adapted.lora_alpha) for r in adapted}
    require(
        len(sizes) == 1,
        "Adapters are saved where all have one rank and lora_alpha; here are "
        f"{listed([f'{r} and {a}' for r, a in sorted(sizes)], '; ')}.",
    )
    whole = [r for r in rows if r.variable.trainable and not r.adapted]
    lost = [r.variable.path for r in whole if not r.head]
    require(
        not lost,
        f"Adapters hold nothing of {listed(sorted(set(lost))[:3])} "
        f"({len(set(lost))} weights of the encoder), which can be trained "
        "too: set trainable = False before training, or merge the adapters "
        "(adapters=False).",
    )
    return [*adapted, *whole], *sizes.pop()


def _digest(values: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.tobytes())
    return digest.hexdigest()


def _digests(path: str) -> dict[str, str]:
    """Returns the digests that `write_adapters` put into a file's header."""
    if not path.endswith(".safetensors"):
        return {}
    return read_header(path, MAX_HEADER_BYTES)[1]


def _part(row: NamedWeight) -> str:
    """Returns the module of a head or pooler that PEFT saves as a whole."""
    return row.name.removeprefix(_ENCODER).split(".")[0]


def read_adapters(directory: str, model: keras.Model) -> list[str]:
    """Adds the adapters in a directory to a model, and sets what else it holds.

    Returns:
        Lines for the log: whether they were trained on other weights.

    Raises:
        UserError: for adapters of another kind, that do not fit the model, or
            that its weights have already; it is unchanged then.
    """
    path = os.path.join(directory, CONFIG_FILE)
    require(files.isfile(path), f"{directory} has no {CONFIG_FILE}.")
    rank, alpha = _checked_size(read_json(path), path)
    stored = open_weights(os.path.join(directory, WEIGHTS_FILE))
    left = {_bare(name): name for name in stored.shapes}
    adapters: list[tuple[NamedWeight, list[str]]] = []
    whole, faults = [], []
    every = named_weights(model, "huggingface")
    for row in every:
        name = _bare(row.name)
        factors = _factors(name.removesuffix(".weight"))
        if row.dense is not None and left.keys() >= {*factors}:
            names = [left.pop(factor) for factor in factors]
            width, units = row.variable.shape
            shapes = [stored.shapes[n] for n in names]
            if shapes != [(rank, width), (units, rank)]:
                faults.append(f"{name} has factors of shapes {shapes}")
            elif row.dense.lora_enabled and row.dense.lora_rank != rank:
                faults.append(f"{name} has another adapter already")
            adapters.append((row, names))
        elif name in left:
            whole.append(dataclasses.replace(row, name=left.pop(name)))
    faults += [f"nothing here is called {name}" for name in left]
    faults += _unequal_copies(every, adapters, stored)
    require(
        not faults,
        f"{stored.source} does not fit the model: {listed(faults, '; ')}. "
        "Adapters are of dense layers of the model, one for each weight; of "
        f"others, {_MERGE}",
    )
    rows, recorded = [row for row, _ in adapters], _digests(stored.source)
    base = _digest(row.value(adapters=False) for row in rows)
    require(
        base != recorded.get(_MERGED),
        f"{directory}: the model's weights have these adapters already, as "
        "those in model/ of a run do; load them into the model that the run "
        "began with.",
    )
    assign_weights(whole, stored)
    for row, names in adapters:
        _set_adapter(row.dense, [stored.read(n).T for n in names], rank, alpha)
    if base == recorded.get(_BASE, base):
        return []
    return [
        f"WARNING: {directory}: these adapters were trained on a model with "
        "other weights than this one's, and may be of no use to it."
    ]


def _unequal_copies(
    rows: list[NamedWeight],
    adapters: list[tuple[NamedWeight, list[str]]],
    stored: StoredWeights,
) -> list[str]:
    """Returns a fault for each copy of a weight with an adapter of its own.

    Files may repeat a weight that layers share, and PEFT trains copies apart.
    """
    factors = {row.name: names for row, names in adapters}
    first: dict[int, tuple[str, list[bytes]]] = {}
    faults = []
    for row in rows:
        names = factors.get(row.name, [])
        own = row.name, [stored.read(name).tobytes() for name in names]
        other = first.setdefault(id(row.variable), own)
        if own[1] != other[1]:
            faults.append(
                f"the adapter of {row.name} should equal that of {other[0]}: "
                "they share a weight"
            )
    return faults


def _set_adapter(
    layer: Any, factors: list[np.ndarray], rank: int, alpha: float
) -> None:
    """Gives a dense layer an adapter of the factors `[in, r]`, `[r, out]`."""
    if not layer.lora_enabled:
        layer.enable_lora(rank, lora_alpha=alpha)
    layer.lora_alpha = alpha
    layer.lora_kernel_a.assign(factors[0])
    layer.lora_kernel_b.assign(factors[1])


def _bare(name: str) -> str:
    """Returns a name without those of PEFT's classes and of the encoder.

    `open_weights` has taken the file for one of a bare encoder.
    """
    name = name.removeprefix(_ENCODER).removeprefix(_PREFIX)
    return name.removeprefix(_ENCODER)


def _checked_size(config: Any, path: str) -> tuple[int, float]:
    """Returns rank and lora_alpha of a configuration."""
    require(isinstance(config, dict), f"{path}: expected an object.")
    for name, value in _PLAIN.items():
        require(
            (config.get(name) or value) == value,
            f"{path}: {name}={shown(config.get(name))}; only adapters with "
            f"{name}={shown(value)} are read. Of most others, {_MERGE}",
        )
    initial = config.get("init_lora_weights")
    require(
        initial in _INITIAL,
        f"{path}: with init_lora_weights={shown(initial)} the model's own "
        f"weights were changed too; {_MERGE}",
    )
    require(
        not config.get("alora_invocation_tokens"),
        f"{path}: alora_invocation_tokens is set; adapters are read that "
        "count for every token.",
    )
    rank, alpha = config.get("r"), config.get("lora_alpha")
    is_by_root = config.get("use_rslora")
    require(
        type(rank) is int and rank > 0 and type(alpha) in (int, float),
        f"{path}: r={shown(rank)} and lora_alpha={shown(alpha)} must be a "
        "whole number from 1 and a number.",
    )
    # The factor of rsLoRA is alpha / sqrt(r) in place of alpha / r.
    return rank, alpha * math.sqrt(rank) if is_by_root else alpha
