"""The memory of this machine and of this process."""

import contextlib
import os
import re
import resource
import sys


def peak_resident(of: int = resource.RUSAGE_SELF) -> int:
    """Returns the peak resident bytes of this process.

    With `of=resource.RUSAGE_CHILDREN`: of its largest child that has ended.
    """
    if of == resource.RUSAGE_SELF:
        with contextlib.suppress(OSError), open("/proc/self/status") as file:
            # getrusage counts what the starting process had before exec too.
            if found := re.search(r"VmHWM:\s+(\d+) kB", file.read()):
                return 1024 * int(found[1])
    peak = resource.getrusage(of).ru_maxrss
    # macOS counts bytes, Linux kilobytes.
    return peak * (1 if sys.platform == "darwin" else 1024)


def free_memory() -> int:
    """Returns the bytes that a process may allocate; all outside of Linux."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    for place, limit, used in (
        ("memory", "max", "current"),
        ("memory/memory", "limit_in_bytes", "usage_in_bytes"),
    ):
        # "max" where there is no limit.
        with contextlib.suppress(OSError, ValueError):
            free = int(_cgroup(place, limit)) - int(_cgroup(place, used))
            # The page cache is reclaimed on demand.
            lines = dict(map(str.split, _cgroup(place, "stat").splitlines()))
            found.append(free + int(lines.get("inactive_file", 0)))
    return min(found)


def _cgroup(place: str, name: str) -> str:
    with open(f"/sys/fs/cgroup/{place}.{name}") as file:
        return file.read()
