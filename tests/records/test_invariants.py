"""Every row of the table finds its damage, and no other row reports it."""

import numpy as np
import pytest

from albert_tf.config import MaskingConfig
from albert_tf.records.invariants import invariants_for
from albert_tf.records.parsed_batch import ParsedBatch, RecordRules
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer

LENGTH = 12
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d ##e ##f"
TOKENIZER = WordPieceTokenizer(PIECES.split())
PAD, UNK, CLS, SEP, MASK, A, B, C, D, E, F, BEYOND = range(12)


def dynamic_record(*segments):
    ids, segment_ids = [CLS], [0]
    for number, segment in enumerate(segments):
        ids += [*segment, SEP]
        segment_ids += [number] * (len(segment) + 1)
    padding = [0] * (LENGTH - len(ids))
    return {
        "input_ids": ids + padding,
        "input_mask": [1] * len(ids) + padding,
        "segment_ids": segment_ids + padding,
        "word_starts": [int(i not in (E, F)) for i in ids] + padding,
        "sentence_order_label": 0,
    }


FIRST, SECOND = [A, B, E, C], [D, A, B, F]
PAIR, SINGLE = dynamic_record(FIRST, SECOND), dynamic_record(FIRST)


def static_record(record, input_ids, masks):
    """A record of which these positions are masked, of a budget of two."""
    unused = [0] * (3 - len(masks))
    record = {**record, "input_ids": input_ids}
    return record | {
        "token_boundary": record.pop("word_starts"),
        "masked_lm_positions": [*masks, *unused],
        "masked_lm_ids": [*masks.values(), *unused],
        "masked_lm_weights": [1.0] * len(masks) + [0.0] * len(unused),
    }


STATIC_IDS = [CLS, MASK, B, E, C, SEP, D, D, B, F, SEP, PAD]
RECORDS = {
    "dynamic sop": PAIR,
    "dynamic none": SINGLE,
    "static sop": static_record(PAIR, STATIC_IDS, {1: A, 7: A}),
    "static none": static_record(
        SINGLE, [CLS, MASK, B, E, C, SEP, *[PAD] * 6], {1: A}
    ),
}


def rules_of(records):
    kind, objective = records.split()
    return RecordRules(
        kind,
        SENTENCE_OBJECTIVES[objective],
        LENGTH,
        3,
        MaskingConfig(masked_lm_prob=0.2),
        TOKENIZER,
    )


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
        (
            ASCENDING,
            {"input_ids": {7: A}, "masked_lm_positions": {0: 1, 1: 1}},
        ),
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
        (
            "no more is masked than the budget",
            static_record(
                PAIR,
                [CLS, MASK, B, E, MASK, SEP, D, D, B, F, SEP, PAD],
                {1: A, 4: C, 7: A},
            ),
        ),
        (
            "no word is left that fits into the budget",
            static_record(
                PAIR, [CLS, MASK, B, E, C, SEP, *SECOND, SEP, PAD], {1: A}
            ),
        ),
        (
            "words are masked whole",
            static_record(
                PAIR,
                [CLS, MASK, MASK, E, C, SEP, *SECOND, SEP, PAD],
                {1: A, 2: B},
            ),
        ),
        (REPLACEMENTS, {"input_ids": {7: SEP}}),
        (REPLACEMENTS, {"input_ids": {7: UNK}}),
        (
            "no [MASK] is anywhere but at masked positions",
            {"input_ids": {4: MASK}},
        ),
    ],
}


def broken(records, changes=None):
    """Returns the rows that three records break, of which one is changed."""
    columns = {n: np.array([v] * 3) for n, v in RECORDS[records].items()}
    for name, values in (changes or {}).items():
        if isinstance(values, dict):
            columns[name][1, list(values)] = list(values.values())
        else:
            columns[name][1] = values
    rules = rules_of(records)
    batch = ParsedBatch(columns, rules)
    found = {row.name: row.broken(batch) for row in invariants_for(rules)}
    return {n: w for n, w in found.items() if w.where.any()}


@pytest.mark.parametrize("records", RECORDS)
def test_good_records_break_nothing(records):
    assert not broken(records)


@pytest.mark.parametrize(
    ("records", "name", "changes"),
    [(records, *row) for records, rows in DAMAGES.items() for row in rows],
)
def test_a_damage_breaks_its_row_alone(records, name, changes):
    found = broken(records, changes)
    assert list(found) == [name]
    assert found[name].records().tolist() == [1]


def test_the_first_wrong_position_is_described():
    found = broken("static sop", {"masked_lm_positions": {1: 10}})
    assert found[IN_TEXT].describe(1) == "at 1: masked_lm_positions 10"
    found = broken("dynamic sop", {"input_ids": {0: A}})
    assert found[FIRST_TOKEN].describe(1) == f"first token {A}"
