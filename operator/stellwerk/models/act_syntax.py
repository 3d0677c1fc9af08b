"""The syntax of supposed acts, which are written as for kubectl: one reader for every door.

The command line, the body of `POST /what-if` and the page's form read `--relabel`, `--taint`,
`--delete` and `--scale` with it. It stands alone because it knows texts and no cluster. Invariant:
the text of an act that was read is read as the same act again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from typing_extensions import override

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.names import (
    is_label_value,
    is_qualified_name,
    is_subdomain,
    suggestion,
)
from stellwerk_kube.taints import TAINT_EFFECTS, Taint

MAX_REPLICAS: Final = 100_000
"""Pods that one controller may be scaled to; more than any cluster of the size limits has."""
MAX_CHANGES_OF_ACT: Final = 64
"""Labels or taints that one act changes: as many as a supposed node may have."""
NODE, POD = "Node", "Pod"
DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET = "Deployment", "Job", "ReplicaSet", "StatefulSet"
REPLICATION_CONTROLLER = "ReplicationController"
_DELETABLE: Final = {"node": NODE, "nodes": NODE, "no": NODE, "pod": POD, "pods": POD, "po": POD}
_SCALABLE: Final = {
    "deployment": DEPLOYMENT,
    "deployments": DEPLOYMENT,
    "deploy": DEPLOYMENT,
    "job": JOB,
    "jobs": JOB,
    "replicaset": REPLICA_SET,
    "replicasets": REPLICA_SET,
    "rs": REPLICA_SET,
    "replicationcontroller": REPLICATION_CONTROLLER,
    "replicationcontrollers": REPLICATION_CONTROLLER,
    "rc": REPLICATION_CONTROLLER,
    "statefulset": STATEFUL_SET,
    "statefulsets": STATEFUL_SET,
    "sts": STATEFUL_SET,
}
"""kubectl's names of the kinds."""
Act = TypeVar("Act")


@dataclass(frozen=True, slots=True)
class Relabelling:
    """`kubectl label node`."""

    node: str
    labels: Mapping[str, str | None]
    """None takes the label away."""

    @override
    def __str__(self) -> str:
        """`NODE KEY=VALUE … KEY-`."""
        changes = (
            f"{key}-" if value is None else f"{key}={value}" for key, value in self.labels.items()
        )
        return " ".join((self.node, *changes))


@dataclass(frozen=True, slots=True)
class Tainting:
    """`kubectl taint node`."""

    node: str
    added: Sequence[Taint]
    removed: Sequence[tuple[str, str]]
    """Key and effect of each; an empty effect stands for all taints of the key."""

    @override
    def __str__(self) -> str:
        """`NODE KEY=VALUE:EFFECT … KEY:EFFECT-`."""
        added = map(taint_text, self.added)
        removed = (f"{key}:{effect}-" if effect else f"{key}-" for key, effect in self.removed)
        return " ".join((self.node, *added, *removed))


@dataclass(frozen=True, slots=True)
class Deletion:
    """`kubectl delete` of a node or a pod."""

    kind: str
    namespace: str
    """Empty for a node."""
    name: str

    @override
    def __str__(self) -> str:
        """`node/NAME` or `pod/NAMESPACE/NAME`."""
        return "/".join(filter(None, (self.kind.lower(), self.namespace, self.name)))


