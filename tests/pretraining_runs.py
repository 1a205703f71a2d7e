"""Pretraining runs of tests, and what they leave."""

import json
import os

import numpy as np

from albert_tf.config import MaskingConfig, PretrainingDataConfig, to_dict
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.jobs import pretrain
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.training import loop
from data_prep.pretraining.pretraining_data import build_pretraining_data


def build_shards(directory, documents, tokenizer_dir, **changes):
    """Returns a directory of shards of 32 tokens, a fifth held out."""
    text = "\n\n".join("\n".join(sentences) for sentences in documents)
    (directory / "text.txt").write_text(text, encoding="utf-8")
    build_pretraining_data(
        [str(directory / "text.txt")],
        str(directory / "shards"),
        tokenizer_dir=str(tokenizer_dir),
        config=PretrainingDataConfig(
            document_separator="blank_line",
            sentence_splitter="newline",
            max_seq_length=32,
            eval_fraction=0.2,
            **changes,
        ),
        masking=MaskingConfig(),
    )
    return str(directory / "shards")


def run(config, shards_dir, run_dir, **options):
    return run_pretraining(
        config,
        train_data=[shards_dir],
        eval_data=[shards_dir],
        run_dir=str(run_dir),
        **options,
    )


def flags_of(config, shards_dir, run_dir):
    """Returns the flags of bin.pretrain for the same run."""
    settings = {
        name: value
        for section in to_dict(config).values()
        for name, value in section.items()
        if name != "vocab_size"
    }
    return [
        f"--train_data={shards_dir}",
        f"--eval_data={shards_dir}",
        f"--run_dir={run_dir}",
        *(f"--{name}={value}" for name, value in settings.items()),
    ]


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


def compile_nothing(monkeypatch):
    """From now on steps and evaluations give invented numbers at once.

    For what the loop does with them; a batch with an infinite weight has an
    infinite loss.
    """

    def train_steps(self, batches, depth=None, **controls):
        results = []
        for batch in batches:
            loss = 1.0 + float(batch["masked_lm_weights"].max())
            bad = float(not np.isfinite(loss))
            results.append(
                {
                    "loss": loss,
                    "gradient_norm": 1.0,
                    "learning_rate": 0.1,
                    "skipped": bad,
                    "nonfinite": bad,
                    "stop_requested": float(controls["stop_requested"]),
                }
            )
        return results

    def outputs(self, batch):
        shape = (*batch["masked_lm_ids"].shape, self.model.config.vocab_size)
        return {"masked_lm_logits": np.zeros(shape, np.float32)}

    monkeypatch.setattr(loop.Trainer, "train_steps", train_steps)
    monkeypatch.setattr(loop.Trainer, "outputs", outputs)
    metrics = {"loss": 1.0, "masked_lm_accuracy": 0.5}
    metrics["most_frequent_token_accuracy"] = 0.1
    monkeypatch.setattr(
        pretrain, "evaluate_pretraining", lambda *_: dict(metrics)
    )
