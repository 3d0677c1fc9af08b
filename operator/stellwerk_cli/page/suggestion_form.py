"""A suggestion of an explanation as a what-if form that is filled in.

The page's link "try" leads to it: its address holds the changes of the suggestion as JSON.
Invariant: what the form cannot suppose is said, and is left to the user.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from stellwerk.answers.answer import MalformedAnswer, codec
from stellwerk.answers.nodes import NodeFields
from stellwerk.answers.suggestion import ChangeFields
from stellwerk_cli.page.supposition_form import as_yaml
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.taints import UNSCHEDULABLE_TAINT_KEY

_MAX_CHANGES: Final = 32
"""Changes of one suggestion. The search proposes a few."""
_SUPPOSED_NODES: Final = frozenset({"freeResources", "growNode", "uncordon"})
"""Changes after which the node is supposed once more, as it would be: no act of a form is so."""
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")


@dataclass(frozen=True, slots=True)
class SuggestionForm:
    """The fields of the form, and what is left to do by hand."""

    form: Mapping[str, str]
    by_hand: Sequence[str] = field(default_factory=list)
    """Changes that the form cannot have; empty: it can be decided as it is."""


def changes_text(changes: Iterable[ChangeFields]) -> str:
    """The changes for an address."""
    return orjson.dumps([codec(ChangeFields).as_json(each) for each in changes]).decode()


def read_changes(text: str) -> list[ChangeFields]:
    """The changes out of an address.

    Raises:
        ConfigurationError: it holds none.
    """
    try:
        found = orjson.loads(text)
        if not isinstance(found, list) or len(found) > _MAX_CHANGES:
            raise ConfigurationError(f"changes: a list of at most {_MAX_CHANGES} is expected")
        return [codec(ChangeFields).read(each) for each in found]
    except (orjson.JSONDecodeError, MalformedAnswer) as error:
        raise ConfigurationError(f"changes: {error}") from error


def nodes_of(changes: Iterable[ChangeFields]) -> list[str]:
    """The nodes that have to be known to fill the form in."""
    return [each.node for each in changes if each.kind in _SUPPOSED_NODES and each.node]


def filled_form(
    changes: Sequence[ChangeFields], pod: JsonObject, nodes: Mapping[str, NodeFields]
) -> SuggestionForm:
    """The form for a pod after the changes.

    Args:
        changes: those of a suggestion.
        pod: its manifest, as the API has it.
        nodes: the nodes of `nodes_of`, by name.
    """
    metadata = {key: it for key, it in pod["metadata"].items() if key in _KEPT_METADATA}
    spec = dict(pod.get("spec") or {})
    acts: dict[str, list[str]] = {"relabel": [], "taint": [], "delete": []}
    supposed, by_hand = list[JsonObject](), list[str]()
    for each in changes:
        match each:
            case ChangeFields(kind="tolerate", taint=taint) if taint is not None:
                stands = {"key": taint.key, "value": taint.value, "effect": taint.effect}
                stands = {key: text for key, text in stands.items() if text}
                stands["operator"] = "Equal" if taint.value else "Exists"
                spec["tolerations"] = [*(spec.get("tolerations") or []), stands]
            case ChangeFields(kind="removeTaints", node=str(node)):
                words = (_taint_key(taint) for taint in each.taints or ())
                acts["taint"].append(" ".join([node, *words]))
            case ChangeFields(kind="labelNode", node=str(node)):
                labels = (each.labels or {}).items()
                words = (f"{key}-" if it is None else f"{key}={it}" for key, it in labels)
                acts["relabel"].append(" ".join([node, *words]))
            case ChangeFields(kind="deletePod", pod=str(gone)):
                acts["delete"].append(f"pod/{gone}")
            case ChangeFields(node=str(node)) if each.kind in _SUPPOSED_NODES and node in nodes:
                supposed.append(_after(nodes[node], each))
            case ChangeFields(kind="editPod", amounts=amounts) if amounts and _is_alone(spec):
                spec["containers"] = [_requesting(spec["containers"][0], amounts)]
            case _:
                by_hand.append(each.edit or each.change or each.kind)
    form = {name: "\n".join(lines) for name, lines in acts.items()}
    form["pod"] = as_yaml({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    form["nodes"] = "---\n".join(map(as_yaml, supposed))
    return SuggestionForm(form, by_hand)


def _is_alone(spec: JsonObject) -> bool:
    """Whether a pod has one container, whose requests are those of the pod."""
    return len(spec.get("containers") or ()) == 1 and not spec.get("initContainers")


def _requesting(container: JsonObject, amounts: Mapping[str, int]) -> JsonObject:
    """A container that requests other amounts."""
    resources = container.get("resources") or {}
    written = {resource: _quantity(resource, amount) for resource, amount in amounts.items()}
    requests = {**(resources.get("requests") or {}), **written}
    return {**container, "resources": {**resources, "requests": requests}}


def _taint_key(text: str) -> str:
    """KEY:EFFECT-, which takes a taint away, of KEY=VALUE:EFFECT."""
    key, _, effect = text.rpartition(":")
    return f"{key.partition('=')[0]}:{effect}-"


def _after(node: NodeFields, change: ChangeFields) -> JsonObject:
    """Another node that is as this one would be: it offers what would be free there."""
    more, used = change.amounts or {}, node.requested
    if change.kind == "growNode":
        used = {}
    free = {
        resource: offered - used.get(resource, 0) + more.get(resource, 0)
        for resource, offered in {**dict.fromkeys(more, 0), **node.allocatable}.items()
    }
    taints: list[Mapping[str, Any]] = [
        {"key": each.key, "value": each.value, "effect": each.effect}
        for each in node.taints
        if change.kind != "uncordon" or each.key != UNSCHEDULABLE_TAINT_KEY
    ]
    name = f"{node.name[:247]}-tried"
    spec: dict[str, Any] = {"taints": taints} if taints else {}
    if node.unschedulable and change.kind != "uncordon":
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**node.labels, "kubernetes.io/hostname": name[:63]}},
        "spec": spec,
        "status": {"allocatable": {key: _quantity(key, it) for key, it in free.items() if it > 0}},
    }


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else f"{amount}"
