"""A small API server that lists and watches, and breaks in the ways that tests ask for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stellwerk.handlers.watched_kinds import WatchedKind
    from stellwerk_kube.json_values import JsonObject


class FakeKind:
    """The stored objects of one kind, and who watches them."""

    def __init__(self, watched: WatchedKind) -> None:
        self.watched = watched
        self.objects: dict[str, JsonObject] = {}
        self.version = 100
        self.watchers: set[asyncio.Queue[bytes | None]] = set()
        self.lists = 0
        self.watches = 0
        self.forbidden = False
        self.exists = True
        self.misses = 0
        """How many times more discovery does not name it."""
        self.listed_as = f"{watched.kind}List"
        self.watch_refusal: int | None = None
        """The status that is answered in place of a stream, if any."""
        self.fail_pages_from: int | None = None
        """Answer 410 from this page on (0 is the first) until it is None again; a stream ends."""
        self.stream_refusal: int | None = None
        """The status that is answered to a watch that is to begin with a list, if any."""
        self.ignores_lists = False
        """Whether it shows what there is, and never says that this was all, as of old."""

    def put(self, name: str, *, quiet: bool = False, **fields: Any) -> JsonObject:
        """Create or change an object; quietly means that no watch hears of it."""
        self.version += 1
        before = self.objects.get(name)
        obj: JsonObject = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": fields.pop("uid", before["metadata"]["uid"] if before else f"uid-{name}"),
                "resourceVersion": str(self.version),
            }
        } | fields
        self.objects[name] = obj
        if not quiet:
            self._tell("MODIFIED" if before else "ADDED", obj)
        return obj

    def delete(self, name: str, *, quiet: bool = False) -> None:
        self.version += 1
        obj = self.objects.pop(name)
        obj["metadata"]["resourceVersion"] = str(self.version)
        if not quiet:
            self._tell("DELETED", obj)

    def send(self, event_type: str, obj: JsonObject) -> None:
        """Send an event to every watch, whatever is stored."""
        self._tell(event_type, obj)

    def break_watches(self, *, code: int | None = None) -> None:
        """End every watch: silently, or with an ERROR event."""
        for watcher in set(self.watchers):
            if code is not None:
                status = {"kind": "Status", "code": code, "message": "told to fail"}
                watcher.put_nowait(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")
            watcher.put_nowait(None)
        self.watchers.clear()  # what comes from now on is for those who watch again

    def is_served(self) -> bool:
        """Whether discovery names it now."""
        if self.misses:
            self.misses -= 1
            return False
        return self.exists

    def _tell(self, event_type: str, obj: JsonObject) -> None:
        line = orjson.dumps({"type": event_type, "object": obj}) + b"\n"
        for watcher in self.watchers:
            watcher.put_nowait(line)


class FakeWatchApi:
    """Serves discovery, access reviews, lists and watches of some kinds."""

    def __init__(self, kinds: tuple[WatchedKind, ...]) -> None:
        self.kinds = {kind.kind: FakeKind(kind) for kind in kinds}
        self.url = ""
        self.selectors: set[str] = set()
        self.hidden_scans = 0
        """How many times more the list of API groups is empty."""
        self.server: TestServer | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/api", self._api)
        app.router.add_get("/apis", self._apis)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        app.router.add_get("/{path:.*}", self._get)
        return app

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"gitVersion": "v1.36.0"})

    async def _api(self, _: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def start(self) -> None:
        """Listen; after a stop, on the same port as before."""
        server = TestServer(self.app(), port=int(self.url.rpartition(":")[2]) if self.url else None)
        await server.start_server()
        self.server = server
        self.url = str(server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        """Be gone, as while the API server restarts."""
        for kind in self.kinds.values():
            kind.break_watches()
        if self.server is not None:
            await self.server.close()

    async def _apis(self, _: web.Request) -> web.Response:
        if self.hidden_scans:
            self.hidden_scans -= 1
            return web.json_response({"groups": []})
        groups = [
            {
                "name": group,
                "preferredVersion": {"version": version},
                "versions": [{"version": version}],
            }
            for group, version in sorted(
                {
                    (kind.watched.group, kind.watched.version)
                    for kind in self.kinds.values()
                    if kind.watched.group and kind.exists
                }
            )
        ]
        return web.json_response({"groups": groups})

    async def _review(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]["resourceAttributes"]
        forbidden = {kind.watched.plural for kind in self.kinds.values() if kind.forbidden}
        allowed = asked["resource"] not in forbidden
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        for kind in self.kinds.values():
            base = f"{kind.watched.group_version_path}/{kind.watched.plural}"
            if path == base and kind.exists:
                return await self._collection(kind, request)
            if path.startswith(kind.watched.group_version_path) and path.endswith(
                tuple(f"{kind.watched.plural}/{name}" for name in kind.objects)
            ):
                return web.json_response(kind.objects[path.rpartition("/")[2]])
        resources = [
            _discovered(kind.watched.plural, kind.watched.kind)
            for kind in self.kinds.values()
            if kind.watched.group_version_path == path and kind.is_served()
        ]
        if path == "/api/v1" and "Namespace" not in self.kinds:
            resources.append(_discovered("namespaces", "Namespace"))  # kopf waits for it
        if resources:
            return web.json_response({"resources": resources})
        return web.json_response({"kind": "Status", "code": 404, "message": "none"}, status=404)

    async def _collection(self, kind: FakeKind, request: web.Request) -> web.StreamResponse:
        self.selectors.add(request.query.get("fieldSelector", ""))
        if kind.forbidden:
            return web.json_response({"kind": "Status", "code": 403, "message": "no"}, status=403)
        if request.query.get("watch") == "true":
            return await self._watch(kind, request)
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "500"))
        if kind.fail_pages_from is not None and start // limit >= kind.fail_pages_from:
            gone = {"kind": "Status", "code": 410, "message": "the continue token is too old"}
            return web.json_response(gone, status=410)
        kind.lists += start == 0
        objects = list(kind.objects.values())
        metadata = {"resourceVersion": str(kind.version)}
        if start + limit < len(objects):
            metadata["continue"] = str(start + limit)
        page = {"kind": kind.listed_as, "apiVersion": "v1", "metadata": metadata}
        if kind.listed_as == "Status":
            return web.json_response({"kind": "Status", "status": "Success"})
        return web.Response(
            body=orjson.dumps(page | {"items": objects[start : start + limit]}),
            content_type="application/json",
        )

    async def _watch(self, kind: FakeKind, request: web.Request) -> web.StreamResponse:
        lists = "sendInitialEvents" in request.query
        code = kind.watch_refusal
        if lists and kind.stream_refusal is not None:
            code = kind.stream_refusal
        else:
            kind.watches += 1
        if code is not None:
            return web.json_response({"kind": "Status", "code": code, "message": "no"}, status=code)
        if lists and kind.listed_as == "Status":
            kind.lists += 1
            return web.json_response({"kind": "Status", "status": "Success"})
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        kind.watchers.add(queue)
        if lists:
            kind.lists += 1
            listed = _streamed_list(kind)
            await response.write(b"".join(listed))
            if kind.fail_pages_from is not None:
                kind.watchers.discard(queue)
                return response
        try:
            while (line := await queue.get()) is not None:
                await response.write(line)
        finally:
            kind.watchers.discard(queue)
        return response


def _streamed_list(kind: FakeKind) -> list[bytes]:
    """The events that show what is stored, and the bookmark that says that this is all of it."""
    end = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": str(kind.version), "annotations": end}
    failing = kind.fail_pages_from
    objects = list(kind.objects.values())[: None if failing is None else 250 * failing]
    lines = [{"type": "ADDED", "object": obj} for obj in objects]
    if failing is None and not kind.ignores_lists:
        lines.append({"type": "BOOKMARK", "object": {"metadata": metadata}})
    return [orjson.dumps(line) + b"\n" for line in lines]


def _discovered(plural: str, kind: str) -> JsonObject:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": True,
        "verbs": ["get", "list", "watch", "patch"],
    }


@asynccontextmanager
async def fake_watch_api(*kinds: WatchedKind) -> AsyncIterator[FakeWatchApi]:
    api = FakeWatchApi(kinds)
    await api.start()
    try:
        yield api
    finally:
        await api.stop()
