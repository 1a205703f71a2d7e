"""What every program shares: flags from settings, errors in one line."""

import concurrent.futures.process
import contextlib
import ctypes
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import IO, Any

from absl import app, flags, logging
from tqdm import tqdm

from albert_tf.cluster.clusters import local_size
from albert_tf.cluster.stops import RunStopped
from albert_tf.config import RuntimeConfig, UserError, override, setting_fields
from albert_tf.io.json_files import read_json
from bin.local_cluster import run_local_cluster

FLAGS = flags.FLAGS

# Seconds between lines of progress in a log.
_LOG_SECONDS = 10.0
# The number of glibc's setting, in malloc.h.
_M_ARENA_MAX = -8
# Exit status of a program that was interrupted from the keyboard.
_INTERRUPTED = 130


def load_tensorflow() -> None:
    """Imports TensorFlow, made deterministic, without its remarks.

    Its libraries write to the error stream before they read any setting of
    how much to say. When the import fails, or GPUs are not seen, what they
    said is shown.
    """
    _limit_arenas()
    with tempfile.TemporaryFile() as said:
        try:
            with _error_stream_to(said):
                import tensorflow as tf

                gpus = tf.config.list_physical_devices("GPU")
                # The same sums in the same order at every run: a resumed run
                # ends with the very weights of an uninterrupted one.
                tf.config.experimental.enable_op_determinism()

                from albert_tf.cluster.environment import unseen_gpus
        except BaseException:
            _copy_to_error_stream(said)
            raise
        if problem := unseen_gpus(len(gpus)):
            _copy_to_error_stream(said)
            print(f"WARNING: {problem}", file=sys.stderr, flush=True)


def _copy_to_error_stream(file: IO[bytes]) -> None:
    file.seek(0)
    sys.stderr.write(file.read().decode(errors="replace"))


def _limit_arenas() -> None:
    """Lets the C library keep one arena of memory per core.

    Its own limit is eight, and what compiling has freed in the arena of one
    thread no other thread can use: a training of `base` took 4 % more. Only
    glibc has such arenas; MALLOC_ARENA_MAX in the environment goes first.
    """
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


@contextlib.contextmanager
def _error_stream_to(file: IO[bytes]) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def run(define_flags: Callable[[], None], main: Callable[[], None]) -> None:
    """Runs a program: flags, then `main`, mistakes in one line.

    Exits 0 when `main` returns, 1 on a user's mistake, and with its own exit
    code when a run is stopped. With --cluster=local:N the program runs N
    times, once for each worker.
    """

    def run_here_or_in_workers(arguments: list[str]) -> None:
        if arguments:
            raise UserError(
                f"{arguments[0]!r} is not a flag; flags look like --name=value."
            )
        if number := _local_workers():
            sys.exit(run_local_cluster(_own_command(), number))
        main()

    run_with_command(define_flags, run_here_or_in_workers)


def run_with_command(
    define_flags: Callable[[], None], main: Callable[[list[str]], None]
) -> None:
    """Runs a program whose `main` takes what is left after the flags."""
    define_flags()
    logging.set_verbosity(logging.WARNING)
    app.run(lambda argv: _guarded(argv, main), flags_parser=_parse)


def _local_workers() -> int:
    """Returns how many workers this command is to start; 0 for none."""
    if "cluster" not in FLAGS:
        return 0
    number = local_size(FLAGS["cluster"].value or "")
    if number and FLAGS["strategy"].value != "multi_worker":
        raise UserError(
            f"cluster={FLAGS['cluster'].value} needs --strategy=multi_worker."
        )
    return number


def _own_command() -> list[str]:
    """Returns this very command, for a worker that TF_CONFIG tells of."""
    return [sys.executable, *sys.orig_argv[1:], "--cluster=tf_config"]


def _parse(argv: Sequence[str]) -> list[str]:
    """Returns what is left of the command line once the flags are set."""
    try:
        return FLAGS(list(argv))
    except flags.Error as error:
        said = "; ".join(line.strip() for line in str(error).splitlines())
        sys.exit(f"{_program(argv)}: {said} (--helpshort lists the flags.)")


def _program(argv: Sequence[str]) -> str:
    return os.path.basename(argv[0]).removesuffix(".py")


def _guarded(argv: Sequence[str], main: Callable[[list[str]], None]) -> None:
    program = _program(argv)
    try:
        main(list(argv[1:]))
    except UserError as error:
        sys.exit(f"{program}: {error}")
    except RunStopped as stopped:
        print(f"{program}: {stopped}", file=sys.stderr)
        sys.exit(stopped.exit_code)
    except concurrent.futures.process.BrokenProcessPool:
        fewer = ", with fewer --workers" if "workers" in FLAGS else ""
        sys.exit(
            f"{program}: a worker process was killed, most likely for lack of "
            f"memory; start the same command again{fewer}."
        )
    except BrokenPipeError:
        # Whoever read the output has gone; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        said = [error.filename, error.strerror or str(error)]
        sys.exit(": ".join([program, *(str(part) for part in said if part)]))
    except KeyboardInterrupt:
        print(
            f"{program}: interrupted; start the same command again.",
            file=sys.stderr,
        )
        sys.exit(_INTERRUPTED)


