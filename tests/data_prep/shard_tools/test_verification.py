import dataclasses
import hashlib
import json
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pretraining_runs import serialize

from albert_tf.config import (
    MaskingConfig,
    PretrainingDataConfig,
    UserError,
    to_dict,
)
from albert_tf.io.json_files import write_json
from albert_tf.records.invariants import INVARIANTS, invariants_for
from albert_tf.records.parsed_batch import ParsedBatch, RecordRules
from albert_tf.records.schemas import RECORD_SPECS, parse_batch
from albert_tf.records.sentence_objectives import SENTENCE_OBJECTIVES
from albert_tf.records.shards import describe_tokenizer, shard_name, write_shard
from data_prep.corpus.reading import UnitDocument
from data_prep.corpus.sentences import NewlineSplitter
from data_prep.pretraining.record_maker import (
    RecordMaker,
    num_slots,
)
from data_prep.shard_tools.verification import (
    CHECKSUMS,
    SCHEMA,
    SHARDS,
    SHARES,
    STATISTICS,
    STRAY_SHARDS,
    TOKENIZER,
    Failures,
    VerificationReport,
    verify_directory,
)

LENGTH, SLOTS = 40, 6
CONFIG = PretrainingDataConfig(
    max_seq_length=LENGTH, short_seq_prob=0.3, sentence_splitter="newline"
)
MASKING = MaskingConfig()


def make_records(documents, tokenizer, config, masking=MASKING):
    """Serialised records of lists of sentences, and what was counted."""
    maker = RecordMaker(tokenizer, NewlineSplitter(), config, masking)
    unit = [
        UnitDocument("train", "train", f"{n}", ("\n".join(lines),))
        for n, lines in enumerate(documents)
    ]
    counts = Counter()
    batches = list(maker(unit, counts))
    return [r for b in batches for r in b.serialized], {
        name.removeprefix("train/"): count for name, count in counts.items()
    }


def rules_of(tokenizer, config, masking=MASKING):
    return RecordRules(
        config.record_kind,
        SENTENCE_OBJECTIVES[config.sentence_objective],
        config.max_seq_length,
        num_slots(config, masking),
        masking,
        tokenizer,
    )


def parse(records, config, masking=MASKING):
    return parse_batch(
        RECORD_SPECS[config.record_kind],
        records,
        max_seq_length=config.max_seq_length,
        num_slots=num_slots(config, masking),
    )


def config_for(kind, objective="sop"):
    return dataclasses.replace(
        CONFIG, record_kind=kind, sentence_objective=objective
    )


@pytest.fixture(scope="module")
def good(sentences, tiny_tokenizer):
    """Records and counts by kind and objective, made once."""
    documents = [sentences[i : i + 100] for i in range(0, 800, 100)]
    made = {}

    def get(kind, objective="sop"):
        if (kind, objective) not in made:
            made[kind, objective] = make_records(
                documents, tiny_tokenizer, config_for(kind, objective)
            )
        return made[kind, objective]

    return get


@pytest.fixture
def write(tmp_path, tiny_directory, tiny_tokenizer):
    """Writes records as a directory of three shards; keywords: metadata."""

    def call(records, kind, objective="sop", *, statistics=None, **changes):
        config = config_for(kind, objective)
        shutil.copytree(tiny_directory, tmp_path / "tokenizer")
        parts = [records[0::3], records[1::3], records[2::3]]
        shards = [
            write_shard(tmp_path / shard_name("train", n, 3), part)
            for n, part in enumerate(parts)
        ]
        account = {
            "num_records": len(records),
            "shards": [dataclasses.asdict(shard) for shard in shards],
        }
        described = {"data": to_dict(config)}
        if kind == "static":
            described["masking"] = to_dict(MASKING)
        metadata = {
            "format_version": 1,
            "record_kind": kind,
            "sentence_objective": objective,
            "max_seq_length": LENGTH,
            "num_slots": num_slots(config, MASKING),
            "tokenizer": describe_tokenizer(tiny_tokenizer),
            "splits": {"train": account},
            "statistics": {"train": statistics or {}},
            "settings": described,
        }
        write_json(tmp_path / "metadata.json", metadata | changes)
        return tmp_path

    return call


