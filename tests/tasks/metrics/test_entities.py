"""Scores of entities, against regular expressions."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.tasks.metrics.entities import (
    are_entity_tags,
    entity_counts,
    entity_table,
    scores_of_counts,
)


def entities(tags):
    """Entities by regular expressions: a type at a time, a letter a word."""
    found = set()
    for kind in {tag[2:] for tag in tags} - {""}:
        letters = "".join(t[0] if t[1:] == f"-{kind}" else "." for t in tags)
        # One that ends in E, one cut off before an E, and a single one.
        for match in re.finditer("[BI]I*E|[BI]I*|E|S", letters):
            found.add((match.start(), match.end(), kind))
    return found


PREFIXES = {"IOB": "BI", "BIOES": "BIES"}


@st.composite
def tagged(draw):
    """Sentences with two tags for each word, of one scheme, in any order."""
    prefixes = PREFIXES[draw(st.sampled_from(sorted(PREFIXES)))]
    tags = ["O", *(f"{p}-{kind}" for p in prefixes for kind in ("X", "Y-Z"))]
    pair = st.tuples(st.sampled_from(tags), st.sampled_from(tags))
    sentences = draw(st.lists(st.lists(pair, min_size=1), min_size=1))
    return [tuple(zip(*sentence, strict=True)) for sentence in sentences]


@settings(max_examples=60, deadline=None)
@given(tagged())
def test_scores_against_regular_expressions(sentences):
    gold, predicted = zip(*sentences, strict=True)
    true, found = (
        {(n, *e) for n, tags in enumerate(side) for e in entities(tags)}
        for side in (gold, predicted)
    )
    right = len(true & found)
    precision = right / len(found) if found else 0.0
    recall = right / len(true) if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    counts = entity_counts(gold, predicted)
    assert scores_of_counts(*counts.sum(axis=0)) == pytest.approx(
        {"precision": precision, "recall": recall, "f1": f1}
    )
    table = entity_table(gold, predicted)
    assert list(table) == sorted({e[-1] for e in true | found})
    for kind, row in table.items():
        t, f = ({e for e in side if e[-1] == kind} for side in (true, found))
        assert row["support"] == len(t)
        assert row["precision"] == (len(t & f) / len(f) if f else 0.0)
        assert row["recall"] == (len(t & f) / len(t) if t else 0.0)
        assert row["f1"] == pytest.approx(2 * len(t & f) / (len(t) + len(f)))


def test_parts_of_speech_are_no_entities():
    assert not are_entity_tags({"NN", "IN", "O"})
    # But text without any entity has some that may be invented.
    assert are_entity_tags({"O"})
    assert scores_of_counts(0, 0, 0)["f1"] == 0.0
