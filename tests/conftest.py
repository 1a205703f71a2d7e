"""Shared fixtures: two logical CPUs and tiny vocabularies."""

import gc
import os
import random

import pytest
from hypothesis import HealthCheck, settings
from sentencepiece import sentencepiece_model_pb2

from albert_tf.io import locks
from albert_tf.text.tokenizer import SentencePieceTokenizer, load_tokenizer
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.vocabulary import train_vocabulary

# Beside other work examples may be made slowly.
settings.register_profile("all", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("all")


def pytest_configure(config):
    """Loads TensorFlow, unless this process only hands tests to others."""
    if getattr(config.option, "numprocesses", None):
        return
    import tensorflow as tf

    # Before anything starts TensorFlow: replicas need devices of their own.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    # Graphs run as they are traced: to optimize them takes longer than to run
    # them. What programs do in processes of their own has it.
    tf.config.optimizer.set_experimental_options(
        {"disable_meta_optimizer": True}
    )
    config.pluginmanager.import_plugin("training_fixtures")
    config.pluginmanager.import_plugin("hub_server")


def pytest_collection_modifyitems(items):
    # The longest tests first, or one process would wait for another's last.
    items.sort(
        key=lambda item: (
            item.path.parent.name != "training"
            and item.path.name != "test_documents.py"
        )
    )


def pytest_collection_finish():
    # What is imported stays: a tenth of the time went into looking through it.
    gc.freeze()
    # Another tenth went into looking through what tests have made.
    gc.set_threshold(20000, 20, 50)


SYLLABLES = [a + b for a in "bcdfghjklmnprstvwz" for b in "aeioué"]


def invented_sentences(number, seed=7):
    """Returns sentences of invented words; some with a number."""
    rng = random.Random(seed)
    words = ["the", "of", "and"]
    for _ in range(300):
        words.append("".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))))
    # A few words are most of the text, like in a language.
    frequencies = [1 / rank for rank in range(1, len(words) + 1)]
    sentences = []
    for _ in range(number):
        chosen = rng.choices(words, frequencies, k=rng.randint(3, 9))
        if rng.random() < 0.2:
            chosen = ["In", f"{rng.randrange(1000, 2000):,},", *chosen]
        if rng.random() < 0.2:
            chosen[-1] = f"({chosen[-1]})"
        sentences.append(" ".join(chosen).capitalize() + ".")
    return sentences


@pytest.fixture(scope="session", autouse=True)
def _separate_caches(tmp_path_factory):
    """Programs cache features in the user's directory; tests must not."""
    with pytest.MonkeyPatch.context() as patch:
        caches = str(tmp_path_factory.mktemp("caches"))
        patch.setenv("XDG_CACHE_HOME", caches)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting():
    """Nobody else writes into the buckets, and no file need outlive a test.

    A tenth of the time was waiting for the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "_SETTLING_SECONDS", 0.01)
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def sentences():
    """800 invented sentences, those that tiny_tokenizer is trained on."""
    return invented_sentences(800)


@pytest.fixture(scope="session")
def tiny_directory(tmp_path_factory, sentences):
    """A tokenizer directory of 200 pieces."""
    directory = tmp_path_factory.mktemp("vocabulary") / "tiny"
    train_vocabulary(sentences, directory, vocab_size=200)
    return directory


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_directory):
    return load_tokenizer(tiny_directory)


def handmade_model(scores, unused=()):
    """Returns a unigram model of the special pieces and those in `scores`."""
    model = sentencepiece_model_pb2.ModelProto()
    kinds = model.SentencePiece
    for name in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"):
        kind = kinds.UNKNOWN if name == "<unk>" else kinds.CONTROL
        model.pieces.add(piece=name, score=0.0, type=kind)
    for piece, score in scores.items():
        kind = kinds.UNUSED if piece in unused else kinds.NORMAL
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = model.trainer_spec.UNIGRAM
    model.trainer_spec.pad_id, model.trainer_spec.unk_id = 0, 1
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    model.normalizer_spec.name = "identity"
    return model.SerializeToString()


@pytest.fixture(scope="session")
def make_model():
    return handmade_model


@pytest.fixture(scope="session")
def comma_tokenizer():
    """Pieces that end in a comma, after digits and not."""
    scores = dict.fromkeys(["8,", "▁8,", "70,", "9,", "▁a,"], -1.0)
    scores |= dict.fromkeys(["▁", ",", "a", "7", "▁70", "e"], -3.0)
    scores |= dict.fromkeys(["8", "▁8"], -4.0)
    return SentencePieceTokenizer(handmade_model(scores))


@pytest.fixture(scope="session")
def tied_tokenizer():
    """Scores whose sums round, as those of the released vocabulary."""
    scores = {"▁": -2.18897, "e": -6.56261, "ee": -10.233}
    scores |= {"0": -8.38541, "00": -9.91104, "000": -10.5616}
    return SentencePieceTokenizer(handmade_model(scores))


# The special pieces stand where they happen to, as in released vocabularies.
WORDPIECES = [
    "[PAD] [unused1] [unused99] [UNK] [CLS] [SEP] [MASK] a ##a b ##b un ##aff",
    "##able able ##able's ##ing ing e é ##é ##\u0301 \u0301 ς σ ##σ 8 ##8 1",
    "##000 , . ! # [ ] ' \" $ 中 国 ##国 国人 人 、 。 ｜ （ ） mask ##mask",
    "cls sep ##pad xx ##xx A ##A B Ａ か ##か き ##き \u1112 ##\u1161",
    "각 😀 ½ － i ##i ss ß ##ß",
]


@pytest.fixture(scope="session")
def wordpiece_pieces():
    return " ".join(WORDPIECES).split()


@pytest.fixture(scope="session")
def wordpiece_tokenizer(wordpiece_pieces):
    return WordPieceTokenizer(wordpiece_pieces)
