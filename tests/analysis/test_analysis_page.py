"""The page of bin.analyze."""

import pytest
from program_runner import run_program
from training_fixtures import random_model

from albert_tf.analysis.analysis_page import Texts, analysis_page
from albert_tf.interchange.model_directory import (
    LoadedModel,
    save_model_directory,
)
from albert_tf.report.page import to_html


def analyze(tmp_path, *flags):
    return run_program(
        "analyze",
        f"--model_dir={tmp_path / 'model'}",
        f"--input={tmp_path / 'texts'}",
        f"--output={tmp_path / 'page.html'}",
        *flags,
    )


def test_a_question_with_one_answer_is_left_out(sentences, tiny_tokenizer):
    words = " ".join(sentences).split()
    texts = [" ".join(words[n : n + 9]) for n in range(0, 360, 9)]
    model = random_model("masked_lm", vocab_size=tiny_tokenizer.vocab_size)
    page = to_html(
        analysis_page(
            LoadedModel(model, tiny_tokenizer, 24),
            Texts(texts, [1] * len(texts)),
            sentences[0],
            seed=1,
        )
    )
    assert "<td>order of two neighbouring texts</td>" in page
    assert "<td>longer than the median</td>" not in page


def test_of_a_long_sentence_the_beginning_is_drawn(
    sentences, tiny_tokenizer, monkeypatch
):
    drawn = []

    def draw_grid(matrices, labels):
        drawn.append((matrices["layer 1"].shape, len(labels)))
        return b""

    monkeypatch.setattr(f"{analysis_page.__module__}.draw_grid", draw_grid)
    monkeypatch.setattr(f"{analysis_page.__module__}._MOST_DRAWN", 5)
    model = random_model("masked_lm", vocab_size=tiny_tokenizer.vocab_size)
    page = to_html(
        analysis_page(
            LoadedModel(model, tiny_tokenizer, 12),
            Texts(sentences[:40], [1] * 40),
            " ".join(sentences),
            seed=1,
        )
    )
    assert drawn == [((5, 5), 5)]
    assert "heads (the first 5 of 12 tokens): " in page


@pytest.mark.slow
def test_a_page_of_any_model(tmp_path, sentences, tiny_tokenizer):
    (tmp_path / "texts").mkdir()
    for number in range(2):
        pairs = zip(sentences[number::4], sentences, strict=False)
        lines = [f"{first} {second}" for first, second in pairs]
        text = "\n\n".join(lines[:40])
        (tmp_path / f"texts/{number}.txt").write_text(text)
    model = random_model("masked_lm", vocab_size=tiny_tokenizer.vocab_size)
    directory = str(tmp_path / "model")
    # What a directory of transformers does not name.
    length = model.config.max_position_embeddings
    save_model_directory(
        directory, model, tiny_tokenizer, max_seq_length=length
    )
    tagged = "\n\n".join(
        "\n".join(f"{word} {len(word) % 2}" for word in sentence.split())
        for sentence in sentences[:60]
    )
    (tmp_path / "tagged.conll").write_text(tagged)
    tags = (
        *("--task=custom", "--columns=word=0,tag=-1"),
        f"--data_dir={tmp_path / 'tagged.conll'}",
    )
    few = ("--max_texts=40", "--max_bad_fraction=1")
    done = analyze(tmp_path, *few, *tags)
    assert done.status == 0, (done.error, done.stderr)
    page = (tmp_path / "page.html").read_text()
    for title in (
        "Probes of frozen states",
        "order of two neighbouring texts",
        "<td>tag of a word</td>",
        "learned on 40 sentences, on 6 others",
        "Attention",
        "Neighbours of pieces",
        "Neighbours of texts",
    ):
        assert title in page
    assert page.count("<img") == 4
    converted = str(tmp_path / "converted")
    run_program(
        *("convert", f"--from_path={directory}", f"--to_path={converted}"),
        "--to_format=huggingface",
    )
    done = analyze(tmp_path, *few, *tags, f"--model_dir={converted}")
    assert done.status == 0, (done.error, done.stderr)
    again = (tmp_path / "page.html").read_text()
    assert again.replace(converted, directory) == page
    error = analyze(tmp_path, "--max_texts=500", "--max_bad_fraction=1").error
    assert "--max_texts=500 needs 250. Give it more text, or" in error
    error = analyze(tmp_path, "--task=STS-B", "--data_dir=texts").error
    assert "expected tags of words, as of --task=entities" in error
    assert error.endswith("got regression.")
