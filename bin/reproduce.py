"""Repeats tables of the paper, and ours, at a scale that fits the machine.

python -m bin.reproduce --table=sharing --scale=tiny --input=books \\
    --task_data=SST-2:glue/SST-2,MRPC:glue/MRPC --num_seeds=3 --run_dir=paper

Every model is pretrained by bin.pretrain and fine-tuned by bin.finetune in the
run directory, on a share of the cores; flags such as --strategy and --precision
are those of bin.pretrain. Models that tables share are trained once.
Interrupted, the same command continues; several processes, also on several
machines, may work in one directory. Written at the end, and with --report at
any time: report.html, report.md and results.jsonl (a line for each job). A
directory has the jobs of one text; another one needs a directory of its own.
"""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags
from tqdm import tqdm

from albert_tf.config import (
    PretrainConfig,
    RuntimeConfig,
    UserError,
    lookup,
    require,
    silent,
)
from albert_tf.io import files
from albert_tf.report.page import to_html, to_markdown
from albert_tf.tasks.catalog import TASKS
from bin import command_line
from bin.command_line import format_table
from data_prep.corpus.listing import list_files
from experiments.domain_words import check_domain_words
from experiments.estimate import HARDWARE, hours_of, pretraining_flops
from experiments.ledger import DIVERGED, SKIPPED, Ledger
from experiments.plan import Cell, Planner, TaskData, Text, normalized
from experiments.report import report
from experiments.results import TableResults
from experiments.runner import UnitError, run_units
from experiments.scales import SCALES
from experiments.tables import TABLES
from experiments.units import (
    KINDS,
    OUTPUT,
    Unit,
    in_order,
    pretraining_config,
)

FLAGS = flags.FLAGS
# Settings of bin.pretrain, of where and how a row is trained.
_LAUNCH_SETTINGS = (
    *("strategy", "num_replicas", "tpu", "precision", "xla"),
    *("micro_batch_size", "steps_per_loop", "remat", "attention"),
)


def define_flags() -> None:
    flags.DEFINE_list(
        "table", None, f"Tables, comma-separated: {', '.join(sorted(TABLES))}."
    )
    flags.DEFINE_enum("scale", "tiny", list(SCALES), "Size of the models.")
    flags.DEFINE_string("input", "", "Text, as bin.train_vocab takes it.")
    flags.DEFINE_string(
        "additional_input", "", "More text, for the table of additional data."
    )
    flags.DEFINE_string(
        "domain_input",
        "",
        "Text of a domain, without header lines, for the table of adaptation.",
    )
    flags.DEFINE_integer(
        "skip_header_lines", 0, "Lines to skip at the start of each file."
    )
    flags.DEFINE_list(
        "task_data",
        [],
        "Tasks to fine-tune on, comma-separated, each as TASK:DIRECTORY; "
        "without any, the scores are those of pretraining.",
    )
    flags.DEFINE_integer("num_seeds", 1, "Models of each row.", lower_bound=1)
    flags.DEFINE_list("only", [], "Rows of the tables; default: all.")
    flags.DEFINE_integer(
        "processes",
        os.cpu_count(),
        "Jobs at a time, each on an equal share of the cores; 1 where models "
        "are trained on GPUs or TPUs.",
        lower_bound=1,
    )
    for config in (RuntimeConfig(), PretrainConfig()):
        command_line.define_settings(config, only=_LAUNCH_SETTINGS)
    flags.DEFINE_bool("report", False, "Only write the report.")
    flags.DEFINE_bool(
        "estimate", False, "Only print each row's arithmetic and its time."
    )
    flags.DEFINE_string("run_dir", None, "Directory of all jobs.")
    command_line.required("table", "run_dir")


def main() -> None:
    ledger = Ledger(FLAGS.run_dir)
    planner = Planner(
        SCALES[FLAGS.scale],
        Text(
            normalized(FLAGS.input),
            FLAGS.skip_header_lines,
            normalized(FLAGS.additional_input),
            normalized(FLAGS.domain_input),
        ),
        _tasks(),
    )
    seeds = range(1, FLAGS.num_seeds + 1)
    results = {}
    for name in FLAGS.table:
        table = lookup(TABLES, name, "table")
        cells = planner.cells(table, seeds)
        results[name] = TableResults(table, cells, ledger)
    _check_only(results)
    require(
        bool(FLAGS.input or FLAGS.estimate) or not _models(results),
        "--input is needed: the text that the models are trained on.",
    )
    if FLAGS.estimate:
        _print_estimates(results)
        return
    if FLAGS.report:
        _check_records(results, ledger, _models(results))
        _log_missing(results, ledger)
    else:
        _run(results, ledger, planner)
    _write(results, ledger)


