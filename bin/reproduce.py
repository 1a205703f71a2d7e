"""Repeats a search or a table of experiments at a chosen scale.

python -m bin.reproduce --table=recipe --input=books --run_dir=recipe

Every candidate of the recipe search is a run of bin.pretrain in the run
directory, with vocabularies and shards beside it. Interrupted, the same command
continues. Written at the end: results.jsonl (a line for each evaluation) and
curves.png.

python -m bin.reproduce --table=initialization --input=books --run_dir=recipe

measures outputs and gradients of untrained models at several depths, and writes
initialization.jsonl and initialization.png.

python -m bin.reproduce --table=peers --input=books --run_dir=recipe \\
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
from collections.abc import Sequence

from absl import flags

from albert_tf.cluster.stops import DIVERGED
from albert_tf.config import lookup, require, to_dict
from albert_tf.experiments import recipe
from albert_tf.experiments.curves import draw_curves, draw_initializations
from albert_tf.io import files
from albert_tf.io.json_files import write_json
from bin import command_line
from bin.children import Children, exit_status
from bin.command_line import format_table

FLAGS = flags.FLAGS

_POLL_SECONDS = 1.0
_TERMINATED = 143
# The candidate with the tiny preset's recipe.
_OURS = "muon-0.002"


def define_flags() -> None:
    """Defines the program's flags."""
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
        "Seeds of the candidates of the last rung, or of every peer.",
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
    """Repeats the table."""
    files.makedirs(_path("runs"))
    with Children() as children:
        _build(children)
    _TABLES[FLAGS.table]()


def _search() -> None:
    """Runs the search, writes its record and prints every rung."""
    names = FLAGS.candidates or list(recipe.CANDIDATES)
    candidates = {
        name: lookup(recipe.CANDIDATES, name, "candidate") for name in names
    }
    with Children() as children:
        runs = [_Run(name, row, 1) for name, row in candidates.items()]
        started = list(runs)
        for rung in recipe.RUNGS:
            if rung == recipe.RUNGS[-1]:
                again = [
                    _Run(run.name, run.candidate, seed)
                    for run in runs
                    for seed in range(2, FLAGS.num_seeds + 1)
                ]
                runs += again
                started += again
            _train(children, runs, rung)
            print(_table(runs, rung), flush=True)
            losses = {run.name: run.loss(rung) for run in runs}
            kept = recipe.survivors(losses)
            if rung != recipe.RUNGS[-1]:
                runs = [run for run in runs if run.name in kept]
    _write_record(started, "results.jsonl", "curves.png")


