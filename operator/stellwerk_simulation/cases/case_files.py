"""Cases from what users have: cases line by line, `kubectl get -o json` lists, YAML manifests.

`stellwerk decide` reads with it. Invariant: objects of a cluster become one case for each pod, or
each large controller, that is to be decided, all with the same nodes and other objects; nothing of
them is changed.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import orjson
import yaml

from stellwerk.profiles.spec.profile import KIND
from stellwerk_kube import admission
from stellwerk_kube.admission import Admission
from stellwerk_kube.daemon_pods import DAEMON_SET
from stellwerk_kube.errors import AbsentError, ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.pod_templates import maker_of, template_of
from stellwerk_kube.yaml_file import (
    TEMPLATE,
    about_document,
    flattened,
    is_of_objects,
    is_template,
    json_stream,
    parse_stream,
    too_many_values,
    yaml_problem,
)
from stellwerk_simulation.cases.decide import OBJECT_KINDS, TEMPLATE_FIELD
from stellwerk_simulation.cases.profile_manifests import ProfileManifests
from stellwerk_simulation.manifest_reader import counted
from stellwerk_simulation.pod_templates import POD_KINDS, is_written, pod_of_controller, pods_of

Json = Mapping[str, Any]
_FIELD_OF: Final = {kind: field for field, kind in OBJECT_KINDS.items()} | {
    "Node": "nodes",
    "Pod": "pods",
    "PriorityClass": "priorityclasses",
}
USED: Final = frozenset({*_FIELD_OF, *POD_KINDS, DAEMON_SET, KIND, *admission.KINDS})
"""The kinds that decisions use."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
MAX_CASES_OF_A_CONTROLLER: Final = 100
"""Pods of a controller that are cases of their own. The pods of a larger one are one case, which
is decided pod after pod (`decide_template`)."""
_MAX_PODS_OF_A_CONTROLLER: Final = 15_000
"""Pods of a controller among which one may be named: each becomes an object of its own, in about
50 µs. Of a larger controller the command refuses to name one. A DaemonSet has as many as there are
nodes in the input."""


Read: TypeAlias = Callable[[Sequence[JsonObject]], Sequence[JsonObject]]
"""Makes of the objects in a file those that an API server would have of them."""


class NoPendingPodError(ConfigurationError):
    """Objects of a cluster whose pods all have a node: there is nothing to decide."""


def read_cases(
    lines: Iterable[bytes], pod_key: str = "", read: Read = list
) -> Iterator[tuple[int, Json]]:
    """(line, case) of each case; objects of a cluster are line 1.

    Args:
        lines: of the file.
        pod_key: NAMESPACE/NAME of the pod to decide; empty: every pod without a node.
        read: admits the objects of a cluster.

    Raises:
        ConfigurationError: a line is neither a case nor part of a document; names the line.
    """
    numbered = ((number, _checked(line, number)) for number, line in enumerate(lines, start=1))
    before: list[bytes] = []
    first = next(numbered, None)
    while first is not None and not first[1].strip():
        before.append(first[1])
        first = next(numbered, None)
    if first is None:
        return
    number, line = first
    if not _is_case_line(line):
        # Empty lines stay, so that messages on YAML name the lines of the file.
        text = b"".join([*before, line, *(more for _, more in numbered)])
        for case in _from_documents(text, number, pod_key, read):
            yield number, case
        return
    yield number, _case_of(line, number)
    for number, line in numbered:
        if line.strip():
            yield number, _case_of(line, number)


def _checked(line: bytes, number: int) -> bytes:
    if (reason := too_many_values(line.count(b","), len(line))) is not None:
        raise ConfigurationError(f"line {number}: {reason}")
    return line


def _is_case_line(line: bytes) -> bool:
    """Whether lines are read one by one: the first is JSON of its own, and no object."""
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return not is_of_objects(parsed)


def _case_of(line: bytes, number: int) -> Json:
    try:
        return _unwrapped(orjson.loads(line), number)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"line {number}: not JSON: {error}") from error


def _unwrapped(case: object, number: int) -> Json:
    if isinstance(case, dict) and isinstance(case.get("case"), dict):
        case = case["case"]
    if not isinstance(case, dict):
        raise ConfigurationError(f"line {number}: not a case: {about_document(case)}")
    return case


def _from_documents(text: bytes, number: int, pod_key: str, read: Read) -> Iterator[Json]:
    documents = [each for each in _documents(text, number) if each is not None]
    if documents and not any(map(is_of_objects, documents)):
        for document in documents:
            yield _unwrapped(document, number)
        return
    yield from cases_of(documents, pod_key, read)