def say(line: str) -> None:
    """Prints a line, at once also where the output is a file."""
    print(line, flush=True)


@contextlib.contextmanager
def progress(unit: str) -> Iterator[Callable[..., None]]:
    """Gives a function that shows how far a job has come.

    It is called with what is done, the total if it is known, and numbers to
    show beside. On a terminal it moves a bar; in a log it prints a line now
    and then. Both tell the rate and, with a total, the time left.
    """
    on_terminal = sys.stderr.isatty()
    with tqdm(unit=f" {unit}", disable=not on_terminal) as bar:
        begin = last = time.monotonic()
        first: int | None = None

        def show(done: int, total: int | None = None, **beside: int) -> None:
            nonlocal first, last
            # What an earlier run has done says nothing of this one's rate.
            first = done if first is None else first
            if on_terminal:
                bar.total = total
                # Millions are told as such, files one by one.
                bar.unit_scale = bool(total and total >= 10**6)
                bar.set_postfix(beside, refresh=False)
                bar.update(done - bar.n)
            elif time.monotonic() - last >= _LOG_SECONDS:
                last = time.monotonic()
                rate = (done - first) / (last - begin)
                parts = [
                    f"{done} of {total} {unit}" if total else f"{done} {unit}"
                ]
                parts += [f"{number} {name}" for name, number in beside.items()]
                parts.append(f"{rate:.4g} {unit}/s")
                if total and rate:
                    left = tqdm.format_interval((total - done) / rate)
                    parts.append(f"{left} left")
                print(", ".join(parts), flush=True)

        yield show


def define_settings(
    config: Any,
    leave_out: Collection[str] = (),
    default: str | None = None,
) -> None:
    """Defines a flag for every setting of `config` (an instance).

    A flag that is not given is None, so that presets can speak. `default`
    says in words what it is then, where that is not the setting's own.
    """
    define = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    defaults = _values(config)
    for name, field in setting_fields(config).items():
        if name in leave_out:
            continue
        text = f"{field.metadata['help']} Default: {default or defaults[name]}."
        # As flags of the program itself, so that --helpshort lists them.
        if field.metadata["choices"]:
            flags.DEFINE_enum(
                name,
                None,
                list(field.metadata["choices"]),
                text,
                module_name=sys.argv[0],
            )
        elif field.metadata["words"]:
            flags.DEFINE(
                _NumberOrWord(field.metadata["words"]),
                name,
                None,
                text,
                module_name=sys.argv[0],
            )
        else:
            flag = field.metadata["flag"] or name
            define[field.type](flag, None, text, module_name=sys.argv[0])
            if flag != name:
                flags.DEFINE_alias(name, flag, module_name=sys.argv[0])


class _NumberOrWord(flags.ArgumentParser):
    """Parses whole numbers and a few words."""

    def __init__(self, words: Collection[str]) -> None:
        super().__init__()
        self._words = words
        self.syntactic_help = f"a whole number or {' or '.join(words)}"

    def parse(self, argument: str) -> int | str:
        """Returns the number or the word."""
        try:
            return argument if argument in self._words else int(argument)
        except ValueError:
            raise ValueError(f"it must be {self.syntactic_help}") from None


def _values(config: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            values.update(_values(value))
        else:
            values[field.name] = value
    return values


def given_settings(config: Any) -> dict[str, Any]:
    """Returns the settings of `config` that were given as flags."""
    return {
        name: FLAGS[name].value
        for name in setting_fields(config)
        if name in FLAGS and FLAGS[name].value is not None
    }


def given_runtime() -> RuntimeConfig:
    """Returns where and how a run is to be carried out."""
    return override(RuntimeConfig(), given_settings(RuntimeConfig()))


def recorded_config(path: str, job: str) -> dict[str, Any]:
    """Returns what a run of `job` has written to its config.json.

    Raises:
        UserError: when the file is that of something else.
    """
    values = read_json(path)
    if values.get("job") != job or not isinstance(values.get("config"), dict):
        raise UserError(
            f"{path} is not the config.json of a {job} run; it lies in the "
            "run directory, not in its model/."
        )
    return values


def required(*names: str) -> None:
    """Marks flags that must be given, and not empty."""
    for name in names:
        flags.mark_flag_as_required(name)
        flags.register_validator(
            name,
            lambda value: value is None or (bool(value) and all(value)),
            "it is empty, or has an empty part.",
        )


def format_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Returns an aligned text table; the columns after the first are right."""
    table = [list(map(str, header)), *(list(map(str, row)) for row in rows)]
    widths = [max(len(row[n]) for row in table) for n in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(
                zip(row, widths, strict=True)
            )
        ]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(table[0]), rule, *map(line, table[1:])])
