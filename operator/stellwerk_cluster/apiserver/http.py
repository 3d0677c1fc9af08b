"""The HTTP face of the API: one aiohttp handler that dispatches on method and path.

Started by `cluster.EmbeddedCluster`. Here are resources and methods; `non_resource_paths` answers
all other paths, and the rules of kinds lie in the verbs.
Invariant: every failure that a client sees is a `Status` object, and a request that fails changes
nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from stellwerk_cluster.apimachinery import patching
from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    internal,
    invalid,
    method_not_allowed,
    no_process,
    no_such_resource,
    required,
    too_large_body,
    too_large_revision,
    unsupported_patch,
)
from stellwerk_cluster.apimachinery.json_text import JsonError
from stellwerk_cluster.apimachinery.query import check_timeout, flag, version_error
from stellwerk_cluster.apimachinery.releases import MISSING_AS_JSON, VERSIONED_ANSWERS, holds
from stellwerk_cluster.apimachinery.users import ANONYMOUS, User
from stellwerk_cluster.apiserver.bodies import (
    apply_body,
    delete_options_body,
    forget_ahead,
    json_of,
    note_duplicates,
    object_body,
    plain_body,
    read_ahead,
)
from stellwerk_cluster.apiserver.computed_kinds import ObjectReader
from stellwerk_cluster.apiserver.listing import ListPage, list_page, parse_list_options
from stellwerk_cluster.apiserver.rendering import PLAIN, Renderer, ResponseFormat, negotiate
from stellwerk_cluster.apiserver.request_info import (
    RequestInfo,
    parse_path,
    path_parts,
    write_options,
)
from stellwerk_cluster.apiserver.responses import (
    Answer,
    NoPageError,
    body_answer,
    json_answer,
    streamed_answer,
)
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.reviews import REVIEW_GROUPS, ReviewHandler
from stellwerk_cluster.identity.token_requests import issue_token
from stellwerk_cluster.registry.binding import bind
from stellwerk_cluster.registry.deletion import (
    DeleteOptions,
    delete,
    delete_collection,
    parse_delete_options,
)
from stellwerk_cluster.registry.entries import Entry
from stellwerk_cluster.registry.eviction import evict
from stellwerk_cluster.registry.scale import apply_scale, patch_scale, read_scale, write_scale
from stellwerk_cluster.registry.server_side_apply import apply
from stellwerk_kube.listening.middleware import identify

if TYPE_CHECKING:
    from stellwerk_cluster.apiserver.auth_filters import AuthFilters
    from stellwerk_cluster.apiserver.non_resource_paths import NonResourcePaths
    from stellwerk_cluster.apiserver.pod_logs import PodLogs
    from stellwerk_cluster.apiserver.watching import WatchServer
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject

_log = logging.getLogger(__name__)
_FUTURE_VERSION_SECONDS: Final = 3.0
"""Longest wait for a resourceVersion that is not there yet, as in kube-apiserver
(`blockTimeout`)."""
_POLL_SECONDS: Final = 0.05
"""Pause between two looks for that version."""
MAX_BODY_BYTES: Final = 3 << 20
"""Bytes of a request's body, as in kube-apiserver (`MaxRequestBodyBytes`)."""
_USER: Final = web.RequestKey("user", User)
"""The key under which a request carries the user that sent it."""
_WARNINGS: Final = web.RequestKey("warnings", list[str])
"""The key under which a write carries the warnings of its answer, which a refusal has, too."""
_PATCHES: Final = (
    patching.JSON_PATCH,
    patching.MERGE_PATCH,
    patching.STRATEGIC_PATCH,
    patching.APPLY_PATCH,
)
_NEEDS_PROCESS: Final = {
    "attach": "process to attach to",
    "exec": "process to run a command in",
    "log": "logs",
    "portforward": "ports to forward",
    "proxy": "server to talk to",
}
"""Subresources that answer with what a process says, and what of it is missing."""
_WRITES: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))
_CHOOSES: Final = ("labelSelector", "fieldSelector", "limit", "continue")
"""Parameters that say which objects of a collection are deleted."""
_DOCUMENT_DEPTH: Final = {"api": 2, "apis": 3}
"""Up to so many parts, a path names a discovery document; beyond, a resource."""

Method: TypeAlias = Callable[[web.BaseRequest, RequestInfo], Awaitable[Answer]]


