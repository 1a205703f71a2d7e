"""A pretraining run as a whole: what it leaves, reads and refuses."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from pretraining_runs import (
    build_shards,
    compile_nothing,
    lines_of,
    run,
    weights_of,
)

from albert_tf.config import RuntimeConfig, UserError, override, to_dict
from albert_tf.inputs.input_pipeline import (
    PretrainingBatches,
    training_positions,
)
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.io.json_files import write_json
from albert_tf.jobs import pretrain
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.jobs.pretraining_phases import PretrainingShards
from albert_tf.records.shards import open_shards
from albert_tf.rundir.checkpoints import Checkpoints
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training import actions, loop, run_state
from albert_tf.training.trainer import Trainer


@pytest.mark.slow
def test_artifacts(finished, small_config):
    run_dir, evaluation = finished
    assert sorted(os.listdir(run_dir)) == [
        "best_model",
        "checkpoints",
        "config.json",
        "metrics.jsonl",
        "model",
        "tensorboard",
        "timing.jsonl",
    ]
    written = json.loads((run_dir / "config.json").read_text())
    assert written["config"] == to_dict(small_config)
    assert [x["step"] for x in lines_of(run_dir)] == [5, 10, 12]
    first, last = lines_of(run_dir, "eval")
    assert (first["step"], last["step"]) == (6, 12)
    assert {k: last[k] for k in evaluation} == evaluation
    boards = [path.name for path in (run_dir / "tensorboard").iterdir()]
    # Beside them one file with the settings, to compare runs by.
    assert {"eval", "train"} < set(boards) and len(boards) == 3
    assert sorted(os.listdir(run_dir / "checkpoints")) == ["step-12", "step-8"]


@pytest.mark.slow
def test_trust_ratios_are_logged(finished):
    """Every matrix has one; the Monitor summarises them."""
    run_dir, _ = finished
    matrices = {
        f"trust_ratio/{path}"
        for path, value in weights_of(run_dir).items()
        if value.ndim == 2
    }
    for line in lines_of(run_dir):
        ratios = {n: r for n, r in line.items() if n.startswith("trust_ratio/")}
        assert set(ratios) == matrices
        assert 0 < min(ratios.values()) < max(ratios.values())
    assert not any("trust" in name for name in lines_of(run_dir, "eval")[0])


def test_early_stopping_keeps_the_best(fake_run, tmp_path):
    """No evaluation is better than the first."""
    changes = {"eval_steps": 2, "early_stopping_patience": 2}
    fake_run(best_metric="masked_lm_accuracy", **changes)
    assert [x["step"] for x in lines_of(tmp_path / "run", "eval")] == [2, 4, 6]
    assert "step-2" in os.listdir(tmp_path / "run/checkpoints")
    assert (tmp_path / "run/best_model/model.safetensors").read_bytes() == (
        tmp_path / "run/model/model.safetensors"
    ).read_bytes()
    # It is over: the same command trains no further.
    fake_run(best_metric="masked_lm_accuracy", **changes)
    assert len(lines_of(tmp_path / "run", "eval")) == 3


def test_the_chief_decides_which_evaluation_is_the_best(
    fake_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(actions, "broadcast", lambda strategy, better: 0.0)
    fake_run()
    assert not (tmp_path / "run/best_model").exists()


def test_a_metric_that_was_never_defined(
    fake_run, tmp_path, capsys, monkeypatch
):
    """Correlations of answers that are all alike are not defined."""
    found = pretrain.evaluate_pretraining() | {"masked_lm_accuracy": np.nan}
    monkeypatch.setattr(pretrain, "evaluate_pretraining", lambda *_: found)
    fake_run(
        best_metric="masked_lm_accuracy",
        eval_steps=2,
        early_stopping_patience=2,
    )
    output = capsys.readouterr().out
    assert "has not improved in 2 evaluations: the run ends at step 4" in output
    assert "It was never defined; there is no best_model." in output
    assert not (tmp_path / "run/best_model").exists()


def test_two_phases_in_one_run(small_config, shards_dir, tmp_path, monkeypatch):
    """Each with its own batch size; the second goes on in the same shards."""
    compile_nothing(monkeypatch)
    seen, records = [], []
    plain_batch = PretrainingBatches.batch

    def batch(self, step, rows=None):
        if self.training:
            seen.append((self.batch_size, step))
            records.extend(self.record_numbers(step))
        return plain_batch(self, step, rows)

    monkeypatch.setattr(PretrainingBatches, "batch", batch)
    config = override(
        small_config, {"phases": "8,4", "phase_batch_sizes": "8,2"}
    )
    run_pretraining(
        config,
        PretrainingShards([shards_dir, shards_dir], [shards_dir]),
        run_dir=str(tmp_path / "run"),
    )
    assert seen == [(8, step) for step in range(8)] + [
        (2, step) for step in range(4)
    ]
    size = len(open_shards(shards_dir, "train"))
    expected = training_positions(np.arange(72), size, config.training.seed)
    assert records == expected.tolist()


def test_losses_on_other_held_out_text_do_not_compare(
    small_config, shards_dir, sentences, tiny_directory, tmp_path, monkeypatch
):
    compile_nothing(monkeypatch)
    found = pretrain.evaluate_pretraining()
    losses = iter([1.0, 3.0, 2.0, 4.0])
    monkeypatch.setattr(
        pretrain,
        "evaluate_pretraining",
        lambda *_: found | {"loss": next(losses)},
    )
    documents = [sentences[n : n + 8] for n in range(0, 240, 8)]
    other = build_shards(tmp_path, documents, tiny_directory)
    run_pretraining(
        override(small_config, {"phases": "6,6", "eval_steps": 3}),
        PretrainingShards([shards_dir] * 2, [shards_dir, other]),
        run_dir=str(tmp_path / "run"),
    )
    checkpoints = Checkpoints(str(tmp_path / "run/checkpoints"), {}, 2)
    assert checkpoints.best_step() == 9


def test_schedules_of_masking_apply_to_training_text_alone(
    fake_run, monkeypatch
):
    """The records go on where the masking changes."""
    seen = {True: [], False: []}
    plain_batch = PretrainingBatches.batch

    def batch(self, step, rows=None):
        made = plain_batch(self, step, rows)
        masked = made["masked_lm_weights"].sum() / made["input_mask"].sum()
        max_ngram = self.masking_config.max_ngram
        seen[self.training].append((step, round(float(masked), 1), max_ngram))
        return made

    monkeypatch.setattr(PretrainingBatches, "batch", batch)
    settings = {
        "masking_schedule": "0:0.4,5:0.2",
        "masked_lm_prob": 0.1,
        "ngram_schedule": "0:1,3:2",
    }
    # The last change comes after the steps that were planned at first.
    fake_run(num_train_steps=4, **settings)
    fake_run(RuntimeConfig(extend_to_steps=12), num_train_steps=4, **settings)
    assert seen[True] == [
        (step, 0.4 if step < 5 else 0.2, 1 if step < 3 else 2)
        for step in range(12)
    ]
    assert {values[1:] for values in seen[False]} == {(0.1, 3)}


def test_the_sentence_loss_has_its_weight(
    small_config, shards_dir, tmp_path, monkeypatch
):
    jobs = []
    monkeypatch.setattr(pretrain, "train", jobs.append)
    config = override(small_config, {"sentence_loss_weight": 0.3})
    run(config, shards_dir, tmp_path / "run")
    weights = {t.loss: t.loss_weight for t in jobs[0].training_loss.terms}
    assert weights == {"masked_lm_loss": 1.0, "sentence_order_loss": 0.3}


def test_fixed_masks_are_those_of_the_shards(
    small_config, objective_shards, tmp_path, monkeypatch
):
    shards = str(tmp_path / "shards")
    shutil.copytree(objective_shards("sop", "static"), shards)
    path = tmp_path / "shards" / "metadata.json"
    metadata = json.loads(path.read_text())
    metadata["settings"]["masking"]["max_ngram"] = 2
    path.write_text(json.dumps(metadata))
    jobs = []
    monkeypatch.setattr(pretrain, "train", jobs.append)
    run(small_config, shards, tmp_path / "run")
    assert jobs[0].config.masking.max_ngram == 2
    config = override(small_config, {"max_ngram": 3})
    with pytest.raises(
        UserError,
        match=f"^max_ngram=3, and the masks of {shards} are fixed, with max_n",
    ):
        run(config, shards, tmp_path / "run")


def test_fixed_masks_cannot_be_scheduled(
    small_config, objective_shards, tmp_path
):
    shards = objective_shards("sop", "static")
    config = override(small_config, {"ngram_schedule": "0:1,5:0"})
    with pytest.raises(
        UserError,
        match=f"ngram_schedule='0:.*masks of {shards} are fixed.*, or "
        "--ngram_schedule= for no",
    ):
        run(config, shards, tmp_path / "run")


def test_words_with_higher_weights_are_masked_more_often(
    small_config, shards_dir, tmp_path, monkeypatch
):
    jobs = []
    monkeypatch.setattr(pretrain, "train", jobs.append)
    path = tmp_path / "weights.json"
    config = override(small_config, {"masking_weights": str(path)})
    tokenizer = load_tokenizer(f"{shards_dir}/tokenizer")
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    even = np.arange(len(pieces)) % 2 == 0
    write_json(path, dict.fromkeys(pieces[::2], 1e6))
    run(config, shards_dir, tmp_path / "run")

    def masked_even(batch):
        ids = batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]
        return even[ids].mean()

    (job,) = jobs
    # Not all, since words have several pieces.
    assert masked_even(job.sources.at(0).batch(0)) > 0.7
    assert masked_even(job.held_out.at(0).batch(0)) < 0.6
    write_json(path, {pieces[7]: 0})
    with pytest.raises(
        UserError,
        match=f"masking_weights={path}: .*{re.escape(pieces[7])}.* has 0; "
        "expected positive numbers of pieces",
    ):
        run(config, shards_dir, tmp_path / "run")


@pytest.mark.slow
def test_depths_that_grow(
    small_config, shards_dir, tmp_path, monkeypatch, capsys
):
    depths = []
    plain_steps = Trainer.train_steps

    def watched(self, batches, num_applications, **options):
        depths.append(num_applications)
        return plain_steps(self, batches, num_applications, **options)

    shown = []
    plain_outputs = Trainer.outputs

    def outputs(self, batch, num_applications=None):
        shown.append(num_applications)
        return plain_outputs(self, batch, num_applications)

    monkeypatch.setattr(Trainer, "train_steps", watched)
    monkeypatch.setattr(Trainer, "outputs", outputs)
    best = []
    plain_save = run_state.RunState.save_model

    def save_model(self, name, **options):
        best.append((self.step, name))
        return plain_save(self, name, **options)

    monkeypatch.setattr(run_state.RunState, "save_model", save_model)
    config = override(
        small_config, {"depth_schedule": "0:1,5:2", "eval_steps": 3}
    )
    run(config, shards_dir, tmp_path / "run")
    assert depths == [1] * 5 + [2] * 7
    # The logged predictions have the depth that is trained, and the first
    # evaluation of the whole model is the first that can be best.
    assert shown == [1, 2, 2, 2]
    assert best[0] == (6, "best_model")
    # Each depth is compiled, and the reader of the log learns of it before.
    lines = capsys.readouterr().out.splitlines()
    compiling = "Compiling the training step for 1 replica on CPU (first call)"
    begins = [n for n, ln in enumerate(lines) if ln == f"{compiling} ..."]
    assert len(begins) == 2
    for begin in begins:
        assert re.fullmatch(
            r"The first call took \d+\.\d seconds\.", lines[begin + 1]
        )


def test_settings_for_steps_after_the_last_are_reported(fake_run, capsys):
    fake_run(
        RuntimeConfig(profile_steps="12,14"),
        depth_schedule="0:1,1:2",
        masking_schedule="0:0.3,1:0.2",
        ngram_schedule="0:1,2:2,4:3",
        num_train_steps=1,
        num_warmup_steps=2,
    )
    output = capsys.readouterr().out
    for name, text, late in (
        ("depth_schedule", "0:1,1:2", "1:2"),
        ("masking_schedule", "0:0.3,1:0.2", "1:0.2"),
        ("ngram_schedule", "0:1,2:2,4:3", "2:2, 4:3"),
    ):
        stages = text.split(",")
        step = late.partition(":")[0]
        assert (
            f"WARNING: {name}={text} changes at step {step}, beyond "
            f"num_train_steps=1: {late} never begins, and {stages[0]} applies "
            "to the end. " in output
        )
    assert (
        "profile_steps starts at step 12, beyond num_train_steps=1: it has no "
        "effect." in output
    )
    assert "num_warmup_steps=2 is too many for num_train_steps=1" in output


def test_a_run_that_does_not_learn_is_reported_after_a_tenth(
    fake_run, capsys, monkeypatch
):
    learned = pretrain.evaluate_pretraining()
    accuracies = iter([0.05, 0.05, 0.119] + 17 * [0.121])
    monkeypatch.setattr(
        pretrain,
        "evaluate_pretraining",
        lambda *_: learned | {"masked_lm_accuracy": next(accuracies)},
    )
    fake_run(
        learning_rate=0.03,
        num_hidden_layers=3,
        num_train_steps=20,
        num_warmup_steps=0,
        eval_steps=1,
    )
    lines = capsys.readouterr().out.splitlines()
    first, second = (x for x in lines if "not learning" in x)
    assert "is 11.9% at step 3 of 20" in second
    assert (
        "The held-out masked-LM accuracy is 5.0% at step 2 of 20, and always "
        "predicting the most frequent token has 10.0%" in first
    )
    for setting in (
        "--learning_rate=0.01,",
        "--output_init_scale=0.41,",
        "--depth_schedule=0:2,10:3.",
    ):
        assert setting in first


def test_shards_of_another_vocabulary_of_the_same_size(
    small_config, shards_dir, tmp_path
):
    copy = tmp_path / "shards"
    shutil.copytree(shards_dir, copy)
    metadata = json.loads((copy / "metadata.json").read_text())
    metadata["tokenizer"]["fingerprint"] = "0" * 64
    (copy / "metadata.json").write_text(json.dumps(metadata))
    with pytest.raises(UserError, match="another vocabulary than the model's"):
        run_pretraining(
            small_config,
            PretrainingShards([shards_dir], [str(copy)]),
            run_dir=str(tmp_path / "run"),
        )


def test_workers_other_than_the_chief_change_no_file(
    fake_run, tmp_path, monkeypatch
):
    fake_run()
    checkpoints = tmp_path / "run" / "checkpoints"
    # What the chief would write, rename, remove and prune.
    shutil.rmtree(tmp_path / "run" / "model")
    os.truncate(checkpoints / "step-12", 7)
    for name in ("step-13.tmp-17", "step-4", "step-5"):
        (checkpoints / name).write_bytes(b"half")

    def state():
        paths = sorted((tmp_path / "run").rglob("*"))
        return {p: p.read_bytes() for p in paths if p.is_file()}

    before = state()
    for module in (loop, run_state):
        monkeypatch.setattr(module, "is_chief", lambda strategy: False)
    steps = []

    def broadcast(strategy, value):
        # The chief's step, where this worker has none.
        return 8 if value == -1 else value

    def restore(self, step):
        steps.append(step)
        return plain_restore(self, step)

    plain_restore = Checkpoints.restore
    monkeypatch.setattr(run_state, "broadcast", broadcast)
    monkeypatch.setattr(Checkpoints, "restore", restore)
    fake_run()
    assert steps == [8]
    assert state() == before


@pytest.mark.slow
def test_static_shards_train_too(small_config, objective_shards, tmp_path):
    config = override(
        small_config,
        {
            "num_hidden_layers": 1,
            "num_train_steps": 2,
            "precision": "bfloat16",
        },
    )
    shards = objective_shards("sop", "static")
    evaluation = run(config, shards, tmp_path / "run")
    assert 4 < evaluation["masked_lm_loss"] < 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"best_metric": "f1"},
            "best_metric='f1' is not a metric of this job: expected one of ",
        ),
        ({"vocab_size": 300}, "another vocabulary.*vocab_size=300"),
        ({"num_train_steps": 0}, "num_train_steps=0; pretraining needs"),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not one of lamb, adamw"),
        ({"masking_schedule": "0:1.5"}, "masked_lm_prob=1.5"),
        ({"ngram_schedule": "0:1.5"}, "'0:1.5' is not .*, such as 2000:3"),
        ({"phases": "8,4"}, "phases='8,4' must be a whole number"),
        ({"phases": "8"}, "phases=8 makes 8 steps, and num_train_steps is 12"),
        (
            {"sentence_objective": "nsp"},
            "=sop, and this run is to learn sentence_objective=nsp: build its",
        ),
    ],
)
def test_user_errors(small_config, shards_dir, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run(override(small_config, changes), shards_dir, tmp_path / "run")
    # A corrected command finds no other run there.
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_starts_from_given_weights(finished, fake_run, tmp_path):
    run_dir, _ = finished
    fake_run(initial=find_initial_weights(str(run_dir)))
    expected = weights_of(run_dir)
    for path, value in weights_of(tmp_path / "run").items():
        np.testing.assert_array_equal(value, expected[path], err_msg=path)


@pytest.mark.slow
def test_it_learns(small_config, tiny_directory, tmp_path):
    """Every word and order of the text follows from its neighbours."""
    words = ["bada", "gule", "mizo", "tepu", "rika", "sovu", "naje", "hobi"]
    sentences = [
        f"The {words[n % 8]} of {words[(n + 1) % 8]} and the "
        f"{words[(n + 3) % 8]} {'(first)' if n % 8 == 0 else ''}."
        for n in range(64)
    ]
    documents = [sentences[n:] for n in range(48)]
    config = override(
        small_config,
        {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "hidden_size": 32,
            "num_train_steps": 300,
            "num_warmup_steps": 50,
            "train_batch_size": 32,
            "learning_rate": 0.02,
            "log_steps": 100,
            "eval_steps": 0,
            "save_checkpoints_steps": 300,
        },
    )
    shards = build_shards(tmp_path, documents, tiny_directory)
    evaluation = run(config, shards, tmp_path / "run")
    assert (
        evaluation["masked_lm_accuracy"]
        > 2 * evaluation["most_frequent_token_accuracy"]
    )
