import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

from albert_tf.config import UserError
from albert_tf.text.tokenizer import load_tokenizer
from data_prep import vocabulary
from data_prep.vocabulary import check_output_directory, train_vocabulary


def read_files(directory):
    return {
        name: (directory / name).read_bytes()
        for name in sorted(os.listdir(directory))
    }


def test_recipe(tiny_directory, tiny_tokenizer):
    pieces = tiny_tokenizer.pieces(range(13))
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert pieces == [*specials, *'()"-.–£€']
    # A sign is a piece of its own wherever it stands.
    assert tiny_tokenizer.pieces(tiny_tokenizer.encode("(a-b)")) == [
        *("▁", "(", "a", "-", "b", ")")
    ]
    proto = sentencepiece_model_pb2.ModelProto
    model = proto.FromString(tiny_tokenizer.model_bytes)
    assert model.trainer_spec.model_type == model.trainer_spec.UNIGRAM
    assert model.trainer_spec.character_coverage == pytest.approx(0.99995)
    assert model.normalizer_spec.name == "nmt_nfkc"


def test_files(tiny_directory, tiny_tokenizer, sentences):
    names = "spiece.model spiece.vocab tokenizer.json tokenizer_config.json"
    expected = [*names.split(), "vocab_summary.json"]
    assert sorted(os.listdir(tiny_directory)) == expected
    lines = (tiny_directory / "spiece.vocab").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    assert [piece for piece, _ in rows] == tiny_tokenizer.pieces(range(200))
    scores = [float(score) for _, score in rows]
    assert scores[:13] == [0.0] * 13 and max(scores[13:]) < 0
    plain = "".join(sentences).replace("é", "e").replace("É", "e")
    summary = json.loads((tiny_directory / "vocab_summary.json").read_text())
    assert summary == {
        "settings": {
            "vocab_size": 200,
            "do_lower_case": True,
            "keep_accents": False,
            "seed": 12345,
            "input_sentence_size": 10_000_000,
            "sample_characters": 50_000_000,
            "character_coverage": 0.99995,
            "source": "",
        },
        "input": {
            "lines": 800,
            "empty_lines": 0,
            "sentences": 800,
            "bytes": len(plain),
        },
        "fingerprint": tiny_tokenizer.fingerprint,
    }


def test_settings_reach_the_clean_up(tmp_path, sentences):
    options = {"do_lower_case": False, "keep_accents": True}
    train_vocabulary(sentences, tmp_path / "v", vocab_size=150, **options)
    tokenizer = load_tokenizer(tmp_path / "v")
    text = "Bédé"
    assert tokenizer.unk_id not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


TRAIN = """
import sys
from data_prep.vocabulary import train_vocabulary
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
train_vocabulary(lines, sys.argv[2], vocab_size=100, input_sentence_size=200)
"""


@pytest.mark.slow
def test_same_bytes_in_another_process(tmp_path, sentences):
    options = {"vocab_size": 100, "input_sentence_size": 200}
    train_vocabulary(sentences, tmp_path / "a", **options)
    (tmp_path / "lines").write_text("\n".join(sentences), "utf-8")
    subprocess.run(
        [sys.executable, "-c", TRAIN, tmp_path / "lines", tmp_path / "b"],
        check=True,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PYTHONHASHSEED": "3", "LC_ALL": "C"},
    )
    assert read_files(tmp_path / "a") == read_files(tmp_path / "b")


def test_seed_draws_the_sample(tmp_path, sentences):
    def model(name, **options):
        directory = tmp_path / name
        train_vocabulary(sentences, directory, vocab_size=100, **options)
        return (directory / "spiece.model").read_bytes()

    whole = model("all")
    sampled = [model(f"{n}", input_sentence_size=200, seed=n) for n in (1, 2)]
    assert len({*sampled, whole}) == 3
    # Nothing is drawn when all fit.
    assert model("3", input_sentence_size=800, seed=3) == whole


@pytest.fixture
def finished(tmp_path, tiny_directory):
    return shutil.copytree(tiny_directory, tmp_path / "finished")


def test_finished_directory_is_left_alone(finished):
    before = read_files(finished)

    def unread():
        raise AssertionError("the input is read again")
        yield

    repeated = train_vocabulary(unread(), finished, vocab_size=200)
    assert repeated == json.loads(before["vocab_summary.json"])
    expected = (
        r"other settings \(keep_accents: True here, False there; "
        r"vocab_size: 90 here, 200 there\); choose a new"
    )
    with pytest.raises(UserError, match=expected):
        train_vocabulary(unread(), finished, vocab_size=90, keep_accents=True)
    assert read_files(finished) == before


def test_a_link_to_an_empty_directory(tmp_path, sentences):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    train_vocabulary(sentences, tmp_path / "link", vocab_size=100)
    assert "vocab_summary.json" in os.listdir(tmp_path / "real")
    assert (tmp_path / "link").is_symlink()


def test_foreign_directory_is_left_alone(tmp_path, sentences):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds no vocab_summary\.json"):
        train_vocabulary(sentences, tmp_path, vocab_size=100)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"file exists and holds no"):
        train_vocabulary(sentences, tmp_path / "file", vocab_size=100)


