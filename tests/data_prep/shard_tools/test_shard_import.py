import os

import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import serialize

from albert_tf.config import MaskingConfig, UserError
from albert_tf.inputs.input_pipeline import PretrainingBatches
from albert_tf.records.schemas import RECORD_SPECS
from albert_tf.records.shards import open_shards, read_metadata
from albert_tf.records.tfrecord import write_records
from albert_tf.text.tokenizer import load_tokenizer
from data_prep.shard_tools import shard_import
from data_prep.shard_tools.shard_import import import_shards


def foreign_values(number):
    """What google-research/albert holds of a record with 9 tokens."""
    return {
        "input_ids": [2, 10 + number, 4, 12, 3, 13, 14, 15, 3, 0, 0, 0],
        "input_mask": [1] * 9 + [0] * 3,
        "segment_ids": [0] * 5 + [1] * 4 + [0] * 3,
        "token_boundary": [1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0],
        "masked_lm_positions": [2, 6, 0],
        "masked_lm_ids": [20 + number, 14, 0],
        "masked_lm_weights": [1.0, 1.0, 0.0],
        "next_sentence_labels": [number % 2],
    }


def foreign_record(number=0, **changes):
    features = {}
    for name, values in (foreign_values(number) | changes).items():
        if name == "masked_lm_weights":
            kind = {"float_list": tf.train.FloatList(value=values)}
        else:
            kind = {"int64_list": tf.train.Int64List(value=values)}
        features[name] = tf.train.Feature(**kind)
    features = tf.train.Features(feature=features)
    return tf.train.Example(features=features).SerializeToString()


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


def test_training_reads_foreign_records(originals, tmp_path, tiny_directory):
    output = str(tmp_path / "ours")
    metadata = run_import([originals], output, tiny_directory)
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
    batch["next_sentence_labels"] = batch["sentence_order_labels"][:, None]
    for name in foreign_values(0).keys() - {"token_boundary"}:
        expected = [foreign_values(number)[name] for number in range(7)]
        np.testing.assert_array_equal(batch[name], expected)


def test_files_become_shards_byte_for_byte(originals, tmp_path, tiny_directory):
    output = tmp_path / "ours"
    metadata = run_import(
        [f"{originals}/wiki.b", f"{originals}/wiki.*"], output, tiny_directory
    )
    shards = metadata["splits"]["train"]["shards"]
    names = [f"train-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert [shard["name"] for shard in shards] == names
    assert [shard["num_records"] for shard in shards] == [4, 0, 3]
    for name, original in zip(names, ("wiki.a", "wiki.a2", "wiki.b"), strict=1):
        theirs = (originals / original).read_bytes()
        assert (output / name).read_bytes() == theirs
    assert sorted(os.listdir(output)) == ["metadata.json", "tokenizer", *names]


def test_the_account_is_that_of_the_records(
    originals, tmp_path, tiny_directory, tiny_tokenizer
):
    output = str(tmp_path / "ours")
    metadata = run_import(
        [f"{originals}/wiki.a"],
        output,
        tiny_directory,
        eval_inputs=[f"{originals}/wiki.b"],
        sentence_objective="nsp",
    )
    saved = load_tokenizer(f"{output}/tokenizer")
    assert saved.fingerprint == tiny_tokenizer.fingerprint
    assert metadata["sentence_objective"] == "nsp"
    assert metadata["statistics"]["train"] == {
        "instances": 4,
        "instance_tokens": 36,
        "masked_tokens": 8,
        "label_1": 2,
        "masked_share": round(8 / 36, 6),
        "padding_share": 0.25,
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
            {"input_ids": [2, 200] + [3] * 10},
            "at 1: input_ids 200, maximum 199",
        ),
        (
            {"input_ids": [101] + [3] * 11},
            r"the first token is \[CLS\], got first token 101; was another vo",
        ),
        ({"input_ids": [2] * 11}, "'input_ids' has 11 values; expected 12"),
        (
            {"masked_lm_positions": [2, 12, 0]},
            "at 1: masked_lm_positions 12, maximum 11",
        ),
        (
            {"masked_lm_weights": [1.0, float("nan"), 0.0]},
            "at 1: masked_lm_weights nan",
        ),
        ({"next_sentence_labels": [-1]}, "next_sentence_labels -1, maximum 1"),
        ({"token_boundary": []}, "has no feature 'token_boundary'"),
    ],
)
def test_a_wrong_record_is_named(
    tmp_path, tiny_directory, monkeypatch, changes, message
):
    monkeypatch.setattr(shard_import, "_BATCH", 2)
    write_file(tmp_path / "a", map(foreign_record, range(3)))
    wrong = foreign_record(5, **changes)
    records = [foreign_record(3), foreign_record(4), foreign_record(5), wrong]
    write_file(tmp_path / "b", records)
    with pytest.raises(UserError, match=f"/b, record 3:? .*{message}"):
        run_import([tmp_path], tmp_path / "ours", tiny_directory)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_first_record_of_another_schema_is_named(tmp_path, tiny_directory):
    write_file(tmp_path / "a", [foreign_record(input_ids=[])])
    with pytest.raises(
        UserError,
        match="a, record 0 has no feature 'input_ids'; records of "
        "google-research/albert have input_ids, input_mask, ",
    ):
        run_import([tmp_path / "a"], tmp_path / "ours", tiny_directory)
    write_file(tmp_path / "a", [b"\xff"])
    with pytest.raises(UserError, match="a, record 0 is not a static record"):
        run_import([tmp_path / "a"], tmp_path / "ours", tiny_directory)


