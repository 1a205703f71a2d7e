"""The report of a pretraining run."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.config import ModelConfig
from albert_tf.modeling.accounting import with_pretraining_heads
from albert_tf.records.loss_terms import LossTerm
from albert_tf.records.sentence_objectives import pretraining_loss_terms
from albert_tf.records.shards import ShardSet
from albert_tf.report.page import (
    MarkedText,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from albert_tf.report.run_sections import (
    curves,
    machine_section,
    settings_section,
)
from albert_tf.report.sample_predictions import (
    MaskedSample,
    shown_prediction,
    superscript,
)
from albert_tf.rundir.run_results import TIMING_FILE, log_lines, result

# Scalars of timing.jsonl, what they are called, and their form.
_RATES = {
    "sequences_per_second": ("sequences a second", "{:,.1f}"),
    "tokens_per_second": ("tokens a second", "{:,.0f}"),
    "flops_per_second": ("floating-point operations a second", "{:.3g}"),
    "share_of_ceiling": ("share of the rate of a matrix product", "{:.1%}"),
    "data_wait_share": ("share of the time that waits for data", "{:.2%}"),
}
ShardsRow = tuple[str, str, str, str, str]


@dataclasses.dataclass(frozen=True)
class PretrainedRun:
    """What the report of a run reads beside its directory.

    Attributes:
        verdict: what was learned, in sentences.
        samples: held-out text with masks; may be empty.
        shards: of `shards_row`.
        notes: the command and the like.
    """

    run_dir: str
    verdict: Sequence[str]
    model: ModelConfig
    samples: Sequence[MaskedSample] = ()
    shards: Sequence[ShardsRow] = ()
    notes: Sequence[str] = ()


def pretraining_page(run: PretrainedRun) -> Page:
    """Returns the report."""
    evaluation = result(run.run_dir)
    terms = [t for t in pretraining_loss_terms() if t.accuracy in evaluation]
    introduction: list[Part] = [*map(Paragraph, run.verdict)]
    introduction += [_results(evaluation, terms), Paragraph(_model(run))]
    groups = {
        "Loss": ["loss"],
        **{term.title: [term.accuracy] for term in terms},
        "Learning rate": ["learning_rate"],
    }
    sections = [
        Section("Training", list(curves(run.run_dir, groups))),
        *_samples_section(run.samples),
        *_data_section(run.shards),
        _throughput_section(run.run_dir),
        settings_section(run.run_dir),
        machine_section(run.notes),
    ]
    name = os.path.basename(os.path.normpath(run.run_dir))
    return Page(f"{name}: pretraining", introduction, sections)


def shards_row(shards: ShardSet, split: str) -> ShardsRow:
    """Returns a row on shards: directory, split, records and tokens."""
    found = shards.metadata.get("statistics", {}).get(split, {})
    tokens = found.get("instance_tokens")
    return (
        shards.directory,
        split,
        f"{len(shards):,}",
        "" if tokens is None else f"{tokens:,}",
        str(shards.metadata["max_seq_length"]),
    )


def _model(run: PretrainedRun) -> str:
    parameters = with_pretraining_heads(run.model).total
    return (
        f"{run.run_dir}: {run.model.num_hidden_layers} layers of width "
        f"{run.model.hidden_size}, {parameters / 1e6:.3g} million parameters."
    )


def _results(evaluation: dict[str, Any], terms: Sequence[LossTerm]) -> Table:
    rows = [
        [
            term.title,
            f"{evaluation[term.accuracy]:.1%}",
            f"{evaluation[term.baseline]:.1%}",
            term.baseline_label,
        ]
        for term in terms
    ]
    rows.append(["loss", f"{evaluation['loss']:.4f}", "", ""])
    columns = ["on held-out text", "model", "baseline", "baseline predicts"]
    return Table(
        columns, rows, f"The last evaluation, step {evaluation['step']}."
    )


def _samples_section(samples: Sequence[MaskedSample]) -> list[Section]:
    parts: list[Part] = []
    for sample in samples:
        words = list(_words(sample))
        parts.append(MarkedText(words))
        pairs = zip(sample.labels, sample.predictions, strict=True)
        parts.append(
            Table(
                ["mask", "label", "predicted", "", ""],
                [
                    [number, label, *map(shown_prediction, predictions)]
                    for number, (label, predictions) in enumerate(pairs, 1)
                ],
            )
        )
    return [Section("Held-out text with masks", parts)] if parts else []


def _words(sample: MaskedSample) -> Iterator[tuple[str, float]]:
    """Yields the words of a sample, those with masks with weight 1."""
    word, masked = "", False
    for token, piece, number in sample.tokens:
        if token.startswith(" ") and word:
            yield word, float(masked)
            word, masked = "", False
        word += token.strip() or (piece if number else "")
        if number:
            word, masked = word + superscript(number), True
    yield word + " …" * sample.is_cut, float(masked)


def _data_section(shards: Sequence[ShardsRow]) -> list[Section]:
    if not shards:
        return []
    columns = ["shards", "split", "records", "tokens", "longest record"]
    return [Section("Data", [Table(columns, shards)])]


def _throughput_section(run_dir: str) -> Section:
    """Returns the medians of what the run logged of its speed."""
    lines = list(log_lines(os.path.join(run_dir, TIMING_FILE)))
    rows = [
        [title, form.format(np.median(values))]
        for name, (title, form) in _RATES.items()
        if (values := [line[name] for line in lines if line.get(name)])
    ]
    return Section("Throughput", [Table(["median", ""], rows)])
