"""Fixtures of training: tiny shards, a small run and an export."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import build_shards, compile_nothing, run

from albert_tf.config import (
    FeatureConfig,
    ModelConfig,
    PretrainConfig,
    override,
)
from albert_tf.interchange.convert import models_by_head
from albert_tf.interchange.export.saved_model import export_saved_model
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.modeling.models import AlbertForPretraining

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

NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}


@pytest.fixture(scope="session")
def shards_dir(tmp_path_factory, sentences, tiny_directory):
    """Shards of 32 tokens: splits train and eval."""
    documents = [sentences[n : n + 8] for n in range(0, 800, 8)]
    root = tmp_path_factory.mktemp("pretraining")
    return build_shards(root, documents, tiny_directory)


@pytest.fixture(scope="session")
def objective_shards(tmp_path_factory, sentences, tiny_directory):
    """A function that writes small shards of an objective."""
    documents = [sentences[n : n + 8] for n in range(0, 240, 8)]

    def write(objective, kind="dynamic"):
        return build_shards(
            tmp_path_factory.mktemp(f"{objective}_{kind}"),
            documents,
            tiny_directory,
            record_kind=kind,
            sentence_objective=objective,
        )

    return write


@pytest.fixture(scope="session")
def classifier(tiny_tokenizer):
    """A classifier of random weights with 24 positions."""
    model = random_model("classification", max_position_embeddings=24)
    features = FeatureConfig(max_seq_length=24, temperature=1.7)
    task = TaskRecord(
        "mood", features, columns=("text=said",), label_separator="|"
    )
    return LoadedModel(model, tiny_tokenizer, 24, task)


@pytest.fixture(scope="session")
def export_dir(tmp_path_factory, classifier):
    """The classifier's export: `mood`, version 1."""
    directory = str(tmp_path_factory.mktemp("export") / "mood")
    origin = {"command": "`export | all`"}
    export_saved_model(classifier, directory, origin=origin)
    return directory


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
def finished(small_config, shards_dir, tmp_path_factory):
    """Directory and last evaluation of a whole run, which is left as it is."""
    run_dir = tmp_path_factory.mktemp("runs") / "whole"
    return run_dir, run(small_config, shards_dir, run_dir)


@pytest.fixture(scope="module")
def optimized_graphs():
    """TensorFlow optimizes graphs, as it does but in tests."""
    options = tf.config.optimizer
    options.set_experimental_options({"disable_meta_optimizer": False})
    yield
    options.set_experimental_options({"disable_meta_optimizer": True})


@pytest.fixture
def start_run(small_config, shards_dir, tmp_path):
    """A function that starts the run in `run/`, with changed settings."""

    def start(runtime=None, initial=None, name="run", **changes):
        return run(
            override(small_config, changes),
            shards_dir,
            tmp_path / name,
            runtime=runtime,
            initial=initial,
        )

    return start


@pytest.fixture
def fake_run(start_run, monkeypatch):
    """A `start_run` with invented numbers."""
    compile_nothing(monkeypatch)
    return start_run


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory, tiny_tokenizer):
    """An untrained model: only fine-tuning can make it learn."""
    # Some initial weights would take longer than the test gives them.
    keras.utils.set_random_seed(1)
    directory = str(tmp_path_factory.mktemp("models") / "pretrained")
    config = ModelConfig(
        vocab_size=tiny_tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    save_model_directory(
        directory,
        AlbertForPretraining(config),
        tiny_tokenizer,
        max_seq_length=64,
    )
    return directory


def write_task(directory, train, dev=None, header="text\tlabel"):
    """Writes train.tsv and dev.tsv; returns the directory."""
    for split, rows in (("train", train), ("dev", dev or train)):
        text = "\n".join([header, *rows]) + "\n"
        (directory / f"{split}.tsv").write_text(text)
    return str(directory)


def random_model(head, **size):
    """Returns a model with a head whose outputs differ: of large weights."""
    config = override(ModelConfig(), SMALL_MODEL | {"vocab_size": 200} | size)
    kind = models_by_head()[head]
    labels = ["sea", "land", "air"] if kind.takes_labels() else None
    # Not the default.
    embeds = head == "sentence_embedding"
    options = {"pooling": "mean_max"} if embeds else None
    model = kind(config, labels=labels, head_options=options)
    rng = np.random.default_rng(8)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape) * 0.5)
    return model
