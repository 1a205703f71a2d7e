import os
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st
from traced_memory import peak_memory

from data_prep.corpus import duplicates
from data_prep.corpus.duplicates import digests, remove_duplicates
from data_prep.corpus.reading import UnitDocument


def item(name, *paragraphs):
    return UnitDocument("train", "train", name, paragraphs)


def remove(documents, level, directory):
    counts = Counter()
    found = remove_duplicates(lambda: documents, level, str(directory), counts)
    return list(found), counts


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
            kept.append(document._replace(paragraphs=tuple(new)))
            dropped = len(document.paragraphs) - len(new)
            counts["duplicate_paragraphs"] += dropped
        else:
            counts["duplicate_documents"] += 1
    counts["duplicate_characters"] = num_chars(documents) - num_chars(kept)
    return kept, counts


PARAGRAPHS = st.sampled_from(["a", "b", "ab", "a\nb", "é", "c", "d", "e", ""])
CORPORA = st.lists(
    st.lists(PARAGRAPHS, min_size=1, max_size=4), max_size=40
).map(lambda all_: [item(f"{n}.txt", *p) for n, p in enumerate(all_)])


@pytest.mark.parametrize("level", ["documents", "paragraphs"])
@hypothesis.settings(deadline=None, max_examples=30)
@hypothesis.given(documents=CORPORA, chunk_rows=st.integers(1, 9))
def test_duplicates_are_those_of_a_set(
    tmp_path_factory, level, documents, chunk_rows
):
    directory = tmp_path_factory.mktemp("duplicates")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_CHUNK_ROWS", chunk_rows)
        patch.setattr(duplicates, "_NUM_BUCKETS", 2)
        assert remove(documents, level, directory) == oracle(documents, level)
    assert os.listdir(directory) == ["duplicates"]


def test_digests_that_differ_in_any_byte_are_told_apart(tmp_path, monkeypatch):
    base = bytes(16)
    found = [base, *(bytes(n) + b"\1" + bytes(15 - n) for n in range(16))]
    found += found
    monkeypatch.setattr(
        duplicates, "digests", lambda texts, level: [found[int(texts[0])]]
    )
    documents = [item("x", str(n)) for n in range(len(found))]
    kept, _ = remove(documents, "documents", tmp_path)
    assert kept == documents[:17]


@pytest.mark.skipif(
    not hasattr(os, "posix_fallocate"), reason="needs files without holes"
)
def test_the_file_of_marks_has_its_room_before_it_is_a_map(tmp_path):
    remove([item("x", *map(str, range(50_000)))], "paragraphs", tmp_path)
    found = os.stat(tmp_path / "duplicates")
    assert found.st_size == 50_000 <= 512 * found.st_blocks


def test_digests_are_the_same_for_ever():
    texts = ("one", "zwei ü")
    assert [d.hex() for d in digests(texts, "paragraphs")] == [
        "c88d4df74262143a08e9d190e3bd67f1",
        "13bfd6c563bc7e9fbf6aeb43ec2185fb",
    ]
    (found,) = digests(texts, "documents")
    assert found.hex() == "8432ad14ccd62a0a807b5e4d9c3010d3"


@pytest.mark.slow
def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(duplicates, "_CHUNK_ROWS", 1_000)

    def documents():
        for number in range(50):
            numbers = range(1000 * number, 1000 * (number + 1))
            # Half of the paragraphs are all the same.
            yield item("x", *(str(n % 2 and n) for n in numbers))

    def remove():
        counts = Counter()
        for _ in remove_duplicates(
            documents, "paragraphs", str(tmp_path), counts
        ):
            pass
        assert counts["duplicate_paragraphs"] == 24_999

    # The rows alone are 1.2 MB.
    assert peak_memory(remove) < 6e5
