"""Evaluations read back from a run's log."""

import pytest

from albert_tf.config import UserError
from albert_tf.rundir.run_results import evaluations


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (None, "is not a run directory: no "),
        (
            '{"step": 1, "split": "train"}\n',
            "metrics.jsonl has no evaluation yet",
        ),
        (
            '{"step": 5, "spl\n{"step": 9, "split": "eval"}\n',
            "jsonl, line 1 is damaged; the run's",
        ),
    ],
)
def test_logs_that_cannot_be_read(tmp_path, log, message):
    if log:
        (tmp_path / "metrics.jsonl").write_text(log)
    with pytest.raises(UserError, match=message):
        evaluations(str(tmp_path))
