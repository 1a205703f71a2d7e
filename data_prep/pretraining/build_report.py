"""The page on a finished build: what was read, what was left out, and why."""

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import albert_tf
from albert_tf.report.figures import draw_bars
from albert_tf.report.page import (
    Figure,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
)
from data_prep.corpus.near_duplicates import full_name
from data_prep.corpus.reading import read_surveyed
from data_prep.corpus.report import FAULTS
from data_prep.corpus.text_files import OpenFile
from data_prep.pretraining.build_directory import BuildResult
from data_prep.pretraining.build_plan import BuildPlan
from data_prep.pretraining.record_maker import DOCUMENT_TOKENS

REPORT_FILE = "report.html"
# Libraries that shape the shards beside this code.
_PACKAGES = ("numpy", "nltk", "sentencepiece")
# Counts of what is left out, in words; those of splits begin with skipped/.
_LEFT_OUT = {
    "duplicate_documents": "duplicate documents",
    "duplicate_paragraphs": "duplicate paragraphs of other documents",
    "duplicate_characters": "characters of both",
    "skipped/single_sentence_documents": "documents of one sentence, which "
    "has no order to judge",
    "skipped/empty_documents": "documents without tokens",
    "skipped/sentences_without_tokens": "sentences without tokens",
    "skipped/tokens": "tokens of documents that were left out",
}
# Characters shown of a text: some before the first difference, and after it.
_SHOWN_BEFORE, _SHOWN_AFTER = 40, 160


def build_page(
    plan: BuildPlan,
    result: BuildResult,
    metadata: Mapping[str, Any],
    open_file: OpenFile,
) -> Page:
    """Returns the page; it has no times, so that one build has one page."""
    statistics = metadata["statistics"]
    corpus = statistics["corpus"]
    num_records = sum(s["num_records"] for s in metadata["splits"].values())
    sizes = {
        "files": len(plan.surveys),
        "documents": corpus.get("documents", 0),
        "characters": corpus.get("characters", 0),
        "shards": len(result.shards),
        "records": num_records,
    }
    row = [f"{size:,}" for size in sizes.values()]
    introduction = Table(list(sizes), [row], "What was read and written.")
    sections = [
        Section("Text and records", [_shares(metadata)]),
        Section("What was left out", _left_out(plan, statistics)),
    ]
    if result.near_pairs:
        sections.append(_near_pairs(plan, result.near_pairs, open_file))
    sections.append(Section("Lengths", list(_lengths(result))))
    sections.append(Section("Settings", [_settings(plan), _versions()]))
    warnings = map(Paragraph, plan.warnings)
    return Page("Pretraining data", [introduction, *warnings], sections)


def _shares(metadata: Mapping[str, Any]) -> Table:
    rows = []
    for split, entry in metadata["splits"].items():
        found = metadata["statistics"][split]
        rows.append(
            [
                split,
                f"{found.get('documents', 0):,}",
                f"{found.get('tokens', 0):,}",
                f"{found['unknown_share']:.3%}",
                f"{found['lost_share']:.2%}",
                f"{entry['num_records']:,}",
                f"{found['padding_share']:.1%}",
            ]
        )
    columns = ["split", "documents", "tokens", "unknown", "in no record"]
    return Table(
        [*columns, "records", "padding"],
        rows,
        "Shares of the tokens, and of the positions in records.",
    )


def _left_out(plan: BuildPlan, statistics: Mapping[str, Any]) -> list[Part]:
    """Returns a table of what was dropped or replaced, by reason."""
    report = plan.report
    rows = [
        [
            f"lines: {FAULTS[reason].name}, {FAULTS[reason].treatment}",
            f"{report.counts[reason]:,}",
            location,
        ]
        for reason, location in report.first_locations.items()
    ]
    for part, counts in statistics.items():
        where = "" if part == "corpus" else f" ({part})"
        rows += [
            [f"{words}{where}", f"{counts[name]:,}", ""]
            for name, words in _LEFT_OUT.items()
            if counts.get(name)
        ]
    if not rows:
        return [Paragraph("Nothing.")]
    return [Table(["what", "number", "first"], rows)]


def _near_pairs(
    plan: BuildPlan, pairs: Sequence[Mapping[str, Any]], open_file: OpenFile
) -> Section:
    """Returns the pairs, with their texts where they begin to differ."""
    wanted = {pair[name] for pair in pairs for name in ("document", "kept")}
    texts = dict(_texts(plan, wanted, open_file))
    rows = []
    for pair in pairs:
        both = texts[pair["document"]], texts[pair["kept"]]
        common = os.path.commonprefix(both)  # noqa: RUF071, of texts
        begin = max(0, len(common) - _SHOWN_BEFORE)
        excerpts = [
            text[begin:][: _SHOWN_BEFORE + _SHOWN_AFTER] for text in both
        ]
        similarity = f"{pair['similarity']:.2f}"
        rows.append(
            [
                similarity,
                pair["document"],
                excerpts[0],
                pair["kept"],
                excerpts[1],
            ]
        )
    columns = ["similarity", "removed", "its text", "kept", "that text"]
    note = (
        "The least similar pairs that are taken for duplicates, from the first "
        "difference on. Were they different documents, a higher "
        "--near_duplicate_threshold would keep both."
    )
    return Section("Nearly equal documents", [Table(columns, rows, note)])


def _texts(
    plan: BuildPlan, wanted: Iterable[str], open_file: OpenFile
) -> Iterator[tuple[str, str]]:
    """Yields documents, read once more from the files that hold them."""
    left = set(wanted)
    for survey in plan.surveys:
        file = f"{survey.file.origin}: {survey.file.name}"
        of_file = {n for n in left if file in (n, n.rpartition("#")[0])}
        if not of_file:
            continue
        for document in read_surveyed(survey, open_file=open_file):
            name = full_name(plan.unit_document(survey, document))
            if name in of_file:
                of_file.remove(name)
                yield name, "\n".join(document.paragraphs)
            if not of_file:
                break


def _lengths(result: BuildResult) -> Iterator[Part]:
    for split in ("train", "eval"):
        prefix = f"{split}/{DOCUMENT_TOKENS}"
        found = {
            int(name.removeprefix(prefix)): count
            for name, count in result.counts.items()
            if name.startswith(prefix)
        }
        if found:
            bars = {
                f"{2**n:,}": found.get(n, 0)
                for n in range(min(found), max(found) + 1)
            }
            png = draw_bars(bars, "tokens, fewer than", "documents")
            name = f"lengths-{split}.png"
            yield Figure(png, f"Tokens of the documents ({split}).", name)


def _settings(plan: BuildPlan) -> Table:
    rows = [
        [name, value]
        for part in ("data", "masking")
        for name, value in plan.settings.get(part, {}).items()
    ]
    return Table(["setting", "value"], rows)


def _versions() -> Table:
    rows = [["albert-tf", albert_tf.__version__]]
    rows.append(["Python", platform.python_version()])
    rows += [[name, importlib.metadata.version(name)] for name in _PACKAGES]
    return Table(["package", "version"], rows)
