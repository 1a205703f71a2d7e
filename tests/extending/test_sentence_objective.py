"""The row that docs/extending.md adds: built, verified, trained on."""

import pytest
from pretraining_runs import build_shards, run

from albert_tf.config import UserError, override
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import read_metadata
from data_prep.shard_tools.verification import verify_directory


@pytest.mark.slow
def test_a_row_is_all_that_an_objective_needs(
    import_section, sentences, tiny_directory, small_config, tmp_path
):
    import_section("A sentence objective", SENTENCE_OBJECTIVES, "continuation")
    shards = build_shards(
        tmp_path,
        [sentences[n : n + 9] for n in range(0, 400, 9)],
        tiny_directory,
        sentence_objective="continuation",
        dupe_factor=2,
    )
    statistics = read_metadata(shards)["statistics"]
    assert 0.4 < statistics["train"]["label_1_share"] < 0.6
    assert verify_directory(shards).ok
    config = override(
        small_config,
        {
            "num_train_steps": 1,
            "num_hidden_layers": 1,
            "sentence_objective": "continuation",
        },
    )
    metrics = run(config, shards, tmp_path / "run")
    assert {"continuation_loss", "majority_continuation_accuracy"} <= {*metrics}


def test_an_unknown_objective_is_refused(tiny_directory, tmp_path):
    with pytest.raises(UserError, match="'sope' is not one of sop, nsp, none;"):
        build_shards(
            tmp_path, [["A."]], tiny_directory, sentence_objective="sope"
        )
    assert not (tmp_path / "shards").exists()
