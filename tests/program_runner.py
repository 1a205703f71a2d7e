"""Runs programs of bin/ in the tests' own process, which has TensorFlow."""

import contextlib
import importlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from absl import app, flags, logging

from bin import command_line


class Done(NamedTuple):
    """What a program left; `error` is the message that it exited with."""

    status: int
    stdout: str
    stderr: str
    error: str


@contextlib.contextmanager
def new_flags():
    """Removes the flags that are defined within, and all their values."""
    before = set(flags.FLAGS)
    try:
        yield
    finally:
        for flag in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, flag)
        flags.FLAGS.unparse_flags()


def run_program(name, *arguments, stdin="", main=None):
    """Returns how `python -m bin.NAME ARGUMENTS` ends.

    A name with a dot is that of a module. With `main` that is called in place
    of the program's own.
    """
    path = name if "." in name else f"bin.{name}"
    module, name = importlib.import_module(path), path.rpartition(".")[2]
    app.define_help_flags()
    out, err = io.StringIO(), io.StringIO()
    stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8")))
    log_handler = logging.get_absl_handler().python_handler
    with (
        mock.patch.object(sys, "argv", [f"{name}.py", *arguments]),
        mock.patch.object(sys, "stdin", stdin),
        # It would make operations deterministic in all tests that follow.
        mock.patch.object(command_line, "load_tensorflow", lambda: None),
        # uvicorn closes all handlers, and this one its stream, which is that
        # of the tests.
        mock.patch.object(log_handler, "close"),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        new_flags(),
    ):
        try:
            command_line.run(module.define_flags, main or module.main)
            code = None
        except SystemExit as exit:
            code = exit.code
    error = code if isinstance(code, str) else ""
    status = 1 if error else code or 0
    return Done(status, out.getvalue(), err.getvalue(), error)
