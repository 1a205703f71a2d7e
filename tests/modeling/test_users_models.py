"""Models of users' own around ours: saved, loaded and copied whole."""

import copy
import gc
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_albert import SMALL, random_features, randomise
from test_heads import ENCODER_INPUTS

from albert_tf.config import UserError, override
from albert_tf.modeling.models import (
    AlbertForAnswerableQuestions,
    AlbertForClassification,
    AlbertModel,
)

ENTRIES = random_features(SMALL, 4, 7)
FEATURES = {name: ENTRIES[name] for name in ENCODER_INPUTS}
IDS = FEATURES["input_ids"]
registered = keras.saving.register_keras_serializable("tests")


class OnEncoder:
    """An encoder and a layer that its output is read by."""

    def __init__(self, encoder, other=None, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.other = encoder, other
        self.topics = keras.layers.Dense(2)

    def get_config(self):
        parts = {"encoder": self.encoder, "other": self.other}
        written = map(keras.saving.serialize_keras_object, parts.values())
        return super().get_config() | dict(zip(parts, written, strict=True))

    @classmethod
    def from_config(cls, config):
        parts = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("encoder", "other")
        }
        return cls(**config | parts)


@registered
class OfFeatures(OnEncoder, keras.Model):
    def call(self, features, training=False):
        outputs = self.encoder(features, training=training)
        return self.topics(outputs["pooled_output"])


@registered
class OfIds(OnEncoder, keras.Model):
    def call(self, ids):
        mask = keras.ops.cast(keras.ops.not_equal(ids, 0), "int32")
        features = {"input_ids": ids, "input_mask": mask}
        return self.topics(self.encoder(features)["pooled_output"])


@registered
class OfList(OnEncoder, keras.Model):
    def call(self, inputs):
        features = dict(zip(ENCODER_INPUTS, inputs, strict=True))
        return self.topics(self.encoder(features)["pooled_output"])


@registered
class OfTwo(OnEncoder, keras.Model):
    def call(self, features):
        one, two = (x(features) for x in (self.encoder, self.other))
        return self.topics(one["pooled_output"] - two["pooled_output"])


@registered
class OfModel(OnEncoder, keras.Model):
    def call(self, features):
        return self.topics(self.encoder(features))


@registered
class LayerOfIds(OnEncoder, keras.layers.Layer):
    def call(self, ids):
        outputs = self.encoder({"input_ids": ids})
        return self.topics(outputs["pooled_output"])


def encoder():
    return AlbertModel(SMALL)


def sequential(layer):
    inputs = keras.Input((None,), dtype="int32")
    return keras.Sequential([inputs, layer, keras.layers.Dense(2)])