@dataclass(slots=True)
class _Warned:
    """The warnings of an answer."""

    texts: dict[str, None] = field(default_factory=dict)
    characters: int = 0
    """Characters in its headers."""
    cut: bool = False
    """Whether they were more than headers take, and each is shortened."""


_WARNED: Final = web.ResponseKey("warned", _Warned)
_MAX_WARNING_CHARACTERS: Final = 4096
"""Characters of all warnings of one answer. Beyond them, each warning is cut
(`_MAX_CUT_WARNING_CHARACTERS`)."""
_MAX_CUT_WARNING_CHARACTERS: Final = 256
"""Characters of a warning that is cut."""


class ApiServer:
    """Answers requests, one method each for GET, POST, PUT, PATCH and DELETE."""

    def __init__(
        self,
        api: Api,
        renderer: Renderer,
        watches: WatchServer,
        non_resource_paths: NonResourcePaths,
        auth_filters: AuthFilters,
    ) -> None:
        """Serve `api` behind `auth_filters`; the three between answer in its name."""
        self._api = api
        self._auth_filters = auth_filters
        self._reviewer = ReviewHandler(
            auth_filters.authenticator, auth_filters.authorizer, api.field_manager
        )
        self._renderer = renderer
        self._watches = watches
        self._non_resource_paths = non_resource_paths
        self.object_reader = ObjectReader(api)
        """The reader of objects; kinds whose objects are computed are added here."""
        self.pod_logs: PodLogs | None = None
        """Answers requests for logs; None: no kubelet keeps any."""
        self._methods: dict[str, Method] = {
            "GET": self._read,
            "HEAD": self._read,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def handle(self, request: web.BaseRequest) -> Answer:
        """Answer one request."""
        try:
            return await self._dispatch(request)
        except StatusError as error:
            answer = _failure(error)
            for warning in request.get(_WARNINGS, ()):
                _warn(answer, warning)
            return answer
        except NoPageError:
            return self._no_page()
        except web.HTTPRequestEntityTooLarge:
            return _failure(too_large_body(MAX_BODY_BYTES))
        except web.RequestPayloadError:
            return _failure(bad_request("the body is not encoded as its Content-Encoding says"))
        except (ConnectionError, asyncio.CancelledError, web.HTTPException):
            raise
        except Exception:  # noqa: BLE001  (the top of the request's task: the connection lives on)
            _log.exception("request failed: %s %s", request.method, request.path_qs)
            return _failure(internal("internal error of the embedded cluster, see its log"))
        finally:
            forget_ahead()

    async def _dispatch(self, request: web.BaseRequest) -> Answer:
        parts = path_parts(request.path)
        if "timeout=" in request.query_string and not _is_long_running(request, parts):
            check_timeout(request.query)
        request[_USER] = self._auth_filters.enter(request, parts)
        if request[_USER] is not ANONYMOUS:
            identify(request)
        if "//" in request.path.rstrip("/") and "" not in parts:
            raise self._no_such_path(request.path)
        head = parts[0] if parts else ""
        if len(parts) > _DOCUMENT_DEPTH.get(head, len(parts)):
            target = parse_path(parts, self._api.kinds)
            if target is None:
                raise NoPageError
            return await self._act(request, target)
        return self._non_resource_paths.answer(request, parts)

    async def _act(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        """Read or write what the path names."""
        method = self._methods.get(request.method)
        if method is None:
            raise method_not_allowed()
        if target.namespace == "" and (target.name or request.method == "DELETE"):
            message = "Namespace parameter required."
            raise bad_request(message)
        if target.subresource == "log" and self.pod_logs and request.method == "GET":
            return await self.pod_logs.answer(request, target.kind, target.key)
        if target.subresource in _NEEDS_PROCESS:
            raise self._without_process(target)
        answer = await method(request, target)
        if request.method in _WRITES:
            # Watchers first: a client's next write goes by what its own watch has shown.
            await asyncio.sleep(0)
        if target.kind.warning and not answer.prepared:
            _warn(answer, target.kind.warning)
        if target.kind.inert and request.method in _WRITES:
            _warn(answer, f"nothing in this cluster acts on {target.kind.qualified_resource}")
        return answer

    def _no_such_path(self, path: str) -> Exception:
        """A path with an empty part: no resource where a version is served, elsewhere no page."""
        match path.split("/"):
            case ["", "api", *_]:
                return no_such_resource()
            case ["", "apis", group, _, *_] if group and group in self._api.kinds.groups():
                return no_such_resource()
            case _:
                return NoPageError()

    def _no_page(self) -> Answer:
        if holds(MISSING_AS_JSON, self._api.release):
            return _failure(no_such_resource())
        return web.Response(text="404 page not found\n", status=404)

    # Reading.

    async def _read(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        kind = target.kind
        accept = request.headers.get("Accept", "")
        form = negotiate(accept, kind, streams=not target.name or target.watch)
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
        options = parse_list_options(kind, target.namespace or None, target.name, query)
        kept = self._api.lease_cache
        kept.before_read(kind, target.namespace or None, target.name, watch=options.watch)
        if options.watch:
            self.object_reader.check_watch(kind)
            # Streams are JSON for every client that takes JSON at all.
            form = negotiate(accept, streams=True, watch=True).including(query)
            return await self._watches.stream(request, kind, options, form)
        await self._wait_for_revision(options.revision)
        page = self.object_reader.page(kind, options)
        return await streamed_answer(
            request, self._renderer.many(kind, page, form.for_many(kind)), form
        )

    async def _read_one(
        self, target: RequestInfo, query: dict[str, str], form: ResponseFormat
    ) -> Answer:
        if "get" not in target.kind.verbs:
            raise method_not_allowed()
        version = query.get("resourceVersion", "")
        if version and not version_error(version):
            await self._wait_for_revision(int(version))
        entry = self.object_reader.one(target.kind, target.key)
        form = form.for_one(target.kind).including(query)
        return body_answer(self._renderer.one(target.kind, entry, form), form)

    def _read_subresource(self, target: RequestInfo, form: ResponseFormat) -> Answer:
        _check_verb(target, "get")
        entry = self._api.get(target.kind, *target.key)
        if target.subresource == "scale":
            return json_answer(read_scale(target.kind, entry.obj))
        return body_answer(self._renderer.one(target.kind, entry, form), form)

    async def _wait_for_revision(self, revision: int) -> None:
        store = self._api.store
        deadline = self._api.clock.monotonic() + _FUTURE_VERSION_SECONDS
        while store.revision < revision:
            if self._api.clock.monotonic() >= deadline:
                raise too_large_revision(revision, store.revision)
            await asyncio.sleep(_POLL_SECONDS)

    # Writing.

    async def _post(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        kind = target.kind
        if target.subresource:
            return await self._post_subresource(request, target)
        if (
            target.name
            or "create" not in kind.verbs
            or (kind.namespaced and target.namespace is None)
        ):
            raise method_not_allowed()
        # Nothing that is only created, and never read, has columns.
        form = negotiate(request.headers.get("Accept", ""), kind, tables="get" in kind.verbs)
        options = _write_options(request, "Create")
        content, media_type = await _read(request), _media_type(request)
        body = object_body(content, media_type, kind, self._api.kinds)
        note_duplicates(content, media_type, body, options)
        if target.namespace == "":
            given = (body.get("metadata") or {}).get("name", "")
            raise invalid(kind, given, [required("metadata.namespace")])
        if kind.group in REVIEW_GROUPS:
            now, namespace = self._api.now(), target.namespace or ""
            review = self._reviewer.answer(kind, namespace, body, options, now)
            entry = Entry(("", ""), review, self._api.store.revision)
            return self._answer_one(target, entry, form, 201, options.warnings)
        if kind.kind == "Binding":
            pods = self._api.kinds.resource("pods")
            # As of every object that is created: a uid that it came with is not its own.
            metadata = {**(body.get("metadata") or {}), "uid": ""}
            key = (target.namespace or "", metadata.get("name", ""))
            body = {**body, "metadata": metadata}
            bound = bind(self._api, pods, key, body, dry_run=options.dry_run)
            return json_answer({**self._success(bound), "code": 201}, 201)
        entry = self._api.create(kind, target.namespace or "", body, options)
        return self._answer_one(target, entry, form, 201, options.warnings)

    async def _post_subresource(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        _check_verb(target, "create")
        negotiate(request.headers.get("Accept", ""), target.kind, tables=False)
        options = _write_options(request, "Create")
        content, media_type = await _read(request), _media_type(request)
        body = plain_body(content, media_type, _body_kind(target), self._api.kinds, options)
        if target.subresource == "token":
            tokens = self._auth_filters.authenticator.tokens
            return json_answer(issue_token(self._api, tokens, target.kind, target.key, body), 201)
        if target.subresource == "binding":
            entry = bind(self._api, target.kind, target.key, body, dry_run=options.dry_run)
        else:
            query = dict(request.query)
            entry = evict(self._api, target.kind, target.key, body, query, user=request[_USER])
        answer = json_answer({**self._success(entry), "code": 201}, 201)
        for text in options.warnings:
            _warn(answer, text)
        return answer

    def _without_process(self, target: RequestInfo) -> StatusError:
        """The refusal of what only a process can do, once the pod exists."""
        self._api.get(target.kind, *target.key)
        return no_process(target.kind, target.name, _NEEDS_PROCESS[target.subresource])

    async def _put(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        kind = target.kind
        if not target.name or "update" not in kind.verbs:
            raise method_not_allowed()
        _check_verb(target, "update")
        form = negotiate(request.headers.get("Accept", ""), kind)
        options = _write_options(request, "Update")
        content, media_type = await _read(request), _media_type(request)
        if target.subresource == "scale":
            scale = plain_body(content, media_type, "Scale", self._api.kinds, options)
            return json_answer(write_scale(self._api, kind, target.key, scale, options))
        body = object_body(content, media_type, kind, self._api.kinds)
        note_duplicates(content, media_type, body, options)
        known = self._api.store.collection(kind.storage_name).get(target.key)
        if known is None and kind.create_on_update:
            self._check_create(request, target)
            named = {**body, "metadata": {**(body.get("metadata") or {}), "name": target.name}}
            entry = self._api.create(kind, target.namespace or "", named, options)
            return self._answer_one(target, entry, form, 201, options.warnings)
        entry = self._api.update(kind, target.key, body, options, subresource=target.subresource)
        return self._answer_one(target, entry, form, 200, options.warnings)

    def _check_create(self, request: web.BaseRequest, target: RequestInfo) -> None:
        """An update that creates needs the right to create, too."""
        kind = target.kind
        asked = Attributes(
            "create", kind.group, kind.version, kind.plural, "", target.name, target.namespace or ""
        )
        self._auth_filters.check(request[_USER], asked)

    async def _patch(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        kind = target.kind
        if not target.name or "patch" not in kind.verbs:
            raise method_not_allowed()
        _check_verb(target, "patch")
        media_type = _media_type(request)
        if media_type not in _PATCHES:
            raise unsupported_patch(kind)
        form = negotiate(request.headers.get("Accept", ""), kind)
        applies = media_type == patching.APPLY_PATCH
        options = _write_options(request, "Patch", applies=applies)
        if applies:
            content = await _read(request)
            if self._api.store.collection(kind.storage_name).get(target.key) is None:
                self._check_create(request, target)
            return self._apply(content, target, form, options)
        content = await _read(request)
        try:
            patch = json_of(content)
        except JsonError as error:
            raise patching.undecodable(media_type, str(error)) from error
        note_duplicates(content, media_type, patch, options)
        if target.subresource == "scale":
            scale = patch_scale(self._api, kind, target.key, patch, media_type, options)
            return json_answer(scale)
        entry = self._api.patch(
            kind, target.key, patch, media_type, options, subresource=target.subresource
        )
        return self._answer_one(target, entry, form, 200, options.warnings)

    def _apply(
        self, content: bytes, target: RequestInfo, form: ResponseFormat, options: WriteOptions
    ) -> Answer:
        config = apply_body(content, options)
        if target.subresource == "scale":
            return json_answer(apply_scale(self._api, target.kind, target.key, config, options))
        done = apply(self._api, target.kind, target.key, config, options, target.subresource)
        status = 201 if done.created else 200
        return self._answer_one(target, done.entry, form, status, options.warnings)

    async def _delete(self, request: web.BaseRequest, target: RequestInfo) -> Answer:
        kind = target.kind
        verb = "delete" if target.name else "deletecollection"
        if verb not in kind.verbs or target.subresource:
            raise method_not_allowed()
        if verb == "deletecollection" and kind.namespaced and target.namespace is None:
            raise method_not_allowed()
        negotiate(request.headers.get("Accept", ""), kind)
        content = await _read(request)
        body = delete_options_body(content, _media_type(request)) if content else None
        query = dict(request.query)
        options = replace(parse_delete_options(body, query), user=request[_USER])
        if not target.name:
            return await self._delete_many(target, query, options)
        deletion = delete(self._api, kind, target.key, options)
        if deletion.gone and not kind.answers_delete_with_object:
            details = {
                "name": target.name,
                **({"group": kind.group} if kind.group else {}),
                "kind": kind.plural,
                "uid": deletion.entry.obj["metadata"]["uid"],
            }
            return json_answer({**self._success(deletion.entry), "details": details})
        return self._answer_one(target, deletion.entry, PLAIN, 200, [])

    async def _delete_many(
        self, target: RequestInfo, query: dict[str, str], options: DeleteOptions
    ) -> Answer:
        kind = target.kind
        wanted = parse_list_options(
            kind,
            target.namespace,
            "",
            {name: query[name] for name in _CHOOSES if name in query},
        )
        await self._wait_for_revision(wanted.revision)
        page = list_page(self._api.store, kind, wanted)
        deleted = delete_collection(self._api, kind, page.entries, options)
        pieces = self._renderer.many(kind, ListPage(deleted, page.revision), PLAIN)
        return body_answer(b"".join(pieces), PLAIN)

    def _success(self, entry: Entry) -> JsonObject:
        """A Status that a write was done; from 1.38 on with the version that the write made."""
        versioned = holds(VERSIONED_ANSWERS, self._api.release)
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(entry.revision)} if versioned else {},
            "status": "Success",
        }

    def _answer_one(
        self,
        target: RequestInfo,
        entry: Entry,
        form: ResponseFormat,
        status: int,
        warnings: list[str],
    ) -> Answer:
        response = body_answer(
            self._renderer.one(target.kind, entry, form.for_one(target.kind)), form, status
        )
        for warning in warnings:
            _warn(response, warning)
        return response


def _is_long_running(request: web.BaseRequest, parts: list[str]) -> bool:
    """Whether a request has no deadline: a watch, and what goes on as long as a process.

    kube-apiserver looks at this before it knows the user or whether the path exists.
    """
    is_watch = request.method == "GET" and flag(request.query, "watch")
    first = _DOCUMENT_DEPTH.get(parts[0] if parts else "", len(parts))
    of_resource = parts[first:]
    if of_resource[:1] == ["namespaces"]:
        of_resource = of_resource[2:]
    return is_watch or of_resource[:1] == ["watch"] or bool({*of_resource[2:]} & {*_NEEDS_PROCESS})


async def _read(request: web.BaseRequest) -> bytes:
    """The body of a request; what costs much to read of it is read beside other requests."""
    content = await request.read()
    await read_ahead(content, _media_type(request))
    return content


def _check_verb(target: RequestInfo, verb: str) -> None:
    if not target.subresource:
        return
    found = target.kind.subresource(target.subresource)
    if found is None or verb not in found.verbs:
        raise method_not_allowed()


def _body_kind(target: RequestInfo) -> str:
    found = target.kind.subresource(target.subresource)
    return found.kind if found is not None else ""


def _write_options(request: web.BaseRequest, verb: str, *, applies: bool = False) -> WriteOptions:
    user_agent = request.headers.get("User-Agent", "")
    options = write_options(request.query, verb, user_agent, applies=applies)
    options.user = request[_USER]
    request[_WARNINGS] = options.warnings
    return options


def _media_type(request: web.BaseRequest) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip()


def _warn(answer: Answer, text: str) -> None:
    """Add a warning once; of more than 4,096 characters each is cut at 256 (`AddWarning`)."""
    warned = answer.setdefault(_WARNED, _Warned())
    if text in warned.texts or (warned.cut and warned.characters >= _MAX_WARNING_CHARACTERS):
        return
    warned.texts[text] = None
    if warned.cut or warned.characters + len(text) <= _MAX_WARNING_CHARACTERS:
        _add_warning(answer, warned, text)
        return
    warned.cut, warned.characters = True, 0
    answer.headers.popall("Warning", None)
    for each in warned.texts:
        _add_warning(answer, warned, each)


def _add_warning(answer: Answer, warned: _Warned, text: str) -> None:
    shown = text[:_MAX_CUT_WARNING_CHARACTERS] if warned.cut else text
    warned.characters += len(shown)
    answer.headers.add("Warning", f'299 - "{_quoted(shown)}"')


def _quoted(text: str) -> str:
    """The text inside quotation marks of a header, which has no place for control characters."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def _failure(error: StatusError) -> web.Response:
    response = json_answer(error.body(), error.code)
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def while_connected(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """Return a handler that raises no error of a connection once its client is gone."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionError:
            if request.transport is None or request.transport.is_closing():
                return web.Response()  # aiohttp finds that it cannot be sent, which is no error
            raise

    return handle
