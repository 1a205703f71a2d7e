"""The jobs that the rows of the paper's tables need."""

import dataclasses

import pytest

from albert_tf.config import (
    PRESETS,
    SHARING,
    PretrainConfig,
    UserError,
    override,
    to_dict,
)
from albert_tf.modeling.accounting import PAPER_TABLES, training_flops
from experiments.domain_words import check_domain_words
from experiments.estimate import hours_of, pretraining_flops
from experiments.plan import Planner, TaskData, Text
from experiments.scales import SCALES
from experiments.tables import TABLES
from experiments.units import KINDS, Job, Unit, in_order, pretraining_config

TEXT = Text("books", 8, "more", "medical")
TASKS = [TaskData("SST-2", "glue/SST-2"), TaskData("classification", "my/rows")]


def cells(name, scale="tiny", seeds=(1,), text=TEXT):
    planner = Planner(SCALES[scale], text, TASKS)
    return {
        (cell.row.name, cell.seed): cell
        for cell in planner.cells(TABLES[name], seeds)
    }


@pytest.mark.parametrize("name", TABLES)
def test_claims_are_contrasts_of_the_table_s_rows(name):
    rows = {row.name for row in TABLES[name].rows}
    assert len(rows) == len(TABLES[name].rows)
    for claim in TABLES[name].claims:
        assert set(claim.weights) <= rows
        assert sum(claim.weights.values()) == 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_counterpart_at_every_scale(name, scale):
    assert len(cells(name, scale)) == len(TABLES[name].rows)


def test_a_caption_has_the_numbers_of_the_scale():
    mini = dataclasses.replace(
        SCALES["mini"],
        settings={"num_hidden_layers": 5, "num_train_steps": 7000},
    )
    assert mini.caption.startswith(
        "Scale mini: 256 wide and 5 layers for the paper's 768 and 12, 7,000 "
        "steps of 64 sequences of 64 tokens. Except where "
    )
    assert SCALES["paper"].caption == (
        "Scale paper: the paper's own settings, 125,000 steps of 4,096 "
        "sequences of 512 tokens with LAMB at 0.00176."
    )


@pytest.mark.parametrize("name", ["embedding", "sharing", "parameters"])
def test_parameters_of_the_paper_s_scale_are_published(name):
    """But for xlarge and xxlarge, which the paper miscounts."""
    readings = {
        (p.model.hidden_size, p.model.embedding_size, p.model.sharing): p
        for table in PAPER_TABLES.values()
        for p in table
    }
    for cell in cells(name, "paper").values():
        model = pretraining_config(cell.pretraining).model
        key = model.hidden_size, model.embedding_size, model.sharing
        published = readings[key].millions
        assert cell.row.published["million parameters"] == published


def test_tables_share_what_is_equal():
    sharing, embedding = cells("sharing"), cells("embedding")
    for name in ("all-shared E=128", "not-shared E=768"):
        ours, theirs = sharing[name, 1], embedding[name, 1]
        assert [u.name for u in ours.units] == [u.name for u in theirs.units]
    base = cells("objective")["SOP", 1]
    assert (
        base.pretraining.name == sharing["all-shared E=128", 1].pretraining.name
    )


def test_seeds_share_data_and_nothing_else():
    table = cells("objective", seeds=(1, 2))
    first, second = (table["SOP", seed] for seed in (1, 2))
    assert first.pretraining.needs == second.pretraining.needs
    assert not {u.name for u in first.units} & {u.name for u in second.units}
    assert pretraining_config(second.pretraining).training.seed == 2


def test_sharing_modes_are_all_there():
    modes = {
        pretraining_config(cell.pretraining).model.sharing
        for cell in cells("sharing").values()
    }
    assert modes == set(SHARING)


