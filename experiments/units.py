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
class Kind:
    """A row of KINDS.

    Attributes:
        command: module and arguments for a unit, a function of the directory
            of each unit, and the number of processes that it may use.
        figures: what is read of its directory when it has ended well.
        packages: to be installed beside requirements.txt.
    """

    command: Callable[[Unit, Callable[[Unit], str], int], list[str]]
    figures: Callable[[Unit, str], Figures]
    packages: tuple[str, ...] = ()


Directory = Callable[[Unit], str]


def _no_figures(unit: Unit, directory: str) -> Figures:
    return {}


def _output(directory: str) -> str:
    return os.path.join(directory, OUTPUT)


def _text_flags(unit: Unit) -> list[str]:
    return [
        f"--input={unit.settings['input']}",
        f"--skip_header_lines={unit.settings['skip_header_lines']}",
    ]


def _vocabulary(unit: Unit, directory: Directory, processes: int) -> list[str]:
    return [
        "bin.train_vocab",
        *_text_flags(unit),
        f"--vocab_size={unit.settings['vocab_size']}",
        f"--output_dir={_output(directory(unit))}",
    ]


def _vocabulary_figures(unit: Unit, directory: str) -> Figures:
    summary = read_json(os.path.join(_output(directory), "vocab_summary.json"))
    return {TEXT: summary["settings"]["source"]}


def _extension(unit: Unit, directory: Directory, processes: int) -> list[str]:
    return [
        "bin.extend_vocab",
        *_text_flags(unit),
        f"--model_dir={_output(directory(unit.needs['pretraining']))}",
        f"--num_new_tokens={unit.settings['num_new_tokens']}",
        f"--output_dir={_output(directory(unit))}",
    ]


def _shards(unit: Unit, directory: Directory, processes: int) -> list[str]:
    vocabulary = _output(directory(unit.needs["vocabulary"]))
    return [
        "bin.build_pretraining_data",
        *_text_flags(unit),
        f"--tokenizer={vocabulary}",
        f"--sentence_objective={unit.settings['sentence_objective']}",
        f"--max_seq_length={unit.settings['max_seq_length']}",
        f"--eval_fraction={unit.settings['eval_fraction']}",
        f"--dupe_factor={unit.settings['dupe_factor']}",
        f"--workers={processes}",
        f"--output_dir={_output(directory(unit))}",
    ]


def _shards_figures(unit: Unit, directory: str) -> Figures:
    metadata = read_json(os.path.join(_output(directory), "metadata.json"))
    return {TEXT: metadata["settings"]["inputs"]["train"]["sha256"]}


def _settings(unit: Unit, directory: Directory) -> str:
    """Writes the settings of a model as --config_json; returns the path."""
    path = os.path.join(directory(unit), "settings.json")
    write_json(path, {"job": "pretrain", "config": unit.settings["config"]})
    return path


def _pretraining(unit: Unit, directory: Directory, processes: int) -> list[str]:
    shards = _output(directory(unit.needs["shards"]))
    # A model that it continues: a run's, or one with an extended vocabulary.
    start = [unit.needs["init_from"]] if "init_from" in unit.needs else []
    weights = [unit.needs["weights"]] if "weights" in unit.needs else []
    module = unit.settings.get("module")
    return [
        "bin.pretrain",
        f"--config_json={_settings(unit, directory)}",
        f"--train_data={shards}",
        f"--eval_data={shards}",
        *(f"--init_from={_output(directory(model))}" for model in start),
        *(f"--masking_weights={_output(directory(file))}" for file in weights),
        *([f"--import={module}"] if module else []),
        f"--run_dir={_output(directory(unit))}",
    ]


def _of_settings(
    program: str, output: str, unit: Unit, directory: Directory, processes: int
) -> list[str]:
    """Returns the command of one of `programs`, for a model's settings."""
    return [
        f"experiments.programs.{program}",
        _settings(unit, directory),
        _output(directory(unit.needs["shards"])),
        os.path.join(directory(unit), output),
    ]


def pretraining_config(unit: Unit) -> PretrainConfig:
    """Returns the settings of a unit of pretraining."""
    return from_dict(PretrainConfig, unit.settings["config"], unit.name)


