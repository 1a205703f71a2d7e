import random

import pytest

from data_prep.corpus import sample as corpus_sample
from data_prep.corpus.sample import CorpusSample


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    """Samples of 24 documents, each of which counts for the same."""
    monkeypatch.setattr(corpus_sample, "SAMPLE_CHARS", 24 * 10_000)
    monkeypatch.setattr(corpus_sample, "_MIN_CHARS", 10_000)
    monkeypatch.setattr(corpus_sample, "_EXCERPT_CHARS", 10_000)


def sampled(documents):
    sample = CorpusSample()
    for name, size in documents:
        sample.add(name, ("x" * size,))
    return sample


def estimate(sample, ratio):
    """The estimated share of characters of which `ratio` says 1."""
    weighted = sample.weighted_documents(240_000)
    total = sum(weight for weight, _ in weighted)
    return sum(w * ratio(d.name) for w, d in weighted) / total


def test_estimates_are_unbiased_whatever_the_sizes():
    # A third of the text is in one-liners, two thirds in seven books.
    errors = []
    for trial in range(60):
        lines = [(f"{trial} line {n}", 20) for n in range(3000)]
        books = [(f"{trial} book {n}", 17_000) for n in range(7)]
        share = estimate(sampled(lines + books), lambda name: "book" in name)
        errors.append(share - 7 * 17_000 / (60_000 + 7 * 17_000))
    assert abs(sum(errors) / len(errors)) < 0.05
    assert max(map(abs, errors)) < 0.35


def test_samples_merge_to_that_of_the_whole():
    rng = random.Random(1)
    documents = [(f"d{n}", rng.randint(0, 500)) for n in range(400)]
    merged = CorpusSample()
    for begin in range(0, 400, 70):
        merged.merge(sampled(documents[begin : begin + 70]))
    whole = sampled(documents).to_json()
    assert merged.to_json() == whole
    assert sampled(documents[::-1]).to_json() == whole
    assert sampled(documents[:-200]).to_json() != whole


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_documents_decides_nothing(monkeypatch, seed):
    """Nor where several have one name, as files of two lists may."""
    monkeypatch.setattr(corpus_sample, "_MIN_CHARS", 1)
    monkeypatch.setattr(corpus_sample, "SAMPLE_CHARS", 30)
    rng = random.Random(seed)
    documents = [(f"d{n % 5}", rng.randint(1, 20)) for n in range(12)]
    expected = sampled(documents)
    for _ in range(5):
        rng.shuffle(documents)
        found = sampled(documents)
        assert found.to_json() == expected.to_json()
        assert found.texts() == expected.texts()


def test_a_sample_has_the_size_that_was_asked_for(monkeypatch):
    monkeypatch.setattr(corpus_sample, "_MIN_CHARS", 1)
    rng = random.Random(2)
    for most in (50, 300, 9000):
        sizes = [rng.randint(1, most) for _ in range(240_000 // most * 4)]
        sample = sampled((f"d{n}", size) for n, size in enumerate(sizes))
        weighted = sample.weighted_documents(240_000)
        found = sum(d.num_characters for _, d in weighted)
        assert 240_000 <= found < 240_000 + most
        total = sum(weight for weight, _ in weighted)
        assert abs(total / sum(sizes) - 1) < 0.2
        assert len(sample.texts()) == len(weighted) + 1


@pytest.mark.parametrize("size", [10, 1000, 10**6])
def test_excerpts_are_bounded(monkeypatch, size):
    monkeypatch.setattr(corpus_sample, "_EXCERPT_CHARS", 100)
    sample = CorpusSample()
    sample.add("a", ["ab" * 20] * (size // 40 + 1))
    ((_, document),) = sample.weighted_documents(240_000)
    assert document.num_characters == 40 * (size // 40 + 1)
    kept = sum(map(len, document.paragraphs))
    assert kept == min(100, document.num_characters)
