"""The rows of what is predicted."""

import collections

from albert_tf.records.sentence_objectives import pretraining_loss_terms


def test_no_two_measures_have_one_name():
    names = collections.Counter(
        name
        for target in pretraining_loss_terms()
        for name in (target.loss, target.accuracy, target.baseline)
    )
    assert set(names.values()) == {1}
    assert len(names) == 3 * 3
