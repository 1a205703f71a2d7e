"""A task's examples as records, read as google-research/albert reads them."""

import json
import os

import pytest
import tensorflow as tf
from program_runner import run_program
from question_fixtures import squad_json
from training_fixtures import write_task

from albert_tf.config import FeatureConfig, UserError
from albert_tf.inputs.input_pipeline import check_shards
from albert_tf.records.shards import open_shards
from albert_tf.tasks.catalog import TASKS
from albert_tf.tasks.custom import custom_task
from data_prep import finetuning_data
from data_prep.finetuning_data import build_finetuning_data
from data_prep.shard_tools.inspection import inspect_shard

WORDS = ["bada", "gule", "mizo", "tepu", "rika", "sovu"]
LENGTH = 64
CONFIG = FeatureConfig(
    max_seq_length=LENGTH,
    doc_stride=6,
    max_query_length=8,
    max_choice_length=30,
)


def text(number, count=4):
    return " ".join(WORDS[(number * 5 + n * n) % 6] for n in range(count))


@pytest.fixture
def mrpc(tmp_path):
    """Ten pairs, whose label is their number's last bit."""
    rows = [f"{n % 2}\ta\tb\t{text(n)}\t{text(n + 3)}" for n in range(10)]
    write_task(tmp_path, rows, header="q\ti\tj\tone\ttwo")
    return TASKS["MRPC"]


@pytest.fixture
def build(tmp_path, tiny_directory):
    def call(task, name="out", log=lambda line: None, **options):
        return build_finetuning_data(
            task,
            str(tmp_path),
            str(tmp_path / name),
            tokenizer_dir=str(tiny_directory),
            config=CONFIG,
            log=log,
            **options,
        )

    return call


def original(kind, choices=1):
    """The features that the original's input functions ask for."""
    whole = tf.io.FixedLenFeature([choices * LENGTH], tf.int64)
    one = tf.io.FixedLenFeature([], tf.int64)
    found = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), whole)
    if kind == "questions":
        names = ("start_positions", "end_positions", "is_impossible")
        found |= dict.fromkeys(("unique_ids", *names), one)
        return found | {"p_mask": whole}
    found["is_real_example"] = one
    number = tf.io.FixedLenFeature([], tf.float32)
    return found | {"label_ids": number if kind == "number" else one}


PAIRS = original("pairs")


def read(out, split, features):
    """Returns the records of a split, parsed by TensorFlow, in order."""
    with open(os.path.join(out, "metadata.json")) as file:
        shards = json.load(file)["splits"][split]["shards"]
    paths = [os.path.join(out, shard["name"]) for shard in shards]
    return [
        {
            name: value.numpy()
            for name, value in tf.io.parse_single_example(
                record, features
            ).items()
        }
        for record in tf.data.TFRecordDataset(paths)
    ]


def expected_pair(tokenizer, first, second):
    one, two = tokenizer.encode(first), tokenizer.encode(second)
    ids = [tokenizer.cls_id, *one, tokenizer.sep_id, *two, tokenizer.sep_id]
    padding = [0] * (LENGTH - len(ids))
    segments = [0] * (len(one) + 2) + [1] * (len(two) + 1)
    return [[*ids, *padding], [*segments, *padding], [1] * len(ids) + padding]


def test_pairs_with_a_label(mrpc, build, tmp_path, tiny_tokenizer):
    logged = []
    out = tmp_path / "out"
    metadata = build(mrpc, log=logged.append)
    assert logged == [
        "train: 10 examples, 10 records, 1 shards.",
        "dev: 10 examples, 10 records, 1 shards.",
    ]
    dev = read(out, "dev", PAIRS)
    for number, record in enumerate(dev):
        pair = text(number), text(number + 3)
        ids, segments, mask = expected_pair(tiny_tokenizer, *pair)
        assert record["input_ids"].tolist() == ids
        assert record["segment_ids"].tolist() == segments
        assert record["input_mask"].tolist() == mask
        assert record["label_ids"] == number % 2
        assert record["is_real_example"] == 1
    # Training has the same ones, in another order.
    train = read(out, "train", PAIRS)
    rows = [tuple(record["input_ids"]) for record in train]
    in_order = [tuple(record["input_ids"]) for record in dev]
    assert rows != in_order
    assert sorted(rows) == sorted(in_order)
    assert metadata["labels"] == ["0", "1"]
    assert metadata["record_kind"] == "classification"
    assert metadata["splits"]["dev"]["num_examples"] == 10
    # The account is one that readers of shards check.
    with open_shards(out, "train") as shards:
        assert len(shards) == 10
        described = shards.metadata["tokenizer"]
        assert described["fingerprint"] == tiny_tokenizer.fingerprint


def test_labels_are_those_of_training(build, tmp_path):
    rows = [f"{text(n)}\t{('wet', 'dry')[n % 2]}" for n in range(4)]
    write_task(tmp_path, rows)
    lines = ["text", *map(text, range(3)), ""]
    (tmp_path / "test.tsv").write_text("\n".join(lines))
    task = custom_task(["text=text", "label=label"])
    metadata = build(task, splits=["test", "dev"])
    assert metadata["labels"] == ["dry", "wet"]
    assert list(metadata["splits"]) == ["test", "dev"]
    features = original("texts")
    dev = read(tmp_path / "out", "dev", features)
    assert [record["label_ids"] for record in dev] == [1, 0, 1, 0]
    test = read(tmp_path / "out", "test", features)
    assert [record["label_ids"] for record in test] == [0, 0, 0]


