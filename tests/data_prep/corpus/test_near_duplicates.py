import os
import random
from collections import Counter

import numpy as np
import pytest
from traced_memory import peak_memory

from data_prep.corpus import near_duplicates as near
from data_prep.corpus.near_duplicates import (
    bands_and_rows,
    near_duplicates,
    remove_near_duplicates,
    signatures,
)
from data_prep.corpus.reading import UnitDocument

WORDS = [f"w{number}" for number in range(5000)]
LONG = " ".join(WORDS[:100])


def item(name, *paragraphs):
    return UnitDocument("train", "train", name, paragraphs)


def remove(documents, directory, threshold=0.8):
    """Returns the names of what stays, the counts and the pairs."""
    counts, pairs = Counter(), []
    kept = remove_near_duplicates(
        lambda: documents, threshold, str(directory), counts, pairs=pairs
    )
    return [d.name for d in kept], counts, pairs


def jaccard(a, b):
    a, b = (
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)}
        for words in (a.split(), b.split())
    )
    return len(a & b) / len(a | b)


def pairs_of_texts(number, changed, seed=0):
    """Pairs of 200 words, of which the second has `changed` other ones."""
    rng = random.Random(seed)
    for _ in range(number):
        words = rng.choices(WORDS, k=200)
        other = list(words)
        for place in rng.sample(range(200), changed):
            other[place] = "other"
        yield " ".join(words), " ".join(other)


def all_signatures(pairs):
    return signatures([[text] for pair in pairs for text in pair])


def test_the_estimate_is_the_jaccard_similarity_of_sets():
    pairs = [p for n in (0, 2, 5, 10, 20) for p in pairs_of_texts(60, n, n)]
    found = all_signatures(pairs)
    estimates = (found[::2] == found[1::2]).mean(axis=1)
    exact = np.array([jaccard(*pair) for pair in pairs])
    # A share of 128 equal values has the deviation of a binomial.
    deviation = np.sqrt(exact * (1 - exact) / 128)
    assert np.all(np.abs(estimates - exact) <= 4.5 * deviation)
    assert abs((estimates - exact).mean()) < 0.005


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
def test_recall_of_candidates_is_that_of_the_formula(threshold):
    bands, rows = bands_and_rows(threshold)
    assert bands * rows <= 128
    assert 1 - (1 - threshold**rows) ** bands >= 0.99
    wider = 128 // (rows + 1)
    assert 1 - (1 - threshold ** (rows + 1)) ** wider < 0.99


def test_pairs_are_found_above_the_threshold_and_not_below():
    """Compares 200 pairs each, by Jaccard similarity of sets."""
    similar = [*pairs_of_texts(200, 2)]  # 0.9 and more
    different = [*pairs_of_texts(200, 10, seed=1)]  # about 0.62
    assert min(jaccard(*pair) for pair in similar) > 0.89
    assert max(jaccard(*pair) for pair in different) < 0.75
    found = list(near_duplicates(all_signatures(similar + different), 0.8))
    assert all(pair.kept == pair.number - 1 for pair in found)
    numbers = np.array([pair.number for pair in found])
    # The estimate is three deviations away from the threshold, or more.
    assert (numbers < 400).sum() >= 198
    assert (numbers >= 400).sum() <= 2
    assert all(pair.similarity >= 0.8 for pair in found)


def test_each_document_is_compared_with_those_that_stay_before_it():
    """The result of a comparison of every signature with every other."""
    rng = random.Random(3)
    texts = [
        t for n in (1, 3, 4, 5) for p in pairs_of_texts(25, n, n) for t in p
    ]
    texts += [text + " more words" for text in texts]
    rng.shuffle(texts)
    found = signatures([[text] for text in texts])
    stay, expected = [], {}
    for number, signature in enumerate(found):
        shares = [(found[n] == signature).mean() for n in stay]
        if shares and max(shares) >= 0.8:
            expected[number] = stay[int(np.argmax(shares))]
        else:
            stay.append(number)
    assert 200 < len(expected) < 300
    got = {pair.number: pair.kept for pair in near_duplicates(found, 0.8)}
    # Bands may miss one in a hundred at the threshold itself.
    assert len(expected.items() ^ got.items()) <= 3


