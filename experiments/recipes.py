"""CANDIDATES: recipes for pretraining small models, a row of settings each.

A scale says how long they train, and none translates their numbers. Their
masks of held-out text are the same, or their losses would not compare.
Schedules have shares of the training in place of steps.
"""

from collections.abc import Mapping
from typing import Any

# A small model; and what presets of scales have otherwise.
_BASE: dict[str, Any] = {
    "embedding_size": 64,
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "initializer_range": 0.05,
    "position_init": "sinusoidal",
    "output_init_scale": 1.0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "optimizer": "lamb",
    "learning_rate": 0.01,
    "beta_2": 0.999,
    "weight_decay_rate": 0.01,
    "sentence_loss_weight": 1.0,
    "masking_schedule": "",
    "ngram_schedule": "",
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
_SINGLE_WORDS_FIRST = {"ngram_schedule": "0:1,0.75:3"}

# The optimizer and the initial weights of the tiny preset: the candidate with
# whose arithmetic all others are trained.
REFERENCE = "normuon-0.004"
# The differences from the base.
_CANDIDATES: dict[str, Mapping[str, Any]] = {
    REFERENCE: _NORMUON,
    "normuon-0.002": {**_NORMUON, "learning_rate": 0.002},
    "normuon-single-words": {**_NORMUON, **_SINGLE_WORDS_FIRST},
    "normuon-single-words-masking-falling": {
        **_NORMUON,
        **_SINGLE_WORDS_FIRST,
        "masking_schedule": "0:0.4,0.75:0.2",
    },
    # The tiny preset, but for the weight of its sentence loss.
    "normuon-wide-embeddings": {
        **_NORMUON,
        "embedding_size": 128,
        "masking_schedule": "0:0.4,0.6:0.2",
        "ngram_schedule": "0:1,0.6:3",
    },
    "muon-0.002": _MUON,
    "muon-0.004": {**_MUON, "learning_rate": 0.004},
    "muon-0.01": {**_MUON, "learning_rate": 0.01},
    "muon-deep-4": {**_DEEP, **_MUON},
    "muon-deepening": {**_DEEP, **_MUON, "depth_schedule": "0:2,0.5:4"},
    "muon-batch-32": {**_MUON, "train_batch_size": 32},
    "muon-batch-128": {**_MUON, "train_batch_size": 128},
    "muon-wide-256": {
        **_MUON,
        "learning_rate": 0.0028,
        "initializer_range": 0.035,
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_attention_heads": 4,
        "embedding_size": 128,
    },
    "muon-masking-0.25": {**_MUON, "masking_schedule": "0:0.25"},
    "muon-masking-0.4": {**_MUON, "masking_schedule": "0:0.4"},
    "muon-masking-falling": {**_MUON, "masking_schedule": "0:0.4,0.5:0.2"},
    "muon-one-cycle": {**_MUON, "learning_rate_decay": "cosine"},
    "lamb-0.01": {},
    "lamb-0.003": {"learning_rate": 0.003},
    "lamb-normal-positions": {"position_init": "normal"},
    "lamb-small-outputs": {"output_init_scale": 0.25},
    "lamb-deep-4": {"num_hidden_layers": 4},
    "lamb-deep-4-small-outputs": _DEEP,
    "adamw-0.001": {**_ADAMW, "learning_rate": 0.001},
    "adamw-0.002": {**_ADAMW, "learning_rate": 0.002},
    "adamw-0.004": {**_ADAMW, "learning_rate": 0.004},
    "adamw-0.002-clip-0.5": {
        **_ADAMW,
        "learning_rate": 0.002,
        "max_grad_norm": 0.5,
    },
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
_PEERS: dict[str, Mapping[str, Any]] = {
    "transformers-0.0001": {**_TRAINER, "learning_rate": 1e-4},
    "transformers-0.0005": {**_TRAINER, "learning_rate": 5e-4},
}

CANDIDATES = {name: _BASE | dict(row) for name, row in _CANDIDATES.items()}
PEERS = {name: _BASE | dict(row) for name, row in _PEERS.items()}
