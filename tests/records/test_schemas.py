import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from pretraining_runs import serialize

from albert_tf.config import UserError
from albert_tf.records import schemas as records
from albert_tf.records.example_wire import encode_examples
from albert_tf.records.schemas import RECORD_SPECS

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


def unchecked(spec, example):
    """A record of whatever `example` holds of the spec's features."""
    return encode_examples(
        {
            feature.stored_name: (
                np.array(example[feature.name], feature.dtype),
                [len(example[feature.name])],
            )
            for feature in spec.features
            if feature.name in example
        }
    )[0]


def stored_features(data):
    """Returns a record's features as protobuf reads them."""
    features = {}
    message = tf.train.Example.FromString(data)
    for name, feature in message.features.feature.items():
        kind = feature.WhichOneof("kind")
        features[name] = (kind, list(getattr(feature, kind).value))
    return features


@pytest.mark.parametrize("spec", [DYNAMIC, STATIC])
def test_a_record_has_the_schema_of_its_kind(spec):
    example = static_example() if spec is STATIC else dynamic_example()
    expected = {
        name: ("int64_list", [int(value) for value in values])
        for name, values in example.items()
    }
    if spec is STATIC:
        # That of google-research/albert.
        expected["next_sentence_labels"] = expected.pop("sentence_order_label")
        weights = example["masked_lm_weights"]
        expected["masked_lm_weights"] = "float_list", weights
    assert stored_features(serialize(spec, example)) == expected


def test_dynamic_records_are_padded():
    batch = records.parse_batch(
        DYNAMIC,
        [
            serialize(DYNAMIC, dynamic_example(5, label=1)),
            serialize(DYNAMIC, dynamic_example(7, label=0)),
        ],
        max_seq_length=7,
    )
    expected = {
        "input_ids": [[2, 10, 11, 12, 3, 0, 0], [2, 10, 11, 12, 13, 14, 3]],
        "segment_ids": [[0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]],
        "word_starts": [[1, 1, 1, 1, 1, 0, 0], [1] * 7],
        "input_mask": [[1, 1, 1, 1, 1, 0, 0], [1] * 7],
        "sentence_order_label": [1, 0],
    }
    assert {name: array.tolist() for name, array in batch.items()} == expected
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}


def test_static_records_come_back():
    example = static_example()
    serialized = [serialize(STATIC, example)] * 2
    batch = records.parse_batch(
        STATIC, serialized, max_seq_length=8, num_slots=3
    )
    assert batch.pop("sentence_order_label").tolist() == [0, 0]
    for name, values in batch.items():
        assert values.tolist() == [example[name]] * 2
    assert batch["masked_lm_weights"].dtype == np.float32


def floats(example):
    """Returns a dynamic record whose features are floats."""
    features = tuple(
        dataclasses.replace(f, dtype="float32") for f in DYNAMIC.features
    )
    return unchecked(records.RecordSpec("floats", features), example)


def with_large_id(position):
    example = dynamic_example()
    example["input_ids"][position] = 2**32 + 5
    return serialize(DYNAMIC, example)


@pytest.mark.parametrize(
    ("spec", "wrong", "message"),
    [
        (
            STATIC,
            unchecked(STATIC, static_example(length=7)),
            ": feature 'input_ids' has 7 values; expected 8",
        ),
        (
            STATIC,
            unchecked(STATIC, static_example(slots=2)),
            ": feature 'masked_lm_positions' has 2 values; expected 3",
        ),
        (
            DYNAMIC,
            unchecked(DYNAMIC, dynamic_example() | {"segment_ids": [0, 1]}),
            ": feature 'segment_ids' has 2 values; expected 6",
        ),
        (
            DYNAMIC,
            unchecked(DYNAMIC, dynamic_example(9)),
            " has 9 tokens; at most max_seq_length=8",
        ),
        (DYNAMIC, floats(dynamic_example()), " is not a dynamic record"),
        (DYNAMIC, b"\xff\xff", " is not a dynamic record"),
        (DYNAMIC, b"", " has no feature 'input_ids'"),
        (
            STATIC,
            unchecked(STATIC, static_example() | {"sentence_order_label": []}),
            " has no feature 'next_sentence_labels'",
        ),
        *(
            (
                DYNAMIC,
                with_large_id(position),
                ": feature 'input_ids' has the value 4294967301, which",
            )
            for position in (0, -1)
        ),
    ],
)
def test_a_wrong_record_is_named(spec, wrong, message):
    example = static_example() if spec is STATIC else dynamic_example()
    good = serialize(spec, example)
    with pytest.raises(UserError, match=f"^file a, record 8{message}"):
        records.parse_batch(
            spec,
            [good, wrong, good],
            max_seq_length=8,
            num_slots=3,
            namer=lambda number: f"file a, record {7 + number}",
        )