def _documents(text: bytes, number: int) -> list[Any]:
    try:
        return [orjson.loads(_checked(text, number))]
    except orjson.JSONDecodeError as not_json:
        if text.lstrip()[:1] == b"{":
            with contextlib.suppress(ValueError, RecursionError):
                return json_stream(text.decode("utf-8-sig"))
        try:
            return parse_stream(text)
        except yaml.YAMLError as error:
            if is_template(text.decode("utf-8", "replace")):
                raise ConfigurationError(f"line {number}: {TEMPLATE}") from error
            if text.lstrip()[:1] == b"{":
                raise ConfigurationError(f"line {number}: not JSON: {not_json}") from error
            reason = yaml_problem(error)
            raise ConfigurationError(f"line {number}: neither JSON nor YAML: {reason}") from error


def cases_of(documents: Iterable[object], pod_key: str = "", read: Read = list) -> Iterator[Json]:
    """A case for each pod to decide among the objects, and lists of objects, of a cluster.

    The pods of a large controller are one case, with its manifest as `template`.

    Raises:
        ConfigurationError: something is no object.
        AbsentError: there is no pod of this name.
        NoPendingPodError: no pod is named, and every one has a node.
    """
    objects = read(list(chain.from_iterable(map(_objects_of, documents))))
    fields: dict[str, list[Json]] = {}
    profiles = ProfileManifests()
    for obj in objects:
        kind = obj.get("kind")
        if kind == KIND:
            profiles.add(obj)
        elif kind in _FIELD_OF:
            fields.setdefault(_FIELD_OF[str(kind)], []).append(obj)
    profiles.choose_by(fields.get("namespaces", ()))
    pods = fields.pop("pods", [])
    nodes = [dict(node) for node in fields.get("nodes", ())]
    beside = Admission(objects)
    large, more = _pods_of_controllers(objects, pod_key, nodes, beside)
    # Of a pod that several files have the last one counts, as when they are applied in turn.
    pods = list({_key(pod): pod for pod in [*pods, *more]}.values())
    wanted = [pod for pod in pods if (_key(pod) == pod_key if pod_key else _is_pending(pod))]
    if not wanted and not large:
        there = counted(objects, frozenset())
        beside_what = f" beside {there}" if there else ""
        if pod_key:
            raise AbsentError(f"pod {pod_key} is not there{beside_what}")
        raise NoPendingPodError(f"no pod is pending{beside_what}")
    for pod in wanted:
        yield {
            "id": _key(pod),
            "profile": profiles.spec_for(pod),
            **fields,
            "pods": [other for other in pods if other is not pod],
            "pod": _without_node(pod),
        }
    for obj in large:
        made = pod_of_controller(obj, "default", beside)
        yield {
            "id": maker_of(made),
            "profile": profiles.spec_for(made),
            **fields,
            "pods": pods,
            "pod": made,
            TEMPLATE_FIELD: obj,
        }


def _pods_of_controllers(
    objects: Sequence[JsonObject], pod_key: str, nodes: Sequence[JsonObject], beside: Admission
) -> tuple[list[JsonObject], list[JsonObject]]:
    """(controllers whose pods are decided by template, pods of the other controllers)."""
    large, pods = list[JsonObject](), list[JsonObject]()
    for obj in objects:
        if not is_written(obj):
            continue
        is_counted = not pod_key and obj["kind"] != DAEMON_SET
        if is_counted and template_of(obj, "default").count > MAX_CASES_OF_A_CONTROLLER:
            large.append(obj)
            continue
        most = len(nodes) if obj["kind"] == DAEMON_SET else _MAX_PODS_OF_A_CONTROLLER
        found = pods_of(obj, "default", most, nodes, beside)
        if len(found) > most:
            raise ConfigurationError(f"a {obj['kind']} of more than {most:,} pods")
        pods += found
    return large, pods


def _objects_of(document: object) -> Iterator[JsonObject]:
    if not isinstance(document, dict):
        raise ConfigurationError(about_document(document))
    return flattened("objects", document)


def _key(pod: Json) -> str:
    metadata = pod.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _is_pending(pod: Json) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return not (pod.get("spec") or {}).get("nodeName") and phase not in _FINISHED


def _without_node(pod: Json) -> Json:
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name != "nodeName"}
    return {**pod, "spec": spec}
