"""Single texts and pairs: a label of several, or a number, for each."""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Example
from albert_tf.tasks.features import Features, flat
from albert_tf.tasks.kinds.base import (
    Answers,
    Distributions,
    Figure,
    Kind,
    Metric,
    Prediction,
    Table,
)
from albert_tf.tasks.kinds.classes import (
    class_error,
    class_figure,
    class_metrics,
    constant_class,
    label_table,
    listed,
    softmax,
)
from albert_tf.text.tokenizer_base import Tokenizer

# As files have them; Python would also take 1_0.
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# Numbers are learned in float32.
_GREATEST = float(np.finfo(np.float32).max)

# So many labels are likely a mistake where most examples have one of their own.
_MANY = 20


def lengths_that_fit(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens of a pair are kept.

    As if one were taken off the longer side again and again, off the second
    of two that are equal (the original's `_truncate_seq_pair`).
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if second <= half:
        return room - second, second
    if first <= room - half:
        return first, room - first
    return room - half, half


def framed(
    token_ids: Sequence[Sequence[Sequence[int]]],
    tokenizer: Tokenizer,
    max_seq_length: int,
    scalars: Mapping[str, np.ndarray],
) -> Features:
    """Returns a row for each text or pair.

    [CLS] text [SEP], or [CLS] first [SEP] second [SEP] with segment 1 from
    the second text on; what is too long is cut at its end.

    Args:
        token_ids: of each example, of each of its texts.
        tokenizer: the model's.
        max_seq_length: special tokens included.
        scalars: `[examples]` by name.
    """
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    rows, cut = [], []
    second_starts = np.full(len(token_ids), max_seq_length)
    for number, texts in enumerate(token_ids):
        first, second = texts[0], texts[1] if len(texts) > 1 else ()
        room = max_seq_length - 1 - len(texts)
        kept, also = lengths_that_fit(len(first), len(second), room)
        if kept < len(first) or also < len(second):
            cut.append(number)
        row = [cls_id, *first[:kept], sep_id]
        if len(texts) > 1:
            second_starts[number] = len(row)
            row += [*second[:also], sep_id]
        rows.append(row)
    ids, offsets = flat(rows)
    lengths = np.diff(offsets)
    positions = np.arange(len(ids)) - np.repeat(offsets[:-1], lengths)
    return Features(
        sequences={
            "input_ids": ids,
            "segment_ids": (
                positions >= np.repeat(second_starts, lengths)
            ).astype(np.int32),
        },
        offsets=offsets,
        scalars=scalars,
        padding={"input_ids": tokenizer.pad_id, "segment_ids": 0},
        example_numbers=np.arange(len(rows)),
        cut=cut,
    )


def text_features(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    max_seq_length: int,
    scalars: Mapping[str, np.ndarray],
) -> Features:
    """Returns `framed` of the texts of examples."""
    ids = iter(
        tokenizer.encode_batch(
            [text for example in examples for text in example.texts]
        )
    )
    token_ids = [[next(ids) for _ in example.texts] for example in examples]
    return framed(token_ids, tokenizer, max_seq_length, scalars)


def label_numbers(
    examples: Sequence[Example], labels: Sequence[str]
) -> np.ndarray:
    """Returns label ids `[examples]`, 0 where none is told.

    Raises:
        UserError: naming the place of a label that is not among them.
    """
    numbers: dict[str | None, int] = {None: 0}
    numbers |= {name: number for number, name in enumerate(labels)}
    for example in examples:
        if example.label not in numbers:
            raise UserError(
                f"{example.location}: the label is {example.label[:60]!r}; the "
                f"model's labels are {listed(labels)}."
            )
    return np.array([numbers[e.label] for e in examples], np.int32)


def number_of(label: str, place: str) -> float:
    """Returns the number that a label is.

    Raises:
        UserError: naming `place`, when it is none, or too great for float32.
    """
    if not is_number(label):
        raise UserError(
            f"{place}: the label is {label[:60]!r}; it must be a number "
            f"(up to {_GREATEST:.2g})."
        )
    return float(label)


def is_number(label: str) -> bool:
    """Returns whether a label is a number, and one that float32 can hold."""
    return bool(_NUMBER.fullmatch(label)) and abs(float(label)) <= _GREATEST


def shown_texts(texts: Sequence[str]) -> dict[str, object]:
    """Returns `text`, or `texts` of a pair, for a line of JSON."""
    if len(texts) == 1:
        return {"text": texts[0]}
    return {"texts": list(texts)}


def empty_text_warnings(
    examples: Sequence[Any], texts: Iterable[Sequence[str]]
) -> list[str]:
    """Returns a line on how many examples have an empty text, if any has.

    Args:
        examples: with their places.
        texts: of each of them.
    """
    places = [
        example.location
        for example, own in zip(examples, texts, strict=True)
        if not all(text.strip() for text in own)
    ]
    if not places:
        return []
    return [
        f"{len(places)} of {len(examples)} examples have an empty text, the "
        f"first {places[0]}."
    ]


class Texts(Kind):
    """What single texts and pairs have in common."""

    example_type = Example
    text_counts = range(1, 3)
    takes = "a string, or two (on a line, with a tab between them)"

    def example(self, texts: tuple[str, ...], number: int) -> Example:
        """Returns the example of a text, or pair, without a label."""
        return Example(texts, None, f"text {number}")

    def warnings(
        self, examples: Sequence[Example], *, training: bool
    ) -> list[str]:
        """Returns how many examples have an empty text."""
        return empty_text_warnings(examples, (e.texts for e in examples))

    def has_label(self, example: Example) -> bool:
        """Returns whether the file tells the label, or number."""
        return example.label is not None

    def in_both_orders(self, examples: Sequence[Example]) -> list[Example]:
        """Returns pairs, and after them the same with their texts swapped.

        Raises:
            UserError: naming the place of an example that is no pair.
        """
        for example in examples:
            if len(example.texts) != 2:
                raise UserError(
                    f"{example.location}: double_unordered is for pairs of "
                    "texts, and this is a single one."
                )
        swapped = [
            dataclasses.replace(example, texts=example.texts[::-1])
            for example in examples
        ]
        return [*examples, *swapped]


class Classification(Texts):
    """One label of several."""

    name = "classification"
    head = "classification"
    labelled = True

    def labels(self, examples: Sequence[Example]) -> list[str]:
        """Returns the labels that occur, sorted.

        Raises:
            UserError: when there is one only.
        """
        labels = sorted({e.label for e in examples if e.label is not None})
        if len(labels) < 2:
            raise UserError(
                f"{examples[0].location} and what follows: the training "
                f"examples have one label only, {', '.join(labels)!r}; a "
                "classifier needs at least two."
            )
        if len(labels) > max(_MANY, len(examples) / 2):
            raise UserError(
                f"{examples[0].location} and what follows: {len(examples)} "
                f"training examples have {len(labels)} different labels "
                f"({listed(labels)}); is that the right column? Numbers are "
                "learned with --task=custom --columns=text=...,number=...."
            )
        return labels

    def features(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns a row for each example, with `label_ids`."""
        numbers = label_numbers(examples, labels)
        return text_features(
            examples, tokenizer, config.max_seq_length, {"label_ids": numbers}
        )

    def scores(
        self,
        examples: Sequence[Example],
        features: Features,
        outputs: Mapping[str, Sequence[np.ndarray]],
        config: FeatureConfig,
    ) -> list[np.ndarray]:
        """Returns the probabilities `[labels]` of each example."""
        return list(softmax(np.array(outputs["logits"])))

    def ensemble(self, members: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """Returns the mean probabilities."""
        return list(np.mean(members, axis=0))

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and those of the most frequent label."""
        numbers = label_numbers(answers.examples, answers.labels)
        return class_metrics(numbers, answers.scores, metrics)

    def table(self, answers: Answers) -> Table:
        """Returns precision, recall and F1 of each label."""
        numbers = label_numbers(answers.examples, answers.labels)
        found = np.array([row.argmax() for row in answers.scores])
        return label_table(numbers, found, answers.labels)

    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns the likeliest label of each example."""
        labels = answers.labels
        return [
            Prediction(
                {
                    **shown_texts(example.texts),
                    "label": example.label,
                    "prediction": labels[int(row.argmax())],
                    "probabilities": {
                        name: float(value)
                        for name, value in zip(labels, row, strict=True)
                    },
                },
                example.location,
                class_error(
                    row,
                    labels.index(example.label)
                    if self.has_label(example)
                    else None,
                ),
            )
            for example, row in zip(
                answers.examples, answers.scores, strict=True
            )
        ]

    def figure(self, answers: Answers) -> Figure:
        """Returns which labels were given for which.

        With very many labels, how sure the model is of right and wrong ones.
        """
        numbers = label_numbers(answers.examples, answers.labels)
        return class_figure(numbers, np.array(answers.scores), answers.labels)

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the label that all examples get."""
        return constant_class(answers.scores, answers.labels)


class Regression(Texts):
    """A number."""

    name = "regression"
    head = "regression"

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the metrics, and the squared error."""
        return (*metrics, "mean_squared_error")

    def features(
        self,
        examples: Sequence[Example],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns a row for each example, with `label_ids`, float32."""
        numbers = _numbers(examples).astype(np.float32)
        return text_features(
            examples, tokenizer, config.max_seq_length, {"label_ids": numbers}
        )

    def scores(
        self,
        examples: Sequence[Example],
        features: Features,
        outputs: Mapping[str, Sequence[np.ndarray]],
        config: FeatureConfig,
    ) -> list[float]:
        """Returns the number of each example."""
        return [float(value) for value in outputs["predictions"]]

    def ensemble(self, members: Sequence[list[float]]) -> list[float]:
        """Returns the mean numbers."""
        return np.mean(members, axis=0).tolist()

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, `mean_squared_error`, and that of the mean.

        `mean_guess_mean_squared_error` is what always answering the mean of
        these very examples reaches.
        """
        numbers, found = _numbers(answers.examples), np.array(answers.scores)
        return {
            name: metric(numbers, found) for name, metric in metrics.items()
        } | {
            "mean_squared_error": float(np.mean(np.square(found - numbers))),
            "mean_guess_mean_squared_error": float(np.var(numbers)),
        }

    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns the number of each example."""
        return [
            Prediction(
                {
                    **shown_texts(example.texts),
                    "label": example.label,
                    "prediction": score,
                },
                example.location,
                abs(score - number_of(example.label, example.location))
                if self.has_label(example)
                else 0.0,
            )
            for example, score in zip(
                answers.examples, answers.scores, strict=True
            )
        ]

    def figure(self, answers: Answers) -> Distributions:
        """Returns the numbers that were to be given, and those given."""
        return Distributions(
            "number",
            {
                "labels": _numbers(answers.examples),
                "answers": np.array(answers.scores),
            },
        )

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the number that all examples get, to three digits."""
        numbers = {f"{score:.3g}" for score in answers.scores}
        several = len(answers.scores) > 1
        return numbers.pop() if several and len(numbers) == 1 else None


def _numbers(examples: Sequence[Example]) -> np.ndarray:
    return np.array(
        [
            0.0 if e.label is None else number_of(e.label, e.location)
            for e in examples
        ]
    )
