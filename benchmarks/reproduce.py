"""Repeats a search or a table of experiments at a chosen scale.

python -m benchmarks.reproduce --table=recipe --input=books --run_dir=recipe

Every candidate of the recipe search is a run of bin.pretrain in the run
directory, with vocabularies and shards beside it. Interrupted, the same command
continues. Written at the end: results.jsonl (a line for each evaluation) and
curves.png.

python -m benchmarks.reproduce --table=initialization --input=books \\
    --run_dir=recipe

measures outputs and gradients of untrained models at several depths, and writes
initialization.jsonl and initialization.png.

python -m benchmarks.reproduce --table=peers --input=books --run_dir=recipe \\
    --num_seeds=3

trains the tiny preset's candidate and the ALBERT of transformers with its usual
recipe on the same batches (torch and transformers: requirements-parity.txt).
Interrupted, the same command repeats the peer's unfinished runs and continues
ours. Writes peers.jsonl and peers.png.
"""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

from absl import flags

from albert_tf.cluster.children import Children, exit_status
from albert_tf.cluster.stops import DIVERGED
from albert_tf.config import (
    PretrainConfig,
    differences,
    lookup,
    require,
    to_dict,
)
from albert_tf.io import files
from albert_tf.io.json_files import read_json, write_json
from benchmarks import recipe
from benchmarks.curves import draw_curves, draw_initializations
from benchmarks.libraries import LIBRARIES, require_packages
from bin import command_line
from bin.command_line import format_table

FLAGS = flags.FLAGS

_POLL_SECONDS = 1.0
# The candidate with the optimizer and initial weights of the tiny preset; all
# runs have the same masked batches.
_OURS = "normuon-0.004"


def define_flags() -> None:
    flags.DEFINE_enum("table", "recipe", sorted(_TABLES), "What to repeat.")
    flags.DEFINE_string("input", None, "Text, as bin.train_vocab takes it.")
    flags.DEFINE_integer(
        "skip_header_lines", 0, "Lines to skip at the start of each file."
    )
    flags.DEFINE_integer(
        "vocab_size", 8000, "Pieces of the vocabulary.", lower_bound=6
    )
    flags.DEFINE_integer(
        "max_seq_length", 64, "Maximum tokens of a record.", lower_bound=8
    )
    flags.DEFINE_string("run_dir", None, "Directory of all runs.")
    flags.DEFINE_float(
        "teraflops",
        10.0,
        "Arithmetic of a full run, in 10^12 operations.",
        lower_bound=1e-3,
    )
    flags.DEFINE_list(
        "candidates", None, "Candidates, comma-separated; default: all."
    )
    flags.DEFINE_integer(
        "num_seeds",
        1,
        "Seeds of every candidate or peer; the mean of a candidate's losses "
        "decides whether it continues.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "processes",
        os.cpu_count(),
        "Runs at a time, one core each.",
        lower_bound=1,
    )
    command_line.required("input", "run_dir")


def main() -> None:
    for name in FLAGS.candidates or ():
        lookup(recipe.CANDIDATES, name, "candidates")
    files.makedirs(_path("runs"))
    with Children() as children:
        _build(children)
    _TABLES[FLAGS.table]()


def _search() -> None:
    """Runs the search, prints every rung and writes all evaluations."""
    names = dict.fromkeys(FLAGS.candidates or recipe.CANDIDATES)
    seeds = range(1, FLAGS.num_seeds + 1)
    all_runs = [_Run(name, seed) for name in names for seed in seeds]
    kept = list(names)
    with Children() as children:
        for rung in recipe.RUNGS:
            runs = [run for run in all_runs if run.name in kept]
            _train(children, runs, rung)
            print(_table(runs, rung), flush=True)
            losses = dict.fromkeys(kept, 0.0)
            for run in runs:
                losses[run.name] += run.loss(rung) / FLAGS.num_seeds
            kept = recipe.survivors(losses)
    _write_record(all_runs, "results.jsonl", "curves.png")