USERS_MODELS = {
    "features": (lambda: OfFeatures(encoder()), FEATURES),
    "ids": (lambda: OfIds(encoder()), IDS),
    "list": (lambda: OfList(encoder()), list(FEATURES.values())),
    "two encoders": (lambda: OfTwo(encoder(), encoder()), FEATURES),
    "nested": (lambda: OfModel(OfFeatures(encoder())), FEATURES),
    "sequential": (lambda: sequential(LayerOfIds(encoder())), IDS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", USERS_MODELS)
@pytest.mark.filterwarnings("error:.*cannot be built automatically")
def test_a_users_own_model_is_loaded_whole(name, tmp_path):
    make, inputs = USERS_MODELS[name]
    model = make()
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(inputs), expected)
    copied = keras.models.clone_model(model)
    copied(inputs)
    copied.set_weights(model.get_weights())
    np.testing.assert_array_equal(copied(inputs), expected)


def test_floats_are_refused_where_they_are_the_users():
    model = encoder()
    floats = {"input_ids": IDS.astype("float32")}
    with pytest.raises(UserError, match="input_ids must be integers"):
        OfFeatures(model)(floats)
    with pytest.raises(UserError, match="input_ids must be integers"):
        model({"input_ids": keras.Input((7,))})
    with pytest.raises(UserError, match="17 tokens exceeds .*=16"):
        model({"input_ids": keras.Input((17,), dtype="int32")})


def test_two_models_of_one_functional_model_have_two_names():
    inputs = {
        "input_ids": keras.Input((None,), dtype="int32", name="input_ids")
    }
    two = [AlbertForClassification(SMALL, 2) for _ in range(2)]
    logits = [model(inputs)["logits"] for model in two]
    model = keras.Model(inputs, keras.layers.Average()(logits))
    assert model({"input_ids": IDS}).shape == (4, 2)
    assert two[0].name != two[1].name
    for each in two:
        assert {w.path.split("/")[0] for w in each.weights} == {"albert"}
    assert AlbertModel(SMALL, name="mine").weights[0].path[:5] == "mine/"


def test_a_model_has_its_paths_again():
    models = [AlbertModel(SMALL) for _ in range(2)]
    again = AlbertModel.from_config(models[1].get_config())
    assert again.name == models[1].name
    assert [w.path for w in again.weights] == [
        w.path for w in models[0].weights
    ]


def add_adapters(model):
    rng = np.random.default_rng(0)
    for block in model.encoder.blocks:
        for layer in (block.attention.query, block.feed_forward.intermediate):
            if not layer.lora_enabled:
                layer.enable_lora(2, lora_alpha=3)
                shape = layer.lora_kernel_b.shape
                layer.lora_kernel_b.assign(rng.normal(size=shape))


def freeze(model):
    model.trainable = False
    model.encoder.pooler.trainable = True


def freeze_variables(model):
    """Some by themselves, and all but one of a layer that is frozen."""
    for variable in model.encoder.embeddings.weights:
        variable.trainable = False
    attention = model.encoder.blocks[0].attention
    attention.query.kernel.trainable = False
    attention.key.trainable = False
    attention.key.bias.trainable = True


def adapt_as_documented(model):
    for variable in model.encoder.weights:
        variable.trainable = False
    add_adapters(model)


def quantize_and_adapt(model):
    model.quantize("int8")
    add_adapters(model)


@pytest.fixture
def no_collection(monkeypatch):
    """Keras collects all tests' garbage for each weight that it quantizes."""
    monkeypatch.setattr(gc, "collect", int)


CHANGES = {
    "int8": lambda model: model.quantize("int8"),
    "int8 of some": lambda model: model.quantize("int8", filters="query|key"),
    "int4": lambda model: model.quantize("int4"),
    "float8": lambda model: model.quantize("float8"),
    "adapters": add_adapters,
    "adapters on int8": quantize_and_adapt,
    "frozen": freeze,
    "frozen variables": freeze_variables,
    "adapters on frozen variables": adapt_as_documented,
}


def classifier():
    return randomise(AlbertForClassification(SMALL, 2))


def state(model):
    """What a layer is beside its weights' values."""
    return [
        (w.path.split("/", 1)[1], w.dtype, w.trainable) for w in model.weights
    ]


def trained(model):
    return [w.path.split("/", 1)[1] for w in model.trainable_weights]


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.usefixtures("no_collection")
@pytest.mark.filterwarnings("ignore:.*have a `quantize` method")
def test_changed_layers_are_saved_with_the_model(name, tmp_path):
    """Quantized, adapted (which Keras merges on saving) or frozen."""
    model = classifier()
    CHANGES[name](model)
    expected = model(FEATURES)["logits"]
    assert model.get_config()["changed_layers"]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert state(again) == state(model)
    # Merging into int8 rounds anew.
    bound = 0.1 if name == "adapters on int8" else 1e-6
    np.testing.assert_allclose(again(FEATURES)["logits"], expected, atol=bound)
    copied = keras.models.clone_model(model)
    assert state(copied) == state(model)
    assert trained(copied) == trained(again) == trained(model)
    copied.set_weights(model.get_weights())
    np.testing.assert_array_equal(copied(FEATURES)["logits"], expected)


def test_a_model_around_ours_refuses_ids_out_of_range_in_training():
    inputs = {
        "input_ids": keras.Input((None,), dtype="int32", name="input_ids")
    }
    model = keras.Model(inputs, AlbertForClassification(SMALL, 2)(inputs))
    model.compile(
        "sgd",
        loss={
            "logits": keras.losses.SparseCategoricalCrossentropy(
                from_logits=True
            )
        },
        jit_compile=False,
    )
    batch = {"input_ids": IDS + SMALL.vocab_size}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must be from 0 to below vocab_s"
    ):
        model.fit(batch, {"logits": np.array([0, 1, 1, 0])}, verbose=0)


