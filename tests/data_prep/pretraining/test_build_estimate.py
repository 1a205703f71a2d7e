import textwrap

import pytest

from albert_tf.config import PretrainingDataConfig
from albert_tf.text.tokenizer_base import Tokenizer
from data_prep.corpus.sample import CorpusSample
from data_prep.corpus.sentences import NewlineSplitter, PunktSplitter
from data_prep.pretraining.build_directory import BuildDirectory
from data_prep.pretraining.build_estimate import (
    BuildEstimate,
    build_warnings,
    sentence_end_warnings,
)


@pytest.fixture
def build_text(build, tmp_path):
    """Builds from a text; returns the lines announced and the statistics."""

    def call(text, **config):
        path = tmp_path / "a.txt"
        path.write_text(text)
        lines = []
        metadata = build(inputs=[str(path)], log=lines.append, **config)
        return lines, metadata["statistics"]["train"]

    return call


def test_a_hard_wrapped_file_loses_nothing_and_is_named(
    build_text, sentences, tmp_path
):
    text = "\n\n".join(
        textwrap.fill(" ".join(sentences[i : i + 9]).lower(), 70)
        for i in range(0, 450, 9)
    )
    lines, counts = build_text(text)
    assert lines[0].startswith(f"{tmp_path}/a.txt is hard-wrapped: it is read")
    assert "--document_separator=blank_line" in lines[0]
    assert [line for line in lines if "Warning" in line] == []
    assert counts["documents"] == 1
    assert counts["lost_share"] == 0


def test_a_file_without_blank_lines_may_have_a_document_on_each_line(
    build_text, sentences, tmp_path
):
    text = "\n".join(" ".join(sentences[i : i + 9]) for i in range(0, 450, 9))
    lines, counts = build_text(text)
    assert lines[0].startswith(
        f"{tmp_path}/a.txt has no blank lines and is read as one "
    )
    assert lines[0].endswith(
        "--document_separator=line makes each of its 50 lines one."
    )
    assert counts["documents"] == 1


def test_padding_and_lost_tokens_are_warned_of_before_anything_is_written(
    build_text, sentences
):
    blocks = [" ".join(sentences[i : i + 1 + i % 3]) for i in range(200)]
    lines, counts = build_text("\n\n".join(blocks))
    padding, lost, written = lines
    assert padding.startswith(
        f"Warning: about {100 * counts['padding_share']:.0f}% of the records "
    )
    assert "--document_separator=file if" in padding
    assert padding.endswith(", or a lower --max_seq_length.")
    assert lost.startswith(
        f"Warning: about {100 * counts['lost_share']:.0f}% of the tokens will "
    )
    assert "--document_separator=file if" in lost
    assert lost.endswith(", or --sentence_objective=none.")
    assert written.startswith("About ")


@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_the_bytes_of_records_are_estimated(
    build, sentences, tmp_path, monkeypatch, objective
):
    documents = [" ".join(sentences[n : n + 60]) for n in range(0, 480, 60)]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(documents))
    plans = []
    monkeypatch.setattr(
        BuildDirectory, "check_room", lambda self, plan, log: plans.append(plan)
    )
    build(inputs=[str(path)], sentence_objective=objective, dupe_factor=4)
    made = sum(
        file.stat().st_size for file in (tmp_path / "out").glob("*.tfrecord")
    )
    assert plans[0].record_bytes["train"] == pytest.approx(made, rel=0.1)


def test_unknown_tokens_are_warned_of_with_their_words(build_text, sentences):
    text = " ".join(sentences[:100]).replace(" the ", " <ж> ")
    lines, counts = build_text(text, document_separator="file")
    assert counts["unknown_share"] > 0.02
    assert lines[0].startswith(
        f"Warning: about {100 * counts['unknown_share']:.0f}% of the tokens "
        "will be unknown to the tokenizer, most often in '<ж>'; consider "
    )


def test_a_vocabulary_for_another_clean_up_is_warned_of(
    build_text, sentences, monkeypatch
):
    line = "WARNING: half of the pieces"
    monkeypatch.setattr(Tokenizer, "clean_up_warning", lambda self: line)
    assert line in build_text(" ".join(sentences[:100]))[0]


def test_a_long_document_is_estimated_though_its_excerpt_is_cut(
    build_text, sentences
):
    # An excerpt of 15,000 characters has about 6,000 tokens: the second of
    # its two records is nearly empty, which no other record will be.
    lines, counts = build_text(
        " ".join(sentences * 8),
        document_separator="file",
        max_seq_length=5000,
        short_seq_prob=0.0,
    )
    assert counts["padding_share"] < 0.3
    (line,) = lines
    assert line.startswith("About ")


@pytest.mark.parametrize(
    ("estimate", "config", "said"),
    [
        ((0.29, 0.009, 0.019), {}, []),
        ((0.31, 0.0, 0.0), {}, ["a lower --max_seq_length."]),
        (
            (0.31, 0.0, 0.0),
            {"short_seq_prob": 0.9},
            ["a lower --short_seq_prob."],
        ),
        (
            (0.0, 0.011, 0.0),
            {"sentence_splitter": "newline"},
            [
                "--sentence_splitter=punkt if lines hold several sentences, "
                "or --sentence_objective=none."
            ],
        ),
    ],
)
def test_warnings_name_the_settings_that_matter(
    estimate, config, said, tiny_tokenizer
):
    names = ("padding_share", "lost_share", "unknown_share")
    lines = build_warnings(
        BuildEstimate(1.0, dict(zip(names, estimate, strict=True))),
        PretrainingDataConfig(**config),
        {"file"},
        CorpusSample(),
        tiny_tokenizer,
    )
    assert [line.partition("consider ")[2] for line in lines] == said


def test_text_without_sentence_ends_is_warned_of():
    thai = "แม่ไปตลาด ซื้อปลา " * 40
    config = PretrainingDataConfig()
    sample = CorpusSample()
    sample.add("thai", (thai, thai))
    splitter = PunktSplitter.train([thai])
    (line,) = sentence_end_warnings(sample, splitter, config)
    assert "100% of the text (such as thai) has no sentence ends" in line
    assert line.endswith(" --sentence_splitter=newline.")
    lines = PretrainingDataConfig(sentence_splitter="newline")
    assert not list(sentence_end_warnings(sample, NewlineSplitter(), lines))
    sample.add("english", ("It is a sentence. " * 200,))
    assert not list(sentence_end_warnings(sample, splitter, config))