def _compare_peers() -> None:
    """Trains ours and transformers', and prints how far apart they are."""
    rows = [(_OURS, recipe.CANDIDATES[_OURS], "pretrain")]
    for name, row in recipe.PEERS.items():
        rows.append((name, row, "benchmarking.pretraining_peer"))
    # All recipes of a seed follow each other: the machine's speed may drift.
    runs = [
        _Run(name, row, seed, program)
        for seed in range(1, FLAGS.num_seeds + 1)
        for name, row, program in rows
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
    curves = {(run.name, run.seed): run.curve() for run in runs}
    lines = []
    for (name, seed), theirs in curves.items():
        if name != _OURS:
            ours = curves[_OURS, seed]
            line = [name, str(seed)]
            for axis in ("flops", "seconds"):
                lead = recipe.lead(ours, theirs, "masked_lm_loss", axis)
                line += [
                    f"{lead.share:.0%}",
                    f"{lead.smallest:.3f}",
                    f"{lead.largest:.3f}",
                    f"{lead.last:.3f}",
                ]
            lines.append(line)
    columns = ("share", "smallest", "largest", "last")
    print(
        format_table(
            lines,
            [
                *("peer", "seed"),
                *(f"{axis}: {c}" for axis in ("work", "time") for c in columns),
            ],
        )
    )
    _write_record(runs, "peers.jsonl", "peers.png")


def _path(*parts: str) -> str:
    return os.path.join(FLAGS.run_dir, *parts)


def _build(children: Children) -> None:
    """Makes the vocabulary and the shards, unless they are there."""
    corpus = [
        f"--input={FLAGS.input}",
        f"--skip_header_lines={FLAGS.skip_header_lines}",
    ]
    vocabulary = _path("vocabulary")
    commands = [
        _command(
            "build_pretraining_data",
            *corpus,
            f"--tokenizer={vocabulary}",
            f"--output_dir={_path('shards')}",
            f"--max_seq_length={FLAGS.max_seq_length}",
            f"--eval_fraction={recipe.EVAL_FRACTION}",
            f"--dupe_factor={recipe.DUPE_FACTOR}",
            f"--workers={FLAGS.processes}",
        )
    ]
    if not files.isdir(vocabulary):
        train = _command(
            "train_vocab",
            *corpus,
            f"--output_dir={vocabulary}",
            f"--vocab_size={FLAGS.vocab_size}",
        )
        commands.insert(0, train)
    for command in commands:
        if status := exit_status(children.start(command).wait()):
            sys.exit(status)


def _command(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"bin.{program}", *arguments]


class _Run:
    """A run of bin.pretrain, which stops and resumes, or of a peer."""

    def __init__(
        self,
        name: str,
        candidate: recipe.Candidate,
        seed: int,
        program: str = "pretrain",
    ) -> None:
        self.name = name
        self.program = program
        self.seed = seed
        self.run_dir = _path("runs", f"{name}-{seed}")
        self.candidate = candidate
        self.config = recipe.configuration(
            candidate,
            flops=FLAGS.teraflops * 1e12,
            vocab_size=FLAGS.vocab_size,
            seq_length=FLAGS.max_seq_length,
            seed=seed,
        )

    def curve(self) -> list[recipe.Point]:
        return recipe.read_curve(self.run_dir, self.config)

    def loss(self, rung: int) -> float:
        curve = self.curve()
        if len(curve) < rung:
            return math.inf
        return curve[rung - 1].metrics["loss"]

    def command(self) -> list[str]:
        shards = _path("shards")
        settings = _path("runs", f"{self.name}-{self.seed}.json")
        description = {"job": "pretrain", "config": to_dict(self.config)}
        write_json(settings, description)
        return _command(
            self.program,
            f"--config_json={settings}",
            f"--train_data={shards}",
            f"--eval_data={shards}",
            f"--run_dir={self.run_dir}",
        )


def _train(children: Children, runs: Sequence[_Run], rung: int) -> None:
    """Trains all runs to a rung, each on a core of its own."""
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
            stopped = status == _TERMINATED and run.loss(rung) < math.inf
            if status not in (0, DIVERGED) and not stopped:
                sys.exit(status)


def _table(runs: Sequence[_Run], rung: int) -> str:
    rows = []
    for run in sorted(runs, key=lambda run: run.loss(rung)):
        row = [run.name, str(run.seed)]
        if run.loss(rung) == math.inf:
            rows.append([*row, *["diverged"] * 5])
            continue
        point = run.curve()[rung - 1]
        metrics = point.metrics
        rows.append(
            [
                *row,
                f"{metrics['step']}",
                f"{point.seconds / 60:.1f}",
                f"{metrics['masked_lm_loss']:.3f}",
                f"{metrics['masked_lm_accuracy']:.1%}",
                f"{metrics['sentence_order_accuracy']:.1%}",
            ]
        )
    return format_table(
        rows,
        [
            *("candidate", "seed", "step", "minutes", "masked-LM loss"),
            *("masked-LM accuracy", "sentence-order accuracy"),
        ],
    )


def _write_record(runs: Sequence[_Run], record: str, figure: str) -> None:
    """Writes every evaluation as a line of JSON, and the curves."""
    lines, curves = [], {}
    for run in runs:
        curve = curves[f"{run.name}, seed {run.seed}"] = run.curve()
        for point in curve:
            about = {"candidate": run.name, "seed": run.seed}
            work = {"flops": point.flops, "seconds": point.seconds}
            lines.append(json.dumps({**about, **work, **point.metrics}))
    _write(record, "".join(f"{line}\n" for line in lines).encode())
    _write(figure, draw_curves(curves, "masked_lm_loss"))


def _initialization() -> None:
    """Measures untrained models, prints and draws them."""
    # TensorFlow takes seconds to import.
    from albert_tf.experiments.initialization import measure
    from albert_tf.records.shards import open_shards

    found = measure(open_shards(_path("shards"), "train"), seed=1)
    rows = [
        [
            m.initialization,
            str(m.depth),
            f"{m.output_change[-1]:.3f}",
            f"{m.token_similarity[-1]:.2f}",
            f"{m.gradient_norm[0]:.2f}",
            f"{m.gradient_norm[-1]:.2f}",
            f"{m.shared_gradient_norm:.2f}",
            f"{m.sensitivity:.2f}",
        ]
        for m in found
    ]
    header = [
        *("initialization", "applications", "last change", "token similarity"),
        *("first gradient", "last gradient", "shared gradient", "sensitivity"),
    ]
    print(format_table(rows, header))
    lines = [json.dumps(dataclasses.asdict(m)) + "\n" for m in found]
    _write("initialization.jsonl", "".join(lines).encode())
    _write("initialization.png", draw_initializations(found))


def _write(name: str, content: bytes) -> None:
    with files.replacing(_path(name)) as file:
        file.write(content)
    print(f"Written: {_path(name)}")


_TABLES = {
    "initialization": _initialization,
    "peers": _compare_peers,
    "recipe": _search,
}


if __name__ == "__main__":
    command_line.run(define_flags, main)
