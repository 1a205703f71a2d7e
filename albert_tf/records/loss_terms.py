"""The losses of pretraining, and the names of their metrics.

Losses, metrics, majority-class baselines and tables of results are all made
from `LossTerm` rows.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class LossTerm:
    """A head's loss, a term of the training loss, and the head's metrics."""

    title: str  # the accuracy's, in tables
    # Names of metrics: the mean loss, the accuracy (empty: none) and the
    # majority-class accuracy.
    loss: str
    accuracy: str
    baseline: str = ""
    baseline_label: str = ""  # the majority class, in tables
    # The row of HEADS that computes the loss: one for every sentence
    # objective, so that a model can be trained on with another one.
    head: str = "sentence_order"
    loss_weight: float = 1.0  # in the sum of the losses that is minimized


MASKED_LM = LossTerm(
    title="masked-LM accuracy",
    loss="masked_lm_loss",
    accuracy="masked_lm_accuracy",
    baseline="most_frequent_token_accuracy",
    baseline_label="most frequent token",
    head="masked_lm",
)
