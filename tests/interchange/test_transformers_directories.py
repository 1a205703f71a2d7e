"""Directories that transformers saves of models that were made here.

It copies our section of config.json as it was, whatever has become of the
model. Here they are made from what we write; tests/parity has the library.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from numpy_albert import assert_same, random_features, values_of
from safetensors.numpy import load_file, save_file
from tiny_models import TINY, built, edit_json, save, torch_archive

from albert_tf.config import FeatureConfig, UserError, override
from albert_tf.interchange.convert import convert, models_by_head
from albert_tf.interchange.model_directory import (
    LoadedModel,
    find_initial_weights,
    load_model_directory,
)
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.modeling.heads import HEADS
from albert_tf.modeling.models import (
    AlbertForClassification,
    AlbertForMaskedLM,
    AlbertForMultiLabelClassification,
    AlbertForPretraining,
    AlbertModel,
)
from albert_tf.modeling.weights.pretrained import initialize
from albert_tf.prediction.predictor import Predictor
from albert_tf.text.tokenizer import load_tokenizer

WEIGHTS = "model.safetensors"
# Heads that have a class in transformers.
THEIRS = [
    name
    for name, kind in models_by_head().items()
    if name in ("none", "pretraining")
    or HEADS[name].transformers_model != "AlbertModel"
]
POOLED = (
    *("none", "pretraining", "classification", "multi_label", "regression"),
)


def section(directory):
    values = json.loads(pathlib.Path(directory, "config.json").read_text())
    return values["albert_tf"]


def reweighed(directory, change):
    path = pathlib.Path(directory, WEIGHTS)
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


@pytest.fixture
def saved_there(tmp_path, tiny_tokenizer):
    """saved_there(source, head) returns the directory of a model with `head`.

    It was made of a model with the head `source` that was saved here.
    """

    def directory(source, head, **changes):
        ours = save(tmp_path / "ours", built(source, **changes), tiny_tokenizer)
        # The classes of transformers have a pooler where a head reads it.
        has_pooler = head in (*POOLED, "multiple_choice")
        model = built(head, pooler=has_pooler, **changes)
        theirs = save(tmp_path / "theirs", model, tiny_tokenizer)
        edit_json(
            theirs,
            "config.json",
            transformers_version="5.24.0",
            # What was written there until 2026.
            albert_tf={**section(ours), "pooler": True},
        )
        pathlib.Path(theirs, "spiece.model").unlink()
        return theirs, model

    return directory


def outputs(model):
    features = random_features(TINY, length=7)
    if "multiple_choice" in model.head_names:
        for name in ("input_ids", "input_mask", "segment_ids"):
            features[name] = features[name][None]
    needed = ("input_ids", "input_mask", "segment_ids")
    needed += model.features_of_heads()
    return model({name: features[name] for name in needed})


@pytest.mark.slow
@pytest.mark.parametrize("source", ["pretraining", "classification"])
@pytest.mark.parametrize("head", THEIRS)
def test_the_class_of_the_file_decides(saved_there, tmp_path, source, head):
    directory, model = saved_there(source, head)
    loaded = load_model_directory(directory)
    assert type(loaded.model) is type(model)
    assert loaded.labels == model.labels
    assert loaded.max_seq_length == 16
    assert_same(outputs(loaded.model), outputs(model))
    again = type(model).from_pretrained(directory)
    assert again.labels == model.labels
    assert_same(values_of(again), values_of(model))
    lines = []
    place = str(tmp_path / "converted")
    convert(directory, place, "model_directory", log=lines.append)
    assert lines[-1].endswith(f"model_directory, {type(model).__name__}.")
    assert section(place)["model"] == type(model).__name__
    assert_same(values_of(load_model_directory(place).model), values_of(model))


@pytest.mark.parametrize("head", THEIRS)
def test_the_encoder_starts_a_fine_tuning(saved_there, head):
    directory, model = saved_there("pretraining", head)
    weights = find_initial_weights(directory)
    new = AlbertForClassification(weights.config, 2)
    line = initialize(new, weights)
    assert f"/{WEIGHTS}. Initialised: albert/classification/" in line
    is_new = "albert/encoder/pooler/kernel" in line
    assert is_new == (model.encoder.pooler is None)
    ours, theirs = values_of(new.encoder), values_of(model.encoder)
    assert_same({name: ours[name] for name in theirs}, theirs)


def test_a_section_without_architectures_has_the_class(saved_there):
    directory, model = saved_there("classification", "classification")
    edit_json(directory, "config.json", architectures=None)
    assert type(load_model_directory(directory).model) is type(model)


def test_a_class_that_is_not_here(saved_there):
    directory, _ = saved_there("pretraining", "none")
    edit_json(directory, "config.json", architectures=["MyAlbert"])
    with pytest.raises(UserError, match=r"architectures is \['MyAlbert'\]; on"):
        load_model_directory(directory)


# --- Classes of ours for which transformers has one or none ---------------


def test_classes_that_are_bare_encoders_there(saved_there):
    """An answerable span's head is dropped, an embedding has no weights."""
    directory, _ = saved_there("answerable_span", "none")
    edit = section(directory) | {"head_options": {"start_n_top": 3}}
    edit_json(directory, "config.json", albert_tf=edit)
    assert type(load_model_directory(directory).model) is AlbertModel
    kind = models_by_head()["answerable_span"]
    with pytest.raises(
        UserError, match="holds an AlbertModel[ ;].*a new head ans"
    ):
        kind.from_pretrained(directory)
    directory, _ = saved_there("sentence_embedding", "none")
    loaded = load_model_directory(directory).model
    assert type(loaded) is models_by_head()["sentence_embedding"]


