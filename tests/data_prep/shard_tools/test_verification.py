import contextlib
import dataclasses
import functools
import hashlib
import json
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretraining_runs import serialize

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    to_dict,
)
from albert_tf.io.json_files import write_json
from albert_tf.records.invariants import INVARIANTS, invariants_for
from albert_tf.records.parsed_batch import ParsedBatch, RecordRules
from albert_tf.records.schemas import RECORD_SPECS, parse_batch
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import describe_tokenizer, shard_name, write_shard
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import (
    RecordMaker,
    num_slots,
)
from data_prep.shard_tools.verification import (
    CHECKSUMS,
    SCHEMA,
    SHARDS,
    SHARES,
    STATISTICS,
    STRAY_SHARDS,
    TOKENIZER,
    Failures,
    VerificationReport,
    verify_directory,
)

LENGTH, SLOTS = 40, 6
CONFIG = PretrainingDataConfig(
    max_seq_length=LENGTH, short_seq_prob=0.3, sentence_splitter="newline"
)
MASKING = MaskingConfig()


def make_records(documents, tokenizer, config, masking=MASKING):
    """Serialised records of lists of sentences, and what was counted."""
    maker = RecordMaker(tokenizer, NewlineSplitter(), config, masking)
    unit = [
        UnitDocument("train", "train", f"{n}", ("\n".join(lines),))
        for n, lines in enumerate(documents)
    ]
    counts = Counter()
    batches = list(maker(unit, counts))
    return [r for b in batches for r in b.serialized], {
        name.removeprefix("train/"): count for name, count in counts.items()
    }


def rules_of(tokenizer, config, masking=MASKING):
    return RecordRules(
        config.record_kind,
        SENTENCE_OBJECTIVES[config.sentence_objective],
        config.max_seq_length,
        num_slots(config, masking),
        masking,
        tokenizer,
    )


def parse(records, config, masking=MASKING):
    return parse_batch(
        RECORD_SPECS[config.record_kind],
        records,
        max_seq_length=config.max_seq_length,
        num_slots=num_slots(config, masking),
    )


def config_for(kind, objective="sop"):
    return dataclasses.replace(
        CONFIG, record_kind=kind, sentence_objective=objective
    )


@pytest.fixture(scope="module")
def good(sentences, tiny_tokenizer):
    """Records and counts by kind and objective, made once."""
    documents = [sentences[i : i + 100] for i in range(0, 800, 100)]
    made = {}

    def get(kind, objective="sop"):
        if (kind, objective) not in made:
            made[kind, objective] = make_records(
                documents, tiny_tokenizer, config_for(kind, objective)
            )
        return made[kind, objective]

    return get


@pytest.fixture
def write(tmp_path, tiny_directory, tiny_tokenizer):
    """Writes records as a directory of three shards; keywords: metadata."""

    def call(records, kind, objective="sop", *, statistics=None, **changes):
        config = config_for(kind, objective)
        shutil.copytree(tiny_directory, tmp_path / "tokenizer")
        parts = [records[0::3], records[1::3], records[2::3]]
        shards = [
            write_shard(tmp_path / shard_name("train", n, 3), part)
            for n, part in enumerate(parts)
        ]
        account = {
            "num_records": len(records),
            "shards": [dataclasses.asdict(shard) for shard in shards],
        }
        described = {"data": to_dict(config)}
        if kind == "static":
            described["masking"] = to_dict(MASKING)
        metadata = {
            "format_version": 1,
            "record_kind": kind,
            "sentence_objective": objective,
            "max_seq_length": LENGTH,
            "num_slots": num_slots(config, MASKING),
            "tokenizer": describe_tokenizer(tiny_tokenizer),
            "splits": {"train": account},
            "statistics": {"train": statistics or {}},
            "settings": described,
        }
        write_json(tmp_path / "metadata.json", metadata | changes)
        return tmp_path

    return call


def change_metadata(directory, change):
    path = directory / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    write_json(path, metadata)


