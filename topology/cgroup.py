"""Limits that control groups (v1 and v2) put on this process: CPU set, CPU time, memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from topology.sysfiles import read_cpulist, read_int, read_text

_UNLIMITED = 1 << 60
"""v1 writes "no limit" as the largest page-aligned number of 63 bits."""


@dataclass(frozen=True)
class CgroupLimits:
    """What the groups from ours up to the root allow; None = nothing said.

    Attributes:
        cpus: CPUs of the cpuset.
        cpu_quota: CPUs' worth of time.
        memory_limit: bytes.
        memory_free: bytes left under the tightest limit; page cache that can be dropped counts as free.
    """

    cpus: tuple[int, ...] | None = None
    cpu_quota: float | None = None
    memory_limit: int | None = None
    memory_free: int | None = None


@dataclass(frozen=True)
class _Mount:
    """One mounted hierarchy: `base` is the group it shows at `point`."""

    version: int
    controllers: frozenset[str]
    base: str
    point: Path


def read_cgroup_limits(root: Path) -> CgroupLimits:
    """Reads the limits of the process whose ``/proc/self`` is under `root`."""
    groups = _own_groups(root)
    mounts = _mounts(root)
    cpus: tuple[int, ...] | None = None
    for path in _levels(mounts, groups, "cpuset"):
        # Effective of the innermost group already contains its ancestors' limits.
        cpus = _first_cpus(path)
        if cpus:
            break
    quotas = [quota for path in _levels(mounts, groups, "cpu") if (quota := _quota(path)) is not None]
    memory = [found for path in _levels(mounts, groups, "memory") if (found := _memory(path)) is not None]
    return CgroupLimits(
        cpus=cpus or None,
        cpu_quota=min(quotas, default=None),
        memory_limit=min((limit for limit, _ in memory), default=None),
        memory_free=min((free for _, free in memory), default=None),
    )


def _own_groups(root: Path) -> dict[str, str]:
    """Controller to this process's group; the v2 hierarchy is under ``""``."""
    groups: dict[str, str] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                groups[controller] = parts[2]
    return groups


def _mounts(root: Path) -> list[_Mount]:
    mounts: list[_Mount] = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        left, found, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if not found or len(fields) < 5 or len(tail) < 3 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        version = 2 if tail[0] == "cgroup2" else 1
        point = root / fields[4].lstrip("/")
        mounts.append(_Mount(version, frozenset(tail[2].split(",")), fields[3], point))
    if mounts:
        return mounts
    return _usual_mounts(root / "sys/fs/cgroup")


def _usual_mounts(top: Path) -> list[_Mount]:
    """Where the hierarchies are on every distribution, for a tree that was recorded without mountinfo."""
    if (top / "cgroup.controllers").exists():
        return [_Mount(2, frozenset(), "/", top)]
    names = {"cpu": ("cpu", "cpu,cpuacct"), "cpuset": ("cpuset",), "memory": ("memory",)}
    return [
        _Mount(1, frozenset({controller}), "/", top / folder)
        for controller, folders in names.items()
        for folder in folders
        if (top / folder).is_dir()
    ]


def _levels(mounts: list[_Mount], groups: dict[str, str], controller: str) -> Iterator[Path]:
    """Directories of our group and its ancestors, innermost first, in every hierarchy of this controller."""
    for mount in mounts:
        name = "" if mount.version == 2 else controller
        if mount.version == 1 and controller not in mount.controllers:
            continue
        group = groups.get(name, "/")
        # Inside a container the mount shows our own group as its top, while /proc may name it from the
        # host's top.
        inside = group == mount.base or mount.base == "/" or group.startswith(mount.base.rstrip("/") + "/")
        relative = group[len(mount.base.rstrip("/")) :].strip("/") if inside and ".." not in group else ""
        path = mount.point / relative
        while True:
            if path.is_dir():
                yield path
            if path == mount.point:
                break
            path = path.parent


def _first_cpus(path: Path) -> tuple[int, ...] | None:
    for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
        cpus = read_cpulist(path / name)
        if cpus:
            return cpus
    return None


def _quota(path: Path) -> float | None:
    words = (read_text(path / "cpu.max") or "").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    quota, period = read_int(path / "cpu.cfs_quota_us"), read_int(path / "cpu.cfs_period_us")
    if quota is not None and period and quota > 0:
        return quota / period
    return None


def _memory(path: Path) -> tuple[int, int] | None:
    """Limit and free bytes of one group, or None where it has no limit."""
    v2 = read_text(path / "memory.max")
    if v2 is not None:
        limit = int(v2) if v2.isdigit() else None
        used, cache = read_int(path / "memory.current"), "inactive_file"
    else:
        limit = read_int(path / "memory.limit_in_bytes")
        used, cache = read_int(path / "memory.usage_in_bytes"), "total_inactive_file"
    if limit is None or limit >= _UNLIMITED:
        return None
    reclaimable = 0
    for line in (read_text(path / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == cache and value.isdigit():
            reclaimable = int(value)
    return limit, max(0, min(limit, limit - (used or 0) + reclaimable))
