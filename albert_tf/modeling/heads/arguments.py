"""Arguments of a model that its heads have: classes, and their options."""

from collections.abc import Iterable, Mapping, Sequence

from albert_tf.config import lookup, require
from albert_tf.modeling.heads.base import Head


def class_names(
    model: str,
    heads: Iterable[type[Head]],
    num_labels: int | None,
    labels: Sequence[str] | None,
) -> tuple[str, ...] | None:
    """Returns the names of a model's classes, None where there are none.

    By default LABEL_0, LABEL_1 and so on. Raises UserError, in which `model`
    is named, for arguments that do not fit the heads or each other.
    """
    if not any(head.takes_labels() for head in heads):
        require(
            num_labels is None and labels is None,
            f"{model} has no classes, got num_labels={num_labels!r} and "
            f"labels={labels!r}; give neither.",
        )
        return None
    if labels is None:
        require(
            type(num_labels) is int and num_labels > 0,
            f"{model} needs labels, the names of the classes, or num_labels, "
            f"their number; num_labels={num_labels!r}.",
        )
        return tuple(f"LABEL_{n}" for n in range(num_labels or 0))
    require(
        num_labels in (None, len(labels)),
        f"num_labels={num_labels!r} and {len(labels)} labels do not agree.",
    )
    names = [] if isinstance(labels, str) else list(labels)
    require(
        bool(names)
        and all(isinstance(name, str) and name for name in names)
        and len(set(names)) == len(names),
        f"labels={labels!r} must be names, strings that are all different.",
    )
    return tuple(map(str, names))


def checked_options(
    model: str,
    heads: Sequence[type[Head]],
    options: Mapping[str, int | str],
) -> dict[str, int | str]:
    """Returns the options of a model's heads, all known and possible.

    Raises UserError for others, in which `model` is named.
    """
    known = {name for head in heads for name in head.options}
    known.discard("num_labels")
    choices = {n: c for head in heads for n, c in head.option_choices.items()}
    for name, value in options.items():
        if name in choices:
            lookup(dict.fromkeys(choices[name]), value, name)
            continue
        require(
            name in known and type(value) is int and value > 0,
            f"The head option {name}={value!r} of {model} must be one of "
            f"{', '.join(sorted(known)) or 'none'}, a whole number from 1.",
        )
    return dict(options)
