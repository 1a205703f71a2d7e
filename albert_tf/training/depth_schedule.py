"""Progressive depth: how many of the model's blocks each step applies."""

import bisect

from albert_tf.config import require
from albert_tf.config.schedules import parse_schedule


class DepthSchedule:
    """The number of the model's blocks that each step applies."""

    def __init__(self, text: str = "", num_applications: int = 0) -> None:
        """Parses `0:3,2000:6`: three at first, six from step 2,000 on.

        An empty text is all, always. Raises UserError for an invalid schedule,
        or one that does not end with all: the model would have blocks that
        were never trained.
        """
        name = "depth_schedule"
        # The steps at which it changes.
        self.starts: list[int] = [0]
        self._depths: list[int | None] = [None]
        if text:
            schedule = parse_schedule(name, text, int, "2000:6")
            self.starts, self._depths = list(schedule), list(schedule.values())
        for depth in self._depths:
            require(
                depth is None or 1 <= depth <= num_applications,
                f"{name}={text!r} asks for {depth} layers; the model has "
                f"{num_applications}.",
            )
        self._whole = num_applications
        require(
            self.is_whole(self.starts[-1]),
            f"{name}={text!r} ends with {self._depths[-1]} of the model's "
            f"{num_applications} layers; end with all, or train a model of "
            "so many (--num_hidden_layers).",
        )

    def at(self, step: int) -> int | None:
        """Returns the number of blocks a step applies; None: all."""
        return self._depths[bisect.bisect_right(self.starts, step) - 1]

    def is_whole(self, step: int) -> bool:
        """Returns whether a step applies all blocks."""
        return self.at(step) in (None, self._whole)
