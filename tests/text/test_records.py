import dataclasses
import hashlib
import os
import struct
import threading

import numpy as np
import pytest

from albert_tf.config import UserError, write_json
from albert_tf.text import records
from albert_tf.text.records import RECORD_SPECS

DYNAMIC, STATIC = RECORD_SPECS["dynamic"], RECORD_SPECS["static"]


def dynamic_example(length=6, label=1):
    return {
        "input_ids": [2, *range(10, 10 + length - 2), 3],
        "segment_ids": [0] * (length - 2) + [1, 1],
        "word_starts": [True] * length,
        "sentence_order_label": [label],
    }


def static_example(length=8, slots=3):
    return {
        "input_ids": [2, 11, 4, 3, 13, 3, 0, 0][:length],
        "input_mask": [1, 1, 1, 1, 1, 1, 0, 0][:length],
        "segment_ids": [0, 0, 0, 0, 1, 1, 0, 0][:length],
        "token_boundary": [1, 1, 0, 1, 1, 1, 0, 0][:length],
        "masked_lm_positions": [2, 4, 0][:slots],
        "masked_lm_ids": [12, 13, 0][:slots],
        "masked_lm_weights": [1.0, 1.0, 0.0][:slots],
        "sentence_order_label": [0],
    }


def decode_example(data):
    """Reads a tf.train.Example's wire format by hand: {name: values}."""

    def fields(data):
        position = 0

        def varint():
            nonlocal position
            value = shift = 0
            while True:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        while position < len(data):
            number, kind = divmod(varint(), 8)
            assert kind == 2
            length = varint()
            yield number, data[position : position + length]
            position += length

    def varints(data):
        value = shift = 0
        for byte in data:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                yield value
                value = shift = 0

    features = {}
    ((_, body),) = fields(data)
    for _, entry in fields(body):
        name, feature = (value for _, value in fields(entry))
        ((kind, values),) = fields(feature)
        ((_, packed),) = fields(values) if values else ((1, b""),)
        if kind == 2:
            count = len(packed) // 4
            features[name.decode()] = list(struct.unpack(f"<{count}f", packed))
        else:
            assert kind == 3
            features[name.decode()] = list(varints(packed))
    return features


def test_a_static_record_has_the_schema_of_google_research_albert():
    stored = decode_example(records.serialize(STATIC, static_example()))
    example = static_example()
    # Names in the order of their bytes, as deterministic protobuf has them.
    assert list(stored) == [
        "input_ids",
        "input_mask",
        "masked_lm_ids",
        "masked_lm_positions",
        "masked_lm_weights",
        "next_sentence_labels",
        "segment_ids",
        "token_boundary",
    ]
    assert stored.pop("next_sentence_labels") == [0]
    assert example.pop("sentence_order_label") == [0]
    assert stored == example
    assert isinstance(stored["masked_lm_weights"][0], float)


def test_a_dynamic_record_has_its_schema():
    stored = decode_example(records.serialize(DYNAMIC, dynamic_example()))
    assert stored == {
        name: [int(value) for value in values]
        for name, values in dynamic_example().items()
    }


def test_equal_examples_give_equal_bytes():
    example = static_example()
    backwards = dict(reversed(example.items()))
    as_arrays = {
        name: np.array(values, np.int16 if name != "masked_lm_weights" else "f")
        for name, values in example.items()
    }
    expected = records.serialize(STATIC, example)
    assert records.serialize(STATIC, backwards) == expected
    assert records.serialize(STATIC, as_arrays) == expected


def test_dynamic_records_are_padded():
    batch = records.parse_batch(
        DYNAMIC,
        [
            records.serialize(DYNAMIC, dynamic_example(5, label=1)),
            records.serialize(DYNAMIC, dynamic_example(7, label=0)),
        ],
        max_seq_length=7,
    )
    assert batch["input_ids"].tolist() == [
        [2, 10, 11, 12, 3, 0, 0],
        [2, 10, 11, 12, 13, 14, 3],
    ]
    assert batch["segment_ids"].tolist() == [
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1],
    ]
    assert batch["word_starts"][0].tolist() == [1, 1, 1, 1, 1, 0, 0]
    assert batch["input_mask"].tolist() == [
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ]
    assert batch["sentence_order_label"].tolist() == [1, 0]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}


def test_static_records_come_back():
    example = static_example()
    batch = records.parse_batch(
        STATIC,
        [records.serialize(STATIC, example)] * 2,
        max_seq_length=8,
        num_slots=3,
    )
    assert batch.pop("sentence_order_label").tolist() == [0, 0]
    for name, values in batch.items():
        assert values.tolist() == [example[name]] * 2
    assert batch["masked_lm_weights"].dtype == np.float32


