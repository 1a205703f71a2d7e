import os

import numpy as np
import pytest
from handmade_records import (
    BEYOND,
    CLS,
    FIRST,
    LENGTH,
    MASK,
    SECOND,
    SEP,
    TOKENIZER,
    A,
    D,
    dynamic_record,
    serialized,
    static_record,
)

from albert_tf.config import MaskingConfig, UserError
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.records.shards import open_shards, read_metadata
from albert_tf.records.tfrecord import write_records
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.shard_tools import shard_import
from data_prep.shard_tools.shard_import import import_shards

NOTHING = np.zeros(0, np.int64)


def foreign_values(number):
    """Values of a record of google-research/albert with eleven tokens."""
    first = [A + number % 4, *FIRST[1:]]
    return static_record({1: MASK, 7: D}, first, SECOND, label=number % 2)


def foreign_record(number=0, **changes):
    return serialized("static", foreign_values(number) | changes)


@pytest.fixture(scope="module")
def tokenizer_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(directory)
    return directory


def run_import(inputs, output, tokenizer_dir, **options):
    paths = [str(path) for path in inputs]
    return import_shards(
        paths, str(output), tokenizer_dir=str(tokenizer_dir), **options
    )


def write_file(path, records):
    with open(path, "wb") as file:
        write_records(file, records)


