"""Which unschedulable cases of the corpus one change would solve, found by trying each of them.

`python -m tests.support.single_changes` writes tests/data/single_changes.json, which tests hold the
search for what would help against. A change is one to one node (uncordoned, its taints gone, more
of what is lacking, labelled as the pod asks), one pod that goes, or one toleration. Nothing of the
search is used: each change is made in the case's JSON, and the case decided anew.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from stellwerk_simulation.cases.decide import decide
from tests.support.corpus import SUITES, Recording, read_suite

FILE = Path(__file__).parents[1] / "data" / "single_changes.json"

Json = dict[str, Any]
_PLENTY = {"cpu": "100000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def unschedulable(suite: str) -> Iterator[Recording]:
    """The recordings of a suite in which no node took the pod."""
    for recording in read_suite(suite):
        expected = recording.expected
        if recording.case.get("nodes") and not (expected.get("error") or expected.get("selected")):
            yield recording


def fits(case: Mapping[str, Any]) -> bool:
    """Whether some node takes the pod."""
    return bool(decide(case)["selected"])


def with_change(case: Mapping[str, Any], change: Mapping[str, Any]) -> Json:
    """The case with a change made that is written as explanations write it."""
    changed = deepcopy(dict(case))
    kind = change["kind"]
    if kind == "tolerate":
        toleration = {"operator": "Equal", **change["taint"]}
        changed["pod"]["spec"].setdefault("tolerations", []).append(toleration)
    elif kind == "deletePod":
        changed["pods"] = [pod for pod in changed["pods"] if _key(pod) != change["pod"]]
        namespace = change["pod"].partition("/")[0]
        for claim in changed.get("resourceclaims") or ():
            metadata = claim["metadata"]
            freed = metadata["name"] in change.get("claims", ())
            if freed and metadata.get("namespace", "default") == namespace:
                del claim["status"]
    else:
        node = next(n for n in changed["nodes"] if n["metadata"]["name"] == change["node"])
        _change_node(node, change)
    return changed


def _change_node(node: Json, change: Mapping[str, Any]) -> None:
    kind, spec = change["kind"], node.setdefault("spec", {})
    taints = spec.get("taints") or []
    if kind == "uncordon":
        spec["unschedulable"] = False
        spec["taints"] = [taint for taint in taints if taint["key"] != UNSCHEDULABLE]
    elif kind == "removeTaints":
        spec["taints"] = [taint for taint in taints if _taint_text(taint) not in change["taints"]]
    elif kind == "labelNode":
        labels = node["metadata"].setdefault("labels", {})
        labels |= {key: value for key, value in change["labels"].items() if value is not None}
        for key in [key for key, value in change["labels"].items() if value is None]:
            labels.pop(key, None)
    else:
        raise NotImplementedError(kind)


def _taint_text(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def single_changes(case: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """(kind, changed case) of every single change."""
    taints = {
        _taint_text(t): t for n in case["nodes"] for t in (n.get("spec") or {}).get("taints") or ()
    }
    taints["cordoned"] = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}
    for taint in taints.values():
        of_taint = {name: taint.get(name, "") for name in ("key", "value", "effect")}
        yield "tolerate", with_change(case, {"kind": "tolerate", "taint": of_taint})
    for node in case["nodes"]:
        yield from _changes_to(node, case)
    for pod in case.get("pods") or ():
        if pod["spec"].get("nodeName"):
            yield "deletePod", with_change(case, {"kind": "deletePod", "pod": _key(pod)})


def _changes_to(node: Json, case: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    name, spec = node["metadata"]["name"], node.get("spec") or {}
    if spec.get("unschedulable"):
        yield "uncordon", with_change(case, {"kind": "uncordon", "node": name})
    if spec.get("taints"):
        gone = list(map(_taint_text, spec["taints"]))
        yield (
            "removeTaints",
            with_change(case, {"kind": "removeTaints", "node": name, "taints": gone}),
        )
    selector = case["pod"]["spec"].get("nodeSelector")
    if selector:
        yield (
            "labelNode",
            with_change(case, {"kind": "labelNode", "node": name, "labels": selector}),
        )
    changed = deepcopy(dict(case))
    larger = next(n for n in changed["nodes"] if n["metadata"]["name"] == name)
    allocatable = larger["status"].setdefault("allocatable", {})
    for container in case["pod"]["spec"].get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        allocatable |= dict.fromkeys(requests, "100000")
    larger["status"]["allocatable"] |= _PLENTY
    yield "resources", changed


def solved_by(case: Mapping[str, Any]) -> str:
    """The kind of the first single change after which the pod fits; empty: there is none."""
    return next((kind for kind, changed in single_changes(case) if fits(changed)), "")


def main() -> None:
    """Try everything, and write what was found."""
    found = {
        recording.id: solved_by(recording.case)
        for suite in SUITES
        for recording in unschedulable(suite)
    }
    FILE.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
    print(f"{sum(map(bool, found.values()))} of {len(found)} cases are solved by one change")


if __name__ == "__main__":
    main()
