"""The recipe search: arithmetic of candidates, curves, who continues."""

import json
import math
import subprocess
import types
from typing import NamedTuple

import pytest
from program_runner import run_program

from albert_tf.config import PRESETS, PretrainConfig, UserError, override
from albert_tf.config.schedules import parse_schedule
from albert_tf.training.depth_schedule import DepthSchedule
from benchmarks import initialization, recipe, reproduce
from benchmarks.recipe import Candidate


def configured(row, flops, seed):
    return recipe.configuration(
        row, flops=flops, vocab_size=8000, seq_length=64, seed=seed
    )


@pytest.mark.parametrize(
    "name",
    ["lamb-0.01", "muon-deepening", "muon-batch-32", "muon-masking-falling"],
)
def test_candidates_do_the_same_arithmetic(name):
    row = recipe.CANDIDATES[name]
    config = configured(row, 30e12, seed=7)
    steps = config.training.num_train_steps
    depths = DepthSchedule(
        config.pretraining.depth_schedule, config.model.num_hidden_layers
    )
    masking = parse_schedule(
        "", config.pretraining.masking_schedule or "0:0.15", float, ""
    )
    total = sum(
        recipe.flops_per_step(
            config,
            64,
            depths.at(step),
            masking[max(start for start in masking if start <= step)],
        )
        for step in range(steps)
    )
    assert abs(total / 30e12 - 1) < 0.01
    assert steps == recipe.NUM_EVALUATIONS * config.training.eval_steps
    assert config.training.seed == 7


def test_depths_and_masking_may_change_at_different_times():
    row = Candidate(
        {"num_hidden_layers": 2},
        depths=((0.0, 1), (0.5, 2)),
        masking=((0.0, 0.4), (0.25, 0.2)),
        ngrams=((0.0, 1), (0.25, 3)),
    )
    config = configured(row, 1e13, seed=1)
    steps = [
        recipe.flops_per_step(config, 64, *stage)
        for stage in ((1, 0.4), (1, 0.2), (2, 0.2))
    ]
    second = round(0.25e13 / steps[0])
    third = second + round(0.25e13 / steps[1])
    settings = config.pretraining
    assert settings.masking_schedule == f"0:0.4,{second}:0.2"
    assert settings.ngram_schedule == f"0:1,{second}:3"
    assert settings.depth_schedule == f"0:1,{third}:2"


def test_the_better_half_continues_without_the_diverged():
    losses = {"a": 5.0, "b": 4.0, "c": math.inf, "d": 6.0, "e": 4.5}
    assert recipe.survivors(losses) == ["b", "e", "a"]
    assert recipe.survivors({"a": math.inf, "b": 3.0, "c": math.inf}) == ["b"]


def curve(*points):
    return [
        recipe.Point(flops, seconds, {"loss": loss})
        for flops, seconds, loss in points
    ]


def test_a_lead_is_interpolated():
    ours = curve((10, 1, 6.0), (20, 2, 5.0), (30, 3, 5.5), (40, 4, 3.0))
    theirs = curve((20, 1, 6.5), (40, 2, 6.0), (60, 3, 5.25))
    # At 20, 30 and 40: 1.5, 0.75 and 3.0. Theirs ends at 5.25, ours at 17.5.
    assert recipe.lead(ours, theirs, "loss", "flops") == recipe.Lead(
        share=pytest.approx(17.5 / 60), smallest=0.75, largest=3.0, last=3.0
    )
    # At 1, 2 and 3 seconds: 0.5, 1.0 and -0.25.
    assert recipe.lead(ours, theirs, "loss", "seconds") == recipe.Lead(
        share=pytest.approx(1.75 / 3), smallest=-0.25, largest=1.0, last=-0.25
    )
    assert recipe.lead(theirs, ours, "loss", "flops").share == math.inf


@pytest.mark.parametrize("name", recipe.PEERS)
def test_a_peer_does_the_arithmetic_of_the_tiny_preset(name):
    ours = configured(recipe.CANDIDATES["normuon-0.004"], 10e12, seed=3)
    theirs = configured(recipe.PEERS[name], 10e12, seed=3)
    assert ours.training == theirs.training
    assert ours.masking == theirs.masking
    unlike = {"initializer_range", "position_init"}
    for setting, value in vars(ours.model).items():
        assert setting in unlike or getattr(theirs.model, setting) == value
    tiny = override(PretrainConfig(), PRESETS["tiny"])
    for setting in ("optimizer", "learning_rate", "beta_2"):
        assert getattr(ours.optimizer, setting) == getattr(
            tiny.optimizer, setting
        )


