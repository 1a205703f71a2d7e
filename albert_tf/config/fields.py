"""Settings as dataclass fields: checked, overridden, compared, as JSON.

`setting` makes a field; `override` is the one way to change a setting: presets,
task rows, flags and tests all go through it.
"""

import dataclasses
import difflib
import math
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self, TypeVar

from albert_tf.config.messages import UserError, require, shown

Row = TypeVar("Row")

# Settings that earlier versions recorded in config.json. None of them changed
# a result, so that a run without them is the same run.
_REMOVED = {"pack_sequences"}


def lookup(
    table: Mapping[str, Row],
    name: Any,
    setting: str,
    *,
    extensible: bool = False,
) -> Row:
    """Returns the row `name` of the table that a setting chooses from.

    Users add rows of their own to a table that is `extensible`.
    """
    if isinstance(name, str) and name in table:
        return table[name]
    near = difflib.get_close_matches(str(name), table, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    if extensible:
        hint += " A row of your own needs --import, with its module."
    rows = ", ".join(table)
    raise UserError(f"{setting}={shown(name)} is not one of {rows}{hint}")


def setting(
    default: Any,
    help: str,
    *,
    choices: Collection[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    words: tuple[str, ...] = (),
    may_change: bool = False,
    flag: str = "",
) -> Any:
    """Returns a dataclass field that knows its help text and allowed values.

    `words` are values beside the numbers. A setting that `may_change` may
    have another value when a run resumes. `flag` is the name of its flag,
    where that is not the field's, which is then an alias.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "help": help,
            "choices": choices,
            "minimum": minimum,
            "maximum": maximum,
            "words": words,
            "may_change": may_change,
            "flag": flag,
        },
    )


def _check_value(field: dataclasses.Field, value: Any) -> Any:
    """Returns `value` as the field's type or raises UserError."""
    kind, limits = field.type, field.metadata
    if type(value) is str and value in limits["words"]:
        return value
    if kind is float and type(value) is int and abs(value) < sys.float_info.max:
        value = float(value)
    value_shown = f"{field.name}={shown(value)}"
    types = " or ".join([kind.__name__, *limits["words"]])
    require(
        type(value) is kind,
        f"{value_shown} is of type {type(value).__name__}; expected {types}.",
    )
    choices = limits["choices"]
    if isinstance(choices, Mapping):
        lookup(choices, value, field.name, extensible=True)
    elif choices:
        allowed = ", ".join(choices)
        require(value in choices, f"{value_shown} is not one of {allowed}.")
    if kind is float:
        require(math.isfinite(value), f"{value_shown} is not a finite number.")
    low, high = limits["minimum"], limits["maximum"]
    require(
        low is None or value >= low,
        f"{value_shown} is below the minimum, {low}.",
    )
    require(
        high is None or value <= high,
        f"{value_shown} is above the maximum, {high}.",
    )
    return value


class Section:
    """Checks every field's type, choices and bounds when it is made.

    Remembers which fields were given, by the constructor or `override`: a
    default gives way to a recipe, the same value given by a user does not.
    """

    _given: frozenset[str]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Returns a section that knows the names of the arguments."""
        self = super().__new__(cls)
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return _with_given(self, {*names[: len(args)], *kwargs})

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _check_value(field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


Config = TypeVar("Config")


def _with_given(config: Config, names: Iterable[str]) -> Config:
    object.__setattr__(config, "_given", frozenset(names))
    return config


def as_default(config: Config) -> Config:
    """Returns `config` as one whose settings nobody has given."""
    sections = {
        field.name: as_default(getattr(config, field.name))
        for field in dataclasses.fields(config)  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.type)
    }
    copied = dataclasses.replace(config, **sections)  # type: ignore[type-var]
    return _with_given(copied, ())


def given_settings(config: Any) -> dict[str, Any]:
    """Returns the settings that were given, sections opened up."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found.update(given_settings(value))
        elif field.name in config._given:
            found[field.name] = value
    return found


def setting_fields(config: Any) -> dict[str, dataclasses.Field]:
    """Returns every setting's field by name, sections opened up."""
    fields = {}
    for field in dataclasses.fields(config):
        if dataclasses.is_dataclass(field.type):
            fields.update(setting_fields(field.type))
        else:
            fields[field.name] = field
    return fields


def override(config: Config, changes: Mapping[str, Any]) -> Config:
    """Returns `config` with the named settings changed.

    Names are those of the fields, of the config's own or of any section.

    Raises:
        UserError: for an unknown name (the nearest valid ones are offered),
            a wrong type, or a value out of bounds.
    """
    known = setting_fields(config)
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"known settings: {', '.join(sorted(known))}."
            if near:
                hint = f"did you mean {' or '.join(near)}?"
            raise UserError(f"{shown(name)} is not a setting; {hint}")
    replaced = dict(changes)
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        if dataclasses.is_dataclass(field.type):
            names = setting_fields(field.type).keys() & replaced.keys()
            mine = {name: replaced.pop(name) for name in names}
            section = getattr(config, field.name)
            replaced[field.name] = override(section, mine)
    changed = dataclasses.replace(config, **replaced)  # type: ignore[type-var]
    return _with_given(changed, {*getattr(config, "_given", ()), *replaced})


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the config as JSON-ready dictionaries, section by section."""
    return dataclasses.asdict(config)


def without_removed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recorded section without the settings that are no more."""
    return {n: value for n, value in values.items() if n not in _REMOVED}


def from_dict(
    kind: type[Config], values: Mapping[str, Any], source: str
) -> Config:
    """Returns a `kind` from `to_dict` output; errors name its `source`."""
    try:
        config: Any = kind()
        sections = {}
        for name, value in values.items():
            section = getattr(config, name, None)
            if dataclasses.is_dataclass(section):
                require(isinstance(value, Mapping), f"{name} is not an object.")
                sections[name] = override(section, without_removed(value))
        others = {n: v for n, v in values.items() if n not in sections}
        return override(dataclasses.replace(config, **sections), others)
    except UserError as error:
        raise UserError(f"{source}: {error}") from None


def differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], prefix: str = ""
) -> list[str]:
    """Returns one line for each setting in which two dictionaries differ."""
    lines = []
    for name in sorted(set(ours) | set(theirs)):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            lines.append(f"{prefix}{name}: {shown(a)} here, {shown(b)} there")
    return lines
