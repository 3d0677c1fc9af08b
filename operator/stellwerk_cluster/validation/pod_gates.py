"""What may change of a pod that is not to be scheduled yet: where it may run, ever more narrowly.

Called by `pod_updates` for pods that had scheduling gates. Invariant: after `gated_changes`, the
changed specification has the old value of what was judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"


def gated_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a change of node selector and node affinity, which are put back."""
    selector, had = spec.get("nodeSelector") or EMPTY, was.get("nodeSelector") or EMPTY
    if any(selector.get(key) != value for key, value in had.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield bad_value("spec.nodeSelector", selector, text)
    _put_back(spec, was, "nodeSelector")
    affinity, affinity_was = spec.get("affinity"), was.get("affinity")
    own, own_was = ((each or EMPTY).get("nodeAffinity") for each in (affinity, affinity_was))
    if own == own_was:
        return
    yield from _affinity_errors(own or EMPTY, own_was)
    rest = {name: each for name, each in (affinity or EMPTY).items() if name != "nodeAffinity"}
    if own_was is not None:
        rest["nodeAffinity"] = own_was
    if rest or affinity_was is not None:
        spec["affinity"] = rest
    else:
        spec.pop("affinity", None)


def _put_back(spec: JsonObject, was: JsonObject, name: str) -> None:
    spec.pop(name, None)
    if name in was:
        spec[name] = was[name]


def _affinity_errors(affinity: JsonObject, was: JsonObject | None) -> Iterator[FieldError]:
    terms, had = (
        ((each or EMPTY).get(_REQUIRED) or EMPTY).get("nodeSelectorTerms") or []
        for each in (affinity, was)
    )
    if not had:
        return
    if len(terms) != len(had):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield bad_value(_TERMS, internal_form("[NodeSelectorTerm]", terms), text)
        return
    for position, (term, before) in enumerate(zip(terms, had, strict=True)):
        if not _narrows(term, before):
            text = "only additions are allowed (no mutations or deletions)"
            shown = internal_form("NodeSelectorTerm", term)
            yield bad_value(f"{_TERMS}[{position}]", shown, text)


def _narrows(term: JsonObject, before: JsonObject) -> bool:
    """Whether a term has all that it had, and perhaps more; an empty one matches nothing."""
    if not before.get("matchExpressions") and not before.get("matchFields"):
        return not term.get("matchExpressions") and not term.get("matchFields")
    for key in ("matchExpressions", "matchFields"):
        kept = before.get(key) or []
        if (term.get(key) or [])[: len(kept)] != kept:
            return False
    return True
