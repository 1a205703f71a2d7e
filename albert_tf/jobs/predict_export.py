"""Predictions of an export, the same as those of its model directory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, require
from albert_tf.interchange.export.exported_model import ExportedModel
from albert_tf.jobs.predict import BasePredictor
from albert_tf.tasks.kinds.base import Kind, Prediction, ScoredExamples
from albert_tf.tasks.kinds.span_answers import prediction_fields

Call = Callable[..., dict[str, np.ndarray]]
# The signature for pairs of a pretrained model.
_ORDER = "sentence_order"


def _by_number_of_texts(
    call: Call, batch: Sequence[Any], output: str
) -> list[Any]:
    """Returns an output for each example, a single text or a pair."""
    found: list[Any] = [None] * len(batch)
    for count, signature in ((1, "text"), (2, "text_pair")):
        rows = [n for n, e in enumerate(batch) if len(e.texts) == count]
        if rows:
            columns = zip(*(batch[row].texts for row in rows), strict=True)
            names = ("text", "text_pair")[:count]
            answers = call(signature, **dict(zip(names, columns, strict=True)))
            for row, value in zip(rows, answers[output], strict=True):
                found[row] = value
    return found


def _classes(call: Call, batch: Sequence[Any]) -> list[Any]:
    return _by_number_of_texts(call, batch, "probabilities")


def _numbers(call: Call, batch: Sequence[Any]) -> list[Any]:
    return [float(n) for n in _by_number_of_texts(call, batch, "predictions")]


def _choices(call: Call, batch: Sequence[Any]) -> list[Any]:
    answers = call(
        "choices",
        text=[example.context for example in batch],
        choices=[example.choices for example in batch],
    )
    return list(answers["probabilities"])


def _words(call: Call, batch: Sequence[Any]) -> list[Any]:
    answers = call("words", text=[" ".join(e.words) for e in batch])
    scores = []
    for example, words, row in zip(
        batch, answers["words"], answers["probabilities"], strict=True
    ):
        expected = len(example.words)
        require(
            (found := np.count_nonzero(words)) == expected,
            f"{example.location}: an export reads the first {found} of these "
            f"{expected} words; divide the text, or give --model_dir.",
        )
        scores.append(row[:expected])
    return scores


def _answers(call: Call, batch: Sequence[Any]) -> list[Prediction]:
    answers = call(
        "question",
        question=[example.question for example in batch],
        context=[example.context for example in batch],
    )
    columns = answers["answer"], answers["probability"]
    return [
        Prediction(
            prediction_fields(example, answer.decode(), float(probability)),
            example.location,
            0.0,
        )
        for example, answer, probability in zip(batch, *columns, strict=True)
    ]


# By the kind's head: an output that only its exports have, of a signature, and
# a function that returns the scores (`Kind.scores`) of a batch of examples; of
# questions, of which an export gives the best answer alone, the predictions.
_SCORES: dict[str, tuple[str, str, Callable[[Call, Sequence[Any]], list]]] = {
    "span": ("question", "answer", _answers),
    "answerable_span": ("question", "null_probability", _answers),
    "classification": ("text", "probabilities", _classes),
    "regression": ("text", "predictions", _numbers),
    "multiple_choice": ("choices", "probabilities", _choices),
    "token_classification": ("words", "probabilities", _words),
}


class ExportedPredictor(BasePredictor):
    """Predicts with an export."""

    max_length = "maximal length"

    def __init__(self, exported: ExportedModel, batch_size: int = 32) -> None:
        self._exported = exported
        self.batch_size = batch_size

    @property
    def labels(self) -> list[str]:
        """Names of the classes; empty for models without."""
        return self._exported.labels

    @property
    def pairs(self) -> bool | None:
        """Whether the default signature takes pairs of texts."""
        default = next(iter(self._exported.signatures.values()))
        return "text_pair" in default.inputs

    def has_head(self, name: str) -> bool:
        """Returns whether the model has a head of that name."""
        return name in _SCORES and self._has(*_SCORES[name][:2])

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
        return self._exported.call(signature, inputs)

    def _check_kind(self, kind: Kind) -> None:
        require(
            kind.head in _SCORES,
            f"An export does not answer for {kind.name}; give --model_dir.",
        )
        signature, output, _ = _SCORES[kind.head]
        use = f"Export a model that was fine-tuned for {kind.name}."
        self._require(signature, output, use)

    def _check_embed(self) -> None:
        self._require("embed", "cls_output", "Export the model again.")

    def _check_fill_mask(self, top_k: int) -> None:
        self._require("fill_mask", "pieces", "Export the pretrained model.")
        most = self._exported.signatures["fill_mask"].outputs["pieces"].shape[2]
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
        signature, _, scores_of = _SCORES[kind.head]
        scores = scores_of(self._call, batch)
        if signature == "question":
            return scores
        labels = self._exported.labels
        return kind.predictions(
            ScoredExamples(batch, scores, FeatureConfig(), labels)
        )

    def _vectors(self, batch: list[str]) -> tuple[np.ndarray, np.ndarray]:
        found = self._call("embed", text=batch)
        return found["mean_output"], found["cls_output"]

    def _masks(
        self, batch: list[str], top_k: int
    ) -> Iterator[list[list[tuple[str, float]]]]:
        found = self._call("fill_mask", text=batch)
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
        answers = self._call(_ORDER, text=first, text_pair=second)
        return answers["probabilities"]
