"""Writes small corpora and reads them."""

import gzip
import json

from data_prep.corpus import reading
from data_prep.corpus.forms import corpus_files
from data_prep.corpus.report import CorpusReport


def write(path, text):
    """Writes a file, gzipped where its name says so and `text` is a str."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    if path.suffix == ".gz" and isinstance(text, str):
        data = gzip.compress(data)
    path.write_bytes(data)
    return str(path)


def read(*paths, separator="auto", skip=0, names=None, report=None):
    report = CorpusReport() if report is None else report
    files = corpus_files(
        paths, names or paths, separator, skip_header_lines=skip
    )
    return [d for file in files for d in reading.read_file(file, report)]


def paragraphs(*paths, **keywords):
    return [document.paragraphs for document in read(*paths, **keywords)]


def faults(*paths, **keywords):
    """Returns the counts beside lines, documents and characters."""
    report = CorpusReport()
    read(*paths, report=report, **keywords)
    ordinary = ("lines", "documents", "characters")
    return {n: c for n, c in report.counts.items() if n not in ordinary}


def json_lines(*values):
    return "".join(json.dumps(value) + "\n" for value in values)
