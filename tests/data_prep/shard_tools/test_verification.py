import contextlib
import functools
import hashlib
import json

import pytest
from handmade_records import (
    LENGTH,
    MASK,
    SECOND,
    A,
    D,
    dynamic_record,
    serialized,
    static_record,
    write_directory,
)

from albert_tf.config import UserError
from albert_tf.io.json_files import write_json
from albert_tf.records.shards import shard_name, write_shard
from data_prep.shard_tools.verification import (
    CHECKSUMS,
    SCHEMA,
    SHARDS,
    STATISTICS,
    STRAY_SHARDS,
    TOKENIZER,
    VerificationReport,
    verify_directory,
)


def dynamic_records(number):
    return [dynamic_record(label=n % 2) for n in range(number)]


def static_records(number):
    return [static_record({1: MASK, 7: D}, label=n % 2) for n in range(number)]


def counts_of(records):
    """Returns the content of metadata.json for these records."""
    number = len(records)
    counts = {
        "instances": number,
        "instance_tokens": 11 * number,
        "label_1": sum(record["sentence_order_label"] for record in records),
    }
    if "masked_lm_ids" in records[0]:
        counts["masked_tokens"] = 2 * number
    return counts


@pytest.fixture
def write(tmp_path):
    """Writes records as a directory of three shards."""
    return functools.partial(write_directory, tmp_path, parts=3)


def change_metadata(directory, change):
    path = directory / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    write_json(path, metadata)


@pytest.mark.parametrize(
    ("kind", "records"),
    [("dynamic", dynamic_records(600)), ("static", static_records(600))],
)
def test_nothing_is_wrong_with_good_records(write, kind, records):
    shown = []

    @contextlib.contextmanager
    def progress(unit):
        assert unit == "shards"
        yield lambda *done: shown.append(done)

    directory = write(records, statistics=counts_of(records))
    report = verify_directory(directory, progress)
    assert report.ok, report.lines()
    assert report.num_records == 600
    assert shown == [(1, 3), (2, 3), (3, 3)]
    assert len(report.failures) == (16 if kind == "static" else 10)
    lines = report.lines()
    assert lines[-1] == f"All {len(report.failures)} checks have passed."
    assert all(f"ok: {name}." in lines for name in report.failures)


@pytest.mark.parametrize(
    ("objective", "kind"),
    [("sop", "static"), ("nsp", "dynamic"), ("none", "static")],
)
def test_nothing_is_wrong_with_a_build(objective_shards, objective, kind):
    directory = objective_shards(objective, kind)
    # It may lie in a bucket, for which `file://` stands.
    report = verify_directory(f"file://{directory}")
    assert report.ok, report.lines()


def test_a_wrong_record_is_named_by_its_number_in_its_shard(write):
    records = static_records(600)
    records[450]["masked_lm_weights"][0] = 0.5
    report = verify_directory(write(records))
    name = "weights are ones, then zeros"
    assert report.failed == [name]
    (example,) = report.examples[name]
    assert "train-00000-of-00003.tfrecord, record 150: at 0: " in example
    assert example.endswith("masked_lm_weights 0.5")
    assert f"FAILED: {name}: 1 times." in report.lines()
    assert report.lines()[-1].startswith("1 of ")


def test_ten_examples_are_shown_and_all_failures_counted():
    report = VerificationReport(["a", "b", "c"])
    more = VerificationReport()
    for number in range(3):
        report.add("a", [f"{number}-{i}" for i in range(4)], 4)
    more.add("a", ["last"])
    more.add("b", ["other"])
    report.merge(more)
    assert report.failures == {"a": 13, "b": 1, "c": 0}
    expected = [f"{number}-{i}" for number in range(3) for i in range(4)]
    assert report.examples == {"a": expected[:10], "b": ["other"]}
    assert "FAILED: a: 13 times." in report.lines()
    assert "  ... and 3 more" in report.lines()


# Files, and the directory as a whole.


def test_records_of_another_form(write):
    records = [serialized("dynamic", r) for r in dynamic_records(30)]
    records[4] = b"not a message"
    too_long = dynamic_record([A] * LENGTH, SECOND)
    records[10] = serialized("dynamic", too_long)
    report = verify_directory(write(records))
    assert report.failed == [SCHEMA] and report.failures[SCHEMA] == 2
    examples = report.examples[SCHEMA]
    assert "00001-of-00003.tfrecord, record 1 is not a dynamic" in examples[0]
    assert "record 3 has 19 tokens; at most" in examples[1]


def another_file(directory):
    write_shard(directory / shard_name("train", 1, 3), [])


def missing_shard(directory):
    (directory / shard_name("train", 0, 3)).unlink()


def stray_shard(directory):
    (directory / "train-00003-of-00004.tfrecord").touch()


def wrong_checksum(directory):
    """Spoils a checksum in a file with the right sha256."""
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
        (stray_shard, {STRAY_SHARDS}, "train-00003-of-00004.tfrecord", 30),
        # What comes before the damage is checked.
        (wrong_checksum, {CHECKSUMS}, "record 9 at byte", 29),
        (other_tokenizer, {TOKENIZER}, "unk_id: 1 in tokenizer, 9", 30),
    ],
)
def test_files_that_are_not_as_metadata_says(
    write, damage, failed, example, num_records
):
    directory = write(dynamic_records(30))
    damage(directory)
    report = verify_directory(directory)
    assert set(report.failed) == failed
    assert example in str(report.examples)
    assert report.num_records == num_records


def test_counts_that_are_not_those_of_the_records(write):
    records = static_records(30)
    wrong = {name: n + 1 for name, n in counts_of(records).items()}
    report = verify_directory(write(records, statistics=wrong))
    assert report.failed == [STATISTICS]
    examples = sorted(report.examples[STATISTICS])
    for name, example in zip(sorted(wrong), examples, strict=True):
        assert example.startswith(f"train: {name} {wrong[name]} in metadata")
    records = [dynamic_record()] * 30
    report = verify_directory(write(records, statistics={"label_1": 15}))
    (example,) = report.examples[STATISTICS]
    assert example == "train: label_1 15 in metadata.json, 0 in the records"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("num_slots"), "metadata.json has no 'num_slots'"),
        (lambda m: m.update(record_kind=["x"]), r"_kind=\['x'\] is not one of"),
    ],
)
def test_metadata_that_cannot_be_used(write, change, message):
    directory = write(dynamic_records(9))
    change_metadata(directory, change)
    with pytest.raises(UserError, match=message):
        verify_directory(directory)
