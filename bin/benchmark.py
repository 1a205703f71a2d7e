"""The speed of this machine at what the project does, stage by stage.

python -m bin.benchmark
python -m bin.benchmark --stages=reading --repeats=1
python -m bin.benchmark --input=corpus --tokenizer=vocab

Without --input it reads the docstrings of the installed packages, so it needs
no data. The figures depend on what else the machine does meanwhile.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib.metadata
import multiprocessing
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from absl import flags

from albert_tf.config import (
    PRESETS,
    MaskingConfig,
    ModelConfig,
    PretrainConfig,
    PretrainingDataConfig,
    UserError,
    override,
    preset,
    to_dict,
    write_json,
)
from bin import command_line

if TYPE_CHECKING:
    from data_prep.build_benchmark import BuildTimes, StepTimes

FLAGS = flags.FLAGS

# What is measured unless flags say otherwise.
_DATA = PretrainingDataConfig(record_kind="static", dupe_factor=10)
# Neither is for flags to change: the stages decide.
_NO_FLAGS = ("record_kind", "eval_fraction")
_BATCH_SIZES = (64, 256)
_READING_SECONDS = 2.0
# Lines of a corpus that make a vocabulary good enough to time.
_VOCABULARY_LINES = 50_000
_PACKAGES = ("numpy", "tensorflow", "keras", "sentencepiece", "nltk")

Result = TypeVar("Result")


class Measured(NamedTuple):
    """A figure of one repeat."""

    name: str
    unit: str
    value: float


def available_cores() -> list[int]:
    """Returns the logical CPUs for this process, one of every core first."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    seen: set[str] = set()
    first, rest = [], []
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _siblings(cpu)
        (rest if core in seen else first).append(cpu)
        seen.add(core)
    return first + rest


def _siblings(cpu: int) -> str:
    """Returns what names the core that a logical CPU is part of."""
    path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().strip()
    return str(cpu)


