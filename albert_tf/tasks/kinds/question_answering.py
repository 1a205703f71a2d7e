"""Extractive question answering, as in SQuAD 1.1 and 2.0."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from albert_tf.config import FeatureConfig, UserError, listed
from albert_tf.tasks.examples import Question
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import span_answers
from albert_tf.tasks.kinds.base import (
    CallSignature,
    Distributions,
    Kind,
    Metric,
    Outputs,
    Prediction,
    SampledMetric,
    ScoredExamples,
)
from albert_tf.tasks.kinds.span_answers import QuestionScores
from albert_tf.tasks.kinds.span_windows import find_answers, window_features
from albert_tf.tasks.metrics.squad import answer_scores, token_f1
from albert_tf.text.tokenizer_base import Tokenizer

# First tokens and last tokens of a row, and a score: shapes that broadcast.
_Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


class Spans(Kind):
    """Every question has an answer (SQuAD 1.1); examples are `Question`s."""

    name = "questions"
    head = "span"
    example_type = Question
    text_counts = range(2, 3)
    text_format = (
        "two strings, a question and its paragraph (on a line, with a tab "
        "between them)"
    )
    without_label: ClassVar[str] = (
        "has no answer (--task=SQuAD2.0 takes such questions)"
    )
    lengths = ("max_query_length", "doc_stride")
    extra_metrics: ClassVar[tuple[str, ...]] = ("f1", "exact_match")
    exported = ("question", "answer")
    inputs: ClassVar[tuple[str, ...]] = ("input_ids", "segment_ids")
    targets: ClassVar[tuple[str, ...]] = ("start_positions", "end_positions")

    def example(self, texts: tuple[str, ...], number: int) -> Question:
        """Returns the unlabelled question on a paragraph."""
        question, context = texts
        return Question(str(number), question, context, None, f"text {number}")

    def texts(self, example: Question) -> tuple[str, ...]:
        """Returns the question and the paragraph."""
        return example.question, example.context

    def metric_names(
        self, metrics: Mapping[str, Metric], labels: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns those of the official script, F1 first."""
        return self.extra_metrics

    def has_label(self, example: Question) -> bool:
        """Returns whether an answer is known."""
        return bool(example.answers)

    def warnings(
        self, examples: Sequence[Question], *, training: bool
    ) -> list[str]:
        """Returns warnings on empty texts and answers with wrong offsets."""
        _, moved, missing = find_answers(examples)
        if training and missing:
            raise UserError(
                f"The answers of {len(missing)} questions are not in their "
                f"paragraphs: {listed(missing, longest=None)}; correct these "
                "answers or remove the questions before training."
            )
        empty = [
            example.location
            for example in examples
            if not (example.question.strip() and example.context.strip())
        ]
        problems = {
            "no text, or none in their paragraph": empty,
            "an answer that is not at its answer_start; its nearest occurrence "
            "is used, also with other case, accents or spaces": moved,
            "an answer that is not in the paragraph": missing,
        }
        return [
            f"{len(locations)} questions have {what}: "
            f"{listed(locations, longest=None)}."
            for what, locations in problems.items()
            if locations
        ]

    def feature_warnings(
        self,
        examples: Sequence[Question],
        features: Features,
        config: FeatureConfig,
    ) -> list[str]:
        """Returns a warning on gold answers that cannot be predicted."""
        lengths = np.array(features.answer_lengths)
        longest = config.max_answer_length
        missed = (lengths < 0) | (lengths > longest)
        if not missed.any():
            return []
        reasons = []
        if too_long := np.sum(lengths > longest):
            known = lengths[lengths > 0]
            enough = np.quantile(known, 0.99, method="inverted_cdf")
            reasons.append(
                f"{too_long} longer than max_answer_length={longest} tokens "
                f"({max(enough, longest)} has room for 99 %)"
            )
        if others := np.sum(lengths < 0):
            reasons.append(
                f"{others} not of whole tokens, or whole in no window that "
                "predicts from their first token "
                f"(max_seq_length={config.max_seq_length}, "
                f"doc_stride={config.doc_stride}; fine-tuning with a lower "
                "--doc_stride or a longer --max_seq_length has more of them)"
            )
        number, answered = missed.sum(), np.count_nonzero(lengths)
        first = examples[int(missed.argmax())].location
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
        """
        for question in examples:
            if training and not self.has_label(question):
                raise UserError(
                    f"{question.location} has no gold answer; expected some as "
                    "'answers', or [] for SQuAD 2.0's questions without one."
                )
        return window_features(
            examples,
            tokenizer,
            config,
            find_answers(examples)[0],
            inputs=self.inputs,
            targets=self.targets,
            decoding=not training,
        )

    def scores(
        self, features: Features, outputs: Outputs, config: FeatureConfig
    ) -> list[QuestionScores]:
        """Returns the n_best_size best spans of each question's windows.

        A span of at most max_answer_length tokens counts in the window with
        the most context around its start (`max_context`).
        """
        found = []
        for rows in features.rows_of_examples():
            spans = [
                self._spans(features, outputs, row, config) for row in rows
            ]
            starts, ends, scores = map(np.concatenate, zip(*spans, strict=True))
            count = config.n_best_size
            best = span_answers.best_spans(starts, ends, scores, count)
            no_answer = None
            if "unanswerable_logits" in outputs:
                # Where one window has an answer the paragraph has one.
                logits = outputs["unanswerable_logits"]
                no_answer = float(min(logits[row] for row in rows))
            found.append(QuestionScores(best, no_answer))
        return found

    def _spans(
        self,
        features: Features,
        outputs: Outputs,
        row: int,
        config: FeatureConfig,
    ) -> _Pairs:
        """Returns the spans of a window that can be an answer.

        First characters, those after the last, and scores, `[spans]`.
        """
        starts, ends, max_context = (
            features.row(row, name)
            for name in ("char_starts", "char_ends", "max_context")
        )
        of_row = {name: values[row] for name, values in outputs.items()}
        pairs = self._pairs(of_row, len(starts), config.n_best_size)
        first, last, scores = map(np.ravel, np.broadcast_arrays(*pairs))
        valid = np.flatnonzero(
            (first <= last)
            & (last - first < config.max_answer_length)
            # Beams may be in the padding.
            & (last < len(starts))
        )
        valid = valid[max_context[first[valid]] == 1]
        starts, ends = starts[first[valid]], ends[last[valid]]
        # White space is no answer, nor is a span up to the last [SEP] (-1).
        visible = starts < ends
        return starts[visible], ends[visible], scores[valid][visible]

    def _pairs(
        self, outputs: Mapping[str, np.ndarray], length: int, count: int
    ) -> _Pairs:
        """Returns the `count` best starts by as many best ends.

        Of a row of `length` tokens; the rest is padding.
        """
        count = min(count, length)
        starts = outputs["start_logits"][:length].astype(np.float64)
        ends = outputs["end_logits"][:length].astype(np.float64)
        first = np.argpartition(starts, -count)[-count:, None]
        last = np.argpartition(ends, -count)[-count:]
        return first, last, starts[first] + ends[last]

    def ensemble(
        self, members: Sequence[Sequence[QuestionScores]]
    ) -> list[QuestionScores]:
        """Returns the mean scores of several models (`ensemble_scores`)."""
        rows = zip(*members, strict=True)
        return [span_answers.ensemble_scores(row) for row in rows]

    def compute_metrics(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric]
    ) -> dict[str, float]:
        """Returns the metrics of the official script, in percent."""
        return span_answers.compute_metrics(
            scored.examples, scored.scores, scored.config.null_threshold
        )

    def sampled_metric(
        self, scored: ScoredExamples, metrics: Mapping[str, Metric], name: str
    ) -> SampledMetric | None:
        """Returns the mean of the questions' exact match or F1."""
        if name not in ("exact_match", "exact", "f1"):
            # A threshold is chosen anew for each sample.
            return None
        values = span_answers.scores_of_each(
            scored.examples, scored.scores, scored.config.null_threshold
        )[name]
        return lambda rows: float(values[rows].mean())

    def _prediction(
        self, example: Question, scores: QuestionScores, scored: ScoredExamples
    ) -> Prediction:
        """Returns the answer, "" for none.

        The error is 1 - F1, times the probability of the answer.
        """
        threshold = scored.config.null_threshold
        answer = span_answers.answer(example, scores, threshold)
        entries = span_answers.nbest(example, scores)
        probabilities = {e["text"]: e["probability"] for e in entries}
        probability = probabilities.get(answer, 1)
        fields = span_answers.prediction_fields(example, answer, probability)
        error = 0.0
        if example.answers is not None:
            fields["answers"] = [gold.text for gold in example.answers]
            error = probability * (1 - answer_scores(example, answer)[1])
        return Prediction(fields, example.location, error)

    def exported_predictions(
        self,
        call: CallSignature,
        examples: Sequence[Question],
        labels: Sequence[str],
    ) -> list[Prediction]:
        """Returns the best answers, all that an exported model has."""
        outputs = call(
            "question",
            question=[example.question for example in examples],
            context=[example.context for example in examples],
        )
        columns = outputs["answer"], outputs["probability"]
        return [
            Prediction(
                span_answers.prediction_fields(
                    example, answer.decode(), float(probability)
                ),
                example.location,
                0.0,
            )
            for example, answer, probability in zip(
                examples, *columns, strict=True
            )
        ]

    def figure(self, scored: ScoredExamples) -> Distributions:
        """Returns the probabilities of right and wrong answers."""
        groups: dict[str, list[float]] = {
            name: [] for name in ("right", "in part", "wrong")
        }
        for question, row in zip(scored.examples, scored.scores, strict=True):
            entries = span_answers.nbest(question, row)
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


