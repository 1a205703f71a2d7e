import dataclasses
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from handmade_records import TOKENIZER

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records import counter_rng
from albert_tf.records.masking import mask_batch
from albert_tf.records.schemas import parse_batch
from data_prep.corpus.reading import Document, UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import RecordMaker, num_slots

CONFIG = PretrainingDataConfig(
    sentence_splitter="newline", max_seq_length=24, short_seq_prob=0.2
)


class MadeRecord(NamedTuple):
    """A record read back, padded to the length of all."""

    split: str
    key: int
    example: dict


def parsed(batch, config):
    columns = parse_batch(
        config.record_kind,
        batch.serialized,
        max_seq_length=config.max_seq_length,
        num_slots=num_slots(config, MaskingConfig()),
    )
    for row, key in enumerate(batch.keys.tolist()):
        example = {name: values[row] for name, values in columns.items()}
        yield MadeRecord(batch.split, key, example)


def make(documents, config=CONFIG, origin="train", splits=None):
    splits = splits or ["train"] * len(documents)
    maker = RecordMaker(TOKENIZER, NewlineSplitter(), config, MaskingConfig())
    counts = Counter()
    unit = [
        UnitDocument(split, origin, *document)
        for split, document in zip(splits, documents, strict=True)
    ]
    batches = list(maker(unit, counts))
    return [r for batch in batches for r in parsed(batch, config)], counts


# Words such as "a", "be" and "def", whose letters are tokens.
LINES = [
    " ".join("abcd"[(7 * i + j) % 4] + "ef"[: j % 3] for j in range(3 + i % 9))
    for i in range(60)
]
LONG = Document("long.txt", ("\n".join(LINES),))
SHORT = Document("short.txt", ("be!c\n ",))
EMPTY = Document("empty.txt", ("  ",))


def columns_of(records):
    names = records[0].example
    return {n: np.array([r.example[n] for r in records]) for n in names}


def test_static_records_are_the_dynamic_ones_masked():
    dynamic, _ = make([LONG])
    static, counts = make(
        [LONG], dataclasses.replace(CONFIG, record_kind="static")
    )
    keys = [record.key for record in dynamic]
    assert [record.key for record in static] == keys
    expected = columns_of(dynamic)
    masked = mask_batch(
        expected,
        counter_rng.fold_in(np.array(keys, np.uint64), 2),
        config=MaskingConfig(),
        num_slots=4,
        special_ids=TOKENIZER.special_ids,
        mask_id=TOKENIZER.mask_id,
        replacement_ids=TOKENIZER.replacement_ids,
    )
    expected["token_boundary"] = expected.pop("word_starts")
    expected |= masked.features
    found = columns_of(static)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    masked_tokens = masked.masked_lm_weights.sum()
    assert counts["train/masked_tokens"] == masked_tokens > 0


def signature(records):
    return [
        (r.key, {name: v.tolist() for name, v in sorted(r.example.items())})
        for r in records
    ]


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_document_does_not_see_its_unit(kind):
    config = dataclasses.replace(CONFIG, record_kind=kind)
    other = Document("other.txt", ("\n".join(LINES[::-1]),))
    alone, _ = make([LONG], config)
    together, _ = make([other, LONG, EMPTY], config)
    assert signature(alone) == signature(together[-len(alone) :])
    assert len(together) > len(alone) > 10


def test_name_origin_seed_and_copy_draw_anew():
    renamed = LONG._replace(name="renamed.txt")
    variants = [
        make([LONG])[0],
        make([renamed])[0],
        make([LONG], origin="eval")[0],
        make([LONG], dataclasses.replace(CONFIG, random_seed=1))[0],
    ]
    twice, counts = make([LONG], dataclasses.replace(CONFIG, dupe_factor=2))
    first = variants[0]
    assert signature(twice[: len(first)]) == signature(first)
    variants.append(twice[len(first) :])
    keys = [record.key for records in variants for record in records]
    assert len(set(keys)) == len(keys)
    texts = {str([e for _, e in signature(r)]) for r in variants}
    assert len(texts) == len(variants)
    assert counts["train/documents"] == 1


def test_what_happened_is_counted():
    records, counts = make([LONG, SHORT, EMPTY])
    tokens = len("".join(LINES).replace(" ", ""))
    assert counts["train/documents"] == 3
    assert counts["train/sentences"] == len(LINES) + 1
    assert counts["train/tokens"] == tokens + 4
    assert counts["train/unknown_tokens"] == 1
    assert counts["train/skipped/single_sentence_documents"] == 1
    assert counts["train/skipped/empty_documents"] == 1
    assert counts["train/skipped/tokens"] == 4
    assert counts["train/label_1"] == sum(
        int(r.example["sentence_order_label"]) for r in records
    )
    kept = sum(r.example["input_mask"].sum() for r in records)
    assert counts["train/instance_tokens"] == kept
    framing = 3 * len(records)
    assert kept - framing == tokens + counts["train/repeated_tokens"]


def test_splits_are_counted_apart():
    held_out = LONG._replace(name="held out")
    splits = ["train", "eval", "train"]
    records, counts = make([LONG, held_out, SHORT], splits=splits)
    assert counts["train/documents"] == 2
    assert counts["eval/documents"] == 1
    assert {r.split for r in records} == {"train", "eval"}
    of_eval = [r for r in records if r.split == "eval"]
    assert signature(of_eval) == signature(make([held_out])[0])
