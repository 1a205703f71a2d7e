"""Hugging Face's ALBERT, on PyTorch, at the work that is measured."""

import contextlib
import os
from typing import Any

import numpy as np

from albert_tf.config import ModelConfig
from albert_tf.jobs.workload import Workload
from bin.benchmarking.side import Batch, Side

_ACTIVATIONS = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu"}
# Their config has the same names, except for these.
_RENAMED = ("sharing", "always_project_embeddings", "hidden_act")
# By precision: variants, and how they are described.
_VARIANTS = {
    "float32": {"float32": "float32"},
    "bfloat16": {
        "autocast": "bfloat16 by autocast",
        "model": "bfloat16 weights",
    },
}
IGNORED_LABEL = -100


def albert_for_pretraining(config: ModelConfig, attention: str) -> Any:
    """Returns their model of an architecture, initialised in their way.

    Args:
        config: the architecture.
        attention: `sdpa` or `eager`.
    """
    import transformers

    return transformers.AlbertForPreTraining(
        transformers.AlbertConfig(
            **{n: v for n, v in vars(config).items() if n not in _RENAMED},
            hidden_act=_ACTIVATIONS[config.hidden_act],
            attn_implementation=attention,
        )
    )


def pretraining_inputs(batch: Batch) -> dict[str, np.ndarray]:
    """Returns a batch under the names of their model's arguments, int64.

    The `labels` `[batch, seq]` are ignored where no token is predicted.
    """
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


class TransformersSide(Side):
    """AlbertForPreTraining and AdamW."""

    name = "transformers"
    packages = ("torch", "transformers")
    precisions = _VARIANTS

    @classmethod
    def variants(cls, work: Workload) -> tuple[str, ...]:
        return tuple(
            f"{attention}, {way}"
            for attention in ("sdpa", "eager")
            for way in _VARIANTS[work.training.precision]
        )

    def __init__(self, work: Workload, batch: Batch, variant: str) -> None:
        import torch

        self._torch = torch
        torch.manual_seed(work.training.seed)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        attention, way = variant.split(", ")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._autocast = way == "autocast"
        self._model = albert_for_pretraining(work.model, attention).to(
            self._device, torch.bfloat16 if way == "model" else torch.float32
        )
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._inputs = {
            name: torch.tensor(array, device=self._device)
            for name, array in pretraining_inputs(batch).items()
        }
        self._labels = {
            name: self._inputs.pop(name)
            for name in ("labels", "sentence_order_label")
        }
        self.describe(
            work,
            f"{_VARIANTS[work.training.precision][way]}, {attention} attention",
            "AdamW, gradients clipped to 1, logits at all "
            f"{work.seq_length} positions of a sequence",
            num_predictions=work.seq_length,
        )
        if way == "model":
            # Weights in bfloat16 lose updates below a 512th of a weight: not
            # the same work.
            del self.flops["train_step"]

    def _precision(self) -> contextlib.AbstractContextManager:
        if self._autocast:
            return self._torch.autocast(self._device, self._torch.bfloat16)
        return contextlib.nullcontext()

    def train_step(self) -> float:
        self._model.train()
        self._optimizer.zero_grad()
        with self._precision():
            loss = self._model(**self._inputs, **self._labels).loss
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def forward(self) -> np.ndarray:
        return self._output("pooler_output")

    def states(self) -> np.ndarray:
        return self._output("last_hidden_state")

    def _output(self, name: str) -> np.ndarray:
        self._model.train(False)
        with self._torch.inference_mode(), self._precision():
            output = getattr(self._model.albert(**self._inputs), name)
        return output.float().cpu().numpy()
