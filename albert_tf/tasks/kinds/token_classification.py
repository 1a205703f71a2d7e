"""A tag for every word: words in pieces, and what is said of the first."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.features import Features, flat
from albert_tf.tasks.formats.conll import (
    are_of_entities,
    entity_scores,
    entity_table,
)
from albert_tf.tasks.kinds.base import (
    Answers,
    Figure,
    Kind,
    Metric,
    Prediction,
    Table,
)
from albert_tf.tasks.kinds.classes import (
    class_error,
    class_figure,
    constant_class,
    listed,
    softmax,
)
from albert_tf.text.tokenizer_base import Tokenizer

# [CLS] and [SEP].
_FRAME = 2
_NO_WORD = -1


class TokenClassification(Kind):
    """The tag of a word is said at its first piece; the others do not count.

    A sentence that is too long is several rows, cut between words.
    """

    name = "token classification"
    head = "token_classification"
    labelled = True
    example_type = WordsExample
    text_counts = range(1, 2)
    takes = "one string, of words with blanks between them"

    def example(self, texts: tuple[str, ...], number: int) -> WordsExample:
        """Returns the words of a text, without tags.

        Raises:
            UserError: when there is none.
        """
        words = texts[0].split()
        if not words:
            raise UserError(f"Text {number} has no words.")
        return WordsExample(tuple(words), None, f"text {number}")

    def labels(self, examples: Sequence[WordsExample]) -> list[str]:
        """Returns the tags that occur, sorted.

        Raises:
            UserError: when there is one only, and when only some are of
                entities.
        """
        tags = sorted({tag for e in examples for tag in e.tags or ()})
        if len(tags) < 2:
            raise UserError(
                f"{examples[0].location} and what follows: the training "
                f"examples have one tag only, {', '.join(tags)!r}; a "
                "classifier needs at least two."
            )
        try:
            are_of_entities(set(tags))
        except UserError as error:
            place = examples[0].location
            raise UserError(f"{place} and what follows: {error}") from None
        return tags

    def has_label(self, example: WordsExample) -> bool:
        """Returns whether the file tells the tags."""
        return example.tags is not None

    def features(
        self,
        examples: Sequence[WordsExample],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str],
        training: bool,
    ) -> Features:
        """Returns rows of words.

        Sequences are `input_ids`, `segment_ids`, `label_ids` and
        `label_weights`, 1 at the first piece of each word and else 0. For
        `scores` there is `word_numbers`, the word's number there, else -1.

        Raises:
            UserError: naming the place, for a tag that is not of `labels`.
        """
        pieces = _pieces_of_words(examples, tokenizer)
        window = config.max_seq_length - _FRAME
        input_ids, label_ids, word_numbers, example_numbers = [], [], [], []
        cut = []
        for number, example in enumerate(examples):
            tags = _tag_numbers(example, labels)
            words = [pieces[word][:window] for word in example.words]
            if any(len(pieces[word]) > window for word in example.words):
                cut.append(number)
            for start, end in _rows(list(map(len, words)), window):
                row = words[start:end]
                input_ids.append(
                    [
                        tokenizer.cls_id,
                        *itertools.chain.from_iterable(row),
                        tokenizer.sep_id,
                    ]
                )
                label_ids.append(_at_first_pieces(row, tags[start:end], 0))
                word_numbers.append(
                    _at_first_pieces(row, range(start, end), _NO_WORD)
                )
                example_numbers.append(number)
        tokens, offsets = flat(input_ids)
        numbers, _ = flat(word_numbers)
        return Features(
            sequences={
                "input_ids": tokens,
                "segment_ids": np.zeros_like(tokens),
                "label_ids": flat(label_ids)[0],
                "label_weights": (numbers != _NO_WORD).astype(np.int32),
            },
            offsets=offsets,
            scalars={},
            padding={
                "input_ids": tokenizer.pad_id,
                "segment_ids": 0,
                "label_ids": 0,
                "label_weights": 0,
            },
            example_numbers=np.array(example_numbers, np.int64),
            decoding={} if training else {"word_numbers": numbers},
            cut=cut,
        )

    def scores(
        self,
        examples: Sequence[WordsExample],
        features: Features,
        outputs: Mapping[str, Sequence[np.ndarray]],
        config: FeatureConfig,
    ) -> list[np.ndarray]:
        """Returns each word's probabilities, float32 `[words, labels]`.

        `outputs` has `logits`, `[seq, labels]` of each row.
        """
        logits = outputs["logits"]
        found = [
            np.zeros((len(example.words), logits[0].shape[-1]), np.float32)
            for example in examples
        ]
        for row, number in enumerate(features.example_numbers):
            words = features.row(row, "word_numbers")
            firsts = np.flatnonzero(words != _NO_WORD)
            found[number][words[firsts]] = softmax(logits[row][firsts])
        return found

    def ensemble(self, members: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """Returns the mean probabilities of each word."""
        return [
            np.mean(models, axis=0) for models in zip(*members, strict=True)
        ]

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns `entity_scores`, and `majority_class_accuracy`.

        The latter is what always answering the tag that is most frequent in
        these very examples reaches.
        """
        gold = [example.tags for example in answers.examples]
        found = _all_likeliest(answers)
        counts = Counter(itertools.chain.from_iterable(gold))
        guess = max(counts.values()) / counts.total()
        return entity_scores(gold, found) | {"majority_class_accuracy": guess}

    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns the likeliest tag of each word, and how likely it is."""
        return [
            Prediction(
                {
                    "words": list(example.words),
                    "label": None
                    if example.tags is None
                    else list(example.tags),
                    "prediction": likeliest,
                    "probabilities": words.max(axis=-1).tolist(),
                },
                example.location,
                _error(example, words, answers.labels),
            )
            for example, words, likeliest in zip(
                answers.examples,
                answers.scores,
                _all_likeliest(answers),
                strict=True,
            )
        ]

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of entities, or accuracy where tags are of none."""
        if are_of_entities(set(labels)):
            return ("f1", "precision", "recall", "accuracy")
        return ("accuracy",)

    def table(self, answers: Answers) -> Table | None:
        """Returns precision, recall and F1 of each kind of entity."""
        if not are_of_entities(set(answers.labels)):
            return None
        gold = [example.tags for example in answers.examples]
        rows = entity_table(gold, _all_likeliest(answers))
        names = ["precision", "recall", "f1"]
        return Table(
            ["entity", *names, "examples"],
            [
                [kind, *(f"{row[n]:.4f}" for n in names), str(row["support"])]
                for kind, row in rows.items()
            ],
        )

    def figure(self, answers: Answers) -> Figure:
        """Returns which tags were given for which."""
        labels = answers.labels
        gold = [n for e in answers.examples for n in _tag_numbers(e, labels)]
        words = np.concatenate(answers.scores)
        return class_figure(np.array(gold), words, labels)

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns the tag that all words get."""
        return constant_class(
            list(np.concatenate(answers.scores)), answers.labels
        )


def _all_likeliest(answers: Answers) -> list[list[str]]:
    """Returns the likeliest tag of each word of each example."""
    return [
        [answers.labels[number] for number in words.argmax(axis=-1)]
        for words in answers.scores
    ]


def _error(
    example: WordsExample, words: np.ndarray, labels: Sequence[str]
) -> float:
    """Returns that of the word which is most in error."""
    if example.tags is None:
        return 0.0
    numbers = _tag_numbers(example, labels)
    return max(map(class_error, words, numbers), default=0.0)


def _pieces_of_words(
    examples: Sequence[WordsExample], tokenizer: Tokenizer
) -> dict[str, list[int]]:
    """Returns the ids of each word, one at least: none may get lost."""
    words = list(dict.fromkeys(word for e in examples for word in e.words))
    ids = tokenizer.encode_batch(words)
    return {
        word: pieces or [tokenizer.unk_id]
        for word, pieces in zip(words, ids, strict=True)
    }


def _tag_numbers(example: WordsExample, labels: Sequence[str]) -> list[int]:
    if example.tags is None:
        return [0] * len(example.words)
    numbers = {label: number for number, label in enumerate(labels)}
    for word, tag in zip(example.words, example.tags, strict=True):
        if tag not in numbers:
            raise UserError(
                f"{example.location}: the tag of {word[:60]!r} is "
                f"{tag[:60]!r}; the model's labels are {listed(labels)}."
            )
    return [numbers[tag] for tag in example.tags]


def _rows(lengths: Sequence[int], window: int) -> Iterator[tuple[int, int]]:
    """Yields the first word, and that after the last, of each row."""
    start = used = 0
    for word, length in enumerate(lengths):
        if used + length > window:
            yield start, word
            start, used = word, 0
        used += length
    yield start, len(lengths)


def _at_first_pieces(
    words: Sequence[Sequence[int]], values: Sequence[int], other: int
) -> list[int]:
    """Returns a value for each token of a row: a word's at its first piece."""
    row = [other]
    for pieces, value in zip(words, values, strict=True):
        row += [value, *[other] * (len(pieces) - 1)]
    return [*row, other]
