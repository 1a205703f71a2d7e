"""Multiple choice: which of several texts goes with a context."""

import dataclasses
import string
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, require
from albert_tf.tasks.bad_rows import RowError, made_of_all
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import (
    CallSignature,
    Metric,
    Prediction,
    ScoredExamples,
    metric_values,
)
from albert_tf.tasks.kinds.classification import ClassKind, class_error
from albert_tf.tasks.kinds.texts import sequence_features
from albert_tf.text.tokenizer_base import Tokenizer


class MultipleChoice(ClassKind):
    """One of several texts; all examples have the same number of them."""

    name = "multiple choice"
    head = "multiple_choice"
    exported = ("choices", "probabilities")
    example_type = ChoiceExample
    lengths = ("max_choice_length",)
    text_counts = range(3, sys.maxsize)
    text_format = (
        "three strings or more, a text and its choices (on a line, with tabs "
        "between them)"
    )

    def example(self, texts: tuple[str, ...], number: int) -> ChoiceExample:
        """Returns the unlabelled example of a text and its choices."""
        context, *choices = texts
        return ChoiceExample(
            context, tuple(choices), None, f"text {number}", str(number)
        )

    def label_ids(
        self, examples: Sequence[ChoiceExample], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the numbers of the right choices, 0 without a label."""
        return np.array([example.label or 0 for example in examples], np.int32)

    def class_names(self, scored: ScoredExamples) -> list[str]:
        """Returns the letters of the choices."""
        return [str(letter(number)) for number in range(len(scored.scores[0]))]

    def check(self, examples: Sequence[ChoiceExample]) -> None:
        """Raises UserError for another number of choices than the first's."""
        first = examples[0]

        def check(example: ChoiceExample) -> None:
            if len(example.choices) != len(first.choices):
                raise RowError(
                    example.location,
                    f"expected {len(first.choices)} choices as at "
                    f"{first.location}",
                    f", got {len(example.choices)}",
                )

        made_of_all(check, examples)

    def features(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns a row of as many sequences as choices for each example.

        [CLS] context [SEP] choice [SEP]: of the choice its last
        max_choice_length tokens, of the context its first ones, as in
        google-research/albert's run_race.py.
        """
        room = room_of_choices(config)
        contexts = list(dict.fromkeys(e.context for e in examples))
        context_ids = tokenizer.encode_batch(contexts)
        of_context = dict(zip(contexts, context_ids, strict=True))
        choices = [choice for example in examples for choice in example.choices]
        choice_ids = iter(tokenizer.encode_batch(choices))
        pairs, truncated = [], []
        for number, example in enumerate(examples):
            context, is_truncated = of_context[example.context], False
            for _ in example.choices:
                ids = next(choice_ids)
                tail = ids[-config.max_choice_length :]
                head = context[: room - len(tail)]
                is_truncated |= len(tail) < len(ids) or len(head) < len(context)
                pairs.append((head, tail))
            if is_truncated:
                truncated.append(number)
        return dataclasses.replace(
            sequence_features(pairs, tokenizer, config.max_seq_length, {}),
            scalars={"label_ids": self.label_ids(examples, labels)},
            example_numbers=np.arange(len(examples)),
            choices=len(examples[0].choices),
            truncated=truncated,
        )

    def exported_scores(
        self, call: CallSignature, examples: Sequence[ChoiceExample]
    ) -> list[np.ndarray]:
        """Returns the probabilities of choices from an exported model."""
        outputs = call(
            "choices",
            text=[example.context for example in examples],
            choices=[example.choices for example in examples],
        )
        return list(outputs["probabilities"])

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics with a majority-class baseline, and those of
        each part of the examples, RACE's levels (`accuracy_middle`).
        """
        found = super().compute_metrics(scored, metrics)
        label_ids, predicted = self.gold_and_predicted(scored)
        parts = np.array([example.part for example in scored.examples])
        for part in filter(None, dict.fromkeys(parts.tolist())):
            rows = parts == part
            own = metric_values(metrics, label_ids[rows], predicted[rows])
            found |= {f"{name}_{part}": value for name, value in own.items()}
        return found

    def _prediction(
        self, example: ChoiceExample, scores: np.ndarray, scored: ScoredExamples
    ) -> Prediction:
        fields = {
            "id": example.id,
            "context": example.context,
            "choices": list(example.choices),
            "label": letter(example.label),
            "prediction": letter(int(scores.argmax())),
            "probabilities": scores.tolist(),
        }
        error = class_error(scores, example.label)
        return Prediction(fields, example.location, error)


def room_of_choices(config: FeatureConfig) -> int:
    """Returns the tokens that a context and a choice can have together.

    Raises UserError when max_choice_length leaves a context none of them.
    """
    room = config.max_seq_length - 3
    require(
        config.max_choice_length < room,
        f"max_choice_length={config.max_choice_length} leaves the context "
        f"no room within max_seq_length={config.max_seq_length}; lower the "
        f"former, for example to {config.max_seq_length // 2}.",
    )
    return room


def letter(number: int | None) -> str | None:
    """Returns A for 0 and so on; the number itself after Z."""
    if number is None:
        return None
    letters = string.ascii_uppercase
    return letters[number] if number < len(letters) else str(number)
