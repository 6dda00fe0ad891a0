"""Whether the kernel has killed for want of memory: what it counts in this process's control group."""

from __future__ import annotations

from typing import NamedTuple

_GROUPS = "/proc/self/cgroup"
_MOUNT = "/sys/fs/cgroup"


def files(groups: str, mount: str = _MOUNT) -> list[str]:
    """Return where the count may stand, by the text of /proc/self/cgroup.

    In a container, the path may be the host's; its own group is then what is mounted.
    """
    found = []
    for line in groups.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        path = path.rstrip("/")
        if line.startswith("0::"):
            places = [f"{mount}{path}", f"{mount}/unified{path}", mount]
            found += [f"{place}/memory.events" for place in places]
        elif "memory" in controllers.split(","):
            found += [f"{mount}/memory{path}/memory.oom_control", f"{mount}/memory/memory.oom_control"]
    return found


def count(path: str) -> int | None:
    """Return how many processes were killed, None where the kernel does not say."""
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


class Counter(NamedTuple):
    """A count as it was; one that cannot be read never grows."""

    path: str
    before: int

    @classmethod
    def here(cls, groups: str = _GROUPS, mount: str = _MOUNT) -> Counter:
        """Return this process's."""
        try:
            with open(groups, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except OSError:
            text = ""
        for path in files(text, mount):
            before = count(path)
            if before is not None:
                return cls(path, before)
        return cls("", 0)

    def has_grown(self) -> bool:
        """Tell whether somebody was killed since."""
        return (count(self.path) or 0) > self.before
