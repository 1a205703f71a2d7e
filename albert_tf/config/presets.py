"""PRESETS: sizes and recipes by name."""

from typing import Any

from albert_tf.config.fields import lookup

# The paper's sizes (Table 1); the feed-forward layer is four times as wide
# as the hidden states.
_SIZES: dict[str, dict[str, Any]] = {
    name: {
        "embedding_size": 128,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    for name, layers, hidden, heads in (
        ("base", 12, 768, 12),
        ("large", 24, 1024, 16),
        ("xlarge", 24, 2048, 16),
        ("xxlarge", 12, 4096, 64),
    )
}


# The released models: dropout and steps of pretraining (README of
# google-research/albert; 125,000 steps: paper, section 4.1).
_RELEASED: dict[str, dict[str, Any]] = {
    name: {
        **_SIZES[name.partition("_")[0]],
        "sharing": "all",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "sentence_objective": "",
        "num_train_steps": num_train_steps,
    }
    for name, dropout, num_train_steps in (
        ("base_v1", 0.1, 125_000),
        ("large_v1", 0.1, 125_000),
        ("xlarge_v1", 0.1, 125_000),
        ("xxlarge_v1", 0.0, 1_500_000),
        ("base_v2", 0.0, 10_000_000),
        ("large_v2", 0.0, 3_000_000),
        ("xlarge_v2", 0.0, 3_000_000),
        ("xxlarge_v2", 0.0, 3_000_000),
    )
}
# The paper's BERT baselines, with the heads, masks and optimizer of ALBERT:
# they differ from its first versions, trained as long, in exactly this.
_BERT = {
    f"bert_{size}": {
        **_RELEASED[f"{size}_v1"],
        "embedding_size": _SIZES[size]["hidden_size"],
        "sharing": "none",
        "sentence_objective": "nsp",
    }
    for size in ("base", "large", "xlarge")
}


def _laptop(hidden_size: int, **row: Any) -> dict[str, Any]:
    """Returns a row for machines of two cores.

    For shards of 64 tokens. At these sizes Muon learns two to three times as
    much from a step as LAMB, and words are learned in fewer steps with wide
    embeddings and less of the sentence loss (RESULTS.md).
    """
    return {
        "embedding_size": 256,
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "num_hidden_layers": 2,
        "num_attention_heads": hidden_size // 64,
        "max_position_embeddings": 128,
        "position_init": "sinusoidal",
        "optimizer": "muon",
        "beta_2": 0.98,
        "sentence_loss_weight": 0.3,
        "train_batch_size": 64,
        "log_steps": 100,
        "max_eval_steps": 40,
        "keep_checkpoint_max": 2,
        **row,
    }


# Deviations of kernels: 0.02 is for widths around 1000; the output of a narrow
# layer would be too small beside its residual.
_LAPTOP_SIZES = {
    # Three minutes (bin/demo). So few steps end before a model reads words
    # from their neighbours, unless it learns single words first.
    "tiny": _laptop(
        128,
        embedding_size=128,
        initializer_range=0.05,
        optimizer="normuon",
        masking_schedule="0:0.4,900:0.2",
        ngram_schedule="0:1,900:3",
        learning_rate=0.004,
        num_train_steps=1500,
        num_warmup_steps=100,
        log_steps=50,
        eval_steps=150,
        save_checkpoints_steps=150,
    ),
    # Half an hour.
    "mini": _laptop(
        256,
        initializer_range=0.035,
        masking_schedule="0:0.4,4500:0.2",
        learning_rate=0.0028,
        weight_decay_rate=0.05,
        num_train_steps=6000,
        num_warmup_steps=300,
        eval_steps=600,
        save_checkpoints_steps=500,
    ),
    # Three hours.
    "small": _laptop(
        384,
        initializer_range=0.03,
        output_init_scale=0.5,
        masking_schedule="0:0.4,21000:0.2",
        learning_rate=0.0022,
        weight_decay_rate=0.05,
        num_train_steps=28_000,
        num_warmup_steps=500,
        eval_steps=1000,
        save_checkpoints_steps=500,
    ),
    # Twelve hours, by the measured rate of its steps; not run yet.
    "evening": _laptop(
        512,
        initializer_range=0.025,
        output_init_scale=0.5,
        masking_schedule="0:0.4,56000:0.2",
        learning_rate=0.0018,
        weight_decay_rate=0.05,
        num_train_steps=75_000,
        num_warmup_steps=1000,
        eval_steps=2000,
        save_checkpoints_steps=1000,
    ),
}
# Sizes and their recipes, one row each. A plain name of the paper's is the
# second version.
PRESETS: dict[str, dict[str, Any]] = {
    **_LAPTOP_SIZES,
    **{name: _RELEASED[f"{name}_v2"] for name in _SIZES},
    **_RELEASED,
    **_BERT,
}


def preset(name: str) -> dict[str, Any]:
    """Returns a copy of the preset's row or raises UserError."""
    return dict(lookup(PRESETS, name, "preset"))
