"""What the stages of the benchmark work on."""

import contextlib
import dataclasses
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.config import (
    FeatureConfig,
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    override,
)
from albert_tf.jobs.workload import Workload
from albert_tf.tasks.base import Task
from albert_tf.tasks.examples import Example
from albert_tf.tasks.kinds.classification import Classification
from bin import command_line
from bin.benchmarking.machine import available_cores, in_fresh_process
from bin.benchmarking.peers import SideKind
from bin.benchmarking.workload import TaskWork

# Lines of a corpus that make a vocabulary good enough to time.
_VOCABULARY_LINES = 50_000
# Examples that fine-tuning is measured on, at most.
_EXAMPLES = 10_000


class Workplace:
    """What stages work on, made when the first of them asks for it.

    Args:
        directory: an empty directory.
        inputs: the corpus; none: the machine's own docstrings.
        tokenizer_dir: none: a vocabulary is trained on the corpus.
        vocab_size: pieces of that vocabulary.
        config: how the corpus becomes records.
        masking: how records are masked.
        work: the training that is measured.
        peers: whom it is compared with.
        features: how examples of fine-tuning become features.
        task: whose examples fine-tuning is measured on; None: paragraphs of
            the corpus.
        examples: of the task.

    Attributes:
        notes: what is to be said of the figures of the stage at work.
    """

    def __init__(
        self,
        directory: str,
        *,
        work: Workload,
        peers: Sequence[SideKind],
        inputs: Sequence[str],
        tokenizer_dir: str | None,
        vocab_size: int,
        config: PretrainingDataConfig,
        masking: MaskingConfig,
        features: FeatureConfig,
        task: Task | None = None,
        examples: Sequence[Any] = (),
    ) -> None:
        self.directory = directory
        self.cores = available_cores()
        self.config = config
        self.masking = masking
        self.work = work
        self.peers = tuple(peers)
        self.notes: list[str] = []
        self._inputs = list(inputs)
        self._tokenizer_dir = tokenizer_dir
        self._vocab_size = vocab_size
        self._features = features
        self._task = task
        self._examples = examples
        self._shards: dict[str, str] = {}

    def say(self, line: str) -> None:
        """Tells how far the work has come."""
        print(line, flush=True)

    def note(self, line: str) -> None:
        """Tells what is also to be written beside the figures."""
        self.notes.append(line)
        self.say(line)

    @functools.cached_property
    def inputs(self) -> list[str]:
        """The files, directories and globs of the corpus."""
        if self._inputs:
            return self._inputs
        from data_prep.sample_corpus import build_sample_corpus

        self.say("Making a corpus of the docstrings of installed packages.")
        directory = os.path.join(self.directory, "corpus")
        with command_line.progress("files") as show:
            build_sample_corpus(
                directory, workers=min(2, len(self.cores)), progress=show
            )
        return [os.path.join(directory, "train")]

    @functools.cached_property
    def tokenizer_dir(self) -> str:
        """The directory of the tokenizer."""
        if self._tokenizer_dir:
            return self._tokenizer_dir
        from data_prep.vocabulary import train_vocabulary

        self.say(f"Training a vocabulary of {self._vocab_size} pieces.")
        directory = os.path.join(self.directory, "vocabulary")
        train_vocabulary(
            (text for text, _ in self._paragraphs()),
            directory,
            vocab_size=self._vocab_size,
            input_sentence_size=_VOCABULARY_LINES,
        )
        return directory

    @functools.cached_property
    def task_work(self) -> TaskWork:
        """The first examples of the task, and what is trained on them."""
        from albert_tf.text.tokenizer import load_tokenizer

        if self._task:
            kind, labels = self._task.kind, list(self._task.labels)
            examples = list(self._examples)
        else:
            # The labels say nothing.
            kind, labels = Classification(), ["even", "odd"]
            paragraphs = itertools.islice(self._paragraphs(), _EXAMPLES)
            examples = [
                Example((text,), labels[number % 2], name)
                for number, (text, name) in enumerate(paragraphs)
            ]
            if len(examples) < 2:
                raise UserError(
                    f"{', '.join(self.inputs)}: too little text; fine-tuning "
                    "is measured on two paragraphs and more."
                )
        tokenizer = load_tokenizer(self.tokenizer_dir)
        model = override(self.work.model, {"vocab_size": tokenizer.vocab_size})
        return TaskWork(
            dataclasses.replace(self.work, model=model),
            kind,
            labels or kind.labels(examples),
            examples[:_EXAMPLES],
            tokenizer,
            self._features,
        )

    def _paragraphs(self) -> Iterator[tuple[str, str]]:
        """Yields the corpus's paragraphs, and the name of each's document."""
        from data_prep.corpus.reading import CorpusReport, read_documents
        from data_prep.pretraining.build_plan import list_sources

        (source,) = list_sources(self.inputs, [], self.config)
        documents = read_documents(
            source.files,
            skip_header_lines=self.config.skip_header_lines,
            report=CorpusReport(),
        )
        for document in documents:
            for text in document.paragraphs:
                yield text, document.name

    def shards(self, kind: str) -> str:
        """Returns the directory of shards of this kind of record."""
        if kind not in self._shards:
            self._shards[kind] = self._build(kind)
        return self._shards[kind]

    def _build(self, kind: str) -> str:
        from data_prep.pretraining.pretraining_data import (
            build_pretraining_data,
        )

        self.say(f"Building {kind} shards to read.")
        directory = os.path.join(self.directory, kind)
        build_pretraining_data(
            self.inputs,
            directory,
            tokenizer_dir=self.tokenizer_dir,
            config=dataclasses.replace(
                self.config, record_kind=kind, dupe_factor=1
            ),
            masking=self.masking,
            workers=min(2, len(self.cores)),
        )
        return directory

    @contextlib.contextmanager
    def scratch(self) -> Iterator[str]:
        """Gives an empty directory that is removed again."""
        path = tempfile.mkdtemp(dir=self.directory)
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @functools.cached_property
    def ceiling_sequences(self) -> float:
        """Sequences/s of training that did nothing but multiply matrices."""
        rate, _ = in_fresh_process(self.cores, _ceiling_sequences, self.work)
        self.note(f"Training at the ceiling would take {rate:.4g} sequences/s.")
        return rate


def _ceiling_sequences(work: Workload) -> float:
    command_line.load_tensorflow()
    from albert_tf.cluster.matmul_rate import matmul_rate
    from bin.benchmarking.our_side import our_training_flops

    rate = matmul_rate(work.training.precision)
    return rate / our_training_flops(work) * work.batch_size
