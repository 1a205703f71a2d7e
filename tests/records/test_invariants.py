"""Every row of the table finds its damage, and no other row reports it."""

from collections import Counter

import numpy as np
import pytest
from handmade_records import (
    BEYOND,
    CLS,
    FIRST,
    LENGTH,
    MASK,
    MASKING,
    PAD,
    SECOND,
    SEP,
    SLOTS,
    TOKENIZER,
    UNK,
    A,
    D,
    dynamic_record,
    static_record,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.config import MaskingConfig, PretrainingDataConfig
from albert_tf.records.invariants import invariants_for
from albert_tf.records.parsed_batch import ParsedBatch, RecordRules
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import RecordMaker, num_slots

IDS = "ids are within the vocabulary"
FIRST_TOKEN = "the first token is [CLS]"
SEPARATORS = "there are two [SEP], or one in a single segment"
LAST_TOKEN = "the last token is [SEP]"
EMPTY = "no segment is empty"
SEGMENTS = "segment_ids are 0 through the first [SEP], then 1"
SPECIAL = "no [CLS], <pad> or [MASK] is in the text"
LABEL = "the label is one of the objective's, 0 in a single segment"
STARTS = "word starts are the tokenizer's"
INPUT_MASK = "input_mask is ones, then zeros"
PADDING = "padding is <pad> and zeros"
ASCENDING = "masked positions ascend"
IN_TEXT = "masked positions are in the text"
UNUSED = "unused slots are zeros"
WEIGHTS = "weights are ones, then zeros"
MASKED_IDS = "masked ids are those of text"
REPLACEMENTS = "random replacements are pieces that text can hold"
UNLISTED = "no [MASK] is anywhere but at masked positions"
BUDGET = "no more is masked than the budget"

RECORDS = {
    "dynamic sop": dynamic_record(),
    "dynamic none": dynamic_record(FIRST),
    "static sop": static_record({1: MASK, 7: D}),
    "static none": static_record({1: MASK}, FIRST),
}

# The rows of a kind, and what breaks each: whole features, or values at some
# positions of them.
DAMAGES = {
    "dynamic sop": [
        (IDS, {"input_ids": {4: BEYOND}}),
        (FIRST_TOKEN, {"input_ids": {0: A}}),
        (SEPARATORS, {"input_ids": {6: SEP}}),
        (LAST_TOKEN, {"input_ids": {9: SEP, 10: A}, "word_starts": {9: 1}}),
        (EMPTY, dynamic_record([], SECOND)),
        (EMPTY, dynamic_record(FIRST, [])),
        (SEGMENTS, {"segment_ids": {6: 2}}),
        (SEGMENTS, {"segment_ids": {5: 1}}),
        (SPECIAL, {"input_ids": {4: CLS}}),
        (SPECIAL, {"input_ids": {4: PAD}, "word_starts": {4: 0}}),
        (SPECIAL, {"input_ids": {4: MASK}}),
        (LABEL, {"sentence_order_label": 2}),
        (STARTS, {"word_starts": {3: 1}}),
        (STARTS, {"word_starts": {5: 0}}),
    ],
    "dynamic none": [
        (SEPARATORS, {"input_ids": {4: SEP}}),
        (EMPTY, dynamic_record([])),
        (SEGMENTS, {"segment_ids": {5: 1}}),
    ],
    "static none": [(LABEL, {"sentence_order_label": 1})],
    "static sop": [
        (IDS, {"input_ids": {4: BEYOND}}),
        (FIRST_TOKEN, {"input_ids": {0: A}}),
        (SEPARATORS, {"input_ids": {6: SEP}}),
        (LAST_TOKEN, {"input_ids": {9: SEP, 10: A}, "token_boundary": {9: 1}}),
        (SEGMENTS, {"segment_ids": {6: 2}}),
        (SPECIAL, {"input_ids": {4: CLS}}),
        (LABEL, {"sentence_order_label": -1}),
        (STARTS, {"token_boundary": {3: 1}}),
        # As if word starts had been taken after masking.
        (STARTS, {"token_boundary": {1: 0}}),
        (INPUT_MASK, {"input_mask": {3: 0}}),
        (INPUT_MASK, {"input_mask": {3: 2}}),
        (PADDING, {"input_ids": {11: A}}),
        (PADDING, {"segment_ids": {11: 1}}),
        (PADDING, {"token_boundary": {11: 1}}),
        (ASCENDING, {"masked_lm_positions": {0: 7, 1: 1}}),
        (ASCENDING, {"input_ids": {7: A}, "masked_lm_positions": {0: 1, 1: 1}}),
        (IN_TEXT, {"masked_lm_positions": {1: 10}}),
        (IN_TEXT, {"masked_lm_positions": {1: 5}}),
        (IN_TEXT, {"masked_lm_positions": {1: 11}}),
        (IN_TEXT, {"masked_lm_positions": {1: LENGTH + 3}}),
        (UNUSED, {"masked_lm_positions": {2: 7}}),
        (UNUSED, {"masked_lm_ids": {2: A}}),
        (WEIGHTS, {"masked_lm_weights": {0: 0.5}}),
        (
            WEIGHTS,
            {
                "masked_lm_positions": [1, 0, 7],
                "masked_lm_ids": [A, 0, A],
                "masked_lm_weights": [1.0, 0.0, 1.0],
            },
        ),
        (MASKED_IDS, {"masked_lm_ids": {0: SEP}}),
        (MASKED_IDS, {"masked_lm_ids": {0: BEYOND}}),
        ("no <unk> is masked", {"masked_lm_ids": {0: UNK}}),
        (BUDGET, static_record({1: MASK, 4: MASK, 7: D})),
        ("no word is left that fits into the budget", static_record({1: MASK})),
        ("words are masked whole", static_record({1: MASK, 2: MASK})),
        (REPLACEMENTS, {"input_ids": {7: SEP}}),
        (REPLACEMENTS, {"input_ids": {7: UNK}}),
        (UNLISTED, {"input_ids": {4: MASK}}),
    ],
}


def broken(records, changes):
    """Returns the rows that three records break, of which one is changed."""
    columns = {n: np.array([v] * 3) for n, v in RECORDS[records].items()}
    for name, values in changes.items():
        if isinstance(values, dict):
            columns[name][1, list(values)] = list(values.values())
        else:
            columns[name][1] = values
    kind, name = records.split()
    objective = SENTENCE_OBJECTIVES[name]
    rules = RecordRules(kind, objective, LENGTH, SLOTS, MASKING, TOKENIZER)
    batch = ParsedBatch(columns, rules)
    found = {row.name: row.broken(batch) for row in invariants_for(rules)}
    return {n: w for n, w in found.items() if w.where.any()}


@pytest.mark.parametrize(
    ("records", "name", "changes"),
    [(records, *row) for records, rows in DAMAGES.items() for row in rows],
)
def test_a_damage_breaks_its_row_alone(records, name, changes):
    found = broken(records, changes)
    assert list(found) == [name]
    assert found[name].records().tolist() == [1]


WORDS = st.sampled_from(
    ["the", "cat", "bazo", "sulimé", "of", "1,234", "(kapo)", "zz", "日", "."]
)
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=8).map("\n".join)


@settings(max_examples=25, deadline=None)
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
        max_ngram=st.integers(1, 10),
        favor_shorter_ngram=st.booleans(),
        whole_word_masking=st.booleans(),
        max_predictions_per_seq=st.integers(0, 10),
    ),
)
def test_built_records_break_nothing(
    tiny_tokenizer, documents, config, masking
):
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
    for made in maker(unit, Counter()):
        batch = ParsedBatch(rules.parse(made.serialized, str), rules)
        for row in invariants_for(rules):
            assert not row.broken(batch).where.any(), row.name
