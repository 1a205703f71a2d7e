"""Training of embeddings: what it learns, resumes and refuses."""

from unittest import mock

import numpy as np
import pytest
from pretraining_runs import PowerCut, contents, cut_power

from albert_tf.config import EmbeddingConfig, UserError, override
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
)
from albert_tf.jobs import train_embeddings
from albert_tf.jobs.train_embeddings import run_embedding_training
from albert_tf.rundir.run_results import evaluations


@pytest.fixture(scope="module")
def documents():
    """Documents of two passages, whose words always go together."""
    rng = np.random.default_rng(0)
    words = {"bada": "tepu", "gule": "rika", "mizo": "sovu", "dabu": "fami"}
    return [
        [f"{word} {rng.integers(10**6)}" for word in pair]
        for pair in [*words.items()] * 30
    ]


@pytest.fixture(scope="module")
def whole(documents, pretrained, tmp_path_factory):
    """The directory of a finished run."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    run(documents, pretrained, run_dir)
    return run_dir


def run(documents, pretrained, run_dir, **changes):
    settings = {
        "num_train_steps": 20,
        "train_batch_size": 8,
        "eval_batch_size": 6,
        "eval_steps": 5,
        "learning_rate": 3e-3,
        "max_seq_length": 16,
        "save_checkpoints_steps": 5,
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
def test_neighbours_become_nearer_than_others(whole):
    first, *_, last = evaluations(str(whole))
    assert last["loss"] < 0.8 * first["loss"]
    loaded = load_model_directory(str(whole))
    assert [*loaded.model.heads] == ["sentence_embedding"]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes(
    whole, documents, pretrained, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        cut_power(patch, after=15)
        with pytest.raises(PowerCut):
            run(documents, pretrained, tmp_path)
    run(documents, pretrained, tmp_path)
    assert contents(tmp_path) == contents(whole)


def test_rows_with_the_same_answer_are_used_once(pretrained, tmp_path):
    rows = [(f"bada {n}", f"tepu {n % 15}") for n in range(60)]
    lines = []
    with mock.patch.object(train_embeddings, "train") as train:
        run_embedding_training(
            override(
                EmbeddingConfig(),
                {"pairs": "columns", "held_out_fraction": 0.2},
            ),
            rows,
            run_dir=str(tmp_path),
            initial=find_initial_weights(pretrained),
            log=lines.append,
        )
    job = train.call_args.args[0]
    assert (len(job.train_pairs), len(job.held_out)) == (12, 3)
    assert any(line.startswith("45 pairs are left out: ") for line in lines)


def test_no_passage_is_both_learned_and_held_out(pretrained, tmp_path):
    documents = [[f"bada {n % 7}", f"tepu {n % 7}"] for n in range(40)]
    with mock.patch.object(train_embeddings, "train") as train:
        run(documents, pretrained, tmp_path, held_out_fraction=0.1)
    job = train.call_args.args[0]
    assert {*job.train_pairs}.isdisjoint(job.held_out)
    assert len({*job.train_pairs, *job.held_out}) == 7


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
    message = (
        r"no learned pairs in 1 rows, of which 1 are held out; expected more "
        r"rows \(see --held_out_fraction\)\.$"
    )
    with pytest.raises(UserError, match=message):
        run([["a", "b"]], pretrained, tmp_path, pairs="columns")
