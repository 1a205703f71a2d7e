import html
import json
import re

import pytest
from build_helpers import digests

from data_prep.pretraining import build_report, pretraining_data


@pytest.fixture(scope="module")
def texts(sentences, tmp_path_factory):
    """JSON lines: four documents, one nearly equal, two faults."""
    rows = [" ".join(sentences[n : n + 40]) for n in range(0, 160, 40)]
    rows.append(f"{rows[1]} And a last <sentence> more.")
    lines = [json.dumps({"text": row}) for row in rows]
    lines[2:2] = ["no JSON", '{"text": ""}']
    path = tmp_path_factory.mktemp("texts") / "rows.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.fixture
def build_page(build, texts, tmp_path):
    def call(output="out", **settings):
        lines = []
        build(
            output,
            inputs=[texts],
            remove_duplicates="near_documents",
            max_bad_fraction=0.5,
            report=True,
            log=lines.append,
            **settings,
        )
        return tmp_path / output / "report.html", lines

    return call


def words(page):
    """The visible words of a page, one blank between two."""
    text = re.sub(r"<(style|title).*?</\1>|<wbr>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def test_the_page_says_what_was_left_out_and_why(build_page, texts, sentences):
    path, _ = build_page()
    page = path.read_text(encoding="utf-8")
    found = words(page)
    assert "files documents characters shards records 1 5 " in found
    assert f"lines: not JSON, left out 1 {texts}, line 3" in found
    assert f"lines: empty documents, left out 1 {texts}, line 4" in found
    assert "duplicate documents 1" in found
    # The pair, from shortly before the first difference on.
    pair = r"train: rows.jsonl#5 (.*) train: rows.jsonl#2 (.*) Lengths"
    removed, kept = re.search(pair, found).groups()
    assert removed.endswith("And a last <sentence> more.")
    assert removed.startswith(kept) and kept.endswith(sentences[79])
    assert "remove_duplicates near_documents" in found
    # It loads nothing.
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_the_histogram_counts_documents_by_their_tokens(
    build_page, monkeypatch
):
    drawn = []
    monkeypatch.setattr(
        build_report, "draw_bars", lambda *a: drawn.append(a) or b""
    )
    path, _ = build_page()
    statistics = json.loads(path.with_name("metadata.json").read_text())
    counts = statistics["statistics"]["train"]
    assert not [name for name in counts if name.startswith("document_tokens")]
    tokens = counts["tokens"]
    (bars, *_), *others = drawn
    assert not others and sum(bars.values()) == 4
    limits = [int(name.replace(",", "")) for name in bars]
    assert limits == [
        2 ** (limits[0].bit_length() - 1 + n) for n in range(len(limits))
    ]
    most = sum(map(int.__mul__, limits, bars.values()))
    assert most / 2 <= tokens < most


def test_one_build_has_one_page(build_page, tmp_path, monkeypatch):
    build_page("one")
    monkeypatch.setattr("data_prep.pretraining.build_plan._UNITS", 50)
    monkeypatch.setattr("data_prep.pretraining.build_plan._MIN_UNIT_CHARS", 99)
    build_page("two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_a_page_that_fails_costs_no_shards(build_page, monkeypatch):
    def fail(*_):
        raise ValueError("no font")

    monkeypatch.setattr(pretraining_data, "build_page", fail)
    path, lines = build_page()
    assert not path.exists()
    assert path.with_name("metadata.json").exists()
    assert "report.html was not written (ValueError: no font)" in lines[-1]
