"""The service account of a pod, and the token that is mounted into its containers.

The admission plugin ServiceAccount. Invariant: a pod
that passes names a service account that exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import forbidden, not_found
from stellwerk_cluster.identity.service_accounts import DEFAULT_ACCOUNT, ensure_default
from stellwerk_cluster.registry.user_admission import WriteAdmission

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_MIRROR: Final = "kubernetes.io/config.mirror"
_VOLUME_PREFIX: Final = "kube-api-access-"
_MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS: Final = 3607
"""Lifetime of a token that a pod is given (`WarnOnlyBoundTokenExpirationPeriod`)."""
_FILE_MODE: Final = 0o644
"""Mode of the projected files: 0644, in decimal."""


class ServiceAccountAdmission(WriteAdmission):
    """Gives pods their service account and its token."""

    def __init__(self, api: Api) -> None:
        """Look for service accounts in `api`."""
        self._api = api

    @override
    def admit(
        self, kind: ResourceKind, obj: JsonObject, old: JsonObject | None, user: User | None
    ) -> None:
        """Fill in the account and the mounts of a new pod."""
        if old is not None or kind.kind != "Pod" or kind.group:
            return
        if _MIRROR in (obj["metadata"].get("annotations") or {}):
            return
        spec = obj["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = DEFAULT_ACCOUNT
        account = self._account(kind, obj, spec["serviceAccountName"])
        if _wants_token(spec, account):
            _mount_token(spec, self._api.random_name(_VOLUME_PREFIX))
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(each) for each in account["imagePullSecrets"]]

    def _account(self, kind: ResourceKind, pod: JsonObject, name: str) -> JsonObject:
        namespace = pod["metadata"]["namespace"]
        if name == DEFAULT_ACCOUNT:
            ensure_default(self._api, namespace)
        account = self._api.find("serviceaccounts", namespace, name)
        if account is None:
            missing = not_found(self._api.kinds.resource("serviceaccounts"), name).message
            missing = missing.replace("serviceaccounts", "serviceaccount", 1)
            why = f"error looking up service account {namespace}/{name}: {missing}"
            raise forbidden(kind, pod["metadata"].get("name", ""), why)
        return account


def _wants_token(spec: JsonObject, account: JsonObject) -> bool:
    for holder in (spec, account):
        wanted = holder.get("automountServiceAccountToken")
        if wanted is not None:
            return bool(wanted)
    return True


def _mount_token(spec: JsonObject, volume_name: str) -> None:
    """Mount the token into each container that has nothing of its own in its place."""
    mounted = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.setdefault("volumeMounts", [])
        if any(mount.get("mountPath") == _MOUNT_PATH for mount in mounts):
            continue
        mounts.append({"name": volume_name, "readOnly": True, "mountPath": _MOUNT_PATH})
        mounted = True
    if mounted:
        spec.setdefault("volumes", []).append(_token_volume(volume_name))


def _token_volume(name: str) -> JsonObject:
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": authority},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": _FILE_MODE}}
