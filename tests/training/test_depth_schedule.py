"""Progressive depth."""

import pytest

from albert_tf.config import UserError
from albert_tf.training.depth_schedule import DepthSchedule


@pytest.mark.parametrize(
    ("text", "expected"), [("", [None] * 6), ("0:2, 5:6", [2] * 5 + [6])]
)
def test_depths(text, expected):
    depths = DepthSchedule(text, 6)
    assert [depths.at(step) for step in range(6)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", "'3' is not of the form step:value, such as 2000:6"),
        ("0:x", "'0:x' is not of the form"),
        ("0:7", "asks for 7 layers; the model has 6"),
        ("0:0", "asks for 0 layers"),
        ("1:2", "must start with step 0"),
        ("0:1,5:2,5:3", "must rise"),
        ("0:2,5:3", "ends with 3 of the model's 6 layers; end with all"),
    ],
)
def test_invalid_depth_schedules(text, message):
    with pytest.raises(UserError, match=message):
        DepthSchedule(text, 6)
