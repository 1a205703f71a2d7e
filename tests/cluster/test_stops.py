"""Signals that stop a run after its step."""

import os
import signal

import pytest

from albert_tf.cluster.stops import Interruption


@pytest.mark.parametrize(
    ("handler", "received"),
    [(signal.SIG_DFL, signal.SIGHUP), (signal.SIG_IGN, None)],
)
def test_a_closed_terminal_stops_a_run_but_for_nohup(handler, received):
    before = signal.signal(signal.SIGHUP, handler)
    interruption = Interruption()
    try:
        with interruption.handled():
            os.kill(os.getpid(), signal.SIGHUP)
        assert interruption.received == received
        assert signal.getsignal(signal.SIGHUP) == handler
    finally:
        signal.signal(signal.SIGHUP, before)
