"""Hugging Face's ALBERT, on PyTorch, at the work that is measured."""

import contextlib
import os
from collections.abc import Mapping

import numpy as np

from albert_tf.config import (
    ModelConfig,
    UserError,
    override,
    shares_whole_groups,
)
from albert_tf.jobs.workload import Workload
from albert_tf.modeling.accounting import encoder_flops, training_flops

_ACTIVATIONS = {"gelu": "gelu_new", "gelu_exact": "gelu", "relu": "relu"}
# Their config's names are ours, but for these.
_OTHERWISE = ("sharing", "always_project_embeddings", "hidden_act")
_ATTENTION = ("sdpa", "eager")
# How each precision can be had there.
_PRECISIONS = {"float32": ("float32",), "bfloat16": ("autocast", "model")}
# The label that its loss leaves out.
_IGNORED = -100


def variants(work: Workload) -> tuple[str, ...]:
    """Returns the ways to do the work; what is fastest is to be taken.

    Raises:
        UserError: for what transformers has no model for.
    """
    if not shares_whole_groups(work.model):
        raise UserError(
            f"sharing={work.model.sharing}: the ALBERT of transformers shares "
            "whole layers; choose another --preset."
        )
    precision = work.training.precision
    if precision not in _PRECISIONS:
        raise UserError(
            f"precision={precision} is not compared with transformers; "
            f"{' and '.join(_PRECISIONS)} are."
        )
    return tuple(
        f"{attention}, {way}"
        for attention in _ATTENTION
        for way in _PRECISIONS[precision]
    )


class TransformersSide:
    """An AlbertForPreTraining and AdamW; see workload.Side."""

    def __init__(
        self, work: Workload, batch: Mapping[str, np.ndarray], variant: str
    ) -> None:
        import torch
        import transformers

        self._torch = torch
        torch.manual_seed(work.training.seed)
        if hasattr(os, "sched_getaffinity"):
            torch.set_num_threads(len(os.sched_getaffinity(0)))
        attention, way = variant.split(", ")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._autocast = way == "autocast"
        model = transformers.AlbertForPreTraining(
            _config(transformers, work.model, attention)
        )
        if way == "model":
            model = model.to(torch.bfloat16)
        self._model = model.to(self._device)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._inputs, self._labels = self._tensors(batch)
        # It projects even where the widths are equal.
        config = override(work.model, {"always_project_embeddings": True})
        # Logits of every position are its way.
        shape = work.shape | {"num_predictions": work.seq_length}
        every_state = encoder_flops(
            config,
            batch_size=work.batch_size,
            seq_length=work.seq_length,
            read_positions_only=False,
        )
        self.flops = dict.fromkeys(("forward", "states"), every_state)
        if way != "model":
            # With weights in bfloat16 too an update below a 512th of its
            # weight is lost, which others keep: it is not the same work.
            self.flops["train_step"] = training_flops(
                config, **shape, read_positions_only=False
            )
        kinds = {
            "float32": "float32",
            "autocast": "bfloat16 by autocast",
            "model": "bfloat16 weights",
        }
        how = f"{kinds[way]}, {attention} attention"
        self.does = {
            "train_step": f"{how}, AdamW, gradients clipped to 1, logits at "
            f"all {work.seq_length} positions of a sequence",
            **dict.fromkeys(("forward", "states"), how),
        }

    def _tensors(
        self, batch: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, object], dict[str, object]]:
        labels = np.full_like(batch["input_ids"], _IGNORED)
        np.put_along_axis(
            labels,
            batch["masked_lm_positions"],
            batch["masked_lm_ids"],
            axis=1,
        )
        inputs = {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["input_mask"],
            "token_type_ids": batch["segment_ids"],
        }
        targets = {
            "labels": labels,
            "sentence_order_label": batch["sentence_order_labels"],
        }
        return tuple(
            {
                name: self._torch.tensor(
                    value, dtype=self._torch.long, device=self._device
                )
                for name, value in part.items()
            }
            for part in (inputs, targets)
        )

    def _precision(self) -> contextlib.AbstractContextManager:
        if self._autocast:
            return self._torch.autocast(self._device, self._torch.bfloat16)
        return contextlib.nullcontext()

    def train_step(self) -> float:
        """Makes one update and returns the loss before it."""
        self._model.train()
        self._optimizer.zero_grad()
        with self._precision():
            loss = self._model(**self._inputs, **self._labels).loss
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def forward(self) -> np.ndarray:
        """Computes every state; returns the pooled outputs `[batch, H]`."""
        return self._output("pooler_output")

    def states(self) -> np.ndarray:
        """Returns every state `[batch, seq, H]`."""
        return self._output("last_hidden_state")

    def _output(self, name: str) -> np.ndarray:
        self._model.train(False)
        with self._torch.inference_mode(), self._precision():
            output = getattr(self._model.albert(**self._inputs), name)
        return output.float().cpu().numpy()


def _config(
    transformers: object, config: ModelConfig, attention: str
) -> object:
    values = {
        name: value
        for name, value in vars(config).items()
        if name not in _OTHERWISE
    }
    return transformers.AlbertConfig(
        **values,
        hidden_act=_ACTIVATIONS[config.hidden_act],
        attn_implementation=attention,
    )
