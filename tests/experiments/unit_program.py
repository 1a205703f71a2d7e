"""A unit's program for tests: python -m tests.experiments.unit_program."""

import pathlib
import signal
import sys
import time


def main(behaviour: str, directory: str) -> None:
    path = pathlib.Path(directory, "runs")
    runs = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (runs + 1))
    if behaviour == "wait" and not runs:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + 15))
        pathlib.Path(directory, "ready").touch()
        time.sleep(60)
    if behaviour.isdigit():
        print("what went wrong")
        sys.exit(int(behaviour))


if __name__ == "__main__":
    main(*sys.argv[1:])
