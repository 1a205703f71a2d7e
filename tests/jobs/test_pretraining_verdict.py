"""The sentences on what a pretraining run has learned."""

import pytest

from albert_tf.config import PretrainConfig, override
from albert_tf.jobs.pretraining_verdict import pretraining_verdict


def verdict(words, order=None, **changes):
    evaluation = {
        "masked_lm_accuracy": words,
        "most_frequent_token_accuracy": 0.07,
    }
    if order is not None:
        evaluation["sentence_order_accuracy"] = order
        evaluation["majority_order_accuracy"] = 0.516
    config = override(PretrainConfig(), {"num_train_steps": 1500, **changes})
    return pretraining_verdict(evaluation, config)


def test_an_order_that_is_hardly_learned_does_not_pass_in_silence():
    words, order, to_try = verdict(0.31, 0.546, position_init="normal")
    assert words == (
        "masked-LM accuracy 31.0%, against 7.0% for always predicting the "
        "most frequent token: learned in part."
    )
    assert order == (
        "sentence-order accuracy 54.6%, against 51.6% for always predicting "
        "the more frequent order: hardly learned."
    )
    assert to_try == (
        "To try: more steps than 1500, a lower --learning_rate, "
        "--position_init=sinusoidal."
    )


@pytest.mark.parametrize(
    ("words", "order", "expected"),
    [
        (0.089, 0.5, ["not learned", "not learned"]),
        (0.1, 0.536, ["hardly learned", "not learned"]),
        (0.2, 0.757, ["learned in part", "learned in part"]),
        (0.6, 0.759, ["learned", "learned"]),
        # Without a sentence objective.
        (0.2, None, ["learned in part"]),
    ],
)
def test_degrees(words, order, expected):
    lines = verdict(words, order)
    found = [line.rpartition(": ")[2][:-1] for line in lines[: len(expected)]]
    assert found == expected
    is_above = all(degree.startswith("learned") for degree in expected)
    assert len(lines) == len(expected) + (not is_above)


def test_positions_that_are_sinusoidal_already():
    *_, to_try = verdict(0.08, position_init="sinusoidal")
    assert to_try == "To try: more steps than 1500, a lower --learning_rate."