def test_an_objective_is_that_of_the_shards():
    table = cells("objective")
    for name, objective in (("none", "none"), ("NSP", "nsp"), ("SOP", "sop")):
        shards = table[name, 1].pretraining.needs["shards"]
        assert shards.settings["sentence_objective"] == objective
    measured = table["none", 1].measures
    assert {
        name: measured[name].needs["shards"].settings["sentence_objective"]
        for name in ("nsp", "sop")
    } == {"nsp": "nsp", "sop": "sop"}


def test_next_sentences_are_told_from_segments_of_either_split():
    measured = cells("objective")["SOP", 1].measures
    for name, split in (("nsp_training", "train"), ("nsp_held_out", "eval")):
        pairs = measured[name].needs["shards"]
        assert pairs.settings == {"split": split}
        assert pairs.needs["shards"] == measured["nsp"].needs["shards"]


def test_arithmetic_follows_the_schedules():
    changes = {
        "num_hidden_layers": 2,
        "depth_schedule": "0:1,3:2",
        "masking_schedule": "0:0.5,2:0.25",
        "max_position_embeddings": 16,
        "train_batch_size": 4,
        "num_train_steps": 9,
    }
    config = override(PretrainConfig(), changes)
    steps = [
        training_flops(
            config.model,
            batch_size=4,
            seq_length=16,
            num_predictions=predictions,
            read_positions_only=True,
            num_applications=depth,
        )
        for depth, predictions in ((1, 8), (1, 8), (1, 4), (2, 4), (2, 4))
    ]
    for number in (1, 2, 3, 5):
        assert pretraining_flops(config, number) == sum(steps[:number])
    assert pretraining_flops(config) == sum(steps) + 4 * steps[-1]


@pytest.mark.parametrize("name", ["time", "recipe", "peers"])
def test_equal_work_is_equal(name):
    table = cells(name)
    flops = {
        row: pretraining_flops(pretraining_config(cell.pretraining))
        for (row, _), cell in table.items()
    }
    (reference,) = {c.row.equal_work for c in table.values()} - {""}
    for row in flops:
        assert flops[row] == pytest.approx(flops[reference], rel=0.01), row


@pytest.mark.parametrize(
    "name,row",
    [("time", "ALBERT xxlarge"), ("recipe", "normuon-wide-embeddings")],
)
def test_schedules_have_their_shares_of_the_training(name, row):
    config = pretraining_config(cells(name)[row, 1].pretraining)
    steps = config.training.num_train_steps
    assert steps < 1500
    stages = [
        s.split(":") for s in config.pretraining.masking_schedule.split(",")
    ]
    assert int(stages[1][0]) / steps == pytest.approx(0.6, rel=0.01)


def test_a_peer_differs_from_the_tiny_preset_in_its_recipe_alone():
    """The same batches, masks and architecture; and ours has its optimizer."""
    ours, *peers = (
        pretraining_config(cell.pretraining) for cell in cells("peers").values()
    )
    for peer in peers:
        assert peer.training == ours.training
        assert peer.masking == ours.masking
        unlike = {"initializer_range", "position_init"}
        for setting, value in vars(ours.model).items():
            assert setting in unlike or getattr(peer.model, setting) == value
    tiny = override(PretrainConfig(), PRESETS["tiny"])
    assert ours.optimizer == tiny.optimizer


def test_untrained_models_are_measured_and_nothing_else():
    for cell in cells("initialization").values():
        (unit,) = cell.units
        assert [need.kind for need in unit.needs.values()] == ["shards"]
    assert not [c for c in cells("parameters").values() if c.units]


def test_additional_text_is_added():
    table = cells("data")
    texts = [
        table[name, 1].pretraining.needs["shards"].settings["input"]
        for name in ("no additional data", "with additional data")
    ]
    assert texts == ["books", "books,more"]


def test_hard_examples_are_those_of_the_model_that_is_trained_on(tmp_path):
    table = cells("hard_examples")
    before, even, hard = (
        table[name, 1].pretraining
        for name in ("before", "all words alike", "hard examples")
    )
    assert hard.settings == even.settings
    assert even.needs.keys() == {"shards", "init_from"}
    weights = hard.needs["weights"]
    assert weights.needs["pretraining"].name == before.name
    (tmp_path / hard.name).mkdir()
    job = Job(hard, lambda unit: str(tmp_path / unit.name))
    command = KINDS["pretraining"].command(job)
    path = tmp_path / weights.name / "output"
    assert f"--masking_weights={path}" in command


