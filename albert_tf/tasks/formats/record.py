"""A row of a user's file: what its columns hold, by what it is read as."""

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import listed, shown
from albert_tf.tasks.bad_rows import EMPTY, RowError
from albert_tf.tasks.formats.json_values import shown_json
from albert_tf.tasks.number_labels import number_of

# Names of columns by their roles.
Roles = Mapping[str, Sequence[str]]

# Values of a column that says whether a text has a label; PostgreSQL has t, f.
_TRUTH = {"1": True, "1.0": True, "true": True, "t": True}
_TRUTH |= {"yes": True, "y": True, "no": False, "n": False}
_TRUTH |= {"0": False, "0.0": False, "false": False, "f": False}
# Keys of choices with labels of their own.
_OF_CHOICES = {"text", "label"}
# A list in a field of a table: in JSON, as Python, NumPy or Java print it, as
# PostgreSQL writes it; or an object of Label Studio. Not `[a], [b]`.
_LIST = re.compile(
    r"""\s*(\[\s*["'\[\]]|[({]\s*["']|(\[[^\[\]]*\]|\{[^{}]*\})\s*$)"""
)
# The only key of several labels in Label Studio's exports.
_CHOSEN = "choices"


@dataclasses.dataclass(frozen=True)
class Record:
    """The columns of a row or line, and its file and line.

    `values` are texts of a table, or values of JSON with Numbers; they are
    checked when they are read, and RowError is raised.
    """

    values: Mapping[str, Any]
    location: str

    def texts(self, name: str) -> str | tuple[str, ...]:
        """Returns the text of a column, or its list of texts.

        That of null, as data frames write an empty cell, is empty. A list may
        be the only value of an object, as several labels of Label Studio are.
        """
        found = _chosen(self.values[name])
        if found is None:
            return ""
        if isinstance(found, bool):
            return shown_json(found)
        if isinstance(found, list) and all(isinstance(v, str) for v in found):
            return tuple(map(str, found))
        if not isinstance(found, str):
            raise RowError(
                self.location,
                "expected a string, a number, true or false (labels, words and "
                f"choices may be a list of strings) as {shown(name)}",
                f", got {shown_json(found)}",
            )
        return str(found)

    def text(self, name: str) -> str:
        """Returns the text of a column, of which there is one."""
        found = self.texts(name)
        if not isinstance(found, str):
            raise RowError(
                self.location,
                f"expected a string as {name}",
                f", got {shown_json(found)}",
            )
        return found

    def choices(self, columns: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns two choices or more in columns, and names a label may have.

        A column is a text, a list of texts, or has texts with labels
        (`_labelled_choices`); names are these labels, and of other columns
        their own.
        """
        choices: list[str] = []
        names: list[str] = []
        for column in columns:
            value = _labelled_choices(self.values[column])
            if value is None:
                found = self.texts(column)
                if len(columns) == 1 and isinstance(found, str):
                    # A list in a table.
                    found = listed_in(found) or found
                choices += [found] if isinstance(found, str) else found
                names.append(column)
                continue
            inner = Record(value, self.location)
            texts, labels = map(inner.texts, ("text", "label"))
            if isinstance(texts, str) or len(texts) != len(labels):
                raise RowError(
                    self.location,
                    "expected lists of one length as 'text' and 'label' of "
                    f"{shown(column)}",
                    f", got {shown_json(self.values[column])}",
                )
            choices += texts
            names += labels
        if len(choices) < 2:
            got = "".join(f": {shown(choice)}" for choice in choices)
            raise RowError(
                self.location,
                f"expected two choices or more as {listed(columns, 12)} (a "
                "list in JSON, or several columns)",
                f", got {len(choices)}{got}",
            )
        return choices, names

    def example_texts(self, names: Sequence[str]) -> tuple[str, ...]:
        """Returns the text, or pair, in columns; not all may be empty."""
        found = tuple(map(self.text, names))
        if not any(map(str.strip, found)):
            raise RowError(self.location, EMPTY)
        return found

    def label(self, name: str) -> str:
        """Returns the label in a column, which may not be empty.

        A list of one label is that label, as annotation tools write it.
        """
        found = self.texts(name)
        if not isinstance(found, str) and len(found) != 1:
            raise RowError(
                self.location,
                f"expected one label as {shown(name)}; "
                f"--task=custom --columns=text=...,labels={name} reads several",
                f", got {shown_json(self.values[name])}",
            )
        label = (found if isinstance(found, str) else found[0]).strip()
        if not label:
            raise RowError(self.location, "the label is empty")
        check_characters([label], self.location)
        return label

    def labels(self, name: str, separator: str) -> tuple[str, ...]:
        """Returns the labels in a column, each once: a list, or one text.

        An empty text, or list, has none. In a table a list is written as JSON.
        """
        texts = self.texts(name)
        found: tuple[str, ...] | None
        if not isinstance(texts, str):
            found = texts
        elif self.values[name] is None:
            # An unknown value does not mean "no labels".
            found = None
        elif _LIST.match(texts):
            found = listed_in(texts)
        else:
            found = tuple(texts.split(separator)) if texts.strip() else ()
        labels = [label.strip() for label in found or ()]
        if found is None or not all(labels):
            raise RowError(
                self.location,
                f"expected labels with {separator!r} between them, a list of "
                f"strings in JSON, or '' or [] for none, as {shown(name)}",
                f", got {shown_json(self.values[name])}",
            )
        check_characters(labels, self.location)
        return tuple(dict.fromkeys(labels))

    def truth(self, name: str) -> bool:
        """Returns whether a column has 1, true or yes; 0, false or no: not."""
        found = self.text(name).strip().lower()
        if found not in _TRUTH:
            raise RowError(
                self.location,
                f"expected 0 or 1, or x or nothing in all rows and columns of "
                f"labels, as {shown(name)}",
                f", got {shown_json(self.values[name])}",
            )
        return _TRUTH[found]

    def number(self, name: str) -> str:
        """Returns the number in a column, as it is written."""
        label = self.label(name)
        number_of(label, self.location)
        return label


def check_characters(labels: Sequence[str], location: str) -> None:
    """Raises RowError for labels that no file can hold."""
    try:
        "".join(labels).encode()
    except UnicodeEncodeError:
        raise RowError(
            location,
            "half of a surrogate pair in a label is no character",
            f", got {shown_json([*labels])}",
        ) from None


def _labelled_choices(value: Any) -> dict[str, Any] | None:
    """Returns the lists `text` and `label` of choices; None without labels.

    They are so in the hub's ARC; in the benchmark's own files a list of objects
    with these keys, and elsewhere an object of texts by their labels.
    """
    if isinstance(value, dict):
        is_text = all(isinstance(text, str) for text in value.values())
        if is_text and value.keys() != _OF_CHOICES:
            return {"text": [*value.values()], "label": [*value]}
        return value if value.keys() == _OF_CHOICES else None
    if (
        isinstance(value, list)
        and value
        and all(isinstance(v, dict) and v.keys() >= _OF_CHOICES for v in value)
    ):
        return {key: [v[key] for v in value] for key in _OF_CHOICES}
    return None


def listed_in(text: str) -> tuple[str, ...] | None:
    """Returns the strings and numbers of a list in JSON; None for others."""
    with contextlib.suppress(ValueError, RecursionError):
        found = _chosen(json.loads(text, parse_int=str, parse_float=str))
        if isinstance(found, list) and all(isinstance(v, str) for v in found):
            return tuple(found)
    return None


def _chosen(value: Any) -> Any:
    """Returns the list in Label Studio's object of labels, or the value."""
    if isinstance(value, dict) and value.keys() == {_CHOSEN}:
        return value[_CHOSEN]
    return value
