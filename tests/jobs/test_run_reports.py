"""Reports of runs that have ended."""

import json
import shutil

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
def test_masks_are_those_of_the_runs_settings(finished, shards_dir, tmp_path):
    shutil.copytree(finished[0], tmp_path / "run")

    def number_of_masks(share):
        path = tmp_path / "run/config.json"
        recorded = json.loads(path.read_text())
        recorded["config"]["masking"]["masked_lm_prob"] = share
        path.write_text(json.dumps(recorded))
        page = pretraining_report(str(tmp_path / "run"), str(shards_dir))
        (section,) = (s for s in page.sections if "with masks" in s.title)
        return sum(len(table.rows) for table in section.parts[1::2])

    assert number_of_masks(0.3) > number_of_masks(0.1) > 0


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
