"""The kinds whose answers are cut from a paragraph: SQuAD 1.1 and 2.0."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from albert_tf.config import FeatureConfig, UserError
from albert_tf.tasks.examples import Question
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import span_answers
from albert_tf.tasks.kinds.answer_offsets import check_answers
from albert_tf.tasks.kinds.base import (
    Answers,
    Distributions,
    Kind,
    Metric,
    Prediction,
)
from albert_tf.tasks.kinds.span_answers import QuestionScores
from albert_tf.tasks.kinds.span_windows import (
    IN_NO_WINDOW,
    NOT_OF_TOKENS,
    window_features,
)
from albert_tf.tasks.metrics.squad import scores_v2, token_f1
from albert_tf.text.tokenizer_base import Tokenizer

_Outputs = Mapping[str, Sequence[np.ndarray]]
# First tokens and last tokens of a row, and a score: shapes that broadcast.
_Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


class Spans(Kind):
    """Every question has an answer (SQuAD 1.1); examples are `Question`s."""

    name = "questions"
    head = "span"
    example_type = Question
    text_counts = range(2, 3)
    takes = (
        "two strings, a question and its paragraph (on a line, with a tab "
        "between them)"
    )
    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "segment_ids")
    targets: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def example(self, texts: tuple[str, ...], number: int) -> Question:
        """Returns the question on a paragraph, without answers."""
        return Question(str(number), *texts, None, f"text {number}")

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of the official script, F1 first."""
        return ("f1", "exact_match")

    def has_label(self, example: Question) -> bool:
        """Returns whether the file tells an answer."""
        return bool(example.answers)

    def warnings(
        self, examples: Sequence[Question], *, training: bool
    ) -> list[str]:
        """Returns how many gold answers are not where the file says.

        Raises:
            UserError: in training, for answers not in their paragraph.
        """
        found = check_answers(examples)
        if training:
            found.refuse_missing()
        return found.warnings()

    def feature_warnings(
        self,
        examples: Sequence[Question],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns how many gold answers no prediction matches, and why."""
        lengths = np.array(features.answer_lengths)
        longest = config.max_answer_length
        missed = (lengths < 0) | (lengths > longest)
        if not missed.any():
            return []
        reasons = []
        too_long = np.sum(lengths > longest)
        if too_long:
            enough, share = lengths.max(), "all"
            most = np.quantile(
                lengths[lengths > 0], 0.99, method="inverted_cdf"
            )
            if most > longest:
                enough, share = most, "99 %"
            reasons.append(
                f"{too_long} longer than max_answer_length={longest} tokens "
                f"(max_answer_length={enough} has room for {share})"
            )
        for code, what in (
            (
                IN_NO_WINDOW,
                "whole in no window that predicts from their first token "
                f"(max_seq_length={config.max_seq_length}, "
                f"doc_stride={config.doc_stride})",
            ),
            (NOT_OF_TOKENS, "not in the paragraph, or a part of a token"),
        ):
            if code in lengths:
                reasons.append(f"{np.sum(lengths == code)} {what}")
        number, answered = missed.sum(), np.count_nonzero(lengths)
        first = examples[missed.argmax()].location
        return [
            f"{number} of {answered} gold answers ({number / answered:.2%}) "
            f"cannot be predicted, the first {first}: {'; '.join(reasons)}."
        ]

    def features(
        self,
        examples: Sequence[Question],
        tokenizer: Tokenizer,
        config: FeatureConfig,
        *,
        labels: Sequence[str] = (),
        training: bool,
    ) -> Features:
        """Returns the windows of questions (`window_features`).

        The label is the first of several gold answers.

        Raises:
            UserError: when lengths do not fit; in training, for questions
                whose answer is not told or not in their paragraph.
        """
        answers = check_answers(examples)
        if training:
            for question in examples:
                self._check_label(question)
            answers.refuse_missing()
        features = window_features(
            examples, tokenizer, config, answers.spans, decoding=not training
        )
        return dataclasses.replace(
            features,
            sequences={n: features.sequences[n] for n in self.inputs},
            padding={n: features.padding[n] for n in self.inputs},
            scalars={n: features.scalars[n] for n in self.targets},
        )

    def _check_label(self, question: Question) -> None:
        if not question.answers:
            raise UserError(
                f"{question.location} has no answer; train on such files with "
                "the task of SQuAD 2.0, which knows questions without one."
            )

    def scores(
        self,
        examples: Sequence[Question],
        features: Features,
        outputs: _Outputs,
        config: FeatureConfig,
    ) -> list[QuestionScores]:
        """Returns the best spans of each question, of all its windows.

        A span starts in the window that has most around its start
        (`max_context`), and is of max_answer_length tokens at most; there are
        n_best_size at most.
        """
        rows: list[list[int]] = [[] for _ in examples]
        for row, number in enumerate(features.example_numbers.tolist()):
            rows[number].append(row)
        return [self._scores(own, features, outputs, config) for own in rows]

    def _scores(
        self,
        rows: Sequence[int],
        features: Features,
        outputs: _Outputs,
        config: FeatureConfig,
    ) -> QuestionScores:
        spans = [
            _characters(
                self._pairs(row, features, outputs, config),
                row,
                features,
                config,
            )
            for row in rows
        ]
        starts, ends, scores = map(np.concatenate, zip(*spans, strict=True))
        return QuestionScores(
            span_answers.best_spans(starts, ends, scores, config.n_best_size),
            self._no_answer(rows, outputs),
        )

    def _pairs(
        self,
        row: int,
        features: Features,
        outputs: _Outputs,
        config: FeatureConfig,
    ) -> _Pairs:
        """Returns the n_best_size best starts by as many best ends."""
        # How much padding there is depends on the batch.
        length = len(features.row(row, "input_ids"))
        count = min(config.n_best_size, length)
        starts = outputs["start_logits"][row][:length].astype(np.float64)
        ends = outputs["end_logits"][row][:length].astype(np.float64)
        first = np.argpartition(starts, -count)[-count:, None]
        last = np.argpartition(ends, -count)[-count:]
        return first, last, starts[first] + ends[last]

    def _no_answer(
        self, rows: Sequence[int], outputs: _Outputs
    ) -> float | None:
        return None

    def ensemble(
        self, members: Sequence[list[QuestionScores]]
    ) -> list[QuestionScores]:
        """Returns the mean of what several models say (`ensemble_scores`)."""
        return [
            span_answers.ensemble_scores(of_question)
            for of_question in zip(*members, strict=True)
        ]

    def compute_metrics(
        self, answers: Answers, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the measures of the official script, in percent."""
        return span_answers.compute_metrics(
            answers.examples, answers.scores, answers.config.null_threshold
        )

    def predictions(self, answers: Answers) -> list[Prediction]:
        """Returns the answer to each question, "" where there is none.

        The error is 1 - F1, times the probability of the answer.
        """
        return [
            _prediction(question, row, answers.config.null_threshold)
            for question, row in zip(
                answers.examples, answers.scores, strict=True
            )
        ]

    def figure(self, answers: Answers) -> Distributions:
        """Returns how sure the model is of answers, by how right they are."""
        groups: dict[str, list[float]] = {
            "right": [],
            "in part": [],
            "wrong": [],
        }
        for question, row in zip(answers.examples, answers.scores, strict=True):
            entries = span_answers.likeliest(question, row)
            if not entries:
                continue
            golds = [answer.text for answer in question.answers]
            f1 = max(token_f1(gold, entries[0]["text"]) for gold in golds)
            name = "right" if f1 == 1 else "in part" if f1 else "wrong"
            groups[name].append(entries[0]["probability"])
        return Distributions(
            "probability of the answer",
            {name: np.array(values) for name, values in groups.items()},
        )

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns None: answers are of their paragraphs."""
        return None


class AnswerableSpans(Spans):
    """A question may have no answer (SQuAD 2.0); examples are `Question`s."""

    name = "questions that may have no answer"
    head = "answerable_span"
    inputs = (*Spans.inputs, "p_mask")
    targets = (*Spans.targets, "is_impossible")

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of the official script, F1 first."""
        return ("f1", "exact", "best_f1")

    def has_label(self, example: Question) -> bool:
        """Returns whether the file tells the answers, or that there is none."""
        return example.answers is not None

    def config_to_save(
        self, config: FeatureConfig, measures: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the threshold that gave the best F1 on what was measured."""
        return dataclasses.replace(
            config, null_threshold=measures["best_f1_thresh"]
        )

    def _check_label(self, question: Question) -> None:
        if question.answers is None:
            raise UserError(
                f"{question.location} does not tell its answers, nor that "
                "there are none; it cannot be trained on."
            )

    def _pairs(
        self,
        row: int,
        features: Features,
        outputs: _Outputs,
        config: FeatureConfig,
    ) -> _Pairs:
        """Returns the beams of the head."""
        first = outputs["start_top_log_probs"][row][:, None]
        last = outputs["end_top_log_probs"][row]
        return (
            outputs["start_top_positions"][row][:, None],
            outputs["end_top_positions"][row],
            first.astype(np.float64) + last,
        )

    def figure(self, answers: Answers) -> Distributions:
        """Returns the scores of there being no answer, where there is one."""
        odds = np.array([row.no_answer for row in answers.scores])
        has_answer = np.array([bool(q.answers) for q in answers.examples])
        return Distributions(
            "score of there being no answer",
            {"with an answer": odds[has_answer], "without": odds[~has_answer]},
        )

    def constant_prediction(self, answers: Answers) -> str | None:
        """Returns "no answer" where no question gets one."""
        threshold = answers.config.null_threshold
        if len(answers.scores) > 1 and all(
            span_answers.is_unanswered(row, threshold) for row in answers.scores
        ):
            return "no answer"
        return None

    def _no_answer(self, rows: Sequence[int], outputs: _Outputs) -> float:
        # Where one window has an answer the paragraph has one.
        return float(min(outputs["unanswerable_logits"][row] for row in rows))


def _characters(
    pairs: _Pairs, row: int, features: Features, config: FeatureConfig
) -> _Pairs:
    """Returns first characters, those after the last, and scores `[spans]`,
    of the pairs that can be an answer."""
    first, last, scores = (
        values.ravel() for values in np.broadcast_arrays(*pairs)
    )
    starts, ends, max_context = (
        features.row(row, name)
        for name in ("char_starts", "char_ends", "max_context")
    )
    kept = np.flatnonzero(
        (first <= last)
        & (last - first < config.max_answer_length)
        # Beams may be in the padding.
        & (last < len(starts))
    )
    kept = kept[max_context[first[kept]] == 1]
    starts, ends = starts[first[kept]], ends[last[kept]]
    # Not white space alone, nor up to the last [SEP], which ends at -1.
    visible = starts < ends
    return starts[visible], ends[visible], scores[kept][visible]


def _prediction(
    question: Question, scores: QuestionScores, null_threshold: float
) -> Prediction:
    (answer,) = span_answers.predictions(
        [question], [scores], null_threshold
    ).values()
    entries = span_answers.likeliest(question, scores)
    probability = {e["text"]: e["probability"] for e in entries}.get(answer, 1)
    fields = {
        "id": question.id,
        "question": question.question,
        "context": question.context,
        "prediction": answer,
        "probability": probability,
    }
    error = 0.0
    if question.answers is not None:
        fields["answers"] = [gold.text for gold in question.answers]
        f1 = scores_v2([question], {question.id: answer})["f1"] / 100
        error = probability * (1 - f1)
    return Prediction(fields, question.location, error)