def change_metadata(directory, change):
    path = directory / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    write_json(path, metadata)


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_nothing_is_wrong_with_good_records(good, write, kind, objective):
    records, counts = good(kind, objective)
    assert len(records) > 200
    shown = []

    class Progress:
        def __init__(self, unit):
            shown.append(unit)

        def __enter__(self):
            return lambda done, total: shown.append((done, total))

        def __exit__(self, *error):
            pass

    directory = write(records, kind, objective, statistics=counts)
    report = verify_directory(directory, Progress)
    assert report.ok, report.lines()
    assert not report.differences
    assert report.num_records == {"train": len(records)}
    assert shown[0] == "records"
    assert shown[-1] == (len(records), len(records))
    expected = [row.name for row in INVARIANTS if kind in row.kinds]
    assert [n for n in report.checks if n in expected] == expected
    lines = report.lines()
    assert lines[-1] == f"All {len(set(report.checks))} checks have passed."
    assert all(f"ok: {name}." in lines for name in expected)
    assert any("0 of" in line and "repeat another" in line for line in lines)


class Example:
    """One record to be damaged, in arrays, with what damages ask of it."""

    def __init__(self, values, tokenizer):
        self.values, self.tokenizer = values, tokenizer
        self.ids = values["input_ids"]
        self.segments = values["segment_ids"]
        self.mask = values["input_mask"]
        self.label = np.atleast_1d(values["sentence_order_label"])
        values["sentence_order_label"] = self.label
        self.starts = values.get("word_starts", values.get("token_boundary"))
        self.length = int(self.mask.sum())
        none = np.zeros(0, int)
        self.positions = values.get("masked_lm_positions", none)
        self.masked_ids = values.get("masked_lm_ids", none)
        self.weights = values.get("masked_lm_weights", none)
        self.count = int((self.weights > 0).sum())
        self.separator = int((self.segments[: self.length] == 0).sum()) - 1
        budget = min(SLOTS, max(1, round(0.15 * self.length)))
        self.is_full = not len(self.weights) or self.count == budget

    def starts_word(self, position):
        """Returns whether a word or a special piece begins at a position."""
        return position >= self.length or bool(self.starts[position])

    def single_words(self, masked):
        """Places of words of one piece, masked or not, past the first two."""
        listed = self.positions[: self.count].tolist()
        return [
            position
            for position in range(2, self.length - 1)
            if position != self.separator
            and (position in listed) == masked
            and self.ids[position] != self.tokenizer.unk_id
            and self.starts_word(position)
            and self.starts_word(position + 1)
        ]

    def put(self, position, token_id):
        """Puts a token somewhere, marked as the tokenizer has it."""
        tokenizer = self.tokenizer
        self.ids[position] = token_id
        starts = bool(tokenizer.word_start[token_id])
        starts |= token_id in (tokenizer.cls_id, tokenizer.sep_id)
        self.starts[position] = starts and token_id != tokenizer.pad_id

    def put_in_text(self, token_id, after=1):
        """Puts a token in the position of an unmasked word of one piece."""
        positions = [p for p in self.single_words(masked=False) if p > after]
        if not positions or not self.is_full:
            return False
        self.put(positions[0], token_id)

    def list_masks(self, listed):
        """Sets the slots to these pairs of position and id."""
        for values in (self.positions, self.masked_ids, self.weights):
            values[:] = 0
        for slot, (position, token_id) in enumerate(sorted(listed)):
            self.positions[slot] = position
            self.masked_ids[slot] = token_id
            self.weights[slot] = 1
        self.count = len(listed)

    def listed(self):
        pairs = zip(self.positions, self.masked_ids, strict=True)
        return [(int(p), int(i)) for p, i in pairs][: self.count]

    def unmask(self, position):
        """Takes a position off the list and puts its token back."""
        listed = dict(self.listed())
        self.ids[position] = listed.pop(position)
        self.list_masks(list(listed.items()))


DAMAGES = []


def damages(name, *kinds, objective="sop"):
    """Marks a function that damages an example so that it breaks an invariant.

    It returns False where the example has no position for the damage.
    """

    def add(damage):
        for kind in kinds:
            DAMAGES.append(
                pytest.param(
                    name,
                    kind,
                    objective,
                    damage,
                    id=f"{name}-{kind}-{damage.__name__}",
                )
            )
        return damage

    return add


BOTH, STATIC = ("dynamic", "static"), ("static",)


@damages("ids are within the vocabulary", *BOTH)
def beyond_vocabulary(e):
    if not e.is_full or not (positions := e.single_words(masked=False)):
        return False
    e.ids[positions[0]] = e.tokenizer.vocab_size


