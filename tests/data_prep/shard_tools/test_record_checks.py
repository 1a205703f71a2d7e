"""Every check finds its damage, and good records pass all."""

from collections import Counter

import numpy as np
import pytest
from handmade_records import (
    BEYOND,
    FIRST,
    LENGTH,
    MASK,
    MASKING,
    SECOND,
    SEP,
    SLOTS,
    TOKENIZER,
    A,
    D,
    dynamic_record,
    static_record,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import RecordMaker, num_slots
from data_prep.shard_tools.record_checks import check_records
from data_prep.shard_tools.record_rules import RecordRules

IDS = "ids are within the vocabulary"
FRAME = "[CLS] is first and a [SEP] ends each segment"
SEGMENTS = "segment_ids are 0 through the first [SEP], then 1"
LABEL = "the label is one of the objective's"
INPUT_MASK = "input_mask is ones, then zeros"
WEIGHTS = "weights are ones, then zeros"
POSITIONS = "masked positions ascend in the text"
MASKED_IDS = "masked ids are those of text"
UNUSED = "unused slots are zeros"
HIDDEN = "[MASK] is at masked positions alone"

RECORDS = {
    "dynamic sop": dynamic_record(),
    "dynamic none": dynamic_record(FIRST),
    "static sop": static_record({1: MASK, 7: D}),
    "static none": static_record({1: MASK}, FIRST),
}

# What breaks each check: whole features, or values at some positions.
DAMAGES = {
    "dynamic sop": [
        (IDS, {"input_ids": {4: BEYOND}}),
        (FRAME, {"input_ids": {0: A}}),
        (FRAME, {"input_ids": {10: A}}),
        (FRAME, dynamic_record(FIRST)),
        (SEGMENTS, {"segment_ids": {6: 2}}),
        (SEGMENTS, {"segment_ids": {5: 1}}),
        (LABEL, {"sentence_order_label": 2}),
    ],
    "dynamic none": [
        (FRAME, dynamic_record(FIRST, SECOND)),
        (SEGMENTS, {"segment_ids": {5: 1}}),
        (LABEL, {"sentence_order_label": 1}),
    ],
    "static none": [(LABEL, {"sentence_order_label": 1})],
    "static sop": [
        (IDS, {"input_ids": {4: BEYOND}}),
        (FRAME, {"input_ids": {6: SEP}}),
        (SEGMENTS, {"segment_ids": {6: 2}}),
        (LABEL, {"sentence_order_label": -1}),
        (INPUT_MASK, {"input_mask": {3: 0}}),
        (INPUT_MASK, {"input_mask": {3: 2}}),
        (INPUT_MASK, {"input_mask": [0] * LENGTH}),
        (WEIGHTS, {"masked_lm_weights": {0: 0.5}}),
        (WEIGHTS, {"masked_lm_weights": {2: np.nan}}),
        (POSITIONS, {"masked_lm_positions": {0: 7, 1: 1}}),
        (POSITIONS, {"masked_lm_positions": {1: 1}}),
        (POSITIONS, {"masked_lm_positions": {1: 10}}),
        (POSITIONS, {"masked_lm_positions": {1: LENGTH + 3}}),
        (POSITIONS, {"masked_lm_positions": {0: -1}}),
        (MASKED_IDS, {"masked_lm_ids": {0: SEP}}),
        (MASKED_IDS, {"masked_lm_ids": {0: BEYOND}}),
        (UNUSED, {"masked_lm_positions": {2: 7}}),
        (UNUSED, {"masked_lm_ids": {2: A}}),
        (HIDDEN, {"input_ids": {4: MASK}}),
    ],
}


@pytest.mark.parametrize("records", DAMAGES)
def test_every_damage_is_found_in_its_record(records):
    kind, name = records.split()
    objective = SENTENCE_OBJECTIVES[name]
    rules = RecordRules(kind, objective, LENGTH, SLOTS, MASKING, TOKENIZER)
    good = RECORDS[records]
    damaged = [good]
    for _, changes in DAMAGES[records]:
        record = {name: np.array(values) for name, values in good.items()}
        for name, values in changes.items():
            if isinstance(values, dict):
                record[name][list(values)] = list(values.values())
            else:
                record[name] = values
        damaged.append(record)
    columns = {n: np.array([record[n] for record in damaged]) for n in good}
    failed = {
        check.statement: check.failed_records()
        for check in check_records(columns, rules)
    }
    for number, (statement, _) in enumerate(DAMAGES[records], 1):
        assert number in failed[statement], (statement, failed)
    assert 0 not in [n for numbers in failed.values() for n in numbers]


WORDS = st.sampled_from(
    ["the", "cat", "bazo", "sulimé", "of", "1,234", "(kapo)", "zz", "日", "."]
)
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=8).map("\n".join)


EIGHT_SENTENCES = "\n".join(["the cat of bazo"] * 8)


@settings(max_examples=25, deadline=None)
@example(
    documents=[EIGHT_SENTENCES] * 2,
    config=PretrainingDataConfig(sentence_splitter="newline"),
    masking=MaskingConfig(),
)
@given(
    documents=st.lists(PARAGRAPHS, min_size=1, max_size=4),
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
        max_predictions_per_seq=st.integers(0, 10),
    ),
)
def test_built_records_pass(tiny_tokenizer, documents, config, masking):
    maker = RecordMaker(tiny_tokenizer, NewlineSplitter(), config, masking)
    unit = [
        UnitDocument("train", "train", f"{number}", (text,))
        for number, text in enumerate(documents)
    ]
    rules = RecordRules(
        config.record_kind,
        SENTENCE_OBJECTIVES[config.sentence_objective],
        config.max_seq_length,
        num_slots(config, masking),
        masking,
        tiny_tokenizer,
    )
    word_start = np.array(tiny_tokenizer.word_start)
    batches = [*maker(unit, Counter())]
    assert batches or documents != [EIGHT_SENTENCES] * 2
    for made in batches:
        features = rules.parse(made.serialized, str)
        for check in check_records(features, rules):
            assert not check.failed_records(), check.statement
        if config.record_kind == "dynamic":
            text = ~np.isin(features["input_ids"], tiny_tokenizer.special_ids)
            np.testing.assert_array_equal(
                features["word_starts"][text],
                word_start[features["input_ids"]][text],
            )
