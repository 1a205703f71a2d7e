"""Modes of prediction: MODES, a row for each."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from albert_tf.prediction.base import SENTENCE_ORDERS, BasePredictor
from albert_tf.prediction.forms import (
    CHOICES,
    PAIR,
    QUESTION,
    SINGLE,
    SINGLE_OR_PAIR,
    WORDS,
    Form,
)
from albert_tf.tasks.formats.rows import Reading
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.kinds.multiple_choice import MultipleChoice
from albert_tf.tasks.kinds.question_answering import AnswerableSpans, Spans
from albert_tf.tasks.kinds.regression import Regression
from albert_tf.tasks.kinds.texts import text_fields
from albert_tf.tasks.kinds.token_classification import TokenClassification


def _order_fields(found: Any) -> dict[str, Any]:
    return {
        **text_fields(found.texts),
        "label": found.label,
        "probabilities": found.probabilities,
    }


def _filled_fields(filled: Any) -> dict[str, Any]:
    masks = [
        [{"piece": p, "probability": value} for p, value in candidates]
        for candidates in filled.candidates
    ]
    return {"text": filled.text, "masks": masks}


def _embedding_fields(embedding: Any) -> dict[str, Any]:
    return {
        "text": embedding.text,
        "mean_embedding": embedding.mean,
        "cls_embedding": embedding.cls,
    }


def _mean_max_fields(embedding: Any) -> dict[str, Any]:
    return {
        **_embedding_fields(embedding),
        "mean_max_embedding": embedding.vector,
    }


def _prediction_fields(prediction: Any) -> dict[str, Any]:
    # Raw texts have no label.
    return {n: v for n, v in prediction.fields.items() if n != "label"}


def _label_fields(prediction: Any) -> dict[str, Any]:
    fields = _prediction_fields(prediction)
    return {"label" if n == "prediction" else n: v for n, v in fields.items()}


def _multi_label_fields(prediction: Any) -> dict[str, Any]:
    fields = _prediction_fields(prediction)
    labels = fields.pop("prediction")
    return {**fields, "labels": labels}


@dataclasses.dataclass(frozen=True)
class Mode:
    """A row of MODES.

    Attributes:
        form: of the texts; None: single texts or pairs, as the model's task.
        method: the method of a predictor.
        kinds: of tasks, the first that fits in place of the model's own.
        fields: returns those of a prediction, for a line of JSON.
        columns: the fields that a table of lines has; empty: no tables are
            written of lines.
        added: the columns that a table of inputs gets, by name: string,
            double, strings, doubles, or object, which only JSON has.
        labels: returns those of a predictor whose probabilities a table has.
        variants: in place of this for models that predict one of their kinds,
            or have their pooling.
        pooling: of embeddings, in a variant.
        separator: between several labels in a cell of a table, as in the
            files of training; empty: lists are JSON.
    """

    form: Form | None
    method: str = "predict"
    kinds: tuple[Kind, ...] = ()
    fields: Callable[..., dict[str, Any]] = _prediction_fields
    columns: tuple[str, ...] = ()
    added: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {"prediction": "string"}
    )
    labels: Callable[[BasePredictor], Iterable[str]] = lambda predictor: ()
    variants: tuple["Mode", ...] = ()
    pooling: str = ""
    separator: str = ""

    def of(self, predictor: BasePredictor) -> "Mode":
        """Returns the variant for a predictor, or the mode itself."""
        for variant in self.variants:
            if variant.pooling == predictor.pooling or variant.kind_of(
                predictor
            ):
                if variant.separator and predictor.label_separator:
                    own = predictor.label_separator
                    return dataclasses.replace(variant, separator=own)
                return variant
        return self

    def kind_of(self, predictor: BasePredictor) -> Kind | None:
        """Returns the kind that a model predicts for, None for another's.

        The model's own where its class is derived from one of the kinds.
        """
        own = predictor.own_kind
        if isinstance(own, tuple(map(type, self.kinds))):
            return own
        return next(filter(predictor.predicts, self.kinds), None)

    def form_for(self, pairs: bool | None) -> Form:
        """Returns the form of texts that are pairs, or may be (None)."""
        by_pairs = {None: SINGLE_OR_PAIR, False: SINGLE, True: PAIR}
        return self.form or by_pairs[pairs]

    def predict(
        self, predictor: BasePredictor, items: Iterable[Any], **options: int
    ) -> Iterator[Any]:
        """Yields the prediction for each item, or the error in its place."""
        method = getattr(predictor, self.method)
        if self.kinds:
            kind = self.kind_of(predictor) or self.kinds[-1]
            method = functools.partial(method, kind)
        return method(items, return_exceptions=True, **options)


# Columns of the kinds with classes.
_OF_CLASSES = {
    "prediction": "string",
    "probability": "double",
    "probabilities": "object",
}

_OF_EMBEDDINGS = {"mean_embedding": "doubles", "cls_embedding": "doubles"}

MODES = {
    "fill-mask": Mode(
        SINGLE,
        "fill_mask",
        fields=_filled_fields,
        added={"masks": "string"},
    ),
    "sentence-order": Mode(
        PAIR,
        "sentence_order",
        fields=_order_fields,
        columns=("label",),
        added=_OF_CLASSES,
        labels=lambda predictor: SENTENCE_ORDERS,
    ),
    "embed": Mode(
        SINGLE,
        "embed",
        fields=_embedding_fields,
        added=_OF_EMBEDDINGS,
        variants=(
            Mode(
                SINGLE,
                "embed",
                fields=_mean_max_fields,
                added={**_OF_EMBEDDINGS, "mean_max_embedding": "doubles"},
                pooling="mean_max",
            ),
        ),
    ),
    "classify": Mode(
        None,
        kinds=(Classification(),),
        fields=_label_fields,
        columns=("label",),
        added=_OF_CLASSES,
        labels=lambda predictor: predictor.labels,
        variants=(
            Mode(
                None,
                kinds=(MultiLabelClassification(),),
                fields=_multi_label_fields,
                columns=("labels",),
                added={"prediction": "strings", "probabilities": "object"},
                separator=Reading.label_separator,
                labels=lambda predictor: predictor.labels,
            ),
        ),
    ),
    "rate": Mode(
        None,
        kinds=(Regression(),),
        columns=("prediction",),
        added={"prediction": "double"},
    ),
    "answer": Mode(
        QUESTION,
        kinds=(AnswerableSpans(), Spans()),
        columns=("prediction", "probability"),
        added={"prediction": "string", "probability": "double"},
    ),
    "tag": Mode(
        WORDS,
        kinds=(TokenClassification(),),
        added={
            "words": "strings",
            "prediction": "strings",
            "probabilities": "doubles",
            "predicted_entities": "string",
        },
    ),
    "choose": Mode(
        CHOICES,
        kinds=(MultipleChoice(),),
        added={"prediction": "string", "probabilities": "doubles"},
    ),
}


def fine_tuned_for(predictor: BasePredictor) -> tuple[str, str]:
    """Returns the name of a model's mode, and that of its kind of task.

    Those of a model that was not fine-tuned are "".
    """
    for name, mode in MODES.items():
        for row in (mode, *mode.variants):
            kind = row.kind_of(predictor)
            if kind:
                return name, kind.name
    return "", ""
