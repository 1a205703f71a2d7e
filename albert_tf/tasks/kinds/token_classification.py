"""Token classification: a tag for every word."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.config import FeatureConfig, UserError, listed, require, shown
from albert_tf.tasks.bad_rows import RowError, made_of_all
from albert_tf.tasks.class_weights import class_weights
from albert_tf.tasks.examples import WordsExample
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
    labels_table,
    scores_table,
    softmax,
)
from albert_tf.tasks.metrics.entities import (
    Tags,
    are_entity_tags,
    entity_counts,
    entity_spans,
    entity_table,
    scores_of_counts,
)
from albert_tf.tasks.metrics.scalar import accuracy, macro_f1
from albert_tf.tasks.number_labels import is_number
from albert_tf.text.tokenizer_base import Tokenizer
from albert_tf.text.words import blank_separated, finer_words

# [CLS] and [SEP].
_SPECIAL_TOKENS = 2
# Metrics of tags that are not those of entities.
_OF_TAGS = {"accuracy": accuracy, "macro_f1": macro_f1}


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
    word_spans = staticmethod(blank_separated)

    def example(self, texts: tuple[str, ...], number: int) -> WordsExample:
        """Returns the words of a text, at least one, without tags."""
        text = texts[0]
        spans = self.word_spans(text)
        require(bool(spans), f"Text {number} has no words.")
        words = tuple(text[start:end] for start, end in spans)
        return WordsExample(words, None, f"text {number}", text, tuple(spans))

    def for_model(self, config: FeatureConfig) -> "TokenClassification":
        """Returns the kind with the words of a model."""
        is_finer = config.word_boundaries == "punctuation"
        if is_finer and type(self) is TokenClassification:
            return EntityClassification()
        return self

    def texts(self, example: WordsExample) -> tuple[str, ...]:
        """Returns the sentence, a space between two words if they are all."""
        return (example.text or " ".join(example.words),)

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
            f"{shown(', '.join(tags))}; a classifier needs at least two.",
        )
        try:
            are_entity_tags(set(tags))
        except UserError as error:
            raise UserError(f"{source}: {error}") from None
        return tags

    def warnings(
        self, examples: Sequence[WordsExample], *, training: bool
    ) -> list[str]:
        """Returns those of all kinds, and on tags without names."""
        found = super().warnings(examples, training=training)
        tags = {tag for example in examples for tag in example.tags or ()}
        if training and tags and all(map(is_number, tags)):
            found.append(
                f"{listed(sorted(tags), 12)}: tags that are numbers name no "
                "entities, so that these are neither counted nor predicted; "
                "write their names, as in O, B-PER and I-PER."
            )
        return found

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
                        f", got {shown(tag)} for {shown(word)}",
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
        # Every word has at least one piece: none may get lost.
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

    def class_weighted(
        self, features: Features, labels: Sequence[str], text: str
    ) -> tuple[Features, dict[str, float]]:
        """Returns features whose `label_weights` are those of the tags."""
        ids = features.sequences["label_ids"]
        is_first = features.sequences["label_weights"]
        counts = np.bincount(ids[is_first == 1], minlength=len(labels))
        weights = class_weights(text, labels, counts)
        of_tokens = weights.astype(np.float32)[ids] * is_first
        sequences = {
            **features.sequences,
            "label_weights": of_tokens.astype(np.float32),
        }
        return (
            dataclasses.replace(features, sequences=sequences),
            dict(zip(labels, weights.tolist(), strict=True)),
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

    def exported_predictions(
        self,
        call: CallSignature,
        examples: Sequence[WordsExample],
        labels: Sequence[str],
    ) -> list[Prediction]:
        """Returns the predictions of an exported model, for its words."""
        for example in examples:
            require(
                all(len(word.split()) == 1 for word in example.words),
                f"{example.location}: an export divides words at the blanks in "
                "them; give --model_dir.",
            )
        texts = [text for (text,) in map(self.texts, examples)]
        outputs = call("words", text=texts)
        found, scores = [], []
        for example, words, row in zip(
            examples, outputs["words"], outputs["probabilities"], strict=True
        ):
            read = _read_words(example, [w.decode() for w in words if w])
            found.append(read)
            scores.append(row[: len(read.words)])
        scored = ScoredExamples(found, scores, FeatureConfig(), labels)
        return self.predictions(scored)

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of entities, or of other tags."""
        if are_entity_tags(set(labels)):
            return ("f1", "precision", "recall", "accuracy")
        return tuple(_OF_TAGS)

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics, and those of a majority-class baseline.

        Those are scores of entities and `majority_class_accuracy`, or of other
        tags accuracy and macro F1.
        """
        if not are_entity_tags(set(scored.labels)):
            return super().compute_metrics(scored, _OF_TAGS)
        counts = entity_counts(*_gold_and_predicted(scored)).sum(axis=0)
        scores = scores_of_counts(*counts)
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
        if name == "macro_f1":
            return _sampled_macro_f1(gold, predicted, scored.labels)
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
        predicted = _likeliest(scores, scored)
        probabilities = scores.max(axis=-1).tolist()
        fields: dict[str, Any] = {
            "words": list(example.words),
            "label": tags,
            "prediction": predicted,
            "probabilities": probabilities,
        }
        if example.spans:
            fields = {"text": example.text, **fields}
        if example.spans and are_entity_tags(set(scored.labels)):
            fields["entities"] = _entities(example, predicted, probabilities)
        return Prediction(fields, example.location, error)

    def table(self, scored: ScoredExamples) -> Table:
        """Returns precision, recall and F1 of each entity type, or tag."""
        if not are_entity_tags(set(scored.labels)):
            return labels_table(scored.labels, *self.gold_and_predicted(scored))
        table = entity_table(*_gold_and_predicted(scored))
        rows = {kind: list(row.values()) for kind, row in table.items()}
        return scores_table("entity", rows)


class EntityClassification(TokenClassification):
    """Entities by character offsets: words are those of `finer_words`."""

    name = "entities"
    word_spans = staticmethod(finer_words)

    def labels(self, examples: Sequence[WordsExample]) -> list[str]:
        """Returns O, and B- and I- of each type of the training examples."""
        tags = {tag for e in examples for tag in e.tags or ()} - {"O"}
        require(
            bool(tags),
            f"{examples[0].location} and what follows: no training example "
            "has an entity.",
        )
        types = {tag.partition("-")[2] for tag in tags}
        prefixed = (f"{prefix}-{name}" for prefix in "BI" for name in types)
        return [*sorted(prefixed), "O"]

    def config_to_save(
        self, config: FeatureConfig, metrics: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the settings with the words of these examples."""
        config = super().config_to_save(config, metrics)
        return dataclasses.replace(config, word_boundaries="punctuation")


