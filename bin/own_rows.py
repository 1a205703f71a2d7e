"""--import: modules of a user's own, whose rows the programs then know."""

import contextlib
import importlib
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence

from absl import flags

from albert_tf.config import UserError
from albert_tf.io.error_stream import stderr_to
from bin import command_line

# --helpshort lists it as a flag of the program.
flags.disclaim_key_flags()

_FLAG = "import"
_HELP = (
    "Modules of your own, comma-separated, in the working directory or on "
    "PYTHONPATH. They are imported first, so that the rows that they add to "
    "HEADS, TASKS, OPTIMIZERS and other tables count (docs/extending.md)."
)


def define_flag() -> None:
    """Defines --import, and imports its modules.

    Flags that are defined afterwards have their rows among the choices.

    Raises:
        UserError: when a module cannot be imported.
    """
    flags.DEFINE_list(_FLAG, [], _HELP)
    if names := _modules_of(sys.argv):
        command_line.load_tensorflow()
        import_all(names)


def import_all(names: Iterable[str]) -> None:
    """Imports modules by name.

    Raises:
        UserError: when one is not found, or fails.
    """
    for name in names:
        try:
            importlib.import_module(name)
        # A module may fail with any error: the line has its type and place.
        except Exception as error:
            raise UserError(
                f"--{_FLAG}={name}: {_reason(name, error)}"
            ) from None


def _modules_of(arguments: Sequence[str]) -> list[str]:
    """Returns the value of --import, before other flags are known."""
    values = flags.FlagValues()
    # The flag may follow arguments that are no flags.
    values.set_gnu_getopt(True)
    flags.DEFINE_list(_FLAG, [], _HELP, flag_values=values)
    # A fault is reported when all flags are parsed.
    with contextlib.suppress(flags.Error):
        values(arguments, known_only=True)
    return values[_FLAG].value


def _reason(name: str, error: Exception) -> str:
    """Returns why a module cannot be imported, and where in its code."""
    if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(
        f"{error.name}."
    ):
        return (
            f"there is no module {error.name}; expected a name such as my_rows "
            "for my_rows.py, in the working directory or on PYTHONPATH."
        )
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: {error.msg}"
    *_, last = (
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen")
    )
    line = " ".join(str(error).split())
    return f"{last.filename}:{last.lineno}: {type(error).__name__}: {line}"


if multiprocessing.current_process().name != "MainProcess":
    # A worker process has its program's arguments, and needs its rows. What
    # TensorFlow writes when it is imported is not shown, as in the program.
    with tempfile.TemporaryFile() as captured, stderr_to(captured):
        import_all(_modules_of(sys.argv))