@pytest.mark.parametrize(
    ("source", "changes", "labels"),
    [
        ("regression", {"problem_type": "single_label_classification"}, 3),
        # transformers decides so where no type is given.
        ("regression", {"problem_type": None}, 3),
        ("classification", {"problem_type": None, "id2label": {"0": "a"}}, 0),
        ("classification", {"problem_type": "regression", "num_labels": 1}, 0),
    ],
)
def test_numbers_and_classes(saved_there, source, changes, labels):
    head = "classification" if labels else "regression"
    directory, model = saved_there(source, head)
    edit_json(directory, "config.json", **changes)
    loaded = load_model_directory(directory)
    assert type(loaded.model) is type(model)
    assert len(loaded.labels or ()) == labels


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            "regression",
            "problem_type=regression with 3 labels; only one number",
        ),
        ("ranking", "problem_type='ranking' is not one of "),
    ],
)
def test_problems_that_no_head_has(saved_there, problem, message):
    directory, _ = saved_there("pretraining", "classification")
    edit_json(directory, "config.json", problem_type=problem)
    with pytest.raises(UserError, match=message) as raised:
        load_model_directory(directory)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("architectures", ["MyAlbert"]),
        ("problem_type", "regression"),
        ("id2label", {"0": "a", "1": "a", "2": "b"}),
    ],
)
def test_the_encoder_of_a_head_that_is_not_here(
    saved_there, tmp_path, name, value
):
    directory, model = saved_there("pretraining", "classification")
    edit_json(directory, "config.json", **{name: value})
    kernel = model.encoder.pooler.kernel.numpy()
    target = models_by_head()["regression"](TINY)
    initialize(target, find_initial_weights(directory))
    np.testing.assert_array_equal(target.encoder.pooler.kernel, kernel)
    place = str(tmp_path / "converted")

    def converted(head):
        convert(
            *(directory, place, "model_directory"),
            head=head,
            log=lambda line: None,
        )

    for refused in (type(model).from_pretrained, lambda _: converted("")):
        with pytest.raises(UserError, match=name):
            refused(directory)
    converted("none")
    kept = load_model_directory(place).model.encoder.pooler.kernel
    np.testing.assert_array_equal(kept, kernel)


def test_a_problem_type_decides_between_one_label_and_several(saved_there):
    directory, model = saved_there("classification", "multi_label")
    again = AlbertForMultiLabelClassification.from_pretrained(directory)
    assert again.labels == model.labels
    assert_same(outputs(again), outputs(model))
    path = pathlib.Path(directory, "config.json")
    values = json.loads(path.read_text())
    assert values["architectures"] == ["AlbertForSequenceClassification"]
    assert values["problem_type"] == "multi_label_classification"


# --- Other architectures --------------------------------------------------


def of_group(number):
    return f"albert.encoder.albert_layer_groups.{number}."


def test_copies_that_were_trained_apart(saved_there):
    directory, model = saved_there("pretraining", "masked_lm", sharing="ffn")
    loaded = load_model_directory(directory).model
    assert loaded.config.sharing == "ffn"
    assert_same(values_of(loaded), values_of(model))
    name = of_group(1) + "albert_layers.0.ffn.weight"

    def train(weights):
        weights[name] += 1

    reweighed(directory, train)
    loaded = load_model_directory(directory).model
    assert (loaded.config.sharing, loaded.config.num_hidden_groups) == (
        "all",
        3,
    )
    first, second = (
        np.asarray(block.feed_forward.intermediate.kernel)
        for block in loaded.encoder.blocks[:2]
    )
    np.testing.assert_allclose(second, first + 1)


