"""pods/eviction: delete a pod unless a PodDisruptionBudget forbids it.

Called by the HTTP layer. Invariant: an eviction that is granted is counted in the status of the
budget before the pod is deleted, so that two evictions cannot spend the same disruption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError, bad_request, internal
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    go_text,
    is_terminating,
    labels_of,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.apimachinery.releases import BROKEN_BUDGETS, holds
from stellwerk_cluster.registry.deletion import delete, parse_delete_options
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject

BUDGETS: Final = "poddisruptionbudgets.policy"
DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
_UNOBSERVED_RETRY_SECONDS: Final = 10
"""Retry-After of an eviction whose budget its controller has not seen yet."""
_MAX_DISRUPTED_PODS: Final = 2000
"""Pods that a budget may list as disrupted (`MaxDisruptedPodSize`)."""
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(
    api: Api,
    kind: ResourceKind,
    key: Key,
    eviction: JsonObject,
    query: dict[str, str],
    *,
    user: User | None = None,
) -> Entry:
    """Delete a pod unless a PodDisruptionBudget forbids it; return its last state.

    `user` asks for it.

    Raises:
        StatusError: a budget forbids it (429), several budgets match (500), the user may not
            evict this pod (403), or as for delete.
    """
    api.check_namespace(kind, *key)
    if (eviction.get("metadata") or EMPTY).get("name", key[1]) != key[1]:
        message = "name in URL does not match name in Eviction object"
        raise bad_request(message)
    options = parse_delete_options(_delete_options(eviction, query), {})
    pod = api.get(kind, *key).obj
    for plugin in api.delete_admission:
        plugin.admit_delete(kind, pod, user, evicts=True)
    if _needs_no_budget(pod):
        return delete(api, kind, key, options).entry
    budgets = _matching_budgets(api, pod)
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource "
            "does not support."
        )
        raise internal(message)
    if budgets:
        _spend_budget(api, budgets[0], pod, dry_run=options.dry_run)
    if not options.dry_run:
        _mark_disrupted(api, kind, key)
    return delete(api, kind, key, options).entry


def _delete_options(eviction: JsonObject, query: dict[str, str]) -> JsonObject:
    """The options in an eviction, with the dry run that its request asks for."""
    options = eviction.get("deleteOptions") or {}
    asked = [query["dryRun"]] if query.get("dryRun") else []
    given = options.get("dryRun") or []
    if asked and given and asked != given:
        message = (
            f"Non-matching dry-run options in request and content: "
            f"{go_text(asked)} and {go_text(given)}"
        )
        raise bad_request(message)
    return {**options, "dryRun": given or asked}


def _needs_no_budget(pod: JsonObject) -> bool:
    pending = pod["status"].get("phase") == "Pending"
    return pending or is_finished(pod) or is_terminating(pod)


def _matching_budgets(api: Api, pod: JsonObject) -> list[JsonObject]:
    found = []
    for budget in api.all(BUDGETS, pod["metadata"]["namespace"]):
        selector = parse_label_selector(budget["spec"].get("selector"))
        if selector is not None and selector.matches(labels_of(pod)):
            found.append(budget)
    return found


def _spend_budget(api: Api, budget: JsonObject, pod: JsonObject, *, dry_run: bool) -> None:
    """Count a pod as disrupted in the status of its budget.

    Raises:
        StatusError: the budget allows no disruption now (429), or its status makes no sense (403).
    """
    status = budget.get("status") or EMPTY
    if not is_ready(pod) and _may_always_go(budget["spec"], status):
        return
    name, generation = budget["metadata"]["name"], budget["metadata"].get("generation", 0)
    if status.get("observedGeneration", 0) < generation:
        raise _budget_refusal(
            f"The disruption budget {name} is still being processed by the server.", retry=True
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise _broken(
            api,
            budget,
            "DisruptionBudgetNegativeAllowedDisruptions",
            "pdb disruptions allowed is negative",
        )
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
        raise _broken(
            api,
            budget,
            "DisruptionBudgetTooManyDisruptedPods",
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
    if not allowed:
        raise _budget_refusal(_exhausted(name, status))
    if dry_run:
        return
    now = timestamp(api.now())
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    conditions = status.get("conditions") or ()
    others = [each for each in conditions if each["type"] != DISRUPTION_ALLOWED]
    spent = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": dict(sorted(disrupted.items())),
        "conditions": [*others, disruption_allowed(conditions, allowed - 1, generation, now)],
    }
    budgets = api.kinds.resource("poddisruptionbudgets", "policy")
    api.written_by("kube-apiserver").modify(
        budgets,
        (budget["metadata"]["namespace"], name),
        lambda obj: {**obj, "status": spent},
        owned_under="status",
    )


def _may_always_go(spec: JsonObject, status: JsonObject) -> bool:
    """Whether a pod that is not ready may be evicted without a look at the budget."""
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return bool(status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0)


def _exhausted(name: str, status: JsonObject) -> str:
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy > desired:
        return f"The disruption budget {name} does not allow evicting pods currently"
    return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"


def disruption_allowed(
    conditions: Iterable[JsonObject], allowed: int, generation: int, now: str
) -> JsonObject:
    """The condition DisruptionAllowed; it keeps its transition time while its status stays."""
    status = "True" if allowed else "False"
    before = next((each for each in conditions if each["type"] == DISRUPTION_ALLOWED), EMPTY)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": DISRUPTION_ALLOWED,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
    }


def _budget_refusal(why: str, *, retry: bool = False) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        _REFUSED,
        details={
            "causes": [{"reason": "DisruptionBudget", "message": why}],
            **({"retryAfterSeconds": _UNOBSERVED_RETRY_SECONDS} if retry else {}),
        },
        retry_after_seconds=_UNOBSERVED_RETRY_SECONDS if retry else None,
    )


def _broken(api: Api, budget: JsonObject, cause: str, why: str) -> StatusError:
    name = budget["metadata"]["name"]
    details: JsonObject = {"name": name, "group": "policy", "kind": "poddisruptionbudget"}
    if holds(BROKEN_BUDGETS, api.release):
        details["causes"] = [{"reason": cause, "message": why}]
    message = f'poddisruptionbudget.policy "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=details)


def _mark_disrupted(api: Api, kind: ResourceKind, key: Key) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(api.now()),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    def marked(pod: JsonObject) -> JsonObject:
        conditions = [
            each
            for each in pod["status"].get("conditions") or ()
            if each["type"] != condition["type"]
        ]
        return with_value(pod, ("status", "conditions"), [*conditions, condition])

    api.modify(kind, key, marked)
