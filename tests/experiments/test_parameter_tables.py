"""The paper's parameter counts: the data, our counts, how they agree."""

import math

import keras
import pytest

from albert_tf.experiments.parameter_tables import (
    TABLES,
    PublishedCount,
    compare,
)
from albert_tf.modeling.models import AlbertForPretraining

ROWS = [row for rows in TABLES.values() for row in rows]


def published(title):
    return {row.name: row.millions for row in TABLES[title]}


def test_what_the_paper_prints():
    assert published("Table 1, sizes") == {
        "BERT base": 108,
        "BERT large": 334,
        "BERT xlarge": 1270,
        "ALBERT base": 12,
        "ALBERT large": 18,
        "ALBERT xlarge": 60,
        "ALBERT xxlarge": 235,
    }
    sizes = {
        (row.model.sharing, row.model.embedding_size): row.millions
        for row in TABLES["Table 3, embedding size"]
    }
    assert sizes == {
        ("none", 64): 87,
        ("none", 128): 89,
        ("none", 256): 93,
        ("none", 768): 108,
        ("all", 64): 10,
        ("all", 128): 12,
        ("all", 256): 16,
        ("all", 768): 31,
    }
    modes = {
        (row.model.embedding_size, row.model.sharing): row.millions
        for row in TABLES["Table 4, sharing"]
    }
    assert modes == {
        (768, "all"): 31,
        (768, "attention"): 83,
        (768, "ffn"): 57,
        (768, "none"): 108,
        (128, "all"): 12,
        (128, "attention"): 64,
        (128, "ffn"): 38,
        (128, "none"): 89,
    }


def test_rows_are_albert_base_but_for_what_they_compare():
    for title in ("Table 3, embedding size", "Table 4, sharing"):
        for row in TABLES[title]:
            assert row.preset == "base"
            assert set(row.changes) == {"embedding_size", "sharing"}
            assert row.name == (
                f"E={row.model.embedding_size} sharing={row.model.sharing}"
            )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_all_published_numbers_but_two_are_explained(row):
    readings = compare(row).readings
    if row.name in ("ALBERT xlarge", "ALBERT xxlarge"):
        assert readings == ()
    elif row.model.sharing == "none":
        assert readings[0] == "encoder without pooler, rounded"
    else:
        assert readings[0] == "encoder, rounded"


@pytest.mark.parametrize(
    ("millions", "readings"),
    [
        # 11.684 with the pooler, 11.093 without it, 11.814 with the heads.
        (
            11,
            (
                "encoder without pooler, rounded",
                "encoder, cut",
                "encoder without pooler, cut",
                "encoder and heads, cut",
            ),
        ),
        (12, ("encoder, rounded", "encoder and heads, rounded")),
        (13, ()),
    ],
)
def test_readings_of_albert_base(millions, readings):
    assert compare(PublishedCount("x", millions, "base")).readings == readings


def test_four_figures_are_given_to_the_ten():
    comparison = compare(PublishedCount("x", 1280, "bert_xlarge"))
    # 1275.29 with the pooler, 1279.53 with the heads.
    assert comparison.readings == (
        "encoder, rounded",
        "encoder and heads, rounded",
    )
    assert comparison.excess == pytest.approx(1280 / 1275.291648 - 1)


def test_every_row_is_built_as_counted():
    counts = {row.model: compare(row).count for row in ROWS}
    try:
        with keras.StatelessScope(initialize_variables=False):
            for config, count in counts.items():
                model = AlbertForPretraining(config)
                shapes = [v.shape for v in model.trainable_variables]
                assert sum(map(math.prod, shapes)) == count.total, config
    finally:
        # Forgets the variables that still wait for their values.
        keras.utils.clear_session()
