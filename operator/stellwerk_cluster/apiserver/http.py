"""The HTTP face of the API: one aiohttp handler that dispatches on method and path.

Started by `cluster.EmbeddedCluster`. It knows requests and answers, nothing of the rules of kinds.
Invariant: every failure that a client sees is a `Status` object, and a request that fails changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson
from aiohttp import web

from stellwerk_cluster.apimachinery import patching
from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    internal,
    method_not_allowed,
    no_such_resource,
    too_large_revision,
    unsupported_patch,
)
from stellwerk_cluster.apiserver.discovery import AGGREGATED, VERSION, Discovery, etag
from stellwerk_cluster.apiserver.listing import Page, list_page, parse_list_options
from stellwerk_cluster.apiserver.rendering import JSON, PLAIN, YAML, Form, Renderer, negotiate
from stellwerk_cluster.apiserver.requests import (
    Target,
    object_body,
    parse_body,
    parse_path,
    write_options,
)
from stellwerk_cluster.apiserver.reviews import answer_review
from stellwerk_cluster.registry.deletion import (
    DeleteOptions,
    delete,
    delete_collection,
    parse_delete_options,
)
from stellwerk_cluster.registry.subresources import bind, evict, read_scale, write_scale

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apiserver.openapi import OpenApi
    from stellwerk_cluster.apiserver.watching import WatchServer
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.store import Entry

_log = logging.getLogger(__name__)
_FUTURE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.05
LARGEST_BODY_BYTES: Final = 3 << 20
_PATCHES: Final = (patching.JSON_PATCH, patching.MERGE_PATCH, patching.STRATEGIC_PATCH)
_CREATED: Final[JsonObject] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
_DOCUMENT_DEPTH: Final = {"api": 2, "apis": 3}
"""Up to so many parts, a path names a discovery document; beyond, a resource."""
_HEALTH: Final = ("healthz", "livez", "readyz")

Answer: TypeAlias = web.StreamResponse
Method: TypeAlias = Callable[[web.BaseRequest, Target], Awaitable[Answer]]


class HttpServer:
    """Answers requests; `handle` is given to aiohttp."""

    def __init__(
        self, api: Api, renderer: Renderer, watches: WatchServer, openapi: OpenApi
    ) -> None:
        """Serve `api`."""
        self._api = api
        self._renderer = renderer
        self._watches = watches
        self._openapi = openapi
        self._discovery = Discovery(api.kinds)
        self._methods: dict[str, Method] = {
            "GET": self._read,
            "HEAD": self._read,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self.address = ""
        """host:port, as discovery reports it."""

    async def handle(self, request: web.BaseRequest) -> Answer:
        """Answer one request."""
        try:
            return await self._dispatch(request)
        except StatusError as error:
            return _failure(error)
        except (ConnectionError, asyncio.CancelledError, web.HTTPException):
            raise
        except Exception:  # noqa: BLE001  (the top of the request's task: the connection lives on)
            _log.exception("request failed: %s %s", request.method, request.path_qs)
            return _failure(internal("internal error of the embedded cluster, see its log"))

    async def _dispatch(self, request: web.BaseRequest) -> Answer:
        parts = [part for part in request.path.split("/") if part]
        head = parts[0] if parts else ""
        if len(parts) > _DOCUMENT_DEPTH.get(head, len(parts)):
            target = parse_path(parts, self._api.kinds)
            if target is None:
                return _no_page()
            method = self._methods.get(request.method)
            if method is None:
                raise method_not_allowed()
            return await method(request, target)
        return self._document(request, parts)

    # Reading.

    async def _read(self, request: web.BaseRequest, target: Target) -> Answer:
        kind = target.kind
        form = negotiate(request.headers.get("Accept", ""))
        query = dict(request.query)
        if target.subresource:
            return self._read_subresource(target, form)
        if target.name and not target.watch:
            return await self._read_one(target, query, form)
        if "list" not in kind.verbs:
            raise method_not_allowed()
        form = form.including(query)
        if target.watch:
            query["watch"] = "true"
        options = parse_list_options(kind, target.namespace, target.name, query)
        if options.watch:
            return await self._watches.stream(request, kind, options, form)
        await self._wait_for_revision(options.revision)
        return _body(
            self._renderer.many(kind, list_page(self._api.store, kind, options), form), form
        )

    async def _read_one(self, target: Target, query: dict[str, str], form: Form) -> Answer:
        if "get" not in target.kind.verbs:
            raise method_not_allowed()
        version = query.get("resourceVersion", "")
        if version.isdigit():
            await self._wait_for_revision(int(version))
        entry = self._api.get(target.kind, *target.key)
        form = form.for_one(target.kind).including(query)
        return _body(self._renderer.one(target.kind, entry, form), form)

    def _read_subresource(self, target: Target, form: Form) -> Answer:
        _check_verb(target, "get")
        entry = self._api.get(target.kind, *target.key)
        if target.subresource == "scale":
            return _json(read_scale(target.kind, entry.obj))
        return _body(self._renderer.one(target.kind, entry, form), form)

    async def _wait_for_revision(self, revision: int) -> None:
        store = self._api.store
        deadline = self._api.clock.monotonic() + _FUTURE_SECONDS
        while store.revision < revision:
            if self._api.clock.monotonic() >= deadline:
                raise too_large_revision(revision, store.revision)
            await asyncio.sleep(_POLL_SECONDS)

    # Writing.

    async def _post(self, request: web.BaseRequest, target: Target) -> Answer:
        kind = target.kind
        if target.subresource:
            return await self._post_subresource(request, target)
        if (
            target.name
            or "create" not in kind.verbs
            or (kind.namespaced and target.namespace is None)
        ):
            raise method_not_allowed()
        form = negotiate(request.headers.get("Accept", ""))
        options = write_options(request.query, "Create")
        body = object_body(await request.read(), _media_type(request), kind, self._api.kinds)
        if kind.group == "authorization.k8s.io":
            return _json(
                answer_review({**body, "kind": kind.kind, "apiVersion": kind.api_version}), 201
            )
        if kind.kind == "Binding":
            pods = self._api.kinds.resource("pods")
            name = (body.get("metadata") or {}).get("name", "")
            bind(self._api, pods, (target.namespace or "", name), body, dry_run=options.dry_run)
            return _json(_CREATED, 201)
        entry = self._api.create(kind, target.namespace or "", body, options)
        return self._answer_one(target, entry, form, 201, options.warnings)

    async def _post_subresource(self, request: web.BaseRequest, target: Target) -> Answer:
        _check_verb(target, "create")
        content = await request.read()
        try:
            body = parse_body(content, _media_type(request))
        except ValueError as error:
            raise bad_request(f"the object provided is unrecognized: {error}") from error
        if not isinstance(body, dict):
            message = "the object provided is unrecognized"
            raise bad_request(message)
        if target.subresource == "binding":
            dry_run = request.query.get("dryRun") == "All"
            bind(self._api, target.kind, target.key, body, dry_run=dry_run)
        else:
            evict(self._api, target.kind, target.key, body, dict(request.query))
        return _json(_CREATED, 201)

    async def _put(self, request: web.BaseRequest, target: Target) -> Answer:
        kind = target.kind
        if not target.name or "update" not in kind.verbs:
            raise method_not_allowed()
        _check_verb(target, "update")
        form = negotiate(request.headers.get("Accept", ""))
        options = write_options(request.query, "Update")
        content, media_type = await request.read(), _media_type(request)
        if target.subresource == "scale":
            scale = parse_body(content, media_type)
            return _json(write_scale(self._api, kind, target.key, scale, options, merge=False))
        body = object_body(content, media_type, kind, self._api.kinds)
        known = self._api.store.collection(kind.storage_name).get(target.key)
        if known is None and kind.create_on_update:
            named = {**body, "metadata": {**(body.get("metadata") or {}), "name": target.name}}
            entry = self._api.create(kind, target.namespace or "", named, options)
            return self._answer_one(target, entry, form, 201, options.warnings)
        entry = self._api.update(kind, target.key, body, options, subresource=target.subresource)
        return self._answer_one(target, entry, form, 200, options.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target) -> Answer:
        kind = target.kind
        if not target.name or "patch" not in kind.verbs:
            raise method_not_allowed()
        _check_verb(target, "patch")
        media_type = _media_type(request)
        if media_type not in _PATCHES:
            raise unsupported_patch()
        form = negotiate(request.headers.get("Accept", ""))
        options = write_options(request.query, "Patch")
        try:
            patch = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        if target.subresource == "scale":
            return _json(write_scale(self._api, kind, target.key, patch, options, merge=True))
        entry = self._api.patch(
            kind, target.key, patch, media_type, options, subresource=target.subresource
        )
        return self._answer_one(target, entry, form, 200, options.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> Answer:
        kind = target.kind
        verb = "delete" if target.name else "deletecollection"
        if verb not in kind.verbs or target.subresource:
            raise method_not_allowed()
        if verb == "deletecollection" and kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        content = await request.read()
        body = parse_body(content, _media_type(request)) if content else {}
        query = dict(request.query)
        options = parse_delete_options(body if isinstance(body, dict) else {}, query)
        if not target.name:
            return self._delete_many(target, query, options)
        deletion = delete(self._api, kind, target.key, options)
        if deletion.gone and not kind.answers_delete_with_object:
            return _json(_deleted_status(target, deletion.entry))
        return self._answer_one(target, deletion.entry, PLAIN, 200, [])

    def _delete_many(self, target: Target, query: dict[str, str], options: DeleteOptions) -> Answer:
        kind = target.kind
        wanted = parse_list_options(
            kind,
            target.namespace,
            "",
            {name: query[name] for name in ("labelSelector", "fieldSelector") if name in query},
        )
        page = list_page(self._api.store, kind, wanted)
        deleted = delete_collection(self._api, kind, page.entries, options)
        return _body(self._renderer.many(kind, Page(deleted, page.revision), PLAIN), PLAIN)

    def _answer_one(
        self, target: Target, entry: Entry, form: Form, status: int, warnings: list[str]
    ) -> Answer:
        response = _body(
            self._renderer.one(target.kind, entry, form.for_one(target.kind)), form, status
        )
        for warning in warnings:
            response.headers.add("Warning", f'299 - "{_quoted(warning)}"')
        return response

    # Everything that is no resource.

    def _document(  # noqa: PLR0911  (one line for each path)
        self, request: web.BaseRequest, parts: list[str]
    ) -> Answer:
        match parts:
            case []:
                return _json({"paths": self._discovery.paths()})
            case ["version"]:
                return _json(VERSION)
            case [probe, *checks] if probe in _HEALTH and len(checks) <= 1:
                return self._health(probe, checks, request)
            case ["openapi", *rest]:
                return self._openapi.answer(request, rest)
            case ["api" | "apis" as root]:
                return self._discovery_root(request, root)
            case ["api", version]:
                return self._resources("", version)
            case ["apis", group]:
                document = self._discovery.group(group)
                return _no_page() if document is None else _json(document)
            case ["apis", group, version]:
                return self._resources(group, version)
            case _:
                return _no_page()

    def _resources(self, group: str, version: str) -> Answer:
        document = self._discovery.resources(group, version)
        if document is not None:
            return _json(document)
        if self._discovery.group(group) is None and group:
            return _no_page()
        raise no_such_resource()

    def _discovery_root(self, request: web.BaseRequest, root: str) -> Answer:
        accept = request.headers.get("Accept", "")
        if "as=APIGroupDiscoveryList" not in accept:
            return _json(
                self._discovery.versions(self.address)
                if root == "api"
                else self._discovery.groups()
            )
        if "v=v2;" not in f"{accept};".replace(",", ";") and "application/json" not in accept.split(
            ","
        ):
            message = (
                "only the following media types are accepted: "
                "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            )
            raise StatusError(406, "NotAcceptable", message)
        document = orjson.dumps(self._discovery.aggregated(core=root == "api"))
        tag = etag(document)
        headers = {"Content-Type": AGGREGATED, "Etag": tag, "Vary": "Accept"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"Etag": tag, "Vary": "Accept"})
        return web.Response(body=document, headers=headers)

    @staticmethod
    def _health(probe: str, checks: list[str], request: web.BaseRequest) -> Answer:
        known = (
            ("ping", "etcd", "log")
            if probe != "readyz"
            else ("ping", "etcd", "log", "informer-sync")
        )
        if checks and checks[0] not in known:
            return _no_page()
        if "verbose" in request.query and not checks:
            lines = "".join(f"[+]{check} ok\n" for check in known)
            return web.Response(text=f"{lines}{probe} check passed\n")
        return web.Response(text="ok")


def _check_verb(target: Target, verb: str) -> None:
    if not target.subresource:
        return
    found = target.kind.subresource(target.subresource)
    if found is None or verb not in found.verbs:
        raise method_not_allowed()


def _media_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _json(document: JsonObject, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(document), status=status, headers={"Content-Type": JSON})


def _body(content: bytes, form: Form, status: int = 200) -> web.Response:
    content_type = YAML if form.media_type == YAML else JSON
    return web.Response(body=content, status=status, headers={"Content-Type": content_type})


def _no_page() -> web.Response:
    return web.Response(text="404 page not found\n", status=404)


def _failure(error: StatusError) -> web.Response:
    response = _json(error.body(), error.code)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def _deleted_status(target: Target, entry: Entry) -> JsonObject:
    kind = target.kind
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {
            "name": target.name,
            **({"group": kind.group} if kind.group else {}),
            "kind": kind.plural,
            "uid": entry.obj["metadata"]["uid"],
        },
    }
