"""Discovery documents, legacy and aggregated, computed from the table of kinds.

Called by the HTTP layer. Invariant: what is listed here is served, and what is served is listed
here.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.conversion import is_converted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_kube.json_values import JsonObject

_HASHED_VERSIONS: Final = {"customresourcedefinitions.apiextensions.k8s.io": "v1beta1"}
"""Storage versions of kinds that the API server stores in a version that it does not serve."""
_HASH_BYTES: Final = 8
"""Bytes of the hash by which clients notice that a document has changed."""
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Discovery:
    """Makes the discovery documents from the table of kinds."""

    def __init__(self, kinds: KindTable) -> None:
        """Describe `kinds`."""
        self._kinds = kinds

    def versions(self, address: str) -> JsonObject:
        """The document under /api."""
        by_client = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": by_client}

    def groups(self) -> JsonObject:
        """The document under /apis."""
        groups = [
            self._group(name, versions) for name, versions in self._kinds.groups().items() if name
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> JsonObject | None:
        """The document under /apis/GROUP, None if there is no such group."""
        versions = self._kinds.groups().get(name)
        if not versions or not name:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name, versions)}

    def resources(self, group: str, version: str) -> JsonObject | None:
        """The document under /api/v1 or /apis/GROUP/VERSION, None if there is no such version."""
        rows = self._kinds.served(group, version)
        if not rows:
            return None
        resources = [entry for row in rows for entry in self._legacy_entries(row)]
        resources.sort(key=lambda each: each["name"])
        return {
            "kind": "APIResourceList",
            **({"apiVersion": "v1"} if group else {}),
            "groupVersion": rows[0].api_version,
            "resources": resources,
        }

    def aggregated(self, *, core: bool) -> JsonObject:
        """Everything in one document: the core group, or all others."""
        items = [
            {
                "metadata": {"name": name} if name else {},
                "versions": [self._aggregated_version(name, version) for version in versions],
            }
            for name, versions in self._kinds.groups().items()
            if core == (name == "")
        ]
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }

    def paths(self, further: Iterable[str]) -> list[str]:
        """The paths of the root document, with some `further` ones."""
        paths = ["/api", "/api/v1", "/apis", *further]
        for name, versions in self._kinds.groups().items():
            if name:
                paths += [f"/apis/{name}", *(f"/apis/{name}/{version}" for version in versions)]
        return sorted(
            [*paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
        )

    @staticmethod
    def _group(name: str, versions: list[str]) -> JsonObject:
        listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
        return {"name": name, "versions": listed, "preferredVersion": listed[0]}

    def _aggregated_version(self, group: str, version: str) -> JsonObject:
        rows = sorted(self._kinds.served(group, version), key=lambda row: row.plural)
        return {
            "version": version,
            "resources": [_aggregated_entry(row) for row in rows],
            "freshness": "Current",
        }

    def _legacy_entries(self, row: ResourceKind) -> list[JsonObject]:
        own: JsonObject = {
            "name": row.plural,
            "singularName": row.singular_name,
            "namespaced": row.namespaced,
            "kind": row.kind,
            "verbs": list(row.verbs),
        }
        if row.short_names:
            own["shortNames"] = list(row.short_names)
        if row.categories:
            own["categories"] = list(row.categories)
        if "list" in row.verbs:
            own["storageVersionHash"] = self._storage_version_hash(row)
        entries = [own]
        for each in row.subresources:
            entry: JsonObject = {
                "name": f"{row.plural}/{each.name}",
                "singularName": "",
                "namespaced": row.namespaced,
                "kind": each.kind or row.kind,
                "verbs": list(each.verbs),
            }
            if each.group:
                entry |= {"group": each.group, "version": each.version}
            entries.append(entry)
        return entries

    def _storage_version_hash(self, row: ResourceKind) -> str:
        """The hash that changes when objects are stored in another version."""
        same = (each for each in self._kinds if each.storage_name == row.storage_name)
        stored = next((each for each in same if not is_converted(each)), row)
        hashed = _HASHED_VERSIONS.get(row.storage_name, stored.version)
        version = row.storage_version or row.stored or hashed
        text = f"{stored.group}/{version}/{stored.kind}"
        return base64.b64encode(hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]).decode()


def _aggregated_entry(row: ResourceKind) -> JsonObject:
    entry: JsonObject = {
        "resource": row.plural,
        "responseKind": _response_kind(row),
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular_name,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    if row.subresources:
        entry["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": {
                    "group": each.group or (row.group if row.custom else ""),
                    "version": each.version or (row.version if row.custom else ""),
                    "kind": each.kind or row.kind,
                },
                "verbs": list(each.verbs),
            }
            for each in sorted(row.subresources, key=lambda each: each.name)
        ]
    return entry


def _response_kind(row: ResourceKind) -> JsonObject:
    # Built-in kinds leave group and version to the enclosing entry; custom ones repeat them.
    if row.custom:
        return {"group": row.group, "version": row.version, "kind": row.kind}
    return {"group": "", "version": "", "kind": row.kind}
