"""The units that the rows of a table need."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.config import PretrainConfig, override, require, to_dict
from albert_tf.io import files
from experiments.estimate import pretraining_flops
from experiments.scales import Scale
from experiments.tables import RANDOM_SEGMENTS, TEXTS, Row, Table
from experiments.units import Unit

# The recipe search's shards.
_EVAL_FRACTION = 0.05
_DUPE_FACTOR = 4
# The recipe of fine-tuning.
_RECIPE = "encoder"
# Settings that change with the step.
_SCHEDULES = {"depth_schedule", "masking_schedule", "ngram_schedule"}
# The objectives of held-out pairs, by the measure that evaluates them.
OBJECTIVES = {"nsp": "nsp", "sop": "sop"} | dict.fromkeys(
    RANDOM_SEGMENTS, "nsp"
)
# Adaptation's learning rate by that of pretraining, and its new words by the
# pieces of the vocabulary (docs/pretraining.md).
_ADAPTATION_RATE = 2 / 3
_NEW_WORDS = 0.5
# The new words follow from the text: the first seed's serve all.
_FIRST_SEED = 1


def normalized(paths: str) -> str:
    """Returns comma-separated paths in the one form that units are named by.

    `./books/` is `books`. Addresses with a scheme stay as they are.
    """
    return ",".join(
        path if not path or files.is_remote(path) else os.path.normpath(path)
        for path in map(str.strip, paths.split(","))
    )


@dataclasses.dataclass(frozen=True)
class Text:
    """What models are pretrained on: flags of bin.train_vocab.

    `additional` is more of it, for rows with more text, and `domain` that of
    another domain, without header lines; empty: none is given.
    """

    input: str
    skip_header_lines: int = 0
    additional: str = ""
    domain: str = ""


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A task to fine-tune on: its name, and the directory of its files."""

    task: str
    data_dir: str

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
            self._cell(table, row, seed, pretraining)
            for seed in seeds
            for row in table.rows
            if (pretraining := self._pretraining(row, rows, seed)) is not None
        ]

    def _cell(
        self, table: Table, row: Row, seed: int, pretraining: Unit
    ) -> Cell:
        tasks = {
            data.title: self._finetuning(data, pretraining, seed)
            for data in (self.tasks if table.tasks else ())
        }
        measures = {
            name: self._measure(name, pretraining) for name in table.measures
        }
        return Cell(row, seed, pretraining, tasks, measures, table.trained)

    def _pretraining(
        self, row: Row, rows: Mapping[str, Row], seed: int
    ) -> Unit | None:
        """Returns the pretraining of a row; None without a counterpart."""
        config = self._config(row, rows, seed)
        if config is None:
            return None
        objective = row.settings.get("sentence_objective", "sop")
        text = self._domain() if row.domain else self._text(row.more_text)
        vocabulary = self._vocabulary_of(row, rows)
        length = row.seq_length or self.scale.max_seq_length
        needs = {"shards": self._shards(objective, text, vocabulary, length)}
        if start := self._start(row, rows, seed):
            needs["init_from"] = start
            if row.hard_examples:
                of_start = {"pretraining": start, "shards": needs["shards"]}
                needs["weights"] = Unit("piece_errors", {}, of_start)
        settings: dict[str, Any] = {"config": to_dict(config)}
        if row.module:
            settings["module"] = row.module
        return Unit(row.kind, settings, needs)

    def _start(
        self, row: Row, rows: Mapping[str, Row], seed: int
    ) -> Unit | None:
        """Returns the model that a row continues; None: random weights."""
        if not row.start:
            return None
        model = self._pretraining(rows[row.start], rows, seed)
        if model is None or not row.new_words:
            return model
        settings = {**self._domain(), "num_new_tokens": self._num_new_words}
        return Unit("extension", settings, {"pretraining": model})

    def _vocabulary_of(self, row: Row, rows: Mapping[str, Row]) -> Unit:
        """Returns the vocabulary of a row's shards, and of its model."""
        if row.new_words and (model := self._start(row, rows, _FIRST_SEED)):
            return model
        own = row.domain and not row.start
        return self._vocabulary(self._domain() if own else self._text())

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
        if row.seq_length:
            config = _with_length(config, row.seq_length)
        work = row.work * pretraining_flops(config)
        if row.start:
            config = _continued(config)
        if row.new_words:
            size = config.model.vocab_size + self._num_new_words
            config = override(config, {"vocab_size": size})
        if row.equal_work:
            other = self._config(rows[row.equal_work], rows, seed)
            return other and _with_work(config, pretraining_flops(other))
        return config if row.work == 1 else _with_work(config, work)

    def _finetuning(self, data: TaskData, model: Unit, seed: int) -> Unit:
        settings = {
            "task": data.task,
            "data_dir": data.data_dir,
            "seed": seed,
            "recipe": _RECIPE,
        }
        return Unit("finetuning", settings, {"pretraining": model})

    def _measure(self, name: str, model: Unit) -> Unit:
        text = self._domain() if name == "domain" else self._text()
        objective = OBJECTIVES.get(name, "sop")
        of_model = model.needs["shards"]
        vocabulary = of_model.needs["vocabulary"]
        length = of_model.settings["max_seq_length"]
        shards = self._shards(objective, text, vocabulary, length)
        if name in RANDOM_SEGMENTS:
            _, split = RANDOM_SEGMENTS[name]
            settings = {"split": split}
            shards = Unit("next_sentences", settings, {"shards": shards})
        needs = {"pretraining": model, "shards": shards}
        if name in OBJECTIVES:
            return Unit("evaluation", {}, needs)
        if name == "initialization":
            return Unit(name, model.settings, model.needs)
        measure = "words" if name in TEXTS else name
        return Unit("measurement", {"measure": measure}, needs)

    @property
    def _num_new_words(self) -> int:
        return round(_NEW_WORDS * self.scale.vocab_size)

    @property
    def vocabulary(self) -> Unit:
        """The vocabulary of the general text, which all its models need."""
        return self._vocabulary(self._text())

    def _vocabulary(self, text: Mapping[str, Any]) -> Unit:
        settings = {**text, "vocab_size": self.scale.vocab_size}
        return Unit("vocabulary", settings)

    def _text(self, more: bool = False) -> dict[str, Any]:
        text = self.text
        require(
            not more or bool(text.additional) or not text.input,
            "This table has a row with additional text; give it with "
            "--additional_input.",
        )
        return {
            "input": f"{text.input},{text.additional}" if more else text.input,
            "skip_header_lines": text.skip_header_lines,
        }

    def _domain(self) -> dict[str, Any]:
        require(
            bool(self.text.domain) or not self.text.input,
            "This table adapts models to the text of a domain; give it with "
            "--domain_input.",
        )
        return {"input": self.text.domain, "skip_header_lines": 0}

    def _shards(
        self,
        objective: str,
        text: Mapping[str, Any],
        vocabulary: Unit,
        length: int,
    ) -> Unit:
        settings = {
            **text,
            "sentence_objective": objective,
            "max_seq_length": length,
            "eval_fraction": _EVAL_FRACTION,
            "dupe_factor": _DUPE_FACTOR,
        }
        return Unit("shards", settings, {"vocabulary": vocabulary})


def _with_length(config: PretrainConfig, length: int) -> PretrainConfig:
    """Returns settings for sequences of that length, as many tokens a step."""
    before, training = config.model.max_position_embeddings, config.training
    changes = {
        name: max(getattr(training, name) * before // length, 1)
        for name in ("train_batch_size", "eval_batch_size")
    }
    return override(config, {"max_position_embeddings": length, **changes})


def _continued(config: PretrainConfig) -> PretrainConfig:
    """Returns settings to train a model on with: a lower rate, its last masks.

    Schedules that begin with easier steps are for random weights.
    """
    schedules = {
        name: _last_stage(getattr(config.pretraining, name))
        for name in ("masking_schedule", "ngram_schedule")
    }
    rate = _ADAPTATION_RATE * config.optimizer.learning_rate
    return override(config, {"learning_rate": rate, **schedules})


def _last_stage(schedule: str) -> str:
    return schedule and f"0:{schedule.rpartition(':')[2]}"


def _with_work(config: PretrainConfig, flops: float) -> PretrainConfig:
    """Returns settings whose training takes that much arithmetic."""
    ratio = flops / pretraining_flops(config)
    training = config.training
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
