"""The program that counts: its tables, one model, mistakes."""

import re

from program_runner import run_program

from albert_tf.config import PRESETS
from albert_tf.modeling.accounting import PAPER_TABLES


def count(*flags):
    done = run_program("count_parameters", *flags)
    return done.error or done.stdout


def cells(line):
    return re.split(r" {2,}", line.strip())


def test_without_flags_every_table_is_printed():
    rows = [cells(line) for line in count().splitlines()]
    named = {name for row in rows for name in row[0].split(", ")}
    assert named >= set(PRESETS)
    for row in (
        # Presets of one size share a row.
        "base, base_v1, base_v2|11,683,584|130,226|11,813,810",
        "xxlarge|222,595,584|1,699,305,984|961,063,424|2,437,773,824",
        "BERT base|108M|109,081,344|590,592|encoder without pooler, rounded",
        "ALBERT xxlarge|235M|222,595,584|16,781,312|5.6% more",
    ):
        assert row.split("|") in rows
    for title in PAPER_TABLES:
        assert f"paper, {title}" in [row[0] for row in rows]


def test_one_model_part_by_part():
    printed = count(
        "--preset=base",
        "--sharing=ffn",
        "--heads=span,classification",
        "--num_labels=3",
    )
    rows = ["|".join(cells(line)) for line in printed.splitlines()[2:]]
    assert rows == [
        "embeddings|3,906,048|10.4%",
        "projection|99,072|0.3%",
        "attention|28,366,848|75.3%",
        "feed-forward|4,723,968|12.5%",
        "pooler|590,592|1.6%",
        "head span|1,538|0.0%",
        "head classification|2,307|0.0%",
        "in all|37,690,373|100.0%",
    ]


def test_user_errors_are_one_line():
    assert count("--heads=qa").startswith(
        "count_parameters: head='qa' is not one of masked_lm, "
    )