@pytest.mark.parametrize(
    ("kind", "objective"),
    [("dynamic", "sop"), ("static", "nsp"), ("static", "none")],
)
def test_nothing_is_wrong_with_good_records(good, write, kind, objective):
    records, counts = good(kind, objective)
    assert len(records) > 200
    shown = []

    @contextlib.contextmanager
    def progress(unit):
        assert unit == "records"
        yield lambda *done: shown.append(done)

    directory = write(records, kind, objective, statistics=counts)
    report = verify_directory(directory, progress)
    assert report.ok, report.lines()
    assert not report.differences
    assert report.num_records == {"train": len(records)}
    assert shown[-1] == (len(records), len(records))
    expected = [row.name for row in INVARIANTS if kind in row.kinds]
    assert [n for n in report.checks if n in expected] == expected
    lines = report.lines()
    assert lines[-1] == f"All {len(set(report.checks))} checks have passed."
    assert all(f"ok: {name}." in lines for name in expected)


def changed(records, kind, change):
    """Returns records whose arrays `change` has altered, all at once."""
    batch = parse(records, config_for(kind))
    change(batch)
    lengths = batch["input_mask"].sum(axis=1)
    examples = [
        {name: np.atleast_1d(values[row]) for name, values in batch.items()}
        for row in range(len(records))
    ]
    if kind == "dynamic":
        for example, length in zip(examples, lengths, strict=True):
            del example["input_mask"]
            for name, values in example.items():
                example[name] = values[:length]
    return [serialize(RECORD_SPECS[kind], example) for example in examples]


def test_a_wrong_record_is_named_by_its_number_in_its_shard(good, write):
    def halve(batch):
        batch["masked_lm_weights"][450, 0] = 0.5

    records = changed(good("static")[0] * 3, "static", halve)
    report = verify_directory(write(records, "static"))
    name = "weights are ones, then zeros"
    assert report.failures.counts == {name: 1}
    ((example,),) = report.failures.examples.values()
    assert example.endswith(
        "train-00000-of-00003.tfrecord, record 150: at 0: masked_lm_weights 0.5"
    )
    assert f"FAILED: {name}: 1 times." in report.lines()
    assert report.lines()[-1].startswith("1 of ")


def test_ten_examples_are_shown_and_all_failures_counted():
    failures, more = Failures(), Failures()
    for number in range(3):
        failures.add("a", [f"{number}-{i}" for i in range(4)], 4)
    more.add("a", ["last"])
    more.add("b", ["other"])
    failures.merge(more)
    assert failures.counts == {"a": 13, "b": 1}
    expected = [f"{number}-{i}" for number in range(3) for i in range(4)]
    assert failures.examples == {"a": expected[:10], "b": ["other"]}
    report = VerificationReport("d", checks=["a", "b"], failures=failures)
    assert "FAILED: a: 13 times." in report.lines()
    assert "  ... and 3 more" in report.lines()


# Files, and the directory as a whole.


def test_records_of_another_form(good, write):
    records = list(good("dynamic")[0][:30])
    spec = RECORD_SPECS["dynamic"]
    ids = [2, *[20] * LENGTH, 3]
    records[4] = b"not a message"
    records[10] = serialize(
        spec,
        {
            "input_ids": ids,
            "segment_ids": ids,
            "word_starts": ids,
            "sentence_order_label": [0],
        },
    )
    report = verify_directory(write(records, "dynamic"))
    assert report.failures.counts == {SCHEMA: 2}
    examples = report.failures.examples[SCHEMA]
    assert "00001-of-00003.tfrecord, record 1 is not a dynamic" in examples[0]
    assert "record 3 has 42 tokens; at most" in examples[1]


def another_file(directory):
    write_shard(directory / shard_name("train", 1, 3), [])


def missing_shard(directory):
    (directory / shard_name("train", 0, 3)).unlink()


def other_name(directory):
    (directory / shard_name("train", 1, 3)).rename(directory / "b.tfrecord")
    change_metadata(
        directory,
        lambda m: m["splits"]["train"]["shards"][1].update(name="b.tfrecord"),
    )


def stray_shard(directory):
    (directory / "train-00003-of-00004.tfrecord").touch()


def wrong_checksum(directory):
    """In a file with the right sha256."""
    path = directory / shard_name("train", 2, 3)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    change_metadata(
        directory,
        lambda m: m["splits"]["train"]["shards"][2].update(sha256=digest),
    )


