"""Reasons in the messages of TensorFlow's errors: `reason_of`."""

import re

_MAX_CHARS = 500
# Lines in front of a reason: the places in the program where the graph was
# built, and how many operations have failed.
_BEFORE = re.compile(
    r"(?:Graph execution error:|Detected at node |<stack traces unavailable>"
    r"|Node: |\d+ root error\(s\) found\.| +File \"|\s*$)"
)
# The text before a reason on its own line.
_PREFIX = re.compile(r"(?: *\(\d+\) [\w ]+: )?(?:\{\{[^\n{}]*\}\} )*")
# The text after a reason: the nodes, each on a line, or the operation.
_NODES = re.compile(r"\n\s*\[\[|\s*\[Op:\w+\](?: name: ?\w*)?$")


def reason_of(message: str) -> str:
    """Returns the reason in a message, in one line of bounded length.

    Texts of the user in it may have line feeds.
    """
    lines = _NODES.split(message, maxsplit=1)[0].split("\n")
    while len(lines) > 1 and _BEFORE.match(lines[0]):
        del lines[0]
    lines[0] = lines[0][_PREFIX.match(lines[0]).end() :]
    reason = " ".join(" ".join(lines).split()).rstrip(": ")
    if len(reason) > _MAX_CHARS:
        return f"{reason[:_MAX_CHARS]}..."
    return reason
