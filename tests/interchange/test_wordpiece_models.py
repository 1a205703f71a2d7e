"""A WordPiece vocabulary: a model pretrained, saved, tuned, asked, exported."""

import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.config import (
    PRESETS,
    FinetuneConfig,
    MaskingConfig,
    ModelConfig,
    PretrainConfig,
    PretrainingDataConfig,
    UserError,
    override,
)
from albert_tf.interchange.model_directory import (
    find_initial_weights,
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.serving import export_saved_model
from albert_tf.jobs.finetune import run_finetuning
from albert_tf.jobs.predict import Predictor
from albert_tf.jobs.pretrain import run_pretraining
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.schemas import RECORD_SPECS, parse_batch
from albert_tf.records.shards import open_shards
from albert_tf.tasks.custom import CLASSIFICATION
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.pretraining.pretraining_data import build_pretraining_data

LABELS = {"城": "北京上海", "山": "泰华衡恒"}
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
def pretrained(tmp_path_factory):
    tokenizer = WordPieceTokenizer(PIECES)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    model = AlbertForPretraining(config)
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.3)
    directory = str(tmp_path_factory.mktemp("models") / "pretrained")
    save_model_directory(directory, model, tokenizer, max_seq_length=24)
    return directory


@pytest.fixture(scope="module")
def classifier(pretrained, tmp_path_factory):
    data, run = (str(tmp_path_factory.mktemp(n)) for n in ("data", "run"))
    rng = np.random.default_rng(0)
    for split in ("train", "dev"):
        rows = ["text\tlabel"]
        for number in range(32):
            label = list(LABELS)[number % 2]
            words = "".join(rng.choice([*LABELS[label]], size=4))
            rows.append(f"我在{words}。\t{label}")
        path = os.path.join(data, f"{split}.tsv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(rows) + "\n")
    settings = override(
        FinetuneConfig(),
        {
            "max_seq_length": 16,
            "learning_rate": 3e-3,
            "num_train_epochs": 30.0,
            "train_batch_size": 16,
            "eval_batch_size": 16,
            "eval_steps": 0,
        },
    )
    evaluation = run_finetuning(
        settings,
        CLASSIFICATION,
        data_dir=data,
        run_dir=run,
        initial=find_initial_weights(pretrained),
    )
    assert evaluation["accuracy"] > 0.9
    return os.path.join(run, "model")


def test_a_model_directory_keeps_its_tokenizer(pretrained):
    assert sorted(os.listdir(pretrained)) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    loaded = load_model_directory(pretrained)
    assert isinstance(loaded.tokenizer, WordPieceTokenizer)
    assert list(loaded.tokenizer.vocabulary) == PIECES


def test_export_answers_as_predict_does(classifier, tmp_path):
    loaded = load_model_directory(classifier)
    want = list(Predictor(loaded).classify([(text,) for text in TEXTS]))
    assert [row.label for row in want[:2]] == ["城", "山"]
    path = export_saved_model(loaded, str(tmp_path / "export"))
    answer = tf.saved_model.load(path).signatures["serving_default"]
    got = answer(tf.constant(TEXTS))
    np.testing.assert_allclose(
        got["probabilities"],
        [list(row.probabilities.values()) for row in want],
        rtol=1e-5,
        atol=1e-7,
    )
    assert [label.decode() for label in got["label"].numpy()] == [
        row.label for row in want
    ]


def test_a_vocabulary_of_another_size(pretrained, tmp_path):
    directory = str(tmp_path / "model")
    shutil.copytree(pretrained, directory)
    with open(
        os.path.join(directory, "vocab.txt"), "a", encoding="utf-8"
    ) as file:
        file.write("new\n")
    size = len(PIECES)
    with pytest.raises(
        UserError,
        match=f"has {size + 1} pieces and the model vocab_size={size}",
    ):
        load_model_directory(directory)
    for name in ("vocab.txt", "tokenizer.json"):
        os.remove(os.path.join(directory, name))
    with pytest.raises(UserError, match="model has no tokenizer, none of"):
        load_model_directory(directory)


@pytest.fixture(scope="module")
def chinese_shards(tmp_path_factory):
    """Shards of Chinese documents, 12 sentences in a paragraph each."""
    root = tmp_path_factory.mktemp("chinese")
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
    (root / "corpus.txt").write_text("\n\n".join(documents), encoding="utf-8")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*specials, *sorted({*"".join(documents)})]
    (root / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    build_pretraining_data(
        [str(root / "corpus.txt")],
        str(root / "shards"),
        tokenizer_dir=str(root),
        config=PretrainingDataConfig(max_seq_length=48, eval_fraction=0.1),
        masking=MaskingConfig(),
    )
    return str(root / "shards")


def test_segments_of_chinese_text_are_whole_sentences(chinese_shards):
    shards = open_shards(chinese_shards, "train")
    columns = parse_batch(
        RECORD_SPECS["dynamic"],
        shards.read(range(len(shards))),
        max_seq_length=48,
    )
    tokenizer = load_tokenizer(f"{chinese_shards}/tokenizer")
    texts = [tokenizer.pieces(ids[ids != 0]) for ids in columns["input_ids"]]
    ends = [
        text[place - 1]
        for text in texts
        for place, piece in enumerate(text)
        if piece == "[SEP]"
    ]
    assert len(ends) == 2 * len(texts) > 300
    assert {*ends} == {*"。！？"}


@pytest.mark.slow
def test_a_model_pretrained_on_chinese_text_fills_masks(
    chinese_shards, tmp_path
):
    settings = {
        **PRESETS["tiny"],
        "vocab_size": load_tokenizer(f"{chinese_shards}/tokenizer").vocab_size,
        "train_batch_size": 16,
        "num_train_steps": 20,
        "num_warmup_steps": 5,
    }
    run_pretraining(
        override(PretrainConfig(), settings),
        train_data=[chinese_shards],
        eval_data=[chinese_shards],
        run_dir=str(tmp_path / "run"),
    )
    loaded = load_model_directory(str(tmp_path / "run" / "model"))
    (answer,) = Predictor(loaded).fill_mask(["今天老[MASK]看见小鸟。"], top_k=3)
    (candidates,) = answer.candidates
    assert {piece for piece, _ in candidates} < {
        piece for piece in loaded.tokenizer.vocabulary if len(piece) == 1
    }
