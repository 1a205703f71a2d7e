"""Vectors of texts by sentence-transformers, with models of both sides."""

import numpy as np
import pytest
from parity_round_trip import CONFIG, SENTENCE
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

from albert_tf.interchange.model_directory import save_model_directory
from albert_tf.modeling.models import AlbertForSentenceEmbedding
from albert_tf.prediction.predictor import Predictor
from tests.numpy_albert import randomise

BOUND = 1e-5
# The last is cut.
TEXTS = [SENTENCE, "of wood", f"{SENTENCE} " * 9]


def vectors(directory):
    predictor = Predictor(str(directory))
    return predictor.vectors(predictor.loaded.tokenizer.encode_batch(TEXTS))


@pytest.mark.parametrize("length", ["any", "unit"])
@pytest.mark.parametrize("pooling", ["first", "mean", "mean_max"])
def test_ours_there_and_back(
    tmp_path, tiny_tokenizer, record_difference, pooling, length
):
    options = {"pooling": pooling, "length": length}
    model = randomise(AlbertForSentenceEmbedding(CONFIG, head_options=options))
    save_model_directory(
        str(tmp_path / "ours"), model, tiny_tokenizer, max_seq_length=24
    )
    theirs = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    expected = vectors(tmp_path / "ours")
    difference = np.abs(theirs.encode(TEXTS) - expected).max()
    theirs.save(str(tmp_path / "theirs"))
    back = np.abs(vectors(tmp_path / "theirs") - expected).max()
    record_difference(
        "sentence-transformers",
        f"vectors of {length} length, pooling {pooling}, there and back",
        max(difference, back),
        BOUND,
    )


@pytest.mark.parametrize("mode", ["cls", "mean"])
def test_theirs(tmp_path, tiny_tokenizer, record_difference, mode):
    encoder = randomise(AlbertForSentenceEmbedding(CONFIG))
    save_model_directory(
        str(tmp_path / "encoder"), encoder, tiny_tokenizer, max_seq_length=24
    )
    word = modules.Transformer(str(tmp_path / "encoder"))
    word.max_seq_length = 12
    pooling = modules.Pooling(CONFIG.hidden_size, pooling_mode=mode)
    parts = [word, pooling, modules.Normalize()][: 2 + (mode == "mean")]
    theirs = SentenceTransformer(modules=parts, device="cpu")
    theirs.save(str(tmp_path / "theirs"))
    difference = np.abs(
        theirs.encode(TEXTS) - vectors(tmp_path / "theirs")
    ).max()
    record_difference(
        "sentence-transformers", f"vectors, its {mode}", difference, BOUND
    )