@pytest.mark.parametrize("sharing", ["all", "attention", "none"])
def test_layers_that_were_cut(saved_there, sharing):
    groups = 1 if sharing == "all" else 2
    directory, _ = saved_there("pretraining", "none", sharing=sharing)
    edit_json(
        directory, "config.json", num_hidden_layers=2, num_hidden_groups=groups
    )
    reweighed(
        directory,
        lambda weights: [
            weights.pop(name) for name in list(weights) if of_group(2) in name
        ],
    )
    config = load_model_directory(directory).model.config
    assert (config.num_hidden_layers, config.sharing) == (2, sharing)


def test_groups_of_another_number(saved_there):
    directory, model = saved_there("pretraining", "none", num_hidden_groups=3)
    own = section(directory) | {"num_hidden_groups": 1}
    edit_json(directory, "config.json", albert_tf=own)
    loaded = load_model_directory(directory).model
    assert loaded.config.num_hidden_groups == 3
    assert_same(outputs(loaded), outputs(model))
    # More than there are layers is no number of the file's.
    own = section(directory) | {"num_hidden_groups": 4}
    edit_json(directory, "config.json", albert_tf=own)
    assert load_model_directory(directory).model.config == loaded.config


def test_positions_that_were_cut(saved_there):
    directory, _ = saved_there("pretraining", "masked_lm")
    name = "albert.embeddings.position_embeddings.weight"

    def cut(weights):
        weights[name] = weights[name][:8].copy()

    reweighed(directory, cut)
    edit_json(directory, "config.json", max_position_embeddings=8)
    assert load_model_directory(directory).max_seq_length == 8


def test_a_vocabulary_that_has_grown(saved_there):
    directory, _ = saved_there("pretraining", "none")
    name = "albert.embeddings.word_embeddings.weight"

    def grow(weights):
        weights[name] = np.concatenate([weights[name], weights[name][:2]])

    reweighed(directory, grow)
    edit_json(directory, "config.json", vocab_size=202)
    assert AlbertModel.from_pretrained(directory).config.vocab_size == 202
    with pytest.raises(UserError, match="has 200 pieces and the model vocab_"):
        load_model_directory(directory)
    path = pathlib.Path(directory, "tokenizer.json")
    tokens = json.loads(path.read_text())["added_tokens"]
    new = [{**tokens[0], "id": 200 + i, "content": f"[E{i}]"} for i in range(2)]
    edit_json(directory, "tokenizer.json", added_tokens=[*tokens, *new])
    loaded = load_model_directory(directory)
    assert loaded.tokenizer.encode("[E1][E0]") == [201, 200]


def test_embeddings_that_were_rounded_up(saved_there):
    directory, model = saved_there("pretraining", "none")
    name = "albert.embeddings.word_embeddings.weight"

    def round_up(weights):
        weights[name] = np.concatenate([weights[name], weights[name][:56]])

    reweighed(directory, round_up)
    edit_json(directory, "config.json", vocab_size=256)
    loaded = load_model_directory(directory)
    assert_same(outputs(loaded.model), outputs(model))
    again = save(
        pathlib.Path(directory, "again"), loaded.model, loaded.tokenizer
    )
    for path in (again, pathlib.Path(again, "tokenizer.json")):
        tokenizer = load_tokenizer(path)
        assert tokenizer.encode(
            "the <unused201> of"
        ) == loaded.tokenizer.encode("the <unused201> of")
    assert load_model_directory(again).tokenizer.vocab_size == 256


@pytest.mark.parametrize(
    ("settings", "has_segments"),
    [
        ({"backend": "tokenizers"}, False),
        ({"backend": "tokenizers", "tokenizer_class": "BertTokenizer"}, True),
        # transformers 4.
        ({}, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, False),
        ({"model_input_names": ["input_ids", "token_type_ids"]}, True),
    ],
)
def test_pairs_without_segments_in_transformers(
    saved_there, settings, has_segments
):
    directory, model = saved_there("none", "classification")
    path = pathlib.Path(directory, "tokenizer_config.json")
    values = json.loads(path.read_text())
    del values["model_input_names"]
    path.write_text(json.dumps({**values, **settings}))
    features = random_features(TINY, length=7)
    inputs = {n: features[n] for n in ("input_ids", "segment_ids")}
    loaded = load_model_directory(directory)
    found = loaded.model(inputs)
    if not has_segments:
        inputs["segment_ids"] = np.zeros_like(inputs["segment_ids"])
    assert_same(found, model(inputs))


