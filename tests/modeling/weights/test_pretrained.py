"""from_pretrained and save_pretrained: ours, other classes', hostile files."""

import json
import resource
import shutil

import numpy as np
import pytest
from numpy_albert import (
    SMALL,
    assert_same,
    random_features,
    randomise,
    values_of,
)
from safetensors.numpy import load_file, save_file
from test_heads import batch_of, model_of

from albert_tf.config import ModelConfig, UserError, override, to_dict
from albert_tf.io import files
from albert_tf.modeling.models import (
    AlbertForAnswerableQuestions,
    AlbertForClassification,
    AlbertForMaskedLM,
    AlbertForPretraining,
    AlbertForQuestionAnswering,
    AlbertModel,
    models,
)
from albert_tf.modeling.weights.config_json import labels_from_json
from albert_tf.modeling.weights.pretrained import check_size
from albert_tf.modeling.weights.stored_weights import StoredWeights
from tests.counted_work import steps_below

TINY = {
    "vocab_size": 9,
    "embedding_size": 1,
    "hidden_size": 1,
    "num_attention_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 4,
    "num_hidden_layers": 64,
    "inner_group_num": 2,
    "sharing": "none",
}
MAPPING = "albert.encoder.embedding_hidden_mapping_in."


def changed(directory, change=lambda values: None, **own):
    """Changes a directory's config.json."""
    path = directory / "config.json"
    values = json.loads(path.read_text())
    change(values)
    if own:
        values["albert_tf"].update(own)
    path.write_text(json.dumps(values))


def reweighed(directory, change):
    """Changes a directory's weights."""
    weights = load_file(directory / "model.safetensors")
    change(weights)
    save_file(weights, directory / "model.safetensors")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns a function: the directory of a class's model, to be read."""
    root = tmp_path_factory.mktemp("models")

    def directory(name):
        path = root / name
        if not path.exists():
            model_of(name).save_pretrained(path)
        return path

    return directory


@pytest.fixture
def copied(saved, tmp_path):
    """Returns a function: the same, to be changed."""

    def directory(name):
        return shutil.copytree(saved(name), tmp_path / name)

    return directory


@pytest.mark.parametrize("name", models())
def test_saved_and_loaded_models_are_equal(name, saved, capsys):
    model = model_of(name)
    again = type(model).from_pretrained(saved(name))
    assert capsys.readouterr().out == ""
    assert again.config == model.config
    assert again.labels == model.labels
    assert again.head_options == model.head_options
    assert_same(values_of(again), values_of(model))
    features = batch_of(name)
    assert_same(again(features), model(features))


