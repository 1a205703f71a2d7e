"""Running means, and when a loss is a spike."""

import math

import numpy as np

from albert_tf.training.running_statistics import RunningMeans, SpikeDetector


def test_the_limit_in_deviations_above_the_mean():
    detector = SpikeDetector(6.0)
    losses = np.random.default_rng(1).normal(5.0, 0.1, 300)
    for number, loss in enumerate(losses):
        # Fewer than 32 losses say little of the spread.
        assert math.isinf(detector.limit()) == (number < 32)
        detector.add(float(loss))
    assert math.isinf(SpikeDetector(0.0, detector.losses).limit())
    last = losses[-128:]
    assert len(detector.losses) == 128
    assert math.isclose(detector.limit(), last.mean() + 6 * last.std())


def test_running_means():
    means = RunningMeans()
    means.add({"loss": (6.0, 2.0)})
    means.add({"loss": (1.0, 5.0)})
    assert RunningMeans(means.sums).means() == means.means() == {"loss": 1.0}
