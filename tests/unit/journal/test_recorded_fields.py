"""What is recorded of objects: what decisions read, no credentials, and hashed no text at all."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stellwerk.journal.entries import Head, PluginState, WatchEvent, encode
from stellwerk.journal.reader import open_journal
from stellwerk.journal.recorded_fields import kept, trees
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.models.volumes import PodVolume
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_slice import parse_slice
from tests.support.findings import hold
from tests.support.marked_objects import KINDS, Marks

HEAD = "2026-01-01T00:00:00Z"


def profile_with_marks(mark: Callable[[str], str]) -> JsonObject:
    tls = {"keyData": mark("key"), "certData": mark("cert"), "secretRef": {"name": mark("ref")}}
    extender = {
        "urlPrefix": f"https://{mark('user')}:{mark('password')}@{mark('host')}/x",
        "filterVerb": mark("verb"),
        "tlsConfig": tls,
    }
    args = {
        "watcherAddress": f"http://{mark('user')}:{mark('password')}@watcher",
        "metricProvider": {"token": mark("token"), "address": mark("address")},
        "strategy": mark("strategy"),
    }
    selector = {"namespaceSelector": {"matchLabels": {mark("label"): mark("value")}}}
    spec = {
        "schedulerName": mark("schedulerName"),
        "selector": selector,
        "extenders": [extender],
        "pluginConfig": [{"name": mark("plugin"), "args": args}],
    }
    return {
        "kind": PROFILE,
        "metadata": {
            "name": mark("name"),
            "uid": mark("uid"),
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": mark("applied")},
            "managedFields": [{"manager": mark("manager")}],
        },
        "spec": spec,
        "status": {
            "lastGoodSpec": spec,
            "conditions": [{"type": mark("type"), "message": mark("message")}],
        },
    }


CREDENTIALS = frozenset({"key", "cert", "ref", "user", "password", "token", "applied", "message"})


@pytest.fixture
def marks() -> Marks:
    return Marks()


def written(file: Path, objects: list[tuple[str, JsonObject]], *, hashed: bool) -> str:
    """The text of a recording of these objects, as events and as what plugins keep."""
    writer = JournalWriter(JournalOptions(file, hashed=hashed), Head("test", HEAD, hashed=hashed))
    for kind, obj in objects:
        writer.put(WatchEvent(0.0, kind, "ADDED", obj))
        writer.put(PluginState(kind, obj))
    writer.close()
    assert not writer.failure
    return "".join(encode(entry).decode() for entry in open_journal(file))


def of_every_kind(marks: Marks) -> list[tuple[str, JsonObject]]:
    found = [(kind, marks.object(kind)) for kind in KINDS]
    # What plugins watch of their own is in no table: an object of each type stands for it.
    found += [(f"Own{name}", marks.object(name)) for name in ("ConfigMap", "Secret", "Deployment")]
    found.append((PROFILE, profile_with_marks(marks.mark)))
    return found


def test_no_text_of_any_field_of_any_kind_is_in_a_hashed_recording(
    marks: Marks, tmp_path: Path
) -> None:
    text = written(tmp_path / "journal", of_every_kind(marks), hashed=True)
    assert len(marks.paths) > 3000
    leaks = {path for mark, path in marks.paths.items() if mark in text}
    # Names of attributes and capacities are identifiers in CEL; drivers give them.
    identifiers = {path for path in leaks if path.endswith((".attributes key", "apacity key"))}
    identifiers |= {path for path in leaks if path.endswith("capacity.requests key")}
    print(leaks - identifiers)  # noqa: T201 what got there
    hold("marks in hashed", len(leaks - identifiers))


def test_a_plain_recording_has_what_decisions_read_and_no_credentials(
    marks: Marks, tmp_path: Path
) -> None:
    text = written(tmp_path / "journal", of_every_kind(marks), hashed=False)
    there = {path for mark, path in marks.paths.items() if mark in text}
    hold("credentials in plain", len(there & CREDENTIALS))
    for path in there:
        kind, _, rest = path.partition(".")
        if kind in trees():
            assert stands_in(trees()[kind], rest.split(" ")[0]), path
    for gone in (
        "Pod.spec.containers[].env[].value",
        "Pod.spec.containers[].command[]",
        "Pod.spec.containers[].volumeMounts[].mountPath",
        "Pod.spec.containers[].workingDir",
        "Pod.spec.volumes[].csi.volumeAttributes{}",
        "Pod.spec.volumes[].flexVolume.options{}",
        "Pod.spec.volumes[].gitRepo.repository",
        "Pod.spec.volumes[].azureFile.secretName",
        "Pod.spec.volumes[].hostPath.path",
        "Pod.spec.volumes[].nfs.server",
        "Pod.spec.imagePullSecrets[].name",
        "PersistentVolume.spec.csi.volumeAttributes{}",
        "StorageClass.parameters{}",
    ):
        assert gone in marks.paths.values()
        assert gone not in there


def stands_in(tree: Any, path: str) -> bool:
    for part in path.replace("[]", "").replace("{}", "").split("."):
        if tree is None:
            return True
        if part not in tree:
            return False
        tree = tree[part]
    return True


READ: dict[str, Callable[[JsonObject], object]] = {
    "Pod": parse_pod,
    "Node": parse_node,
    "ResourceSlice": parse_slice,
    "PodGroup": parse_pod_group,
}


@pytest.mark.parametrize("kind", READ)
def test_what_is_read_of_what_is_kept_is_what_is_read_of_the_whole(kind: str) -> None:
    obj = Marks(valid=True).object(kind)
    whole, part = READ[kind](obj), READ[kind](kept(kind, obj))
    for name in fields_of(whole):
        assert shown(getattr(part, name)) == shown(getattr(whole, name)), name


UNREAD = {"message", "lastProbeTime"}
"""Of conditions."""


def fields_of(made: object) -> tuple[str, ...]:
    return tuple(each.name for each in fields(made))  # type: ignore[arg-type]


def shown(value: object) -> object:
    """A value to be compared: objects that are shared by their fields, conditions by their kind."""
    if isinstance(value, PodVolume):
        return value.name, value.kind, value.claim_name, value.disk_uses
    if isinstance(value, SchedulingSpec):
        return [shown(getattr(value, each)) for each in fields_of(value) if each != "size_bytes"]
    if isinstance(value, tuple | list):
        return [shown(each) for each in value]
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items() if name not in UNREAD}
    return value if type(value).__eq__ is not object.__eq__ else type(value)
