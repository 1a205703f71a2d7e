"""Shared by all programs: flags from settings, errors in one line, tables."""

import concurrent.futures.process
import contextlib
import functools
import gc
import importlib.util
import io
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import IO, Any, NoReturn

from absl import app, flags, logging
from tqdm import tqdm

from albert_tf.cluster.children import run_local_cluster
from albert_tf.cluster.clusters import local_size
from albert_tf.cluster.stops import WRITING_FAILED, RunStopped
from albert_tf.config import (
    Config,
    UserError,
    override,
    require,
    setting_fields,
    shown_metric,
    to_dict,
)
from albert_tf.io import files
from albert_tf.io.compression import SUFFIXES, plain_name
from albert_tf.io.directories import made_directory
from albert_tf.io.error_stream import stderr_to
from albert_tf.io.malloc import keep_freed_memory, limit_arenas
from bin import interrupts

FLAGS = flags.FLAGS
# absl's error for a value that is no row of a table that users add to.
_UNKNOWN_ROW = re.compile("flag --(preset|sharing|task)=.*should be one of")
# absl's error for a required flag that is not given.
_MISSING = re.compile("(flag --[a-z_]+)=None: it is required.*")
# Flags of this module are the program's: --helpshort lists them.
flags.disclaim_key_flags()

MODEL_HELP = "Model or run directory, or hf://owner/name: one on the hub."
TOKENIZER_HELP = (
    "Tokenizer: its directory, or a .model, .vocab or vocab.txt file."
)
# Flags whose values are no paths, whatever they look like.
_TEXTS = ("text", "query")
# Memory that a step or a batch has freed, kept for the next one.
_KEPT_BYTES = 2**30
# Seconds between lines of progress in a log.
_LOG_SECONDS = 10.0

# Prints a line at once, even where the output is a file.
log = functools.partial(print, flush=True)


@functools.cache
def load_tensorflow() -> None:
    """Imports TensorFlow, deterministic, without its start-up log.

    Its libraries write to the error stream before they read any log level.
    Their output is shown when the import fails or GPUs are not visible. What
    is imported stays: the garbage collector would only look through it again
    and again.
    """
    limit_arenas()
    keep_freed_memory(_KEPT_BYTES)
    gc.disable()
    with tempfile.TemporaryFile() as captured:
        try:
            # Keras imports them for wrappers and plots that no program uses:
            # a third of the time that TensorFlow's import takes.
            with (
                interrupts.ending_at_once(),
                stderr_to(captured),
                _hidden("matplotlib", "sklearn"),
            ):
                import tensorflow as tf

                gpus = tf.config.list_physical_devices("GPU")
                # A resumed run ends with the weights of an uninterrupted one.
                tf.config.experimental.enable_op_determinism()

                from albert_tf.cluster.environment import unseen_gpus
        except BaseException:
            _copy_to_stderr(captured)
            raise
        gc.freeze()
        gc.enable()
        if problem := unseen_gpus(len(gpus)):
            _copy_to_stderr(captured)
            print(f"WARNING: {problem}", file=sys.stderr, flush=True)


def require_packages(who: str, packages: Iterable[str]) -> None:
    """Raises UserError for packages that are not installed."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    require(
        not missing,
        f"{who} needs {' and '.join(missing)}, not installed here: pip install "
        "-r requirements-parity.txt.",
    )


@contextlib.contextmanager
def _hidden(*packages: str) -> Iterator[None]:
    """Hides packages from imports that do without what is not installed."""
    hidden = dict.fromkeys(p for p in packages if p not in sys.modules)
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]


def _copy_to_stderr(file: IO[bytes]) -> None:
    file.seek(0)
    sys.stderr.write(file.read().decode(errors="replace"))


def run(define_flags: Callable[[], None], main: Callable[[], None]) -> None:
    """Runs a program: flags, then `main`; user errors are one line.

    Exits 0 when `main` returns, 1 on a user error, and with its own exit code
    when a run is stopped. With --cluster=local:N the program runs N times,
    once for each worker.
    """

    def start(arguments: list[str]) -> None:
        if arguments:
            raise UserError(
                f"{arguments[0]!r} is not a flag; flags look like --name=value."
            )
        if number := _num_local_workers():
            # Each worker finds its place in the cluster in TF_CONFIG.
            own = [sys.executable, *sys.orig_argv[1:], "--cluster=tf_config"]
            sys.exit(run_local_cluster(own, number))
        with _folder_of_output():
            main()

    # Labels and texts may have characters that a terminal's encoding lacks.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        define_flags()
    except UserError as error:
        sys.exit(f"{_program(sys.argv)}: {error}")
    logging.set_verbosity(logging.WARNING)
    app.run(lambda argv: _guarded(argv, start), flags_parser=_parse)


def _folder_of_output() -> contextlib.AbstractContextManager[None]:
    """Makes the folder of a program's --output; an empty one does not stay."""
    path = FLAGS["output"].value if "output" in FLAGS else None
    folder = os.path.dirname(path or "")
    if not folder or files.is_remote(folder):
        return contextlib.nullcontext()
    return made_directory(folder)


