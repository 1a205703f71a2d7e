"""The public names of `import albert_tf`."""

import sys

import pytest
from tensorflow_forks import call

import albert_tf


def test_public_names_resolve_and_others_do_not():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
        assert name in dir(albert_tf)
    with pytest.raises(AttributeError, match="has no attribute 'Albertt'"):
        _ = albert_tf.Albertt


def registered(name):
    """Returns the names of classes that loading one of them registers."""
    import keras

    assert "albert_tf.modeling" not in sys.modules
    getattr(albert_tf, name)
    return {*keras.saving.get_custom_objects()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AlbertModel", "Lamb"])
def test_any_class_registers_all_that_a_keras_file_may_name(name):
    names = ("AlbertForRegression", "SpanHead", "Lamb", "NorMuon")
    assert {f"albert_tf>{n}" for n in names} <= call(registered, name)
