"""The public names of `import albert_tf`."""

import pytest

import albert_tf


def test_public_names_resolve_and_others_do_not():
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
        assert name in dir(albert_tf)
    with pytest.raises(AttributeError, match="has no attribute 'Albertt'"):
        _ = albert_tf.Albertt