@pytest.mark.parametrize(
    ("spec", "example", "missing"),
    [
        (DYNAMIC, dynamic_example(), "word_starts"),
        (DYNAMIC, dynamic_example(), "input_ids"),
        (STATIC, static_example(), "token_boundary"),
        (STATIC, static_example(), "sentence_order_label"),
    ],
)
def test_a_missing_feature_is_named(spec, example, missing):
    whole = records.serialize(spec, example)
    kept = [f for f in spec.features if f.name != missing]
    lacking = records.serialize(
        records.RecordSpec(spec.kind, tuple(kept)), example
    )
    name = next(f.stored_name for f in spec.features if f.name == missing)
    with pytest.raises(UserError, match=f"Record 1 .*{name}"):
        records.parse_batch(
            spec, [whole, lacking], max_seq_length=8, num_slots=3
        )


@pytest.mark.parametrize(
    ("spec", "example", "message"),
    [
        (
            STATIC,
            static_example(length=7),
            "Record 0: feature 'input_ids' has 7 values; 8 are needed",
        ),
        (
            STATIC,
            static_example(slots=2),
            "feature 'masked_lm_positions' has 2 values; 3 are needed",
        ),
        (
            DYNAMIC,
            dynamic_example() | {"segment_ids": [0, 1]},
            "feature 'segment_ids' has 2 values; 6 are needed",
        ),
        (
            DYNAMIC,
            dynamic_example() | {"sentence_order_label": [0, 1]},
            "feature 'sentence_order_label' has 2 values; 1 are needed",
        ),
        (
            DYNAMIC,
            dynamic_example(9),
            "Record 0 has 9 tokens; at most max_seq_length=8",
        ),
    ],
)
def test_a_wrong_length_is_named(spec, example, message):
    serialized = records.serialize(spec, example)
    with pytest.raises(UserError, match=message):
        records.parse_batch(spec, [serialized], max_seq_length=8, num_slots=3)


def test_a_wrong_type_is_named():
    features = tuple(
        dataclasses.replace(f, dtype="float32") for f in DYNAMIC.features
    )
    floats = records.serialize(
        records.RecordSpec("floats", features), dynamic_example()
    )
    good = records.serialize(DYNAMIC, dynamic_example())
    with pytest.raises(UserError, match=r"Record 1 is not a dynamic record"):
        records.parse_batch(DYNAMIC, [good, floats], max_seq_length=8)


def test_bytes_that_are_no_example_are_named():
    with pytest.raises(UserError, match="Record 0 is not a dynamic record"):
        records.parse_batch(DYNAMIC, [b"\xff\xff"], max_seq_length=8)


# ------------------------------------------------------------------- shards


def numbered(count, prefix=b"record"):
    """Records of many sizes, the empty one included."""
    return [prefix * (number % 7) + b"%d" % number for number in range(count)]


@pytest.fixture
def directory(tmp_path):
    """Two splits; train has the records 0 to 24 in three shards."""
    contents = numbered(25)
    parts = [contents[:10], contents[10:11], contents[11:]]
    shards = [
        records.write_shard(
            tmp_path / f"train-{number:05}-of-00003.tfrecord", part
        )
        for number, part in enumerate(parts)
    ]
    held_out = records.write_shard(
        tmp_path / "eval-00000-of-00001.tfrecord", [b"", b"held out"]
    )
    write_json(
        tmp_path / "metadata.json",
        {
            "format_version": 1,
            "record_kind": "dynamic",
            "splits": {
                "train": {"shards": [dataclasses.asdict(s) for s in shards]},
                "eval": {"shards": [dataclasses.asdict(held_out)]},
            },
        },
    )
    return tmp_path


def test_a_shard_is_a_tfrecord_file_with_a_true_account(tmp_path):
    import tensorflow as tf

    path = tmp_path / "train-00000-of-00001.tfrecord"
    info = records.write_shard(path, iter(numbered(30)))
    data = path.read_bytes()
    assert info == records.ShardInfo(
        path.name, 30, len(data), hashlib.sha256(data).hexdigest()
    )
    read = tf.data.TFRecordDataset([str(path)])
    assert list(read.as_numpy_iterator()) == numbered(30)
    assert os.listdir(tmp_path) == [path.name]


def test_a_shard_that_fails_has_no_name(tmp_path):
    def failing():
        yield b"one"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        records.write_shard(tmp_path / "a.tfrecord", failing())
    assert not (tmp_path / "a.tfrecord").exists()


