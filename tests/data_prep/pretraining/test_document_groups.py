import os
import random

from data_prep.corpus.reading import UnitDocument
from data_prep.pretraining import document_groups
from data_prep.pretraining.document_groups import DocumentGroups


def items(number):
    rng = random.Random(1)
    return [
        UnitDocument(
            rng.choice(["train", "eval"]),
            "train",
            f"d{n:03}",
            (f"Text é\ud800 {n}\nline", "more"),
        )
        for n in range(number)
    ]


def dealt(directory, documents, num_groups=5):
    groups = DocumentGroups(str(directory), num_groups)
    for item in documents:
        groups.add(int(item.name[1:]) % num_groups, item)
    return list(groups.read())


def test_groups_do_not_depend_on_the_order_of_documents(tmp_path, monkeypatch):
    documents = items(60)
    expected = [
        sorted(
            (d for d in documents if int(d.name[1:]) % 5 == group),
            key=lambda item: (item.split, item.name),
        )
        for group in range(5)
    ]
    assert dealt(tmp_path, documents) == expected
    # Written in small pieces, and in another order.
    monkeypatch.setattr(document_groups, "_WAITING_CHARS", 100)
    random.Random(2).shuffle(documents)
    assert dealt(tmp_path, documents) == expected
    assert os.listdir(tmp_path) == []


def test_what_an_earlier_run_left_is_replaced(tmp_path):
    (tmp_path / "group-00000").write_text("rubbish\n")
    groups = DocumentGroups(str(tmp_path), 2)
    (item,) = items(1)
    groups.add(1, item)
    assert list(groups.read()) == [[], [item]]
