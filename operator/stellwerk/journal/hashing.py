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

from stellwerk.journal.entries import Decided, Entry, Layout, Nominated, WatchEvent
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
_KEPT_ANNOTATIONS: Final = ("scheduling.stellwerk.dev/", "volume.", "kubernetes.io/config.")
_PLAIN_NAMES: Final = frozenset({"drivers", "scoringStrategy"})
"""Lists of what has names that mean something to plugins: CSI drivers."""
_NUMERIC: Final = frozenset({"Gt", "Lt"})


class Hashing:
    """Entries in hashed form, under a key of its own."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._known: dict[str, str] = {}

    def entry(self, entry: Entry) -> Entry:
        """The entry as it is written."""
        match entry:
            case WatchEvent(kind=kind) if kind == PROFILE:
                return replace(entry, obj=self._profile(entry.obj))
            case WatchEvent():
                return replace(entry, obj=self.object(entry.obj))
            case Decided():
                # A message quotes what it is about.
                return replace(
                    entry,
                    key=self._key_of_pod(entry.key),
                    node_name=self.text(entry.node_name),
                    nominated=self.text(entry.nominated),
                    message="",
                    answers=[self._answer(each) for each in entry.answers],
                )
            case Nominated():
                return replace(entry, node_name=self.text(entry.node_name))
            case _:
                return entry

    def layout(self, layout: Layout) -> Layout:
        """A layout as it is written."""
        return Layout(
            [self.text(name) for name in layout.nodes],
            [(uid, self.text(name)) for uid, name in layout.assumed],
            [(uid, self.text(name)) for uid, name in layout.nominated],
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
            return {key: text for key, text in value.items() if key.startswith(_KEPT_ANNOTATIONS)}
        if name in _LABELS and all(isinstance(each, str) for each in value.values()):
            return {key: self.text(text) for key, text in value.items()}
        if value.get("operator") in _NUMERIC:
            return dict(value)
        return self._map(value)

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
            case _:
                return answer
