import dataclasses
from collections import Counter

import numpy as np
import pytest
from handmade_records import TOKENIZER

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records import counter_rng
from albert_tf.records.masking import MaskingIds, mask_batch
from albert_tf.records.schemas import parse_batch
from data_prep.corpus.reading import Document, UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import RecordMaker, num_slots

CONFIG = PretrainingDataConfig(
    sentence_splitter="newline", max_seq_length=24, short_seq_prob=0.2
)


def make(documents, config=CONFIG, origin="train"):
    """Returns keys and features of the records, padded alike, and counts."""
    maker = RecordMaker(TOKENIZER, NewlineSplitter(), config, MaskingConfig())
    counts = Counter()
    unit = [UnitDocument("train", origin, *document) for document in documents]
    batches = list(maker(unit, counts))
    features = parse_batch(
        config.record_kind,
        [record for batch in batches for record in batch.serialized],
        max_seq_length=config.max_seq_length,
        num_slots=num_slots(config, MaskingConfig()),
    )
    keys = np.concatenate([batch.keys for batch in batches])
    return keys, features, counts


# Words such as "a", "be" and "def", whose letters are tokens.
LINES = [
    " ".join("abcd"[(7 * i + j) % 4] + "ef"[: j % 3] for j in range(3 + i % 9))
    for i in range(60)
]
LONG = Document("long.txt", ("\n".join(LINES),))
SHORT = Document("short.txt", ("be!c\n ",))
EMPTY = Document("empty.txt", ("  ",))


def test_static_records_are_the_dynamic_ones_masked():
    keys, expected, _ = make([LONG])
    static = dataclasses.replace(CONFIG, record_kind="static")
    same_keys, found, counts = make([LONG], static)
    np.testing.assert_array_equal(same_keys, keys)
    masked = mask_batch(
        expected,
        counter_rng.fold_in(keys, 2),
        config=MaskingConfig(),
        num_slots=4,
        ids=MaskingIds.from_tokenizer(TOKENIZER),
    )
    expected["token_boundary"] = expected.pop("word_starts")
    np.testing.assert_equal(found, expected | masked.features)
    masked_tokens = masked.masked_lm_weights.sum()
    assert counts["train/masked_tokens"] == masked_tokens > 0


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_document_does_not_see_its_unit(kind):
    config = dataclasses.replace(CONFIG, record_kind=kind)
    other = Document("other.txt", ("\n".join(LINES[::-1]),))
    keys, alone, _ = make([LONG], config)
    all_keys, together, _ = make([other, LONG, EMPTY], config)
    first = len(all_keys) - len(keys)
    np.testing.assert_array_equal(all_keys[first:], keys)
    ours = {name: values[first:] for name, values in together.items()}
    np.testing.assert_equal(ours, alone)
    assert first > 0 and len(keys) > 10


def test_name_origin_seed_and_copy_draw_anew():
    variants = [
        make([LONG]),
        make([LONG._replace(name="renamed.txt")]),
        make([LONG], origin="eval"),
        make([LONG], dataclasses.replace(CONFIG, random_seed=1)),
    ]
    found = [(keys, features["input_ids"]) for keys, features, _ in variants]
    keys, features, counts = make(
        [LONG], dataclasses.replace(CONFIG, dupe_factor=2)
    )
    size = len(found[0][0])
    both_copies = keys, features["input_ids"]
    for copies, first in zip(both_copies, found[0], strict=True):
        np.testing.assert_array_equal(copies[:size], first)
    found.append(tuple(copies[size:] for copies in both_copies))
    keys = np.concatenate([keys for keys, _ in found])
    assert len(np.unique(keys)) == len(keys)
    assert len({ids.tobytes() for _, ids in found}) == len(found)
    assert counts["train/documents"] == 1


def test_what_happened_is_counted():
    keys, features, counts = make([LONG, SHORT, EMPTY])
    tokens = len("".join(LINES).replace(" ", ""))
    assert counts["train/documents"] == 3
    assert counts["train/sentences"] == len(LINES) + 1
    assert counts["train/tokens"] == tokens + 4
    assert counts["train/unknown_tokens"] == 1
    assert counts["train/skipped/single_sentence_documents"] == 1
    assert counts["train/skipped/empty_documents"] == 1
    assert counts["train/skipped/tokens"] == 4
    assert counts["train/label_1"] == features["sentence_order_label"].sum()
    kept = features["input_mask"].sum()
    assert counts["train/instance_tokens"] == kept
    framing = 3 * len(keys)
    assert kept - framing == tokens + counts["train/repeated_tokens"]