@damages("the first token is [CLS]", *BOTH)
def text_in_front(e):
    e.put(0, e.tokenizer.sep_id + 20)
    e.starts[0] = e.tokenizer.word_start[e.ids[0]]


@damages("there are two [SEP], or one in a single segment", *BOTH)
def third_separator(e):
    return e.put_in_text(e.tokenizer.sep_id, after=e.separator + 1)


@damages(
    "there are two [SEP], or one in a single segment",
    "dynamic",
    objective="none",
)
def second_separator(e):
    return e.put_in_text(e.tokenizer.sep_id)


@damages("the last token is [SEP]", *BOTH)
def separator_before_last(e):
    last = e.length - 1
    if last - 1 not in e.single_words(masked=False):
        return False
    for values in (e.ids, e.starts):
        values[[last, last - 1]] = values[[last - 1, last]]


@damages("no segment is empty", "dynamic")
def empty_first(e):
    keep = np.r_[0, e.separator : e.length]
    cut(e, keep)


@damages("no segment is empty", "dynamic")
def empty_second(e):
    cut(e, np.r_[: e.separator + 1, e.length - 1])


@damages("no segment is empty", "dynamic", objective="none")
def empty_single(e):
    cut(e, np.array([0, e.length - 1]))


def cut(e, keep):
    for values in (e.ids, e.segments, e.starts, e.mask):
        kept = values[keep]
        values[:] = 0
        values[: len(kept)] = kept


def put_special(name):
    def put(e):
        return e.put_in_text(getattr(e.tokenizer, name))

    put.__name__ = f"{name}_in_text"
    return put


for piece, kinds in (
    ("cls_id", BOTH),
    ("pad_id", BOTH),
    ("mask_id", ("dynamic",)),
):
    damages("no [CLS], <pad> or [MASK] is in the text", *kinds)(
        put_special(piece)
    )


def assign(values, position, value, *, fits=lambda e: True):
    """Returns a damage that sets one value, where the example has room."""

    def change(e):
        if not fits(e):
            return False
        index = position(e) if callable(position) else position
        array = getattr(e, values)
        array[index] = value(e) if callable(value) else value

    name = getattr(position, "__name__", position)
    change.__name__ = f"{values}_{name}"
    return change


SEGMENTS = "segment_ids are 0 through the first [SEP], then 1"
LABEL = "the label is one of the objective's, 0 in a single segment"
REPLACEMENTS = "random replacements are pieces that text can hold"
HAS_PADDING = {"fits": lambda e: e.length < LENGTH}
HAS_SLOTS = {"fits": lambda e: e.count < SLOTS}


def after_separator(e):
    return e.separator + 1


def separator(e):
    return e.separator


def last(e):
    return e.length - 1


def first_masked(e):
    return e.positions[0]


STARTS = "word starts are the tokenizer's"
PADDING = "padding is <pad> and zeros"
UNUSED = "unused slots are zeros"
MASK = "input_mask is ones, then zeros"
WEIGHTS = "weights are ones, then zeros"
DYNAMIC = ("dynamic",)
third_label = assign("label", 0, 2)
replaced_by_separator = assign(
    "ids", first_masked, lambda e: e.tokenizer.sep_id
)
replaced_by_unknown = assign("ids", first_masked, lambda e: e.tokenizer.unk_id)
start_or_not = assign("starts", 3, lambda e: 1 - e.starts[3])
for invariant, kinds, objective, damage in (
    (SEGMENTS, BOTH, "sop", assign("segments", after_separator, 2)),
    (SEGMENTS, DYNAMIC, "sop", assign("segments", separator, 1)),
    (SEGMENTS, DYNAMIC, "none", assign("segments", last, 1)),
    (LABEL, BOTH, "sop", third_label),
    (LABEL, STATIC, "none", assign("label", 0, 1)),
    (STARTS, BOTH, "sop", start_or_not),
    (STARTS, DYNAMIC, "sop", assign("starts", separator, 0)),
    (MASK, STATIC, "sop", assign("mask", 3, 0)),
    (MASK, STATIC, "sop", assign("mask", 3, 2)),
    (PADDING, STATIC, "sop", assign("ids", -1, 20, **HAS_PADDING)),
    (PADDING, STATIC, "sop", assign("segments", -1, 1, **HAS_PADDING)),
    (PADDING, STATIC, "sop", assign("starts", -1, 1, **HAS_PADDING)),
    (UNUSED, STATIC, "sop", assign("positions", -1, 7, **HAS_SLOTS)),
    (UNUSED, STATIC, "sop", assign("masked_ids", -1, 7, **HAS_SLOTS)),
    (WEIGHTS, STATIC, "sop", assign("weights", 0, 0.5)),
    (REPLACEMENTS, STATIC, "sop", replaced_by_separator),
    (REPLACEMENTS, STATIC, "sop", replaced_by_unknown),
):
    damages(invariant, *kinds, objective=objective)(damage)


