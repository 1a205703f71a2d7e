import numpy as np
import pytest
import tensorflow as tf
from handmade_records import (
    LENGTH,
    MASK,
    SECOND,
    SLOTS,
    A,
    D,
    dynamic_record,
    serialized,
    static_record,
)

from albert_tf.config import UserError
from albert_tf.records.schemas import namer_of, parse_batch

NOTHING = np.zeros(0, int)
RECORDS = {
    "dynamic": dynamic_record(label=1),
    "static": static_record({1: MASK, 7: D}),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_has_the_schema_of_its_kind(kind):
    expected = {n: np.atleast_1d(v).tolist() for n, v in RECORDS[kind].items()}
    kinds = dict.fromkeys(expected, "int64_list")
    if kind == "static":
        # That of google-research/albert.
        expected["next_sentence_labels"] = expected.pop("sentence_order_label")
        kinds["next_sentence_labels"] = "int64_list"
        kinds["masked_lm_weights"] = "float_list"
    else:
        length = sum(expected.pop("input_mask"))
        expected = {name: v[:length] for name, v in expected.items()}
    message = tf.train.Example.FromString(serialized(kind, RECORDS[kind]))
    features = message.features.feature
    assert sorted(features) == sorted(expected)
    for name, values in expected.items():
        assert list(getattr(features[name], kinds[name]).value) == values


def test_dynamic_records_are_padded():
    examples = [dynamic_record([A], [D]), RECORDS["dynamic"]]
    batch = parse_batch(
        "dynamic",
        [serialized("dynamic", example) for example in examples],
        max_seq_length=LENGTH,
    )
    assert {name: array.tolist() for name, array in batch.items()} == {
        name: [example[name] for example in examples] for name in examples[0]
    }
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}


def with_large_id(position):
    ids = [*RECORDS["dynamic"]["input_ids"]]
    ids[position] = 2**32 + 5
    return {"input_ids": ids}


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("static", {"input_ids": [A] * 11}, "input_ids' has 11 .* expected 12"),
        ("static", {"masked_lm_positions": [1, 7]}, "has 2 values; expected 3"),
        ("static", {"sentence_order_label": NOTHING}, "no .*'next_sentence_la"),
        ("dynamic", {"segment_ids": [0, 1]}, "segment_ids' has 2 .* exp.* 11"),
        ("dynamic", dynamic_record([A] * LENGTH, SECOND), "19 tokens; .*=12"),
        ("dynamic", {"word_starts": [1.0] * 11}, "is not a dynamic record"),
        ("dynamic", with_large_id(0), "'input_ids' has the value 4294967301"),
        ("dynamic", with_large_id(10), "'input_ids' has the value 4294967301"),
        ("dynamic", b"\xff\xff", "is not a dynamic record"),
        ("dynamic", b"", "has no feature 'input_ids'"),
    ],
)
def test_a_wrong_record_is_named(kind, changes, message):
    good, wrong = serialized(kind, RECORDS[kind]), changes
    if isinstance(changes, dict):
        wrong = serialized(kind, RECORDS[kind] | changes)
    with pytest.raises(UserError, match=f"^file a, record 8:? .*{message}"):
        parse_batch(
            kind,
            [good, wrong, good],
            max_seq_length=LENGTH,
            num_slots=SLOTS,
            namer=namer_of("file a", 7),
        )
