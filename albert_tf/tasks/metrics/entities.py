"""Precision, recall and F1 of entities in tagged words, as CoNLL-2003's."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.config import UserError, shown

Tags = Sequence[Sequence[str]]
# Sentence, first word, the word after the last, and type.
_Entity = tuple[int, int, int, str]
_OUTSIDE = "O"
_ENTITY = re.compile("([BIES])-(.+)")


def entity_counts(gold: Tags, predicted: Tags) -> np.ndarray:
    """Returns the numbers of right, found and gold entities of sentences.

    `[sentences, 3]`. As in CoNLL-2003's script an entity is right when its
    type and both its ends are. Tags are IOB1, IOB2 or BIOES, also mixed: `I-X`
    after `O` or another type begins an entity, and so does `B-X` everywhere.
    """
    sides = _entities(gold), _entities(predicted)
    counted = sides[0] & sides[1], sides[1], sides[0]
    columns = [
        np.bincount(
            np.array([number for number, *_ in entities], np.int64),
            minlength=len(gold),
        )
        for entities in counted
    ]
    return np.stack(columns, axis=1)


def entity_table(gold: Tags, predicted: Tags) -> dict[str, dict[str, float]]:
    """Returns `precision`, `recall`, `f1` and `support` of each type.

    By type, sorted; `support` is the number of gold entities.
    """
    table = {}
    sides = _entities(gold), _entities(predicted)
    for kind in sorted({entity[-1] for side in sides for entity in side}):
        true, found = ({e for e in side if e[-1] == kind} for side in sides)
        scores = scores_of_counts(len(true & found), len(found), len(true))
        table[kind] = scores | {"support": len(true)}
    return table


def are_entity_tags(tags: set[str]) -> bool:
    """Returns whether tags are those of entities: B-, I- and the like, and O.

    Raises UserError when some are and some are not.
    """
    others = {tag for tag in tags - {_OUTSIDE} if not _ENTITY.fullmatch(tag)}
    if not others:
        return True
    if others == tags - {_OUTSIDE}:
        return False
    raise UserError(
        f"the tag {shown(min(others))} is neither O nor begins with B-, I-, E- "
        "or S-, as other tags do; write all entities as IOB1, IOB2 or BIOES."
    )


def _entities(sentences: Tags) -> set[_Entity]:
    return {
        (number, *span)
        for number, tags in enumerate(sentences)
        for span in entity_spans(tags)
    }


def entity_spans(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yields first word, the word after the last, and type of entities."""
    start, open_kind, may_go_on = 0, "", False
    for position, tag in enumerate((*tags, _OUTSIDE)):
        match = _ENTITY.fullmatch(tag)
        prefix, kind = match.groups() if match else ("", "")
        if may_go_on and prefix in ("I", "E") and kind == open_kind:
            may_go_on = prefix == "I"
            continue
        if open_kind:
            yield start, position, open_kind
        start, open_kind = position, kind
        may_go_on = prefix in ("B", "I")


def scores_of_counts(right: int, found: int, gold: int) -> dict[str, float]:
    """Returns precision, recall and F1 of numbers of entities.

    From 0 to 1, 0 if undefined.
    """
    return {
        "precision": float(right / found) if found else 0.0,
        "recall": float(right / gold) if gold else 0.0,
        "f1": float(2 * right / (found + gold)) if found + gold else 0.0,
    }
