"""From a table's rows to the units that they need."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import PretrainConfig, override, require, to_dict
from experiments.estimate import pretraining_flops
from experiments.scales import Scale
from experiments.tables import Row, Table
from experiments.units import Unit

# The recipe search's shards.
_EVAL_FRACTION = 0.05
_DUPE_FACTOR = 4
# What changes with the step.
_SCHEDULES = {"depth_schedule", "masking_schedule", "ngram_schedule"}
# Measures that are evaluations on the held-out shards of an objective.
OBJECTIVES = ("nsp", "sop")


@dataclasses.dataclass(frozen=True)
class Text:
    """What models are pretrained on: flags of bin.train_vocab.

    `additional` is more of it, for rows with more text; empty: none is given.
    """

    input: str
    skip_header_lines: int = 0
    additional: str = ""


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task to fine-tune on: its name, and the directory of its files."""

    task: str
    data_dir: str
    flags: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The task's name; of a user's own that of its directory."""
        own = self.task.islower()
        return (
            self.data_dir.rstrip("/").rpartition("/")[2] if own else self.task
        )


@dataclasses.dataclass(frozen=True)
class Cell:
    """A row of a table with a seed: the units whose figures it shows.

    Its pretraining is not among `units` if the table trains nothing.
    """

    row: Row
    seed: int
    pretraining: Unit
    tasks: Mapping[str, Unit]
    measures: Mapping[str, Unit]
    trained: bool = True

    @property
    def units(self) -> list[Unit]:
        """All units of the cell."""
        measured = [*self.measures.values(), *self.tasks.values()]
        return [self.pretraining, *measured] if self.trained else measured


@dataclasses.dataclass(frozen=True)
class Planner:
    """Makes the units of tables at a scale from one text."""

    scale: Scale
    text: Text
    tasks: Sequence[TaskData] = ()

    def cells(self, table: Table, seeds: Sequence[int]) -> list[Cell]:
        """Returns the cells of a table; rows without a counterpart have none.

        Seed by seed, so that a table has all its rows early.
        """
        rows = {row.name: row for row in table.rows}
        return [
            self._cell(table, row, seed, config)
            for seed in seeds
            for row in table.rows
            if (config := self._config(row, rows, seed)) is not None
        ]

    def _cell(
        self, table: Table, row: Row, seed: int, config: PretrainConfig
    ) -> Cell:
        objective = row.settings.get("sentence_objective", "sop")
        shards = self._shards(objective, row.more_text)
        pretraining = Unit(
            row.kind, {"config": to_dict(config)}, {"shards": shards}
        )
        tasks = {
            data.title: self._finetuning(data, pretraining, seed)
            for data in (self.tasks if table.tasks else ())
        }
        measures = {
            name: self._measure(name, pretraining) for name in table.measures
        }
        return Cell(row, seed, pretraining, tasks, measures, table.trained)

    def _config(
        self, row: Row, rows: Mapping[str, Row], seed: int
    ) -> PretrainConfig | None:
        settings = {
            name: value
            for name, value in row.settings.items()
            # The shards decide.
            if name != "sentence_objective"
        }
        config = self.scale.config(settings, seed)
        if config is None:
            return None
        steps = config.training.num_train_steps
        config = override(config, {**row.own, **_stretched(row.own, steps)})
        if not row.equal_work:
            return config
        other = self._config(rows[row.equal_work], rows, seed)
        return other and _with_equal_work(config, other)

    def _finetuning(self, data: TaskData, model: Unit, seed: int) -> Unit:
        settings = {
            "task": data.task,
            "data_dir": data.data_dir,
            "seed": seed,
            "flags": list(data.flags),
        }
        return Unit("finetuning", settings, {"pretraining": model})

    def _measure(self, name: str, model: Unit) -> Unit:
        if name in OBJECTIVES:
            needs = {"pretraining": model, "shards": self._shards(name)}
            return Unit("evaluation", {}, needs)
        if name == "initialization":
            return Unit(name, model.settings, model.needs)
        needs = {"pretraining": model, "shards": self._shards("sop")}
        return Unit("measurement", {"measure": name}, needs)

    @functools.cached_property
    def _vocabulary(self) -> Unit:
        settings = {**self._text(), "vocab_size": self.scale.vocab_size}
        return Unit("vocabulary", settings)

    def _text(self, more: bool = False) -> dict[str, Any]:
        text = self.text
        require(
            not more or bool(text.additional),
            "This table has a row with additional text; give it with "
            "--additional_input.",
        )
        return {
            "input": f"{text.input},{text.additional}" if more else text.input,
            "skip_header_lines": text.skip_header_lines,
        }

    def _shards(self, objective: str, more_text: bool = False) -> Unit:
        settings = {
            **self._text(more_text),
            "sentence_objective": objective,
            "max_seq_length": self.scale.max_seq_length,
            "eval_fraction": _EVAL_FRACTION,
            "dupe_factor": _DUPE_FACTOR,
        }
        return Unit("shards", settings, {"vocabulary": self._vocabulary})


def _with_equal_work(
    config: PretrainConfig, other: PretrainConfig
) -> PretrainConfig:
    """Returns settings whose training takes as much arithmetic as another."""
    training = config.training
    ratio = pretraining_flops(other) / pretraining_flops(config)
    interval = max(round(training.eval_steps * ratio), 1)
    changes: dict[str, Any] = {
        "num_train_steps": max(round(training.num_train_steps * ratio), 1),
        "num_warmup_steps": round(config.optimizer.num_warmup_steps * ratio),
        "eval_steps": interval,
        "save_checkpoints_steps": interval,
    }
    return override(
        config, changes | _stretched(vars(config.pretraining), ratio)
    )


def _stretched(settings: Mapping[str, Any], ratio: float) -> dict[str, str]:
    """Returns the schedules among settings, with that multiple of the steps."""
    schedules = {}
    for name in _SCHEDULES & settings.keys():
        parts = (part.split(":") for part in settings[name].split(",") if part)
        schedules[name] = ",".join(
            f"{round(float(step) * ratio)}:{value}" for step, value in parts
        )
    return schedules
