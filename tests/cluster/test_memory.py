"""The memory of the machine that the tests run on."""

from albert_tf.cluster.memory import free_memory


def test_free_memory_is_that_of_this_machine():
    assert 2**26 < free_memory() < 2**44
