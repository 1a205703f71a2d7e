"""Small pretraining runs, their interruption and their files."""

import itertools
import json
import os
import signal
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)

from albert_tf.config import MaskingConfig, PretrainingDataConfig, to_dict
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.jobs import pretrain
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.jobs.pretraining_phases import PretrainingShards
from albert_tf.training.trainer import StepResult, Trainer
from data_prep.pretraining.pretraining_data import build_pretraining_data

ROOT = Path(__file__).resolve().parents[1]


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
        PretrainingShards([shards_dir], [shards_dir]),
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
        # A report's clock times differ.
        "--noreport",
        *(f"--{name}={value}" for name, value in settings.items()),
    ]


def weights_of(run_dir):
    model = load_model_directory(os.path.join(run_dir, "model")).model
    return {v.path: np.array(v) for v in model.trainable_variables}


def lines_of(run_dir, *splits):
    """Returns the logged scalars of splits, by default of training."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    splits = splits or ("train",)
    return [x for x in map(json.loads, lines) if x["split"] in splits]


def events(run_dir, split=""):
    """Returns an accumulator with the TensorBoard events of a run."""
    found = EventAccumulator(
        f"{run_dir}/tensorboard/{split}",
        # 0 keeps all points of a plugin.
        tensor_size_guidance={"scalars": 0, "text": 0},
    )
    found.Reload()
    return found


def contents(run_dir):
    """Returns the files of a run by name, but those with clock times."""
    return {
        str(path.relative_to(run_dir)): path.read_bytes()
        for path in sorted(run_dir.rglob("*"))
        if path.is_file()
        and path.relative_to(run_dir).parts[0] != "tensorboard"
        and path.name != "timing.jsonl"
    }


def assert_same_run(run_dir, expected_dir):
    """Compares names and bytes of all files; checkpoints hold all state."""
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
    """Ends a run without any clean-up."""


def after_calls(number, act, setattr_=setattr):
    """Makes `act` be called after so many calls of the trainer."""
    calls = itertools.count(1)
    plain_steps = Trainer.train_steps

    def train_steps(self, *args, **kwargs):
        results = plain_steps(self, *args, **kwargs)
        if next(calls) == number:
            act()
        return results

    setattr_(Trainer, "train_steps", train_steps)


def cut_power(monkeypatch, after):
    """Makes a run end after so many calls of the trainer."""

    def cut():
        raise PowerCut

    after_calls(after, cut, monkeypatch.setattr)


def terminate():
    """Sends SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)


def compile_nothing(monkeypatch):
    """Makes steps and evaluations return invented numbers at once.

    To test the loop alone. A batch with an infinite weight has an infinite
    loss.
    """

    def train_steps(self, batches, depth=None, **controls):
        results = []
        for batch in batches:
            loss = 1.0 + float(batch["masked_lm_weights"].max())
            bad = float(not np.isfinite(loss))
            results.append(
                StepResult(
                    sums={},
                    loss=loss,
                    gradient_norm=1.0,
                    learning_rate=0.1,
                    skipped=bad,
                    nonfinite=bad,
                    stop_requests=float(controls["stop_requested"]),
                    loss_scale=1.0,
                )
            )
        return results

    def outputs(self, batch, num_applications=None):
        shape = (*batch["masked_lm_ids"].shape, self.model.config.vocab_size)
        return {"masked_lm_logits": np.zeros(shape, np.float32)}

    monkeypatch.setattr(Trainer, "train_steps", train_steps)
    monkeypatch.setattr(Trainer, "outputs", outputs)
    metrics = {"loss": 1.0, "masked_lm_accuracy": 0.5}
    metrics["most_frequent_token_accuracy"] = 0.1
    monkeypatch.setattr(
        pretrain, "evaluate_pretraining", lambda *_: dict(metrics)
    )
