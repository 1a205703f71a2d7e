import re

import pytest
from handmade_records import (
    LENGTH,
    MASK,
    TOKENIZER,
    B,
    C,
    dynamic_record,
    serialized,
    static_record,
    write_directory,
)

from albert_tf.config import MaskingConfig, UserError, to_dict
from albert_tf.records.shards import shard_name, write_shard
from data_prep.shard_tools.inspection import inspect_shard

MASKING = MaskingConfig(masked_lm_prob=0.3)
# "a be c" and "d a bf", of which three tokens are to be predicted.
DYNAMIC = dynamic_record()
STATIC = static_record({1: MASK, 2: B, 6: C}, label=1)


@pytest.fixture
def shard(tmp_path):
    """Writes a directory of one shard; returns the shard's path."""

    def write(records, objective="sop", settings=None):
        settings = settings or {"masking": to_dict(MASKING)}
        directory = write_directory(
            tmp_path / "shards", records, objective, settings=settings
        )
        return directory / shard_name("train", 0, 1)

    return write


@pytest.fixture
def vocabulary(tmp_path):
    TOKENIZER.save(tmp_path / "vocabulary")
    return tmp_path / "vocabulary"


def test_a_static_record_as_text(shard):
    path = shard([STATIC])
    legend, block = inspect_shard(path)
    assert legend.startswith(
        f"{path}: static records of at most {LENGTH} tokens.\n[word→[MASK]]"
    )
    assert "one draw" not in legend
    assert list(inspect_shard(f"file://{path}"))[1:] == [block]
    assert block == (
        "record 0: 11 tokens, 1 of padding; swapped; 3 masked of a budget "
        "of 3\n"
        "  A: [a→[MASK]] [b=b]e c\n"
        "  B: [d→c] a bf"
    )


@pytest.mark.parametrize(
    ("objective", "record", "words"),
    [
        ("sop", {"sentence_order_label": 0}, "; in order; "),
        ("nsp", {"sentence_order_label": 1}, "; B is random; "),
        ("none", {"sentence_order_label": 0}, "padding; 3 masked"),
        ("sop", {"sentence_order_label": 7}, "; label 7; "),
        # Unused slots are not shown.
        (
            "sop",
            static_record({1: MASK}, label=1),
            "swapped; 1 masked of a budget of 3\n  A: [a→[MASK]] be c\n",
        ),
        ("sop", static_record({1: 99}), "  A: [a→<no piece 99>] be c"),
    ],
)
def test_labels_slots_and_ids_in_words(shard, objective, record, words):
    _, block = inspect_shard(shard([STATIC | record], objective))
    assert words in block


def unmasked(block):
    """The text as it was before masking."""
    return re.sub(r"\[([^\[\]]+)[=→](\[MASK\]|[^\[\]]*)\]", r"\1", block)


def test_a_dynamic_record_is_masked_by_one_draw_of_many(shard):
    path = shard([DYNAMIC] * 20)
    masking = MaskingConfig(masked_lm_prob=0.4)
    legend, *blocks = inspect_shard(path, num_records=20, masking=masking)
    assert legend.endswith("every reading of a record draws anew.")
    repeated = inspect_shard(path, num_records=20, masking=masking)
    assert [legend, *blocks] == list(repeated)
    for number, block in enumerate(blocks):
        assert unmasked(block) == (
            f"record {number}: 11 tokens, 1 of padding; in order; 4 masked of "
            "a budget of 4\n  A: a be c\n  B: d a bf"
        )
        assert len(re.findall("=|→", block)) == 4
    assert len({block.partition("\n")[2] for block in blocks}) > 10


def test_the_first_records_are_shown(shard):
    path = shard([STATIC | {"sentence_order_label": n % 2} for n in range(15)])
    assert len(list(inspect_shard(path))) == 1 + 10
    _, *blocks = inspect_shard(path, num_records=100)
    assert len(blocks) == 15
    for number, block in enumerate(blocks):
        assert block.startswith(f"record {number}: ")
        assert ("swapped" if number % 2 else "in order") in block
    write_shard(path, [])
    assert len(list(inspect_shard(path))) == 1


def test_a_file_that_metadata_does_not_name(shard, vocabulary):
    path = shard([DYNAMIC])
    other = path.parent / "other.tfrecord"
    write_shard(other, [serialized("static", STATIC)])
    with pytest.raises(UserError, match="other.tfrecord is not .* give the"):
        list(inspect_shard(other))
    _, block = inspect_shard(other, tokenizer_dir=vocabulary)
    assert block.startswith(
        "record 0: 11 tokens, 1 of padding; swapped, or B is random; 3 "
        "masked, room for 3\n  A: [a"
    )


def test_records_of_an_import(shard):
    path = shard([STATIC], settings={"imported_files": {}})
    _, block = inspect_shard(path)
    assert "; swapped; 3 masked, room for 3\n" in block


def test_another_vocabulary_is_taken_if_given(shard, tmp_path, make_model):
    pieces = ["▁the", "▁cat", "s", ".", "▁", "é"]
    model = tmp_path / "spiece.model"
    model.write_bytes(make_model(dict.fromkeys(pieces, -1.0)))
    record = static_record({1: B, 3: MASK, 4: C})
    _, block = inspect_shard(shard([record]), tokenizer_dir=model)
    assert block.endswith("  A: [the→cat] cat[▁→[MASK]][s=s]\n  B: . the caté")


def test_other_files_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match="is not a file; expected the path"):
            list(inspect_shard(path))


def test_a_record_of_another_form_is_named(tmp_path, vocabulary):
    path = tmp_path / "a.tfrecord"
    records = [serialized("static", STATIC), serialized("dynamic", DYNAMIC)]
    write_shard(path, records)
    message = "a.tfrecord, record 1: feature 'input_ids'"
    with pytest.raises(UserError, match=message):
        list(inspect_shard(path, tokenizer_dir=vocabulary))
