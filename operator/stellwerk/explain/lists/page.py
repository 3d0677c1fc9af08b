"""The requested part of a list: its offset, its length, and the pods to include.

Every module of this folder uses it. `serving.explanations` creates it from a request. Invariant: a
page holds at most MAX_ENTRIES_PER_PAGE entries.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.explain.records import DecisionRecord
from stellwerk.models.pod import PodInfo
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.selectors import LabelSelector

MAX_ENTRIES_PER_PAGE: Final = 5000
"""Entries of one page. A longer list is asked for in several pages."""
DEFAULT_ENTRIES: Final = 500
"""Entries of a page whose request names no limit."""
MAX_ENTRIES_PER_STEP: Final = 200
"""Entries that are written before the next decision may be made: about a millisecond."""
MAX_MATCHES_PER_STEP: Final = 2000
"""Entries that are compared with a filter before the next decision may be made."""
_MAX_DIGITS: Final = 18
"""Digits of a number in a name that count in the order of names."""
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_TEMPLATE_HASH: Final = "pod-template-hash"
UNSERVED: Final = "unserved"
"""The filter for pods that no scheduler serves. They are in no queue."""
OBSERVED: Final = "observed"
"""The filter for pods that wait for an observed scheduler, whatever we decided for them."""


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that is wanted."""

    limit: int = DEFAULT_ENTRIES
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PodsAsked:
    """A filter of the pods of a list."""

    text: str = ""
    """A part of NAMESPACE/NAME; empty: any."""
    queue: str = ""
    """The queue that they wait in, as counts name it; empty: any."""
    plugin: str = ""
    """One that turned them away; empty: any."""
    node: str = ""
    """The node that they got; empty: any."""
    controller: str = ""
    """NAMESPACE/KIND/NAME of the controller that a user made; empty: any."""
    reason: str | None = None
    """Exactly the plugins that turned them away, in order, with commas; None: any."""
    namespace: str = ""
    """Their namespace; empty: any."""
    selector: LabelSelector | None = None
    """A selector of their labels; None: any."""

    def __post_init__(self) -> None:
        """Check the queue.

        Raises:
            ConfigurationError: there is no such queue.
        """
        if self.queue and self.queue not in _WAITING:
            raise ConfigurationError(f'a queue is one of {", ".join(_WAITING)}, not "{self.queue}"')

    def waits(self, entry: QueuedPod) -> bool:
        """Whether a pod that waits is wanted."""
        return (
            self._is_named(entry.newest)
            and (not self.queue or self._is_in(entry))
            and (not self.plugin or self.plugin in entry.rejector_plugins)
            and (not self.controller or self.controller == controller_key(entry.newest))
            and self.reason in {None, ",".join(sorted(entry.rejector_plugins))}
        )

    def _is_in(self, entry: QueuedPod) -> bool:
        """Whether a pod waits in the queue that is asked for, or for an observed scheduler."""
        if entry.is_observed or self.queue == OBSERVED:
            return entry.is_observed and self.queue == OBSERVED
        return entry.place in _WAITING[self.queue]

    def is_without_queue(self, pod: PodInfo) -> bool:
        """Whether a pod that waits in no queue, because no scheduler serves it, is wanted."""
        is_of_queue = self.plugin or self.controller or self.reason is not None
        return self._is_named(pod) and self.queue in {"", UNSERVED} and not is_of_queue

    def got(self, record: DecisionRecord) -> bool:
        """Whether a pod that got a node is wanted."""
        return self.is_bound(record.key, record.node_name)

    def is_bound(self, key: str, node_name: str) -> bool:
        """Whether a pod that is on a node is wanted; `key`: NAMESPACE/NAME."""
        return self.text in key and self.node in {"", node_name}

    def _is_named(self, pod: PodInfo) -> bool:
        """Whether name, namespace and labels of a pod are wanted."""
        return (
            self.text in pod.key
            and self.namespace in {"", pod.namespace}
            and (self.selector is None or self.selector.matches(pod.labels))
        )


_WAITING: Final[Mapping[str, frozenset[Place]]] = {
    "active": frozenset({Place.ACTIVE}),
    "backoff": frozenset({Place.BACKOFF, Place.ERROR_BACKOFF}),
    "unschedulable": frozenset({Place.UNSCHEDULABLE}),
    "gated": frozenset({Place.GATED}),
    OBSERVED: frozenset(),
    UNSERVED: frozenset(),
}
ALL_PODS: Final = PodsAsked()


def natural_order(name: str) -> str:
    """The place of a name among others, node-2 before node-10."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(_MAX_DIGITS), name)


def controller_key(pod: PodInfo) -> str:
    """NAMESPACE/KIND/NAME of what made a pod, or of its group; empty: it has neither."""
    found = controller_of(pod)
    if not found and pod.group is not None:
        found = f"PodGroup/{pod.group.name}"
    return f"{pod.namespace}/{found}" if found else ""


def owner_of(pod: PodInfo) -> str:
    """KIND/NAME of the controller that made a pod; empty: none did."""
    if pod.owner is None:
        return ""
    kind, name, _ = pod.owner
    return f"{kind.rpartition(' ')[2]}/{name}"


def controller_of(pod: PodInfo) -> str:
    """KIND/NAME of the controller that a user made: a Deployment, not its ReplicaSet.

    Empty: no controller made the pod. A Deployment names its ReplicaSets after itself and the hash
    of the template, which it also gives the pods as a label.
    """
    owner, template = owner_of(pod), pod.labels.get(_TEMPLATE_HASH)
    if template and owner.startswith("ReplicaSet/") and owner.endswith(f"-{template}"):
        return f"Deployment/{owner.removeprefix('ReplicaSet/').removesuffix(f'-{template}')}"
    return owner
