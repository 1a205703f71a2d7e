"""Training of embeddings: what it learns, resumes and refuses."""

import numpy as np
import pytest
from pretraining_runs import PowerCut, contents, cut_power

from albert_tf.config import EmbeddingConfig, UserError, override
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.jobs.train_embeddings import run_embedding_training
from albert_tf.rundir.run_results import evaluations


@pytest.fixture(scope="module")
def documents():
    """Documents on one of 12 words each, which both passages have."""
    rng = np.random.default_rng(0)
    words = ["bada", "gule", "mizo", "tepu", "rika", "sovu"]
    words += [word[2:] + word[:2] for word in words]
    return [
        [f"{word} {rng.integers(1000)} the {word}" for _ in range(2)]
        for word in words * 10
    ]


def run(documents, pretrained, run_dir, **changes):
    settings = {
        "num_train_steps": 6,
        "train_batch_size": 8,
        "eval_batch_size": 5,
        "eval_steps": 3,
        "learning_rate": 1e-3,
        "max_seq_length": 16,
        "save_checkpoints_steps": 2,
        **changes,
    }
    return run_embedding_training(
        override(EmbeddingConfig(), settings),
        documents,
        run_dir=str(run_dir),
        initial=find_initial_weights(pretrained),
        log=lambda line: None,
    )


@pytest.mark.slow
def test_neighbours_become_nearer_than_others(documents, pretrained, tmp_path):
    changes = {"num_train_steps": 40, "eval_steps": 1, "max_eval_steps": 2}
    best = run(documents, pretrained, tmp_path, **changes)
    first, *_ = evaluations(str(tmp_path))
    assert best["loss"] < first["loss"]
    assert best["recall_at_1"] > first["recall_at_1"]
    loaded = load_model_directory(str(tmp_path))
    assert [*loaded.model.heads] == ["sentence_embedding"]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", ["neighbours", "dropout"])
def test_a_killed_run_resumes_to_the_same_bytes(
    pairs, documents, pretrained, tmp_path, monkeypatch
):
    run(documents, pretrained, tmp_path / "whole", pairs=pairs)
    with monkeypatch.context() as patch:
        cut_power(patch, after=5)
        with pytest.raises(PowerCut):
            run(documents, pretrained, tmp_path / "cut", pairs=pairs)
    run(documents, pretrained, tmp_path / "cut", pairs=pairs)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batch_size": 2}, "it has no micro-batches"),
        ({"max_seq_length": 65}, "exceeds the model's max_position"),
        ({"best_metric": "f1"}, "best_metric='f1' is not a metric"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    changes, message, documents, pretrained, tmp_path
):
    with pytest.raises(UserError, match=message):
        run(documents, pretrained, tmp_path, **changes)


def test_documents_of_one_passage_have_no_pairs(pretrained, tmp_path):
    with pytest.raises(UserError, match="no learned pairs in 3 documents"):
        run([["a"], ["b"], ["c"]], pretrained, tmp_path)
