"""Profiles of a few training steps."""

import tensorflow as tf

from albert_tf.config import UserError


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
        """Parses the setting.

        Args:
            profile_steps: `10,20` records the updates 11 to 20; or empty.
            directory: of TensorBoard; the profile is in plugins/profile/.
            writes: whether this process records.

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
        if self._running and step >= self.steps[1]:
            self.close()

    def close(self) -> None:
        """Ends a recording, also an incomplete one."""
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
