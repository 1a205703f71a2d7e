"""A reason in one line, of messages that TensorFlow really writes."""

import pytest
import tensorflow as tf

from albert_tf.io.tensorflow_messages import reason_of


def parse(examples):
    return tf.io.parse_example(
        examples, {"a": tf.io.FixedLenFeature([], tf.int64)}
    )["a"]


def small(number):
    tf.debugging.assert_less(number, 3, "Too\nlarge")
    return number


def in_a_session(text):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        examples = tf.compat.v1.placeholder(tf.string, [None])
        session.make_callable(parse(examples), [examples])([text])


FAILURES = {
    "session": (
        lambda: in_a_session("ab\ncd"),
        "Could not parse example input, value: 'ab cd'",
    ),
    "function": (
        lambda: tf.function(tf.nn.embedding_lookup)(tf.ones([3, 2]), 7),
        "indices = 7 is not in [0, 3)",
    ),
    "assertion": (
        lambda: tf.function(small)(tf.constant(7)),
        r"assertion failed: [Too\nlarge] [Condition x < y did not hold",
    ),
    "operation": (
        lambda: tf.matmul(tf.ones([2, 3]), tf.ones([2, 3])),
        "Matrix size-incompatible: In[0]: [2,3], In[1]: [2,3]",
    ),
    "file": (
        lambda: tf.io.read_file("/no/such\nfile"),
        "/no/such file; No such file or directory",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_reason_with_line_feeds_is_whole(name):
    fail, expected = FAILURES[name]
    with pytest.raises(tf.errors.OpError) as error:
        fail()
    assert reason_of(error.value.message).startswith(expected)
    assert "Op:" not in reason_of(error.value.message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "2 root error(s) found.\n  (0) INVALID_ARGUMENT: a is\nb\n\t [[{{"
            "node x}}]]\n\t [[y]]\n  (1) INVALID_ARGUMENT: c\n\t [[{{node"
            " z}}]]",
            "a is b",
        ),
        ("Socket closed", "Socket closed"),
        ("", ""),
        ("a" * 600, "a" * 500 + "..."),
    ],
)
def test_other_messages(message, reason):
    assert reason_of(message) == reason