@damages("weights are ones, then zeros", "static")
def slot_left_out(e):
    if e.count == SLOTS:
        return False
    for values in (e.positions, e.masked_ids, e.weights):
        values[e.count] = values[e.count - 1]
        values[e.count - 1] = 0


@damages("word starts are the tokenizer's", "static")
def start_of_what_is_shown(e):
    """As if word starts had been taken after masking."""
    listed = e.listed()
    positions = [p for p, i in listed if e.tokenizer.word_start[i]]
    if not positions:
        return False
    e.starts[positions[0]] = 0


@damages("masked positions ascend", "static")
def slots_swapped(e):
    if e.count < 2:
        return False
    for values in (e.positions, e.masked_ids):
        values[[0, 1]] = values[[1, 0]]


@damages("masked positions ascend", "static")
def position_twice(e):
    singles = e.single_words(masked=True)
    if len(singles) < 2 or not e.is_full:
        return False
    e.unmask(singles[0])
    e.list_masks([*e.listed(), e.listed()[-1]])


def move_last_mask(e, position):
    """Lists `position` instead of the last position, a word of one piece."""
    last, token_id = e.listed()[-1]
    if last not in e.single_words(masked=True) or not e.is_full:
        return False
    e.ids[last] = token_id
    e.positions[e.count - 1] = position


@damages("masked positions are in the text", "static")
def mask_on_separator(e):
    return move_last_mask(e, e.length - 1)


@damages("masked positions are in the text", "static")
def mask_on_first_separator(e):
    if e.count > 1 and e.positions[e.count - 2] >= e.separator:
        return False
    return move_last_mask(e, e.separator)


@damages("masked positions are in the text", "static")
def mask_beyond(e):
    return move_last_mask(e, LENGTH + 3)


@damages("masked positions are in the text", "static")
def mask_in_padding(e):
    return e.length < LENGTH and move_last_mask(e, e.length)


def set_masked_id(e, token_id):
    """Sets the id of a word of one piece behind a [MASK]."""
    for slot, (position, _) in enumerate(e.listed()):
        if position in e.single_words(masked=True) and (
            e.ids[position] == e.tokenizer.mask_id
        ):
            e.masked_ids[slot] = token_id
            return None
    return False


@damages("masked ids are those of text", "static")
def separator_masked(e):
    return set_masked_id(e, e.tokenizer.sep_id)


@damages("masked ids are those of text", "static")
def nothing_masked(e):
    return set_masked_id(e, e.tokenizer.vocab_size + 5)


@damages("no <unk> is masked", "static")
def unknown_masked(e):
    return set_masked_id(e, e.tokenizer.unk_id)


@damages("no more is masked than the budget", "static")
def one_too_many(e):
    positions = e.single_words(masked=False)
    if e.count == SLOTS or not e.is_full or not positions:
        return False
    e.list_masks([*e.listed(), (positions[0], int(e.ids[positions[0]]))])
    e.ids[positions[0]] = e.tokenizer.mask_id


@damages("no word is left that fits into the budget", "static")
def one_too_few(e):
    positions = e.single_words(masked=True)
    if not positions:
        return False
    e.unmask(positions[0])


@damages("words are masked whole", "static")
def half_a_word(e):
    singles = e.single_words(masked=True)
    listed = dict(e.listed())
    pairs = [
        p
        for p in range(2, e.length - 3)
        if e.starts_word(p)
        and not e.starts_word(p + 1)
        and not {p, p + 1} & set(listed)
        and e.ids[p] not in e.tokenizer.special_ids
    ]
    if not singles or not pairs or not e.is_full:
        return False
    e.unmask(singles[0])
    e.list_masks([*e.listed(), (pairs[0], int(e.ids[pairs[0]]))])
    e.ids[pairs[0]] = e.tokenizer.mask_id


