"""Fine-tunes a model on a suite of tasks, without settings, beside TF-IDF.

python -m benchmarks.task_suite --books=books --medical=medical --glue=glue \\
    --squad=squad --output_dir=suite --init_from=runs/small --num_seeds=3

Makes the tasks in suite/tasks, runs `bin.finetune` on each with no settings but
the seed, and prints a table in Markdown. Started again it goes on: what has
been made or run stays as it is.
"""

import glob
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

from absl import flags

from albert_tf.config import markdown_table
from albert_tf.io.directories import new_directory
from benchmarks.made_tasks import MADE_TASKS, Row, divided, read_parts
from benchmarks.question_tasks import (
    QUESTION_TASKS,
    question_rows,
    read_articles,
)
from bin import command_line

FLAGS = flags.FLAGS

_GLUE = ("SST-2", "MRPC", "STS-B")
# One article of 4, and one question of 6, is held out.
_HELD_OUT_ARTICLE = 4
_HELD_OUT_QUESTION = 6
# The task by which bin.finetune knows each; others are "classification".
_TASK_FLAGS = {name: (f"--task={name}",) for name in _GLUE} | {
    "entities": ("--task=custom", "--columns=word=0,tag=1"),
    "questions": ("--task=SQuAD2.0",),
}
_SUITE = (*_GLUE, *QUESTION_TASKS, *MADE_TASKS, "questions")


def define_flags() -> None:
    flags.DEFINE_string("books", None, "Directory of books as Markdown.")
    flags.DEFINE_string("medical", None, "Directory of texts on medicine.")
    flags.DEFINE_string("glue", None, f"Directory of {', '.join(_GLUE)}.")
    flags.DEFINE_string("squad", None, "Directory of files as SQuAD's.")
    flags.DEFINE_string("output_dir", None, "For tasks and runs.")
    flags.DEFINE_string("init_from", None, "The pretrained model.")
    flags.DEFINE_integer("num_seeds", 1, "Runs of each task.")
    flags.DEFINE_multi_enum("only", None, _SUITE, "Runs these tasks alone.")
    command_line.required(
        "books", "medical", "glue", "squad", "output_dir", "init_from"
    )


def main() -> None:
    tasks_dir = os.path.join(FLAGS.output_dir, "tasks")
    if not os.path.exists(tasks_dir):
        with new_directory(tasks_dir) as directory:
            _make_tasks(directory)
            os.rename(directory, tasks_dir)
    names = FLAGS.only or _SUITE
    # All tasks with one seed come before the next seed.
    for seed in range(1, FLAGS.num_seeds + 1):
        for name in names:
            data_dir = os.path.join(tasks_dir, name)
            if name in _GLUE:
                data_dir = os.path.join(FLAGS.glue, name)
            _finetune(name, data_dir, seed)
    print(_table(names))


def _make_tasks(directory: str) -> None:
    parts = {
        "books": divided(read_parts(FLAGS.books, "file", 8)),
        "medical": divided(read_parts(FLAGS.medical, "blank_line", 0)),
    }
    for name, task in MADE_TASKS.items():
        rng = random.Random(name)
        for split, count in zip(
            ("train", "dev"), task.num_examples, strict=True
        ):
            rows = task.draw(parts[task.source][split], rng, count)
            _write(directory, name, split, rows, task.columns)
    articles = read_articles(sorted(glob.glob(f"{FLAGS.squad}/*.json")))
    for name in QUESTION_TASKS:
        rows = question_rows(articles, name)
        random.Random(name).shuffle(rows)
        border = len(rows) // _HELD_OUT_QUESTION
        for split, part in (("dev", rows[:border]), ("train", rows[border:])):
            _write(directory, name, split, part, ("text", "label"))
    os.mkdir(os.path.join(directory, "questions"))
    held_out = articles[::_HELD_OUT_ARTICLE]
    others = [article for article in articles if article not in held_out]
    for split, part in (("dev", held_out), ("train", others)):
        path = os.path.join(directory, "questions", f"{split}-v2.0.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": "v2.0", "data": part}, file)


def _write(
    directory: str,
    name: str,
    split: str,
    rows: Iterable[Row],
    columns: Sequence[str],
) -> None:
    folder = os.path.join(directory, name)
    os.makedirs(folder, exist_ok=True)
    suffix = "jsonl" if columns else "conll"
    path = os.path.join(folder, f"{split}.{suffix}")
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            line = "\t".join(row)
            if columns:
                named = dict(zip(columns, row, strict=True))
                line = json.dumps(named, ensure_ascii=False)
            file.write(line + "\n")


def _run_dir(name: str, seed: int) -> str:
    return os.path.join(FLAGS.output_dir, "runs", name, str(seed))


def _finetune(name: str, data_dir: str, seed: int) -> None:
    run_dir = _run_dir(name, seed)
    minutes_path = os.path.join(run_dir, "minutes.txt")
    if os.path.exists(minutes_path):
        return
    was_interrupted = os.path.exists(run_dir)
    begin = time.monotonic()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "bin.finetune",
            *_TASK_FLAGS.get(name, ("--task=classification",)),
            f"--data_dir={data_dir}",
            f"--init_from={FLAGS.init_from}",
            f"--run_dir={run_dir}",
            f"--seed={seed}",
        ],
        check=True,
    )
    minutes = f"{(time.monotonic() - begin) / 60:.1f}"
    with open(minutes_path, "w", encoding="utf-8") as file:
        # The minutes before an interruption are not known.
        file.write("-\n" if was_interrupted else f"{minutes}\n")


def _table(names: Iterable[str]) -> str:
    """Returns the runs' models beside the simple models, in Markdown."""
    rows = []
    above = 0
    for name in names:
        runs = [
            _comparison(_run_dir(name, seed))
            for seed in range(1, FLAGS.num_seeds + 1)
        ]
        first = runs[0]
        scale = 100 if "accuracy" in first["metric"] else 1
        digits = 3 if abs(scale * first["baseline"]) <= 1 else 1
        values = [scale * run["model"] for run in runs]
        median = statistics.median(values)
        above += median > scale * first["baseline"]
        minutes = [float(run["minutes"]) for run in runs if run["minutes"]]
        cells = [
            f"{name}, {first['metric']}",
            f"{median:.{digits}f}",
            ", ".join(f"{value:.{digits}f}" for value in values),
            f"{scale * first['baseline']:.{digits}f}",
            " to ".join(
                f"{scale * first[end]:.{digits}f}" for end in ("low", "high")
            ),
            f"{statistics.median(minutes):.1f}" if minutes else "-",
        ]
        rows.append(cells)
    header = ["task, metric", "median", "each seed", "simple model"]
    header += ["difference of the first seed, 95 %", "minutes"]
    table = markdown_table(header, rows)
    return f"{table}\n\nAbove the simple model: {above} of {len(rows)}."


def _comparison(run_dir: str) -> dict:
    with open(os.path.join(run_dir, "baseline.json"), encoding="utf-8") as file:
        found = json.load(file)["comparisons"][0]
    with open(os.path.join(run_dir, "minutes.txt"), encoding="utf-8") as file:
        return found | {"minutes": file.read().strip("-\n")}


if __name__ == "__main__":
    command_line.run(define_flags, main)