def test_a_model_of_one_segment_reads_pairs(saved_there):
    directory, model = saved_there("none", "classification", type_vocab_size=1)
    (found,) = Predictor(directory).classify([("the house", "of wood")])
    features = load_tokenizer(directory)([("the house", "of wood")])
    features["segment_ids"] *= 0
    logits = np.asarray(model(features)["logits"], "float64")[0]
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(
        list(found.probabilities.values()), expected, rtol=1e-5
    )


@pytest.mark.parametrize("rate", [0.2, None])
def test_a_rate_of_dropout_that_is_null(saved_there, rate):
    directory, _ = saved_there("none", "token_classification")
    changes = {"hidden_dropout_prob": 0.3, "classifier_dropout_prob": rate}
    edit_json(directory, "config.json", **changes)
    config = load_model_directory(directory).model.config
    assert config.classifier_dropout_prob == (rate or 0.3)


def test_pretrained_models_keep_their_segments(saved_there):
    directory, model = saved_there("none", "pretraining")
    edit_json(
        directory, "tokenizer_config.json", model_input_names=["input_ids"]
    )
    assert_same(
        values_of(load_model_directory(directory).model), values_of(model)
    )


def test_directories_with_models_inside(saved_there, tmp_path):
    """Trainer's checkpoints, the hub's cache, and adapters without a model."""
    model = pathlib.Path(saved_there("none", "none")[0])
    place = tmp_path / "run"
    for name in ("checkpoint-9", "checkpoint-10", "runs"):
        (place / name).mkdir(parents=True)
        if name != "runs":
            shutil.copy(model / "config.json", place / name)
    cached = tmp_path / "models--a--b" / "snapshots" / "1f3c"
    shutil.copytree(model, cached)
    lora = tmp_path / "lora"
    lora.mkdir()
    (lora / "adapter_config.json").touch()
    both = tmp_path / "both"
    shutil.copytree(model, both)
    (both / "adapter_config.json").touch()
    for directory, message in (
        (both, "holds adapters beside the model, which transformers adds"),
        (place, "2 of its directories have; name one .*/checkpoint-10"),
        (cached.parents[1], "1 of its directories have; .*/snapshots/1f3c"),
        (lora, "holds adapters of a model, not the model"),
    ):
        for load in (
            load_model_directory,
            find_initial_weights,
            AlbertModel.from_pretrained,
        ):
            with pytest.raises(UserError, match=message):
                load(str(directory))
    assert load_model_directory(str(cached))


# --- Files beside ---------------------------------------------------------


def test_a_task_of_before_is_not_that_of_the_model(saved_there, tmp_path):
    features = override(FeatureConfig(), {"max_seq_length": 9})
    record = TaskRecord("mrpc", features, pairs=True)
    for source, head, task in (
        ("classification", "classification", record),
        ("classification", "span", None),
        ("regression", "classification", None),
    ):
        directory, _ = saved_there(source, head)
        record.write(directory)
        assert load_model_directory(directory).task == task
        lines = []
        place = str(tmp_path / "converted")
        convert(directory, place, "model_directory", log=lines.append)
        assert load_model_directory(place).task == task
        shutil.rmtree(place)