@damages("no [MASK] is anywhere but at masked positions", "static")
def mask_unlisted(e):
    positions = e.single_words(masked=False)
    if not positions or not e.is_full:
        return False
    e.ids[positions[0]] = e.tokenizer.mask_id


def serialize_example(kind, values):
    if kind == "static":
        return serialize(
            RECORD_SPECS[kind],
            {name: np.atleast_1d(v) for name, v in values.items()},
        )
    length = int(values["input_mask"].sum())
    return serialize(
        RECORD_SPECS[kind],
        {
            name: v[:length] if np.ndim(v) else [v]
            for name, v in values.items()
            if name != "input_mask"
        },
    )


def damaged_records(records, config, tokenizer, damage, first=5):
    """Returns `records` with the first that has room for it damaged."""
    batch = parse(records, config)
    for number in range(first, len(records)):
        values = {name: v[number].copy() for name, v in batch.items()}
        if damage(Example(values, tokenizer)) is not False:
            record = serialize_example(config.record_kind, values)
            return [*records[:number], record, *records[number + 1 :]], number
    raise AssertionError("No record has room for the damage.")


@pytest.mark.parametrize(("name", "kind", "objective", "damage"), DAMAGES)
def test_every_damage_fails_its_check_alone(
    good, write, tiny_tokenizer, name, kind, objective, damage
):
    config = config_for(kind, objective)
    records, number = damaged_records(
        good(kind, objective)[0][:150], config, tiny_tokenizer, damage
    )
    report = verify_directory(write(records, kind, objective))
    assert report.failures.counts == {name: 1}, report.lines()
    (example,) = report.failures.examples[name]
    shard, within = number % 3, number // 3
    position = f"{shard_name('train', shard, 3)}, record {within}: "
    assert position in example
    assert f"FAILED: {name}: 1 times." in report.lines()
    assert report.lines()[-1].startswith("1 of ")


def test_every_invariant_has_a_damage():
    proven = {(param.values[0], param.values[1]) for param in DAMAGES}
    # Of the rows for both kinds, emptying a segment of a static record
    # would damage its masks as well.
    missing = {
        (row.name, kind)
        for row in INVARIANTS
        for kind in row.kinds
        if (row.name, kind) not in proven
    }
    assert missing == {("no segment is empty", "static")}


def test_records_are_numbered_through_a_shard(good, write, tiny_tokenizer):
    def halve(e):
        e.weights[0] = 0.5

    config = config_for("static")
    records, number = damaged_records(
        good("static")[0] * 3, config, tiny_tokenizer, halve, first=450
    )
    report = verify_directory(write(records, "static"))
    ((example,),) = report.failures.examples.values()
    assert example.endswith(
        f"train-00000-of-00003.tfrecord, record {number // 3}: at 0: "
        "masked_lm_weights 0.5"
    )


def test_ten_examples_are_shown_and_all_failures_counted():
    failures, more = Failures(), Failures()
    for number in range(3):
        failures.add("a", [f"{number}-{i}" for i in range(4)], 4)
    more.add("a", ["last"])
    more.add("b", ["other"])
    failures.merge(more)
    assert failures.counts == {"a": 13, "b": 1}
    expected = [f"{number}-{i}" for number in range(3) for i in range(4)]
    assert failures.examples == {"a": expected[:10], "b": ["other"]}
    report = VerificationReport("d", checks=["a", "b"], failures=failures)
    assert "FAILED: a: 13 times." in report.lines()
    assert "  ... and 3 more" in report.lines()


# Files, and the directory as a whole.


def test_records_of_another_form(good, write):
    records = list(good("dynamic")[0][:30])
    spec = RECORD_SPECS["dynamic"]
    ids = [2, *[20] * LENGTH, 3]
    records[4] = b"not a message"
    records[10] = serialize(
        spec,
        {
            "input_ids": ids,
            "segment_ids": ids,
            "word_starts": ids,
            "sentence_order_label": [0],
        },
    )
    report = verify_directory(write(records, "dynamic"))
    assert report.failures.counts == {SCHEMA: 2}
    examples = report.failures.examples[SCHEMA]
    assert "00001-of-00003.tfrecord, record 1 is not a dynamic" in examples[0]
    assert "record 3 has 42 tokens; at most" in examples[1]


