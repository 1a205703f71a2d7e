"""Models of random weights with each head, and their exports."""

import functools

import pytest
import tensorflow as tf
from export_samples import FEATURES
from training_fixtures import random_model

from albert_tf.interchange.export.serving_module import ServingModule
from albert_tf.interchange.model_directory import LoadedModel
from albert_tf.interchange.model_files import TaskRecord
from albert_tf.prediction.predictor import Predictor


@pytest.fixture(scope="session")
def load(tiny_tokenizer):
    """A function that returns a model of random weights with a head."""

    @functools.cache
    def load(head, **settings):
        model = random_model(head, max_position_embeddings=24, **settings)
        task = TaskRecord("mood", FEATURES)
        return LoadedModel(model, tiny_tokenizer, 24, task)

    return load


@pytest.fixture(scope="session")
def module(load):
    """A function that returns the served model with a head."""
    return functools.cache(lambda head: ServingModule(load(head)))


@pytest.fixture(scope="session")
def serve(module):
    """A function that answers as a signature of the model with a head."""

    def serve(head, signature, **inputs):
        function = module(head).functions[signature]
        names = [spec.name for spec in function.input_signature]
        answers = function(*(tf.constant(inputs.pop(name)) for name in names))
        assert not inputs
        return {name: value.numpy() for name, value in answers.items()}

    return serve


@pytest.fixture(scope="session")
def predictions(load):
    """A function that returns the fields that `predict` gives for texts."""

    def predictions(kind, texts):
        found = Predictor(load(kind.head)).predict(kind, texts)
        return [prediction.fields for prediction in found]

    return predictions


@pytest.fixture(scope="session")
def exported(export_dir):
    return f"{export_dir}/1"


@pytest.fixture(scope="session")
def loaded_signatures(exported):
    """The signatures of the export as TensorFlow loads them."""
    return tf.saved_model.load(exported).signatures