@pytest.fixture
def originals(tmp_path):
    """Seven records in three files, the second one empty."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    write_file(directory / "wiki.b", map(foreign_record, range(4, 7)))
    write_file(directory / "wiki.a2", [])
    write_file(directory / "wiki.a", map(foreign_record, range(4)))
    return directory


def test_training_reads_foreign_records(originals, tmp_path, tokenizer_dir):
    output = str(tmp_path / "ours")
    metadata = run_import([originals], output, tokenizer_dir)
    assert metadata == read_metadata(output)
    assert sorted(os.listdir(tmp_path)) == ["ours", "theirs"]
    batches = PretrainingBatches(
        open_shards(output, "train"),
        masking_config=MaskingConfig(),
        batch_size=7,
        seed=1,
        training=False,
    )
    batch = batches.batch(0)
    batch["sentence_order_label"] = batch["sentence_order_labels"]
    for name in foreign_values(0).keys() - {"token_boundary"}:
        expected = [foreign_values(number)[name] for number in range(7)]
        np.testing.assert_array_equal(batch[name], expected)


def test_files_become_shards_byte_for_byte(originals, tmp_path, tokenizer_dir):
    output = tmp_path / "ours"
    metadata = run_import(
        [f"{originals}/wiki.b", f"{originals}/wiki.*"], output, tokenizer_dir
    )
    shards = metadata["splits"]["train"]["shards"]
    names = [f"train-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert [shard["name"] for shard in shards] == names
    assert [shard["num_records"] for shard in shards] == [4, 0, 3]
    for name, original in zip(names, ("wiki.a", "wiki.a2", "wiki.b"), strict=1):
        theirs = (originals / original).read_bytes()
        assert (output / name).read_bytes() == theirs
    assert sorted(os.listdir(output)) == ["metadata.json", "tokenizer", *names]


def test_metadata_describes_the_records(originals, tmp_path, tokenizer_dir):
    output = str(tmp_path / "ours")
    metadata = run_import(
        [f"{originals}/wiki.a"],
        output,
        tokenizer_dir,
        eval_inputs=[f"{originals}/wiki.b"],
        sentence_objective="nsp",
    )
    saved = load_tokenizer(f"{output}/tokenizer")
    assert saved.fingerprint == TOKENIZER.fingerprint
    assert metadata["sentence_objective"] == "nsp"
    assert metadata["statistics"]["train"] == {
        "instances": 4,
        "instance_tokens": 44,
        "masked_tokens": 8,
        "label_1": 2,
        "masked_share": round(8 / 44, 6),
        "padding_share": round(1 / 12, 6),
        "label_1_share": 0.5,
    }
    assert metadata["statistics"]["eval"]["instances"] == 3
    assert metadata["settings"]["imported_files"] == {
        "train": ["wiki.a"],
        "eval": ["wiki.b"],
    }
    with open_shards(output, "eval") as shards:
        assert len(shards) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input_ids": [CLS, BEYOND] + [SEP] * 10},
            f"at 1: input_ids {BEYOND}; was another vocabulary used",
        ),
        (
            {"input_ids": [A] + [SEP] * 11},
            rf"the first token is \[CLS\], got first token {A}; was another vo",
        ),
        ({"input_ids": [2] * 11}, "'input_ids' has 11 values; expected 12"),
        (
            {"masked_lm_positions": [1, LENGTH, 0]},
            f"at 1: masked_lm_positions {LENGTH};",
        ),
        (
            {"masked_lm_weights": [1.0, float("nan"), 0.0]},
            "at 1: masked_lm_weights nan",
        ),
        ({"sentence_order_label": 2}, "objective's.* label 2;"),
        ({"token_boundary": NOTHING}, "has no feature 'token_boundary'"),
    ],
)
def test_a_wrong_record_is_named(
    tmp_path, tokenizer_dir, monkeypatch, changes, message
):
    monkeypatch.setattr(shard_import, "_BATCH", 2)
    write_file(tmp_path / "a", map(foreign_record, range(3)))
    wrong = foreign_record(5, **changes)
    records = [foreign_record(3), foreign_record(4), foreign_record(5), wrong]
    write_file(tmp_path / "b", records)
    with pytest.raises(UserError, match=f"/b, record 3:? .*{message}"):
        run_import([tmp_path], tmp_path / "ours", tokenizer_dir)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_first_record_of_another_schema_is_named(tmp_path, tokenizer_dir):
    write_file(tmp_path / "a", [foreign_record(input_ids=NOTHING)])
    with pytest.raises(
        UserError,
        match="a, record 0 has no feature 'input_ids'; records of "
        "google-research/albert have input_ids, input_mask, ",
    ):
        run_import([tmp_path / "a"], tmp_path / "ours", tokenizer_dir)
    write_file(tmp_path / "a", [b"\xff"])
    with pytest.raises(UserError, match="a, record 0 is not a static record"):
        run_import([tmp_path / "a"], tmp_path / "ours", tokenizer_dir)


@pytest.mark.parametrize("in_front", [[], [foreign_record()]])
def test_dynamic_records_are_recognised_as_ours(
    tmp_path, tokenizer_dir, in_front
):
    write_file(tmp_path / "a", in_front)
    dynamic = dynamic_record(FIRST, SECOND)
    write_file(tmp_path / "b", [serialized("dynamic", dynamic)])
    with pytest.raises(
        UserError, match="/b, record 0 is one of ours, of the kind dynamic; "
    ):
        run_import([tmp_path], tmp_path / "ours", tokenizer_dir)


@pytest.mark.parametrize("inputs", ["", "/*"])
def test_a_shard_directory_is_not_imported_again(tmp_path, inputs):
    (tmp_path / "metadata.json").touch()
    with pytest.raises(
        UserError, match=f"^{tmp_path} is a shard directory already, by its"
    ):
        run_import([f"{tmp_path}{inputs}"], tmp_path / "again", "unread")


def test_a_damaged_file_is_named(originals, tmp_path, tokenizer_dir):
    data = bytearray((originals / "wiki.b").read_bytes())
    data[-30] ^= 1
    (originals / "wiki.b").write_bytes(data)
    with pytest.raises(UserError, match=r"wiki\.b, record 2 at .* checksum"):
        run_import([originals], tmp_path / "ours", tokenizer_dir)
    assert os.listdir(tmp_path) == ["theirs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": ["{}/nothing"]}, "/nothing names no file of records"),
        ({"inputs": ["{}/nothing*"]}, "/nothing\\* names no file of records"),
        ({"inputs": ["{}/wiki.a2"]}, "The split train has no records: .*a2"),
        ({"eval_inputs": ["{}/wiki.a2"]}, "The split eval has no records"),
        ({"eval_inputs": ["{}/wiki.a"]}, "wiki.a is in the input and the eval"),
        ({"output": "{}"}, "theirs is there already and is not empty"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    originals, tmp_path, tokenizer_dir, arguments, message
):
    given = {
        "inputs": ["{}/wiki.a"],
        "output": str(tmp_path / "ours"),
        "tokenizer_dir": str(tokenizer_dir),
    } | arguments
    given = {
        name: value.format(originals)
        if isinstance(value, str)
        else [part.format(originals) for part in value]
        for name, value in given.items()
    }
    with pytest.raises(UserError, match=message):
        run_import(**given)
    assert os.listdir(tmp_path) == ["theirs"]


def test_an_empty_directory_may_be_there(originals, tmp_path, tokenizer_dir):
    output = tmp_path / "nested" / "ours"
    output.mkdir(parents=True)
    run_import([originals], f"{output}/", tokenizer_dir)
    assert os.listdir(output.parent) == ["ours"]
    with open_shards(output, "train") as shards:
        assert len(shards) == 7