@contextlib.contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Keeps this thread, and processes it starts, on `cores`, if it can."""
    if not hasattr(os, "sched_setaffinity"):  # macOS
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def in_fresh_process(
    cores: Sequence[int],
    function: Callable[..., Result],
    *args: object,
    **kwargs: object,
) -> tuple[Result, float]:
    """Returns what `function` does in a process of its own, on `cores`.

    Also returns the seconds from the start of the process to its end.
    """
    begin = time.perf_counter()
    with (
        pinned(cores),
        concurrent.futures.ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn")
        ) as pool,
    ):
        result = pool.submit(function, *args, **kwargs).result()
    return result, time.perf_counter() - begin


class Workplace:
    """What stages work on, made when the first of them asks for it.

    Args:
        directory: an empty directory.
        inputs: the corpus; none: the machine's own docstrings.
        tokenizer_dir: none: a vocabulary is trained on the corpus.
        vocab_size: pieces of that vocabulary.
        config: how the corpus becomes records.
        masking: how records are masked.
        model: the architecture whose training is measured.
        batch_size: sequences of a training step.
    """

    def __init__(
        self,
        directory: str,
        *,
        model: ModelConfig,
        batch_size: int,
        inputs: Sequence[str],
        tokenizer_dir: str | None,
        vocab_size: int,
        config: PretrainingDataConfig,
        masking: MaskingConfig,
    ) -> None:
        self.directory = directory
        self.cores = available_cores()
        self.config = config
        self.masking = masking
        self.model = model
        self.batch_size = batch_size
        self._inputs = list(inputs)
        self._tokenizer_dir = tokenizer_dir
        self._vocab_size = vocab_size

    def say(self, line: str) -> None:
        """Tells how far the work has come."""
        print(line, flush=True)

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
        from data_prep.build_plan import list_sources
        from data_prep.corpus import CorpusReport, read_documents
        from data_prep.vocabulary import train_vocabulary

        (source,) = list_sources(self.inputs, [], self.config)
        self.say(f"Training a vocabulary of {self._vocab_size} pieces.")
        documents = read_documents(
            source.files,
            skip_header_lines=self.config.skip_header_lines,
            report=CorpusReport(),
        )
        directory = os.path.join(self.directory, "vocabulary")
        train_vocabulary(
            (text for document in documents for text in document.paragraphs),
            directory,
            vocab_size=self._vocab_size,
            input_sentence_size=_VOCABULARY_LINES,
        )
        return directory

    @functools.cached_property
    def shards(self) -> dict[str, str]:
        """Shard directories to read, by kind of record."""
        return {kind: self._build(kind) for kind in ("dynamic", "static")}

    def _build(self, kind: str) -> str:
        from data_prep.pretraining_data import build_pretraining_data

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


def _data_preparation(place: Workplace) -> Iterator[Measured]:
    from data_prep.build_benchmark import measure_build, measure_steps

    def in_process(
        num_cores: int, function: Callable, **more: int
    ) -> tuple[Any, float]:
        with place.scratch() as directory:
            return in_fresh_process(
                place.cores[:num_cores],
                function,
                place.inputs,
                directory,
                tokenizer_dir=place.tokenizer_dir,
                config=place.config,
                masking=place.masking,
                **more,
            )

    jobs = {}
    for workers, name in ((1, "one worker"), (2, "two workers")):
        if len(place.cores) < workers:
            place.say(f"{name}: left out, this process may use one core.")
            continue
        times, whole = in_process(workers, measure_build, workers=workers)
        jobs[workers] = times
        place.say(f"{name}: {times.rate:.4g} instances/s")
        yield from _of_job(name, times)
        rate = times.num_instances / whole
        yield Measured(f"{name}, with start-up", "instances/s", rate)
    if len(jobs) == 2:
        ratio = jobs[2].rate / jobs[1].rate
        yield Measured("two workers to one", "times", ratio)
        ratio = jobs[2].planned_rate / jobs[1].planned_rate
        yield Measured("two workers to one, once planned", "times", ratio)
    steps, _ = in_process(1, measure_steps)
    place.say(f"the steps alone: {steps.rate:.4g} instances/s")
    yield from _of_steps(steps)
    share = 100 * jobs[1].rate / steps.rate
    yield Measured("one worker, of what the steps allow", "%", share)
    share = 100 * jobs[1].planned_rate / steps.rate
    yield Measured("one worker, of that once planned", "%", share)


def _of_job(name: str, times: "BuildTimes") -> Iterator[Measured]:
    yield Measured(name, "instances/s", times.rate)
    text = times.text_bytes / times.seconds / 1e6
    yield Measured(f"{name}, of text", "MB/s", text)
    planned = f"{name}, once planned"
    yield Measured(planned, "instances/s", times.planned_rate)
    for phase in ("planning", "records", "shards"):
        yield Measured(f"{name}, {phase}", "s", getattr(times, phase))
    # Learning where sentences end takes one core, however many workers.
    share = 100 * times.planning / times.seconds
    yield Measured(f"{name}, planning of the whole", "%", share)
    yield Measured(f"{name}, peak memory", "MB", times.peak_bytes / 1e6)
    if of_worker := times.worker_peak_bytes:
        peak = f"{name}, peak memory of the larger"
        yield Measured(peak, "MB", of_worker / 1e6)


def _of_steps(steps: "StepTimes") -> Iterator[Measured]:
    total = sum(steps.seconds.values())
    for step, seconds in steps.seconds.items():
        rate = steps.num_instances / seconds
        yield Measured(f"{step} alone", "instances/s", rate)
        yield Measured(f"{step}, of the steps", "%", 100 * seconds / total)
    yield Measured("all steps alone", "instances/s", steps.rate)


def _reading(place: Workplace) -> Iterator[Measured]:
    measured, _ = in_fresh_process(
        place.cores[:1], _read, place.shards, place.masking
    )
    for one in measured:
        if one.unit == "sequences/s":
            place.say(f"{one.name}: {one.value:.4g} {one.unit}")
        yield one


def _read(shards: dict[str, str], masking: MaskingConfig) -> list[Measured]:
    """Returns the measures of reading; they come from a fresh process.

    What it gives its parent must not make that load TensorFlow.
    """
    command_line.load_tensorflow()
    from albert_tf.training.reading_benchmark import measure_reading

    times = measure_reading(
        shards, _BATCH_SIZES, masking_config=masking, seconds=_READING_SECONDS
    )
    measured = []
    for (kind, size), of_kind in times.items():
        name = f"{kind}, batches of {size}"
        rate = of_kind.num_sequences / of_kind.seconds
        measured.append(Measured(name, "sequences/s", rate))
        parts = {"reading": of_kind.reading, "parsing": of_kind.parsing}
        parts["masking" if kind == "dynamic" else "the rest"] = of_kind.rest
        for part, seconds in parts.items():
            share = 100 * seconds / of_kind.seconds
            measured.append(Measured(f"{name}, {part}", "%", share))
    return measured


def _recomputation(place: Workplace) -> Iterator[Measured]:
    steps = {}
    for remat, name in ((False, "kept"), (True, "computed again")):
        step, _ = in_fresh_process(
            place.cores,
            _training_step,
            place.model,
            place.batch_size,
            place.config.max_seq_length,
            remat,
        )
        steps[remat] = step
        tensors, resident, seconds, norm = step
        place.say(f"{name}: {tensors / 2**20:.0f} MiB of tensors")
        yield Measured(f"{name}, tensors", "MiB", tensors / 2**20)
        yield Measured(f"{name}, resident", "MiB", resident / 2**20)
        yield Measured(f"{name}, step", "s", seconds)
        yield Measured(f"{name}, gradient norm", "", norm)
    for number, name in enumerate(("tensors", "resident memory", "time")):
        ratio = steps[True][number] / steps[False][number]
        yield Measured(f"computed again to kept, {name}", "times", ratio)


def _training_step(
    model: ModelConfig, batch_size: int, max_seq_length: int, remat: bool
) -> tuple[float, ...]:
    """Returns a StepMemory's figures; they come from a fresh process."""
    # TensorFlow's allocator that counts, with a bound beyond any machine.
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(1 << 24)
    command_line.load_tensorflow()
    from albert_tf.training.memory_benchmark import measure_step

    return tuple(
        measure_step(
            model,
            batch_size=batch_size,
            max_seq_length=max_seq_length,
            remat=remat,
        )
    )


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of the work that can be measured on its own.

    `repeat(workplace)` measures once. Figures that are compared come from the
    same repeat, so that what else the machine does strikes them alike.
    """

    name: str
    measures: str
    repeat: Callable[[Workplace], Iterator[Measured]]


STAGES: dict[str, Stage] = {
    row.name: row
    for row in (
        Stage(
            "data_preparation",
            "bin.build_pretraining_data: static records, from text to shards "
            "on disk, by one worker on one core and by two on two; and each "
            "of its steps alone, on one core",
            _data_preparation,
        ),
        Stage(
            "reading",
            "batches for pretraining out of shards, on one core; dynamic "
            "records are masked as they are read",
            _reading,
        ),
        Stage(
            "recomputation",
            "forward and backward of a training step, with what the blocks "
            "compute kept for the gradient, and with --remat",
            _recomputation,
        ),
    )
}


def run_stage(
    stage: Stage, place: Workplace, repeats: int
) -> list[dict[str, Any]]:
    """Returns the stage's measures: median, least and largest of `repeats`."""
    values: dict[tuple[str, str], list[float]] = {}
    for number in range(1, repeats + 1):
        place.say(f"{stage.name}: {number} of {repeats}")
        for name, unit, value in stage.repeat(place):
            values.setdefault((name, unit), []).append(value)
    return [
        {
            "name": name,
            "unit": unit,
            "median": statistics.median(of_name),
            "min": min(of_name),
            "max": max(of_name),
        }
        for (name, unit), of_name in values.items()
    ]


