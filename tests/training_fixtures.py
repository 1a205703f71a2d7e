"""What tests of training share: tiny shards and a small run."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from pretraining_runs import run

from albert_tf.config import (
    MaskingConfig,
    ModelConfig,
    PretrainConfig,
    PretrainingDataConfig,
    override,
)
from albert_tf.records.schemas import RECORD_SPECS, serialize
from albert_tf.records.shards import write_shard
from data_prep.pretraining.pretraining_data import build_pretraining_data

SMALL_MODEL = {
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


@pytest.fixture(scope="session")
def shards_dir(tmp_path_factory, sentences, tiny_directory):
    """Shards of 32 tokens: splits train and eval."""
    root = tmp_path_factory.mktemp("pretraining")
    blocks = ["\n".join(sentences[n : n + 8]) for n in range(0, 800, 8)]
    (root / "text.txt").write_text("\n\n".join(blocks), encoding="utf-8")
    build_pretraining_data(
        [str(root / "text.txt")],
        str(root / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=PretrainingDataConfig(
            document_separator="blank_line",
            sentence_splitter="newline",
            max_seq_length=32,
            eval_fraction=0.2,
        ),
        masking=MaskingConfig(),
    )
    return str(root / "shards")


def invented_record(rng, tokenizer, objective, kind):
    """Returns the features of a record of up to 31 tokens."""
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    lengths = rng.integers(4, 15, size=1 if objective == "none" else 2)
    pieces = [rng.integers(5, tokenizer.vocab_size, n) for n in lengths]
    input_ids = np.concatenate([[cls], *([*p, sep] for p in pieces)])
    segment_ids = np.repeat(
        np.arange(len(pieces)),
        [n + 1 + (k == 0) for k, n in enumerate(lengths)],
    )
    record = {
        "input_ids": input_ids,
        "segment_ids": segment_ids,
        "word_starts": np.ones_like(input_ids),
        "sentence_order_label": [
            int(objective != "none" and rng.random() < 1 / 3)
        ],
    }
    if kind == "dynamic":
        return record
    padding = np.zeros(32 - len(input_ids), int)
    return {
        "input_ids": [
            *input_ids[:2],
            tokenizer.mask_id,
            *input_ids[3:],
            *padding,
        ],
        "input_mask": [*np.ones_like(input_ids), *padding],
        "segment_ids": [*segment_ids, *padding],
        "token_boundary": [*np.ones_like(input_ids), *padding],
        "masked_lm_positions": [2, 0],
        "masked_lm_ids": [input_ids[2], 0],
        "masked_lm_weights": [1.0, 0.0],
        "sentence_order_label": record["sentence_order_label"],
    }


@pytest.fixture(scope="session")
def objective_shards(tmp_path_factory, tiny_directory, tiny_tokenizer):
    """A function that writes shards of an objective: 40 records and 20."""

    def write(objective, kind="dynamic"):
        directory = tmp_path_factory.mktemp(f"{objective}_{kind}")
        shutil.copytree(tiny_directory, directory / "tokenizer")
        rng = np.random.default_rng(3)
        splits = {}
        for split, number in (("train", 40), ("eval", 20)):
            shard = write_shard(
                directory / f"{split}-00000-of-00001.tfrecord",
                [
                    serialize(
                        RECORD_SPECS[kind],
                        invented_record(rng, tiny_tokenizer, objective, kind),
                    )
                    for _ in range(number)
                ],
            )
            splits[split] = {"shards": [dataclasses.asdict(shard)]}
        metadata = {
            "format_version": 1,
            "record_kind": kind,
            "sentence_objective": objective,
            "max_seq_length": 32,
            "num_slots": 2 if kind == "static" else 0,
            "tokenizer": {
                "fingerprint": tiny_tokenizer.fingerprint,
                "vocab_size": tiny_tokenizer.vocab_size,
                "mask_id": tiny_tokenizer.mask_id,
                "special_ids": [0, 1, 2, 3, 4],
                "replacement_id_ranges": [[5, tiny_tokenizer.vocab_size]],
            },
            "splits": splits,
        }
        (directory / "metadata.json").write_text(json.dumps(metadata))
        return str(directory)

    return write


@pytest.fixture(scope="session")
def single_segments(objective_shards):
    """Shards of single segments: splits train and eval."""
    return objective_shards("none")


@pytest.fixture(scope="session")
def next_sentences(objective_shards):
    """Shards of next-sentence pairs: splits train and eval."""
    return objective_shards("nsp")


@pytest.fixture(scope="session")
def small_config(tiny_tokenizer):
    """A pretraining run of 12 steps, dropout on."""
    return override(
        PretrainConfig(),
        {
            **SMALL_MODEL,
            "vocab_size": tiny_tokenizer.vocab_size,
            "num_train_steps": 12,
            "num_warmup_steps": 2,
            "learning_rate": 0.01,
            "train_batch_size": 8,
            "eval_batch_size": 16,
            "log_steps": 5,
            "eval_steps": 6,
            "save_checkpoints_steps": 4,
            "keep_checkpoint_max": 2,
        },
    )


@pytest.fixture(scope="session")
def small_model_config(small_config) -> ModelConfig:
    return small_config.model


@pytest.fixture(scope="session")
def finished(small_config, shards_dir, tmp_path_factory):
    """Directory and last evaluation of a whole run, which is left as it is."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    return run_dir, run(small_config, shards_dir, run_dir)
