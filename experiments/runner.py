"""Runs units side by side, each on cores of its own, and records them.

Several processes may run one directory: a unit belongs to whoever holds its
lock, and what another has recorded is not run again, unless its output is
needed and has been deleted.
"""

import contextlib
import dataclasses
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import IO, Any

from tqdm import tqdm

from albert_tf.cluster.children import Children, exit_status
from albert_tf.cluster.stops import DIVERGED, WRITING_FAILED
from albert_tf.config import Log, UserError
from albert_tf.io import files
from albert_tf.io.locks import lock_inheritably, locked
from experiments import ledger as states
from experiments.ledger import Ledger
from experiments.units import KINDS, OUTPUT, TEXT, Figures, Job, Unit, in_order

# The cores of a job.
Cores = frozenset[int]
_POLL_SECONDS = 0.5
_LOG = "log.txt"
_BAR = "{n_fmt}/{total_fmt} jobs |{bar}| {elapsed}{postfix}"


@dataclasses.dataclass
class _Running:
    """A unit's process, and what is released when it has ended.

    `started` is as if it had run without interruption.
    """

    unit: Unit
    process: subprocess.Popen
    cores: Cores
    started: float
    resources: contextlib.ExitStack


class UnitError(Exception):
    """A unit's program failed; the argument is its exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def run_units(
    units: Sequence[Unit],
    ledger: Ledger,
    processes: int,
    log: Log,
    pretrain_flags: Sequence[str] = (),
) -> None:
    """Runs what has not been recorded, until every unit has.

    At most `processes` run at a time, each on its share of this machine's
    cores, pretrainings with `pretrain_flags` beside their settings.
    Units that diverge are recorded as such, and what needs them as not run.
    After a signal to stop the programs save, and the next call resumes them.
    On a terminal there is a bar, above which `log` writes its lines.

    Raises:
        UnitError: when a program fails or is stopped; its last lines are
            logged.
    """
    ordered = in_order(units)
    shares = _shares_of_cores(processes)
    bar = tqdm(
        total=len(ordered),
        bar_format=_BAR,
        dynamic_ncols=True,
        disable=not sys.stderr.isatty(),
    )
    with Children() as children, contextlib.ExitStack() as locks, bar:
        run = _Run(
            ordered, ledger, len(shares), pretrain_flags, log, children, locks
        )
        while not run.is_complete():
            for cores in shares:
                if cores not in {r.cores for r in run.running}:
                    run.start_next(cores)
            time.sleep(_POLL_SECONDS)
            run.collect()
            run.show(bar)
            if children.received and not run.running:
                raise UnitError(128 + children.received)


def _shares_of_cores(processes: int) -> list[Cores]:
    """Returns the cores that this process may use, in equal shares."""
    # macOS does not restrict a process to some of them.
    if hasattr(os, "sched_getaffinity"):
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    number = min(processes, len(cores))
    return [frozenset(cores[i::number]) for i in range(number)]


def _restrict(process: subprocess.Popen, cores: Cores) -> None:
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(process.pid, cores)


class _Run:
    def __init__(
        self,
        units: Sequence[Unit],
        ledger: Ledger,
        shares: int,
        pretrain_flags: Sequence[str],
        log: Log,
        children: Children,
        locks: contextlib.ExitStack,
    ) -> None:
        self._units = units
        self._ledger = ledger
        self._shares = shares
        self._pretrain_flags = pretrain_flags
        self._log = log
        self._children = children
        self._locks = locks
        self._seconds: dict[str, list[float]] = defaultdict(list)
        self._waiting = self._to_run(units)
        self.running: list[_Running] = []

    def is_complete(self) -> bool:
        """Returns whether every unit has been recorded, by anyone."""
        if not self.running:
            self._waiting = self._to_run(self._waiting)
        return not self.running and not self._waiting

    def _to_run(self, units: Sequence[Unit]) -> list[Unit]:
        """Returns units without a record, or whose deleted output is needed."""
        found: list[Unit] = []
        needed: set[str] = set()
        # Units that need a unit follow it.
        for unit in reversed(units):
            if self._status(unit, unit.name in needed) is None:
                found.insert(0, unit)
                needed.update(need.name for need in unit.needs.values())
        return found

    def _status(self, unit: Unit, output_needed: bool) -> str | None:
        """Returns the status of an ended unit; None: it is to run (again)."""
        entry = self._ledger.entry(unit)
        if entry is None:
            return None
        status = entry["status"]
        if status == states.FINISHED and output_needed:
            return status if self._ledger.has_output(unit) else None
        return status

    def start_next(self, cores: Cores) -> None:
        """Starts the first unit that can be, on these cores; perhaps none."""
        if self._children.received:
            return
        for unit in list(self._waiting):
            needed = {self._status(n, True) for n in unit.needs.values()}
            if None not in needed and self._start(unit, cores, needed):
                return

    def _start(self, unit: Unit, cores: Cores, needed: set[str | None]) -> bool:
        """Returns whether the unit runs now; it may be somebody else's."""
        files.makedirs(self._ledger.unit_directory(unit))
        with contextlib.ExitStack() as resources:
            try:
                resources.enter_context(locked(self._ledger.lock(unit), ""))
                # Also the program of an experiment that was killed holds it.
                output = resources.enter_context(self._open_log(unit))
                lock_inheritably(output)
            except (UserError, BlockingIOError):
                return False
            self._waiting.remove(unit)
            # Another process may have run it since it was looked for.
            if unit not in self._to_run([unit, *self._waiting]):
                return False
            if needed - {states.FINISHED}:
                self._record(unit, states.SKIPPED, {}, 0.0, frozenset())
                return False
            process = self._process(unit, len(cores), output)
            _restrict(process, cores)
            started = time.monotonic() - self._ledger.earlier_seconds(unit)
            self.running.append(
                _Running(unit, process, cores, started, resources.pop_all())
            )
            return True
        return False

    def _open_log(self, unit: Unit) -> IO:
        return files.open(
            os.path.join(self._ledger.unit_directory(unit), _LOG), "ab"
        )

    def _process(self, unit: Unit, cores: int, output: IO) -> subprocess.Popen:
        job = Job(
            unit, self._ledger.unit_directory, cores, self._pretrain_flags
        )
        command = KINDS[unit.kind].command(job)
        return self._children.start(
            [sys.executable, "-m", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def collect(self) -> None:
        """Records the units whose programs have ended.

        Raises:
            UnitError: for a program that failed.
        """
        for run in list(self.running):
            if run.process.poll() is None:
                continue
            self.running.remove(run)
            with run.resources:
                self._finish(run, exit_status(run.process.returncode))

    def show(self, bar: tqdm) -> None:
        """Shows the number of jobs that are done, and the time left."""
        left = [*self._waiting, *(run.unit for run in self.running)]
        bar.n = len(self._units) - len(left)
        bar.set_postfix_str(self._time_left(left))

    def _finish(self, run: _Running, status: int) -> None:
        seconds = time.monotonic() - run.started
        directory = self._ledger.unit_directory(run.unit)
        if status == 0:
            job = Job(run.unit, self._ledger.unit_directory)
            figures = KINDS[run.unit.kind].figures(job)
            self._check_text(run.unit, figures)
            self._ledger.mark_whole(run.unit)
            self._record(run.unit, states.FINISHED, figures, seconds, run.cores)
        elif status == DIVERGED:
            self._record(run.unit, states.DIVERGED, {}, seconds, run.cores)
        elif self._children.received:
            self._ledger.write_earlier_seconds(run.unit, seconds)
            self._waiting.insert(0, run.unit)
        else:
            path = os.path.join(directory, _LOG)
            with open(path, errors="replace") as file:
                last = "".join(file.readlines()[-5:]).rstrip()
            if last:
                self._log(last)
            # On a full disk its log has no line on that.
            full = " (writing failed: a full disk, most likely)"
            reason = full if status == WRITING_FAILED else ""
            self._log(
                f"{run.unit.name} failed with status {status}{reason}: {path}"
            )
            raise UnitError(status)

    def _check_text(self, unit: Unit, figures: Figures) -> None:
        """Raises UnitError where a text is not the one that was recorded.

        What was made of it is removed.
        """
        recorded = self._ledger.recorded_text(unit)
        found = figures.get(TEXT)
        if recorded is None or found == recorded:
            return
        directory = self._ledger.unit_directory(unit)
        files.remove_tree(os.path.join(directory, OUTPUT))
        self._log(
            f"{unit.name}: the text {unit.settings['input']} has changed "
            f"(fingerprint {found[:12]}, recorded in "
            f"{self._ledger.directory}/results: {recorded[:12]}). Put it back "
            "as it was, or take another --run_dir for the new one."
        )
        raise UnitError(1)

    def _record(
        self,
        unit: Unit,
        status: str,
        figures: Figures,
        seconds: float,
        cores: Cores,
    ) -> None:
        computed: dict[str, Any] = {"cores": len(cores)}
        if unit.kind == "pretraining":
            computed["pretrain_flags"] = list(self._pretrain_flags)
        self._ledger.record(unit, status, figures, seconds, **computed)
        self._ledger.write_lines()
        if seconds:
            self._seconds[unit.kind].append(seconds)
        left = self._to_run(self._units)
        number = len(self._units) - len(left)
        line = f"[{number}/{len(self._units)}] {unit.name}: {status}"
        if seconds:
            line += f" in {_clock(seconds)}"
        self._log(f"{line}; {self._time_left(left)}")

    def _time_left(self, left: Sequence[Unit]) -> str:
        """Returns an estimate from the units of the same kinds so far."""
        if not left:
            return "nothing is left"
        means = {k: statistics.mean(v) for k, v in self._seconds.items()}
        known = [unit for unit in left if unit.kind in means]
        begun = {run.unit.name: run.started for run in self.running}
        now = time.monotonic()
        seconds = sum(
            max(means[unit.kind] - now + begun.get(unit.name, now), 0)
            for unit in known
        )
        others = len(left) - len(known)
        texts = [f"{_clock(seconds / self._shares)} left"] * bool(known)
        texts += [f"{others} jobs of kinds that have not run yet"] * bool(
            others
        )
        return " and ".join(texts)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
