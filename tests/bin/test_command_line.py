"""What every program shares."""

from bin import command_line
from bin.command_line import format_table
from bin.results_table import results_table


def test_format_table():
    table = format_table([["a", "1"], ["long name", "23"]], ["what", "n"])
    assert table == (
        "what        n\n---------  --\na           1\nlong name  23"
    )


def test_results_table_holds_what_was_measured():
    table = results_table(
        {"r1": {"accuracy": 0.5, "majority_class_accuracy": 0.25, "loss": 1.0}}
    )
    (row,) = table.splitlines()[2:]
    assert row.split() == [
        *("classifier", "accuracy", "50.0%", "25.0%"),
        *("majority", "class", "r1"),
    ]


def test_results_table_has_the_rows_of_every_run():
    evaluation = {
        "masked_lm_accuracy": 0.2,
        "most_frequent_token_accuracy": 0.07,
        "sentence_order_accuracy": 0.6,
        "majority_order_accuracy": 0.51,
    }
    table = results_table({"r1": evaluation, "r2": evaluation})
    rows = [row.split() for row in table.splitlines()[2:]]
    assert [(row[0], row[2], row[3], row[-1]) for row in rows] == [
        ("masked-LM", "20.0%", "7.0%", "r1"),
        ("sentence-order", "60.0%", "51.0%", "r1"),
        ("masked-LM", "20.0%", "7.0%", "r2"),
        ("sentence-order", "60.0%", "51.0%", "r2"),
    ]


def test_progress_in_a_log_is_a_line_now_and_then(capsys, monkeypatch):
    with command_line.progress("documents") as show:
        show(1)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(command_line, "_LOG_SECONDS", 0.0)
    with command_line.progress("documents") as show:
        show(3, instances=17)
        show(4, 9)
    shown = capsys.readouterr()
    assert shown.out == "3 documents, 17 instances\n4 of 9 documents\n"
    assert shown.err == ""
