"""Delete: grace periods, preconditions, finalizers, propagation, collections.

Called by the HTTP layer, the controllers and the hollow kubelets. Invariant: an object with
finalizers, and a running pod with a grace period, stay until what holds them is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    conflict,
    invalid_as,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    is_terminating,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.apimachinery.query import flag, integer
from stellwerk_cluster.registry.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_POLICIES: Final = ("Foreground", "Background", "Orphan")
_FINALIZER_OF_POLICY: Final = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_ORPHANING: Final = frozenset((("batch", "Job"), ("", "ReplicationController")))
"""Kinds whose dependents stay unless the request says otherwise, as in kube-apiserver."""
DEFINITION_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Grace period, preconditions and propagation of one delete request."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False
    user: User | None = None
    """The user that asks for it; None: the cluster itself."""


def parse_delete_options(body: JsonObject | None, query: dict[str, str]) -> DeleteOptions:
    """The options of a body; without a body, those of the query.

    Raises:
        StatusError: an option has a value it may not have (400, 422).
    """
    if body is None:
        body = _query_options(query)
    policy, orphan = body.get("propagationPolicy"), body.get("orphanDependents")
    errors = list(_option_errors(body))
    if errors:
        raise invalid_as("DeleteOptions", "meta.k8s.io", "", errors)
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=body.get("gracePeriodSeconds"),
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        propagation=policy or "",
        dry_run=bool(body.get("dryRun")),
    )


def _query_options(query: dict[str, str]) -> JsonObject:
    options: JsonObject = {"gracePeriodSeconds": integer(query, "gracePeriodSeconds")}
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if query.get("orphanDependents"):
        options["orphanDependents"] = flag(query, "orphanDependents")
    if query.get("dryRun"):
        options["dryRun"] = [query["dryRun"]]
    return options


def _option_errors(options: JsonObject) -> Iterator[FieldError]:
    field = "propagationPolicy"
    policy, dry_run = options.get(field), options.get("dryRun") or []
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        yield bad_value(field, policy, text)
    if policy is not None and policy not in _POLICIES:
        yield unsupported(field, policy, (*_POLICIES, "nil"))
    if any(each != "All" for each in dry_run):
        yield unsupported("dryRun", dry_run, ("All",))


@dataclass(frozen=True, slots=True)
class Deletion:
    """The last state of an object, and whether it is removed or only marked."""

    entry: Entry
    gone: bool


def delete(api: Api, kind: ResourceKind, key: Key, options: DeleteOptions) -> Deletion:
    """Delete an object, or begin its deletion.

    Raises:
        StatusError: missing (404), a precondition does not hold (409), protected (403).
    """
    stored = api.get(kind, *key)
    for plugin in api.delete_admission:
        plugin.admit_delete(kind, stored.obj, options.user, evicts=False)
    _check_preconditions(kind, stored, options)
    api.strategy(kind).admit_delete(stored.obj, api, kind)
    if kind.kind == "Namespace":
        return _begin_namespace_deletion(api, kind, stored, options)
    if kind.kind == "CustomResourceDefinition":
        return _begin_definition_deletion(api, kind, stored, options)
    grace = _grace_seconds(kind, stored.obj, options)
    finalizers = _finalizers(kind, stored.obj, options)
    if grace > 0 or finalizers:
        return _begin_deletion(api, kind, stored, grace, finalizers, dry_run=options.dry_run)
    return _remove(api, kind, stored, dry_run=options.dry_run)


def delete_collection(
    api: Api, kind: ResourceKind, entries: Iterable[Entry], options: DeleteOptions
) -> list[Entry]:
    """Delete all given objects; the answer is what they were before."""
    deleted = []
    for entry in entries:
        # An earlier deletion may have taken this object with it.
        if api.store.collection(kind.storage_name).get(entry.key) is not None:
            delete(api, kind, entry.key, options)
        deleted.append(entry)
    return deleted


def _check_preconditions(kind: ResourceKind, stored: Entry, options: DeleteOptions) -> None:
    metadata = stored.obj["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does "
            "not match the "
            f"ResourceVersion in record ({metadata['resourceVersion']}). The object might "
            "have been modified"
        )
    else:
        return
    raise conflict(kind, stored.key[1], why, resource=kind.kind)


def _grace_seconds(kind: ResourceKind, obj: JsonObject, options: DeleteOptions) -> int:
    """Only pods have a grace period, and only those that run somewhere."""
    if kind.kind != "Pod" or kind.group:
        return 0
    spec = obj["spec"]
    if not spec.get("nodeName") or is_finished(obj):
        return 0
    asked = options.grace_period_seconds
    grace = int(spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked)
    return 1 if grace < 0 else grace


def _finalizers(kind: ResourceKind, obj: JsonObject, options: DeleteOptions) -> list[str]:
    propagation = options.propagation
    given = set(obj["metadata"].get("finalizers") or ()) & set(_FINALIZER_OF_POLICY.values())
    if not propagation and not given and (kind.group, kind.kind) in _ORPHANING:
        propagation = "Orphan"
    kept = [
        name
        for name in obj["metadata"].get("finalizers") or ()
        if not propagation or name not in _FINALIZER_OF_POLICY.values()
    ]
    added = _FINALIZER_OF_POLICY.get(propagation)
    return [*kept, added] if added else kept


def _begin_deletion(
    api: Api, kind: ResourceKind, stored: Entry, grace: int, finalizers: list[str], *, dry_run: bool
) -> Deletion:
    metadata = stored.obj["metadata"]
    began = is_terminating(stored.obj)
    if began and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        if finalizers == (metadata.get("finalizers") or []):
            return Deletion(stored, gone=False)
        grace = metadata.get("deletionGracePeriodSeconds", 0)
    marked = _marked(stored.obj, timestamp(api.now() + timedelta(seconds=grace)), grace)
    marked = with_value(marked, ("metadata", "finalizers"), finalizers or None)
    if not began and "generation" in metadata:
        marked["metadata"]["generation"] = metadata["generation"] + 1
    if dry_run:
        return Deletion(Entry(stored.key, marked, stored.revision), gone=False)
    return Deletion(api.store.replace(kind.storage_name, marked, stored), gone=False)


def _marked(obj: JsonObject, at: str, grace: int) -> JsonObject:
    metadata = {**obj["metadata"], "deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
    return {**obj, "metadata": metadata}


def _remove(api: Api, kind: ResourceKind, stored: Entry, *, dry_run: bool) -> Deletion:
    """Take the object away; a pod gets a last modification first, as watchers expect."""
    obj, is_pod = stored.obj, kind.kind == "Pod" and not kind.group
    if not is_pod:
        if dry_run:
            return Deletion(stored, gone=True)
        return Deletion(api.store.remove(kind.storage_name, stored), gone=True)
    marked = _marked(obj, timestamp(api.now()), 0)
    if not is_terminating(obj):
        marked["metadata"]["generation"] = obj["metadata"].get("generation", 0) + 1
    if dry_run:
        return Deletion(Entry(stored.key, marked, stored.revision), gone=True)
    last = api.store.replace(kind.storage_name, marked, stored)
    return Deletion(api.store.remove(kind.storage_name, last), gone=True)


def _begin_namespace_deletion(
    api: Api, kind: ResourceKind, stored: Entry, options: DeleteOptions
) -> Deletion:
    if is_terminating(stored.obj):
        return Deletion(stored, gone=False)
    metadata = {**stored.obj["metadata"], "deletionTimestamp": timestamp(api.now())}
    status = {**(stored.obj.get("status") or EMPTY), "phase": "Terminating"}
    marked = {**stored.obj, "metadata": metadata, "status": status}
    if options.dry_run:
        return Deletion(Entry(stored.key, marked, stored.revision), gone=False)
    return Deletion(api.store.replace(kind.storage_name, marked, stored), gone=False)


def _begin_definition_deletion(
    api: Api, kind: ResourceKind, stored: Entry, options: DeleteOptions
) -> Deletion:
    """A definition stays until its objects are deleted, which `DefinitionLifecycle` sees to."""
    if is_terminating(stored.obj):
        return Deletion(stored, gone=False)
    finalizers = [*(stored.obj["metadata"].get("finalizers") or ()), DEFINITION_FINALIZER]
    metadata = {
        **stored.obj["metadata"],
        "deletionTimestamp": timestamp(api.now()),
        "finalizers": finalizers,
    }
    terminating = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": timestamp(api.now()),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; "
        "CustomResource deletion will begin soon",
    }
    conditions = [*(stored.obj["status"].get("conditions") or ()), terminating]
    status = {**stored.obj["status"], "conditions": conditions}
    marked = {**stored.obj, "metadata": metadata, "status": status}
    if options.dry_run:
        return Deletion(Entry(stored.key, marked, stored.revision), gone=False)
    return Deletion(api.store.replace(kind.storage_name, marked, stored), gone=False)