def test_longer_sequences_have_as_many_tokens_a_step(tmp_path):
    everywhere, local = (
        cells("local_attention")[f"{name}, 512 tokens", 1].pretraining
        for name in ("attention to all", "local attention")
    )
    assert everywhere.settings["config"] == local.settings["config"]
    config = pretraining_config(local)
    assert config.model.max_position_embeddings == 512
    assert config.training.train_batch_size == 64 * 64 // 512
    assert local.needs["shards"].settings["max_seq_length"] == 512
    (tmp_path / local.name).mkdir()
    job = Job(local, lambda unit: str(tmp_path / unit.name))
    command = KINDS["pretraining"].command(job)
    assert "--import=experiments.local_attention" in command


def test_a_unit_keeps_its_name_when_there_is_one_more_setting():
    config = to_dict(PretrainConfig())

    def name(**changes):
        training = {**config["training"], **changes}
        settings = {**config, "training": training}
        return Unit("pretraining", {"config": settings}).name

    all_settings = name()
    assert name(seed=99) != all_settings
    del config["training"]["seed"]
    assert name() == all_settings


@pytest.mark.parametrize("name", ["data", "domain"])
def test_text_that_a_table_needs_is_demanded(name):
    flag = {"data": "--additional_input", "domain": "--domain_input"}[name]
    with pytest.raises(UserError, match=f"give it with {flag}"):
        cells(name, text=Text("books"))


def test_adaptation_begins_with_the_general_model():
    table = cells("domain")
    general = table["no adaptation", 1].pretraining
    needs = {name: c.pretraining.needs for (name, _), c in table.items()}
    assert needs["adaptation"]["init_from"].name == general.name
    extension = needs["adaptation with new vocabulary"]["init_from"]
    assert extension.needs["pretraining"].name == general.name
    assert extension.settings == {
        "input": "medical",
        "skip_header_lines": 0,
        "num_new_tokens": 4000,
    }
    assert "init_from" not in needs["from scratch"]
    assert {
        name: (unit["shards"].settings["input"], vocabulary_of(unit["shards"]))
        for name, unit in needs.items()
    } == {
        "no adaptation": ("books", "books"),
        "longer on general text": ("books", "books"),
        "adaptation": ("medical", "books"),
        "adaptation with new vocabulary": ("medical", extension.name),
        "from scratch": ("medical", "medical"),
    }


def vocabulary_of(shards):
    """Returns the text of the vocabulary, or the name of the extension."""
    unit = shards.needs["vocabulary"]
    return unit.settings["input"] if unit.kind == "vocabulary" else unit.name


def test_rows_of_adaptation_have_equal_arithmetic():
    work = {
        name: pretraining_flops(pretraining_config(cell.pretraining))
        for (name, _), cell in cells("domain").items()
    }
    start = work.pop("no adaptation")
    scratch = work.pop("from scratch")
    assert scratch == pytest.approx(1.5 * start, rel=0.01)
    for continued in work.values():
        assert start + continued == pytest.approx(scratch, rel=0.01)


def test_adaptation_does_not_begin_its_schedules_again():
    config = pretraining_config(cells("domain")["adaptation", 1].pretraining)
    assert config.pretraining.masking_schedule == "0:0.2"
    assert config.pretraining.ngram_schedule == "0:3"
    assert config.optimizer.learning_rate == pytest.approx(0.004 * 2 / 3)
    assert config.optimizer.num_warmup_steps == 53


