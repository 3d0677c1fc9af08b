"""The rights that the operator and the caller need, compared with those that they have.

The operator's are read from roles and bindings, and what these lack is asked of the API server,
which may know other authorizers than RBAC. Invariant: the table is manifests/10-rbac.yaml; a test
compares them right by right.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stellwerk.answers.diagnosis import Finding
from stellwerk_cli.commands.diagnosis.survey import Right, Unseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stellwerk_cli.commands.diagnosis.survey import Survey
    from stellwerk_kube.json_values import JsonObject

_READ: Final = ("get", "list", "watch")
_DEVICES: Final = "resource.k8s.io"
_GANGS: Final = ("scheduling.k8s.io", "scheduling.x-k8s.io")
_OWN: Final = "scheduling.stellwerk.dev"
_CLUSTER: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    *(
        ("", plural, _READ)
        for plural in ("namespaces", "nodes", "replicationcontrollers", "services")
    ),
    ("", "persistentvolumes", (*_READ, "update")),
    ("apps", "replicasets", _READ),
    ("apps", "statefulsets", _READ),
    ("scheduling.k8s.io", "priorityclasses", _READ),
    ("policy", "poddisruptionbudgets", _READ),
    *(
        ("storage.k8s.io", plural, _READ)
        for plural in (
            "storageclasses",
            "csinodes",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        )
    ),
    ("", "pods", (*_READ, "delete")),
    ("", "pods/binding", ("create",)),
    ("", "pods/status", ("patch",)),
    ("", "pods/finalizers", ("update",)),
    ("", "persistentvolumeclaims", (*_READ, "update")),
    *((_DEVICES, each, _READ) for each in ("resourceslices", "deviceclasses", "devicetaintrules")),
    (_DEVICES, "resourceclaims", (*_READ, "create", "update", "delete")),
    (_DEVICES, "resourceclaims/status", ("patch", "update")),
    (_DEVICES, "resourceclaims/binding", ("patch", "update")),
    ("events.k8s.io", "events", ("create", "patch")),
    ("coordination.k8s.io", "leases", ("list",)),
    ("", "events", ("list",)),
    *((group, "podgroups", _READ) for group in _GANGS),
    *((group, "podgroups/status", ("patch",)) for group in _GANGS),
    (_OWN, "schedulerprofiles", (*_READ, "create")),
    (_OWN, "schedulerprofiles/status", ("patch",)),
    ("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch")),
    ("apiregistration.k8s.io", "apiservices", ("list", "watch")),
    # Who asks the port, and what they may: system:auth-delegator.
    ("authentication.k8s.io", "tokenreviews", ("create",)),
    ("authorization.k8s.io", "subjectaccessreviews", ("create",)),
)
"""Group, resource and verbs that the operator needs in the whole cluster."""
_AUTHORITY: Final = Right(
    "get", "configmaps", "", "kube-system", "extension-apiserver-authentication"
)
"""The authority of client certificates, which the port accepts. Without it tokens alone count."""
_REVIEWS_AT_ONCE: Final = 8
"""Access reviews under way at the same time; an API server answers each in about a millisecond."""
_MAX_SHOWN: Final = 8
"""Missing rights that a finding names; the rest is counted."""


_ABOUT_OTHERS: Final = frozenset({("coordination.k8s.io", "leases"), ("", "events")})
"""Resources of other schedulers, for which an observer does not look."""
_OF_AN_OBSERVER: Final = frozenset(
    {
        (_OWN, "schedulerprofiles/status"),
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    }
)
"""Resources of the whole cluster that an observer writes, or asks by a POST."""


def operator_rights(
    namespace: str, lease: tuple[str, str], *, observes: bool = False
) -> tuple[Right, ...]:
    """Every right that the operator needs in its namespace, with that lease.

    `observes`: it was started with `--observe`, and only reads (manifests/overlays/observe).
    """
    lease_namespace, lease_name = lease
    leases = Right("", "leases", "coordination.k8s.io", lease_namespace)
    held = (
        replace(leases, verb="create"),
        *(replace(leases, verb=verb, name=lease_name) for verb in ("get", "update", "watch")),
    )
    if observes:
        cluster = (
            Right(verb, resource, group)
            for group, resource, verbs in _CLUSTER
            for verb in verbs
            if (group, resource) in _OF_AN_OBSERVER
            or (verb in _READ and (group, resource) not in _ABOUT_OTHERS)
        )
        return (*cluster, *held, _AUTHORITY)
    return (
        *(Right(verb, resource, group) for group, resource, verbs in _CLUSTER for verb in verbs),
        *held,
        Right("create", "events", "", lease_namespace),
        *(
            Right(verb, "controllerrevisions", "apps", namespace)
            for verb in ("list", "create", "patch", "delete")
        ),
        _AUTHORITY,
    )


class Rules:
    """The RBAC rules of one service account: of the whole cluster, and by namespace."""

    def __init__(self, rules: Mapping[str, Sequence[JsonObject]]) -> None:
        self._rules = rules

    def allow(self, right: Right) -> bool:
        """Return whether a rule grants the right, as the RBAC authorizer of Kubernetes reads it."""
        rules = [*self._rules.get("", ()), *self._rules.get(right.namespace, ())]
        return any(_grants(rule, right) for rule in rules)


async def rules_of(survey: Survey, account: tuple[str, str]) -> Rules | Unseen:
    """Read the rules that bindings give to a service account."""
    namespace, name = account
    group = "/apis/rbac.authorization.k8s.io/v1"
    lists: dict[str, Sequence[JsonObject]] = {}
    for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings"):
        found = await survey.list(f"{group}/{plural}")
        if isinstance(found, Unseen):
            return found
        lists[plural] = found
    roles = {
        (each["metadata"].get("namespace", ""), each["metadata"]["name"]): each.get("rules") or ()
        for each in (*lists["clusterroles"], *lists["roles"])
    }
    subjects = {
        ("ServiceAccount", namespace, name),
        ("User", "", f"system:serviceaccount:{namespace}:{name}"),
        *(("Group", "", each) for each in _groups(namespace)),
    }
    rules: dict[str, list[JsonObject]] = {}
    for binding in (*lists["clusterrolebindings"], *lists["rolebindings"]):
        where = binding["metadata"].get("namespace", "")
        bound = {
            (each.get("kind"), each.get("namespace", ""), each.get("name"))
            for each in binding.get("subjects") or ()
        }
        if not bound & subjects:
            continue
        reference = binding.get("roleRef") or {}
        place = where if reference.get("kind") == "Role" else ""
        rules.setdefault(where, []).extend(roles.get((place, reference.get("name", "")), ()))
    return Rules(rules)


async def check_operator_rights(
    survey: Survey, account: tuple[str, str], lease: tuple[str, str], *, observes: bool = False
) -> Finding:
    """Compare the rights of the operator's service account with those that it needs.

    `observes`: it was installed to observe.
    """
    namespace, name = account
    wanted = operator_rights(survey.namespace, lease, observes=observes)
    rules = await rules_of(survey, account)
    suspected = [right for right in wanted if isinstance(rules, Unseen) or not rules.allow(right)]
    user = f"system:serviceaccount:{namespace}:{name}"
    limit = asyncio.Semaphore(_REVIEWS_AT_ONCE)

    async def review(right: Right) -> bool | Unseen:
        async with limit:
            return await survey.user_may(user, _groups(namespace), right)

    # One question first: a caller who may not ask is refused once, and not for every right.
    first = await review(suspected[0]) if suspected else True
    if isinstance(first, Unseen):
        if isinstance(rules, Unseen):
            reason = f"{rules.reason}, or to create subjectaccessreviews"
            return _finding("unknown", f"rights of the operator cannot be seen: {reason}")
        answers: list[bool | Unseen] = [False] * len(suspected)
    else:
        answers = [first, *await asyncio.gather(*map(review, suspected[1:]))]
    missing = [right for right, may in zip(suspected, answers, strict=False) if may is not True]
    if not missing:
        return _finding("ok", f"{user} has the {len(wanted)} rights that it needs")
    shown = "; ".join(_grouped(missing))
    roles = "-f manifests/10-rbac.yaml" if not observes else "-k YOURS, with overlays/observe"
    return _finding(
        "failed",
        f"{user} lacks {len(missing)} of {len(wanted)} rights: {shown}",
        f"kubectl apply {roles} (with Helm: helm upgrade)"
        + (", and manifests/overlays/in-place/lease.yaml" if lease[0] == "kube-system" else ""),
    )


CALLER_RIGHTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("get", "/explain/default/any", "stellwerk-explanations-reader"),
    ("get", "/queue", "stellwerk-explanations-reader"),
    ("get", "/profiles", "stellwerk-explanations-reader"),
    ("get", "/metrics", "stellwerk-metrics-reader"),
    ("get", "/debug/dump", "stellwerk-dump-reader"),
)
"""Verb, path of the operator's port and the ClusterRole that grants it."""