def test_a_bucket_is_refused(tmp_path, sentences, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = "^gs://B/vocab is in a bucket, which cannot rename the directory"
    with pytest.raises(UserError, match=message):
        train_vocabulary(sentences, "gs://B/vocab", vocab_size=100)
    # bin.train_vocab asks before it reads the corpus.
    with pytest.raises(UserError, match=message):
        check_output_directory("gs://B/vocab")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("vocab_size", "expected"),
    [
        (5000, r"vocab_size=5000 is more than .* the maximum is (\d+)\.$"),
        (20, r"vocab_size=20 is too small .*; the minimum is (\d+), or"),
    ],
)
def test_size_that_does_not_suit(
    tmp_path, sentences, capfd, vocab_size, expected
):
    with pytest.raises(UserError, match=expected) as caught:
        train_vocabulary(sentences, tmp_path / "v", vocab_size=vocab_size)
    assert os.listdir(tmp_path) == []
    # The size that is named does work.
    limit = re.search(expected, str(caught.value))[1]
    train_vocabulary(sentences, tmp_path / "v", vocab_size=int(limit))
    assert capfd.readouterr() == ("", "")


def test_no_text(tmp_path):
    with pytest.raises(UserError, match="holds no text"):
        train_vocabulary(["", " \n"], tmp_path / "v", vocab_size=100)


def test_long_lines_are_split_and_empty_ones_counted(tmp_path, sentences):
    long = " ".join(sentences[:400])
    lines = ["", long, "é" * 5000, " "]
    counts = train_vocabulary(
        lines, tmp_path / "v", vocab_size=120, keep_accents=True
    )["input"]
    assert (counts["lines"], counts["empty_lines"]) == (4, 2)
    # The word has 10,000 bytes: three parts of at most 4192.
    parts = counts["sentences"] - 3
    assert len(long) / 4192 < parts < len(long) / 4000 + 1
    # Nothing is lost but the spaces between the parts.
    total = len(long.encode()) + 10_000
    assert counts["bytes"] == total - (parts - 1)


def test_the_sample_is_bounded_in_characters(tmp_path, sentences):
    said = []
    options = {"vocab_size": 100, "sample_characters": 5000}
    train_vocabulary(sentences, tmp_path / "a", **options, log=said.append)
    found = re.match(r"Training on (\d+) of 800 sentences, (\d+) char", said[0])
    # Each sentence counts for ten characters more.
    assert 4800 < int(found[2]) + 10 * int(found[1]) <= 5000
    # An even draw: as long on average as all are.
    mean = sum(map(len, sentences)) / 800
    assert int(found[2]) / int(found[1]) == pytest.approx(mean, rel=0.1)
    # Stages of the training are logged too.
    for stage in ("Making suffix array", "EM sub_iter=0 size="):
        assert re.search(rf"^\d+ s: {stage}", "\n".join(said), re.M)


@pytest.mark.parametrize(
    ("keep_accents", "text", "number"),
    [
        (False, "कर्म ज़मीन", 2),
        # Decomposed here, as some files are: accents of composed letters.
        (False, "cafe\u0301 mu\u0308de", 0),
        (True, "कर्म ज़मीन", 0),
    ],
)
def test_marks_by_which_words_differ_are_warned_of(
    keep_accents, text, number, tmp_path, sentences
):
    log = []
    train_vocabulary(
        [*sentences, *[text] * 100],
        tmp_path / "vocab",
        vocab_size=90,
        keep_accents=keep_accents,
        log=log.append,
    )
    warnings = [line for line in log if line.startswith("WARNING")]
    expected = (
        f"WARNING: {100 * number} marks, most often DEVANAGARI SIGN VIRAMA, "
        "are dropped as accents are. In some scripts (Indic ones, Thai, "
        "pointed Hebrew) words differ by them: --keep_accents keeps them."
    )
    assert warnings == ([expected] if number else [])


def test_lines_with_the_reserved_sign_are_learned(tmp_path, sentences):
    lines = [*sentences, *["xyz \u2585 xyz\u2585xyz"] * 100]
    train_vocabulary(lines, tmp_path / "v", vocab_size=100)
    tokenizer = load_tokenizer(tmp_path / "v")
    assert tokenizer.unk_id not in tokenizer.encode("xyz")


def test_a_trainer_may_log_before_it_reads(tmp_path, monkeypatch):
    # Without a reader it would wait for ever: the alarm ends it.
    talkative = """
import signal, sys
signal.alarm(50)
print("x" * 10**6, file=sys.stderr)
sys.exit(f"read {len(sys.stdin.read())}")
"""
    monkeypatch.setattr(vocabulary, "_TRAINER", talkative)
    # Each is more than a pipe holds.
    with pytest.raises(UserError, match=r"train: read 1000000$"):
        train_vocabulary(["a" * 99] * 10_000, tmp_path / "v", vocab_size=100)


def test_a_killed_trainer_is_one_line(tmp_path, sentences, monkeypatch):
    killed = "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(vocabulary, "_TRAINER", killed)
    with pytest.raises(UserError, match=r"signal 9, perhaps.*sample_charact"):
        train_vocabulary(sentences, tmp_path / "v", vocab_size=100)
    assert os.listdir(tmp_path) == []


def test_scores_have_all_their_digits(tiny_directory, tiny_tokenizer):
    lines = (tiny_directory / "spiece.vocab").read_text("utf-8").splitlines()
    model = sentencepiece_model_pb2.ModelProto.FromString(
        tiny_tokenizer.model_bytes
    )
    scores = np.array([line.split("\t")[1] for line in lines], np.float32)
    assert scores.tolist() == [piece.score for piece in model.pieces]