def test_a_failed_save_leaves_the_weights_of_before(copied):
    directory = copied("AlbertModel")
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            model_of("AlbertModel").save_pretrained(directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert after == before


def test_a_class_of_the_users_own_is_not_saved(tmp_path):
    class Own(AlbertModel):
        pass

    with pytest.raises(UserError, match="model class='Own' is not one of Alb"):
        Own(SMALL).save_pretrained(tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_pooler_that_was_left_out_stays_out(tmp_path):
    model = randomise(AlbertForQuestionAnswering(SMALL, pooler=False))
    model.save_pretrained(tmp_path)
    again = AlbertForQuestionAnswering.from_pretrained(tmp_path)
    assert again.encoder.pooler is None
    assert_same(values_of(again), values_of(model))


def test_as_many_labels_as_a_task_may_have(tmp_path):
    names = [f"a label of some thirty letters {n}" for n in range(1 << 16)]
    tiny = {**TINY, "num_hidden_layers": 1, "inner_group_num": 1}
    model = AlbertForClassification(override(ModelConfig(), tiny), labels=names)
    model.save_pretrained(tmp_path)
    again = AlbertForClassification.from_pretrained(tmp_path)
    assert again.labels == names


@pytest.mark.parametrize("labels", ["ab", [1, 2], ["a", "a"], ["a", ""], []])
def test_labels_are_names(labels):
    with pytest.raises(UserError, match="must be names, strings that are all"):
        AlbertForClassification(override(ModelConfig(), TINY), labels=labels)


def test_labels_of_numpy_are_names():
    names = np.array(["a", "b"])
    config = override(ModelConfig(), TINY | {"num_hidden_layers": 1})
    model = AlbertForClassification(config, labels=names)
    assert model.labels == ["a", "b"]


def test_labels_are_those_of_the_file_or_new(copied, capsys):
    directory = copied("AlbertForClassification")
    names = ["no", "maybe", "yes"]

    def rename(values):
        values["id2label"] = {str(n): name for n, name in enumerate(names)}

    changed(directory, rename)
    for arguments in ({}, {"num_labels": 3}, {"labels": names}):
        again = AlbertForClassification.from_pretrained(directory, **arguments)
        assert again.labels == names
        assert_same(
            values_of(again), values_of(model_of("AlbertForClassification"))
        )
    for arguments in ({"num_labels": 2}, {"labels": names[::-1]}):
        with pytest.raises(UserError, match="new head classification, which"):
            AlbertForClassification.from_pretrained(directory, **arguments)
        assert capsys.readouterr().out == ""
        new = AlbertForClassification.from_pretrained(
            directory, allow_missing=True, name="mine", **arguments
        )
        printed = capsys.readouterr().out
        assert "Initialised: mine/classification/classifier/bias" in printed
        assert "Not needed: classifier.bias, classifier.weight" in printed
        assert not np.asarray(new.classification.classifier.bias).any()


@pytest.mark.parametrize(
    ("source", "kind", "head"),
    [
        ("ForPretraining", "ForRegression", "regression"),
        # Heads whose weights have the same names in files.
        ("ForClassification", "ForRegression", "regression"),
        ("ForRegression", "ForMultipleChoice", "multiple_choice"),
        ("ForQuestionAnswering", "ForAnswerableQuestions", "answerable_span"),
    ],
)
def test_the_encoder_of_another_class_is_loaded(
    source, kind, head, saved, capsys
):
    source, kind = f"Albert{source}", models()[f"Albert{kind}"]
    with pytest.raises(
        UserError, match=f"an {source}[ ;].*a new head {head}, "
    ):
        kind.from_pretrained(saved(source))
    model = kind.from_pretrained(saved(source), allow_missing=True)
    assert f"albert/{head}/" in capsys.readouterr().out
    assert_same(values_of(model.encoder), values_of(model_of(source).encoder))
    theirs = values_of(model_of(source))
    for path, value in values_of(model).items():
        if path.startswith(head) and value.ndim == 2:
            assert not any(np.array_equal(value, v) for v in theirs.values())


def test_heads_of_both_classes_are_loaded(saved, capsys):
    directory = saved("AlbertForPretraining")
    theirs = values_of(model_of("AlbertForPretraining"))
    for kind in ("Model", "ForMaskedLM", "ForSentenceEmbedding"):
        model = models()[f"Albert{kind}"].from_pretrained(directory)
        ours = values_of(model)
        assert_same(ours, {name: theirs[name] for name in ours})
        printed = capsys.readouterr().out
        assert "Not needed: " in printed
        assert "sop_classifier.classifier.bias" in printed
        assert "Initialised" not in printed
    with pytest.raises(UserError, match="a new head sentence_order, which"):
        AlbertForPretraining.from_pretrained(saved("AlbertForMaskedLM"))


def test_words_of_their_own_in_the_masked_lm_head(copied):
    """Where transformers had tie_word_embeddings=False."""
    directory = copied("AlbertForMaskedLM")
    name = "predictions.decoder.weight"
    words = "albert.embeddings.word_embeddings.weight"
    reweighed(directory, lambda w: w.update({name: w[words] + 1}))
    with pytest.raises(UserError, match=f"{name} differs from {words}"):
        AlbertForMaskedLM.from_pretrained(directory)
    model = AlbertModel.from_pretrained(directory)
    theirs = values_of(model_of("AlbertForMaskedLM").encoder)
    assert_same(values_of(model.encoder), theirs)


def test_files_without_a_pooler(copied, capsys):
    """transformers writes such files for classes that do not read it."""
    directory = copied("AlbertForQuestionAnswering")

    def remove(weights):
        for ending in ("weight", "bias"):
            del weights[f"albert.pooler.{ending}"]

    reweighed(directory, remove)
    changed(directory, lambda values: values.pop("albert_tf"))
    model = AlbertForQuestionAnswering.from_pretrained(directory)
    assert model.encoder.pooler is None
    original = model_of("AlbertForQuestionAnswering")
    features = batch_of("AlbertForQuestionAnswering")
    np.testing.assert_array_equal(
        model(features)["end_logits"], original(features)["end_logits"]
    )
    assert AlbertModel.from_pretrained(directory).encoder.pooler is None
    # A head that reads it needs a new one.
    with pytest.raises(UserError, match="a new head classification, which"):
        AlbertForClassification.from_pretrained(directory, num_labels=2)
    capsys.readouterr()
    AlbertForClassification.from_pretrained(
        directory, num_labels=2, allow_missing=True
    )
    assert "albert/encoder/pooler/kernel" in capsys.readouterr().out
    # Where the description promises one, it is missing.
    other = copied("AlbertForPretraining")
    reweighed(other, remove)
    with pytest.raises(UserError, match="missing: albert.pooler.bias, alber"):
        AlbertForPretraining.from_pretrained(other)


def test_missing_and_unexpected_weights_are_listed(copied, capsys):
    directory = copied("AlbertForPretraining")

    def change(weights):
        weights["albert.extra.weight"] = np.zeros((2, 2), np.float32)
        weights["more"] = np.zeros(2, np.float32)
        del weights["predictions.bias"]

    reweighed(directory, change)
    with pytest.raises(UserError) as error:
        AlbertForPretraining.from_pretrained(directory)
    assert "missing: predictions.bias" in str(error.value)
    assert "unexpected: albert.extra.weight, more" in str(error.value)
    assert "\n" not in str(error.value)
    for name in ("albert.extra.weight", "more"):
        reweighed(directory, lambda weights, name=name: weights.pop(name))
    model = AlbertForPretraining.from_pretrained(directory, allow_missing=True)
    printed = capsys.readouterr().out
    assert printed == "Initialised: albert/masked_lm/output_bias.\n"
    assert not np.asarray(model.masked_lm.output_bias).any()


def test_equal_widths_with_the_mapping_of_transformers(tmp_path):
    config = override(SMALL, {"embedding_size": 8})
    model = randomise(AlbertForPretraining(config))
    model.save_pretrained(tmp_path)
    features = random_features(config)
    expected = model(features)
    # An identity is written for transformers and dropped here.
    weights = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(weights[MAPPING + "weight"], np.eye(8))
    again = AlbertForPretraining.from_pretrained(tmp_path)
    assert again.encoder.projection is None
    assert_same(again(features), expected)
    rng = np.random.default_rng(0)

    def map_it(weights):
        weights[MAPPING + "weight"] = rng.normal(size=(8, 8)).astype("float32")

    reweighed(tmp_path, map_it)
    mapped = AlbertForPretraining.from_pretrained(tmp_path)
    assert mapped.config.always_project_embeddings
    kernel = np.asarray(mapped.encoder.projection.kernel)
    np.testing.assert_array_equal(
        kernel.T, load_file(tmp_path / "model.safetensors")[MAPPING + "weight"]
    )
    change = mapped(features)["pooled_output"] - expected["pooled_output"]
    assert np.abs(change).max() > 0.01
    mapped.save_pretrained(tmp_path / "again")
    twice = AlbertForPretraining.from_pretrained(tmp_path / "again")
    assert twice.config == mapped.config
    assert_same(twice(features), mapped(features))


# --- Hostile directories --------------------------------------------------


# Others default to 64 attention heads, which no shape contradicts.
ARCHITECTURE = [
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
]


def settings(**changes):
    return lambda values: values.update(changes)


@pytest.mark.parametrize(
    ("change", "own", "text"),
    [
        (settings(hidden_size=65536, num_attention_heads=2), {}, "belong"),
        (
            settings(num_hidden_layers=1024, num_hidden_groups=1024),
            {"sharing": "none"},
            "belong",
        ),
        (settings(num_hidden_layers=10**30), {}, "above the maximum"),
        (settings(), {"model": {"a": 1}}, "is not one of AlbertModel"),
        (settings(), {"num_hidden_groups": "1"}, "num_hidden_groups='1'"),
        (settings(), {"max_seq_length": 2}, "max_seq_length=2 must be"),
        (settings(), {"head_options": [3]}, "head_options=.* an object"),
        (settings(), {"head_options": {"depth": 3}}, "head option depth=3"),
        (settings(albert_tf=[]), {}, "albert_tf=.* is not an object"),
        (
            lambda values: [values.pop(n) for n in ARCHITECTURE],
            {},
            f"lacks {' and '.join(ARCHITECTURE)};",
        ),
    ],
)
def test_hostile_descriptions(change, own, text, copied):
    directory = copied("AlbertForAnswerableQuestions")
    changed(directory, change, **own)
    with pytest.raises(UserError, match=text) as error, steps_below(30_000):
        AlbertForAnswerableQuestions.from_pretrained(directory)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def described(config, arrays):
    """Returns a file of so many tensors, large enough for any small model."""
    shapes = {f"w{n}": (1000,) for n in range(arrays)}
    return StoredWeights("the file", "huggingface", shapes, shapes.get)


def test_more_blocks_than_the_file_could_hold():
    # 64 layers of 2 blocks; a tenth of their arrays may do, and no fewer.
    config = override(ModelConfig(), TINY)
    arrays = 64 * 2 * 16
    least = -(-arrays // 10)
    check_size(config, described(config, least), "c.json")
    message = f"^c.json .* {arrays} arrays .* in {least - 1} arrays; they do"
    with pytest.raises(UserError, match=message):
        check_size(config, described(config, least - 1), "c.json")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ({}, ["LABEL_0", "LABEL_1"]),
        ({"num_labels": 3}, ["LABEL_0", "LABEL_1", "LABEL_2"]),
        ({"num_labels": 2, "id2label": {"0": "a", "1": "b"}}, ["a", "b"]),
        ({"num_labels": 1, "id2label": {"0": "a", "1": "b"}}, ["LABEL_0"]),
        ({"label2id": {"b": 1, "a": 0, "c": 2}}, ["a", "b", "c"]),
        # transformers writes the labels that it is given.
        ({"id2label": {"0": 1, "1": 2}, "label2id": {"a": 5}}, ["1", "2"]),
    ],
)
def test_classes_that_are_only_counted(values, labels):
    assert labels_from_json(values, "c.json") == labels


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"num_labels": True}, "from 1 to 65536"),
        ({"num_labels": 10**9}, "from 1 to 65536"),
        ({"id2label": []}, "id2label"),
        ({"id2label": {"0": "a", "1": "a"}}, "all different"),
        ({"id2label": {"0": 1.5}}, "id2label"),
        ({"id2label": {"0": "", "1": "a"}}, "id2label="),
        ({"id2label": {"0": True}}, "id2label"),
        ({"id2label": {"0": 1, "1": "1"}}, "all different"),
        ({"id2label": {"1": "a", "2": "b"}}, "the classes 0 to n - 1"),
        ({"id2label": {str(n): 0 for n in range(20000)}}, "id2label"),
    ],
)
def test_hostile_classes(values, text):
    with pytest.raises(UserError, match=rf"^c\.json: .*{text}") as error:
        labels_from_json(values, "c.json")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="it has no config.json"):
        AlbertModel.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="nowhere does not exist"):
        AlbertModel.from_pretrained(tmp_path / "nowhere")
    for changes, text in (
        ({"model_type": "bert"}, "model_type is 'bert'; only 'albert'"),
        ({"model_type": "albert"}, "model.safetensors is missing"),
        (
            {"model_type": "albert", "position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; only 'absolute' can be",
        ),
        (
            {"model_type": "albert", "architectures": ["AlbertModel"]},
            "model.safetensors",
        ),
    ):
        written = json.dumps(to_dict(SMALL) | changes)
        (tmp_path / "config.json").write_text(written)
        with pytest.raises(UserError, match=text):
            AlbertModel.from_pretrained(tmp_path)


def test_a_run_without_a_model_yet_is_called_so(tmp_path):
    said = f"{tmp_path} is a run without a model yet; "
    for job, hint in (
        ("pretrain", "pretraining writes one when it ends."),
        ("finetune", "it writes one at its first evaluation."),
    ):
        (tmp_path / "config.json").write_text(json.dumps({"job": job}))
        with pytest.raises(UserError) as error:
            AlbertModel.from_pretrained(tmp_path)
        assert str(error.value) == said + hint
    best = tmp_path / "best_model"
    best.mkdir()
    (best / "config.json").write_text("{}")
    with pytest.raises(UserError, match=f"best model so far is {best}"):
        AlbertModel.from_pretrained(tmp_path)


def test_a_model_may_lie_in_a_bucket(saved, tmp_path):
    model = model_of("AlbertForClassification")
    bucket = "ram://pretrained/model"
    for _ in range(2):
        model.save_pretrained(bucket)
    with files.open(f"{bucket}/config.json") as file:
        described = file.read()
    model.save_pretrained(str(tmp_path))
    assert (tmp_path / "config.json").read_bytes() == described
    assert files.listdir(bucket) == ["config.json", "model.safetensors"]
    loaded = AlbertForClassification.from_pretrained(bucket)
    assert_same(values_of(loaded), values_of(model))
    files.remove(f"{bucket}/config.json")
    with pytest.raises(
        UserError, match=f"{bucket} is neither a model directory"
    ):
        AlbertForClassification.from_pretrained(bucket)
    with pytest.raises(UserError, match="config.json is a file; name a dir"):
        model.save_pretrained(f"file://{tmp_path}/config.json")
