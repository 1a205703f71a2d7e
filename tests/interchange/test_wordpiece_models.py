"""Models with a WordPiece vocabulary: exported, pretrained, asked."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf
from tiny_models import TINY

from albert_tf.config import (
    MaskingConfig,
    PretrainConfig,
    PretrainingDataConfig,
    override,
)
from albert_tf.interchange.model_directory import (
    LoadedModel,
    load_model_directory,
)
from albert_tf.interchange.signatures import ServingModule
from albert_tf.jobs.predict import Predictor
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.modeling.models import AlbertForClassification
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.pretraining.pretraining_data import build_pretraining_data

PIECES = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES += [*"我在北京上海泰华衡恒山，。！ae", "##ab", "##国", "go", "##ing"]
TEXTS = [
    "我在北京上海。",
    "我在泰恒衡华。",
    "，去泰山！GOING ÀAB",
    "",
    " \u3000",
    "[MASK] 😀 " + "华衡" * 40,
    "nul \0 and tab\tgoing\n" + "a" * 300,
]


@pytest.fixture(scope="module")
def classifier():
    tokenizer = WordPieceTokenizer(PIECES)
    config = override(TINY, {"vocab_size": tokenizer.vocab_size})
    model = AlbertForClassification(config, labels=["城", "山"])
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.3)
    return LoadedModel(model, tokenizer, max_seq_length=16)


def test_a_served_model_predicts_as_predictor_does(classifier):
    want = list(Predictor(classifier).classify([(text,) for text in TEXTS]))
    module = ServingModule(classifier)
    got = module.functions["text"](tf.constant(TEXTS))
    np.testing.assert_allclose(
        got["probabilities"],
        [list(row.probabilities.values()) for row in want],
        rtol=1e-5,
        atol=1e-7,
    )
    labels = [label.decode() for label in got["label"].numpy()]
    assert labels == [row.label for row in want]


@pytest.mark.slow
def test_a_model_pretrained_on_chinese_text_fills_masks(tmp_path):
    rng = random.Random(3)
    parts = ("今天|昨天|早上", "老师|妈妈|我", "看见|买了|画", "红花|小鸟|大船")
    documents = [
        "".join(
            "".join(rng.choice(part.split("|")) for part in parts)
            + rng.choice("。！？")
            for _ in range(12)
        )
        for _ in range(100)
    ]
    corpus, shards = tmp_path / "corpus.txt", str(tmp_path / "shards")
    corpus.write_text("\n\n".join(documents), encoding="utf-8")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*specials, *sorted({*"".join(documents)})]
    text = "\n".join(vocabulary)
    (tmp_path / "vocab.txt").write_text(text, encoding="utf-8")
    build_pretraining_data(
        [str(corpus)],
        shards,
        tokenizer_dir=str(tmp_path),
        config=PretrainingDataConfig(max_seq_length=48, eval_fraction=0.1),
        masking=MaskingConfig(),
    )
    settings = {
        **dataclasses.asdict(TINY),
        "max_position_embeddings": 48,
        "vocab_size": len(vocabulary),
        "train_batch_size": 16,
        "num_train_steps": 4,
        "num_warmup_steps": 1,
    }
    run_pretraining(
        override(PretrainConfig(), settings),
        train_data=[shards],
        eval_data=[shards],
        run_dir=str(tmp_path / "run"),
    )
    loaded = load_model_directory(str(tmp_path / "run" / "model"))
    (answer,) = Predictor(loaded).fill_mask(["今天老[MASK]看见小鸟。"], top_k=3)
    (candidates,) = answer.candidates
    assert {piece for piece, _ in candidates} < {
        piece for piece in loaded.tokenizer.vocabulary if len(piece) == 1
    }
