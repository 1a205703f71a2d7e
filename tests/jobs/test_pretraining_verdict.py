"""The sentences on what a pretraining run has learned."""

import pytest

from albert_tf.config import PretrainConfig, override
from albert_tf.jobs.pretraining_verdict import pretraining_verdict


def verdict(words, order=None, initialized=False, **changes):
    evaluation = {
        "masked_lm_accuracy": words,
        "most_frequent_token_accuracy": 0.07,
    }
    if order is not None:
        evaluation["sentence_order_accuracy"] = order
        evaluation["majority_order_accuracy"] = 0.516
    config = override(PretrainConfig(), {"num_train_steps": 1500, **changes})
    return pretraining_verdict(evaluation, config, initialized=initialized)


def test_an_order_that_is_hardly_learned_does_not_pass_in_silence():
    words, order, to_try = verdict(
        *(0.31, 0.546),
        position_init="normal",
        num_hidden_layers=2,
        learning_rate=0.03,
    )
    assert words == (
        "masked-LM accuracy 31.0%, against 7.0% for always predicting the "
        "most frequent token: learned in part."
    )
    assert order == (
        "sentence-order accuracy 54.6%, against 51.6% for always predicting "
        "the more frequent order: hardly learned."
    )
    assert to_try == (
        "To try: more steps than 1500, --learning_rate=0.01, "
        "--optimizer=muon --beta_2=0.98 --learning_rate=0.002, "
        "--position_init=sinusoidal --output_init_scale=0.5."
    )


def test_labels_that_are_all_alike_measure_nothing():
    evaluation = {
        "sentence_order_accuracy": 1.0,
        "majority_order_accuracy": 1.0,
    }
    (line,) = pretraining_verdict(
        evaluation, PretrainConfig(), initialized=False
    )
    assert line.endswith("order: not measured, since all labels are alike.")


@pytest.mark.parametrize(
    ("words", "order", "expected"),
    [
        (0.089, 0.5, ["not learned", "not learned"]),
        (0.1, 0.535, ["hardly learned", "not learned"]),
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


def test_a_model_without_an_error_has_learned():
    evaluation = {
        "sentence_order_accuracy": 1.0,
        "majority_order_accuracy": 0.99,
    }
    (line,) = pretraining_verdict(
        evaluation, PretrainConfig(), initialized=False
    )
    assert line.endswith("order: learned.")


@pytest.mark.parametrize(
    "changes",
    [
        {"position_init": "sinusoidal", "depth_schedule": "0:2,700:4"},
        {"initialized": True, "num_hidden_layers": 2},
    ],
)
def test_what_a_run_has_already_is_not_to_be_tried(changes):
    changes |= {"optimizer": "normuon", "learning_rate": 0.03}
    *_, to_try = verdict(0.08, **changes)
    assert to_try == "To try: more steps than 1500, --learning_rate=0.01."
