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


@pytest.fixture
def run_import(tmp_path, tokenizer_dir):
    """Imports files, by default into the directory `ours`."""

    def call(*inputs, output="ours", **options):
        return import_shards(
            [str(path) for path in inputs],
            f"{tmp_path}/{output}",
            tokenizer_dir=str(tokenizer_dir),
            **options,
        )

    return call


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


def test_training_reads_foreign_records(originals, tmp_path, run_import):
    assert run_import(originals) == read_metadata(tmp_path / "ours")
    assert sorted(os.listdir(tmp_path)) == ["ours", "theirs"]
    batches = PretrainingBatches(
        open_shards(tmp_path / "ours", "train"),
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


def test_files_become_shards_byte_for_byte(originals, tmp_path, run_import):
    metadata = run_import(f"{originals}/wiki.b", f"{originals}/wiki.*")
    shards = metadata["splits"]["train"]["shards"]
    names = [f"train-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert [shard["name"] for shard in shards] == names
    assert [shard["num_records"] for shard in shards] == [4, 0, 3]
    output = tmp_path / "ours"
    for name, original in zip(names, ("wiki.a", "wiki.a2", "wiki.b"), strict=1):
        theirs = (originals / original).read_bytes()
        assert (output / name).read_bytes() == theirs
    assert sorted(os.listdir(output)) == ["metadata.json", "tokenizer", *names]


def test_metadata_describes_the_records(originals, tmp_path, run_import):
    metadata = run_import(
        f"{originals}/wiki.a",
        eval_inputs=[f"{originals}/wiki.b"],
        sentence_objective="nsp",
    )
    saved = load_tokenizer(tmp_path / "ours" / "tokenizer")
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
    with open_shards(tmp_path / "ours", "eval") as shards:
        assert len(shards) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": [CLS, BEYOND] + [SEP] * 10}, f"1: input_ids {BEYOND};"),
        (
            {"input_ids": [A] + [SEP] * 11},
            f"first token {A},.*another voca",
        ),
        ({"masked_lm_positions": [1, LENGTH, 0]}, "masked_lm_positions 12,"),
        ({"masked_lm_weights": [1.0, np.nan, 0.0]}, "masked_lm_weights nan"),
        ({"sentence_order_label": 2}, "objective's.* label 2;"),
        ({"token_boundary": NOTHING}, "has no feature 'token_boundary'"),
    ],
)
def test_a_wrong_record_is_named(
    tmp_path, run_import, monkeypatch, changes, message
):
    monkeypatch.setattr(shard_import, "_BATCH", 2)
    write_file(tmp_path / "a", map(foreign_record, range(3)))
    wrong = foreign_record(5, **changes)
    records = [foreign_record(3), foreign_record(4), foreign_record(5), wrong]
    write_file(tmp_path / "b", records)
    with pytest.raises(UserError, match=f"/b, record 3:? .*{message}"):
        run_import(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (foreign_record(input_ids=NOTHING), "has no .*'input_ids'; .*_mask, "),
        (b"\xff", "is not a static record"),
        (
            serialized("dynamic", dynamic_record()),
            "is one of ours, of the kind dynamic; ",
        ),
    ],
)
@pytest.mark.parametrize("in_front", [[], [foreign_record()]])
def test_a_first_record_of_another_schema_is_named(
    tmp_path, run_import, in_front, record, message
):
    write_file(tmp_path / "a", in_front)
    write_file(tmp_path / "{b}", [record])
    with pytest.raises(UserError, match=f"/{{b}}, record 0 {message}"):
        run_import(tmp_path)


@pytest.mark.parametrize("inputs", ["", "/*"])
def test_a_shard_directory_is_not_imported_again(tmp_path, run_import, inputs):
    (tmp_path / "metadata.json").touch()
    message = f"^{tmp_path} is a shard directory already, by its"
    with pytest.raises(UserError, match=message):
        run_import(f"{tmp_path}{inputs}")


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("nothing", {}, "/nothing names no file of records"),
        ("nothing*", {}, "/nothing\\* names no file of records"),
        ("wiki.a2", {}, "The split train has no records: .*a2"),
        ("wiki.a", {"eval_inputs": "wiki.a2"}, "The split eval has no records"),
        ("wiki.a", {"eval_inputs": "wiki.a"}, "wiki.a is in the input and the"),
        ("wiki.a", {"output": "theirs"}, "theirs is there already and is not"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    originals, tmp_path, run_import, inputs, options, message
):
    if "eval_inputs" in options:
        options = {"eval_inputs": [f"{originals}/{options['eval_inputs']}"]}
    with pytest.raises(UserError, match=message):
        run_import(f"{originals}/{inputs}", **options)
    assert os.listdir(tmp_path) == ["theirs"]


def test_a_bucket_is_refused(originals, tokenizer_dir, monkeypatch):
    monkeypatch.chdir(originals)
    with pytest.raises(UserError, match=r"^gs://B/shards is in a bucket"):
        import_shards(["wiki.a"], "gs://B/shards", tokenizer_dir=tokenizer_dir)
    assert not (originals / "gs:").exists()


def test_a_link_is_the_file_that_it_names(originals, run_import):
    (originals / "latest").symlink_to("wiki.a")
    metadata = run_import(originals)
    shards = metadata["splits"]["train"]["shards"]
    assert [shard["num_records"] for shard in shards] == [4, 0, 3]


@pytest.mark.parametrize("link", [False, True])
def test_an_empty_directory_may_be_there(link, originals, tmp_path, run_import):
    output = tmp_path / "nested" / "ours"
    output.mkdir(parents=True)
    if link:
        (tmp_path / "link").symlink_to("nested/ours")
    run_import(originals, output="link" if link else "nested/ours/")
    assert os.listdir(output.parent) == ["ours"]
    with open_shards(output, "train") as shards:
        assert len(shards) == 7
