"""The inputs of the benchmark, each made when a stage first needs it."""

import dataclasses
import functools
import itertools
import os
import types
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.config import (
    FeatureConfig,
    MaskingConfig,
    PretrainingDataConfig,
    override,
    require,
)
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.classification import Classification
from bin import command_line
from bin.benchmarking import machine
from bin.benchmarking.side import OurSide

# Lines of a corpus that make a vocabulary good enough to time.
_VOCABULARY_LINES = 50_000
_MAX_EXAMPLES = 10_000


@dataclasses.dataclass(eq=False)
class Workspace:
    """Settings and inputs of all stages.

    Attributes:
        directory: an empty directory.
        inputs: the corpus; empty: docstrings of the installed packages.
        tokenizer: a directory or file; None: a vocabulary is trained.
        work: the training step that is measured.
        peers: names of the libraries to compare with.
        task: whose examples fine-tuning is measured on; None: paragraphs of
            the corpus.
    """

    directory: str
    inputs: Sequence[str]
    tokenizer: str | None
    vocab_size: int
    config: PretrainingDataConfig
    masking: MaskingConfig
    work: Workload
    features: FeatureConfig
    peers: Sequence[str] = ()
    task: Task | None = None
    examples: Sequence[Any] = ()
    cores: list[int] = dataclasses.field(
        default_factory=machine.available_cores
    )

    @property
    def sides(self) -> list[str]:
        """Names of the libraries that are measured, this one first."""
        return [OurSide.name, *self.peers]

    @functools.cached_property
    def corpus(self) -> list[str]:
        """The files, directories and globs of the corpus."""
        if self.inputs:
            return list(self.inputs)
        from data_prep.sample_corpus import build_sample_corpus

        command_line.log("Collecting the docstrings of installed packages.")
        directory = os.path.join(self.directory, "corpus")
        with command_line.progress("files") as show:
            build_sample_corpus(
                directory, workers=min(2, len(self.cores)), progress=show
            )
        return [os.path.join(directory, "train")]

    @functools.cached_property
    def tokenizer_dir(self) -> str:
        """The directory or file of the tokenizer."""
        if self.tokenizer:
            return self.tokenizer
        from data_prep.vocabulary import train_vocabulary

        command_line.log(f"Training a vocabulary of {self.vocab_size} pieces.")
        directory = os.path.join(self.directory, "vocabulary")
        train_vocabulary(
            (text for text, _ in self._paragraphs()),
            directory,
            vocab_size=self.vocab_size,
            input_sentence_size=_VOCABULARY_LINES,
        )
        return directory

    def _paragraphs(self) -> Iterator[tuple[str, str]]:
        """Yields (paragraph, name of its document) of the corpus."""
        from data_prep.corpus.reading import read_file
        from data_prep.corpus.report import CorpusReport
        from data_prep.pretraining.sources import list_inputs

        for file in list_inputs(self.corpus, [], self.config):
            for document in read_file(file, CorpusReport()):
                for text in document.paragraphs:
                    yield text, document.name

    @functools.cached_property
    def dynamic_shards(self) -> str:
        """The directory of shards that are masked as they are read."""
        return self._build_shards("dynamic")

    @functools.cached_property
    def static_shards(self) -> str:
        """The directory of shards with masks."""
        return self._build_shards("static")

    def _build_shards(self, kind: str) -> str:
        from data_prep.pretraining.pretraining_data import (
            build_pretraining_data,
        )

        command_line.log(f"Building {kind} shards to read.")
        directory = os.path.join(self.directory, kind)
        build_pretraining_data(
            self.corpus,
            directory,
            tokenizer_dir=self.tokenizer_dir,
            config=dataclasses.replace(
                self.config, record_kind=kind, dupe_factor=1
            ),
            masking=self.masking,
            workers=min(2, len(self.cores)),
        )
        return directory

    @functools.cached_property
    def ceiling(self) -> float:
        """Sequences/s of training that only multiplied matrices."""
        rate = machine.in_fresh_process(
            self.cores, _ceiling_sequences, self.work
        )
        command_line.log(
            f"Training at the ceiling would take {rate:.4g} sequences/s."
        )
        return rate

    @functools.cached_property
    def first_paragraphs(self) -> list[tuple[str, str]]:
        """The first paragraphs of the corpus, with their documents' names."""
        found = list(itertools.islice(self._paragraphs(), _MAX_EXAMPLES))
        require(
            len(found) > 1,
            f"{', '.join(self.corpus)}: too little text; at least two "
            "paragraphs are needed.",
        )
        return found

    @functools.cached_property
    def task_inputs(self) -> types.SimpleNamespace:
        """Examples of fine-tuning and what is trained on them."""
        from albert_tf.text.tokenizer import load_tokenizer

        if self.task:
            kind, labels = self.task.kind, list(self.task.labels)
            examples = list(self.examples[:_MAX_EXAMPLES])
        else:
            # Arbitrary labels: only speed is measured.
            kind, labels = Classification(), ["even", "odd"]
            examples = [
                Example((text,), labels[number % 2], name)
                for number, (text, name) in enumerate(self.first_paragraphs)
            ]
        tokenizer = load_tokenizer(self.tokenizer_dir)
        model = override(self.work.model, {"vocab_size": tokenizer.vocab_size})
        labels = labels or kind.labels(examples)
        return types.SimpleNamespace(
            work=dataclasses.replace(self.work, model=model),
            kind=kind,
            labels=labels,
            examples=examples,
            # In the process of the stage, without a cache.
            builder=FeatureBuilder(
                kind, tokenizer, self.features, labels, log=command_line.log
            ),
        )

    def __getstate__(self) -> dict[str, Any]:
        # Functions that read a task's files may be local ones.
        return self.__dict__ | {"task": None, "examples": ()}


def _ceiling_sequences(work: Workload) -> float:
    command_line.load_tensorflow()
    from albert_tf.cluster.matmul_rate import matmul_rate
    from albert_tf.modeling.accounting import training_flops

    flops = training_flops(
        work.model,
        batch_size=work.batch_size,
        seq_length=work.seq_length,
        num_predictions=work.num_predictions,
        read_positions_only=True,
    )
    return matmul_rate(work.training.precision) / flops * work.batch_size
