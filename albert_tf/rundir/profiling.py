"""Profiles of a few training steps."""

import re

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
        self._trace: tf.profiler.experimental.Trace | None = None

    def before(self, step: int) -> None:
        """Call before updates; `step` of them were made."""
        if step not in self._recorded:
            return
        if not self._running:
            tf.profiler.experimental.start(self._directory)
            self._running = True
        # The profiler identifies steps by this name and _r=1.
        self._trace = tf.profiler.experimental.Trace(
            "train", step_num=step, _r=1
        )
        self._trace.__enter__()

    def after(self, step: int) -> None:
        """Call after updates; `step` of them were made."""
        if self._trace:
            self._trace.__exit__(None, None, None)
            self._trace = None
        if step >= self._recorded.stop:
            self.close()

    def close(self) -> None:
        """Ends a recording, also an incomplete one."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
