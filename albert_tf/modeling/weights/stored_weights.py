"""Weights that lie in a file: names and shapes at once, values when asked.

So that a file that does not fit is refused before its data are read.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class StoredWeights:
    """The weights of a file.

    Attributes:
        source: the file, for messages.
        form: whose names they carry, "google" or "huggingface".
        shapes: by name.
        read: gives the array of a name; raises UserError when it is damaged.
    """

    source: str
    form: str
    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A digest of the weights, whatever the file is called."""
        digest = hashlib.sha256()
        for name in sorted(self.shapes):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.read(name)).tobytes())
        return digest.hexdigest()
