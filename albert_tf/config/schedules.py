"""Settings that change with the step, as text: `0:3,2000:6`."""

from collections.abc import Callable
from typing import TypeVar

from albert_tf.config.messages import UserError, require

Value = TypeVar("Value")


def parse_schedule(
    name: str, text: str, convert: Callable[[str], Value], example: str
) -> dict[int, Value]:
    """Returns the values of `0:3,2000:6` by the step from which each applies.

    `convert` makes a value of its text, or raises ValueError; `name` is that
    of the setting and `example` one part of it, for messages. Raises UserError
    for an invalid schedule.
    """
    steps: list[int] = []
    values: list[Value] = []
    for part in text.split(","):
        start, _, value = part.partition(":")
        try:
            steps.append(int(start))
            values.append(convert(value))
        except ValueError:
            raise UserError(
                f"{name}={text!r}: {part!r} is not of the form step:value, "
                f"such as {example}."
            ) from None
    require(
        steps[0] == 0 and sorted(set(steps)) == steps,
        f"{name}={text!r} must start with step 0, and its steps must rise.",
    )
    return dict(zip(steps, values, strict=True))


def late_change_warning(name: str, text: str, num_train_steps: int) -> str:
    """Returns a line for the log where a valid schedule changes too late.

    Empty where all of its stages begin.
    """
    stages = text.split(",") if text else []
    begin = {stage: int(stage.partition(":")[0]) for stage in stages}
    late = [stage for stage in stages if begin[stage] >= num_train_steps]
    if not late:
        return ""
    last = stages[-len(late) - 1]
    return (
        f"WARNING: {name}={text} changes at step {begin[late[0]]}, beyond "
        f"num_train_steps={num_train_steps}: {', '.join(late)} never begins, "
        f"and {last} applies to the end. Presets have schedules for their "
        f"number of steps; for fewer give --{name} with earlier changes."
    )


def numbers_of(name: str, text: str, count: int) -> list[int]:
    """Returns the `count` positive integers of a comma-separated setting."""
    parts = [part.strip() for part in text.split(",")]
    require(
        len(parts) == count and all(p.isdecimal() and int(p) for p in parts),
        f"{name}={text!r} must be a whole number from 1 for each of the "
        f"{count} directories of shards, separated by commas.",
    )
    return [int(part) for part in parts]
