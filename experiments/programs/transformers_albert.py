"""The ALBERT of transformers with our settings, and our batches for it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.config import ModelConfig

# Index of the loss where no token is predicted.
IGNORED_LABEL = -100


def albert_of_transformers(config: ModelConfig, attention: str) -> Any:
    """Returns AlbertForPreTraining, initialised in their way.

    Args:
        config: the architecture.
        attention: `sdpa` or `eager`.
    """
    import transformers

    renamed = ("sharing", "always_project_embeddings", "hidden_act")
    activations = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu"}
    return transformers.AlbertForPreTraining(
        transformers.AlbertConfig(
            **{n: v for n, v in vars(config).items() if n not in renamed},
            hidden_act=activations[config.hidden_act],
            attn_implementation=attention,
        )
    )


def inputs_of_transformers(
    batch: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Returns a batch under the names of their model's arguments, int64."""
    labels = np.full_like(batch["input_ids"], IGNORED_LABEL)
    # Slots without a prediction have position 0, which is never predicted.
    ids = np.where(
        batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], IGNORED_LABEL
    )
    np.put_along_axis(labels, batch["masked_lm_positions"], ids, axis=1)
    arrays = {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "sentence_order_label": batch["sentence_order_labels"],
    }
    return {name: array.astype(np.int64) for name, array in arrays.items()}
