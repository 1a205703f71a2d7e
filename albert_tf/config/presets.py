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


def _albert(size: str, dropout: float, num_train_steps: int) -> dict[str, Any]:
    """Returns the row of a released ALBERT."""
    return _SIZES[size] | {
        "sharing": "all",
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "sentence_objective": "",
        "num_train_steps": num_train_steps,
    }


def _bert(size: str) -> dict[str, Any]:
    """Returns the row of the paper's BERT baseline of a size.

    It has the heads, the masks and the optimizer of the ALBERT of that size,
    so that the two differ in exactly the width of the embeddings, sharing,
    dropout and the sentence objective (and the first versions of ALBERT,
    trained as long, not in dropout).
    """
    return _albert(size, dropout=0.1, num_train_steps=125_000) | {
        "embedding_size": _SIZES[size]["hidden_size"],
        "sharing": "none",
        "sentence_objective": "nsp",
    }


# The released models: dropout and steps of pretraining (README of
# google-research/albert; 125,000 steps: paper, section 4.1).
_VERSION_1 = {
    "base_v1": _albert("base", 0.1, 125_000),
    "large_v1": _albert("large", 0.1, 125_000),
    "xlarge_v1": _albert("xlarge", 0.1, 125_000),
    "xxlarge_v1": _albert("xxlarge", 0.0, 1_500_000),
}
_VERSION_2 = {
    "base_v2": _albert("base", 0.0, 10_000_000),
    "large_v2": _albert("large", 0.0, 3_000_000),
    "xlarge_v2": _albert("xlarge", 0.0, 3_000_000),
    "xxlarge_v2": _albert("xxlarge", 0.0, 3_000_000),
}
# Sizes for laptops, made for two cores: tiny for ten minutes (bin/demo), mini
# for two or three hours, small for a night. All read 128 tokens: attention and
# memory stay small, and most of what can be learned in that time lies near.
# The rates of mini and small lie on the way from tiny's to the paper's; no
# search has tuned them.
_LAPTOP_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "embedding_size": 64,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        # 0.02 is for widths around 1000; a narrow layer needs more to be
        # heard beside its residual.
        "initializer_range": 0.05,
        "max_position_embeddings": 128,
        "train_batch_size": 64,
        "num_train_steps": 2000,
        "num_warmup_steps": 100,
        "learning_rate": 0.01,
        "log_steps": 50,
        "eval_steps": 1000,
        "save_checkpoints_steps": 100,
        "keep_checkpoint_max": 2,
    },
    "mini": {
        "embedding_size": 128,
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        # Between tiny's and the paper's, as the width is.
        "initializer_range": 0.035,
        "max_position_embeddings": 128,
        "train_batch_size": 64,
        "num_train_steps": 10_000,
        "num_warmup_steps": 500,
        # A step of shared weights moves every layer that uses them: the
        # deeper the model, the smaller the step that it bears.
        "learning_rate": 0.005,
        "log_steps": 50,
        "eval_steps": 1000,
        "save_checkpoints_steps": 200,
        "keep_checkpoint_max": 2,
    },
    "small": {
        "embedding_size": 128,
        "hidden_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "intermediate_size": 2048,
        "initializer_range": 0.025,
        "max_position_embeddings": 128,
        "train_batch_size": 64,
        "num_train_steps": 10_000,
        "num_warmup_steps": 1000,
        "learning_rate": 0.003,
        "log_steps": 50,
        "eval_steps": 1000,
        # Some minutes of work at most are lost when a laptop is closed.
        "save_checkpoints_steps": 100,
        "keep_checkpoint_max": 2,
    },
}
# Sizes and their recipes, one row each. A plain name of the paper's is the
# second version.
PRESETS: dict[str, dict[str, Any]] = {
    **_LAPTOP_SIZES,
    **{name: _VERSION_2[f"{name}_v2"] for name in _SIZES},
    **_VERSION_1,
    **_VERSION_2,
    **{f"bert_{name}": _bert(name) for name in ("base", "large", "xlarge")},
}


def preset(name: str) -> dict[str, Any]:
    """Returns a copy of the preset's row or raises UserError."""
    return dict(lookup(PRESETS, name, "preset"))