def _tasks() -> list[TaskData]:
    tasks = [_task(text) for text in FLAGS.task_data]
    for title, number in Counter(task.title for task in tasks).items():
        require(
            number == 1,
            f"--task_data: {number} tasks are called {title}; the report has "
            "one of a name, which of your own tasks is their directory's.",
        )
    return tasks


def _task(text: str) -> TaskData:
    task, colon, directory = text.partition(":")
    require(
        bool(task and colon and directory),
        f"--task_data={text}: a task is TASK:DIRECTORY, such as "
        "SST-2:glue/SST-2.",
    )
    lookup(TASKS, task, "task")
    return TaskData(task, normalized(directory))


def _pretrain_flags() -> list[str]:
    """Returns the flags of bin.pretrain that were given to this program."""
    given: dict[str, Any] = {}
    for config in (RuntimeConfig(), PretrainConfig()):
        # Wrong values are an error before any job.
        command_line.with_flags(config)
        given |= command_line.given_settings(config)
    return [f"--{name}={value}" for name, value in given.items()]


def _models(results: dict[str, TableResults]) -> list[Unit]:
    """Returns the pretrainings and evaluations of the tables' rows."""
    cells = [cell for found in results.values() for cell in found.cells]
    return [unit for cell in cells for unit in cell.units]


def _check_records(
    results: dict[str, TableResults], ledger: Ledger, needed: Sequence[Unit]
) -> None:
    """Refuses settings that have none of `needed` where others have records.

    Settings that were mistyped would begin anew, and empty the report.
    """
    own = {unit.name for unit in in_order(_models(results))}
    entries = list(ledger.entries())
    recorded = {entry["unit"] for entry in entries}
    if not own or recorded <= own or recorded & {u.name for u in needed}:
        return
    texts = {
        f"--input={settings['input']} --skip_header_lines={header}": None
        for settings in (entry["settings"] for entry in entries)
        if (header := settings.get("skip_header_lines")) is not None
    }
    given = (
        f"--input={normalized(FLAGS.input)} "
        f"--skip_header_lines={FLAGS.skip_header_lines}"
    )
    theirs = (
        "of other tables, seeds or another --scale"
        if given in texts
        else f"of {', of '.join(texts)}"
    )
    raise UserError(
        f"{FLAGS.run_dir}/results has no finished job of --table="
        f"{','.join(FLAGS.table)} with --scale={FLAGS.scale} {given}; the "
        f"records there are {theirs}. Give the settings of the records, or "
        "another --run_dir; what is there is left as it is."
    )


def _log_missing(results: dict[str, TableResults], ledger: Ledger) -> None:
    """Names texts and tasks without a record, if others have some."""
    units = in_order(_models(results))
    asked = {path for unit in units for path in _paths(unit.settings)}
    found = [p for e in ledger.entries() for p in _paths(e["settings"])]
    missing = sorted(asked.difference(found))
    others = sorted(set(found) - asked)
    if missing and others:
        _log(
            f"Nothing is recorded of {', '.join(missing)}, but of "
            f"{', '.join(others)}: what belongs to the former is empty."
        )


def _paths(settings: Mapping[str, Any]) -> list[str]:
    """Returns the text or the task that the settings of a unit name."""
    return [settings[n] for n in ("input", "data_dir") if n in settings]


def _check_paths() -> None:
    """Checks that tasks and texts are there, before any job."""
    for text in FLAGS.task_data:
        data = _task(text)
        directory = data.data_dir
        require(
            files.exists(directory),
            f"--task_data={text}: there is no {directory}.",
        )
        # Faults of its files would be found after hours of pretraining.
        task = TASKS[data.task]
        for split in ("train", *task.evaluated.values()):
            task.read(directory, split, silent)
    for name in ("input", "additional_input", "domain_input"):
        if paths := normalized(FLAGS[name].value):
            list_files(paths.split(","))