def _pretraining_figures(unit: Unit, directory: str) -> Figures:
    """Returns the last evaluation, the curve, arithmetic and rate."""
    run_dir = _output(directory)
    config = pretraining_config(unit)
    rates = [
        line["sequences_per_second"]
        for line in log_lines(os.path.join(run_dir, TIMING_FILE))
        if "sequences_per_second" in line
    ]
    return {
        "evaluation": result(run_dir),
        "curve": [
            {n: e[n] for n in ("step", "masked_lm_loss", "masked_lm_accuracy")}
            for e in evaluations(run_dir)
        ],
        "flops": pretraining_flops(config),
        "sequences_per_second": statistics.median(rates),
    }


def _finetuning(unit: Unit, directory: Directory, processes: int) -> list[str]:
    model = _output(directory(unit.needs["pretraining"]))
    return [
        "bin.finetune",
        f"--task={unit.settings['task']}",
        f"--data_dir={unit.settings['data_dir']}",
        f"--seed={unit.settings['seed']}",
        f"--recipe={unit.settings['recipe']}",
        "--noreport",
        f"--init_from={os.path.join(model, 'model')}",
        f"--run_dir={_output(directory(unit))}",
    ]


def _finetuning_figures(unit: Unit, directory: str) -> Figures:
    run_dir = _output(directory)
    baseline, _ = read_comparison(run_dir)
    lines = log_lines(os.path.join(run_dir, METRICS_FILE))
    steps = max(line["step"] for line in lines)
    config = read_json(os.path.join(run_dir, "config.json"))["config"]
    return {
        "evaluation": result(run_dir),
        "metric": config["training"]["best_metric"],
        # The recipe's, which may be another one in another version.
        "learning_rate": config["optimizer"]["learning_rate"],
        "baseline": baseline,
        "steps": steps,
    }


def _evaluation(unit: Unit, directory: Directory, processes: int) -> list[str]:
    model = _output(directory(unit.needs["pretraining"]))
    return [
        "bin.evaluate",
        "--task=pretraining",
        f"--data_dir={_output(directory(unit.needs['shards']))}",
        f"--model_dir={os.path.join(model, 'model')}",
        f"--output_dir={_output(directory(unit))}",
    ]


def _evaluation_figures(unit: Unit, directory: str) -> Figures:
    metrics = read_json(os.path.join(_output(directory), "metrics.json"))
    return {"evaluation": metrics}


def _measurement(unit: Unit, directory: Directory, processes: int) -> list[str]:
    model = _output(directory(unit.needs["pretraining"]))
    return [
        "experiments.programs.measurements",
        unit.settings["measure"],
        os.path.join(model, "model"),
        _output(directory(unit.needs["shards"])),
        os.path.join(directory(unit), _MEASUREMENT),
    ]


def _piece_errors(
    unit: Unit, directory: Directory, processes: int
) -> list[str]:
    model = _output(directory(unit.needs["pretraining"]))
    return [
        "experiments.programs.piece_errors",
        os.path.join(model, "model"),
        _output(directory(unit.needs["shards"])),
        _output(directory(unit)),
    ]


def _next_sentences(
    unit: Unit, directory: Directory, processes: int
) -> list[str]:
    return [
        "experiments.programs.next_sentences",
        _output(directory(unit.needs["shards"])),
        unit.settings["split"],
        _output(directory(unit)),
    ]


def _measurement_figures(unit: Unit, directory: str) -> Figures:
    return read_json(os.path.join(directory, _MEASUREMENT))


KINDS: dict[str, Kind] = {
    "vocabulary": Kind(_vocabulary, _vocabulary_figures),
    "extension": Kind(_extension, _no_figures),
    "shards": Kind(_shards, _shards_figures),
    "next_sentences": Kind(_next_sentences, _no_figures),
    "pretraining": Kind(_pretraining, _pretraining_figures),
    "piece_errors": Kind(_piece_errors, _no_figures),
    "peer": Kind(
        functools.partial(_of_settings, "pretraining_peer", OUTPUT),
        _pretraining_figures,
        ("torch", "transformers"),
    ),
    "finetuning": Kind(_finetuning, _finetuning_figures),
    "evaluation": Kind(_evaluation, _evaluation_figures),
    "measurement": Kind(_measurement, _measurement_figures),
    "initialization": Kind(
        functools.partial(_of_settings, "initialization", _MEASUREMENT),
        _measurement_figures,
    ),
}


def in_order(units: Sequence[Unit]) -> list[Unit]:
    """Returns all units that these need, each once, after what it needs."""
    found = {u.name: u for unit in units for u in unit.with_needs()}
    return list(found.values())
