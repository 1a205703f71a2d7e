import pytest

from albert_tf.config import UserError
from albert_tf.inputs.prefetch import prefetch


def test_prefetch_keeps_order_and_passes_errors_on():
    assert list(prefetch(hex, range(5, 9))) == ["0x5", "0x6", "0x7", "0x8"]

    def broken(step):
        if step == 2:
            raise UserError("record 17 is damaged")
        return step

    seen = []
    with pytest.raises(UserError, match="record 17"):
        for item in prefetch(broken, range(5)):
            seen.append(item)
    assert seen == [0, 1]


def test_prefetch_stops_with_its_consumer():
    steps = iter(range(1000))
    for item in prefetch(abs, steps):
        if item == 3:
            break
    assert next(steps) < 20
