"""Processes of a test's own that need not import TensorFlow.

Each is a fork of one that has imported it, which takes seconds, and has used
nothing of it.
"""

import contextlib
import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tensorflow", "keras"])


def call(function, *arguments):
    """Returns the result of a module's function, run in its own process."""
    receiver, sender = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    with contextlib.closing(receiver):
        try:
            return receiver.recv()
        except EOFError:
            process.join()
            raise AssertionError(f"it ended with {process.exitcode}") from None


def _send(sender, function, arguments):
    sender.send(function(*arguments))
