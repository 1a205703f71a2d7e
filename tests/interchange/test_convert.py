"""Models in the formats of other libraries: there and back, and refusals."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
from tiny_models import TINY, built, edit_json, save

from albert_tf.config import FeatureConfig, UserError, override
from albert_tf.interchange.convert import convert, models_by_head
from albert_tf.interchange.formats import FORMATS
from albert_tf.interchange.google_tf1 import config_to_json, write_checkpoint
from albert_tf.interchange.model_directory import (
    load_model_directory,
    save_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord, read_task_record
from albert_tf.io import files
from albert_tf.modeling.models import models
from albert_tf.modeling.weights.stored_weights import stored_arrays

SHAPES = {
    "all": {},
    "attention": {"sharing": "attention"},
    "ffn, 2 groups": {"sharing": "ffn", "num_hidden_groups": 2},
    "none, inner": {
        "num_hidden_layers": 2,
        "sharing": "none",
        "inner_group_num": 2,
    },
    "2 groups, inner": {
        "num_hidden_layers": 4,
        "num_hidden_groups": 2,
        "inner_group_num": 2,
    },
    # transformers' division in floating point puts a layer elsewhere.
    "14 groups of 18": {
        "num_hidden_layers": 18,
        "num_hidden_groups": 14,
        "hidden_act": "relu",
    },
    "E = H": {"embedding_size": 8, "hidden_dropout_prob": 0.25},
}
# The heads that both formats have, and those of one.
HEADS = (
    "none",
    "pretraining",
    "masked_lm",
    "classification",
    "regression",
    "multiple_choice",
    "span",
)
HEADS_OF = {
    "google_tf1": (*HEADS, "answerable_span"),
    "huggingface": (*HEADS, "multi_label", "token_classification"),
}


@pytest.fixture
def saved(tmp_path, tiny_tokenizer):
    """Gives a function that saves a model and returns its path."""

    def save_built(head="pretraining", name="source", **changes):
        return save(tmp_path / name, built(head, **changes), tiny_tokenizer)

    return save_built


def contents(directory, *names):
    return [pathlib.Path(directory, name).read_bytes() for name in names]


def converted(from_path, to_format, **options):
    """Returns the path of a converted model, and the lines of the log."""
    to_path = f"{from_path}-{to_format}"
    lines = []
    convert(from_path, to_path, to_format, log=lines.append, **options)
    return to_path, lines


def same_model(one, other, *names):
    always = ("model.safetensors", "spiece.model", "tokenizer_config.json")
    for name in (*always, *names):
        assert contents(one, name) == contents(other, name), name


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_every_sharing_mode_there_and_back(saved, shape):
    source = saved(**SHAPES[shape])
    google, _ = converted(source, "google_tf1")
    back, _ = converted(google, "model_directory")
    same_model(source, back, "config.json")
    theirs, lines = converted(source, "huggingface")
    again, _ = converted(theirs, "model_directory")
    same_model(source, again)
    # Settings that transformers lacks are reported, and can be given.
    config = built(**SHAPES[shape]).config
    given = {n: getattr(config, n) for n in ("sharing", "num_hidden_groups")}
    reported = any(f"sharing={config.sharing}" in line for line in lines)
    assert reported == (config.sharing != "all" or shape == "14 groups of 18")
    if config.sharing != "all":
        back = f"{source}-given"
        convert(theirs, back, "model_directory", changes=given, log=len)
        same_model(source, back, "config.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "head"), [(f, head) for f in HEADS_OF for head in HEADS_OF[f]]
)
def test_every_head_there_and_back(saved, form, head):
    poolers = {True}
    # Heads whose class of transformers has no pooler.
    if form == "huggingface" and head in (
        "masked_lm",
        "span",
        "token_classification",
    ):
        poolers.add(False)
    for pooler in poolers:
        source = saved(head, f"source{pooler}", pooler=pooler)
        theirs, lines = converted(source, form)
        assert not any("Not needed" in line for line in lines)
        options = {}
        # They have the same variables.
        if form == "google_tf1" and head in ("regression", "multiple_choice"):
            with pytest.raises(UserError, match="multiple_choice; choose"):
                converted(theirs, "model_directory")
            options = {"head": head}
        back, lines = converted(theirs, "model_directory", **options)
        kind = {"google_tf1": "Google TF1 ch", "huggingface": "Hugging Face"}
        assert lines[0].startswith(f"From the {kind[form]}")
        same_model(source, back, "config.json")


def test_unsupported_heads_are_refused(saved):
    assert set(models_by_head().values()) == set(models().values())
    for form, heads in HEADS_OF.items():
        for head in sorted(set(models_by_head()) - set(heads)):
            message = f"has no head {head}, .*; --head=none takes the encoder"
            source = saved(head, name=head)
            with pytest.raises(UserError, match=message):
                converted(source, form)
            target, _ = converted(source, form, head="none")
            shutil.rmtree(target)


def google(place, model, changes=None):
    """Writes a checkpoint as a released folder has it."""
    place.mkdir()
    arrays = stored_arrays(model, "google")
    slots = {}
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        slots[f"{name}/adam_m"] = slots[f"{name}/adam_v"] = arrays[name]
    write_checkpoint(
        str(place / "model.ckpt-best"), arrays | slots | (changes or {})
    )
    (place / "checkpoint").unlink()
    (place / "model.ckpt-best.meta").write_bytes(b"a graph")
    values = config_to_json(model.config)
    del values["albert_tf"]
    values |= {"down_scale_factor": 1, "net_structure_type": 0}
    (place / "albert_config.json").write_text(json.dumps(values))
    return place


def test_a_released_folder(tmp_path, saved, tiny_tokenizer):
    place = google(tmp_path / "albert_tiny", built())
    (place / "30k-clean.model").write_bytes(tiny_tokenizer.model_bytes)
    (place / "30k-clean.vocab").write_text("pieces")
    lines = []
    target = str(tmp_path / "target")
    path = f"{place}/model.ckpt-best.index"
    convert(path, target, "model_directory", log=lines.append)
    assert lines == [
        f"From the Google TF1 checkpoint {place}/model.ckpt-best.",
        f"Wrote {target}: model_directory, AlbertForPretraining.",
    ]
    same_model(saved(), target, "config.json")


def test_labels_and_vocabulary_are_options(tmp_path, saved, tiny_directory):
    place = str(google(tmp_path / "finetuned", built("classification")))
    with pytest.raises(UserError, match="finetuned has no tokenizer.*--token"):
        converted(place, "model_directory")
    options = {"tokenizer": str(tiny_directory / "spiece.model")}
    for labels, message in (
        (["a", "b"], "num_labels=3 and 2 labels do not agree"),
        (["a", "b", "b"], r"labels=\['a', 'b', 'b'\]"),
    ):
        with pytest.raises(UserError, match=message):
            converted(place, "model_directory", labels=labels, **options)
    labels = ["no", "yes", "maybe"]
    target, _ = converted(place, "model_directory", labels=labels, **options)
    source = saved("classification", labels=tuple(labels))
    same_model(source, target, "config.json")
    _, lines = converted(source, "google_tf1")
    assert "names of the classes, ['no', 'yes', 'maybe']." in lines[1]


def test_the_originals_models_all_have_a_pooler(saved):
    theirs, _ = converted(saved("span", pooler=False), "huggingface")
    with pytest.raises(UserError, match="has no pooler, and every model of go"):
        converted(theirs, "google_tf1")
    data = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        place, lines = converted(theirs, "google_tf1", allow_missing=True)
        assert "pooler/bias, albert/encoder/pooler/kernel" in lines[1]
        data += contents(place, "model.ckpt-best.data-00000-of-00001")
    assert data[0] == data[1] != data[2]


def test_heads_of_the_weights_that_the_class_lacks(saved):
    source = saved()
    arrays = safetensors.numpy.load_file(f"{source}/model.safetensors")
    theirs, _ = converted(source, "huggingface")
    edit_json(theirs, "config.json", architectures=["AlbertForMaskedLM"])
    back, lines = converted(
        theirs, "model_directory", head="pretraining", allow_missing=True
    )
    assert not any("Initialised" in line for line in lines)
    found = safetensors.numpy.load_file(f"{back}/model.safetensors")
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    # But classes are not choices, though their weights have the same names.
    one = saved("multiple_choice", "one")
    with pytest.raises(UserError, match="has no head regression"):
        converted(one, "model_directory", head="regression")


def test_a_head_without_weights_is_not_missing(saved):
    place, lines = converted(
        saved(), "model_directory", head="sentence_embedding"
    )
    loaded = load_model_directory(place)
    assert [*loaded.model.heads] == ["sentence_embedding"]
    assert not any("Initialised" in line for line in lines)


def test_beams_of_answers_are_kept_or_reported(tmp_path, tiny_tokenizer):
    kind = models_by_head()["answerable_span"]
    model = kind(TINY, head_options={"start_n_top": 7})
    source = save(tmp_path / "source", model, tiny_tokenizer)
    _, lines = converted(source, "google_tf1")
    assert "Not stored: start_n_top=7." in lines
    place, _ = converted(source, "model_directory", changes={"sharing": "ffn"})
    head = load_model_directory(place).model.answerable_span
    assert (head.start_n_top, head.end_n_top) == (7, 5)


def test_missing_weights_are_initialised_on_request(saved):
    source = saved("span", pooler=False)
    options = {"head": "classification", "changes": {"sharing": "none"}}
    with pytest.raises(UserError, match="no head classific.*--allow_missing"):
        converted(source, "model_directory", **options)
    options["allow_missing"] = True
    with pytest.raises(UserError, match="classific.* needs .*--labels"):
        converted(source, "model_directory", **options)
    place, lines = converted(
        source, "model_directory", labels=["no", "yes"], **options
    )
    # The pooler too, which the head reads.
    assert lines[1:3] == [
        "Initialised: albert/classification/classifier/bias, "
        "albert/classification/classifier/kernel, "
        "albert/encoder/pooler/bias, albert/encoder/pooler/kernel.",
        "Not needed: qa_outputs.bias, qa_outputs.weight.",
    ]
    assert load_model_directory(place).labels == ["no", "yes"]


def test_changes_of_the_architecture(saved):
    source = saved()
    changes = {"sharing": "none", "max_position_embeddings": 40}
    wide, lines = converted(source, "model_directory", changes=changes)
    assert (
        "encoder/embeddings/position_embeddings: 16 rows, repeated until "
        "there are 40." in lines
    )
    assert load_model_directory(wide).model.config == override(TINY, changes)
    changes = {"sharing": "all", "max_position_embeddings": 16}
    back, _ = converted(wide, "model_directory", changes=changes)
    same_model(source, back, "config.json")


def test_the_record_of_a_task_is_kept_or_reported(saved):
    directory = saved("answerable_span")
    features = FeatureConfig(max_seq_length=16, null_threshold=1.5)
    columns = "context=text", "question=q"
    record = TaskRecord("SQuAD2.0", features, columns=columns)
    record.write(directory)
    for _ in range(2):  # once more, over its own output
        kept, lines = converted(directory, "model_directory")
    assert read_task_record(kept, 16) == record
    assert not [line for line in lines if "task.json" in line]
    lost, lines = converted(directory, "google_tf1")
    assert read_task_record(lost, 16) is None
    assert (
        "Not stored: task.json, the settings of SQuAD2.0: "
        "columns=context=text,question=q, null_threshold=1.5." in lines
    )
    one_file, _ = converted(directory, "keras")
    assert read_task_record(one_file, 16) == record
    own, _ = converted(
        directory, "model_directory", head="answerable_span", overwrite=True
    )
    assert read_task_record(own, 16) == record
    # A new head is of another task.
    other, lines = converted(
        directory, "model_directory", head="none", overwrite=True
    )
    assert read_task_record(other, 16) is None
    assert any("task.json, the settings of SQuAD2.0: " in x for x in lines)
    # A shorter position table takes shorter sequences.
    short, _ = converted(
        directory,
        "model_directory",
        changes={"max_position_embeddings": 8},
        overwrite=True,
    )
    features = load_model_directory(short).features
    assert features.max_seq_length == 8
    assert features.max_query_length <= 4
    assert features.doc_stride <= 4


def test_the_length_is_that_of_the_tokenizer_in_transformers(
    tmp_path, tiny_tokenizer
):
    source = str(tmp_path / "source")
    save_model_directory(source, built(), tiny_tokenizer, max_seq_length=9)
    theirs, lines = converted(source, "huggingface")
    assert not [line for line in lines if "max_seq_length" in line]
    again, _ = converted(theirs, "model_directory")
    assert load_model_directory(again).max_seq_length == 9
    _, lines = converted(source, "google_tf1")
    assert "Not stored: max_seq_length=9; it is read back as 16." in lines


def test_merging(saved):
    source = saved(sharing="none")
    options = {"changes": {"sharing": "all", "max_position_embeddings": 8}}
    with pytest.raises(UserError, match="that are to be one differ"):
        converted(source, "model_directory", **options)
    place, _ = converted(source, "model_directory", merge="first", **options)
    loaded = load_model_directory(place)
    assert loaded.max_seq_length == 8
    first, other = (
        model.encoder.blocks[0].attention.query.kernel.numpy()
        for model in (built(sharing="none"), loaded.model)
    )
    np.testing.assert_array_equal(first, other)


# tests/modeling/weights has all faults of weights and of config.json.
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bert/pooler/dens/kernel": np.ones(3)}, "unexpected: bert/pooler/de"),
        ({"cls/squad/output_weights": np.ones((2, 8))}, "pretraining, span;"),
    ],
)
def test_faults_of_weights_in_a_checkpoint(
    tmp_path, tiny_directory, changes, message
):
    place = str(google(tmp_path / "albert", built(), changes))
    with pytest.raises(UserError, match=message):
        converted(place, "model_directory", tokenizer=str(tiny_directory))
    assert os.listdir(tmp_path) == ["albert"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 10**7}, "they do not belong together"),
        ({"vocab_size": 150}, "tokenizer has 200 pieces and the model vocab_s"),
        ({"num_hidden_layers": 22, "num_hidden_groups": 22}, "albert spreads"),
    ],
)
def test_faults_of_a_configuration(tmp_path, tiny_directory, changes, message):
    place = google(tmp_path / "albert", built())
    edit_json(place, "albert_config.json", **changes)
    with pytest.raises(UserError, match=message) as raised:
        converted(str(place), "huggingface", tokenizer=str(tiny_directory))
    assert "\n" not in str(raised.value)


def test_paths_that_may_not_be_written(tmp_path, saved, tiny_directory):
    source = saved()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to(source)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "to-empty").symlink_to("empty")
    before = sorted(os.walk(tmp_path))
    for name, message in (
        ("source/", "contain each other"),
        ("link", "contain each other"),
        ("source/deep/inside", "contain each other"),
        (".", "contain each other"),
        ("file", "is a file or a link"),
        ("loop", "is a file or a link"),
        ("to-empty", "is a file or a link"),
        ("other", r"other holds thesis\.txt, which no conversion writes"),
    ):
        for overwrite in (False, True):
            with pytest.raises(UserError, match=message):
                to_path = str(tmp_path / name)
                convert(source, to_path, "google_tf1", overwrite=overwrite)
    other = str(tmp_path / "other")
    with pytest.raises(UserError, match="thesis.txt, which is read, contain"):
        convert(source, other, "google_tf1", tokenizer=f"{other}/thesis.txt")
    assert sorted(os.walk(tmp_path)) == before


def test_a_directory_without_a_model_is_of_no_format(tmp_path, saved):
    source = saved()
    for form, name in (("keras_hub", "README.md"), ("google_tf1", "vocab.txt")):
        place = tmp_path / form
        place.mkdir()
        (place / name).write_text("mine")
        with pytest.raises(UserError, match=f"format {form}: {name}. --overw"):
            convert(source, str(place), form)
        assert (place / name).read_text() == "mine"


def test_only_the_same_format_is_replaced(saved):
    source = saved()
    places = {form: f"{source}-{form}" for form in list(FORMATS)[:3]}
    for form, place in places.items():
        convert(source, place, form, log=len)
        before = contents(place, "tokenizer.json")
        convert(source, place, form, log=len)
        assert contents(place, "tokenizer.json") == before
    for there in places:
        for form in places:
            if there != form:
                message = f"is not of the format {form}"
                with pytest.raises(UserError, match=message):
                    convert(source, places[there], form, log=len)
    place = places["google_tf1"]
    convert(source, place, "huggingface", overwrite=True, log=len)
    assert set(os.listdir(place)) == set(os.listdir(places["huggingface"]))


def test_a_failed_conversion_leaves_the_target_as_it_was(saved):
    source = saved()
    place, _ = converted(source, "huggingface")
    before = contents(place, *sorted(os.listdir(place)))
    arrays = safetensors.numpy.load_file(f"{source}/model.safetensors")
    arrays["albert.pooler.bias"][1] = np.nan
    safetensors.numpy.save_file(arrays, f"{source}/model.safetensors")
    for form in ("google_tf1", "huggingface"):
        with pytest.raises(UserError, match=r"pooler\.bias holds NaN"):
            converted(source, form)
    assert not os.path.exists(f"{source}-google_tf1")
    assert contents(place, *sorted(os.listdir(place))) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to_format": "pickle"}, "to_format='pickle' is not one of model_"),
        ({"from_path": ""}, "from_path and to_path must not be empty"),
        ({"head": "qa"}, "head='qa' is not one of none, pretraining, masked"),
        ({"changes": {"hidden_size": 16}}, "position_embeddings|do not fit"),
        ({"labels": ["a"]}, "AlbertForPretraining has no classes"),
        ({"tokenizer": "/nowhere"}, "The tokenizer /nowhere does not exist"),
    ],
)
def test_wrong_options(tmp_path, saved, options, message):
    source = saved()
    paths = {"from_path": source, "to_path": str(tmp_path / "to")}
    with pytest.raises(UserError, match=message):
        convert(**{**paths, "to_format": "model_directory", **options})
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["huggingface", "google_tf1"])
def test_to_a_bucket_and_back(saved, monkeypatch, form):
    source, bucket = saved(sharing="all"), f"ram://convert/{form}"
    monkeypatch.chdir(source)
    for place in (source, "."):
        convert(place, f"{bucket}/", form, log=len)
    assert set(files.listdir(bucket)) <= FORMATS[form].files
    convert(bucket, f"{source}-back", "model_directory", log=len)
    same_model(source, f"{source}-back")
    with pytest.raises(UserError, match="contain each other"):
        convert(bucket, f"{bucket}/deeper", form)
    with pytest.raises(UserError, match="is not of the format keras_hub"):
        convert(source, bucket, "keras_hub")
