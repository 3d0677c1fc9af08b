"""A ClusterClient that keeps objects in memory, with the API server's optimistic locking."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from typing_extensions import override

from stellwerk.framework.services import ClusterClient
from stellwerk_kube.errors import ApiError, Conflict, NotFound, api_error
from stellwerk_kube.json_values import JsonObject


class MemoryClient(ClusterClient):
    """Objects by API path; every write gets the next resourceVersion and goes to `watch`."""

    def __init__(self, watch: Callable[[JsonObject], None] = lambda _: None) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.requests: list[tuple[str, str]] = []
        """(verb, path) of every write that was tried."""
        self.failures: dict[str, ApiError] = {}
        """Path → the error that the next write to it gets."""
        self._watch = watch
        self._version = 100

    def put(self, path: str, obj: JsonObject) -> JsonObject:
        """Store an object as another client would."""
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        stored = self.objects.get(path)
        if stored is not None and "generation" in stored["metadata"]:
            was = stored["metadata"]["generation"]
            metadata["generation"] = was + (stored.get("spec") != obj.get("spec"))
        obj = {**obj, "metadata": metadata}
        sent = orjson.dumps(obj)
        self.objects[path] = orjson.loads(sent)
        self._watch(orjson.loads(sent))
        answer: JsonObject = orjson.loads(sent)
        return answer

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        self._begin("PUT", path)
        stored = self._stored(f"replace {path}", path)
        if stored["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
            raise Conflict(f"replace {path}", 409, "Conflict", "the object has been modified")
        return self.put(path, dict(body))

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        self._begin("POST", path)
        metadata = {"uid": f"made-{self._version}", **body["metadata"]}
        return self.put(f"{path}/{body['metadata']['name']}", {**body, "metadata": metadata})

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        self._begin("PATCH", path)
        stored = self._stored(f"patch {path}", path)
        check_preconditions(stored, body)
        return self.put(path, _merged(stored, body))

    @override
    async def get(self, path: str) -> JsonObject:
        collection, _, query = path.partition("?")
        if query:
            items, version = await self.list(collection)
            return {"items": _copied(items), "metadata": {"resourceVersion": version}}
        found: JsonObject = _copied(self._stored(f"get {path}", path))
        return found

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
        below = f"{path.partition('?')[0]}/"
        return [o for p, o in self.objects.items() if p.startswith(below)], str(self._version)

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._begin("POST", f"{path}/binding")
        pod = self._stored(f"bind {namespace}/{name} to {node_name}", path)
        self.put(path, _merged(pod, {"spec": {"nodeName": node_name}}))

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        await self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", patch)

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self._begin("DELETE", path)
        pod = self._stored(f"delete {namespace}/{name}", path)
        if pod["metadata"].get("uid") != uid:
            raise Conflict(f"delete {namespace}/{name}", 409, "Conflict", "another uid")
        del self.objects[path]
        return True

    @override
    async def delete(self, path: str, uid: str) -> None:
        self._begin("DELETE", path)
        obj = self._stored(f"delete {path}", path)
        if uid and obj["metadata"].get("uid") != uid:
            raise Conflict(f"delete {path}", 409, "Conflict", "another uid")
        del self.objects[path]

    def _begin(self, verb: str, path: str) -> None:
        self.requests.append((verb, path))
        if path in self.failures:
            raise self.failures.pop(path)

    def _stored(self, act: str, path: str) -> JsonObject:
        if path not in self.objects:
            raise NotFound(act, 404, "NotFound", f'"{path}" not found')
        return self.objects[path]


def check_preconditions(stored: Mapping[str, Any], patch: Mapping[str, Any]) -> None:
    """Refuse a patch that means another object or version, as the API server does."""
    known, given = stored["metadata"], patch.get("metadata") or {}
    act = f"patch {known['name']}"
    uid = given.get("uid", known.get("uid"))
    if uid != known.get("uid"):
        message = f'is invalid: metadata.uid: Invalid value: "{uid}": field is immutable'
        raise api_error(act, 422, "Invalid", message)
    version = given.get("resourceVersion", known.get("resourceVersion"))
    if version != known.get("resourceVersion"):
        raise api_error(act, 409, "Conflict", "the object has been modified")


def _merged(obj: Mapping[str, Any], patch: Mapping[str, Any]) -> JsonObject:
    """A JSON merge patch applied (RFC 7386)."""
    merged = dict(obj)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            old = merged.get(key)
            merged[key] = _merged(old if isinstance(old, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def _copied(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))
