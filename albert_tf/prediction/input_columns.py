"""Columns of a table of inputs: which have the texts, and these texts."""

import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Sequence

from albert_tf.config import Log, UserError, listed, require, shown
from albert_tf.prediction.forms import WORDS, Form, Input
from albert_tf.tasks.bad_rows import BadRows, RowError
from albert_tf.tasks.custom import columns_flag
from albert_tf.tasks.examples import WordsExample
from albert_tf.tasks.formats.choice_rows import with_question
from albert_tf.tasks.formats.column_inference import infer_columns
from albert_tf.tasks.formats.json_values import shown_json
from albert_tf.tasks.formats.record import Record, Roles
from albert_tf.tasks.formats.rows import (
    AS_BY_DEFAULT,
    LABEL_COLUMN,
    LABELS_COLUMN,
    Rows,
)

# Roles of columns that predictions do not read.
UNREAD_ROLES = ("label", "labels", "number", "tags", "entities")


def columns_of_texts(
    first: Record,
    names: Collection[str] | None,
    form: Form,
    columns: Sequence[str],
    of_model: Sequence[str],
    path: str,
    log: Log,
) -> Roles:
    """Returns the columns of the texts, by the first row.

    Those of `--columns`, as `role=name`; else those `of_model`, its task's, if
    `names`, those in any row, have them; else those that the form and the
    names of the row, those in most rows, suggest. In a stream of JSON lines
    there are no `names`: those `of_model` stand for a first row without a name
    of the form. Raises UserError where these are not the texts of the form.
    """
    if columns:
        return _roles(columns, form)
    trained: Roles = {}
    # The model's task may have other texts than the form.
    with contextlib.suppress(UserError):
        trained = _roles(of_model, form)
        is_named = not first.values.keys().isdisjoint(form.columns)
        names = names or ({*first.values} if is_named else None)
        own = itertools.chain(*trained.values())
        if names is None or all(name in names for name in own):
            return trained
    return _inferred(first, form, path, log, trained)


def _roles(columns: Sequence[str], form: Form) -> Roles:
    """Returns the names in --columns by their roles; raises UserError."""
    roles: dict[str, list[str]] = {}
    for column in columns:
        role, _, name = column.partition("=")
        require(
            bool(name) and role.strip() in (*form.roles, *UNREAD_ROLES),
            f"--columns: expected role=column with the role "
            f"{' or '.join(form.roles)}, got {column!r}.",
        )
        roles.setdefault(role.strip(), []).append(name.strip())
    found = {role: roles[role] for role in form.roles if role in roles}
    missing = [r for r in form.roles if r not in (*roles, *form.optional)]
    number = len([*itertools.chain(*found.values())])
    require(
        # One column may have all choices, as a list.
        not missing and ("choice" in form.roles or number in form.counts),
        f"{columns_flag(columns)}: expected {form.expected}, as "
        f"{' and '.join(form.roles)}.",
    )
    return found


def _inferred(
    first: Record, form: Form, path: str, log: Log, trained: Roles
) -> Roles:
    """Returns the columns of the texts, by the first row.

    An optional role has one where the model was `trained` with it; where that
    is not known, if the row has one of its name.
    """
    names = first.values
    if "text" not in form.roles:
        needed = [r for r in form.roles if r not in form.optional]
        possible = trained or names
        asked = {role: [role] for role in form.optional if role in possible}
        named = zip(needed, form.columns, strict=True)
        return {role: [name] for role, name in named} | asked
    known = [name for name in form.columns if name in names]
    if len(known) in form.counts:
        return {"text": known}
    label = next((n for n in (LABEL_COLUMN, LABELS_COLUMN) if n in names), "")
    require(
        bool(label),
        f"{path}: expected the columns {' and '.join(form.columns)}, got "
        f"{listed(names, 12)}; name them, as in --columns=text=sentence. Where "
        "each line is a text, the file's name should end with .txt.",
    )
    rows = Rows(path, [first], BadRows(), AS_BY_DEFAULT, log)
    texts = infer_columns(rows, label=label)["text"]
    require(
        len(texts) in form.counts,
        f"{path}: expected {form.expected}, got the columns "
        f"{listed(texts, 12)}; name them with --columns.",
    )
    return {"text": texts}


def check_columns(row: Record, roles: Roles) -> None:
    """Raises UserError for a row that lacks a column."""
    for name in itertools.chain(*roles.values()):
        require(
            name in row.values,
            f"{row.location}: expected the column {shown(name)}, got "
            f"{listed(row.values, 12)}; name the columns with --columns.",
        )


def refuse_more_texts(row: Record, roles: Roles, form: Form) -> None:
    """Raises RowError for a row with a text that most rows do not have."""
    read = roles.get("text", ())
    if not read or form.columns[: len(read)] != tuple(read):
        return
    for name in form.columns[len(read) :]:
        if row.values.get(name):
            raise RowError(
                row.location,
                f"expected no {shown(name)}, as in most rows (--columns="
                f"{','.join(f'text={n}' for n in (*read, name))} reads pairs)",
                f", got {shown_json(row.values[name])}",
            )


def texts_of(row: Record, roles: Roles) -> list[str]:
    """Returns the texts of a row, for choices the context first."""
    if "choice" not in roles:
        return [row.text(name) for name in itertools.chain(*roles.values())]
    choices, _ = row.choices(roles["choice"])
    context, choices = with_question(row, roles, choices)
    return [context, *choices]


def words_input(words: Sequence[str], location: str, form: Form) -> Input:
    """Returns words that are divided already as a text.

    For the form WORDS with the words themselves, since the model may divide
    the text otherwise. Raises RowError for a word of nothing but blanks.
    """
    for word in words:
        if not word.strip():
            raise RowError(
                location,
                "expected words with a character in them",
                f", got {shown_json(word)}",
            )
    text = " ".join(words)
    found = form.checked((text,), location)
    if form != WORDS:
        return found
    ends = [*itertools.accumulate(len(word) + 1 for word in words)]
    spans = tuple(
        (end - 1 - len(word), end - 1)
        for word, end in zip(words, ends, strict=True)
    )
    example = WordsExample(tuple(words), None, location, text, spans)
    return dataclasses.replace(found, words=example)