def in_shards(directory, **changes):
    """Splits the weights as `max_shard_size` does."""
    path = pathlib.Path(directory, WEIGHTS)
    weights = load_file(path)
    path.unlink()
    names = sorted(weights)
    where = {}
    for number in range(3):
        part = f"model-{number + 1:05}-of-00003.safetensors"
        mine = {name: weights[name] for name in names[number::3]}
        save_file(mine, path.with_name(part), metadata={"format": "pt"})
        where |= dict.fromkeys(mine, part)
    index = {"metadata": {"total_size": 1}, "weight_map": where | changes}
    path.with_name(f"{WEIGHTS}.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("head", ["none", "masked_lm", "classification"])
def test_weights_in_several_files(saved_there, head):
    directory, model = saved_there("pretraining", head)
    if head == "none":
        # It has the names of an encoder alone.
        def rename(weights):
            for name in list(weights):
                weights[name.removeprefix("albert.")] = weights.pop(name)

        reweighed(directory, rename)
    in_shards(directory)
    assert_same(
        values_of(load_model_directory(directory).model), values_of(model)
    )
    weights = find_initial_weights(directory)
    assert weights.source.endswith("/model.safetensors.index.json")


def test_normalisations_by_the_names_of_tensorflow(saved_there):
    directory, model = saved_there("pretraining", "masked_lm")

    def rename(weights):
        for name in list(weights):
            if "orm." in name:
                old = name.replace("orm.weight", "orm.gamma")
                old = old.replace("orm.bias", "orm.beta")
                weights[old] = weights.pop(name)

    reweighed(directory, rename)
    assert_same(
        values_of(load_model_directory(directory).model), values_of(model)
    )


@pytest.mark.parametrize("outer", ["", "module.", "_orig_mod.", "a.b."])
@pytest.mark.parametrize("head", ["none", "classification"])
def test_weights_of_torch(saved_there, head, outer):
    directory, model = saved_there("classification", head)
    path = pathlib.Path(directory, WEIGHTS)
    weights = {outer + n: value for n, value in load_file(path).items()}
    if head == "none":
        # An encoder alone, as an attribute of any name or none.
        weights = {n.replace("albert.", ""): v for n, v in weights.items()}
    path.unlink()
    path.with_name("pytorch_model.bin").write_bytes(torch_archive(weights))
    loaded = load_model_directory(directory)
    assert_same(values_of(loaded.model), values_of(model))
    half = dict(list(weights.items())[::2])
    index = {}
    for name, part in (
        ("1", half),
        ("2", {n: weights[n] for n in weights.keys() - half}),
    ):
        path.with_name(f"pytorch_model-{name}.bin").write_bytes(
            torch_archive(part)
        )
        index |= dict.fromkeys(part, f"pytorch_model-{name}.bin")
    path.with_name("pytorch_model.bin").unlink()
    edited = path.with_name("pytorch_model.bin.index.json")
    edited.write_text(json.dumps({"weight_map": index}))
    weights = find_initial_weights(directory)
    assert weights.source == str(edited)
    assert weights.fingerprint == find_initial_weights(directory).fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": "../model-00001-of-00003.safetensors"}, "must give each weight"),
        ({"a": "model.pt"}, "must give each weight the name of a file of weig"),
        ({"a": 3}, "must give each weight the name of a file of weights in th"),
        ({"a": "other.safetensors"}, r"/other\.safetensors is missing"),
        ({"a": "copy.safetensors"}, "holds .*, which another file of .* holds"),
        (
            {"a": "model-00001-of-00003.safetensors"},
            r"lists \['a'\], which none of them holds",
        ),
    ],
)
def test_a_faulty_index(saved_there, changes, message):
    directory, _ = saved_there("pretraining", "none")
    in_shards(directory, **changes)
    first = pathlib.Path(directory, "model-00001-of-00003.safetensors")
    shutil.copy(first, first.with_name("copy.safetensors"))
    with pytest.raises(UserError, match=message) as raised:
        load_model_directory(directory)
    assert "\n" not in str(raised.value)


def test_an_index_without_files(saved_there):
    directory, _ = saved_there("pretraining", "none")
    in_shards(directory)
    path = pathlib.Path(directory, f"{WEIGHTS}.index.json")
    for values in ({}, {"weight_map": {}}, {"weight_map": [1]}):
        path.write_text(json.dumps(values))
        with pytest.raises(
            UserError, match="weight_map=.* must give each weig"
        ):
            AlbertModel.from_pretrained(directory)


def test_weights_saved_here_replace_those_of_an_index(saved_there):
    directory, _ = saved_there("pretraining", "masked_lm")
    in_shards(directory)
    model = built("pretraining")
    model.save_pretrained(directory)
    again = AlbertForPretraining.from_pretrained(directory)
    assert_same(values_of(again), values_of(model))
    assert AlbertForMaskedLM.from_pretrained(directory)


@pytest.mark.parametrize(
    ("length", "question", "choice"),
    [(512, 64, 128), (256, 64, 128), (128, 64, 64), (64, 32, 32)],
)
def test_questions_and_choices_fit_a_model_without_a_record(
    tiny_tokenizer, length, question, choice
):
    features = LoadedModel(built("span"), tiny_tokenizer, length).features
    assert features.max_seq_length == length
    assert features.max_query_length == question
    assert features.max_choice_length == features.doc_stride == choice