async def check_caller_rights(survey: Survey, lease: tuple[str, str]) -> Finding:
    """Ask the API server which questions to the operator the caller may put."""
    port = "stellwerk-explanations-reader"
    namespace, name = lease
    wanted = [
        (Right("get", "leases", "coordination.k8s.io", namespace, name), port),
        (Right("create", "pods/portforward", "", survey.namespace), port),
        *((Right(verb, path=path), role) for verb, path, role in CALLER_RIGHTS),
    ]
    missing: list[Right] = []
    roles: dict[str, None] = {}
    for right, role in wanted:
        may = await survey.may(right)
        if isinstance(may, Unseen):
            return Finding(
                check="your rights", state="unknown", what=f"cannot be seen: {may.reason}"
            )
        if not may:
            missing.append(right)
            roles[role] = None
    if not missing:
        what = "you may ask the operator's port for explanations, metrics and dumps"
        return Finding(check="your rights", state="ok", what=what)
    return Finding(
        check="your rights",
        state="warning",
        what=f"you lack the right to {'; '.join(map(str, missing))}",
        remedy=f"ask an administrator to bind {' and '.join(roles)} to you",
    )


def _finding(state: str, what: str, remedy: str = "") -> Finding:
    return Finding(check="operator's rights", state=state, what=what, remedy=remedy)  # type: ignore[arg-type]


def _groups(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of a namespace."""
    return (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    )


def _grants(rule: JsonObject, right: Right) -> bool:
    def has(field: str, *texts: str) -> bool:
        return bool({"*", *texts} & set(rule.get(field) or ()))

    part = right.resource.partition("/")[2]
    names = rule.get("resourceNames") or ()
    return (
        has("verbs", right.verb)
        and has("apiGroups", right.group)
        and has("resources", right.resource, *([f"*/{part}"] if part else []))
        and (not names or right.name in names)
    )


def _grouped(missing: Iterable[Right]) -> Iterator[str]:
    """Rights in words, those to the same resource together; the first few, and a count."""
    verbs: dict[Right, list[str]] = {}
    for right in missing:
        verbs.setdefault(replace(right, verb=""), []).append(right.verb)
    for number, (right, each) in enumerate(verbs.items()):
        if number == _MAX_SHOWN:
            yield f"and {len(verbs) - number} more"
            return
        yield f"{', '.join(each)}{right}"
