"""Labels that heads predict in pretraining, and the names of their metrics.

Losses, metrics, majority-class baselines and tables of results are all made
from `Target` rows. TensorFlow is not needed to read them.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """Labels that a head predicts, and the names of its metrics.

    Attributes:
        title: of the accuracy, in tables.
        loss: name of the mean cross-entropy.
        accuracy: name of the accuracy.
        baseline: name of the majority-class accuracy.
        baseline_label: the majority class, in tables.
        head: row of modeling.heads.HEADS that computes the loss; its output,
            labels and weights are the same for every sentence objective, so
            that a model can be trained on with another one.
    """

    title: str
    loss: str
    accuracy: str
    baseline: str = ""
    baseline_label: str = ""
    head: str = "sentence_order"


MASKED_LM = Target(
    title="masked-LM accuracy",
    loss="masked_lm_loss",
    accuracy="masked_lm_accuracy",
    baseline="most_frequent_token_accuracy",
    baseline_label="most frequent token",
    head="masked_lm",
)
