"""The public names of `import albert_tf`."""

import subprocess
import sys

import pytest

import albert_tf


def test_public_names_resolve_and_others_do_not():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
        assert name in dir(albert_tf)
    with pytest.raises(AttributeError, match="has no attribute 'Albertt'"):
        _ = albert_tf.Albertt


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AlbertModel", "Lamb"])
def test_any_class_registers_all_that_a_keras_file_may_name(name):
    program = f"""
import keras
from albert_tf import {name}
known = keras.saving.get_custom_objects()
for each in ("AlbertForRegression", "SpanHead", "Lamb", "NorMuon"):
    assert f"albert_tf>{{each}}" in known, each
"""
    subprocess.run([sys.executable, "-c", program], check=True)