def test_records_are_read_by_number(directory):
    contents = numbered(25)
    with records.open_shards(directory, "train") as shards:
        assert len(shards) == 25
        assert shards.metadata["record_kind"] == "dynamic"
        assert shards.read(range(25)) == contents
        order = [24, 0, 10, 10, 9, 11]
        assert shards.read(np.array(order)) == [contents[n] for n in order]
        assert shards.read([]) == []
    with records.open_shards(str(directory), "eval") as shards:
        assert shards.read([1, 0]) == [b"held out", b""]


@pytest.mark.parametrize("number", [-1, 25])
def test_a_number_out_of_range_is_refused(directory, number):
    with (
        records.open_shards(directory, "train") as shards,
        pytest.raises(IndexError, match=r"range\(25\)"),
    ):
        shards.read([0, number])


def test_a_record_can_be_located(directory):
    with records.open_shards(directory, "train") as shards:
        assert shards.location(12) == (
            f"{directory}/train-00002-of-00003.tfrecord, record 1"
        )


def test_many_threads_read_the_same(directory):
    contents = numbered(25)
    wrong = []
    with records.open_shards(directory, "train") as shards:

        def read(seed):
            rng = np.random.default_rng(seed)
            for _ in range(200):
                numbers = rng.integers(0, 25, 8)
                if shards.read(numbers) != [contents[n] for n in numbers]:
                    wrong.append(seed)

        threads = [threading.Thread(target=read, args=(s,)) for s in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_a_glob_selects_shards_of_the_split(directory, monkeypatch):
    contents = numbered(25)
    pattern = f"{directory}/train-0000[12]-of-00003.tfrecord"
    with records.open_shards(pattern, "train") as shards:
        assert shards.read(range(len(shards))) == contents[10:]
    with records.open_shards(f"{directory}/*.tfrecord", "train") as shards:
        assert len(shards) == 25
    monkeypatch.chdir(directory)
    with records.open_shards("train-*", "train") as shards:
        assert len(shards) == 25
    with pytest.raises(UserError, match="names no shard of the split 'eval'"):
        records.open_shards("train-*", "eval")


def test_a_foreign_file_in_a_glob_is_named(directory):
    (directory / "train-00009-of-00010.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match=r"00009-of-00010\.tfrecord is not"):
        records.open_shards(f"{directory}/train-*", "train")
    records.open_shards(directory, "train").close()


def damage_missing(path):
    path.unlink()


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def damage_emptied(path):
    path.write_bytes(b"")


def damage_flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_swapped(path):
    data = path.read_bytes()
    other = path.with_name("train-00000-of-00003.tfrecord")
    path.write_bytes(other.read_bytes()[: len(data)].ljust(len(data)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_missing, "is missing"),
        (damage_cut, r"bytes, metadata.json says \d+: it was cut"),
        (damage_emptied, "has 0 bytes, metadata.json says"),
        (damage_flipped, "sha256 .* its contents changed"),
        (damage_swapped, "sha256 .* its contents changed"),
    ],
)
def test_a_damaged_shard_is_named(directory, damage, message):
    name = "train-00002-of-00003.tfrecord"
    damage(directory / name)
    with pytest.raises(UserError, match=f"{name} .*{message}|{name} {message}"):
        records.open_shards(directory, "train")
    # Another split has nothing to do with it.
    records.open_shards(directory, "eval").close()


def test_an_unfinished_directory_says_how_to_finish_it(directory):
    (directory / "metadata.json").unlink()
    with pytest.raises(
        UserError, match="unfinished; run build_pretraining_data again"
    ):
        records.open_shards(directory, "train")


def test_other_wrong_paths_are_told(directory, tmp_path):
    with pytest.raises(UserError, match="has no split 'dev'; it has eval, tra"):
        records.open_shards(directory, "dev")
    with pytest.raises(UserError, match="nowhere is not a directory"):
        records.open_shards(tmp_path / "nowhere" / "train-*", "train")


def test_another_format_is_told(directory):
    write_json(directory / "metadata.json", {"format_version": 2})
    with pytest.raises(UserError, match="format_version=2; 1 is needed"):
        records.open_shards(directory, "train")


def test_a_shard_outside_the_directory_is_refused(directory):
    metadata = records.read_metadata(directory)
    metadata["splits"]["train"]["shards"][0]["name"] = "../other.tfrecord"
    write_json(directory / "metadata.json", metadata)
    with pytest.raises(UserError, match="a name within the directory"):
        records.open_shards(directory, "train")


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [
        ([], []),
        ([7], [[7, 8]]),
        ([5, 6, 7, 9, 11, 12], [[5, 8], [9, 10], [11, 13]]),
    ],
)
def test_ids_travel_as_ranges(ids, ranges):
    assert records.id_ranges(np.array(ids, np.int32)) == ranges
    back = records.ids_in_ranges(ranges)
    assert back.tolist() == ids
    assert back.dtype == np.int32
