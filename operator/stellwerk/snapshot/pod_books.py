"""Books of what pods have or use on a node by a key of its own: host ports, disks, priorities.

NodePorts, VolumeRestrictions, the volume limits and preemption read them. Invariant: a key is there
while a pod in some row has it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np
from typing_extensions import override

from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import HostPort
from stellwerk.models.volumes import MonitoredImage, PodUses, UsageKey
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.copy_on_write import Counts


class HostPorts(Book):
    """Host ports in use."""

    def __init__(self) -> None:
        self._pods: Counts[HostPort, int] = Counts()

    def keys(self) -> Iterable[HostPort]:
        """Every host port in use."""
        return self._pods

    def rows(self, port: HostPort) -> Mapping[int, int]:
        """Pods with the port by row, only rows that have any."""
        return self._pods.of(port)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        for port in pod.spec.host_ports:
            self._pods.add(port, row, change)

    @override
    def fork(self) -> "HostPorts":
        fork = HostPorts()
        fork._pods = self._pods.fork()
        return fork


class VolumeUsers(Book):
    """Claims and disks in use, by `PodVolume.usage_keys`.

    Pods and images with very many uses are counted as a whole: what they use is looked up in them.
    """

    def __init__(self) -> None:
        self._by_key: Counts[UsageKey, int] = Counts()
        self._by_row: Counts[int, UsageKey] = Counts()
        self._pods: Counts[PodUses, int] = Counts()
        """Uses of pods with very many, by row."""
        self._images: Counts[MonitoredImage, int] = Counts()
        """Images with very many keys, by row."""
        self._changes: dict[int, int] = {}

    def keys(self) -> Iterable[UsageKey]:
        """Every claim and disk in use."""
        if not self._images and not self._pods:
            return self._by_key
        of_pods = chain.from_iterable(uses.counts for uses in self._pods)
        return dict.fromkeys(chain(self._by_key, of_pods, chain.from_iterable(self._images)))

    def rows(self, key: UsageKey) -> Mapping[int, int]:
        """Users of a claim or disk by row, only rows that have any."""
        users = self._by_key.of(key)
        for image, rows in self._images.items():
            if key in image:
                users = Counter(users) + Counter(rows)
        for uses, rows in self._pods.items():
            times = uses.counts.get(key)
            if times:
                users = Counter(users) + Counter({row: times * rows[row] for row in rows})
        return users

    def on_row(self, row: int) -> Mapping[UsageKey, int]:
        """Users of each claim and disk that pods of the row use.

        Without images of very many keys: no driver attaches them.
        """
        users = self._by_row.of(row)
        for uses, rows in self._pods.items():
            for _ in range(rows.get(row, 0)):
                users = _sum(users, uses.counts)
        return users

    def changes(self, row: int) -> int:
        """How often what pods of the row use has changed."""
        return self._changes.get(row, 0)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        if not pod.volumes:
            return
        self._changes[row] = self._changes.get(row, 0) + 1
        if pod.volume_uses is not None:
            self._pods.add(pod.volume_uses, row, change)
            for image in pod.volume_uses.images:
                self._images.add(image, row, change)
            return
        keys: list[UsageKey] = []
        for volume in pod.volumes:
            used = volume.usage_keys(pod.namespace)
            if isinstance(used, MonitoredImage):
                self._images.add(used, row, change)
            else:
                keys += used
        for key in keys:
            self._by_key.add(key, row, change)
        self._by_row.add_each(row, keys, change)

    @override
    def fork(self) -> "VolumeUsers":
        fork = VolumeUsers()
        fork._by_key, fork._by_row = self._by_key.fork(), self._by_row.fork()
        fork._pods, fork._images = self._pods.fork(), self._images.fork()
        fork._changes = self._changes.copy()
        return fork


def _sum(some: Mapping[UsageKey, int], more: Mapping[UsageKey, int]) -> Mapping[UsageKey, int]:
    return Counter(some) + Counter(more) if some else more


class Priorities(Book):
    """Which priorities the pods of each row have."""

    def __init__(self) -> None:
        self._rows: Counts[int, int] = Counts()

    def below(self, priority: int, size: int) -> Mask:
        """(size,) bool, rows that hold a pod of lower priority; a new array."""
        found: Mask = np.zeros(size, np.bool_)
        for lower in self._rows:
            if lower < priority:
                rows = self._rows.of(lower)
                found[np.fromiter(rows, np.intp, len(rows))] = True
        return found

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        self._rows.add(pod.spec.priority, row, change)

    @override
    def fork(self) -> "Priorities":
        fork = Priorities()
        fork._rows = self._rows.fork()
        return fork
