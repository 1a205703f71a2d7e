"""Labels that are numbers, as they are written."""

import re

from albert_tf.config import shown
from albert_tf.tasks.bad_rows import RowError

# Python's float() would also read 1_0.
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# Numbers with a comma, groups of digits or a percent sign.
_OTHER_FORM = re.compile(r"[-+]?[0-9][0-9.,' \u00a0\u2009\u202f]*%?")
_ADVICE = (
    " (convert the column, for example with pandas.read_csv: decimal=',', "
    "thousands='.' for 1.234,5, thousands=',' for 1,234.5; 3 % is written 3)"
)
_MAX_FLOAT32 = 3.4028234663852886e38


def is_number(label: str) -> bool:
    """Returns whether a label is a number in the range of float32."""
    return bool(_NUMBER.fullmatch(label)) and abs(float(label)) <= _MAX_FLOAT32


def number_of(label: str, location: str) -> float:
    """Returns the number that a label is, or raises RowError."""
    if not is_number(label):
        is_other = not _NUMBER.fullmatch(label)
        is_other = is_other and bool(_OTHER_FORM.fullmatch(label))
        advice = _ADVICE if is_other else ""
        raise RowError(
            location,
            "expected a number, with a decimal point and up to "
            f"{_MAX_FLOAT32:.2g}, as the label{advice}",
            f", got {shown(label)}",
        )
    return float(label)