def _check_only(results: dict[str, TableResults]) -> None:
    rows = {row.name for found in results.values() for row in found.rows}
    unknown = sorted(set(FLAGS.only) - rows)
    require(
        not unknown,
        f"--only: no row is called {', '.join(unknown)}; the rows are "
        f"{', '.join(sorted(rows))}.",
    )


def _chosen_cells(found: TableResults) -> list[Cell]:
    """Returns the cells of a table, with --only those of these rows."""
    return [
        cell
        for cell in found.cells
        if not FLAGS.only or cell.row.name in FLAGS.only
    ]


def _run(
    results: dict[str, TableResults], ledger: Ledger, planner: Planner
) -> None:
    units = [
        unit
        for found in results.values()
        for cell in _chosen_cells(found)
        for unit in cell.units
    ]
    command_line.require_packages(
        f"--table={','.join(FLAGS.table)}",
        dict.fromkeys(p for unit in units for p in KINDS[unit.kind].packages),
    )
    pretrain_flags = _pretrain_flags()
    _check_records(results, ledger, [planner.vocabulary])
    if any(ledger.entry(unit) is None for unit in in_order(units)):
        _check_paths()
    try:
        _check_domain(units, ledger)
        run_units(units, ledger, FLAGS.processes, _log, pretrain_flags)
    except UnitError as error:
        sys.exit(error.status)


def _check_domain(units: Sequence[Unit], ledger: Ledger) -> None:
    """Trains the vocabularies, and checks what is to extend one of them.

    The extension itself follows hours of pretraining.
    """
    ordered = in_order(units)
    for unit in ordered:
        if unit.kind == "extension" and ledger.entry(unit) is None:
            vocabularies = [u for u in ordered if u.kind == "vocabulary"]
            run_units(vocabularies, ledger, FLAGS.processes, _log)
            model = unit.needs["pretraining"]
            own = model.needs["shards"].needs["vocabulary"]
            if ledger.has_output(own):
                directory = os.path.join(ledger.unit_directory(own), OUTPUT)
                check_domain_words(unit, directory)
            # Other seeds have the same text and vocabulary.
            return


def _log(line: str) -> None:
    """Prints a line at once, above the bar on a terminal."""
    tqdm.write(line)
    sys.stdout.flush()


def _write(results: dict[str, TableResults], ledger: Ledger) -> None:
    files.makedirs(FLAGS.run_dir)
    page = report(results, SCALES[FLAGS.scale].caption, ledger)

    def save(name: str, png: bytes) -> str:
        files.write(os.path.join(FLAGS.run_dir, name), png)
        return name

    for name, content in (
        ("report.html", to_html(page)),
        ("report.md", to_markdown(page, save)),
    ):
        files.write(os.path.join(FLAGS.run_dir, name), content.encode())
    lines = ledger.write_lines()
    report_path = os.path.join(FLAGS.run_dir, "report")
    print(
        f"Written: {report_path}.html, {report_path}.md with its pictures, "
        f"{lines}{_diverged(results, ledger)}"
    )


def _diverged(results: dict[str, TableResults], ledger: Ledger) -> str:
    """Returns the end of a line on jobs that diverged; empty without any."""
    found = map(ledger.entry, in_order(_models(results)))
    counts = Counter(entry["status"] for entry in found if entry)
    if not counts[DIVERGED]:
        return ""
    return (
        f"; diverged: {counts[DIVERGED]}, and not run since they need these: "
        f"{counts[SKIPPED]}"
    )


def _shown_hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 0.1 else f"{hours:.1g}"


def _print_estimates(results: dict[str, TableResults]) -> None:
    """Prints the arithmetic of every row, and its time on known machines."""
    for found in results.values():
        rows = []
        for cell in _chosen_cells(found) if found.table.trained else ():
            flops = pretraining_flops(pretraining_config(cell.pretraining))
            hours = map(_shown_hours, hours_of(flops).values())
            rows.append([cell.row.name, cell.seed, f"{flops:.2e}", *hours])
        machines = [f"hours, {name}" for name in HARDWARE]
        print(found.table.title)
        print(format_table(rows, ["row", "seed", "operations", *machines]))


if __name__ == "__main__":
    command_line.run(define_flags, main)
