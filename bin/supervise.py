"""Restarts a command after exit statuses that a restart may cure.

python -m bin.supervise --progress_dir=runs/base -- \\
    python -m bin.pretrain --run_dir=runs/base ...

That is the case for a run that was killed, has lost another worker or was
preempted, not for one with an error. A signal to the supervisor is passed on,
and the command is not started again.
"""

import os
import re
import sys
import time

from absl import flags

from albert_tf.cluster.stops import RESTARTABLE
from albert_tf.config import UserError
from albert_tf.io import files
from bin import command_line
from bin.children import Children, exit_status

FLAGS = flags.FLAGS

_MAX_PAUSE_SECONDS = 300.0


def define_flags() -> None:
    flags.DEFINE_string(
        "progress_dir",
        None,
        "The command's run directory: a newer checkpoint there is progress. "
        "Without it no restart counts as progress.",
    )
    flags.DEFINE_integer(
        "max_restarts_without_progress",
        3,
        "Maximum number of restarts in a row without a newer checkpoint.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "backoff_secs",
        5.0,
        "Pause before a restart; each further one without progress doubles "
        "it, up to five minutes.",
        lower_bound=0.0,
    )


def newest_step(run_dir: str | None) -> int:
    """Returns the step of the newest checkpoint; -1 without any."""
    directory = os.path.join(run_dir or "", "checkpoints")
    if not run_dir or not files.isdir(directory):
        return -1
    found = [
        re.fullmatch(r"step-(\d+)", name) for name in files.listdir(directory)
    ]
    return max((int(match[1]) for match in found if match), default=-1)


def main(command: list[str]) -> None:
    """Runs and restarts the command; exits with the status of its last run."""
    if not command:
        raise UserError("no command; it follows the flags, after --.")
    newest = newest_step(FLAGS.progress_dir)
    without_progress = 0
    with Children() as children:
        while True:
            process = children.start(command)
            # Not wait: a signal just before it blocks would not be forwarded.
            while process.poll() is None:
                time.sleep(0.1)
            status = exit_status(process.returncode)
            if children.received or status not in RESTARTABLE:
                sys.exit(status)
            before, newest = newest, newest_step(FLAGS.progress_dir)
            if newest > before:
                without_progress = 0
            if without_progress >= FLAGS.max_restarts_without_progress:
                _log(
                    f"exit status {status}; {without_progress} restarts have "
                    "brought no newer checkpoint: given up."
                )
                sys.exit(status)
            # Beyond some power no float holds it.
            pause = FLAGS.backoff_secs * 2 ** min(without_progress, 60)
            pause = min(pause, _MAX_PAUSE_SECONDS)
            without_progress += 1
            reached = f" after step {newest}" if newest >= 0 else ""
            _log(
                f"exit status {status}{reached}; starting again in "
                f"{pause:g} seconds."
            )
            # A signal handler does not end a sleep.
            end = time.monotonic() + pause
            while not children.received and time.monotonic() < end:
                time.sleep(min(0.1, pause))
            if children.received:
                sys.exit(128 + children.received)


def _log(line: str) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{now} supervise: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    command_line.run(define_flags, main, takes_command=True)
