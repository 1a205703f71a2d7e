"""Classification of single texts and pairs."""

from collections.abc import Sequence

import numpy as np

from albert_tf.config import UserError, require
from albert_tf.tasks.examples import Example, listed
from albert_tf.tasks.kinds.base import Answers, Prediction, Table
from albert_tf.tasks.kinds.classes import ClassKind, class_error
from albert_tf.tasks.kinds.texts import TextKind, text_fields

# More labels than this, and than half the examples, are likely a mistake.
_MANY = 20


class Classification(TextKind, ClassKind):
    """One label of several."""

    name = "classification"
    head = "classification"
    labelled = True
    label_type = np.int32

    def labels(self, examples: Sequence[Example]) -> list[str]:
        """Returns the labels that occur, sorted.

        Raises UserError for a single label, or nearly as many as examples.
        """
        labels = sorted({e.label for e in examples if e.label is not None})
        source = f"{examples[0].location} and what follows"
        require(
            len(labels) > 1,
            f"{source}: the training examples have one label only, "
            f"{', '.join(labels)!r}; a classifier needs at least two.",
        )
        require(
            len(labels) <= max(_MANY, len(examples) / 2),
            f"{source}: {len(examples)} training examples have {len(labels)} "
            f"different labels ({listed(labels, 12)}); is that the right "
            "column? Numbers are learned with --task=custom "
            "--columns=text=...,number=....",
        )
        return labels

    def label_ids(
        self, examples: Sequence[Example], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns label ids, int32 `[examples]`, 0 without a label."""
        ids = {name: number for number, name in enumerate(labels)}
        found = [
            0 if e.label is None else ids.get(e.label, -1) for e in examples
        ]
        if -1 in found:
            wrong = examples[found.index(-1)]
            raise UserError(
                f"{wrong.location}: the label is {str(wrong.label)[:60]!r}; "
                f"expected one of {listed(labels, 12)}."
            )
        return np.array(found, np.int32)

    def table(self, answers: Answers) -> Table:
        """Returns precision, recall, F1 and number of examples by label."""
        from sklearn.metrics import precision_recall_fscore_support

        columns = precision_recall_fscore_support(
            self.label_ids(answers.examples, answers.labels),
            np.array([row.argmax() for row in answers.scores]),
            labels=list(range(len(answers.labels))),
            zero_division=0.0,
        )
        return Table(
            ["label", "precision", "recall", "f1", "examples"],
            [
                [label, *(f"{value:.4f}" for value in row[:3]), f"{row[3]:.0f}"]
                for label, row in zip(
                    answers.labels, zip(*columns, strict=True), strict=True
                )
            ],
        )

    def _prediction(
        self, example: Example, scores: np.ndarray, answers: Answers
    ) -> Prediction:
        labels = list(answers.labels)
        gold = None if example.label is None else labels.index(example.label)
        fields = {
            **text_fields(example.texts),
            "label": example.label,
            "prediction": labels[int(scores.argmax())],
            "probabilities": dict(zip(labels, map(float, scores), strict=True)),
        }
        error = class_error(scores, gold)
        return Prediction(fields, example.location, error)
