"""Small builds of pretraining data."""

import inspect

import pytest

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from data_prep.pretraining.pretraining_data import build_pretraining_data


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    """Eight files of some 100 sentences, and two files that yield nothing."""
    directory = tmp_path_factory.mktemp("corpus")
    for number in range(8):
        part = sentences[number * 100 : (number + 1) * 100]
        paragraphs = [" ".join(part[i : i + 4]) for i in range(0, 100, 4)]
        path = directory / "books" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join(paragraphs), encoding="utf-8")
    (directory / "books" / "one.txt").write_text("Only one sentence")
    (directory / "empty.txt").write_text("\n")
    return str(directory)


def builder(corpus, tiny_directory, directory):
    """Returns a function that builds with small settings."""
    names = inspect.signature(build_pretraining_data).parameters

    def call(output="out", inputs=(corpus,), **keywords):
        arguments = {n: v for n, v in keywords.items() if n in names}
        config = {n: v for n, v in keywords.items() if n not in names}
        return build_pretraining_data(
            list(inputs),
            output if "://" in output else str(directory / output),
            tokenizer_dir=str(tiny_directory),
            config=PretrainingDataConfig(**{"max_seq_length": 48} | config),
            **{"masking": MaskingConfig()} | arguments,
        )

    return call


@pytest.fixture
def build(corpus, tiny_directory, tmp_path):
    """Builds with small settings; keywords change them."""
    return builder(corpus, tiny_directory, tmp_path)


@pytest.fixture(scope="module")
def whole(corpus, tiny_directory, tmp_path_factory):
    """The directory and metadata of a build without other settings."""
    directory = tmp_path_factory.mktemp("whole")
    metadata = builder(corpus, tiny_directory, directory)(num_shards=3)
    return directory / "out", metadata
