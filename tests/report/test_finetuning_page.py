"""The report of a fine-tuning run: answers as the saved model gives them."""

from unittest import mock

import numpy as np

from albert_tf.config import FeatureConfig, override
from albert_tf.report.finetuning_page import as_predicted, headline
from albert_tf.tasks.examples import Example, MultiLabelExample
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification
from albert_tf.tasks.metrics.scalar import accuracy


def test_the_metric_that_chose_the_model_may_be_of_the_second_split():
    def scored(*golds):
        examples = [Example(("t",), gold) for gold in golds]
        scores = [np.array([0.9, 0.1])] * len(golds)
        return ScoredExamples(examples, scores, FeatureConfig(), ["a", "b"])

    splits = {"": scored("a"), "_mismatched": scored("a", "b", "a", "b")}
    run = mock.Mock(scored=splits, dev=splits[""])
    run.task.kind, run.task.metrics = Classification(), {"accuracy": accuracy}
    text = headline(run, "accuracy_mismatched", {"accuracy_mismatched": 0.5})
    assert text.startswith("accuracy_mismatched 50.0% on 4 dev examples (95%")
    # No metric of sampled examples.
    text = headline(run, "loss", {"loss": 0.25})
    assert text == "loss 0.2500 on 1 dev examples."


def test_answers_have_the_thresholds_of_the_model():
    examples = [MultiLabelExample(("t",), ("a",))]
    scores = [np.array([0.3, 0.1])]
    dev = ScoredExamples(examples, scores, FeatureConfig(), ["a", "b"])
    saved = override(FeatureConfig(), {"label_thresholds": "0.2,0.2"})
    kind = MultiLabelClassification()
    (trained,) = kind.predictions(dev)
    (found,) = kind.predictions(as_predicted(dev, saved))
    assert trained.fields["prediction"] == []
    assert found.fields["prediction"] == ["a"]
