"""Runs with several seeds: results.json, and resuming."""

import json
import math
import pathlib

import pytest
from pretraining_runs import PowerCut, cut_power
from training_fixtures import write_task

from albert_tf.config import FinetuneConfig, UserError, override
from albert_tf.interchange.model_directory import find_initial_weights
from albert_tf.jobs.finetune import run_finetuning
from albert_tf.jobs.repeated_runs import RESULTS_FILE, repeat
from albert_tf.tasks.custom import CLASSIFICATION

# By seed: accuracy at each evaluation.
ACCURACIES = {7: [0.5, 0.9, 0.8], 8: [0.6, 0.6, 0.7], 9: [None, 0.2, 0.1]}


CONFIG = override(FinetuneConfig(), {"seed": 7})


def fake_run(config, run_dir):
    directory = pathlib.Path(run_dir)
    directory.mkdir(parents=True)
    values = ACCURACIES[config.training.seed]
    lines = [{"step": 5, "split": "train", "loss": 1.0}]
    for number, accuracy in enumerate(values, start=1):
        lines.append(
            {"step": 10 * number, "split": "eval", "accuracy": accuracy}
        )
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text + '{"step": 40, "spl')
    settings = {"training": {"best_metric": "accuracy"}}
    (directory / "config.json").write_text(json.dumps({"config": settings}))
    return {"loss": 1.0 / config.training.seed, "accuracy": values[-1]}


def test_median_spread_and_best(tmp_path):
    found = repeat(fake_run, CONFIG, num_runs=3, run_dir=str(tmp_path))
    results = [(run.seed, run.best, run.best_step) for run in found.runs]
    assert results == [(7, 0.9, 20), (8, 0.7, 30), (9, 0.2, 20)]
    summary = found.summary()
    assert summary["accuracy"] == {
        "values": [0.8, 0.7, 0.1],
        "median": 0.7,
        "spread": pytest.approx(0.7),
    }
    assert summary["accuracy of the best checkpoint"]["median"] == 0.7
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written == found.to_json()
    assert written["runs"][1]["run_dir"] == f"{tmp_path}/run-2"


def test_undefined_metrics_are_null(tmp_path):
    def undefined(config, run_dir):
        fake_run(config, run_dir)
        seed = config.training.seed
        return {"accuracy": math.nan if seed == 8 else 1.0 / seed}

    results = repeat(undefined, CONFIG, num_runs=3, run_dir=str(tmp_path))
    assert math.isnan(results.summary()["accuracy"]["median"])
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert written["runs"][1]["last"] == {"accuracy": None}
    assert written["summary"]["accuracy"] == {
        "values": [1 / 7, None, 1 / 9],
        "median": None,
        "spread": None,
    }


def test_what_is_finished_is_kept_when_the_next_run_fails(tmp_path):
    def failing(config, run_dir):
        if config.training.seed == 8:
            raise KeyboardInterrupt
        return fake_run(config, run_dir)

    with pytest.raises(KeyboardInterrupt):
        repeat(failing, CONFIG, num_runs=3, run_dir=str(tmp_path))
    written = json.loads((tmp_path / RESULTS_FILE).read_text())
    assert [run["seed"] for run in written["runs"]] == [7]


@pytest.mark.slow
def test_cut_and_started_again_is_as_if_never_cut(
    pretrained, tmp_path, monkeypatch
):
    """What is finished stays, what was cut goes on; dropout is on."""
    rows = [f"{'the of ' * (n % 4)}and\t{n % 2}" for n in range(20)]
    data_dir = write_task(tmp_path, rows)
    config = override(
        FinetuneConfig(),
        {
            "max_seq_length": 16,
            "num_train_steps": 4,
            "train_batch_size": 4,
            "save_checkpoints_steps": 2,
            "eval_steps": 2,
            "log_steps": 1,
        },
    )

    def run(config, run_dir):
        return run_finetuning(
            config,
            CLASSIFICATION,
            data_dir=data_dir,
            run_dir=run_dir,
            initial=find_initial_weights(pretrained),
            model_changes={"hidden_dropout_prob": 0.1},
        )

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = repeat(run, config, num_runs=2, run_dir=str(whole))
    with monkeypatch.context() as patch:
        # At the second run's last step; the one before is not saved.
        cut_power(patch, after=8)
        with pytest.raises(PowerCut):
            repeat(run, config, num_runs=2, run_dir=str(cut))
    found = repeat(run, config, num_runs=2, run_dir=str(cut))
    assert found.summary() == expected.summary()
    for name in ("metrics.jsonl", "model/model.safetensors"):
        files = [
            [(root / f"run-{n}" / name).read_bytes() for n in (1, 2)]
            for root in (whole, cut)
        ]
        assert files[0] == files[1], name
        # Seeds of their own.
        assert files[0][0] != files[0][1], name


def test_the_directory_of_a_single_run(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is the directory of one run; name an"):
        repeat(fake_run, FinetuneConfig(), num_runs=2, run_dir=str(tmp_path))
