"""Memory that Python's objects take: `peak_memory`."""

import tracemalloc


def peak_memory(run):
    """Returns the most bytes that a call has at once, the second of two.

    In the first one the plugin that counts lines takes memory of its own.
    """
    run()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
