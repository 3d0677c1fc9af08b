"""Names and label values of a journal as hashes, and without what no decision reads.

The writer's thread uses it where `--hash-names` is given. Invariant: equal texts have equal hashes
within one recording and no others, so that references and selectors match as before; the key is
never written, so that names cannot be tried.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from stellwerk.journal.entries import (
    Answered,
    Decided,
    Entry,
    GroupBegun,
    GroupDecided,
    InitialState,
    Nominated,
    PluginState,
    PluginStateGone,
    WatchEvent,
)
from stellwerk.models.json_values import JsonObject
from stellwerk.models.profile import KIND as PROFILE

_NAMES: Final = frozenset(
    {
        "name",
        "namespace",
        "nodeName",
        "nominatedNodeName",
        "claimName",
        "resourceClaimName",
        "resourceClaimTemplateName",
        "volumeName",
        "persistentVolumeName",
        "storageClassName",
        "priorityClassName",
        "deviceClassName",
        "serviceAccountName",
        "pool",
        "value",
        "volumeHandle",
        "nodeID",
        "hostname",
        "subdomain",
    }
)
"""Fields whose text is a name, or a label's value."""
_NAME_LISTS: Final = frozenset({"namespaces", "names"})
_LABELS: Final = frozenset({"labels", "matchLabels", "nodeSelector", "selector"})
"""Maps with values of labels; some kinds have a LabelSelector in `selector`."""
_DROPPED: Final = frozenset(
    {
        "managedFields",
        "generateName",
        "env",
        "envFrom",
        "command",
        "args",
        "message",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "imagePullSecrets",
        "data",
        "addresses",
        "nodeInfo",
        "hostAliases",
        "dnsConfig",
        "parameters",
        "mountOptions",
        "hostIP",
        "hostIPs",
        "podIP",
        "podIPs",
    }
)
_KEPT_ANNOTATIONS: Final = (
    "scheduling.stellwerk.dev/",
    "volume.",
    "pv.kubernetes.io/",
    "kubernetes.io/config.",
)
_PLAIN_NAMES: Final = frozenset({"drivers", "scoringStrategy"})
"""Lists of what has names that mean something to plugins: CSI drivers."""
_NUMERIC: Final = frozenset({"Gt", "Lt"})
_OF_DEVICES: Final = frozenset({"devices", "sharedCounters", "taint", "deviceSelector"})
"""Fields that describe devices: expressions compare their texts, and requests are named in them."""
_NAMES_AMONG_DEVICES: Final = frozenset({"pool", "deviceClassName", "nodeName"})
_NAMING_ANNOTATIONS: Final = frozenset(
    {"volume.kubernetes.io/selected-node", "volume.beta.kubernetes.io/storage-class"}
)
"""Their text is a name."""