def other_tokenizer(directory):
    change_metadata(directory, lambda m: m["tokenizer"].update(unk_id=9))


@pytest.mark.parametrize(
    ("damage", "failed", "example", "num_records"),
    [
        (another_file, {SHARDS}, "train-00001-of-00003.tfrecord has", 20),
        (missing_shard, {SHARDS, CHECKSUMS}, "No such file", 20),
        (other_name, {SHARDS}, "'b.tfrecord' in", 30),
        (stray_shard, {STRAY_SHARDS}, "train-00003-of-00004.tfrecord", 30),
        # What comes before the damage is checked.
        (wrong_checksum, {CHECKSUMS}, "record 9 at byte", 29),
        (other_tokenizer, {TOKENIZER}, "unk_id: 1 in tokenizer, 9", 30),
    ],
)
def test_files_that_are_not_as_metadata_says(
    good, write, damage, failed, example, num_records
):
    directory = write(good("dynamic")[0][:30], "dynamic")
    damage(directory)
    report = verify_directory(directory)
    assert report.failures.counts == dict.fromkeys(failed, 1)
    assert example in str(report.failures.examples)
    assert report.num_records == {"train": num_records}


def test_counts_that_are_not_those_of_the_records(good, write):
    records, counts = good("static")
    names = ["instances", "instance_tokens", "label_1", "masked_tokens"]
    names += [f"masked_tokens/as_{how}" for how in ("mask", "is", "random")]
    wrong = {name: counts[name] + 1 for name in names}
    report = verify_directory(write(records, "static", statistics=wrong))
    assert report.failures.counts == {STATISTICS: 7}
    for name, example in zip(
        names, report.failures.examples[STATISTICS], strict=True
    ):
        assert example.startswith(f"train: {name} {wrong[name]} in metadata")


def replace_kept(tokenizer, batch):
    """Makes every token that stays one of two others."""
    rows = np.arange(len(batch["input_ids"]))[:, None]
    shown = batch["input_ids"][rows, batch["masked_lm_positions"]]
    is_kept = batch["masked_lm_weights"] > 0
    is_kept &= shown == batch["masked_lm_ids"]
    row, slot = np.nonzero(is_kept)
    other = tokenizer.replacement_ids[:2]
    ids = batch["masked_lm_ids"][row, slot]
    batch["input_ids"][row, batch["masked_lm_positions"][row, slot]] = np.where(
        ids == other[0], other[1], other[0]
    )


def replace_masks(tokenizer, batch):
    """Makes every fourth [MASK] a random piece."""
    shown = (batch["input_ids"] == tokenizer.mask_id).nonzero()
    batch["input_ids"][shown[0][::4], shown[1][::4]] = (
        tokenizer.replacement_ids[0]
    )


