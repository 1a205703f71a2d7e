"""Reports of runs that have ended."""

import pytest

from albert_tf.jobs.run_reports import pretraining_report
from albert_tf.records.shards import read_metadata
from albert_tf.report.page import Figure, MarkedText, Table


@pytest.fixture(scope="module")
def sections(finished, shards_dir):
    page = pretraining_report(str(finished[0]), str(shards_dir))
    assert page.title == "whole: pretraining"
    return {section.title: section.parts for section in page.sections}


@pytest.mark.slow
def test_curves(sections):
    names = [part.name for part in sections["Training"]]
    assert names == [
        "loss.png",
        "masked-lm_accuracy.png",
        "sentence-order_accuracy.png",
        "learning_rate.png",
    ]
    assert all(isinstance(part, Figure) for part in sections["Training"])


@pytest.mark.slow
def test_masks_of_held_out_text(sections):
    texts = sections["Held-out text with masks"][::2]
    tables = sections["Held-out text with masks"][1::2]
    assert len(texts) == 4
    for text, table in zip(texts, tables, strict=True):
        assert isinstance(text, MarkedText) and isinstance(table, Table)
        marked = " ".join(word for word, weight in text.words if weight)
        for number, *predicted in table.rows:
            assert "¹²³⁴⁵⁶⁷⁸⁹"[number - 1] in marked
            assert len(predicted) == 4


@pytest.mark.slow
def test_data_and_settings(sections, shards_dir):
    (table,) = sections["Data"]
    metadata = read_metadata(shards_dir)
    records = metadata["splits"]["eval"]["num_records"]
    assert table.rows[0][1:3] == ("eval", f"{records:,}")
    (table,) = sections["Settings"]
    assert ["num_train_steps", "12", "125000"] in table.rows


@pytest.mark.slow
def test_without_shards_there_are_no_samples(finished):
    page = pretraining_report(str(finished[0]))
    titles = [section.title for section in page.sections]
    assert titles == [
        "Training",
        "Throughput",
        "Settings",
        "Command and machine",
    ]