class AnswerableSpans(Spans):
    """A question may have no answer (SQuAD 2.0); examples are `Question`s."""

    name = "questions that may have no answer"
    head = "answerable_span"
    without_label = "has no answers, and no empty list of them"
    extra_metrics = ("f1", "exact", "best_f1")
    exported = ("question", "null_probability")
    inputs = (*Spans.inputs, "p_mask")
    targets = (*Spans.targets, "is_impossible")

    def has_label(self, example: Question) -> bool:
        """Returns whether the answers are known, or that there is none."""
        return example.answers is not None

    def config_to_save(
        self, config: FeatureConfig, metrics: Mapping[str, float]
    ) -> FeatureConfig:
        """Returns the settings with the threshold that gave the best F1."""
        threshold = metrics["best_f1_thresh"]
        return dataclasses.replace(config, null_threshold=threshold)

    def config_of_ensemble(
        self, configs: Sequence[FeatureConfig], labels: Sequence[str]
    ) -> FeatureConfig:
        """Returns the settings with the mean of the thresholds."""
        mean = float(np.mean([config.null_threshold for config in configs]))
        return dataclasses.replace(configs[0], null_threshold=mean)

    def _pairs(
        self, outputs: Mapping[str, np.ndarray], length: int, count: int
    ) -> _Pairs:
        """Returns the beams of the head."""
        first = outputs["start_top_log_probs"][:, None]
        return (
            outputs["start_top_positions"][:, None],
            outputs["end_top_positions"],
            first.astype(np.float64) + outputs["end_top_log_probs"],
        )

    def figure(self, scored: ScoredExamples) -> Distributions:
        """Returns the no-answer scores of questions with and without one."""
        odds = np.array([row.no_answer for row in scored.scores])
        has_answer = np.array([bool(q.answers) for q in scored.examples])
        return Distributions(
            "score of there being no answer",
            {"with an answer": odds[has_answer], "without": odds[~has_answer]},
        )

    def constant_prediction(self, scored: ScoredExamples) -> str | None:
        """Returns "no answer" where no question gets one."""
        threshold, rows = scored.config.null_threshold, scored.scores
        unanswered = [span_answers.is_unanswered(r, threshold) for r in rows]
        return "no answer" if len(rows) > 1 and all(unanswered) else None