def _compare_peers() -> None:
    """Trains our recipe and those of transformers, and prints our leads."""
    require_packages("--table=peers", LIBRARIES["transformers"].packages)
    # All recipes of a seed follow each other: the machine's speed may drift.
    runs = [
        _Run(name, seed)
        for seed in range(1, FLAGS.num_seeds + 1)
        for name in (_OURS, *recipe.PEERS)
    ]
    with Children() as children:
        _train(children, runs, recipe.NUM_EVALUATIONS)
    for run in runs:
        require(
            run.loss(recipe.NUM_EVALUATIONS) < math.inf,
            f"{run.run_dir} has not reached its last evaluation; start the "
            "same command again.",
        )
    print(_table(runs, recipe.NUM_EVALUATIONS))
    rows = []
    for run in runs:
        if run.name == _OURS:
            ours = run.curve()
            continue
        row = [run.name, run.seed]
        for axis in ("flops", "seconds"):
            lead = recipe.lead(ours, run.curve(), "masked_lm_loss", axis)
            share, *nats = dataclasses.astuple(lead)
            row += [f"{share:.0%}", *(f"{value:.3f}" for value in nats)]
        rows.append(row)
    columns = [field.name for field in dataclasses.fields(recipe.Lead)]
    axes = (f"{axis}: {c}" for axis in ("work", "time") for c in columns)
    print(format_table(rows, ["peer", "seed", *axes]))
    _write_record(runs, "peers.jsonl", "peers.png")


def _path(*parts: str) -> str:
    return os.path.join(FLAGS.run_dir, *parts)


def _build(children: Children) -> None:
    """Builds the vocabulary and the shards, unless they exist."""
    vocabulary = _path("vocabulary")

    def run(program: str, *arguments: str) -> None:
        process = children.start(
            _command(
                program,
                f"--input={FLAGS.input}",
                f"--skip_header_lines={FLAGS.skip_header_lines}",
                *arguments,
            )
        )
        if status := exit_status(process.wait()):
            sys.exit(status)

    if not files.isdir(vocabulary):
        run(
            "bin.train_vocab",
            f"--output_dir={vocabulary}",
            f"--vocab_size={FLAGS.vocab_size}",
        )
    run(
        "bin.build_pretraining_data",
        f"--tokenizer={vocabulary}",
        f"--output_dir={_path('shards')}",
        f"--max_seq_length={FLAGS.max_seq_length}",
        f"--eval_fraction={recipe.EVAL_FRACTION}",
        f"--dupe_factor={recipe.DUPE_FACTOR}",
        f"--workers={FLAGS.processes}",
    )


