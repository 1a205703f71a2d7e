"""Units: the jobs of an experiment, each run once and remembered.

A unit is named by a digest of its settings and those of what it needs, so that
equal ones of several tables are one. Texts and tasks are named by their paths
there; of texts the figures of vocabularies and shards have a fingerprint. KINDS
says how a kind of unit is run, by a program of this project, and what is read
of it afterwards.
"""

import dataclasses
import functools
import hashlib
import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.config import PretrainConfig, from_dict, to_dict
from albert_tf.io.json_files import read_json, write_json
from albert_tf.rundir.run_results import (
    METRICS_FILE,
    TIMING_FILE,
    evaluations,
    log_lines,
    read_comparison,
    result,
)
from experiments.estimate import pretraining_flops

# The directory in a unit's own that its program writes.
OUTPUT = "output"
_MEASUREMENT = "measurement.json"
# The figure that is a digest of the names and contents of a text's files.
TEXT = "text"
Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Unit:
    """A job of an experiment.

    Attributes:
        kind: a name in KINDS.
        settings: what decides the result beside `needs`, as JSON.
        needs: by role, units whose output this one reads.
    """

    kind: str
    settings: Mapping[str, Any]
    needs: Mapping[str, "Unit"] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def name(self) -> str:
        """The kind and a digest, which name its directory."""
        content = {
            "settings": _without_defaults(self.settings),
            "needs": {role: unit.name for role, unit in self.needs.items()},
        }
        text = json.dumps(content, sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def with_needs(self) -> Iterator["Unit"]:
        """Yields what it needs, directly or not, and the unit itself last."""
        for unit in self.needs.values():
            yield from unit.with_needs()
        yield self


def _without_defaults(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns settings without those of a model that have their default.

    So a unit keeps its name in a version that has a setting more.
    """
    if "config" not in settings:
        return settings
    defaults = to_dict(PretrainConfig())
    changed = {
        section: {n: v for n, v in values.items() if v != defaults[section][n]}
        for section, values in settings["config"].items()
    }
    return {**settings, "config": changed}


@dataclasses.dataclass(frozen=True)
class Job:
    """A unit and its place.

    Attributes:
        unit: of which the job is.
        directory: a function that returns the directory of each unit.
        cores: number of those that it may use.
        pretrain_flags: of bin.pretrain beside the unit's settings.
    """

    unit: Unit
    directory: Callable[[Unit], str]
    cores: int = 1
    pretrain_flags: Sequence[str] = ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of its unit."""
        return self.unit.settings

    def path(self, name: str) -> str:
        """Returns the path of a file in its directory."""
        return os.path.join(self.directory(self.unit), name)

    def output(self, *path: str) -> str:
        """Returns the path of its output, or of a part of it."""
        return os.path.join(self.path(OUTPUT), *path)

    def needed(self, role: str, *path: str) -> str:
        """Returns the output, or a part of it, of a unit that it needs."""
        return Job(self.unit.needs[role], self.directory).output(*path)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A row of KINDS.

    Attributes:
        command: the module and the arguments that run a unit.
        figures: what is read of its directory when it has ended well.
        packages: to be installed beside requirements.txt.
    """

    command: Callable[[Job], list[str]]
    figures: Callable[[Job], Figures]
    packages: tuple[str, ...] = ()


def _no_figures(job: Job) -> Figures:
    return {}


def _flags(job: Job, *names: str) -> list[str]:
    """Returns settings as the flags of their names."""
    return [f"--{name}={job.settings[name]}" for name in names]


def _vocabulary(job: Job) -> list[str]:
    return [
        "bin.train_vocab",
        *_flags(job, "input", "skip_header_lines", "vocab_size"),
        f"--output_dir={job.output()}",
    ]


def _vocabulary_figures(job: Job) -> Figures:
    summary = read_json(job.output("vocab_summary.json"))
    return {TEXT: summary["settings"]["source"]}


def _extension(job: Job) -> list[str]:
    return [
        "bin.extend_vocab",
        *_flags(job, "input", "skip_header_lines"),
        f"--model_dir={job.needed('pretraining')}",
        *_flags(job, "num_new_tokens"),
        f"--output_dir={job.output()}",
    ]


def _shards(job: Job) -> list[str]:
    return [
        "bin.build_pretraining_data",
        *_flags(job, "input", "skip_header_lines"),
        f"--tokenizer={job.needed('vocabulary')}",
        *_flags(job, "sentence_objective", "max_seq_length"),
        *_flags(job, "eval_fraction", "dupe_factor"),
        f"--workers={job.cores}",
        f"--output_dir={job.output()}",
    ]


def _shards_figures(job: Job) -> Figures:
    metadata = read_json(job.output("metadata.json"))
    return {TEXT: metadata["settings"]["inputs"]["train"]["sha256"]}


def _config_json(job: Job) -> str:
    """Writes the settings of a model as --config_json; returns the path."""
    path = job.path("settings.json")
    write_json(path, {"job": "pretrain", "config": job.settings["config"]})
    return path


def _pretraining(job: Job) -> list[str]:
    command = [
        "bin.pretrain",
        f"--config_json={_config_json(job)}",
        f"--train_data={job.needed('shards')}",
        f"--eval_data={job.needed('shards')}",
    ]
    if "init_from" in job.unit.needs:
        # A model that it continues: a run's, or one with a larger vocabulary.
        command.append(f"--init_from={job.needed('init_from')}")
    if "weights" in job.unit.needs:
        command.append(f"--masking_weights={job.needed('weights')}")
    if module := job.settings.get("module"):
        command.append(f"--import={module}")
    return [*command, *job.pretrain_flags, f"--run_dir={job.output()}"]


def pretraining_config(unit: Unit) -> PretrainConfig:
    """Returns the settings of a unit of pretraining."""
    return from_dict(PretrainConfig, unit.settings["config"], unit.name)


def _pretraining_figures(job: Job) -> Figures:
    """Returns the last evaluation, the curve, arithmetic and rate."""
    rates = [
        line["sequences_per_second"]
        for line in log_lines(job.output(TIMING_FILE))
        if "sequences_per_second" in line
    ]
    return {
        "evaluation": result(job.output()),
        "curve": [
            {n: e[n] for n in ("step", "masked_lm_loss", "masked_lm_accuracy")}
            for e in evaluations(job.output())
        ],
        "flops": pretraining_flops(pretraining_config(job.unit)),
        "sequences_per_second": statistics.median(rates),
    }


def _peer(job: Job) -> list[str]:
    return [
        "experiments.programs.pretraining_peer",
        _config_json(job),
        job.needed("shards"),
        job.output(),
    ]


def _finetuning(job: Job) -> list[str]:
    return [
        "bin.finetune",
        *_flags(job, "task", "data_dir", "seed", "recipe"),
        "--noreport",
        f"--init_from={job.needed('pretraining', 'model')}",
        f"--run_dir={job.output()}",
    ]


def _finetuning_figures(job: Job) -> Figures:
    baseline, _ = read_comparison(job.output())
    lines = log_lines(job.output(METRICS_FILE))
    config = read_json(job.output("config.json"))["config"]
    return {
        "evaluation": result(job.output()),
        "metric": config["training"]["best_metric"],
        # The recipe's, which may be another one in another version.
        "learning_rate": config["optimizer"]["learning_rate"],
        "baseline": baseline,
        "steps": max(line["step"] for line in lines),
    }


def _evaluation(job: Job) -> list[str]:
    return [
        "bin.evaluate",
        "--task=pretraining",
        f"--data_dir={job.needed('shards')}",
        f"--model_dir={job.needed('pretraining', 'model')}",
        f"--output_dir={job.output()}",
    ]


def _evaluation_figures(job: Job) -> Figures:
    return {"evaluation": read_json(job.output("metrics.json"))}


def _measurement(job: Job) -> list[str]:
    return [
        "experiments.programs.measurements",
        job.settings["measure"],
        job.needed("pretraining", "model"),
        job.needed("shards"),
        job.path(_MEASUREMENT),
    ]


def _initialization(job: Job) -> list[str]:
    return [
        "experiments.programs.initialization",
        _config_json(job),
        job.needed("shards"),
        job.path(_MEASUREMENT),
    ]


def _measurement_figures(job: Job) -> Figures:
    return read_json(job.path(_MEASUREMENT))


def _piece_errors(job: Job) -> list[str]:
    return [
        "experiments.programs.piece_errors",
        job.needed("pretraining", "model"),
        job.needed("shards"),
        job.output(),
    ]


def _next_sentences(job: Job) -> list[str]:
    return [
        "experiments.programs.next_sentences",
        job.needed("shards"),
        job.settings["split"],
        job.output(),
    ]


KINDS: dict[str, Kind] = {
    "vocabulary": Kind(_vocabulary, _vocabulary_figures),
    "extension": Kind(_extension, _no_figures),
    "shards": Kind(_shards, _shards_figures),
    "next_sentences": Kind(_next_sentences, _no_figures),
    "pretraining": Kind(_pretraining, _pretraining_figures),
    "piece_errors": Kind(_piece_errors, _no_figures),
    "peer": Kind(_peer, _pretraining_figures, ("torch", "transformers")),
    "finetuning": Kind(_finetuning, _finetuning_figures),
    "evaluation": Kind(_evaluation, _evaluation_figures),
    "measurement": Kind(_measurement, _measurement_figures),
    "initialization": Kind(_initialization, _measurement_figures),
}


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Returns all units that these need, each once, after what it needs."""
    found = {u.name: u for unit in units for u in unit.with_needs()}
    return list(found.values())
