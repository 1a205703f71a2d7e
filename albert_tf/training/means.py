"""Weighted means over steps, in double precision."""

from collections.abc import Mapping


class RunningMeans:
    """Sums of (weighted sum, weight) pairs, divided on request.

    The sums are Python floats (double precision): a float32 total stops
    growing in a long run.
    """

    def __init__(self, sums: Mapping[str, float] | None = None) -> None:
        self.sums = dict(sums or {})

    def add(self, results: Mapping[str, float]) -> None:
        """Adds the `sum:` and `weight:` scalars of one step."""
        for name, value in results.items():
            if name.startswith(("sum:", "weight:")):
                self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def means(self) -> dict[str, float]:
        """Returns the mean of every name; NaN where the weight is 0."""
        means = {}
        for name, total in self.sums.items():
            if name.startswith("sum:"):
                weight = self.sums["weight:" + name.removeprefix("sum:")]
                means[name.removeprefix("sum:")] = (
                    total / weight if weight else float("nan")
                )
        return means
