"""Pretraining runs of tests, and what they leave."""

import json
import os

import numpy as np

from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.training.pretrain import run_pretraining


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