def test_the_lengths_are_those_of_the_first_file(tmp_path, tiny_directory):
    write_file(tmp_path / "a", [foreign_record()])
    write_file(tmp_path / "b", [foreign_record(input_ids=[2] * 11)])
    with pytest.raises(
        UserError, match="b, record 0: .* has 11 values; expected 12"
    ):
        run_import([tmp_path], tmp_path / "ours", tiny_directory)


@pytest.mark.parametrize("in_front", [[], [foreign_record()]])
def test_dynamic_records_are_recognised_as_ours(
    tmp_path, tiny_directory, in_front
):
    write_file(tmp_path / "a", in_front)
    names = ("input_ids", "segment_ids", "word_starts", "sentence_order_label")
    dynamic = serialize(RECORD_SPECS["dynamic"], {n: [2] for n in names})
    write_file(tmp_path / "b", [dynamic])
    with pytest.raises(
        UserError, match="/b, record 0 is one of ours, of the kind dynamic; "
    ):
        run_import([tmp_path], tmp_path / "ours", tiny_directory)


@pytest.mark.parametrize("inputs", ["", "/*"])
def test_a_shard_directory_is_not_imported_again(tmp_path, inputs):
    (tmp_path / "metadata.json").touch()
    with pytest.raises(
        UserError, match=f"^{tmp_path} is a shard directory already, by its"
    ):
        run_import([f"{tmp_path}{inputs}"], tmp_path / "again", "unread")


def test_a_damaged_file_is_named(originals, tmp_path, tiny_directory):
    data = bytearray((originals / "wiki.b").read_bytes())
    data[-30] ^= 1
    (originals / "wiki.b").write_bytes(data)
    with pytest.raises(UserError, match=r"wiki\.b, record 2 at .* checksum"):
        run_import([originals], tmp_path / "ours", tiny_directory)
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
    originals, tmp_path, tiny_directory, arguments, message
):
    given = {
        "inputs": ["{}/wiki.a"],
        "output": str(tmp_path / "ours"),
        "tokenizer_dir": str(tiny_directory),
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


def test_an_empty_directory_may_be_there(originals, tmp_path, tiny_directory):
    output = tmp_path / "nested" / "ours"
    output.mkdir(parents=True)
    run_import([originals], f"{output}/", tiny_directory)
    assert os.listdir(output.parent) == ["ours"]
    with open_shards(output, "train") as shards:
        assert len(shards) == 7