def test_models_read_held_out_text_with_their_own_vocabulary():
    table = cells("domain", seeds=(1, 2))
    for cell in table.values():
        own = cell.pretraining.needs["shards"].needs["vocabulary"]
        for name, text in (("domain", "medical"), ("general", "books")):
            shards = cell.measures[name].needs["shards"]
            assert shards.settings["input"] == text
            assert shards.needs["vocabulary"].name == own.name
    first, second = (
        table["adaptation with new vocabulary", seed].pretraining.needs
        for seed in (1, 2)
    )
    assert first["shards"].name == second["shards"].name
    assert first["init_from"].name != second["init_from"].name


def test_a_domain_without_enough_new_words_is_refused(tiny_tokenizer, tmp_path):
    tokenizer_dir, text = tmp_path / "vocabulary", tmp_path / "domain.txt"
    tiny_tokenizer.save(str(tokenizer_dir))
    text.write_text("Xyzzyq qwoplz xyzzyq. " * 3 + "Once: vwxkjz.")
    settings = {"input": str(text), "skip_header_lines": 0}

    def check(number):
        unit = Unit("extension", {**settings, "num_new_tokens": number})
        check_domain_words(unit, str(tokenizer_dir))

    check(2)
    message = f"--domain_input={text}: expected 3 words .*, got 2; give more"
    with pytest.raises(UserError, match=message):
        check(3)


def test_commands_name_the_model_to_begin_with():
    cell = cells("domain")["adaptation with new vocabulary", 1]
    extension = cell.pretraining.needs["init_from"]
    job = Job(extension, lambda unit: unit.kind)
    assert KINDS["extension"].command(job) == [
        "bin.extend_vocab",
        "--input=medical",
        "--skip_header_lines=0",
        "--model_dir=pretraining/output",
        "--num_new_tokens=4000",
        "--output_dir=extension/output",
    ]


def test_what_a_unit_needs_comes_before_it():
    units = [u for cell in cells("objective").values() for u in cell.units]
    ordered = in_order(units)
    places = {unit.name: place for place, unit in enumerate(ordered)}
    assert len(places) == len(ordered)
    for unit in ordered:
        for need in unit.needs.values():
            assert places[need.name] < places[unit.name]


def test_tasks_of_users_are_named_by_their_directory():
    assert list(cells("sharing")["all-shared E=128", 1].tasks) == [
        "SST-2",
        "rows",
    ]


def test_a_row_without_counterpart_is_left_out():
    scale = dataclasses.replace(
        SCALES["tiny"], numbers={"num_hidden_layers": {1: 1, 3: 2}}
    )
    found = Planner(scale, Text("books")).cells(TABLES["depth"], [1])
    assert [cell.row.name for cell in found] == ["layers=1", "layers=3"]


@pytest.mark.parametrize(
    ("name", "width", "total"),
    [("ALBERT base", 768, 1.406e20), ("ALBERT xxlarge", 4096, 3.652e21)],
)
def test_arithmetic_of_the_paper_is_that_by_hand(name, width, total):
    """125,000 steps of 4,096 sequences of 512 tokens, 77 of them masked."""
    length, layers, embedding, vocab = 512, 12, 128, 30_000
    attention = 4 * length * width
    block = 24 * width**2 + attention
    # The last one has keys and values of all, the rest of what heads read.
    last = 4 * width**2 * length + 78 * (20 * width**2 + attention)
    heads = 77 * 2 * embedding * (width + vocab) + 2 * width**2
    projection = 2 * embedding * width
    tokens = length * (projection + (layers - 1) * block)
    by_hand = 3 * 125_000 * 4096 * (tokens + last + heads)
    cell = cells("bert", scale="paper")[name, 1]
    flops = pretraining_flops(pretraining_config(cell.pretraining))
    assert flops == pytest.approx(by_hand, rel=1e-5)
    assert flops == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("8 H100", 8 * 989e12),
        ("TPU v5e-256", 256 * 197e12),
        # 512 cores.
        ("TPU v3-512", 512 * 61.5e12),
    ],
)
def test_hours_are_those_of_the_arithmetic(name, peak):
    assert hours_of(peak * 0.35 * 3600)[name] == pytest.approx(1)
