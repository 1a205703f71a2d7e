"""Settings of `bin.serve`."""

import dataclasses

from albert_tf.config.fields import Section, setting


@dataclasses.dataclass(frozen=True)
class ServingConfig(Section):
    """Limits of the server, named as TensorFlow Serving's where it has them."""

    max_batch_size: int = setting(
        32,
        "Maximum of rows in a batch, and in a request; each choice of a "
        "text is one.",
        minimum=1,
        maximum=1 << 16,
    )
    batch_timeout_micros: int = setting(
        2000,
        "Microseconds that a request waits for others to share its batch.",
        minimum=0,
        maximum=10**7,
    )
    max_pending_requests: int = setting(
        256,
        "Maximum of requests that are read, wait or run; others get 503.",
        minimum=1,
    )
    max_request_bytes: int = setting(
        1 << 20, "Maximum size of a request's body; others get 413.", minimum=1
    )
    max_connections: int = setting(
        512,
        "Maximum of open connections; while there are more, every request "
        "gets 503.",
        minimum=1,
    )
    timeout_seconds: float = setting(
        10.0,
        "Time-out of a request, from its header to its answer: 408 while it "
        "is read, 504 after.",
        minimum=0.001,
        maximum=3600.0,
    )