class Hashing:
    """Entries in hashed form, under a key of its own."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def entry(self, entry: Entry) -> Entry:
        """The entry as it is written."""
        match entry:
            case WatchEvent():
                of_profile = entry.kind == PROFILE
                obj = self._profile(entry.obj) if of_profile else self.object(entry.obj)
                return replace(entry, obj=obj)
            case Decided():
                return self._decided(entry)
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
            [self.text(name) for name in layout.nodes],
            [(uid, self.text(name)) for uid, name in layout.assumed],
            [(uid, self.text(name)) for uid, name in layout.nominated],
            [(kind, self._named_by_uid(obj)) for kind, obj in layout.held],
        )

    def text(self, text: str) -> str:
        """The hash of a name; whole numbers and the empty text stay, for selectors compare them."""
        if not text or text.lstrip("-").isdecimal():
            return text
        known = self._known.get(text)
        if known is None:
            digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=10).hexdigest()
            known = self._known[text] = f"h{digest}"
        return known

    def object(self, obj: JsonObject) -> JsonObject:
        """An object in hashed form."""
        hashed: JsonObject = self._map(obj)
        return hashed

    def _profile(self, obj: JsonObject) -> JsonObject:
        """A profile with the label values of its selector hashed, as those that it selects are."""
        status = obj.get("status")
        hashed = {**obj, "spec": self._selecting(obj.get("spec"))}
        if isinstance(status, dict) and "lastGoodSpec" in status:
            last_good = self._selecting(status["lastGoodSpec"])
            hashed["status"] = {**status, "lastGoodSpec": last_good}
        return hashed

    def _selecting(self, spec: Any) -> Any:  # noqa: ANN401 any JSON
        if isinstance(spec, dict) and "selector" in spec:
            return {**spec, "selector": self._value("", spec["selector"])}
        return spec

    def _map(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._value(name, value) for name, value in fields.items() if name not in _DROPPED
        }

    def _value(self, name: str, value: Any) -> Any:  # noqa: ANN401 any JSON
        if name in _OF_DEVICES:
            return self._among_devices(name, value)
        if isinstance(value, str):
            if name == "image":
                return self._image(value)
            return self.text(value) if name in _NAMES else value
        if isinstance(value, Mapping):
            return self._fields(name, value)
        if isinstance(value, list):
            return self._items(name, value)
        return value

    def _fields(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
        if name == "annotations":
            return self._annotations(value)
        if name in _LABELS and all(isinstance(each, str) for each in value.values()):
            return {key: self.text(text) for key, text in value.items()}
        if value.get("operator") in _NUMERIC:
            return dict(value)
        return self._map(value)

    def _annotations(self, annotations: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self.text(str(text)) if key in _NAMING_ANNOTATIONS else text
            for key, text in annotations.items()
            if key.startswith(_KEPT_ANNOTATIONS)
        }

    def _among_devices(self, name: str, value: Any) -> Any:  # noqa: ANN401 any JSON
        if isinstance(value, Mapping):
            if name == "nodeSelector":
                return self._map(value)
            fields = value.items()
            return {key: self._among_devices(key, each) for key, each in fields if key != "opaque"}
        if isinstance(value, list):
            return [self._among_devices(name, each) for each in value]
        is_name = name in _NAMES_AMONG_DEVICES and isinstance(value, str)
        return self.text(value) if is_name else value

    def _items(self, name: str, items: list[Any]) -> list[Any]:
        if name in _PLAIN_NAMES:
            return [{**each, "nodeID": ""} if isinstance(each, dict) else each for each in items]
        if name in _NAME_LISTS and all(isinstance(each, str) for each in items):
            # Of a node's images they are names of images, elsewhere of namespaces.
            return [
                self._image(each) if "/" in each or ":" in each else self.text(each)
                for each in items
            ]
        if name == "values":
            return [self.text(each) if isinstance(each, str) else each for each in items]
        return [
            self._fields(name, each) if isinstance(each, Mapping) else self._value(name, each)
            for each in items
        ]

    def _image(self, image: str) -> str:
        """With a tag, so that one which names none is still the same as the node's."""
        last = image.rpartition("/")[2]
        return f"{self.text(image if ':' in last or '@' in last else f'{image}:latest')}:h"

    def _decided(self, entry: Decided) -> Decided:
        """Without its message, which quotes what it is about."""
        return replace(
            entry,
            key=self._key_of_pod(entry.key),
            node_name=self.text(entry.node_name),
            nominated=self.text(entry.nominated),
            message="",
        )

    def _of_group(self, entry: GroupBegun | GroupDecided) -> GroupBegun | GroupDecided:
        if isinstance(entry, GroupBegun):
            api, namespace, name = entry.group
            roles = {self.text(role): count for role, count in entry.finished_by_role.items()}
            return replace(
                entry, group=[api, self.text(namespace), self.text(name)], finished_by_role=roles
            )
        members = [
            [uid, self._key_of_pod(key), attempts, self.text(node_name), ""]
            for uid, key, attempts, node_name, _ in entry.members
        ]
        nodes = {uid: self.text(node_name) for uid, node_name in entry.nodes.items()}
        return replace(entry, members=members, nodes=nodes, message="")

    def _of_state(
        self, entry: Nominated | PluginState | PluginStateGone
    ) -> Nominated | PluginState | PluginStateGone:
        if isinstance(entry, Nominated):
            return replace(entry, node_name=self.text(entry.node_name))
        if isinstance(entry, PluginState):
            return PluginState(entry.kind, self._named_by_uid(entry.obj))
        return replace(entry, namespace=self.text(entry.namespace))

    def _named_by_uid(self, obj: JsonObject) -> JsonObject:
        """An object that a plugin keeps; its name is the uid of what it is about."""
        hashed = self._map(obj)
        hashed["metadata"]["name"] = obj["metadata"]["name"]
        if obj.get("group") is not None:
            api, namespace, name = obj["group"]
            hashed["group"] = [api, self.text(namespace), self.text(name)]
        return hashed

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
                left = [[self.text(name), uids, broken] for name, uids, broken in candidates]
                return [[status[0], [], status[2]], left]
            case {"error": _}:
                return {"error": ""}
            case _:
                return answer
