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


def test_a_signal_is_received_without_a_reader_of_the_message():
    interruption = Interruption()
    stderr, (reader, writer) = os.dup(2), os.pipe()
    os.close(reader)
    os.dup2(writer, 2)
    try:
        with interruption.handled():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(writer)
    assert interruption.received == signal.SIGTERM
