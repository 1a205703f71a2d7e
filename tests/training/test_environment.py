"""What a run runs on."""

import platform

import tensorflow as tf

from albert_tf.training.environment import describe_environment, markdown_table


def test_versions_and_machine():
    found = describe_environment()
    assert found["python"] == platform.python_version()
    assert found["tensorflow"] == tf.__version__
    assert int(found["processors"]) >= 1
    assert "CPU" in found["devices"]
    table = markdown_table(found).splitlines()
    assert len(table) == 2 + len(found)
    assert f"| python | {platform.python_version()} |" in table
