import os
from collections import Counter

import hypothesis
import pytest
from hypothesis import strategies as st

from data_prep.corpus import duplicates
from data_prep.corpus.duplicates import digests, remove_duplicates
from data_prep.corpus.reading import UnitDocument


def item(name, *paragraphs):
    return UnitDocument("train", "train", name, paragraphs)


def remove(documents, level, directory):
    counts = Counter()
    found = remove_duplicates(documents, level, str(directory), counts)
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
@hypothesis.given(documents=CORPORA)
def test_duplicates_are_those_of_a_set(tmp_path_factory, level, documents):
    directory = tmp_path_factory.mktemp("duplicates")
    # What a killed build has left is no part of the next one.
    (directory / "digests").write_bytes(b"SQLite")
    assert remove(documents, level, directory) == oracle(documents, level)
    assert not os.listdir(directory)


def test_a_full_disk_is_an_error_with_its_number(tmp_path, monkeypatch):
    table = f"{duplicates._TABLE} PRAGMA max_page_count = 3;"
    monkeypatch.setattr(duplicates, "_TABLE", table)
    with pytest.raises(OSError, match="No space left on device") as caught:
        remove([item("x", *map(str, range(9999)))], "paragraphs", tmp_path)
    assert caught.value.filename == str(tmp_path / "digests")


def test_digests_are_the_same_for_ever():
    texts = ("one", "zwei ü")
    assert [d.hex() for d in digests(texts, "paragraphs")] == [
        "c88d4df74262143a08e9d190e3bd67f1",
        "13bfd6c563bc7e9fbf6aeb43ec2185fb",
    ]
    (found,) = digests(texts, "documents")
    assert found.hex() == "8432ad14ccd62a0a807b5e4d9c3010d3"
