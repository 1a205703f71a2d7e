"""Low-rank adapters in Hugging Face's PEFT, on transformers' model."""

import numpy as np
import peft
import pytest
import torch
import transformers

from albert_tf import AlbertForClassification, ModelConfig
from albert_tf.config import override
from albert_tf.modeling.weights.adapters import add_adapters

CONFIG = ModelConfig(
    vocab_size=60,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=16,
)


@pytest.mark.parametrize("sharing", ["all", "none", "ffn"])
def test_peft_reads_adapters(tmp_path, record_difference, sharing):
    model = AlbertForClassification(override(CONFIG, {"sharing": sharing}), 3)
    model.save_pretrained(str(tmp_path / "base"))
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 60, (4, 9))
    before = np.asarray(model({"input_ids": ids})["logits"])
    add_adapters(model, 4, 8.0, trains_pooler=False)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    model.save_pretrained(str(tmp_path / "adapters"), adapters=True)
    base = transformers.AlbertForSequenceClassification.from_pretrained(
        tmp_path / "base", num_labels=3
    )
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapters").eval()
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor(ids)).logits.numpy()
    ours = np.asarray(model({"input_ids": ids})["logits"])
    assert np.abs(ours - before).max() > 0.1
    record_difference(
        "PEFT on transformers",
        f"logits with adapters, sharing {sharing}",
        np.abs(logits - ours).max(),
        1e-4,
    )
