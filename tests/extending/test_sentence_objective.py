"""The row that docs/extending.md adds: built, verified, trained on."""

import pytest
from pretraining_runs import run

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    override,
)
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from data_prep.pretraining.pretraining_data import build_pretraining_data
from data_prep.shard_tools.verification import verify_directory


def build(sentences, tiny_directory, tmp_path, objective):
    text = "\n".join(" ".join(sentences[n : n + 9]) for n in range(0, 400, 9))
    (tmp_path / "corpus.txt").write_text(text.replace("\n", "\n\n"))
    return build_pretraining_data(
        [str(tmp_path / "corpus.txt")],
        str(tmp_path / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=PretrainingDataConfig(
            max_seq_length=32,
            sentence_objective=objective,
            eval_fraction=0.2,
            dupe_factor=2,
        ),
        masking=MaskingConfig(),
    )


@pytest.mark.slow
def test_a_row_is_all_that_an_objective_needs(
    import_section, sentences, tiny_directory, small_config, tmp_path
):
    import_section("A sentence objective", SENTENCE_OBJECTIVES, "continuation")
    metadata = build(sentences, tiny_directory, tmp_path, "continuation")
    assert 0.4 < metadata["statistics"]["train"]["label_1_share"] < 0.6
    shards = str(tmp_path / "shards")
    report = verify_directory(shards)
    assert report.ok
    assert "half of the labels are drawn as 1" in report.checks
    config = override(
        small_config,
        {"num_train_steps": 1, "sentence_objective": "continuation"},
    )
    metrics = run(config, shards, tmp_path / "run")
    assert {"continuation_loss", "majority_continuation_accuracy"} <= {*metrics}


def test_an_unknown_objective_is_refused(sentences, tiny_directory, tmp_path):
    with pytest.raises(UserError, match="'sope' is not one of sop, nsp, none;"):
        build(sentences, tiny_directory, tmp_path, "sope")
    assert not (tmp_path / "shards").exists()