def test_predict_keeps_what_heads_return_but_not_all_states():
    assert set(classifier().predict(FEATURES, verbose=0)) == {
        "logits",
        "pooled_output",
    }
    assert "sequence_output" in AlbertModel(SMALL).predict(FEATURES, verbose=0)


def test_a_subclass_reads_labels_and_options_of_its_base(tmp_path):
    class Labelled(AlbertForClassification):
        pass

    class Answering(AlbertForAnswerableQuestions):
        pass

    AlbertForClassification(SMALL, labels=["bad", "good"]).save_pretrained(
        tmp_path / "labelled"
    )
    assert Labelled.from_pretrained(tmp_path / "labelled").labels == [
        "bad",
        "good",
    ]
    options = {"start_n_top": 3}
    AlbertForAnswerableQuestions(SMALL, head_options=options).save_pretrained(
        tmp_path / "answering"
    )
    again = Answering.from_pretrained(tmp_path / "answering")
    assert again.head_options["start_n_top"] == 3


@pytest.mark.slow
def test_an_adapted_model_trains_its_adapters_also_after_loading(tmp_path):
    model = classifier()
    add_adapters(model)
    model.encoder.embeddings.trainable = False
    labels = np.array([0, 1, 1, 0])
    model.compile("adam")
    kernel = np.array(model.encoder.blocks[0].attention.query.weights[0])
    model.fit(FEATURES, labels, verbose=0)
    query = model.encoder.blocks[0].attention.query
    np.testing.assert_array_equal(query.weights[0], kernel)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert int(again.optimizer.iterations) == 1
    optimizers = (again.optimizer.variables, model.optimizer.variables)
    for one, two in zip(*optimizers, strict=True):
        np.testing.assert_array_equal(one, two)
    query = again.encoder.blocks[0].attention.query
    assert not np.any(query.lora_kernel_b)
    again.fit(FEATURES, labels, verbose=0)
    assert np.all(query.lora_kernel_b)


def test_adapters_are_merged_into_the_files_of_save_pretrained(tmp_path):
    model = classifier()
    add_adapters(model)
    model.save_pretrained(tmp_path)
    again = AlbertForClassification.from_pretrained(tmp_path)
    np.testing.assert_allclose(
        again(FEATURES)["logits"], model(FEATURES)["logits"], atol=1e-6
    )


def test_adapters_are_merged_in_float32(tmp_path):
    model = AlbertForClassification(SMALL, 2, dtype="mixed_bfloat16")
    add_adapters(model)
    layer = model.encoder.blocks[0].attention.query
    kernel, a, b = (np.array(w) for w in layer.weights if "bias" not in w.name)
    model.save_pretrained(tmp_path)
    again = AlbertForClassification.from_pretrained(tmp_path)
    np.testing.assert_allclose(
        again.encoder.blocks[0].attention.query.kernel,
        kernel + 1.5 * a @ b,
        atol=1e-6,
    )


@pytest.mark.usefixtures("no_collection")
def test_a_quantized_model_is_not_written_as_float32(tmp_path):
    model = AlbertForClassification(SMALL, 2)
    model.quantize("int8")
    with pytest.raises(
        UserError, match=r"quantized, in .*\(int8\) and 8 other.*model\.save"
    ):
        model.save_pretrained(tmp_path / "new")


def test_a_model_is_pickled_and_copied():
    model = classifier()
    model.encoder.trainable = False
    expected = model(FEATURES)["logits"]
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(again(FEATURES)["logits"], expected)
        assert state(again) == state(model)


def test_a_short_model_of_many_answers_infers_no_more_than_positions():
    short = override(SMALL, {"max_position_embeddings": 4})
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in ("input_ids", "p_mask")
    }
    outputs = AlbertForAnswerableQuestions(short)(inputs)
    assert outputs["start_top_positions"].shape[-1] in (None, 4)
