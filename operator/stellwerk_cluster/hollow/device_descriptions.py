"""The devices of hollow nodes: descriptions in YAML, and the slices that follow for a node.

A description names classes, and for each driver what it publishes on each node. Placeholders in
texts make devices differ: `{node}`, `{index}`, `{index/4}`, `{index%4}` and `{uuid}`. Invariant:
the slices of a node depend on the description and on the node's name alone, so that a cluster that
starts again has the same devices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_DNS, uuid5

import yaml

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import parse_yaml, read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stellwerk_kube.json_values import JsonObject

READY: Final = ("gpus", "gpu-partitions", "nics")
"""Descriptions that come along."""
_PLACEHOLDER: Final = re.compile(r"\{(node|uuid|index)(?:([/%])([1-9][0-9]*))?\}")
_MAX_DEVICES_OF_A_SLICE: Final = 128
"""Devices of a ResourceSlice (`ResourceSliceMaxDevices`)."""
_MAX_CONSUMING_DEVICES_OF_A_SLICE: Final = 64
"""Devices of a ResourceSlice whose devices consume counters or have taints."""
_MAX_COUNTER_SETS_OF_A_SLICE: Final = 8
"""Counter sets of a ResourceSlice."""
_MAX_DEVICES_OF_A_LINE: Final = 1024
"""Devices that one line of a description may make."""
_DOCUMENT: Final = {"deviceClasses", "publish"}
_PUBLISHED: Final = {"driver", "nodeLabels", "devices", "sharedCounters"}


@dataclass(frozen=True, slots=True)
class Published:
    """The objects that one driver publishes on a node."""

    driver: str
    node_labels: Mapping[str, str]
    """Labels of the nodes that it runs on; empty: every node."""
    devices: Sequence[JsonObject]
    shared_counters: Sequence[JsonObject]

    def runs_on(self, node: JsonObject) -> bool:
        """Whether the node has these devices."""
        labels = node["metadata"].get("labels") or {}
        return all(labels.get(key) == value for key, value in self.node_labels.items())

    def slices(self, node_name: str) -> list[JsonObject]:
        """The specs of the node's slices, in their first generation."""
        sets = list(self._made(self.shared_counters, node_name))
        devices = list(self._made(self.devices, node_name))
        limited = any("consumesCounters" in each or "taints" in each for each in devices)
        size = _MAX_CONSUMING_DEVICES_OF_A_SLICE if limited else _MAX_DEVICES_OF_A_SLICE
        parts: list[JsonObject] = [
            *({"sharedCounters": part} for part in _parts(sets, _MAX_COUNTER_SETS_OF_A_SLICE)),
            *({"devices": part} for part in _parts(devices, size)),
        ]
        pool = {"name": node_name, "generation": 1, "resourceSliceCount": len(parts)}
        where = {"driver": self.driver, "nodeName": node_name, "pool": pool}
        return [{**where, **part} for part in parts]

    def _made(self, written: Sequence[JsonObject], node_name: str) -> Iterator[JsonObject]:
        for each in written:
            described = {key: value for key, value in each.items() if key != "count"}
            for index in range(each.get("count", 1)):
                uuid = uuid5(NAMESPACE_DNS, f"{node_name}/{self.driver}/{each['name']}/{index}")
                yield _filled(described, _Values(node_name, index, str(uuid)))


@dataclass(frozen=True, slots=True)
class DeviceDescription:
    """The classes of a file, and what its drivers publish."""

    classes: Sequence[JsonObject]
    published: Sequence[Published]


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of placeholders."""

    node: str
    index: int
    uuid: str

    def text(self, template: str) -> str:
        """The text with every placeholder filled in."""
        return _PLACEHOLDER.sub(self._filled, template)

    def _filled(self, match: re.Match[str]) -> str:
        name, operator, number = match.groups()
        if name != "index" or operator is None:
            return str(getattr(self, name))
        divided = divmod(self.index, int(number))
        return str(divided["/%".index(operator)])


def read_description(name: str) -> DeviceDescription:
    """One of those that come along, or that of a file.

    Raises:
        ConfigurationError: there is none, or it says what it may not.
    """
    try:
        if name in READY:
            text = (files(__package__) / "devices" / f"{name}.yaml").read_text(encoding="utf-8")
        else:
            text = read_small_file(Path(name)).decode()
        documents = parse_yaml(text)
        content = documents[0] if len(documents) == 1 else None
    except OSError as error:
        reason = f"none of {', '.join(READY)}, and {error.strerror}"
        raise ConfigurationError(f"--devices {name}: {reason}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    return parse_description(content, name)


def parse_description(content: object, file: str) -> DeviceDescription:
    """The description that a file holds.

    Raises:
        ConfigurationError: it says what it may not; the text names file and place.
    """
    document = _mapping(content, file, _DOCUMENT)
    classes = [
        _mapping(each, f"{file}: deviceClasses[{index}]", {"metadata", "spec"})
        for index, each in enumerate(_list(document, "deviceClasses", file))
    ]
    published = [
        _published(each, f"{file}: publish[{index}]")
        for index, each in enumerate(_list(document, "publish", file))
    ]
    return DeviceDescription(classes, published)


def _published(content: object, at: str) -> Published:
    written = _mapping(content, at, _PUBLISHED)
    driver, labels = written.get("driver"), written.get("nodeLabels") or {}
    if not isinstance(driver, str):
        raise ConfigurationError(f"{at}.driver: the name of a driver is required")
    if not isinstance(labels, dict):
        raise ConfigurationError(f"{at}.nodeLabels: expected labels")
    lists: dict[str, list[JsonObject]] = {"devices": [], "sharedCounters": []}
    for field, found in lists.items():
        for index, each in enumerate(_list(written, field, at)):
            where = f"{at}.{field}[{index}]"
            described = _mapping(each, where, None)
            count = described.get("count", 1)
            if not isinstance(count, int) or not 1 <= count <= _MAX_DEVICES_OF_A_LINE:
                raise ConfigurationError(
                    f"{where}.count: {count!r} is not 1 to {_MAX_DEVICES_OF_A_LINE}"
                )
            if not isinstance(described.get("name"), str):
                raise ConfigurationError(f"{where}.name: a name is required")
            found.append(described)
    return Published(driver, labels, lists["devices"], lists["sharedCounters"])


def _mapping(content: object, at: str, known: set[str] | None) -> JsonObject:
    if not isinstance(content, dict):
        raise ConfigurationError(f"{at}: expected an object, found {type(content).__name__}")
    unknown = sorted(map(str, content.keys() - known)) if known is not None else []
    if unknown:
        raise ConfigurationError(f"{at}: unknown field {unknown[0]!r}")
    return content


def _list(content: JsonObject, field: str, at: str) -> list[object]:
    found = content.get(field) or []
    if not isinstance(found, list):
        raise ConfigurationError(f"{at}: {field}: expected a list")
    return found


def _parts(items: list[JsonObject], size: int) -> Iterator[list[JsonObject]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _filled(described: JsonObject, values: _Values) -> JsonObject:
    """A copy with every placeholder filled in."""
    return {values.text(key): _value(key, each, values) for key, each in described.items()}


def _value(field: str, value: object, values: _Values) -> object:
    match value:
        case dict():
            return _filled(value, values)
        case list():
            return [_value(field, each, values) for each in value]
        case str():
            text = values.text(value)
            # A placeholder is a text to YAML, and a number where the API wants one.
            return int(text) if field == "int" and text.isdecimal() else text
        case _:
            return value
