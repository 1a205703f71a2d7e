"""The step as a program for other devices, and the report of what it takes."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf
from program_runner import run_program

from benchmarks.devices import chips, report
from benchmarks.devices.run_step import Program, needed_and_available
from benchmarks.devices.step_program import CHECKED_STEPS, write_step_program
from benchmarks.training_probe import make_probe
from benchmarks.workload import random_batch


@pytest.fixture(scope="module")
def program(tmp_path_factory, work):
    directory = str(tmp_path_factory.mktemp("step"))
    write_step_program(work, directory, with_state=True)
    return Program(directory)


@pytest.fixture(scope="module")
def of_four(tmp_path_factory, work):
    """A program of four replicas, without the values of its variables."""
    directory = str(tmp_path_factory.mktemp("step"))
    write_step_program(work, directory, num_replicas=4)
    return Program(directory)


@pytest.mark.slow
def test_the_directory_has_what_the_step_takes_in_its_order(program):
    arguments = program.arguments()
    declared = program.text.split("@main(")[1].split("->")[0]
    for number, argument in enumerate(arguments):
        shape = "x".join([*map(str, argument.shape), ""])
        kind = {"f": "f", "i": "i"}[argument.dtype.kind]
        bits = 8 * argument.dtype.itemsize
        assert f"%arg{number}: tensor<{shape}{kind}{bits}>" in declared
    assert f"%arg{len(arguments)}" not in declared


@pytest.mark.slow
def test_the_first_scalars_are_those_of_training(program, work):
    trainer = make_probe(work)
    found = program.scalars()
    names = program.description["scalars"]
    assert found.shape == (CHECKED_STEPS, len(names))
    for step in found:
        expected = tf.nest.flatten(trainer.train_steps([random_batch(work)])[0])
        for name, *values in zip(names, step, expected, strict=True):
            assert values[0] == pytest.approx(values[1], rel=1e-4), name


@pytest.mark.slow
def test_new_weights_and_moments_replace_the_old(program):
    replaced = program.replaced()
    arguments = program.arguments()
    variables = [
        number
        for number, v in enumerate(program.description["state"])
        if v["name"]
    ]
    first = len(arguments) - len(program.description["state"])
    # All but the rate, which the trainer computes.
    assert set(replaced.values()) <= {first + n for n in variables}
    assert len(replaced) >= len(variables) - 1


@pytest.mark.slow
def test_unwritten_values_are_of_the_variables_mean_and_deviation(of_four):
    assert of_four.scalars() is None
    for variable, value in zip(
        of_four.description["state"][::-1],
        of_four.arguments()[::-1],
        strict=False,
    ):
        assert value.dtype == variable["dtype"]
        assert list(value.shape) == variable["shape"]
        if value.size > 1000:
            assert value.mean() == pytest.approx(variable["mean"], abs=0.01)
            assert value.std() == pytest.approx(variable["deviation"], rel=0.1)


@pytest.mark.slow
def test_replicas_add_up_every_gradient(of_four, work):
    model = make_probe(work).model
    gradients = 4 * sum(int(np.prod(v.shape)) for v in model.trainable_weights)
    scalars = of_four.reduced_bytes() - gradients
    assert 0 < scalars < 100
    assert "replica_groups = dense<[[0, 1, 2, 3]]>" in of_four.text


def test_the_bound_is_the_slower_of_arithmetic_and_memory():
    chip = chips.CHIPS["v5e"]
    assert chips.step_seconds(chip, 197e12, 0.5 * 819e9) == pytest.approx(1)
    assert chips.step_seconds(chip, 1e12, 2 * 819e9) == pytest.approx(2)


def test_a_sum_goes_around_the_ring_twice():
    # Each of four chips sends three quarters of the bytes, and once more.
    seconds = chips.all_reduce_seconds(chips.CHIPS["v5e"], 200e9, 4)
    assert seconds == pytest.approx(1.5)
    assert chips.all_reduce_seconds(chips.CHIPS["v5e"], 200e9, 1) == 0


@pytest.mark.parametrize(
    ("message", "sizes"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used "
            "17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G.",
            [17.5 * 2**30, 15.75 * 2**30],
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: the total memory "
            "required for HLO temporaries (16.50G) exceeds available HBM "
            "(512.00M).",
            [16.5 * 2**30, 2**29],
        ),
        ("INVALID_ARGUMENT: 17.50G of 15.75G", []),
    ],
)
def test_a_compilers_message_says_what_does_not_fit(message, sizes):
    assert needed_and_available(message) == sizes


@pytest.mark.parametrize("start", [8, 64, 1000])
@pytest.mark.parametrize(("fixed", "largest"), [(1.0, 144), (15.99, 0)])
def test_the_largest_batch_takes_few_programs(start, fixed, largest):
    asked = []

    def measure(batch_size):
        asked.append(batch_size)
        # Not quite linear, as compilers pad.
        size = fixed + 0.1 * batch_size + 0.2 * (batch_size // 32 % 2)
        return {
            "fits": size <= 16,
            "memory_bytes": size,
            "capacity_bytes": 16,
        }

    assert report.largest_batch(measure, start) == largest
    assert len(asked) <= 7


def test_a_larger_batch_may_take_no_more_memory():
    def measure(batch_size):
        size = 12 if batch_size <= 88 else 17
        return {
            "fits": size <= 16,
            "memory_bytes": size,
            "capacity_bytes": 16,
        }

    assert report.largest_batch(measure, 64) == 88


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--chips=v5e,v9"],
            "chips='v9' is not one of v4, v5e, v5p, v6e, a100, l4",
        ),
        (
            ["--preset=tiny", "--max_seq_length=256"],
            "--max_seq_length=256 is more than the 128 tokens that "
            "--preset=tiny reads.",
        ),
        (["--with_state"], "--with_state is for --program_dir"),
        (
            ["--program_dir=step", "--num_chips=4"],
            "--program_dir writes the step of --batch_size on one chip",
        ),
    ],
)
def test_mistakes_are_reported_in_one_line(flags, message):
    error = run_program("benchmarks.devices.report", *flags).error
    assert error.startswith(f"report: {message}")


def test_an_unknown_form_of_attention_is_refused():
    flags = ("--forms=plain,pallass",)
    error = run_program("benchmarks.devices.run_attention", *flags).error
    assert error.startswith("run_attention: forms='pallass' is not one of")


@pytest.mark.parametrize(
    ("chip", "message"),
    [
        ("v5e", "libtpu, not installed here: pip install -r requirements-dev"),
        ("h100", "jax_cuda12_plugin or jax_cuda13_plugin, not .* 'jax.cuda12]"),
    ],
)
def test_missing_compilers_are_named(monkeypatch, chip, message):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    error = run_program("benchmarks.devices.report", f"--chips={chip}").error
    assert re.search(f"--chips={chip} needs jax and {message}", error)


def test_rows_are_printed_and_written(tmp_path, monkeypatch):
    """The compiler's part is played: a row that fits and one that does not."""
    answers = iter(
        [
            {
                "fits": True,
                "memory_bytes": 2**34,
                "flops": 19.7e12,
                "bytes_accessed": 81.9e9,
                "reduced_bytes": 2**20,
            },
            {"fits": False, "memory_bytes": 2**35, "capacity_bytes": 2**34},
            # The compiler of GPUs does not compare.
            {"fits": True, "memory_bytes": 2**36},
        ]
    )

    def run(command, **_):
        done = report.subprocess.CompletedProcess(command, 0)
        done.stdout, done.stderr = json.dumps(next(answers)) + "\n", ""
        return done

    monkeypatch.setattr(report, "_require_compiler", lambda name: None)
    monkeypatch.setattr(report, "_write", lambda *_: None)
    monkeypatch.setattr(report.subprocess, "run", run)
    output = tmp_path / "report.json"
    flags = ("--chips=v5e,v4,l4", "--batch_size=8", f"--output={output}")
    done = run_program("benchmarks.devices.report", *flags)
    assert "16.00 GiB, 19.70 TFLOP, 76 GiB read and written" in done.stdout
    assert "at least 100.0 ms: at most 80 sequences a second" in done.stdout
    assert "v4 x 1: base, 8 x 512" in done.stdout
    assert "does not fit, it needs 32.00 GiB" in done.stdout
    rows = json.loads(output.read_text())["results"]
    assert "l4 x 1: base" in done.stdout and "needs 64.00 GiB" in done.stdout
    assert [row["fits"] for row in rows] == [True, False, False]
    assert rows[0]["bound_seconds"] == pytest.approx(0.1)