def _read_words(example: WordsExample, words: list[str]) -> WordsExample:
    """Returns the example with the words that an export reads in its text."""
    if not example.spans:
        return _all_read(example, len(words), len(example.words))
    spans, end = [], 0
    for word in words:
        start = example.text.find(word, end)
        if start < 0:
            # Cut off within a character.
            break
        end = start + len(word)
        spans.append((start, end))
    left = len(example.text[end:].split())
    known = tuple(words[: len(spans)])
    found = dataclasses.replace(example, words=known, spans=tuple(spans))
    return _all_read(found, len(spans), len(spans) + left)


def _all_read(example: WordsExample, found: int, expected: int) -> WordsExample:
    require(
        found == expected,
        f"{example.location}: an export reads the first {found} of these "
        f"{expected} words; divide the text, or give --model_dir.",
    )
    return example


def _entities(
    example: WordsExample, tags: list[str], probabilities: list[float]
) -> list[dict[str, Any]]:
    """Returns the entities in a text; a score is the mean of its words'."""
    found = []
    for first, after, label in entity_spans(tags):
        start, end = example.spans[first][0], example.spans[after - 1][1]
        found.append(
            {
                "start": start,
                "end": end,
                "text": example.text[start:end],
                "label": label,
                "score": float(np.mean(probabilities[first:after])),
            }
        )
    return found


def _likeliest(scores: np.ndarray, scored: ScoredExamples) -> list[str]:
    return [scored.labels[number] for number in scores.argmax(axis=-1)]


def _sampled_macro_f1(
    gold: Tags, predicted: Tags, labels: Sequence[str]
) -> SampledMetric:
    """Returns the mean F1 of the tags that occur in sentences."""
    ids = {label: number for number, label in enumerate(labels)}
    # By sentence and tag: right, predicted or gold.
    counts = np.zeros((len(gold), len(labels), 2), np.int64)
    for number, tags in enumerate(zip(gold, predicted, strict=True)):
        for right, likeliest in zip(*tags, strict=True):
            counts[number, ids[right]] += (right == likeliest, 1)
            counts[number, ids[likeliest], 1] += 1

    def mean(rows: np.ndarray) -> float:
        right, both = counts[rows].sum(axis=0).T
        return float(np.mean(2 * right[both > 0] / both[both > 0]))

    return mean


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
