"""What every program shares."""

import pytest

from bin.command_line import format_table
from bin.results_table import results_table


def test_format_table():
    table = format_table([["a", "1"], ["long name", "23"]], ["what", "n"])
    assert table == (
        "what        n\n---------  --\na           1\nlong name  23"
    )


def test_results_table_holds_what_was_measured():
    table = results_table(
        {"accuracy": 0.5, "majority_class_accuracy": 0.25, "loss": 1.0}
    )
    assert "classifier accuracy" in table
    assert "50.0%" in table
    assert "25.0%" in table
    assert "masked-LM" not in table


@pytest.mark.parametrize("measure", ["masked_lm", "sentence_order"])
def test_results_table_of_pretraining(measure):
    table = results_table(
        {
            "masked_lm_accuracy": 0.2,
            "most_frequent_token_accuracy": 0.07,
            "sentence_order_accuracy": 0.6,
            "majority_order_accuracy": 0.51,
        }
    )
    title = measure.replace("masked_lm", "masked-LM").replace("_", "-")
    assert f"{title} accuracy" in table
