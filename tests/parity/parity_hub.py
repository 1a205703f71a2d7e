"""Models of transformers on the hub, for which a local server stands in."""

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import constants

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.jobs.hub_upload import push_to_hub
from albert_tf.modeling.models import AlbertForClassification
from tests.hub_server import client_of, serving
from tests.numpy_albert import randomise

BOUND = 1e-5
SIZE = {
    "vocab_size": 200,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}
LABELS = ["bad", "good", "neither"]
IDS = np.arange(5, 25).reshape(2, 10)


@pytest.fixture
def server(tmp_path):
    with serving() as (hub, url), client_of(url, tmp_path / "cache"):
        hub.url = url
        yield hub


def logits_there(model):
    model.eval()
    with torch.no_grad():
        return model(torch.tensor(IDS)).logits.numpy()


def logits_here(model):
    return np.array(model({"input_ids": IDS.astype(np.int32)})["logits"])


def difference(one, other):
    return np.abs(one - other).max() / np.abs(one).max()


def test_what_transformers_saved(
    server, tiny_tokenizer, tmp_path, record_difference
):
    config = transformers.AlbertConfig(
        **SIZE, id2label=dict(enumerate(LABELS)), num_labels=len(LABELS)
    )
    theirs = transformers.AlbertForSequenceClassification(config)
    theirs.save_pretrained(tmp_path / "theirs")
    tiny_tokenizer.save(str(tmp_path / "theirs"), 32)
    server.add("them/mood", tmp_path / "theirs")
    ours = load_model_directory("hf://them/mood")
    assert ours.labels == LABELS
    found = difference(logits_there(theirs), logits_here(ours.model))
    record_difference("hub", "logits of a classifier", found, BOUND)


def test_what_was_uploaded_opens_by_name(
    server, tiny_tokenizer, tmp_path, record_difference, monkeypatch
):
    ours = AlbertForClassification(override(ModelConfig(), SIZE), labels=LABELS)
    randomise(ours, seed=1)
    directory = str(tmp_path / "ours")
    save_model_directory(directory, ours, tiny_tokenizer, max_seq_length=32)
    push_to_hub(directory, "hf://me/mood")
    assert server.url == constants.ENDPOINT
    kind = transformers.AutoModelForSequenceClassification
    theirs = kind.from_pretrained("me/mood")
    assert list(theirs.config.id2label.values()) == LABELS
    found = difference(logits_there(theirs), logits_here(ours))
    record_difference("hub", "logits of an upload", found, BOUND)
    tokenizer = transformers.AutoTokenizer.from_pretrained("me/mood")
    text = "The fine bada gule."
    ids = tokenizer(text)["input_ids"]
    assert ids[1:-1] == tiny_tokenizer.encode(text)
