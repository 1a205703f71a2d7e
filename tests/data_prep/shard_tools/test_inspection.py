import re
import shutil

import pytest
from handmade_records import write_shards
from pretraining_runs import serialize

from albert_tf.config import MaskingConfig, UserError, to_dict
from albert_tf.records.schemas import RECORD_SPECS
from albert_tf.records.shards import shard_name, write_shard
from albert_tf.text.wordpiece_tokenizer import WordPieceTokenizer
from data_prep.shard_tools.inspection import inspect_shard

LENGTH, SLOTS = 16, 4
HALF = MaskingConfig(masked_lm_prob=0.5)
PIECES = ["▁the", "▁cat", "▁sat", "▁dog", "s", ".", "▁", "é"]
THE, CAT, SAT, DOG, S, DOT, SPACE, ACCENT = range(5, 13)
CLS, SEP, MASK = 2, 3, 4


@pytest.fixture
def vocabulary(tmp_path, make_model):
    directory = tmp_path / "vocabulary"
    directory.mkdir()
    model = make_model(dict.fromkeys(PIECES, -1.0))
    (directory / "spiece.model").write_bytes(model)
    return directory


def padded(values, size=LENGTH):
    return [*values, *[0] * (size - len(values))]


def static_record(**changes):
    """The cats sat. | The dog, of which five tokens are to be predicted."""
    ids = [CLS, THE, MASK, S, SAT, DOT, SEP, THE, CAT, SPACE, MASK, SEP]
    values = {
        "input_ids": padded(ids),
        "input_mask": padded([1] * 12),
        "segment_ids": padded([0] * 7 + [1] * 5),
        "token_boundary": padded([1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]),
        "masked_lm_positions": [2, 4, 8, 10],
        "masked_lm_ids": [CAT, SAT, DOG, SPACE],
        "masked_lm_weights": [1.0, 1.0, 1.0, 1.0],
        "sentence_order_label": [1],
    }
    return serialize(RECORD_SPECS["static"], values | changes)