def _command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", program, *arguments]


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of bin.pretrain, which stops and resumes, or of a peer."""

    name: str
    seed: int

    @property
    def run_dir(self) -> str:
        return _path("runs", f"{self.name}-{self.seed}")

    @property
    def config(self) -> PretrainConfig:
        return recipe.configuration(
            (recipe.CANDIDATES | recipe.PEERS)[self.name],
            flops=FLAGS.teraflops * 1e12,
            vocab_size=FLAGS.vocab_size,
            seq_length=FLAGS.max_seq_length,
            seed=self.seed,
        )

    def curve(self) -> list[recipe.Point]:
        return recipe.read_curve(self.run_dir, self.config)

    def loss(self, rung: int) -> float:
        curve = self.curve()
        if len(curve) < rung:
            return math.inf
        return curve[rung - 1].metrics["loss"]

    @property
    def settings(self) -> str:
        return f"{self.run_dir}.json"

    def check(self) -> None:
        """Raises UserError if the run was started with other settings."""
        if files.isfile(self.settings):
            recorded = read_json(self.settings)["config"]
            changed = differences(to_dict(self.config), recorded)
            require(
                not changed,
                f"{self.settings}: {'; '.join(changed)}; a search with other "
                "settings needs another --run_dir.",
            )

    def command(self) -> list[str]:
        shards = _path("shards")
        description = {"job": "pretrain", "config": to_dict(self.config)}
        write_json(self.settings, description)
        if self.name in recipe.PEERS:
            program = "benchmarks.pretraining_peer"
            return _command(program, self.settings, shards, self.run_dir)
        return _command(
            "bin.pretrain",
            f"--config_json={self.settings}",
            f"--train_data={shards}",
            f"--eval_data={shards}",
            f"--run_dir={self.run_dir}",
        )


def _train(children: Children, runs: Sequence[_Run], rung: int) -> None:
    """Trains all runs to a rung, each on a core of its own."""
    for run in runs:
        run.check()
    waiting = [run for run in runs if run.loss(rung) == math.inf]
    cores = sorted(os.sched_getaffinity(0))[: FLAGS.processes]
    running: dict[int, tuple[_Run, subprocess.Popen]] = {}
    while waiting or running:
        for core in cores:
            if core not in running and waiting:
                run = waiting.pop(0)
                process = children.start(run.command())
                os.sched_setaffinity(process.pid, {core})
                running[core] = run, process
        time.sleep(_POLL_SECONDS)
        for core, (run, process) in list(running.items()):
            if process.poll() is None:
                # The last rung is the end of the run itself.
                if rung < recipe.NUM_EVALUATIONS and run.loss(rung) < math.inf:
                    process.send_signal(signal.SIGTERM)
                    process.wait()
                continue
            del running[core]
            status = exit_status(process.returncode)
            stopped = status == 128 + signal.SIGTERM
            if stopped and run.loss(rung) < math.inf:
                continue
            if status not in (0, DIVERGED):
                sys.exit(status)


def _table(runs: Sequence[_Run], rung: int) -> str:
    rows = []
    for run in sorted(runs, key=lambda run: run.loss(rung)):
        cells = ["diverged"] * 5
        if run.loss(rung) < math.inf:
            point = run.curve()[rung - 1]
            metrics = point.metrics
            cells = [
                str(metrics["step"]),
                f"{point.seconds / 60:.1f}",
                f"{metrics['masked_lm_loss']:.3f}",
                f"{metrics['masked_lm_accuracy']:.1%}",
                f"{metrics['sentence_order_accuracy']:.1%}",
            ]
        rows.append([run.name, run.seed, *cells])
    return format_table(
        rows,
        [
            *("candidate", "seed", "step", "minutes", "masked-LM loss"),
            *("masked-LM accuracy", "sentence-order accuracy"),
        ],
    )


def _write_record(runs: Sequence[_Run], record: str, figure: str) -> None:
    """Writes every evaluation as a line of JSON, and the curves."""
    lines = []
    curves: dict[str, list[list[recipe.Point]]] = {}
    for run in runs:
        curve = run.curve()
        curves.setdefault(run.name, []).append(curve)
        for point in curve:
            about = {"candidate": run.name, "seed": run.seed}
            work = {"flops": point.flops, "seconds": point.seconds}
            lines.append({**about, **work, **point.metrics})
    _write(record, _json_lines(lines))
    _write(figure, draw_curves(curves, "masked_lm_loss"))


def _initialization() -> None:
    # TensorFlow takes seconds to import.
    from albert_tf.records.shards import open_shards
    from benchmarks.initialization import measure

    found = measure(open_shards(_path("shards"), "train"), seed=1)
    rows = [
        {
            "initialization": m.initialization,
            "applications": m.depth,
            "last change": f"{m.output_change[-1]:.3f}",
            "token similarity": f"{m.token_similarity[-1]:.2f}",
            "first gradient": f"{m.gradient_norm[0]:.2f}",
            "last gradient": f"{m.gradient_norm[-1]:.2f}",
            "shared gradient": f"{m.shared_gradient_norm:.2f}",
            "sensitivity": f"{m.sensitivity:.2f}",
        }
        for m in found
    ]
    print(format_table([row.values() for row in rows], list(rows[0])))
    _write("initialization.jsonl", _json_lines(map(dataclasses.asdict, found)))
    _write("initialization.png", draw_initializations(found))


def _json_lines(rows: Iterable[dict]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _write(name: str, content: bytes) -> None:
    files.write(_path(name), content)
    print(f"Written: {_path(name)}")


_TABLES = {
    "initialization": _initialization,
    "peers": _compare_peers,
    "recipe": _search,
}


if __name__ == "__main__":
    command_line.run(define_flags, main)
