"""The public names of `import albert_tf`."""

import subprocess
import sys

import pytest

import albert_tf


@pytest.mark.parametrize("name", albert_tf.__all__)
def test_every_public_name_resolves(name):
    assert getattr(albert_tf, name) is not None
    assert name in dir(albert_tf)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Albertt'"):
        _ = albert_tf.Albertt


def test_importing_the_package_loads_neither_tensorflow_nor_keras():
    script = (
        "import sys, albert_tf; albert_tf.ModelConfig, albert_tf.TASKS; "
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
