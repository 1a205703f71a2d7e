"""Every code block of the documents is run, or marked as not run.

A block is run unless the line before it is `<!-- not run: why -->`. What is
run must be Python, or commands `python -m bin.PROGRAM`, which take the files
of `place` and one another's, in the order of the documents. The flags of
commands that are not run are checked against those of the program.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import re
import shlex
import string
from pathlib import Path
from unittest import mock

import pytest
from absl import flags
from program_runner import new_flags, run_program
from training_fixtures import SMALL_MODEL

import albert_tf
from albert_tf.cluster.distribution import STRATEGIES
from albert_tf.config import PRESETS, SHARING, ModelConfig, override
from albert_tf.interchange.model_directory import save_model_directory
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import AlbertForAnswerableQuestions
from albert_tf.optim.optimizers import OPTIMIZERS
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.tasks.catalog import TASKS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "RESULTS.md",
]
# Blocks add rows to these, which other tests must not see.
EXTENDED_TABLES = (
    *(HEADS, OPTIMIZERS, PRESETS, SENTENCE_OBJECTIVES, SHARING, STRATEGIES),
    TASKS,
)
NOT_RUN = re.compile(r"^<!-- not run: .+ -->$")
# The line before a block, its language and its text.
FENCED = re.compile(r"^([^\n]*)\n```(\w*)\n(.*?)\n```$", re.M | re.S)
COMMAND = re.compile(r"python -m ((?:bin|benchmarks)(?:\.\w+)+)\b(.*)")
# What makes the commands of the documents small: values of flags that they
# give, and flags beside those.
SMALLER = {
    "vocab_size": 150,
    "num_new_tokens": 5,
    "max_seq_length": 32,
    "eval_fraction": 0.3,
    "num_runs": 2,
    # Others would start for seconds; test_resumed_builds.py has them.
    "workers": 1,
}
STEPS = ["--num_train_steps=1", "--train_batch_size=4"]
# Each width is another trace.
TASK_STEPS = [*STEPS, "--max_seq_length=32", "--padding=max"]
ONE_LAYER = "--num_hidden_layers=1"
BESIDE = {
    "bin.pretrain": [*STEPS, ONE_LAYER, "--max_eval_steps=1", "--noreport"],
    "bin.finetune": [*TASK_STEPS, "--noreport"],
}


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block, where it begins, and whether it is marked."""

    place: str
    language: str
    text: str
    is_run: bool

    def commands(self):
        """Returns (program, arguments) of every command in the block."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [
            (program, shlex.split(rest.rstrip("& "), comments=True))
            for line in lines
            if not line.lstrip().startswith("#")
            for program, rest in _programs(line)
        ]


def _programs(line):
    """Returns the programs of a line, one within another's arguments too."""
    found = COMMAND.search(line)
    if not found:
        return []
    program, rest = found.groups()
    own, _, inner = rest.partition(" -- ")
    return [(program, own), *_programs(inner)]


def blocks_of(text):
    """Yields (start, language, text, is_run) of fenced blocks and commands.

    Commands within lines of prose and tables are not to be run.
    """
    for found in FENCED.finditer(text):
        before, language, content = found.groups()
        yield found.start(2), language, content, not NOT_RUN.search(before)
    for found in re.finditer(r"`(python -m b[^`\n]+)`", text):
        yield found.start(), "", found[1], False


def all_blocks():
    """Returns the blocks of all documents, with `$NAME` filled in."""
    found = []
    for path in DOCUMENTS:
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        assert text.count("\n```") == 2 * len(FENCED.findall(text)), name
        values = dict(re.findall(r'^([A-Z]+)="(.*)"$', text, re.MULTILINE))
        for start, language, block, is_run in blocks_of(text):
            place = f"{name}:{text.count(chr(10), 0, start) + 1}"
            filled = string.Template(block).safe_substitute(values)
            found.append(Block(place, language, filled, is_run))
    return found