def stage_table(measures: Sequence[dict[str, Any]]) -> str:
    """Returns a stage's measures as a table."""
    numbers = ("median", "min", "max")
    return command_line.format_table(
        [
            [m["name"], *(_digits(m[n]) for n in numbers), m["unit"]]
            for m in measures
        ],
        ["", *numbers, "unit"],
    )


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def describe_machine() -> dict[str, Any]:
    """Returns what the figures depend on beside the program."""
    cores = available_cores()
    return {
        "cpu": _cpu_model(),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(cores),
        "usable_cores": len({_siblings(cpu) for cpu in cores}),
        "can_pin": hasattr(os, "sched_setaffinity"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE")
        * os.sysconf("SC_PHYS_PAGES"),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def _cpu_model() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    # The distribution may be called otherwise: tensorflow-cpu.
    names = importlib.metadata.packages_distributions().get(package, ())
    return importlib.metadata.version(names[0]) if names else None


def define_flags() -> None:
    """Defines the program's flags."""
    flags.DEFINE_list(
        "stages", list(STAGES), f"What to measure: {', '.join(STAGES)}."
    )
    flags.DEFINE_list(
        "input",
        [],
        "Text, as for build_pretraining_data; none: the docstrings of the "
        "installed packages.",
    )
    flags.DEFINE_string(
        "tokenizer",
        None,
        "Directory of the tokenizer; none: a vocabulary is trained first.",
    )
    flags.DEFINE_integer(
        "vocab_size",
        8000,
        "Pieces of the vocabulary that is trained without --tokenizer.",
        lower_bound=20,
    )
    flags.DEFINE_integer(
        "repeats", 3, "How often everything is measured.", lower_bound=1
    )
    flags.DEFINE_string(
        "work_dir",
        None,
        "A directory on the disk to work on; none: the system's temporary "
        "one. What is written there is removed again.",
    )
    flags.DEFINE_string(
        "output", "benchmark.json", "File for the figures, as JSON."
    )
    flags.DEFINE_enum(
        "preset", "base", list(PRESETS), "The model of training steps."
    )
    flags.DEFINE_integer(
        "batch_size", 1, "Sequences of a training step.", lower_bound=1
    )
    command_line.define_settings(_DATA, leave_out=_NO_FLAGS)
    command_line.define_settings(MaskingConfig())


def main() -> None:
    """Measures the stages, prints their tables and writes them as JSON."""
    stages = [_stage(name) for name in FLAGS.stages or [""]]
    _check_paths()
    given = command_line.given_settings(_DATA)
    if not FLAGS.input:
        # The form of the sample corpus.
        given.setdefault("document_separator", "blank_line")
    config = override(_DATA, given)
    masking = override(
        MaskingConfig(), command_line.given_settings(MaskingConfig())
    )
    result = {
        "command": shlex.join(sys.orig_argv),
        "machine": describe_machine(),
        "settings": {
            "input": FLAGS.input,
            "tokenizer": FLAGS.tokenizer,
            "repeats": FLAGS.repeats,
            "preset": FLAGS.preset,
            "batch_size": FLAGS.batch_size,
            "data": to_dict(config),
            "masking": to_dict(masking),
        },
        "stages": {},
    }
    with tempfile.TemporaryDirectory(
        prefix="benchmark-", dir=FLAGS.work_dir
    ) as directory:
        place = Workplace(
            directory,
            model=override(PretrainConfig(), preset(FLAGS.preset)).model,
            batch_size=FLAGS.batch_size,
            inputs=FLAGS.input,
            tokenizer_dir=FLAGS.tokenizer,
            vocab_size=FLAGS.vocab_size,
            config=config,
            masking=masking,
        )
        for stage in stages:
            measures = run_stage(stage, place, FLAGS.repeats)
            print(f"\n{stage.name}: {stage.measures}.\n")
            print(f"{stage_table(measures)}\n", flush=True)
            result["stages"][stage.name] = {
                "measures": stage.measures,
                "results": measures,
            }
            # After every stage: the next one may be broken off.
            write_json(FLAGS.output, result)
    print(f"The figures are in {FLAGS.output}.")


def _stage(name: str) -> Stage:
    if name not in STAGES:
        raise UserError(
            f"--stages names {name!r}, which is none of {', '.join(STAGES)}."
        )
    return STAGES[name]


def _check_paths() -> None:
    """Raises UserError at once for what would only fail after minutes."""
    from albert_tf.text.tokenizer import load_tokenizer
    from data_prep.corpus import list_files

    if FLAGS.input:
        list_files(FLAGS.input)
    if FLAGS.tokenizer:
        load_tokenizer(FLAGS.tokenizer)
    folder = os.path.dirname(os.path.abspath(FLAGS.output))
    for name, path in (("output", folder), ("work_dir", FLAGS.work_dir)):
        if path and not (os.path.isdir(path) and os.access(path, os.W_OK)):
            raise UserError(
                f"--{name}: {path} is no directory that can be written to."
            )


if __name__ == "__main__":
    command_line.run(define_flags, main)
