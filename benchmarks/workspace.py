"""The inputs of the stages, each made when a stage first needs it."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.config import (
    FeatureConfig,
    MaskingConfig,
    ModelConfig,
    PretrainingDataConfig,
    override,
    require,
)
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.feature_building import FeatureBuilder
from albert_tf.tasks.kinds.base import Kind
from albert_tf.tasks.kinds.classification import Classification
from albert_tf.text.tokenizer import load_tokenizer
from benchmarks.workload import Workload
from bin import command_line
from data_prep.corpus.reading import read_file
from data_prep.corpus.report import CorpusReport
from data_prep.pretraining.pretraining_data import build_pretraining_data
from data_prep.pretraining.sources import list_inputs
from data_prep.sample_corpus import build_sample_corpus
from data_prep.vocabulary import train_vocabulary

# Lines of a corpus that make a vocabulary good enough to time.
_VOCABULARY_LINES = 50_000
_MAX_EXAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class TaskInputs:
    """What fine-tuning is measured on."""

    kind: Kind
    labels: Sequence[str]
    examples: Sequence[Any]


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
            the corpus, with arbitrary labels.
        examples: those of the task.
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
        default_factory=lambda: sorted(os.sched_getaffinity(0))
    )

    @functools.cached_property
    def corpus(self) -> list[str]:
        """The files, directories and globs of the corpus."""
        if self.inputs:
            return list(self.inputs)
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
        command_line.log(f"Training a vocabulary of {self.vocab_size} pieces.")
        directory = os.path.join(self.directory, "vocabulary")
        train_vocabulary(
            self._paragraphs(),
            directory,
            vocab_size=self.vocab_size,
            input_sentence_size=_VOCABULARY_LINES,
        )
        return directory

    @functools.cached_property
    def shards(self) -> dict[str, str]:
        """The directories of shards by kind of record."""
        return {kind: self._shards(kind) for kind in ("dynamic", "static")}

    def _shards(self, kind: str) -> str:
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
    def paragraphs(self) -> list[str]:
        """The first paragraphs of the corpus."""
        found = list(itertools.islice(self._paragraphs(), _MAX_EXAMPLES))
        require(
            len(found) > 1,
            f"{', '.join(self.corpus)}: too little text; at least two "
            "paragraphs are needed.",
        )
        return found

    def _paragraphs(self) -> Iterator[str]:
        for file in list_inputs(self.corpus, [], self.config):
            for document in read_file(file, CorpusReport()):
                yield from document.paragraphs

    @functools.cached_property
    def task_inputs(self) -> TaskInputs:
        """The first examples of the task, or the first paragraphs."""
        if not self.task:
            labels = ["even", "odd"]
            examples = [
                Example((text,), labels[number % 2])
                for number, text in enumerate(self.paragraphs)
            ]
            return TaskInputs(Classification(), labels, examples)
        kind, examples = self.task.kind, list(self.examples[:_MAX_EXAMPLES])
        labels = list(self.task.labels) or kind.labels(examples)
        return TaskInputs(kind, labels, examples)

    def feature_builder(self) -> FeatureBuilder:
        """Returns the builder of the task's features, without a cache."""
        return FeatureBuilder(
            self.task_inputs.kind,
            load_tokenizer(self.tokenizer_dir),
            self.features,
            self.task_inputs.labels,
            log=command_line.log,
        )

    def model_config(self) -> ModelConfig:
        """Returns the model's settings, with the vocabulary's pieces."""
        pieces = load_tokenizer(self.tokenizer_dir).vocab_size
        return override(self.work.model, {"vocab_size": pieces})

    def __getstate__(self) -> dict[str, Any]:
        # Functions that read a task's files may be local ones.
        return self.__dict__ | {"task": None, "examples": ()}
