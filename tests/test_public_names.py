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


def test_importing_the_package_loads_neither_tensorflow_nor_keras():
    script = (
        "import sys, albert_tf; albert_tf.ModelConfig, albert_tf.TASKS; "
        "print(sorted({'tensorflow', 'keras'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
