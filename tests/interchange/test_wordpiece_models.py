"""A model with a WordPiece vocabulary: pretrained, and asked."""

import dataclasses
import itertools
import random

import pytest
from pretraining_runs import build_shards, run
from tiny_models import TINY

from albert_tf.config import PretrainConfig, override
from albert_tf.interchange.model_directory import load_model_directory
from albert_tf.prediction.predictor import Predictor


@pytest.mark.slow
def test_a_model_pretrained_on_chinese_text_fills_masks(tmp_path):
    rng = random.Random(3)
    parts = ("今天|昨天|早上", "老师|妈妈|我", "看见|买了|画", "红花|小鸟|大船")
    documents = [
        [
            "".join(rng.choice(part.split("|")) for part in parts)
            + rng.choice("。！？")
            for _ in range(12)
        ]
        for _ in range(100)
    ]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = {*"".join(itertools.chain(*documents))}
    vocabulary = [*specials, *sorted(characters)]
    text = "\n".join(vocabulary)
    (tmp_path / "vocab.txt").write_text(text, encoding="utf-8")
    shards = build_shards(tmp_path, documents, tmp_path)
    settings = {
        **dataclasses.asdict(TINY),
        "max_position_embeddings": 32,
        "vocab_size": len(vocabulary),
        "train_batch_size": 16,
        "num_train_steps": 4,
        "num_warmup_steps": 1,
    }
    config = override(PretrainConfig(), settings)
    run(config, shards, tmp_path / "run")
    loaded = load_model_directory(str(tmp_path / "run" / "model"))
    (answer,) = Predictor(loaded).fill_mask(["今天老[MASK]看见小鸟。"], top_k=3)
    (candidates,) = answer.candidates
    assert {piece for piece, _ in candidates} < {
        piece for piece in loaded.tokenizer.vocabulary if len(piece) == 1
    }