@pytest.mark.parametrize(
    ("change", "failed", "example"),
    [
        (replace_kept, {1, 2}, "stay: 0.0000% of"),
        (replace_masks, {0, 2}, "are [MASK]: "),
    ],
)
def test_shares_that_chance_does_not_explain(
    good, write, tiny_tokenizer, change, failed, example
):
    change = functools.partial(change, tiny_tokenizer)
    records = changed(good("static")[0], "static", change)
    report = verify_directory(write(records, "static"))
    names = {SHARES[number].name for number in failed}
    assert set(report.failures.counts) == names
    assert example in str(report.failures.examples)


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_labels_out_of_balance(good, write, objective):
    def one_label(batch):
        batch["sentence_order_label"][: len(batch["input_ids"]) // 2] = 0

    records = changed(good("dynamic", objective)[0], "dynamic", one_label)
    directory = write(records, "dynamic", objective)
    report = verify_directory(directory)
    assert report.failures.counts == {SHARES[3].name: 1}
    # Unless they were drawn as 1 where no other document was to be had.
    batch = parse(records, config_for("dynamic"))
    zeros = int((batch["sentence_order_label"] == 0).sum())
    in_vain = zeros - len(records) // 2
    change_metadata(
        directory,
        lambda m: m["statistics"]["train"].update(
            without_other_document=in_vain
        ),
    )
    assert verify_directory(directory).ok


def test_few_records_are_not_judged_by_chance(good, write):
    records = good("static")[0][:100]
    report = verify_directory(write(records, "static"))
    assert report.ok
    assert sum("too few to judge" in r for r in report.notes) == 4
    assert not {share.name for share in SHARES} & set(report.checks)


def test_repeated_records_are_counted_and_not_judged(good, write):
    records = good("dynamic")[0][:30]
    report = verify_directory(write([*records, *records[:4]], "dynamic"))
    assert report.ok
    assert any("4 of 34 records repeat" in line for line in report.lines())


@pytest.mark.parametrize("label", [1, 2])
def test_imported_records_may_differ_where_the_original_does(
    good, write, tiny_tokenizer, label
):
    def change(batch):
        ids, positions = batch["input_ids"], batch["masked_lm_positions"]
        ids[0, positions[0, 0]] = tiny_tokenizer.sep_id
        batch["masked_lm_ids"][1, 0] = tiny_tokenizer.unk_id
        batch["token_boundary"][1, positions[1, 0]] = 1
        # Less than the budget, which imports do not tell.
        used = batch["masked_lm_weights"][2] > 0
        ids[2, positions[2, used]] = batch["masked_lm_ids"][2, used]
        for name in ("positions", "ids", "weights"):
            batch[f"masked_lm_{name}"][2] = 0
        batch["sentence_order_label"][3] = label

    records = changed(good("static")[0][:150], "static", change)
    imported = {"imported_files": {"train": ["a"]}}
    report = verify_directory(write(records, "static", settings=imported))
    assert sorted(report.differences) == [
        "no <unk> is masked",
        "random replacements are pieces that text can hold",
    ]
    # A label that no objective has is wrong in any records.
    assert report.ok is (label == 1)
    lines = report.lines()
    assert "differs from ours: no <unk> is masked: 1 times." in lines
    assert any(line.startswith("Not judged: budgets") for line in lines)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("num_slots"), "metadata.json has no 'num_slots'"),
        (lambda m: m.update(record_kind="x"), "record_kind='x' is not one of"),
        (
            lambda m: m["splits"]["train"]["shards"][0].pop("sha256"),
            "metadata.json does not name the shards",
        ),
    ],
)
def test_metadata_that_cannot_be_used(good, write, change, message):
    directory = write(good("dynamic")[0][:9], "dynamic")
    change_metadata(directory, change)
    with pytest.raises(UserError, match=message):
        verify_directory(directory)
    with pytest.raises(UserError, match="has no metadata.json"):
        verify_directory(directory / "tokenizer")


WORDS = st.sampled_from(
    ["the", "cat", "bazo", "sulimé", "of", "1,234", "(kapo)", "zz", "日", "."]
)
DOCUMENTS = st.lists(
    st.lists(
        st.lists(WORDS, min_size=1, max_size=12).map(" ".join),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(
    documents=DOCUMENTS,
    config=st.builds(
        PretrainingDataConfig,
        sentence_splitter=st.just("newline"),
        record_kind=st.sampled_from(["dynamic", "static"]),
        sentence_objective=st.sampled_from(["sop", "nsp", "none"]),
        max_seq_length=st.integers(8, 64),
        short_seq_prob=st.floats(0.0, 1.0),
        dupe_factor=st.integers(1, 3),
        random_seed=st.integers(0, 1000),
    ),
    masking=st.builds(
        MaskingConfig,
        masked_lm_prob=st.floats(0.0, 0.9),
        max_ngram=st.integers(1, 10),
        favor_shorter_ngram=st.booleans(),
        whole_word_masking=st.booleans(),
        max_predictions_per_seq=st.integers(0, 10),
    ),
)
def test_the_record_maker_keeps_every_invariant(
    tiny_tokenizer, documents, config, masking
):
    records, _ = make_records(documents, tiny_tokenizer, config, masking)
    if not records:
        return
    rules = rules_of(tiny_tokenizer, config, masking)
    batch = ParsedBatch(parse(records, config, masking), rules)
    for row in invariants_for(rules):
        assert not row.broken(batch).where.any(), row.name
