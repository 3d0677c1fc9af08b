"""Counts of the pods of each node by other keys than columns have, and sums of their requests.

`Usage` is the sum of requests: the cache keeps one for each node, a trial makes one for a row that
it changes. The rest are books of the snapshot: host ports, volumes, priorities, and the pods that
match each pairwise term, for InterPodAffinity, PodTopologySpread and SelectorSpread. Pods are
counted by LabelSet first, so that a new term is counted from label sets and not from pods.
Invariants: sums are exact, also where the columns stop at MAX_REQUESTED. Whatever the order of
events, every count equals one made from scratch. A key exists while a pod in some row has it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import numpy as np
from typing_extensions import override

from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.models.scheduling_spec import HostPort, SchedulingSpec
from stellwerk.models.volumes import MonitoredImage, PodUses, UsageKey
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import Counts, Mask
from stellwerk.snapshot.existing_terms import (
    ExistingTerms,
    MatchingTerms,
    TermIndex,
    most_selective,
)
from stellwerk.snapshot.pair_terms import PodSelection, PodTerm
from stellwerk_kube.resource_amounts import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from stellwerk_kube.selectors import Requirement

NATIVE_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""The first rows of the resource columns; others have one while some node offers them."""
_NATIVE_ROW: Final = {resource: row for row, resource in enumerate(NATIVE_RESOURCES)}
_PODS_ROW: Final = NATIVE_RESOURCES.index(PODS)

_NOTHING: Final[dict[str, int]] = {}
"""The extended resources of most nodes: none. It is shared, and never written."""
_MAX_TERMS: Final = 1024
"""Terms of pending pods whose counts are kept up to date. Beyond it, the least recently used term
is dropped, and counted again when it comes back."""
_MAX_INDEXED_KEYS: Final = 256
"""Label keys by which label sets are indexed. Each takes a pass over all label sets, and pods may
invent any number of keys. Beyond it, the index is cleared and made again key by key."""