def write_lines(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_curve_has_the_time_and_arithmetic_of_training(tmp_path):
    config = override(
        PretrainConfig(), {"train_batch_size": 8, "eval_steps": 10}
    )
    assert recipe.read_curve(str(tmp_path), config) == []
    timings = [
        {"step": s, "sequences_per_second": r, "flops_per_second": r * 100}
        # The second stop at step 20 is that of the resumed run.
        for s, r in ((10, 40.0), (20, 1.0), (20, 20.0))
    ]
    # Of a resumed run's first step alone.
    timings.append({"step": 30, "data_wait_share": 0.1})
    write_lines(tmp_path / "timing.jsonl", *timings)
    write_lines(
        tmp_path / "metrics.jsonl",
        {"step": 10, "split": "train", "loss": 9.5},
        {"step": 10, "split": "eval", "loss": 9.0},
        {"step": 20, "split": "eval", "loss": 8.0},
        {"step": 30, "split": "eval", "loss": 7.0},
    )
    curve = recipe.read_curve(str(tmp_path), config)
    assert [point.seconds for point in curve] == [2.0, 6.0, 10.0]
    assert [point.flops for point in curve] == [8000.0, 16000.0, 24000.0]
    assert [point.metrics["loss"] for point in curve] == [9.0, 8.0, 7.0]


def test_the_mean_of_the_seeds_decides_who_continues(monkeypatch):
    losses = {("even", 1): 5.0, ("even", 2): 5.0, ("lucky", 1): 4.0}
    trained = []

    class Run(NamedTuple):
        name: str
        seed: int

        def loss(self, rung):
            return losses.get(self, 7.0)

    flags = types.SimpleNamespace(candidates=["lucky", "even"], num_seeds=2)
    monkeypatch.setattr(reproduce, "FLAGS", flags)
    monkeypatch.setattr(reproduce, "_Run", Run)
    monkeypatch.setattr(reproduce, "_table", lambda runs, rung: "")
    monkeypatch.setattr(reproduce, "_write_record", lambda *record: None)
    monkeypatch.setattr(
        reproduce,
        "_train",
        lambda children, runs, rung: trained.append([*map(tuple, runs)]),
    )
    reproduce._search()
    even = [("even", 1), ("even", 2)]
    assert trained == [[("lucky", 1), ("lucky", 2), *even], even, even]


@pytest.mark.slow
def test_a_search_stops_and_resumes_runs(tmp_path, sentences, monkeypatch):
    monkeypatch.setattr(
        recipe,
        "CANDIDATES",
        {
            "trains": Candidate({"learning_rate": 0.003}),
            "diverges": Candidate({"learning_rate": 1e30}),
        },
    )
    monkeypatch.setattr(recipe, "RUNGS", (4, 16))
    monkeypatch.setattr(initialization, "DEPTHS", (1,))
    books = tmp_path / "books"
    books.mkdir()
    for number in range(40):
        part = sentences[number::40]
        (books / f"{number}.txt").write_text(" ".join(part))
    flags = (
        f"--input={books}",
        f"--run_dir={tmp_path / 'search'}",
        "--teraflops=0.1",
        "--vocab_size=120",
        "--max_seq_length=16",
        "--processes=2",
    )
    done = run_program("benchmarks.reproduce", *flags)
    assert done.status == 0, (done.error, done.stderr)
    lines = [
        json.loads(line)
        for line in (tmp_path / "search/results.jsonl").read_text().splitlines()
    ]
    assert [line["candidate"] for line in lines] == ["trains"] * 16
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert lines[-1]["flops"] == pytest.approx(0.1e12, rel=0.1)
    assert (tmp_path / "search/curves.png").read_bytes()[:4] == b"\x89PNG"
    flags = ("--table=initialization", *flags)
    done = run_program("benchmarks.reproduce", *flags)
    assert done.status == 0, (done.error, done.stderr)
    lines = (tmp_path / "search/initialization.jsonl").read_text().splitlines()
    assert [json.loads(line)["depth"] for line in lines] == 3 * [1]
    png = (tmp_path / "search/initialization.png").read_bytes()
    assert png[:4] == b"\x89PNG"


def test_an_unknown_candidate_is_refused_before_anything_is_made(tmp_path):
    run_dir = tmp_path / "search"
    flags = ("--input=books", f"--run_dir={run_dir}", "--candidates=muon")
    error = run_program("benchmarks.reproduce", *flags).error
    assert "candidates='muon' is not one of lamb-0.01, " in error
    assert not run_dir.exists()


def test_runs_of_other_settings_are_not_reported(tmp_path, monkeypatch):
    flags = types.SimpleNamespace(
        run_dir=str(tmp_path), teraflops=1.0, vocab_size=120, max_seq_length=16
    )
    monkeypatch.setattr(reproduce, "FLAGS", flags)
    (tmp_path / "runs").mkdir()
    run = reproduce._Run("lamb-0.01", 1)
    run.command()
    run.check()
    flags.teraflops = 2.0
    with pytest.raises(UserError, match="lamb-0.01-1.json: .*eval_steps: "):
        reproduce._train(None, [run], 4)


def test_a_run_ended_from_outside_ends_the_search(monkeypatch):
    monkeypatch.setattr(reproduce, "FLAGS", types.SimpleNamespace(processes=1))
    run = types.SimpleNamespace(
        check=lambda: None, loss=lambda rung: math.inf, command=lambda: ""
    )
    children = types.SimpleNamespace(
        start=lambda command: subprocess.Popen(["sh", "-c", "exit 143"])
    )
    with pytest.raises(SystemExit) as end:
        reproduce._train(children, [run], 1)
    assert end.value.code == 143
