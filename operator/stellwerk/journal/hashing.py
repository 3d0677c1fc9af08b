"""Hashes in place of the texts of a journal.

The writer's thread uses it where `--hash-names` is given, after `kept` has left out what no
decision reads. Every text becomes a hash but for words of the API and of plugins' arguments,
numbers, quantities, times, versions and uids. Invariant: equal texts have equal hashes within one
recording and no others, so that references and selectors match as before; the key is never written,
so that names cannot be tried.
"""

import hashlib
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, get_args

import orjson
from pydantic import BaseModel

from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    Forgotten,
    GroupBegun,
    GroupDecided,
    InitialState,
    Nominated,
    PluginState,
    PluginStateGone,
    WatchEvent,
)
from stellwerk.models.in_tree_volumes import MIGRATABLE_DRIVERS
from stellwerk.profiles.spec import plugin_args
from stellwerk.profiles.spec.defaults import DEFAULT_PLUGINS, GANG_SCHEDULING
from stellwerk.profiles.spec.spec_fields import SchedulerProfileSpec
from stellwerk_kube.json_values import JsonObject

_WORDS: Final = frozenset(
    """
    In NotIn Exists DoesNotExist Gt Lt Equal Lte Gte true false True False Unknown
    NoSchedule PreferNoSchedule NoExecute None
    Pending Running Succeeded Failed Available Bound Released Lost Active Terminating Scheduled
    PreScheduling Scheduling Finished
    Always OnFailure Never PreemptLowerPriority RestartAllContainers Restart
    ScheduleAnyway DoNotSchedule Honor Ignore
    WaitForFirstConsumer Immediate ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod
    Filesystem Block ExactCount All TCP UDP SCTP Guaranteed Burstable BestEffort FromClass FromClaim
    PodScheduled Ready Initialized ContainersReady DisruptionTarget PodResizePending Infeasible
    Deferred PreemptionByScheduler Unschedulable SchedulingGated PodGroupScheduled
    PodGroupInitiallyScheduled Single PodGroup Pod Node ReplicaSet StatefulSet Deployment Job
    ReplicationController DaemonSet PersistentVolumeClaim PersistentVolume Service Namespace
    PriorityClass StorageClass CSINode CSIDriver CSIStorageCapacity VolumeAttachment Workload
    PodDisruptionBudget ResourceClaim ResourceSlice DeviceClass DeviceTaintRule SchedulerProfile
    ResourceClaimTemplate NodeResourceTopology ElasticQuota
    v1 v1alpha1 v1alpha2 v1alpha3 v1beta1 v1beta2 apps/v1 batch/v1 policy/v1 pods podgroups
    cpu memory ephemeral-storage storage pods metadata.name default-scheduler stellwerk
    scheduling.k8s.io scheduling.x-k8s.io resource.k8s.io system-cluster-critical
    system-node-critical 0.0.0.0 auto http https
    SingleNUMANodeContainerLevel SingleNUMANodePodLevel BestEffortContainerLevel
    BestEffortPodLevel RestrictedContainerLevel RestrictedPodLevel NonePodLevel NoneContainerLevel
    topologyManagerPolicy topologyManagerScope single-numa-node restricted best-effort none
    container pod Zone CPU Memory AVG STD Latest
    """.split()  # noqa: SIM905 words are read as such
)
"""Words that mean something to decisions, and nothing about who uses them."""
_DOMAINS: Final = (".kubernetes.io", ".k8s.io", ".stellwerk.dev")
"""Keys of labels, taints and resources below them are the API's and the scheduler's."""
_MEANINGFUL: Final = re.compile(
    r"""
    [-+]?\d+(\.\d+)?([eE][-+]?\d+|[numkMGTPE]i?)?        # numbers and quantities
    | v?\d+(\.\d+)+                                      # versions, addresses
    | \d+(-\d+)+                                         # numbers of devices
    | (\d+(\.\d+)?(ns|us|ms|s|m|h))+                     # durations
    | \d{4}-\d\d-\d\dT[\d:.]+(Z|[-+]\d\d:\d\d)           # times
    | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}
    | hugepages-\d+[KMGT]i | node-\d+
    """,
    re.VERBOSE,
)
_OPEN: Final = frozenset(
    {
        "labels",
        "matchLabels",
        "nodeSelector",
        "selector",
        "requests",
        "limits",
        "allocatable",
        "capacity",
        "overhead",
        "allocatedResources",
        "minResources",
        "counters",
        "disruptedPods",
        "min",
        "max",
        "used",
        "NodeMetricsMap",
    }
)
"""Maps whose keys are names; the keys of others are fields."""
_STRUCTURED: Final = frozenset(
    {
        "matchExpressions",
        "matchFields",
        "nodeSelectorTerms",
        "matchLabels",
        "requests",
        "schedulerNames",
        "namespaceSelector",
        "podSelector",
        "count",
    }
)
"""A field of these makes of a map of that name no open one: some kinds have a selector in it."""
_IMAGES: Final = frozenset({"image", "reference"})
_SEPARATORS: Final = re.compile(r"(__|[,=;:\s]+)")
_CEL: Final = re.compile(
    r"""(?P<comment>//[^\n]*)|(?P<prefix>[rRbB]{0,2})(?P<quote>\"\"\"|'''|"|')"""
    r"""(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""",
    re.DOTALL,
)