class Usage:
    """Requested amounts of one node, and the amounts that scores count."""

    __slots__ = ("amounts", "extended", "nonzero_cpu_millis", "nonzero_memory_bytes")

    def __init__(
        self,
        amounts: list[int],
        cpu_millis: int,
        memory_bytes: int,
        extended: Mapping[str, int] | None = None,
    ) -> None:
        self.amounts = amounts
        """Requested amount of each of NATIVE_RESOURCES; for "pods" their number."""
        self.extended: dict[str, int] = dict(extended) if extended else _NOTHING
        """Requested amounts of all other resources by name; none of them is 0."""
        self.nonzero_cpu_millis = cpu_millis
        self.nonzero_memory_bytes = memory_bytes
        """Both with kube-scheduler's defaults for containers that request none."""

    @classmethod
    def none(cls) -> "Usage":
        """The usage of a node without pods."""
        return cls([0] * len(NATIVE_RESOURCES), 0, 0)

    def count(self, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod."""
        amounts = self.amounts
        for name, amount in pod.amounts.requests.items():
            row = _NATIVE_ROW.get(name)
            if row is None:
                self._count_extended(name, change * amount)
            else:
                amounts[row] += change * amount
        amounts[_PODS_ROW] += change
        self.nonzero_cpu_millis += change * pod.amounts.nonzero_cpu_millis
        self.nonzero_memory_bytes += change * pod.amounts.nonzero_memory_bytes

    def copy(self) -> "Usage":
        """Copy the sums."""
        return Usage(
            self.amounts.copy(), self.nonzero_cpu_millis, self.nonzero_memory_bytes, self.extended
        )

    def _count_extended(self, name: str, change: int) -> None:
        amount = self.extended.get(name, 0) + change
        if amount:
            if self.extended is _NOTHING:
                self.extended = {}
            self.extended[name] = amount
            return
        if self.extended:
            self.extended.pop(name, None)
        if not self.extended:
            # A map keeps the room of a pod that invented a hundred thousand resources.
            self.extended = _NOTHING


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
                users = Counter(users) + Counter(uses.counts) if users else uses.counts
        return users

    def changes(self, row: int) -> int:
        """The number of changes of what pods of the row use."""
        return self._changes.get(row, 0)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        if not pod.details.volumes:
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


class Priorities(Book):
    """The priorities that the pods of each row have."""

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


class PairCounts(Book):
    """Counts per term and row: of pods that pending pods' terms match, and of existing terms."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels of every known namespace."""
        self._pods: Counts[LabelSet, int] = Counts()
        """Existing pods by LabelSet and row."""
        self._terminating: Counts[LabelSet, int] = Counts()
        """Those of them that are being deleted."""
        self._label_sets_by_label: dict[str, dict[str, dict[LabelSet, None]]] = {}
        """Label key → value → label sets of `_pods`, for keys that some term has asked for."""
        self._terms: dict[PodSelection, PodTerm] = {}
        self._terms_of: dict[LabelSet, list[PodTerm]] = {}
        """The terms in use that count pods of a label set; most count in none."""
        self._term_index: TermIndex[PodTerm] = TermIndex()
        self._uses = 0
        self._existing = ExistingTerms()
        self.pods_with_terms = 0
        """Existing pods with (anti-)affinity terms; without any, there is nothing to match."""

    # --- what plugins ask -----------------------------------------------------------------------

    def term(self, selection: PodSelection) -> PodTerm:
        """The counts of a selection; counted from now on, until others need the room."""
        self._uses += 1
        term = self._terms.get(selection)
        if term is None:
            if len(self._terms) >= _MAX_TERMS:
                self._drop_terms()
            term = self._terms[selection] = PodTerm(selection)
            self._term_index.add(term, selection.requirements)
            self._count_label_sets(term)
        term.last_use = self._uses
        return term

    def keep(self, terms: Iterable[PodTerm]) -> bool:
        """Note that the terms are in use; False: one was dropped meanwhile, ask for all again."""
        self._uses += 1
        kept = True
        for term in terms:
            term.last_use = self._uses
            kept &= not term.dropped
        return kept

    def existing_terms(self, label_set: LabelSet) -> MatchingTerms:
        """The existing pods' terms that match a pending pod with these labels."""
        return self._existing.matching(label_set, self.namespaces)

    def held(self) -> tuple[int, int]:
        """(distinct LabelSets of existing pods, distinct terms that they have), for audits."""
        return len(self._pods), len(self._existing)

    # --- what the cache writes ------------------------------------------------------------------

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        label_set, pods = pod.label_set, self._pods
        if change > 0 and label_set not in pods:
            self._enter(label_set)
        pods.add(label_set, row, change)
        if pod.terminating:
            self._terminating.add(label_set, row, change)
        for term in self._terms_of.get(label_set, ()):
            if not pod.terminating or term.selection.counts_terminating:
                term.add(row, change)
        if change < 0 and label_set not in pods:
            self._leave(label_set)
        if not pod.spec.pod_affinity.empty:
            self.pods_with_terms += change
            self._existing.count_pods(row, pod.spec, change)

    def index_terms(self, specs: Iterable[SchedulingSpec]) -> Iterator[None]:
        """Enter specs with many terms whose pods are to be counted, step by step."""
        return self._existing.index_terms(specs)

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels; None: it is gone."""
        if self.namespaces.get(namespace) == labels:
            return
        if labels is None:
            del self.namespaces[namespace]
        else:
            self.namespaces[namespace] = labels
        self._existing.forget_matches()
        for term in self._terms.values():
            if term.selection.reads_namespaces:
                self._uncount_label_sets(term)
                self._count_label_sets(term)

    @override
    def fork(self) -> "PairCounts":
        """Copy the pods; terms are counted again when they are asked for."""
        fork = PairCounts()
        fork.namespaces = self.namespaces.copy()
        fork._pods, fork._terminating = self._pods.fork(), self._terminating.fork()
        fork._existing, fork.pods_with_terms = self._existing.fork(), self.pods_with_terms
        return fork

    # --- label sets and the terms that count them -----------------------------------------------

    def _enter(self, label_set: LabelSet) -> None:
        """There are pods with these labels now."""
        for key, by_value in self._label_sets_by_label.items():
            if key in label_set.labels:
                by_value.setdefault(label_set.labels[key], {})[label_set] = None
        terms = [
            term
            for term in self._term_index.candidates(label_set.labels)
            if term.selection.matches(label_set, self.namespaces)
        ]
        if terms:
            self._terms_of[label_set] = terms

    def _leave(self, label_set: LabelSet) -> None:
        """No pod has these labels any more."""
        self._terms_of.pop(label_set, None)
        for key, by_value in self._label_sets_by_label.items():
            value = label_set.labels.get(key)
            if value is not None:
                del by_value[value][label_set]
                if not by_value[value]:
                    del by_value[value]

    def _count_label_sets(self, term: PodTerm) -> None:
        for label_set in self._candidates(term.selection.requirements):
            if not term.selection.matches(label_set, self.namespaces):
                continue
            self._terms_of.setdefault(label_set, []).append(term)
            terminating = self._terminating.of(label_set)
            for row, pods in self._pods.of(label_set).items():
                counts = term.selection.counts_terminating
                counted = pods if counts else pods - terminating.get(row, 0)
                if counted:
                    term.add(row, counted)

    def _uncount_label_sets(self, term: PodTerm) -> None:
        for label_set in self._candidates(term.selection.requirements):
            terms = self._terms_of.get(label_set, [])
            if term in terms:
                terms.remove(term)
                if not terms:
                    del self._terms_of[label_set]
        term.clear()

    def _candidates(self, requirements: tuple[Requirement, ...]) -> Iterator[LabelSet]:
        """Label sets of pods that may fulfil the requirements, each once."""
        requirement = most_selective(requirements)
        if requirement is None:
            yield from self._pods
            return
        by_value = self._label_sets_by_label.get(requirement.key)
        if by_value is None:
            if len(self._label_sets_by_label) >= _MAX_INDEXED_KEYS:
                self._label_sets_by_label.clear()
            by_value = self._label_sets_by_label[requirement.key] = {}
            for label_set in self._pods:
                value = label_set.labels.get(requirement.key)
                if value is not None:
                    by_value.setdefault(value, {})[label_set] = None
        for value in requirement.values:
            yield from by_value.get(value, ())

    def _drop_terms(self) -> None:
        """Drop the quarter of the terms that was used longest ago."""
        oldest = sorted(self._terms.values(), key=lambda term: term.last_use)
        for term in oldest[: _MAX_TERMS // 4]:
            term.dropped = True
            del self._terms[term.selection]
            self._term_index.discard(term, term.selection.requirements)
            self._uncount_label_sets(term)
