import os
import random

from data_prep.corpus.reading import UnitDocument
from data_prep.pretraining import document_groups
from data_prep.pretraining.document_groups import in_groups


def group_of(item):
    return int(item.name[1:]) % 5


def test_groups_do_not_depend_on_the_order_of_documents(tmp_path, monkeypatch):
    rng = random.Random(1)
    documents = [
        UnitDocument(
            rng.choice(["train", "eval"]),
            "train",
            f"d{n:03}",
            (f"Text é {n}\nline", "more"),
        )
        for n in range(60)
    ]
    expected = [
        sorted(d for d in documents if group_of(d) == group)
        for group in range(5)
    ]
    rng.shuffle(documents)
    # Written in small pieces, over what an earlier run has left.
    monkeypatch.setattr(document_groups, "_WAITING_CHARS", 100)
    (tmp_path / "group-00000").write_text("rubbish\n")
    found = in_groups(documents, group_of, 5, str(tmp_path))
    assert list(found) == expected
    assert os.listdir(tmp_path) == []