BLOCKS = all_blocks()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_a_block_is_run_or_marked(block):
    if block.is_run and block.language != "python":
        lines = block.text.replace("\\\n", " ").splitlines()
        stray = [line for line in lines if not COMMAND.match(line)]
        assert not stray, (
            f"the tests run Python and commands `python -m bin.PROGRAM`; "
            f"{stray} is neither. Put `<!-- not run: why -->` on the line "
            "before the block, or leave it out."
        )


@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.commands()], ids=lambda block: block.place
)
def test_flags_of_commands_are_those_of_programs(block):
    for program, arguments in block.commands():
        with new_flags():
            importlib.import_module(program).define_flags()
            assert flags.FLAGS([program, *arguments]) == [program]


def save_squad_model(directory, tokenizer):
    """Writes a small model with random weights."""
    size = {"vocab_size": 200, "max_position_embeddings": 128}
    size["num_hidden_layers"] = 1
    model = AlbertForAnswerableQuestions(
        override(ModelConfig(), SMALL_MODEL | size)
    )
    os.makedirs(directory.parent)
    save_model_directory(str(directory), model, tokenizer, max_seq_length=128)


def test_the_interface_is_documented():
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    names = set(albert_tf.__all__) - {"__version__"}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def write_files(place, sentences):
    """Writes the files that commands name, made of invented sentences."""

    def write(name, lines):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    for name, part in (
        ("books/one.txt", sentences[:300]),
        ("books/two.md", sentences),
        ("medical/one.txt", sentences[300:600]),
    ):
        paragraphs = [" ".join(part[n : n + 5]) for n in range(0, 300, 5)]
        write(name, ["\n\n".join(paragraphs)])
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = [
        f"{n % 2}\t{n}\t{n}\t{sentences[n]}\t{sentences[n + 1]}"
        for n in range(12)
    ]
    for name in ("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv", "MRPC/dev.tsv"):
        write(name, [header, *rows])
    write(
        "glue/MRPC/test.tsv",
        [header.replace("Quality", "index"), *rows],
    )
    write("MRPC.tsv", ["index\tprediction", *(f"{n}\t1" for n in range(12))])
    question = {"id": "1", "question": "who", "is_impossible": True}
    paragraph = {"context": sentences[0], "qas": [question | {"answers": []}]}
    articles = {"version": "v2.0", "data": [{"paragraphs": [paragraph]}]}
    for name, content in (
        ("dev-v2.0", articles),
        ("predictions", {"1": ""}),
        ("null_odds", {"1": 0.5}),
    ):
        write(f"{name}.json", [json.dumps(content)])
    labelled = [f"{s}\t{'ab'[n % 2]}" for n, s in enumerate(sentences[:12])]
    for split in ("train", "dev"):
        write(f"mytask/{split}.tsv", ["text\tlabel", *labelled])
    write("texts.txt", sentences[:3])
    write("pairs.txt", [f"{s}\t{s}" for s in sentences[:2]])
    write("questions.txt", [f"who\t{sentence}" for sentence in sentences[:2]])


def smaller(program, arguments):
    """Returns a command's arguments for small data and few steps."""
    changed = []
    for argument in arguments:
        name = argument.partition("=")[0].lstrip("-")
        value = SMALLER.get(name)
        changed.append(argument if value is None else f"--{name}={value}")
    return [*changed, *BESIDE.get(program, [])]


@pytest.mark.slow
def test_blocks_run(tmp_path, sentences, tiny_tokenizer, monkeypatch):
    """Runs blocks in the documents' order, with what those before have made."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, sentences)
    save_squad_model(tmp_path / "runs/squad/model", tiny_tokenizer)
    ready = set()  # README and a page may show the same one
    for block in BLOCKS:
        if block.is_run and block.language == "python":
            run_python(block)
        for program, arguments in block.commands() if block.is_run else ():
            command = (program, *smaller(program, arguments))
            if command not in ready:
                done = run_program(*command)
                assert done.status == 0, (block.place, done.error, done.stderr)
            ready.add(command)


def run_python(block):
    with contextlib.ExitStack() as stack:
        for table in EXTENDED_TABLES:
            stack.enter_context(mock.patch.dict(table))
        exec(compile(block.text, block.place, "exec"), {})
