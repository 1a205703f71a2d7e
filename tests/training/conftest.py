"""What tests of training share: tiny shards and a small run."""

import pytest

from albert_tf.config import (
    MaskingConfig,
    ModelConfig,
    PretrainConfig,
    PretrainingDataConfig,
    override,
)
from data_prep.pretraining_data import build_pretraining_data

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
