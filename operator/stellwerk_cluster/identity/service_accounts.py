"""The objects of every namespace: its default service account, the cluster's certificate.

Two controllers, as kube-controller-manager has them, and what kube-system gets once. Invariant: an
active namespace is without its default service account, or without its copy of the certificate, for
a moment only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent

DEFAULT_ACCOUNT: Final = "default"
ROOT_CERTIFICATE: Final = "kube-root-ca.crt"
LEGACY_TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"
_PROXY_HEADERS: Final = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}
"""Names that delegated authentication reads: the flags --requestheader-… of kube-apiserver."""
VOID_AUTHORITY: Final = """\
-----BEGIN CERTIFICATE-----
MIIBMjCB2qADAgECAgEBMAoGCCqGSM49BAMCMBgxFjAUBgNVBAMMDXNpZ25zLW5v
dGhpbmcwIBcNMjYwMTAxMDAwMDAwWhgPOTk5OTEyMzEyMzU5NTlaMBgxFjAUBgNV
BAMMDXNpZ25zLW5vdGhpbmcwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARwrOq8
lZ8nZ1/wLgLaj9ZoXodojKh+wpSylgWuuDGOkRGYbUNF94nKlhe9w3ozB+Qt1vcY
mD2+W2sS1LomC48foxMwETAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0cA
MEQCIFC+BlZRWlSx91Hcw9mtqK2Z1rHA8yRVnMtrGDx+XhsGAiAFyaq6hNT6a1Rw
dknkKN6rEFPyXbXVRFqe3uPmWjpvvw==
-----END CERTIFICATE-----
"""
"""A certificate authority whose key was thrown away: what it signed is nothing. Over plain HTTP no
client certificate and no proxy names users, and servers beside this one still want an authority.
"""
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


def ensure_default(api: Api, namespace: str) -> None:
    """Create the default service account of an active namespace that has none."""
    found = api.find("namespaces", "", namespace)
    if found is None or is_terminating(found):
        return
    if api.find("serviceaccounts", namespace, DEFAULT_ACCOUNT) is None:
        account = {"metadata": {"name": DEFAULT_ACCOUNT}}
        api.create(api.kinds.resource("serviceaccounts"), namespace, account)


def publish_client_authority(api: Api, certificates: str, proxy_authority: str) -> None:
    """Say in kube-system whose client certificates the API accepts, for servers that do so, too.

    `proxy_authority` signs for proxies that name their users in headers.
    """
    name = "extension-apiserver-authentication"
    data = {
        "client-ca-file": certificates,
        "requestheader-client-ca-file": proxy_authority,
        **_PROXY_HEADERS,
    }
    kind = api.kinds.resource("configmaps")
    api.ensure(kind, "kube-system", {"metadata": {"name": name}})
    api.modify(kind, ("kube-system", name), lambda obj: {**obj, "data": data})


def publish_token_tracking(api: Api) -> None:
    """Say in kube-system since when the use of tokens in secrets is noted.

    kube-controller-manager's cleaner of such tokens reads it at its start.
    """
    since = {"since": api.clock.now().strftime("%Y-%m-%d")}
    tracking = {"metadata": {"name": LEGACY_TRACKING}, "data": since}
    api.ensure(api.kinds.resource("configmaps"), "kube-system", tracking)


class _PerNamespace(Worker):
    """Keeps one object in every namespace."""

    def __init__(self, api: Api, storage_name: str, name: str) -> None:
        """Look at a namespace when it, or its object of that name, changes."""
        self._api = api
        self._name = name
        self.queue = WorkQueue(api.clock)
        namespaces = api.store.collection("namespaces")
        namespaces.listeners.append(self._on_namespace)
        api.store.collection(storage_name).listeners.append(self._on_object)
        for entry in namespaces.entries(None):
            self.queue.add(entry.key[1])

    def _on_namespace(self, event: StoreEvent) -> None:
        self.queue.add(event.entry.key[1])

    def _on_object(self, event: StoreEvent) -> None:
        namespace, name = event.entry.key
        if name == self._name:
            self.queue.add(namespace)


class ServiceAccountController(_PerNamespace):
    """Creates default service accounts."""

    def __init__(self, api: Api) -> None:
        """Follow namespaces and service accounts in the store of `api`."""
        super().__init__(api, "serviceaccounts", DEFAULT_ACCOUNT)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Give one namespace its account."""
        ensure_default(self._api, str(key))


class RootCertificatePublisher(_PerNamespace):
    """Keeps the certificate that the API is checked by in a ConfigMap of every namespace."""

    def __init__(self, api: Api, certificate: str) -> None:
        """Publish a certificate in PEM form."""
        super().__init__(api, "configmaps", ROOT_CERTIFICATE)
        self._certificate = certificate

    @override
    def reconcile(self, key: Hashable) -> None:
        """Create or correct the ConfigMap of one namespace."""
        namespace = str(key)
        found = self._api.find("namespaces", "", namespace)
        if found is None or is_terminating(found):
            return
        kind = self._api.kinds.resource("configmaps")
        data = {"ca.crt": self._certificate}
        present = self._api.find("configmaps", namespace, ROOT_CERTIFICATE)
        if present is None:
            metadata = {
                "name": ROOT_CERTIFICATE,
                "annotations": {"kubernetes.io/description": _DESCRIPTION},
            }
            self._api.create(kind, namespace, {"metadata": metadata, "data": data})
        elif present.get("data") != data:
            self._api.modify(kind, (namespace, ROOT_CERTIFICATE), lambda obj: {**obj, "data": data})
