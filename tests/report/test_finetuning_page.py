"""The report of a fine-tuning run: answers as the saved model gives them."""

import numpy as np

from albert_tf.config import FeatureConfig, override
from albert_tf.report.finetuning_page import as_predicted
from albert_tf.tasks.examples import MultiLabelExample
from albert_tf.tasks.kinds.base import ScoredExamples
from albert_tf.tasks.kinds.multi_label import MultiLabelClassification


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