def _num_local_workers() -> int:
    """Returns the N of --cluster=local:N, else 0."""
    if "cluster" not in FLAGS:
        return 0
    number = local_size(FLAGS["cluster"].value or "")
    require(
        not number or FLAGS["strategy"].value == "multi_worker",
        f"cluster={FLAGS['cluster'].value} needs --strategy=multi_worker.",
    )
    return number


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        given = FLAGS.read_flags_from_files(argv[1:], force_gnu=False)
        return FLAGS([argv[0], *map(_at_home, given)])
    except flags.Error as error:
        lines = "; ".join(
            _MISSING.sub(r"\1 is required", line.strip()).rstrip(".")
            for line in str(error).splitlines()
        )
        hint = "--helpshort lists the flags"
        if "import" in FLAGS and _UNKNOWN_ROW.search(lines):
            hint += ", and a row of your own needs --import, with its module"
        sys.exit(f"{_program(argv)}: {lines} ({hint}.)")


def _at_home(argument: str) -> str:
    """Returns --flag=~/path with the home directory in place of ~.

    Shells put it there in words of their own alone, and a directory called ~
    would be made.
    """
    name, equals, value = argument.partition("=")
    if not name.startswith("-") or name.strip("-") in _TEXTS:
        return argument
    home = os.path.expanduser("~")
    # A ~ alone may be a --label_separator.
    paths = [re.sub(r"^~(?=/)", lambda _: home, p) for p in value.split(",")]
    return name + equals + ",".join(paths)


def _program(argv: Sequence[str]) -> str:
    return os.path.basename(argv[0]).removesuffix(".py")


def _guarded(argv: Sequence[str], main: Callable[[list[str]], None]) -> None:
    program = _program(argv)
    try:
        interrupts.raise_from_now_on()
        main(list(argv[1:]))
        sys.stdout.flush()
    except UserError as error:
        _fail(f"{program}: {error}", error)
    except RunStopped as stopped:
        _end(f"{program}: {stopped}", stopped.exit_code)
    except concurrent.futures.process.BrokenProcessPool:
        fewer = ", with fewer --workers" if "workers" in FLAGS else ""
        sys.exit(
            f"{program}: a worker process was killed, most likely for lack of "
            f"memory; start the same command again{fewer}."
        )
    except BrokenPipeError:
        # The reader of the output has gone, as in `| head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        name = error.filename
        if files.is_disk_full(error):
            # Errors of writing a file name it.
            name = name or "standard output"
        parts = [program, name, error.strerror or str(error)]
        _fail(": ".join(str(part) for part in parts if part), error)
    except KeyboardInterrupt:
        _end(f"{program}: {interrupts.LINE}", 128 + signal.SIGINT)
    except interrupts.Terminated as ended:
        _end(f"{program}: {interrupts.LINE}", 128 + ended.number)


def _fail(text: str, error: Exception) -> NoReturn:
    """Exits with the status of a failure."""
    if files.is_disk_full(error):
        _end(text, WRITING_FAILED)
    sys.exit(text)


def _end(text: str, status: int) -> NoReturn:
    """Exits with this status, even where no one reads the line any more.

    What ended the program may have ended `tee`, or closed the terminal.
    """
    for stream, line in ((sys.stdout, ""), (sys.stderr, f"{text}\n")):
        try:
            stream.write(line)
            stream.flush()
        except OSError:
            # Python would flush it once more, and exit with another status.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)


