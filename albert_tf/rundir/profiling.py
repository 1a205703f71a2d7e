"""A recording of what happens during a few steps, for a profiler."""

import tensorflow as tf

from albert_tf.config import UserError


class Profiler:
    """Records what happens between two steps.

    TensorBoard's own profile tab only points to where the recording is read:
    `uvx xprof --logdir=RUN/tensorboard`.

    Attributes:
        steps: the numbers of updates made at which a recording begins and
            ends; calls of several steps are to stop there. Or nothing.
    """

    def __init__(
        self, profile_steps: str, directory: str, *, writes: bool = True
    ) -> None:
        """Records nothing yet.

        Args:
            profile_steps: `10,20` records the updates 11 to 20; or empty.
            directory: the recording goes to plugins/profile/ in it.
            writes: whether this process is the one that records.

        Raises:
            UserError: for anything but two numbers, the second larger.
        """
        self.steps: tuple[int, ...] = ()
        if profile_steps:
            parts = profile_steps.split(",")
            if all(part.strip().isdecimal() for part in parts):
                self.steps = tuple(map(int, parts))
            if len(self.steps) != 2 or self.steps[0] >= self.steps[1]:
                raise UserError(
                    f"profile_steps={profile_steps!r} must be two steps, the "
                    "second after the first, such as 10,20: that records "
                    "updates 11 to 20."
                )
        self._directory = directory
        self._writes = writes
        self._running = False
        self._trace: tf.profiler.experimental.Trace | None = None

    def before(self, step: int) -> None:
        """Call before updates; `step` of them were made."""
        if not self._writes or not self.steps:
            return
        if not self.steps[0] <= step < self.steps[1]:
            return
        if not self._running:
            tf.profiler.experimental.start(self._directory)
            self._running = True
        # Its name and _r=1 are what the profiler knows a step by.
        self._trace = tf.profiler.experimental.Trace(
            "train", step_num=step, _r=1
        )
        self._trace.__enter__()

    def after(self, step: int) -> None:
        """Call after updates; `step` of them were made."""
        if self._trace:
            self._trace.__exit__(None, None, None)
            self._trace = None
        if self._running and step >= self.steps[1]:
            self.close()

    def close(self) -> None:
        """Ends a recording, also where the run ends within it."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
