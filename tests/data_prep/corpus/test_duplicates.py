import os
import tracemalloc
from collections import Counter

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from albert_tf.config import UserError
from data_prep.corpus import duplicates
from data_prep.corpus.duplicates import (
    document_digest,
    find_duplicates,
    paragraph_digests,
    without_paragraphs,
)
from data_prep.corpus.reading import Document
from data_prep.pretraining.record_maker import UnitDocument


def remove(documents, level, directory):
    found = find_duplicates(documents, level, str(directory))
    counts = Counter()
    kept = [item.document for item in found.remove(items(documents), counts)]
    return kept, counts


def items(documents):
    return (UnitDocument("train", "train", document) for document in documents)


def num_chars(documents):
    return sum(len(p) for d in documents for p in d.paragraphs)


def oracle(documents, level):
    """Returns what is kept, with a set of all that was seen."""
    seen, kept, counts = set(), [], Counter()
    for document in documents:
        if level == "documents":
            new = () if document.paragraphs in seen else document.paragraphs
            seen.add(document.paragraphs)
        else:
            new = []
            for paragraph in document.paragraphs:
                if paragraph not in seen:
                    new.append(paragraph)
                    seen.add(paragraph)
        if new:
            kept.append(Document(document.name, tuple(new)))
            counts["duplicate_paragraphs"] += len(document.paragraphs) - len(
                new
            )
        else:
            counts["duplicate_documents"] += 1
    counts["duplicate_characters"] = num_chars(documents) - num_chars(kept)
    return kept, counts


PARAGRAPHS = st.sampled_from(["a", "b", "ab", "a\nb", "é", "c", "d", "e", ""])
CORPORA = st.lists(
    st.lists(PARAGRAPHS, min_size=1, max_size=4).map(tuple), max_size=40
).map(lambda all_: [Document(f"{n}.txt", p) for n, p in enumerate(all_)])


@pytest.mark.parametrize("level", ["documents", "paragraphs"])
@hypothesis.settings(deadline=None)
@hypothesis.given(documents=CORPORA, chunk_rows=st.integers(1, 9))
def test_duplicates_are_those_of_a_set(
    tmp_path_factory, level, documents, chunk_rows
):
    directory = tmp_path_factory.mktemp("duplicates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_CHUNK_ROWS", chunk_rows)
        patch.setattr(duplicates, "_NUM_BUCKETS", 2)
        patch.setattr(duplicates, "_BITMAP_CHUNK_BYTES", 1)
        assert remove(documents, level, directory) == oracle(documents, level)
    assert os.listdir(directory) == ["duplicates.bitmap"]


@pytest.mark.parametrize("level", ["documents", "paragraphs"])
def test_many_documents(tmp_path, level):
    rng = np.random.default_rng(5)
    documents = [
        Document(str(n), tuple(map(str, rng.integers(0, 3000, 2).tolist())))
        for n in range(10_000)
    ]
    documents += documents[:100]
    assert remove(documents, level, tmp_path) == oracle(documents, level)


def test_digests_that_differ_in_any_byte_are_told_apart(tmp_path, monkeypatch):
    base = bytes(16)
    digests = [base, *(bytes(n) + b"\1" + bytes(15 - n) for n in range(16))]
    digests += digests
    monkeypatch.setitem(
        duplicates._DIGESTS,
        "documents",
        lambda document: [digests[int(document.name)]],
    )
    documents = [Document(str(n), ("a",)) for n in range(len(digests))]
    kept, _ = remove(documents, "documents", tmp_path)
    assert kept == documents[:17]


def test_parts_of_a_digest_do_not_run_together():
    def digest(*paragraphs):
        return document_digest(Document("x", paragraphs))

    assert digest("a", "b") == document_digest(Document("y", ("a", "b")))
    others = [("ab",), ("a\nb",), ("b", "a"), ("a", "b", ""), ("a",), ()]
    digests = {digest("a", "b"), *(digest(*other) for other in others)}
    assert len(digests) == 1 + len(others)


def test_digests_are_the_same_for_ever():
    document = Document("x", ("one", "zwei ü"))
    assert [d.hex() for d in paragraph_digests(document)] == [
        "c88d4df74262143a08e9d190e3bd67f1",
        "13bfd6c563bc7e9fbf6aeb43ec2185fb",
    ]
    assert document_digest(document).hex() == "8432ad14ccd62a0a807b5e4d9c3010d3"


def test_paragraphs_are_left_out_by_number():
    document = Document("x", ("a", "b", "a"))
    assert without_paragraphs(document, []) is document
    assert without_paragraphs(document, {2, 0}) == Document("x", ("b",))
    assert without_paragraphs(document, range(3)) is None


def test_another_corpus_is_told(tmp_path):
    documents = [Document(str(n), ("a", "b")) for n in range(3)]
    found = find_duplicates(documents, "paragraphs", str(tmp_path))
    for others in (documents[:2], [*documents, *documents[:2]]):
        with pytest.raises(UserError, match="changed.*paragraphs instead of 6"):
            list(found.remove(items(others), Counter()))


def test_documents_are_streamed(tmp_path):
    """One document is asked for at a time, in both passes."""
    alive = []

    def documents():
        for number in range(20):
            alive.append(number)
            yield Document(str(number), (str(number % 10),))

    found = find_duplicates(documents(), "documents", str(tmp_path))
    alive.clear()
    kept = found.remove(items(documents()), Counter())
    assert next(kept).document.name == "0"
    assert alive == [0]
    assert len(list(kept)) == 9


@pytest.mark.slow
def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "_CHUNK_ROWS", 20_000)

    def documents():
        for number in range(1000):
            numbers = range(1000 * number, 1000 * (number + 1))
            # Half of the paragraphs are all the same.
            yield Document("x", tuple(str(n % 2 and n) for n in numbers))

    counts = Counter()
    tracemalloc.start()
    try:
        found = find_duplicates(documents(), "paragraphs", str(tmp_path))
        for _ in found.remove(items(documents()), counts):
            pass
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts["duplicate_paragraphs"] == 499_999
    # The rows alone are 24 MB.
    assert peak < 8e6
