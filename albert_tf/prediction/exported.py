"""Predictions of an export, the same as those of its model directory."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.prediction.base import BasePredictor
from albert_tf.tasks.kinds.base import Kind, Prediction

# Outputs of `embed` by pooling.
_VECTORS = {
    "first": "cls_output",
    "mean": "mean_output",
    "mean_max": "mean_max_output",
}
# The signatures of a pretrained model, for texts with masks and for pairs.
_MASKS, _ORDER = "fill_mask", "sentence_order"


def _without_halves(values: Any) -> Any:
    """Returns texts with a character for each half of a surrogate pair.

    JSON can hold such a half, and UTF-8 cannot. As many characters as before
    keep the places of answers and words.
    """
    if isinstance(values, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", values)
    if isinstance(values, list | tuple):
        return [*map(_without_halves, values)]
    return values


class ExportedPredictor(BasePredictor):
    """Predicts with an export.

    `pooling` is that of embeddings; by default `mean_max` where the export has
    it, and else the mean.
    """

    max_length = "maximal length"

    def __init__(
        self, exported: ExportedModel, batch_size: int = 32, pooling: str = ""
    ) -> None:
        self._exported = exported
        has_both = self._has("embed", _VECTORS["mean_max"])
        own = "mean_max" if has_both else "mean"
        super().__init__(batch_size, pooling or own, _VECTORS)
        self.labels, self.columns = exported.labels, exported.columns
        self.label_separator = exported.label_separator
        default = next(iter(exported.signatures.values()))
        self.pairs = "text_pair" in default.inputs
        self.only_embeds = _VECTORS["first"] in default.outputs and {
            _MASKS,
            _ORDER,
        }.isdisjoint(exported.signatures)

    def predicts(self, kind: Kind) -> bool:
        """Returns whether the model predicts for examples of a kind."""
        return kind.exported is not None and self._has(*kind.exported)

    def _has(self, signature: str, output: str) -> bool:
        found = self._exported.signatures.get(signature)
        return found is not None and output in found.outputs

    def _require(self, signature: str, output: str, use: str) -> None:
        require(
            self._has(signature, output),
            f"{self._exported.path} has no signature {signature!r} with "
            f"{output}; it has {', '.join(self._exported.signatures)}. {use}",
        )

    def _call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        sound = {name: _without_halves(inputs[name]) for name in inputs}
        return self._exported.call(signature, sound)

    def _check_kind(self, kind: Kind) -> None:
        if kind.exported is None:
            raise UserError(
                f"An export has no predictions for {kind.name}; give "
                "--model_dir."
            )
        use = f"Export a model that was fine-tuned for {kind.name}."
        self._require(*kind.exported, use)

    def _check_embed(self) -> None:
        self._require("embed", "cls_output", "Export the model again.")
        self._require(
            "embed",
            _VECTORS[self.pooling],
            "Export a model that bin.train_embeddings has trained with "
            "--pooling=mean_max, or give --model_dir.",
        )

    def _check_fill_mask(self, top_k: int) -> None:
        self._require(_MASKS, "pieces", "Export the pretrained model.")
        most = self._exported.signatures[_MASKS].outputs["pieces"].shape[2]
        require(
            most is None or top_k <= most,
            f"top_k={top_k}: expected at most {most}, which the export "
            "returns; for more give --model_dir.",
        )

    def _check_sentence_order(self) -> None:
        self._require(
            _ORDER, "probabilities", "Export a pretrained model that has it."
        )

    def _predictions(self, kind: Kind, batch: list[Any]) -> list[Prediction]:
        return kind.exported_predictions(self._call, batch, self.labels)

    def _vectors(self, batch: list[str]) -> list[np.ndarray]:
        found = self._call("embed", text=batch)
        return [found[_VECTORS[n]] for n in ("mean", "first", self.pooling)]

    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        found = self._call(_MASKS, text=batch)
        pieces, values = found["pieces"], found["probabilities"]
        for of_text, numbers in zip(pieces, values, strict=True):
            yield [
                list(
                    zip(
                        map(bytes.decode, names[:top_k]),
                        row[:top_k].tolist(),
                        strict=True,
                    )
                )
                for names, row in zip(of_text, numbers, strict=True)
                # Texts with fewer masks are padded with "".
                if names[0]
            ]

    def _orders(self, batch: list[tuple[str, ...]]) -> np.ndarray:
        first, second = zip(*batch, strict=True)
        outputs = self._call(_ORDER, text=first, text_pair=second)
        return outputs["probabilities"]
