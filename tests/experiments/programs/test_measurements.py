"""Measurements of pretrained models: other depths than they learned with."""

import dataclasses
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from training_fixtures import SMALL_MODEL

from albert_tf.config import ModelConfig, override
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.modeling.models import AlbertForPretraining
from albert_tf.records.shards import open_shards
from experiments.programs import measurements, piece_errors


@pytest.mark.slow
def test_a_block_is_applied_more_often_than_it_was_trained(
    shards_dir, tiny_tokenizer, monkeypatch
):
    monkeypatch.setattr(measurements, "DEPTHS", (2, 3))
    config = override(
        ModelConfig(),
        SMALL_MODEL | {"vocab_size": tiny_tokenizer.vocab_size},
    )
    model = AlbertForPretraining(
        dataclasses.replace(config, num_hidden_layers=2)
    )
    model.build()
    loaded = LoadedModel(model, tiny_tokenizer, 32)
    found = measurements._any_depth(loaded, open_shards(shards_dir, "eval"))
    twice, thrice = found["depths"]
    assert thrice["applications"] == 3
    assert thrice["flops"] > twice["flops"]
    assert thrice["masked_lm_loss"] != twice["masked_lm_loss"]
    assert np.isfinite(thrice["masked_lm_loss"])
    # After two applications, all answers are those after the second.
    for name in ("masked_lm", "sentence_order"):
        exits = found["early_exit"][f"{name}_logits"]
        assert exits["applications"] == exits["most_applications"] == 2
        accuracy = pytest.approx(twice[f"{name}_accuracy"])
        assert exits["accuracy"] == exits["fixed_accuracy"] == accuracy


# Pieces behind "|": what follows the first one of a word of letters.
_WORD = r"\|▁(?=\|?[a-z])[a-z]*((?:\|[a-z]+)*)(?=\|)"


class WordStarts:
    """A model that knows the pieces that begin a word, and no other."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, features, training, heads_only):
        labels = features["masked_lm_ids"].numpy()
        known = self.tokenizer.word_start[labels]
        logits = np.zeros((*labels.shape, self.tokenizer.vocab_size), "float32")
        np.put_along_axis(logits, labels[..., None], 99.0 * known[..., None], 2)
        return {
            "masked_lm_logits": tf.constant(logits),
            "sentence_order_logits": tf.constant([[0.0, 1.0]] * len(labels)),
        }


def test_words_are_right_with_all_their_pieces(
    shards_dir, tiny_tokenizer, monkeypatch
):
    monkeypatch.setattr(measurements, "_MASKED_WORDS", 1.0)
    shards = open_shards(shards_dir, "eval")
    loaded = LoadedModel(WordStarts(tiny_tokenizer), tiny_tokenizer, 32)
    found = measurements._words(loaded, shards)
    batches = measurements._batches(shards)
    beyond_first, order = [], []
    for step in range(batches.num_steps):
        batch = measurements._unmasked(batches.batch(step))
        real = batch["example_weights"] > 0
        order += batch["sentence_order_labels"][real].tolist()
        for ids in batch["input_ids"][real]:
            row = "".join(f"|{p}" for p in tiny_tokenizer.pieces(ids))
            words = re.findall(_WORD, row)
            beyond_first += [rest.count("|") for rest in words]
    assert found["words"] == len(beyond_first)
    assert found["word_accuracy"] == np.mean(np.equal(beyond_first, 0))
    assert 0.05 < found["word_accuracy"] < 0.95
    assert found["word_loss"] == pytest.approx(
        np.mean(beyond_first) * np.log(tiny_tokenizer.vocab_size), rel=1e-5
    )
    assert found["sentence_order_accuracy"] == np.mean(order)


def test_other_vocabularies_mask_the_same_words(tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(measurements, "_MASKED_WORDS", 1.0)
    text = "Bafe (dozu) bafe, zilu 1,200 dozu's."
    counts = []
    for tokenizer in (
        tiny_tokenizer,
        tiny_tokenizer.with_words(["bafe", "zilu"]),
    ):
        ids = tokenizer([text], max_seq_length=40, padding="max")["input_ids"]
        batch = {"input_ids": ids, "example_weights": np.ones(1)}
        rng = np.random.default_rng(0)
        masked, words = measurements.mask_words(batch, tokenizer, rng)
        real = masked["masked_lm_weights"] > 0
        shown = masked["input_ids"][ids != masked["input_ids"]]
        assert set(shown) == {tokenizer.mask_id}
        counts.append((len(np.unique(words[real])), int(real.sum())))
    (number, pieces), (same_number, fewer_pieces) = counts
    # bafe, bafe, zilu, dozu
    assert number == same_number == 4
    assert fewer_pieces < pieces


def test_pieces_are_weighted_by_how_often_they_are_wrong(
    shards_dir, tiny_tokenizer, tmp_path, monkeypatch
):
    loaded = LoadedModel(WordStarts(tiny_tokenizer), tiny_tokenizer, 32)
    monkeypatch.setattr(
        piece_errors, "load_model_directory", lambda directory: loaded
    )
    monkeypatch.setattr(piece_errors, "_NUM_BATCHES", 2)
    path = tmp_path / "weights.json"
    piece_errors.main("model", shards_dir, str(path))
    weights = list(json.loads(path.read_text()).values())
    starts = tiny_tokenizer.word_start[: len(weights)]
    assert max(np.array(weights)[starts]) <= min(np.array(weights)[~starts])
    assert 0 < min(weights) < max(weights) < 1


def test_rare_pieces_have_nearly_the_mean_error():
    masked, wrong = np.array([0, 1, 990, 9]), np.array([0, 1, 99, 0])
    found = piece_errors.smoothed_errors(masked, wrong)
    expected = [0.1, 2 / 11, 100 / 1000, 1 / 19]
    assert found == pytest.approx(expected)
