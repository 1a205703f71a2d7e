"""Profiles of a few training steps."""

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from albert_tf.config import require


class Profiler:
    """Records a profile between two steps.

    View it by `uvx xprof --logdir=RUN/tensorboard`; TensorBoard's profile tab
    needs a plugin.

    Attributes:
        steps: the first and the last step, at which calls of several steps
            must end; or empty.
    """

    def __init__(
        self, profile_steps: str, directory: str, *, writes: bool = True
    ) -> None:
        """Parses the setting: `10,20` records updates 11 to 20; or empty."""
        self.steps: tuple[int, ...] = ()
        if profile_steps:
            found = re.fullmatch(r" *(\d+) *, *(\d+) *", profile_steps)
            self.steps = tuple(map(int, found.groups())) if found else (0, 0)
            require(
                self.steps[0] < self.steps[1],
                f"profile_steps={profile_steps!r} must be two steps, the "
                "second after the first, such as 10,20: that records "
                "updates 11 to 20.",
            )
        self._recorded = range(*(self.steps if writes else ()) or (0, 0))
        self._directory = directory
        self._running = False

    @contextlib.contextmanager
    def profiled(self, call: range) -> Iterator[None]:
        """Profiles a call that makes these steps, if they are to be recorded.

        Its last step is not beyond that of the profile.
        """
        if call.start not in self._recorded:
            yield
            return
        if not self._running:
            tf.profiler.experimental.start(self._directory)
            self._running = True
        # The profiler identifies steps by this name and _r=1.
        with tf.profiler.experimental.Trace("train", step_num=call.start, _r=1):
            yield
        if call.stop == self._recorded.stop:
            self.close()

    def close(self) -> None:
        """Ends a recording, also an incomplete one."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