def another_file(directory):
    write_shard(directory / shard_name("train", 1, 3), [])


def missing_shard(directory):
    (directory / shard_name("train", 0, 3)).unlink()


def other_name(directory):
    (directory / shard_name("train", 1, 3)).rename(directory / "b.tfrecord")
    change_metadata(
        directory,
        lambda m: m["splits"]["train"]["shards"][1].update(name="b.tfrecord"),
    )


def stray_shard(directory):
    (directory / "train-00003-of-00004.tfrecord").touch()


def wrong_checksum(directory):
    """In a file with the right sha256."""
    path = directory / shard_name("train", 2, 3)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    change_metadata(
        directory,
        lambda m: m["splits"]["train"]["shards"][2].update(sha256=digest),
    )


def other_tokenizer(directory):
    change_metadata(directory, lambda m: m["tokenizer"].update(unk_id=9))


@pytest.mark.parametrize(
    ("damage", "failed", "example", "num_records"),
    [
        (another_file, {SHARDS}, "train-00001-of-00003.tfrecord has", 20),
        (missing_shard, {SHARDS, CHECKSUMS}, "No such file", 20),
        (other_name, {SHARDS}, "'b.tfrecord' in", 30),
        (stray_shard, {STRAY_SHARDS}, "train-00003-of-00004.tfrecord", 30),
        # What comes before the damage is checked.
        (wrong_checksum, {CHECKSUMS}, "record 9 at byte", 29),
        (other_tokenizer, {TOKENIZER}, "unk_id: 1 in tokenizer, 9", 30),
    ],
)
def test_files_that_are_not_as_metadata_says(
    good, write, damage, failed, example, num_records
):
    directory = write(good("dynamic")[0][:30], "dynamic")
    damage(directory)
    report = verify_directory(directory)
    assert report.failures.counts == dict.fromkeys(failed, 1)
    assert example in str(report.failures.examples)
    assert report.num_records == {"train": num_records}


@pytest.mark.parametrize(
    "name",
    [
        "instances",
        "instance_tokens",
        "label_1",
        "masked_tokens",
        "masked_tokens/as_mask",
        "masked_tokens/as_is",
        "masked_tokens/as_random",
    ],
)
def test_counts_that_are_not_those_of_the_records(good, write, name):
    records, counts = good("static")
    counts = counts | {name: counts[name] + 1}
    report = verify_directory(write(records, "static", statistics=counts))
    assert report.failures.counts == {STATISTICS: 1}
    assert f"train: {name} {counts[name]} in" in str(report.failures.examples)


def reshaped(records, kind, tokenizer, change):
    """Returns records with all their arrays changed at once."""
    batch = parse(records, config_for(kind))
    change(batch, tokenizer)
    return [
        serialize_example(kind, {n: v[i] for n, v in batch.items()})
        for i in range(len(records))
    ]


def replace_kept(batch, tokenizer):
    """Makes every token that stays one of two others."""
    rows = np.arange(len(batch["input_ids"]))[:, None]
    shown = batch["input_ids"][rows, batch["masked_lm_positions"]]
    is_kept = batch["masked_lm_weights"] > 0
    is_kept &= shown == batch["masked_lm_ids"]
    row, slot = np.nonzero(is_kept)
    other = tokenizer.replacement_ids[:2]
    ids = batch["masked_lm_ids"][row, slot]
    batch["input_ids"][row, batch["masked_lm_positions"][row, slot]] = np.where(
        ids == other[0], other[1], other[0]
    )


def replace_masks(batch, tokenizer):
    """Makes every fourth [MASK] a random piece."""
    shown = (batch["input_ids"] == tokenizer.mask_id).nonzero()
    batch["input_ids"][shown[0][::4], shown[1][::4]] = (
        tokenizer.replacement_ids[0]
    )


@pytest.mark.parametrize(
    ("change", "failed", "example"),
    [
        (replace_kept, {1, 2}, "stay: 0.0000% of"),
        (replace_masks, {0, 2}, "are [MASK]: "),
    ],
)
def test_shares_that_chance_does_not_explain(
    good, write, tiny_tokenizer, change, failed, example
):
    records = reshaped(good("static")[0], "static", tiny_tokenizer, change)
    report = verify_directory(write(records, "static"))
    names = {SHARES[number].name for number in failed}
    assert set(report.failures.counts) == names
    assert example in str(report.failures.examples)


