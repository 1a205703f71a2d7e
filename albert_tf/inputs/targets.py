"""What the heads predict: one row per target, sentence objectives as rows.

Losses, metrics, baselines and the tables of results are all made from these
rows. TensorFlow is not needed to read them.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """Labels that a head predicts, and what their measures are called.

    Attributes:
        title: for people.
        loss: the name of the mean cross-entropy.
        accuracy: the name of the share that is predicted rightly.
        guessing: the name of the share that always guessing the most frequent
            label would get right.
        guess: that label, for people.
        head: the row of modeling.heads.HEADS that says the loss.
        logits: among the model's outputs, `[..., classes]`.
        labels: among the batch's features, `[...]`.
        weights: among the batch's features, `[...]`.
    """

    title: str
    loss: str
    accuracy: str
    guessing: str
    guess: str
    head: str
    logits: str
    labels: str
    weights: str


@dataclasses.dataclass(frozen=True)
class SentenceTargets:
    """What a pair of segments teaches, by the shards' `sentence_objective`.

    Attributes:
        name: as in metadata.json.
        meaning: for people.
        targets: one; none for single segments, which have no label.
    """

    name: str
    meaning: str
    targets: tuple[Target, ...]


MASKED_LM = Target(
    title="masked-LM accuracy",
    loss="masked_lm_loss",
    accuracy="masked_lm_accuracy",
    guessing="most_frequent_token_accuracy",
    guess="most frequent token",
    head="masked_lm",
    logits="masked_lm_logits",
    labels="masked_lm_ids",
    weights="masked_lm_weights",
)

# The head, its weights and the feature are the same for every objective, so
# that a model can go on with another one.
_SENTENCE_HEAD = {
    "head": "sentence_order",
    "logits": "sentence_order_logits",
    "labels": "sentence_order_labels",
    "weights": "example_weights",
}

SENTENCE_TARGETS: dict[str, SentenceTargets] = {
    row.name: row
    for row in (
        SentenceTargets(
            "sop",
            "are two segments in their order",
            (
                Target(
                    title="sentence-order accuracy",
                    loss="sentence_order_loss",
                    accuracy="sentence_order_accuracy",
                    guessing="majority_order_accuracy",
                    guess="more frequent order",
                    **_SENTENCE_HEAD,
                ),
            ),
        ),
        SentenceTargets(
            "nsp",
            "does the second segment follow the first",
            (
                Target(
                    title="next-sentence accuracy",
                    loss="next_sentence_loss",
                    accuracy="next_sentence_accuracy",
                    guessing="majority_next_sentence_accuracy",
                    guess="more frequent answer",
                    **_SENTENCE_HEAD,
                ),
            ),
        ),
        SentenceTargets(
            "none",
            "single segments, masked LM alone; the pooler and the sentence "
            "head stay as they are",
            (),
        ),
    )
}

TARGETS: tuple[Target, ...] = (
    MASKED_LM,
    *(target for row in SENTENCE_TARGETS.values() for target in row.targets),
)
