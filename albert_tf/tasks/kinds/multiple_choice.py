"""Multiple choice: which of several texts goes with a context."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds.base import Answers, Figure, Kind, Metric, Prediction
from albert_tf.tasks.kinds.classes import (
    class_error,
    class_figure,
    class_metrics,
    constant_class,
    softmax,
)
from albert_tf.tasks.kinds.texts import empty_text_warnings, framed
from albert_tf.text.tokenizer_base import Tokenizer


class MultipleChoice(Kind):
    """One of several texts; all examples have equally many."""

    name = "multiple choice"
    head = "multiple_choice"
    example_type = ChoiceExample
    text_counts = range(3, sys.maxsize)
    takes = (
        "three strings or more, a text and its choices (on a line, with tabs "
        "between them)"
    )

    def example(self, texts: tuple[str, ...], number: int) -> ChoiceExample:
        """Returns the example of a text and its choices."""
        context, *choices = texts
        place = f"text {number}"
        return ChoiceExample(context, tuple(choices), None, place, str(number))

    def has_label(self, example: ChoiceExample) -> bool:
        """Returns whether the file tells which choice is right."""
        return example.label is not None

    def check(self, examples: Sequence[ChoiceExample]) -> None:
        """Raises UserError for more or fewer choices than the first has."""
        number = len(examples[0].choices)
        for example in examples:
            if len(example.choices) != number:
                raise UserError(
                    f"{example.location}: {len(example.choices)} choices, "
                    f"where {examples[0].location} has {number}; "
                    "all need as many."
                )

    def warnings(
        self, examples: Sequence[ChoiceExample], *, training: bool
    ) -> list[str]:
        """Returns how many examples have an empty context or choice."""
        texts = ((example.context, *example.choices) for example in examples)
        return empty_text_warnings(examples, texts)

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

        Raises:
            UserError: when max_choice_length leaves a context no room.
        """
        room = config.max_seq_length - 3
        if config.max_choice_length >= room:
            raise UserError(
                f"max_choice_length={config.max_choice_length} leaves the "
                f"context no room within max_seq_length="
                f"{config.max_seq_length}; lower it."
            )
        contexts = list(dict.fromkeys(e.context for e in examples))
        of_context = dict(
            zip(contexts, tokenizer.encode_batch(contexts), strict=True)
        )
        choices = iter(
            tokenizer.encode_batch(
                [choice for example in examples for choice in example.choices]
            )
        )
        pairs, cut = [], []
        for place, example in enumerate(examples):
            context, is_cut = of_context[example.context], False
            for _ in example.choices:
                ids = next(choices)
                kept = ids[-config.max_choice_length :]
                head = context[: room - len(kept)]
                is_cut |= len(kept) < len(ids) or len(head) < len(context)
                pairs.append((head, kept))
            if is_cut:
                cut.append(place)
        numbers = [example.label or 0 for example in examples]
        sequences = framed(pairs, tokenizer, config.max_seq_length, {})
        return dataclasses.replace(
            sequences,
            scalars={"label_ids": np.array(numbers, np.int32)},
            example_numbers=np.arange(len(examples)),
            choices=len(examples[0].choices),
            cut=cut,
        )

    def scores(
        self,
        examples: Sequence[ChoiceExample],
        features: Features,
        outputs: Mapping[str, Sequence[np.ndarray]],
        config: FeatureConfig,
    ) -> list[np.ndarray]:
        """Returns the probabilities `[choices]` of each example."""
        return list(softmax(np.array(outputs["logits"])))

    def ensemble(self, members: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """Returns the mean probabilities."""
        return list(np.mean(members, axis=0))

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, those of the most frequent choice, and those of
        each part, of RACE its levels (`accuracy_middle`).
        """
        examples = answers.examples
        numbers = np.array([example.label for example in examples])
        found = np.array([row.argmax() for row in answers.scores])
        parts = np.array([example.part for example in examples])
        of_parts = {
            f"{name}_{part}": metric(
                numbers[parts == part], found[parts == part]
            )
            for part in dict.fromkeys(e.part for e in examples if e.part)
            for name, metric in metrics.items()
        }
        return class_metrics(numbers, answers.scores, metrics) | of_parts

    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns the likeliest choice of each example, by its letter."""
        return [
            Prediction(
                {
                    "id": example.id,
                    "context": example.context,
                    "choices": list(example.choices),
                    "label": letter(example.label),
                    "prediction": letter(int(row.argmax())),
                    "probabilities": row.tolist(),
                },
                example.location,
                class_error(row, example.label),
            )
            for example, row in zip(
                answers.examples, answers.scores, strict=True
            )
        ]

    def figure(self, answers: Answers) -> Figure:
        """Returns which choices were taken for which."""
        numbers = np.array([example.label for example in answers.examples])
        probabilities = np.array(answers.scores)
        return class_figure(numbers, probabilities, _letters(probabilities[0]))

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the choice that is taken of all examples."""
        return constant_class(answers.scores, _letters(answers.scores[0]))


def _letters(choices: np.ndarray) -> list[str]:
    return [letter(number) for number in range(len(choices))]


def letter(number: int | None) -> str | None:
    """Returns A for 0 and so on; the number itself after Z."""
    if number is None:
        return None
    return chr(ord("A") + number) if number < 26 else str(number)