@contextlib.contextmanager
def progress(unit: str) -> Iterator[Callable[..., None]]:
    """Yields a function that shows progress: a bar, or lines in a log.

    It is called with the number of units done, the total if it is known, and
    further counts by name. Rate and remaining time are shown too.
    """
    on_terminal = sys.stderr.isatty()
    with tqdm(unit=f" {unit}", disable=not on_terminal) as bar:
        begin = last = time.monotonic()
        first: int | None = None

        def show(done: int, total: int | None = None, **counts: int) -> None:
            nonlocal first, last
            # Units of an earlier run do not count in the rate.
            first = done if first is None else first
            if on_terminal:
                bar.total = total
                # Millions as 1.2M, files one by one.
                bar.unit_scale = bool(total and total >= 10**6)
                bar.set_postfix(counts, refresh=False)
                bar.update(done - bar.n)
            elif time.monotonic() - last >= _LOG_SECONDS:
                last = time.monotonic()
                rate = (done - first) / (last - begin)
                parts = [
                    f"{done} of {total} {unit}" if total else f"{done} {unit}"
                ]
                parts += [f"{number} {name}" for name, number in counts.items()]
                parts.append(f"{rate:.4g} {unit}/s")
                if total and rate:
                    left = tqdm.format_interval((total - done) / rate)
                    parts.append(f"{left} left")
                print(", ".join(parts), flush=True)

        yield show


def define_settings(
    config: Any,
    *,
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    default: str | None = None,
) -> None:
    """Defines a flag for the settings of `config` (an instance).

    A flag that is not given is None, so that presets take effect.

    Args:
        config: its values are the defaults in the help texts.
        only: names of settings; None: all.
        leave_out: names of settings without a flag.
        default: describes the default where it is not the setting's own.
    """
    define = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    defaults = to_dict(config)
    for section in [v for v in defaults.values() if isinstance(v, dict)]:
        defaults |= section
    for name, field in setting_fields(config).items():
        if name in leave_out or (only is not None and name not in only):
            continue
        text = f"{field.metadata['help']} Default: {default or defaults[name]}."
        choices, words = field.metadata["choices"], field.metadata["words"]
        flag = field.metadata["flag"] or name
        if choices:
            flags.DEFINE_enum(flag, None, choices, text)
        elif words:
            flags.DEFINE(_NumberOrWord(words), flag, None, text)
        else:
            define[field.type](flag, None, text)
        if flag != name:
            flags.DEFINE_alias(name, flag)


class _NumberOrWord(flags.ArgumentParser):
    """Parses whole numbers and a few words."""

    def __init__(self, words: Collection[str]) -> None:
        super().__init__()
        self._words = words
        self.syntactic_help = f"a whole number or {' or '.join(words)}"

    def parse(self, argument: str) -> int | str:
        try:
            return argument if argument in self._words else int(argument)
        except ValueError:
            raise ValueError(f"it must be {self.syntactic_help}") from None


def given_settings(config: Any) -> dict[str, Any]:
    """Returns the settings of `config` that were given as flags."""
    return {
        name: FLAGS[name].value
        for name in setting_fields(config)
        if name in FLAGS and FLAGS[name].value is not None
    }


def with_flags(config: Config) -> Config:
    """Returns `config` with the settings that were given as flags."""
    return override(config, given_settings(config))


def required(*names: str) -> None:
    """Marks flags that must be given and not be empty."""
    for name in names:
        flags.register_validator(
            name,
            lambda value: bool(value) and all(value),
            "it is required, and may not have an empty part.",
        )


def written_as(
    name: str, endings: Sequence[str], *, packed: bool = False
) -> None:
    """Requires that a flag's file name has one of the endings, or none.

    With `packed` that of a compressed file may follow.
    """
    also = f", also compressed ({', '.join(SUFFIXES)})" if packed else ""

    def has_ending(path: str | None) -> bool:
        plain = plain_name(path or "") if packed else path or ""
        return os.path.splitext(plain)[1].lower() in ("", *endings)

    flags.register_validator(
        name,
        has_ending,
        f"expected a name that ends in {', '.join(endings)}{also}, or has no "
        "ending; no other form is written.",
    )


def format_table(rows: Iterable[Iterable[Any]], header: Sequence[str]) -> str:
    """Returns a text table; all columns but the first are right-aligned."""
    table = [list(map(str, row)) for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    lines = []
    for first, *others in table:
        cells = [first.ljust(widths[0])]
        for cell, width in zip(others, widths[1:], strict=True):
            cells.append(cell.rjust(width))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def metrics_table(columns: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a text table of the last column's metrics, by columns' titles."""
    *_, names = columns.values()
    rows = [
        [name, *(shown_metric(column[name]) for column in columns.values())]
        for name in names
    ]
    return format_table(rows, ["metric", *columns])
