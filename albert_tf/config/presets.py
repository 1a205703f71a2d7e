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


def _laptop(hidden_size: int, **row: Any) -> dict[str, Any]:
    """Returns a row for machines of two cores.

    All read 128 tokens: attention and memory stay small, and most of what can
    be learned in that time lies near.
    """
    return row | {
        "hidden_size": hidden_size,
        "intermediate_size": 4 * hidden_size,
        "max_position_embeddings": 128,
        "train_batch_size": 64,
        "log_steps": 50,
        "eval_steps": 1000,
        "keep_checkpoint_max": 2,
    }


# tiny is made for ten minutes (bin/demo), mini for two or three hours, small
# for a night. The rates and initial deviations of mini and small lie between
# tiny's and the paper's, as their widths do; no search has tuned them.
_LAPTOP_SIZES = {
    "tiny": _laptop(
        128,
        embedding_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        # 0.02 is for widths around 1000; the output of a narrow layer would
        # be too small beside its residual.
        initializer_range=0.05,
        num_train_steps=2000,
        num_warmup_steps=100,
        learning_rate=0.01,
        save_checkpoints_steps=100,
    ),
    "mini": _laptop(
        256,
        embedding_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        initializer_range=0.035,
        num_train_steps=10_000,
        num_warmup_steps=500,
        # A step of shared weights moves every layer that uses them: the
        # deeper the model, the smaller the step must be.
        learning_rate=0.005,
        save_checkpoints_steps=200,
    ),
    "small": _laptop(
        512,
        embedding_size=128,
        num_hidden_layers=6,
        num_attention_heads=8,
        initializer_range=0.025,
        num_train_steps=10_000,
        num_warmup_steps=1000,
        learning_rate=0.003,
        # A few minutes of work at most are lost when a laptop is closed.
        save_checkpoints_steps=100,
    ),
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
