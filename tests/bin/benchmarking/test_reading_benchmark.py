"""What is timed is what training reads; the times are not tested."""

import pytest

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from bin.benchmarking import reading_benchmark
from data_prep.pretraining.pretraining_data import build_pretraining_data


@pytest.fixture(scope="module")
def directories(tmp_path_factory, sentences, tiny_directory):
    directory = tmp_path_factory.mktemp("reading")
    text = directory / "text.txt"
    text.write_text("\n".join(sentences[:200]))
    made = {}
    for kind in ("dynamic", "static"):
        made[kind] = str(directory / kind)
        build_pretraining_data(
            [str(text)],
            made[kind],
            tokenizer_dir=str(tiny_directory),
            config=PretrainingDataConfig(
                record_kind=kind,
                sentence_splitter="newline",
                document_separator="file",
                max_seq_length=32,
            ),
            masking=MaskingConfig(),
        )
    return made


def test_every_kind_and_size_is_measured(directories, monkeypatch):
    set_threads = []
    threading = reading_benchmark.tf.config.threading
    for name in ("intra", "inter"):
        monkeypatch.setattr(
            threading,
            f"set_{name}_op_parallelism_threads",
            set_threads.append,
        )
    times = reading_benchmark.measure_reading(
        directories, (4, 8), masking_config=MaskingConfig(), seconds=0.02
    )
    assert set_threads == [1, 1]
    kinds = [(kind, size) for kind in ("dynamic", "static") for size in (4, 8)]
    assert list(times) == kinds
    for (_, size), of_kind in times.items():
        assert of_kind.num_sequences >= size
        assert of_kind.num_sequences % size == 0
        assert of_kind.seconds >= 0.02
        assert of_kind.reading > 0
        assert of_kind.parsing > 0
        assert of_kind.rest >= 0


def test_the_rest_of_a_batch_is_no_less_than_nothing():
    times = reading_benchmark.ReadingTimes(4, 1.0, 0.25, 0.5)
    assert times.rest == 0.25
    assert times._replace(parsing=0.9).rest == 0.0