def test_numbers(build, tmp_path):
    pairs = [f"{text(n)}\t{text(n + 1)}\t{n}.25" for n in range(3)]
    rows = ["x\t" * 7 + pair for pair in pairs]
    write_task(tmp_path, rows, header="\t".join("abcdefghij"))
    build(TASKS["STS-B"])
    dev = read(tmp_path / "out", "dev", original("number"))
    assert [record["label_ids"] for record in dev] == [0.25, 1.25, 2.25]


def test_choices_follow_one_another(build, tmp_path, tiny_tokenizer):
    rows = [
        f"{text(n)}\t{text(n + 1, 2)}\t{text(n + 2, 2)}\tb" for n in range(3)
    ]
    write_task(tmp_path, rows, header="c\ta\tb\tright")
    task = custom_task(["context=c", "choice=a", "choice=b", "label=right"])
    build(task)
    dev = read(tmp_path / "out", "dev", original("choices", choices=2))
    assert len(dev) == 3
    for number, record in enumerate(dev):
        both = [
            expected_pair(tiny_tokenizer, text(number), text(number + n, 2))[0]
            for n in (1, 2)
        ]
        assert record["input_ids"].tolist() == both[0] + both[1]
        assert record["label_ids"] == 1


def test_questions(build, tmp_path):
    context = text(0, 40)
    word = context.split()[30]
    start = len(" ".join(context.split()[:30])) + 1
    answers = [{"text": word, "answer_start": start}]
    questions = [
        {"id": "a", "question": "bada?", "answers": answers},
        {"id": "b", "question": "gule?", "answers": []},
    ]
    for split in ("train", "dev"):
        content = squad_json(*questions, context=context)
        (tmp_path / f"{split}.json").write_text(content)
    metadata = build(TASKS["SQuAD2.0"])
    dev = read(tmp_path / "out", "dev", original("questions"))
    assert len(dev) == metadata["splits"]["dev"]["num_records"] > 4
    assert metadata["splits"]["dev"]["num_examples"] == 2
    numbers = [record["unique_ids"] for record in dev]
    assert numbers == list(range(1_000_000_000, 1_000_000_000 + len(dev)))
    # The first question alone has windows with its answer.
    found = [bool(record["start_positions"]) for record in dev]
    half = len(dev) // 2
    assert any(found[:half]) and not any(found[half:])
    for record, answered in zip(dev, found, strict=True):
        assert record["is_impossible"] == (not answered)
        # No answer at the question, nor in the padding.
        assert record["p_mask"][1] == 1
        assert record["p_mask"][record["input_mask"] == 0].all()


def test_the_bytes_are_those_of_the_seed(mrpc, build, tmp_path):
    shards = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build(mrpc, name, seed=seed, num_shards=3)
        paths = (tmp_path / name).glob("*.tfrecord")
        shards[name] = {path.name: path.read_bytes() for path in paths}
    assert shards["a"] == shards["b"]
    assert sorted(shards["a"]) == [
        f"{split}-0000{n}-of-00003.tfrecord"
        for split in ("dev", "train")
        for n in range(3)
    ]
    differing = {n for n, v in shards["a"].items() if v != shards["c"][n]}
    assert differing and all(name.startswith("train") for name in differing)
    # The records do not depend on the number of shards.
    build(mrpc, "whole", seed=1)
    for split in ("train", "dev"):
        one, three = (
            [r["input_ids"].tolist() for r in read(out, split, PAIRS)]
            for out in (tmp_path / "whole", tmp_path / "a")
        )
        assert one == three


def test_large_splits_are_several_shards(mrpc, build, tmp_path, monkeypatch):
    monkeypatch.setattr(finetuning_data, "_SHARD_BYTES", 1000)
    monkeypatch.setattr(finetuning_data, "_BATCH", 2)
    metadata = build(mrpc)
    shards = metadata["splits"]["dev"]["shards"]
    assert len(shards) > 1
    assert all(500 < shard["num_bytes"] < 1500 for shard in shards)
    records = read(tmp_path / "out", "dev", PAIRS)
    assert [record["label_ids"] for record in records] == [0, 1] * 5


def test_a_directory_with_files_is_refused(mrpc, build, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    message = "out holds mine.txt; name an empty --output_dir, or remove it."
    with pytest.raises(UserError, match=message):
        build(mrpc)
    assert os.listdir(out) == ["mine.txt"]


def test_more_shards_than_records(mrpc, build, tmp_path):
    message = "num_shards=11 is more than the 10 records of train."
    with pytest.raises(UserError, match=message):
        build(mrpc, num_shards=11)
    # A command with fewer shards finds the place empty.
    build(mrpc, num_shards=2)
    assert len(list((tmp_path / "out").glob("*.tfrecord"))) == 4


def test_pretraining_refuses_them(mrpc, build, tmp_path, tiny_tokenizer):
    out = tmp_path / "out"
    build(mrpc)
    message = "record_kind='classification' is not one of dynamic, static"
    with (
        open_shards(out, "train") as shards,
        pytest.raises(UserError, match=message),
    ):
        check_shards(None, shards, tiny_tokenizer)
    with pytest.raises(UserError, match=message):
        list(inspect_shard(str(out / "dev-00000-of-00001.tfrecord")))


def test_lengths_that_are_not_given_follow_max_seq_length(monkeypatch):
    found = []
    monkeypatch.setattr(
        finetuning_data,
        "build_finetuning_data",
        lambda *_, config, **others: found.append(config),
    )
    done = run_program(
        "build_finetuning_data",
        "--task=SQuAD1.1",
        "--data_dir=none",
        "--tokenizer=none",
        "--output_dir=none",
        "--max_seq_length=48",
        "--max_query_length=30",
    )
    assert done.status == 0, done.error
    (config,) = found
    assert (config.doc_stride, config.max_query_length) == (24, 30)