@pytest.mark.parametrize("objective", ["sop", "nsp"])
def test_labels_out_of_balance(good, write, tiny_tokenizer, objective):
    def one_label(batch, _):
        batch["sentence_order_label"][: len(batch["input_ids"]) // 2] = 0

    records = reshaped(
        good("dynamic", objective)[0], "dynamic", tiny_tokenizer, one_label
    )
    directory = write(records, "dynamic", objective)
    report = verify_directory(directory)
    assert report.failures.counts == {SHARES[3].name: 1}
    # Unless they were drawn as 1 where no other document was to be had.
    batch = parse(records, config_for("dynamic"))
    zeros = int((batch["sentence_order_label"] == 0).sum())
    in_vain = zeros - len(records) // 2
    change_metadata(
        directory,
        lambda m: m["statistics"]["train"].update(
            without_other_document=in_vain
        ),
    )
    assert verify_directory(directory).ok


def test_few_records_are_not_judged_by_chance(good, write):
    records = good("static")[0][:100]
    report = verify_directory(write(records, "static"))
    assert report.ok
    assert sum("too few to judge" in r for r in report.notes) == 4
    assert not {share.name for share in SHARES} & set(report.checks)


def test_repeated_records_are_counted_and_not_judged(good, write):
    records = good("dynamic")[0][:30]
    report = verify_directory(write([*records, *records[:4]], "dynamic"))
    assert report.ok
    assert any("4 of 34 records repeat" in line for line in report.lines())


def imported(metadata):
    metadata["settings"] = {"imported_files": {"train": ["a"]}}


def test_imported_records_may_differ_where_the_original_does(
    good, write, tiny_tokenizer
):
    records = good("static")[0][:150]
    config = config_for("static")
    ours_alone = [
        replaced_by_separator,
        unknown_masked,
        one_too_many,
        one_too_few,
        half_a_word,
    ]
    for number, damage in enumerate(ours_alone):
        records, _ = damaged_records(
            records, config, tiny_tokenizer, damage, first=30 * number
        )
    directory = write(records, "static")
    change_metadata(directory, imported)
    report = verify_directory(directory)
    assert report.ok
    assert set(report.differences) == {
        "random replacements are pieces that text can hold",
        "no <unk> is masked",
    }
    lines = report.lines()
    assert any(line.startswith("differs from ours: no <unk>") for line in lines)
    assert any(line.startswith("Not judged: budgets") for line in lines)
    assert lines[-1].startswith("All ")


def test_imported_records_with_a_fault(good, write, tiny_tokenizer):
    records, _ = damaged_records(
        good("static")[0][:60],
        config_for("static"),
        tiny_tokenizer,
        third_label,
    )
    directory = write(records, "static")
    change_metadata(directory, imported)
    report = verify_directory(directory)
    assert len(report.failures.counts) == 1
    assert not report.ok


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("num_slots"), "metadata.json has no 'num_slots'"),
        (lambda m: m.update(record_kind="x"), "record_kind='x' is not one of"),
        (
            lambda m: m["splits"]["train"]["shards"][0].pop("sha256"),
            "metadata.json does not name the shards",
        ),
    ],
)
def test_metadata_that_cannot_be_used(good, write, change, message):
    directory = write(good("dynamic")[0][:9], "dynamic")
    change_metadata(directory, change)
    with pytest.raises(UserError, match=message):
        verify_directory(directory)
    with pytest.raises(UserError, match="has no metadata.json"):
        verify_directory(directory / "tokenizer")


WORDS = st.sampled_from(
    ["the", "cat", "bazo", "sulimé", "of", "1,234", "(kapo)", "zz", "日", "."]
)
DOCUMENTS = st.lists(
    st.lists(
        st.lists(WORDS, min_size=1, max_size=12).map(" ".join),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(
    documents=DOCUMENTS,
    config=st.builds(
        PretrainingDataConfig,
        sentence_splitter=st.just("newline"),
        record_kind=st.sampled_from(BOTH),
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
def test_the_record_maker_keeps_every_invariant(
    tiny_tokenizer, documents, config, masking
):
    records, _ = make_records(documents, tiny_tokenizer, config, masking)
    if not records:
        return
    rules = rules_of(tiny_tokenizer, config, masking)
    batch = ParsedBatch(parse(records, config, masking), rules)
    for row in invariants_for(rules):
        assert not row.broken(batch).where.any(), row.name