@dataclass(frozen=True, slots=True)
class Scaling:
    """`kubectl scale`; of a Job, another parallelism."""

    kind: str
    namespace: str
    name: str
    replicas: int

    @property
    def workload(self) -> str:
        """KIND/NAMESPACE/NAME."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @override
    def __str__(self) -> str:
        """`KIND/NAMESPACE/NAME=REPLICAS`."""
        return f"{self.workload}={self.replicas}"


def read_acts(
    where: str, texts: Sequence[str], read: Callable[[str], Act], identity: Callable[[Act], object]
) -> tuple[Act, ...]:
    """The acts of one kind.

    Args:
        where: begins each message: the option, or the field of the question.
        texts: as they were written.
        read: reads one of them.
        identity: of what an act changes; two acts on the same thing are refused.

    Raises:
        ConfigurationError: an act is misspelt, or two contradict each other.
    """
    acts: dict[object, Act] = {}
    for text in texts:
        try:
            act = read(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where} {text!r:.120}: {error}") from error
        if identity(act) in acts:
            raise ConfigurationError(f"{where} {text!r:.120}: it is named twice")
        acts[identity(act)] = act
    return tuple(acts.values())


def read_relabelling(text: str) -> Relabelling:
    """Read `NODE KEY=VALUE … KEY-`.

    Raises:
        ConfigurationError: it is written otherwise, or no node may have such a label.
    """
    node, changes = _node_and_changes(text, "KEY=VALUE or KEY-")
    labels: dict[str, str | None] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        is_removal = not equals and change.endswith("-")
        key = key.removesuffix("-") if is_removal else key
        if not (equals or is_removal):
            raise ConfigurationError(f'"{change:.80}" is not KEY=VALUE or KEY-')
        if not is_qualified_name(key):
            raise ConfigurationError(f'"{key:.80}" is not a label key')
        if not is_label_value(value):
            raise ConfigurationError(f'"{value:.80}" is not a label value')
        if key in labels:
            raise ConfigurationError(f"{key} is named twice")
        labels[key] = None if is_removal else value
    return Relabelling(node, labels)


def read_tainting(text: str) -> Tainting:
    """Read `NODE KEY=VALUE:EFFECT … KEY:EFFECT-`.

    Raises:
        ConfigurationError: it is written otherwise, or no node may have such a taint.
    """
    node, changes = _node_and_changes(text, "KEY=VALUE:EFFECT or KEY-")
    added: dict[tuple[str, str], Taint] = {}
    removed: dict[tuple[str, str], None] = {}
    for change in changes:
        is_removal = change.endswith("-")
        key_and_value, colon, effect = change.removesuffix("-").partition(":")
        key, _, value = key_and_value.partition("=")
        if not is_qualified_name(key):
            raise ConfigurationError(f'"{key:.80}" is not a taint key')
        if not is_label_value(value):
            raise ConfigurationError(f'"{value:.80}" is not a taint value')
        if effect not in TAINT_EFFECTS and (colon or not is_removal):
            near = suggestion(effect, TAINT_EFFECTS) or f"; effects are {', '.join(TAINT_EFFECTS)}"
            raise ConfigurationError(f'"{effect:.80}" is not a taint effect{near}')
        if (key, effect) in added or (key, effect) in removed:
            raise ConfigurationError(f"{key} is named twice")
        if is_removal:
            removed[key, effect] = None
        else:
            added[key, effect] = Taint(key, value, effect)
    return Tainting(node, tuple(added.values()), tuple(removed))


def read_deletion(text: str, namespace: str = "default") -> Deletion:
    """Read `node/NAME`, `pod/NAME` or `pod/NAMESPACE/NAME`.

    `namespace`: of a pod whose text names none.

    Raises:
        ConfigurationError: it is written otherwise.
    """
    kind, *path = _path(text, _DELETABLE, "node/NAME or pod/NAMESPACE/NAME")
    if kind == NODE and len(path) > 1:
        raise ConfigurationError("a node has no namespace")
    return Deletion(kind, "" if kind == NODE else _namespace(path, namespace), path[-1])


def read_scaling(text: str, namespace: str = "default") -> Scaling:
    """Read `KIND/NAME=REPLICAS` or `KIND/NAMESPACE/NAME=REPLICAS`.

    `namespace`: of a controller whose text names none.

    Raises:
        ConfigurationError: it is written otherwise, or the number is out of its range.
    """
    path_text, equals, number = text.partition("=")
    form = "KIND/NAMESPACE/NAME=REPLICAS"
    kind, *path = _path(path_text, _SCALABLE, form)
    if not equals:
        raise ConfigurationError(f"expected {form}")
    is_number = number.isascii() and number.isdecimal() and len(number) <= len(str(MAX_REPLICAS))
    if not is_number or int(number) > MAX_REPLICAS:
        raise ConfigurationError(f"replicas are a whole number from 0 to {MAX_REPLICAS:,}")
    return Scaling(kind, _namespace(path, namespace), path[-1], int(number))


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _node_and_changes(text: str, form: str) -> tuple[str, list[str]]:
    node, *changes = text.split() or [""]
    if not is_subdomain(node) or not changes:
        raise ConfigurationError(f"expected the name of a node and {form}")
    if len(changes) > MAX_CHANGES_OF_ACT:
        raise ConfigurationError(f"one act changes at most {MAX_CHANGES_OF_ACT}")
    return node, changes


def _path(text: str, kinds: Mapping[str, str], form: str) -> list[str]:
    """The kind, the namespace if one is named, and the name."""
    kind, *path = text.split("/")
    found = kinds.get(kind.lower())
    if found is None and path:
        near = suggestion(kind, kinds)
        listed = ", ".join(dict.fromkeys(each.lower() for each in kinds.values()))
        raise ConfigurationError(f'"{kind:.80}" is none of {listed}{near}')
    if found is None or not 1 <= len(path) <= 2 or not all(map(is_subdomain, path)):  # noqa: PLR2004 namespace and name
        raise ConfigurationError(f"expected {form}")
    return [found, *path]


def _namespace(path: Sequence[str], namespace: str) -> str:
    return path[0] if len(path) > 1 else namespace
