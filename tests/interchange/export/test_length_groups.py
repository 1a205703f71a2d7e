"""Rows computed in groups of similar length."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.interchange.export.length_groups import by_length

LENGTHS = [3, 400, 20, 65, 32, 33, 64, 257, 1]

pytestmark = pytest.mark.usefixtures("optimized_graphs")


def features_of(lengths, width=400):
    """Returns ids that differ, behind them ids of padding."""
    columns = np.arange(width)
    mask = columns < np.reshape(lengths, [-1, 1])
    ids = 1 + columns + width * np.arange(len(lengths))[:, None]
    return {
        "input_ids": tf.constant(ids, tf.int32),
        "input_mask": tf.constant(mask, tf.int32),
        "places": tf.constant(np.reshape(lengths, [-1, 1]) - 1, tf.int32),
    }


@tf.function(autograph=False)
def totals(features):
    """Returns totals of tokens and the size of the batch that a row is in."""
    ids = features["input_ids"] * features["input_mask"]
    rows = tf.shape(ids)[0]
    axes = list(range(1, ids.shape.rank))
    return {
        "total": tf.reduce_sum(ids, axes),
        "width": tf.fill([rows], tf.shape(ids)[-1]),
        "rows": tf.fill([rows], rows),
    }


@tf.function(autograph=False)
def last_tokens(features):
    ids, places = features["input_ids"], features["places"]
    return {"last": tf.gather(ids, places, batch_dims=1)}


@tf.function(autograph=False)
def states(features):
    return {"state": tf.cast(features["input_ids"], tf.float32)[..., None]}


@pytest.mark.parametrize("function", [totals, last_tokens])
def test_rows_keep_their_order(function):
    features = features_of(LENGTHS)
    got, want = by_length(function, features), function(features)
    name = next(iter(want))
    np.testing.assert_array_equal(got[name], want[name])
    assert len(set(np.ravel(got[name]))) == len(LENGTHS)


def test_a_micro_batch_is_as_wide_as_its_longest_row():
    got = by_length(totals, features_of(LENGTHS), micro_batch_tokens=1000)
    assert got["width"].numpy().tolist() == [
        3, 400, 32, 65, 32, 33, 64, 257, 3
    ]  # fmt: skip


def test_a_micro_batch_has_a_bounded_number_of_tokens():
    lengths = [20, *[400] * 10, 20]
    features = features_of(lengths)
    got = by_length(totals, features, micro_batch_tokens=1700)
    # 1,700 // 400
    assert got["rows"].numpy().tolist() == [
        1, *[4] * 8, *[2] * 2, 1
    ]  # fmt: skip
    np.testing.assert_array_equal(got["total"], totals(features)["total"])


def test_groups_of_one_width():
    got = by_length(
        totals,
        features_of(LENGTHS),
        one_width=True,
        micro_batch_tokens=400 * len(LENGTHS),
    )
    assert set(got["width"].numpy().tolist()) == {400}
    # Two micro-batches of nine rows, for two cores.
    assert set(got["rows"].numpy().tolist()) == {4, 5}


def test_sequence_outputs_are_padded():
    features = features_of(LENGTHS)
    (got,) = by_length(states, features, sequence_outputs=True).values()
    ids, mask = features["input_ids"].numpy(), features["input_mask"].numpy()
    assert got.shape == (*ids.shape, 1)
    np.testing.assert_array_equal((got[..., 0] * mask), ids * mask)
    assert not got[0, 32:].numpy().any()


def test_choices_of_a_question_stay_together():
    features = features_of([3, 70, 20, 5], width=80)
    mask = tf.reshape(features["input_mask"], [2, 2, 80])
    ids = tf.reshape(features["input_ids"], [2, 2, 80])
    together = {"input_ids": ids, "input_mask": mask}
    got = by_length(totals, together)
    assert got["width"].numpy().tolist() == [70, 20]
    np.testing.assert_array_equal(
        got["total"], tf.reduce_sum(ids * mask, [1, 2])
    )


@pytest.mark.parametrize("lengths", [[], [0], [0, 40], [40]])
def test_rows_without_tokens(lengths):
    features = features_of(lengths, width=64)
    got = by_length(totals, features)
    want = totals(features)
    np.testing.assert_array_equal(got["total"], want["total"])


def test_a_session_computes_micro_batches_at_the_same_time(tmp_path):
    module = tf.Module()
    module.variable = tf.Variable(1, dtype=tf.int64)
    both = threading.Barrier(2)

    @tf.function(autograph=False)
    def meet(features):
        ids = features["input_ids"]
        # Broken when no other micro-batch comes.
        place = tf.numpy_function(
            lambda _: both.wait(30), [ids], tf.int64, stateful=False
        )
        return {"place": tf.fill([tf.shape(ids)[0]], place * module.variable)}

    features = features_of([5, 5])
    module.grouped = tf.function(
        lambda **features: by_length(meet, features), autograph=False
    )
    signature = module.grouped.get_concrete_function(**features)
    tf.saved_model.save(module, tmp_path, signature)
    options = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
    with (
        tf.Graph().as_default(),
        tf.compat.v1.Session(config=options) as session,
    ):
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path))
        names = graph.signature_def["serving_default"]
        got = session.run(
            names.outputs["place"].name,
            {
                names.inputs[name].name: value.numpy()
                for name, value in features.items()
            },
        )
    assert sorted(got) == [0, 1]
