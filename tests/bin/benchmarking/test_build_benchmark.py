"""What is timed is what a job does; the times themselves are not tested."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records.shards import open_shards
from albert_tf.records.tfrecord import read_records
from bin.benchmarking import build_benchmark
from bin.benchmarking.build_benchmark import measure_build, measure_steps
from data_prep.corpus.reading import CorpusFile

CONFIG = PretrainingDataConfig(
    record_kind="static",
    sentence_splitter="newline",
    document_separator="file",
    max_seq_length=48,
    dupe_factor=3,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, sentences):
    directory = tmp_path_factory.mktemp("text")
    for number in range(3):
        part = sentences[number * 100 : (number + 1) * 100]
        (directory / f"{number}.txt").write_text("\n".join(part))
    return [str(directory)]


def build(inputs, tmp_path, tiny_directory, config=CONFIG):
    return measure_build(
        inputs,
        str(tmp_path / "shards"),
        tokenizer_dir=str(tiny_directory),
        config=config,
        masking=MaskingConfig(),
        workers=1,
    )


def steps(inputs, tmp_path, tiny_directory, config=CONFIG):
    work_dir = tmp_path / "steps"
    work_dir.mkdir()
    return measure_steps(
        inputs,
        str(work_dir),
        tokenizer_dir=str(tiny_directory),
        config=config,
        masking=MaskingConfig(),
    )


def test_a_job_is_accounted_for(inputs, tmp_path, tiny_directory):
    times = build(inputs, tmp_path, tiny_directory)
    with open_shards(tmp_path / "shards", "train") as shards:
        assert times.num_instances == len(shards)
    texts = pathlib.Path(inputs[0]).iterdir()
    assert times.text_bytes == sum(path.stat().st_size for path in texts)
    phases = (times.planning, times.records, times.shards)
    assert min(phases) > 0
    assert sum(phases) == pytest.approx(times.seconds)
    assert times.rate == pytest.approx(times.num_instances / times.seconds)
    assert times.planned_rate > times.rate
    # Python with NumPy alone needs tens of megabytes.
    assert 10**7 < times.peak_bytes < 10**11
    assert times.worker_peak_bytes == 0


@pytest.mark.parametrize("objective", ["sop", "none"])
def test_the_steps_make_the_records_of_a_job(
    inputs, tmp_path, tiny_directory, objective
):
    config = dataclasses.replace(CONFIG, sentence_objective=objective)
    build(inputs, tmp_path, tiny_directory, config)
    times = steps(inputs, tmp_path, tiny_directory, config)
    with open_shards(tmp_path / "shards", "train") as shards:
        assert times.num_instances == len(shards)
        of_job = list(shards.read(range(len(shards))))
    assert list(read_records(tmp_path / "steps/train.tfrecord")) == of_job


def test_every_step_is_timed(inputs, tmp_path, tiny_directory):
    times = steps(inputs, tmp_path, tiny_directory)
    assert list(times.seconds) == [
        "reading text",
        "splitting sentences",
        "tokenising",
        "cutting segments",
        "arranging",
        "masking",
        "serialising",
        "writing parts",
        "writing shards",
    ]
    assert min(times.seconds.values()) > 0
    total = sum(times.seconds.values())
    assert times.rate == pytest.approx(times.num_instances / total)


def test_steps_take_a_sample_of_a_large_corpus(
    inputs, tmp_path, tiny_directory, monkeypatch
):
    whole = steps(inputs, tmp_path, tiny_directory)
    monkeypatch.setattr(build_benchmark, "_SAMPLE_BYTES", 3000)
    (tmp_path / "again").mkdir()
    part = steps(inputs, tmp_path / "again", tiny_directory)
    assert 0 < part.num_instances < whole.num_instances


@pytest.mark.parametrize(("number", "first"), [(1, 0), (8, 7), (80, 70)])
def test_a_sample_is_spread_over_the_corpus(number, first):
    files = [CorpusFile(str(n), str(n), "file") for n in range(number)]
    chosen = build_benchmark.sample_files(files)
    assert len(chosen) == min(8, number)
    assert chosen[0] == files[0]
    assert chosen[-1] == files[first]


def test_peak_memory_is_the_own_of_a_process():
    """Not that of the process that started it, which holds far more."""
    held = np.ones(40_000_000)
    code = (
        "import numpy\n"
        "from bin.benchmarking.build_benchmark import peak_memory\n"
        "before = peak_memory()\n"
        "held = numpy.ones(6_000_000)\n"
        "del held\n"
        "print(before, peak_memory())"
    )
    root = pathlib.Path(__file__).resolve().parents[3]
    said = subprocess.check_output([sys.executable, "-c", code], cwd=root)
    before, after = map(int, said.split())
    assert 10**7 < before < held.nbytes
    assert before + 3 * 10**7 < after < held.nbytes