def test_an_unlike_document_in_between_hides_none():
    """All three share a band; the first and the last share that one alone."""
    first, unlike = np.arange(256, dtype=np.uint32).reshape(2, 128)
    unlike[:6] = first[:6]
    last = first.copy()
    last[6::6] = 999
    # So many that bands share a slot of the table rarely by chance.
    rest = np.random.default_rng(0).integers(0, 2**32, (2000, 128), np.uint32)
    found = np.concatenate([[first, unlike, last], rest])
    (pair,) = near_duplicates(found, 0.8)
    assert (pair.number, pair.kept, pair.similarity) == (2, 0, 107 / 128)


def test_the_first_stays_and_the_rest_are_counted(tmp_path):
    near = LONG.replace("w50 ", "")
    documents = [
        item("a", LONG),
        item("b", near),
        item("c", "Something else."),
        item("d", LONG.upper().replace(" ", ", "), ""),
    ]
    names, counts, pairs = remove(documents, tmp_path)
    assert names == ["a", "c"]
    characters = documents[1].num_characters + documents[3].num_characters
    assert counts == {
        "duplicate_documents": 2,
        "duplicate_characters": characters,
    }
    # Letter case and punctuation do not matter.
    least, most = pairs
    assert (most["document"], most["similarity"]) == ("train: d", 1.0)
    assert (least["document"], least["kept"]) == ("train: b", "train: a")
    assert 0.8 <= least["similarity"] < 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["A short text.", "...", ""])
def test_short_documents_are_compared_exactly(tmp_path, text):
    documents = [item("a", text), item("b", text + "!"), item("c", text)]
    assert remove(documents, tmp_path)[0] == ["a", "b"]


def test_ideographs_are_words(tmp_path):
    text = "".join(map(chr, range(0x4E00, 0x4E80)))
    assert remove([item("a", text), item("b", text[1:])], tmp_path)[0] == ["a"]


def test_an_empty_corpus(tmp_path):
    assert remove([], tmp_path) == ([], {}, [])


def test_signatures_are_the_same_for_ever():
    found = signatures([[LONG], ["short"]])
    assert found[:, [0, 1, 127]].tolist() == [
        [59906668, 58651411, 8169054],
        [885554836, 922322410, 740504675],
    ]


def test_ten_least_similar_pairs_are_shown(tmp_path):
    documents = [
        item(f"{n}", text)
        for n, text in enumerate(
            text for pair in pairs_of_texts(30, 1) for text in pair
        )
    ]
    _, counts, pairs = remove(documents, tmp_path)
    assert counts["duplicate_documents"] == 30
    found = all_signatures(pairs_of_texts(30, 1))
    similarities = sorted((found[::2] == found[1::2]).mean(axis=1))
    assert [p["similarity"] for p in pairs] == [
        round(s, 4) for s in similarities[:10]
    ]


def test_batches_change_nothing(tmp_path, monkeypatch):
    texts = [text for pair in pairs_of_texts(30, 2) for text in pair]
    documents = [item(f"{n}", text) for n, text in enumerate(texts)]
    whole = remove(documents, tmp_path)
    monkeypatch.setattr(near, "_BATCH_CHARS", 3000)
    monkeypatch.setattr(near, "_BLOCK", 7)
    assert remove(documents, tmp_path) == whole


def test_memory_beside_the_signatures_is_bounded():
    """At most 12 bytes per document and band, and one block."""
    rng = np.random.default_rng(0)
    found = rng.integers(0, 2**32, (4_100, 128), np.uint32)
    peak = peak_memory(lambda: list(near_duplicates(found, 0.8)))
    assert list(near_duplicates(found, 0.8)) == []
    assert peak < 12 * 21 * len(found) + 2e5
