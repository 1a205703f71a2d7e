"""Token classification: a tag for every word."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, UserError, require
from albert_tf.tasks.bad_rows import RowError, made_of_all
from albert_tf.tasks.examples import WordsExample, listed
from albert_tf.tasks.features import Features, flat
from albert_tf.tasks.kinds.base import (
    CallSignature,
    Metric,
    Outputs,
    Prediction,
    SampledMetric,
    ScoredExamples,
    Table,
)
from albert_tf.tasks.kinds.classification import (
    ClassKind,
    class_error,
    scores_table,
    softmax,
)
from albert_tf.tasks.metrics.entities import (
    Tags,
    are_entity_tags,
    entity_counts,
    entity_scores,
    entity_table,
    scores_of_counts,
)
from albert_tf.tasks.metrics.scalar import accuracy
from albert_tf.text.tokenizer_base import Tokenizer

# [CLS] and [SEP].
_SPECIAL_TOKENS = 2


class TokenClassification(ClassKind):
    """A tag for every word, predicted at its first sub-token.

    A sentence that is too long becomes several rows, split between words.
    """

    name = "token classification"
    head = "token_classification"
    labelled = True
    exported = ("words", "probabilities")
    example_type = WordsExample
    text_counts = range(1, 2)
    text_format = "one string, of words with blanks between them"

    def example(self, texts: tuple[str, ...], number: int) -> WordsExample:
        """Returns the words of a text, at least one, without tags."""
        words = texts[0].split()
        require(bool(words), f"Text {number} has no words.")
        return WordsExample(tuple(words), None, f"text {number}")

    def texts(self, example: WordsExample) -> tuple[str, ...]:
        """Returns the sentence, with a space between two words."""
        return (" ".join(example.words),)

    def has_label(self, example: WordsExample) -> bool:
        """Returns whether the tags are known."""
        return example.tags is not None

    def labels(self, examples: Sequence[WordsExample]) -> list[str]:
        """Returns the tags that occur, sorted: two at least, of one scheme."""
        tags = sorted({tag for e in examples for tag in e.tags or ()})
        source = f"{examples[0].location} and what follows"
        require(
            len(tags) > 1,
            f"{source}: the training examples have one tag only, "
            f"{', '.join(tags)!r}; a classifier needs at least two.",
        )
        try:
            are_entity_tags(set(tags))
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
        return tags

    def label_ids(
        self, examples: Sequence[WordsExample], labels: Sequence[str]
    ) -> np.ndarray:
        """Returns the ids of the tags, int32 `[words of all examples]`."""
        ids = {label: number for number, label in enumerate(labels)}

        def tag_ids(example: WordsExample) -> list[int]:
            if example.tags is None:
                return [0] * len(example.words)
            for word, tag in zip(example.words, example.tags, strict=True):
                if tag not in ids:
                    raise RowError(
                        example.location,
                        f"expected one of {listed(labels, 12)} as the tag",
                        f", got {tag[:60]!r} for {word[:60]!r}",
                    )
            return [ids[tag] for tag in example.tags]

        found = itertools.chain(*made_of_all(tag_ids, examples))
        return np.array(list(found), np.int32)

    def check_labels(
        self, examples: Sequence[WordsExample], labels: Sequence[str]
    ) -> None:
        """Raises UserError for tags that are not the model's."""
        self.label_ids(examples, labels)

    def features(
        self,
        examples: Sequence[WordsExample],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns rows of words, each word in one row, in their order.

        `label_weights` are 1 at each word's first sub-token and 0 elsewhere.
        """
        distinct = list(dict.fromkeys(w for e in examples for w in e.words))
        # At least one piece each: no word may get lost.
        pieces = {
            word: ids or [tokenizer.unk_id]
            for word, ids in zip(
                distinct, tokenizer.encode_batch(distinct), strict=True
            )
        }
        room = config.max_seq_length - _SPECIAL_TOKENS
        input_ids, label_weights = [], []
        example_numbers, truncated = [], []
        for number, example in enumerate(examples):
            words = [pieces[word] for word in example.words]
            if any(len(ids) > room for ids in words):
                truncated.append(number)
            for row in _rows([ids[:room] for ids in words], room):
                ids, weights = [tokenizer.cls_id], [0]
                for word in row:
                    ids += word
                    weights += [1, *[0] * (len(word) - 1)]
                input_ids.append([*ids, tokenizer.sep_id])
                label_weights.append([*weights, 0])
                example_numbers.append(number)
        tokens, offsets = flat(input_ids)
        is_first, _ = flat(label_weights)
        label_ids = np.zeros_like(tokens)
        label_ids[is_first == 1] = self.label_ids(examples, labels)
        return Features(
            sequences={
                "input_ids": tokens,
                "segment_ids": np.zeros_like(tokens),
                "label_ids": label_ids,
                "label_weights": is_first,
            },
            offsets=offsets,
            scalars={},
            padding={"input_ids": tokenizer.pad_id},
            example_numbers=np.array(example_numbers, np.int64),
            truncated=truncated,
        )

    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[np.ndarray]:
        """Returns each word's probabilities, float32 `[words, labels]`."""

        def probabilities(row: int) -> np.ndarray:
            firsts = np.flatnonzero(features.row(row, "label_weights"))
            logits = outputs["logits"][row][firsts].astype(np.float64)
            return softmax(logits / config.temperature).astype(np.float32)

        return [
            np.concatenate([probabilities(row) for row in rows])
            for rows in features.rows_of_examples()
        ]

    def exported_scores(
        self, call: CallSignature, examples: Sequence[WordsExample]
    ) -> list[np.ndarray]:
        """Returns each word's probabilities from an exported model."""
        outputs = call("words", text=[" ".join(e.words) for e in examples])
        scores = []
        for example, words, row in zip(
            examples, outputs["words"], outputs["probabilities"], strict=True
        ):
            expected, found = len(example.words), np.count_nonzero(words)
            require(
                found == expected,
                f"{example.location}: an export reads the first {found} of "
                f"these {expected} words; divide the text, or give "
                "--model_dir.",
            )
            scores.append(row[:expected])
        return scores

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of entities, or accuracy for other tags."""
        if are_entity_tags(set(labels)):
            return ("f1", "precision", "recall", "accuracy")
        return ("accuracy",)

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns `entity_scores`, and `majority_class_accuracy`."""
        scores = entity_scores(*_gold_and_predicted(scored))
        return scores | super().compute_metrics(scored, {"accuracy": accuracy})

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns a metric as a function of the numbers of sentences."""
        gold, predicted = _gold_and_predicted(scored)
        if name == "accuracy":
            right = [
                [a == b for a, b in zip(*tags, strict=True)]
                for tags in zip(gold, predicted, strict=True)
            ]
            counts = np.array([(sum(row), len(row)) for row in right])
            return lambda rows: float(np.divide(*counts[rows].sum(axis=0)))
        counts = entity_counts(gold, predicted)
        return lambda rows: scores_of_counts(*counts[rows].sum(axis=0))[name]

    def _prediction(
        self, example: WordsExample, scores: np.ndarray, scored: ScoredExamples
    ) -> Prediction:
        tags, error = None, 0.0
        if example.tags is not None:
            tags = list(example.tags)
            label_ids = self.label_ids([example], scored.labels)
            # The largest error of a word.
            error = max(map(class_error, scores, label_ids))
        fields = {
            "words": list(example.words),
            "label": tags,
            "prediction": _likeliest(scores, scored),
            "probabilities": scores.max(axis=-1).tolist(),
        }
        return Prediction(fields, example.location, error)

    def table(self, scored: ScoredExamples) -> Table | None:
        """Returns precision, recall and F1 of each entity type."""
        if not are_entity_tags(set(scored.labels)):
            return None
        table = entity_table(*_gold_and_predicted(scored))
        rows = {kind: list(row.values()) for kind, row in table.items()}
        return scores_table("entity", rows)


def _likeliest(scores: np.ndarray, scored: ScoredExamples) -> list[str]:
    return [scored.labels[number] for number in scores.argmax(axis=-1)]


def _gold_and_predicted(scored: ScoredExamples) -> tuple[Tags, Tags]:
    gold = [example.tags for example in scored.examples]
    return gold, [_likeliest(row, scored) for row in scored.scores]


def _rows(words: Sequence[list[int]], room: int) -> Iterator[list[list[int]]]:
    """Yields the words of each row, as many as there is room for."""
    row: list[list[int]] = []
    used = 0
    for word in words:
        if used + len(word) > room:
            yield row
            row, used = [], 0
        row.append(word)
        used += len(word)
    yield row