class Hashing:
    """Entries in hashed form, under a key of its own."""

    def __init__(self, key: bytes | None = None, words: Collection[str] = ()) -> None:
        """`words` are names of plugins and the words of their arguments, beside the usual ones."""
        self._key = key or secrets.token_bytes(32)
        self._known: dict[str, str] = {}
        self._words = usual_words() | frozenset(words)

    def entry(self, entry: Entry) -> Entry:  # noqa: PLR0911 a case for each kind
        """The entry as it is written."""
        match entry:
            case WatchEvent():
                return replace(entry, obj=self.object(entry.obj))
            case Decided():
                return self._decided(entry)
            case Asked() | Forgotten():
                return replace(entry, uid=self.text(entry.uid))
            case Answered():
                return Answered(self._answer(entry.answer))
            case GroupBegun() | GroupDecided():
                return self._of_group(entry)
            case Nominated() | PluginState() | PluginStateGone():
                return self._of_state(entry)
            case _:
                return entry

    def layout(self, layout: InitialState) -> InitialState:
        """A layout as it is written."""
        return InitialState(
            self._texts(layout.nodes),
            [(self.text(uid), self.text(name)) for uid, name in layout.assumed],
            [(self.text(uid), self.text(name)) for uid, name in layout.nominated],
            [(kind, self.object(obj)) for kind, obj in layout.held],
        )

    def object(self, obj: JsonObject) -> JsonObject:
        """An object in hashed form."""
        hashed: JsonObject = self._value("", obj)
        return hashed

    def text(self, text: str) -> str:
        """The hash of a text, of the parts of one with a slash; what has meaning for all stays."""
        if not text or text in self._words or _MEANINGFUL.fullmatch(text):
            return text
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._hash(text)
        return known

    def _hash(self, text: str) -> str:
        scheme, is_url, address = text.partition("://")
        if is_url and scheme in {"http", "https"}:
            return f"{scheme}://{self.text(address)}"
        if "__" in text.strip("_"):
            return "__".join(self.text(part) for part in text.split("__"))  # several zones
        first, slash, rest = text.partition("/")
        if slash:
            if f".{first}".endswith(_DOMAINS):
                return f"{first}/{self.text(rest)}" if first.startswith("deviceclass.") else text
            return f"{self.text(first)}/{self.text(rest)}"
        digest = hashlib.blake2b(text.encode(errors="replace"), key=self._key, digest_size=10)
        return f"h{digest.hexdigest()}"

    def _texts(self, texts: Sequence[str]) -> list[str]:
        return [self.text(text) for text in texts]

    # --- objects --------------------------------------------------------------------------------

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401, PLR0911 any JSON
        if isinstance(value, Mapping):
            return self._fields(name, value)
        if isinstance(value, list | tuple):
            return [self._item(name, each) for each in value]
        if not isinstance(value, str):
            return value
        if name in _IMAGES:
            return self._image(value)
        if name == "expression":
            return self._expression(value)
        if name in {"matchAttribute", "distinctAttribute"}:
            return self._qualified(value) if "/" in value else self.text(value)
        return self.text(value)

    def _item(self, name: str, value: Any) -> Any:  # noqa: ANN401 any JSON
        # The names of a node's images, as of a container's; elsewhere they are of namespaces.
        if name == "names" and isinstance(value, str) and ("/" in value or ":" in value):
            return self._image(value)
        # A map in a list is an item, whatever the list is called.
        return self._value("" if isinstance(value, Mapping) else name, value)

    def _fields(self, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        if name == "annotations":
            return {self.text(key): self._annotation(text) for key, text in fields.items()}
        if name in {"attributes", "consumedCapacity"} or (
            name == "capacity" and all(isinstance(each, Mapping) for each in fields.values())
        ):
            # Of devices: a request for capacity has one more storey.
            return {
                key if key == "requests" else self._qualified(key): self._value(
                    "attributes" if key == "requests" else "", each
                )
                for key, each in fields.items()
            }
        if name in _OPEN and not (_STRUCTURED & fields.keys()):
            return {self.text(key): self._value("", each) for key, each in fields.items()}
        return {key: self._value(key, each) for key, each in fields.items()}

    def _qualified(self, text: str) -> str:
        """A name behind its domain, where it has one: CEL has it as an identifier."""
        domain, slash, name = text.rpartition("/")
        if not slash:
            return name
        return text if f".{domain}".endswith(_DOMAINS) else f"{self.text(domain)}/{name}"

    def _annotation(self, text: Any) -> Any:  # noqa: ANN401 any JSON
        if not isinstance(text, str):
            return text
        if text[:1] in {"{", "["}:
            try:
                return orjson.dumps(self._value("", orjson.loads(text))).decode()
            except orjson.JSONDecodeError:
                return self.text(text)
        parts = _SEPARATORS.split(text)
        return "".join(part if _SEPARATORS.fullmatch(part) else self.text(part) for part in parts)

    def _image(self, image: str) -> str:
        """With a tag, so that one which names none is still the same as the node's."""
        last = image.rpartition("/")[2]
        whole = image if ":" in last or "@" in last else f"{image}:latest"
        return f"{self.text(whole.replace('/', '|'))}:h"

    def _expression(self, expression: str) -> str:
        """CEL about devices, its texts hashed as attributes and drivers are, without comments."""
        if not re.search(r"\bdevice\b", expression):
            return expression if expression.strip() in {"true", "false"} else self.text(expression)

        def hidden(match: re.Match[str]) -> str:
            if match["comment"] is not None:
                return " "
            if expression[: match.start()].rstrip().endswith("]["):
                return match[0]  # the name of an attribute
            return orjson.dumps(self.text(match["body"])).decode()

        return _CEL.sub(hidden, expression)

    # --- entries --------------------------------------------------------------------------------

    def _decided(self, entry: Decided) -> Decided:
        """Without its message, which quotes what it is about."""
        return replace(
            entry,
            uid=self.text(entry.uid),
            key=self._key_of_pod(entry.key),
            scheduler_name=self.text(entry.scheduler_name),
            node_name=self.text(entry.node_name),
            nominated=self.text(entry.nominated),
            victims=self._texts(entry.victims),
            message="",
        )

    def _of_group(self, entry: GroupBegun | GroupDecided) -> GroupBegun | GroupDecided:
        if isinstance(entry, GroupBegun):
            api, namespace, name = entry.group
            roles = {self.text(role): count for role, count in entry.finished_by_role.items()}
            return replace(
                entry,
                scheduler_name=self.text(entry.scheduler_name),
                group=[api, self.text(namespace), self.text(name)],
                members=self._texts(entry.members),
                scheduled=self._texts(entry.scheduled),
                ending=None if entry.ending is None else self._texts(entry.ending),
                finished_by_role=roles,
            )
        members = [
            [self.text(uid), self._key_of_pod(key), attempts, self.text(node_name), ""]
            for uid, key, attempts, node_name, _ in entry.members
        ]
        nodes = {self.text(uid): self.text(node_name) for uid, node_name in entry.nodes.items()}
        return replace(
            entry, members=members, nodes=nodes, victims=self._texts(entry.victims), message=""
        )

    def _of_state(
        self, entry: Nominated | PluginState | PluginStateGone
    ) -> Nominated | PluginState | PluginStateGone:
        if isinstance(entry, Nominated):
            return replace(entry, uid=self.text(entry.uid), node_name=self.text(entry.node_name))
        if isinstance(entry, PluginState):
            return PluginState(entry.kind, self.object(entry.obj))
        return replace(entry, namespace=self.text(entry.namespace), name=self.text(entry.name))

    def _key_of_pod(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self.text(namespace)}/{self.text(name)}"

    def _answer(self, answer: Any) -> Any:  # noqa: ANN401 any JSON
        """An extender's answer; texts in it are names of nodes, but for those of statuses."""
        match answer:
            case [list() | None as names, dict() as statuses]:
                hashed = None if names is None else [self.text(name) for name in names]
                return [
                    hashed,
                    {self.text(name): [each[0], [], each[2]] for name, each in statuses.items()},
                ]
            case [list() as status, list() as candidates]:
                left = [
                    [self.text(name), self._texts(uids), broken]
                    for name, uids, broken in candidates
                ]
                return [[status[0], [], status[2]], left]
            case {"error": _}:
                return {"error": ""}
            case _:
                return answer


@cache
def usual_words() -> frozenset[str]:
    """Words of the API, of profiles and of the arguments of the plugins that come along."""
    found = {*_WORDS, *DEFAULT_PLUGINS, GANG_SCHEDULING, *MIGRATABLE_DRIVERS.values()}
    models = [each for each in vars(plugin_args).values() if isinstance(each, type)]
    for model in (SchedulerProfileSpec, *models):
        if issubclass(model, BaseModel):
            found |= words_of(model)
    return frozenset(found)


def words_of(model: type[BaseModel]) -> set[str]:
    """The texts that fields of a model may have where they are a choice of a few."""
    found: set[str] = set()
    left: list[Any] = [model]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, str):
            found.add(each)
        elif isinstance(each, type) and issubclass(each, BaseModel):
            left += [field.annotation for field in each.model_fields.values()]
        else:
            left += get_args(each)
    return found
