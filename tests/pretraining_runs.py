"""Pretraining runs of tests, and what they leave."""

import json
import os

import numpy as np

from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.training import loop


def run(config, shards_dir, run_dir, **options):
    return run_pretraining(
        config,
        train_data=[shards_dir],
        eval_data=[shards_dir],
        run_dir=str(run_dir),
        **options,
    )


def weights_of(run_dir):
    model = load_model_directory(os.path.join(run_dir, "model")).model
    return {v.path: np.array(v) for v in model.trainable_variables}


def lines_of(run_dir, split="train"):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if x["split"] == split]


def contents(run_dir):
    """Returns what a run leaves by name, but for clock times."""
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file()
        and path.relative_to(run_dir).parts[0] != "tensorboard"
        and path.name != "timing.jsonl"
    }


def assert_same_run(run_dir, expected_dir):
    """Every file's name and bytes; a checkpoint holds all of the state."""
    found, expected = contents(run_dir), contents(expected_dir)
    assert sorted(found) == sorted(expected)
    assert {
        "metrics.jsonl",
        "model/model.safetensors",
        "best_model/model.safetensors",
    } < set(found)
    for name, content in expected.items():
        assert found[name] == content, name


class PowerCut(BaseException):
    """What ends a run without letting it tidy up."""


def cut_power(monkeypatch, after):
    """From now on a run ends after so many calls of the trainer."""
    calls = iter(range(1, 1000))
    plain_steps = loop.Trainer.train_steps

    def failing_steps(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        if next(calls) == after:
            raise PowerCut
        return results

    monkeypatch.setattr(loop.Trainer, "train_steps", failing_steps)