def dynamic_record():
    ids = [CLS, THE, CAT, S, SAT, DOT, SEP, THE, DOG, DOT, SEP]
    return serialize(
        RECORD_SPECS["dynamic"],
        {
            "input_ids": ids,
            "segment_ids": [0] * 7 + [1] * 4,
            "word_starts": [1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
            "sentence_order_label": [0],
        },
    )


@pytest.fixture
def shard(tmp_path, vocabulary):
    """Writes a directory of one shard; returns the shard's path."""

    def write(records, kind, objective="sop", settings=None):
        directory = tmp_path / "shards"
        shutil.copytree(vocabulary, directory / "tokenizer")
        write_shards(
            directory,
            {"train": [records]},
            record_kind=kind,
            sentence_objective=objective,
            max_seq_length=LENGTH,
            num_slots=SLOTS if kind == "static" else 0,
            settings=settings or {"masking": to_dict(HALF)},
        )
        return directory / shard_name("train", 0, 1)

    return write


def test_a_static_record_as_text(shard):
    path = shard([static_record()], "static")
    legend, block = inspect_shard(path)
    assert legend.startswith(
        f"{path}: static records of at most {LENGTH} tokens.\n[word→[MASK]]"
    )
    assert "one draw" not in legend
    assert list(inspect_shard(f"file://{path}"))[1:] == [block]
    assert block == (
        "record 0: 12 tokens, 4 of padding; swapped; 4 masked of a budget "
        "of 4\n"
        "  A: the [cat→[MASK]]s [sat=sat].\n"
        "  B: the [dog→cat] [▁→[MASK]]"
    )


@pytest.mark.parametrize(
    ("objective", "changes", "words"),
    [
        ("sop", {"sentence_order_label": [0]}, "; in order; "),
        ("nsp", {"sentence_order_label": [1]}, "; B is random; "),
        ("none", {"sentence_order_label": [0]}, "padding; 4 masked"),
        ("sop", {"sentence_order_label": [7]}, "; label 7; "),
        # Unused slots are not shown.
        (
            "sop",
            {
                "masked_lm_positions": [2, 0, 0, 0],
                "masked_lm_weights": [1.0, 0.0, 0.0, 0.0],
            },
            "swapped; 1 masked of a budget of 4\n  A: the [cat→[MASK]]s sat.\n",
        ),
        (
            "sop",
            {"input_ids": padded([CLS, THE, 99, S, SAT, DOT, SEP, THE, CAT])},
            "  A: the [cat→<no piece 99>]s ",
        ),
    ],
)
def test_labels_slots_and_ids_in_words(shard, objective, changes, words):
    record = static_record(**changes)
    _, block = inspect_shard(shard([record], "static", objective))
    assert words in block


def unmasked(block):
    """The text as it was before masking."""
    return re.sub(r"\[([^\[\]]+)[=→](\[MASK\]|[^\[\]]*)\]", r"\1", block)


def test_a_dynamic_record_is_masked_by_one_draw_of_many(shard):
    path = shard([dynamic_record()] * 20, "dynamic")
    masking = MaskingConfig(masked_lm_prob=0.4)
    legend, *blocks = inspect_shard(path, num_records=20, masking=masking)
    assert legend.endswith("every reading of a record draws anew.")
    assert (
        blocks == list(inspect_shard(path, num_records=20, masking=masking))[1:]
    )
    for number, block in enumerate(blocks):
        assert unmasked(block) == (
            f"record {number}: 11 tokens, 5 of padding; in order; 4 masked of "
            "a budget of 4\n  A: the cats sat.\n  B: the dog."
        )
        assert len(re.findall("=|→", block)) == 4
    assert len({block.partition("\n")[2] for block in blocks}) > 10


def test_the_first_records_are_shown(shard):
    path = shard(
        [static_record(sentence_order_label=[n % 2]) for n in range(15)],
        "static",
    )
    assert len(list(inspect_shard(path))) == 1 + 10
    _, *blocks = inspect_shard(path, num_records=100)
    assert len(blocks) == 15
    for number, block in enumerate(blocks):
        assert block.startswith(f"record {number}: ")
        assert ("swapped" if number % 2 else "in order") in block
    write_shard(path, [])
    assert len(list(inspect_shard(path))) == 1


def test_a_file_that_metadata_does_not_name(shard, vocabulary):
    path = shard([dynamic_record()], "dynamic")
    other = path.parent / "other.tfrecord"
    write_shard(other, [static_record()])
    with pytest.raises(
        UserError, match="other.tfrecord is not .* give the dir"
    ):
        list(inspect_shard(other))
    _, block = inspect_shard(other, tokenizer_dir=vocabulary)
    assert block.startswith(
        "record 0: 12 tokens, 4 of padding; swapped, or B is random; 4 "
        "masked, room for 4\n  A: the [cat"
    )


def test_records_of_an_import(shard):
    path = shard([static_record()], "static", settings={"imported_files": {}})
    _, block = inspect_shard(path)
    assert "; swapped; 4 masked, room for 4\n" in block


def test_another_vocabulary_is_taken_if_given(shard, tmp_path):
    names = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##do it x ##y !"
    WordPieceTokenizer(names.split()).save(tmp_path / "wordpiece")
    record = static_record(
        input_ids=padded([CLS, 5, 6, 7, 10, SEP, 8, 8, MASK, SEP]),
        input_mask=padded([1] * 10),
        segment_ids=padded([0] * 6 + [1] * 4),
        masked_lm_positions=[2, 7, 8, 0],
        masked_lm_ids=[6, 9, 9, 0],
        masked_lm_weights=[1.0, 1.0, 1.0, 0.0],
    )
    _, block = inspect_shard(
        shard([record], "static"), tokenizer_dir=tmp_path / "wordpiece"
    )
    assert block.endswith("  A: un[do=do] it !\n  B: x[y→x][y→[MASK]]")


def test_other_files_are_refused(tmp_path, vocabulary):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match="is not a file; expected the path"):
            list(inspect_shard(path))
    text = tmp_path / "notes.txt"
    text.write_text("Nothing but a line of plain text.\n")
    with pytest.raises(UserError, match=r"notes.txt, record 0 at byte 0: "):
        list(inspect_shard(text, tokenizer_dir=vocabulary))


def test_a_record_of_another_form_is_named(tmp_path, vocabulary):
    path = tmp_path / "a.tfrecord"
    write_shard(path, [static_record(), dynamic_record()])
    message = "a.tfrecord, record 1: feature 'input_ids'"
    with pytest.raises(UserError, match=message):
        list(inspect_shard(path, tokenizer_dir=vocabulary))
