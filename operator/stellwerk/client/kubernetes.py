"""The Kubernetes API as the operator uses it: everything but the watches.

`scheduler` binds, patches and deletes through it (the ClusterClient protocol of `framework`),
`handlers` list and ask for rights, `event_recorder` writes events. Invariant: whatever the API
answers is a returned value or one error of `stellwerk_kube.errors`; no exception of aiohttp leaves.
"""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from typing_extensions import override

from stellwerk.client.connection import open_fence
from stellwerk.client.event_recorder import EventSink
from stellwerk.client.lease import ApiLease
from stellwerk.client.paging import pages
from stellwerk.client.transport import ApiRequest, RequestClass, RetryPolicy, Transport
from stellwerk.framework.services import ClusterClient
from stellwerk_kube.compatibility import server_version
from stellwerk_kube.errors import (
    AccessRefusedError,
    ApiError,
    Conflict,
    NotFound,
    NotLeader,
    OutcomeUnknown,
    UnreachableError,
)
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.protobuf import event_body

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from stellwerk.client.allowed_writes import AllowedWrites
    from stellwerk.client.connection import Fence
    from stellwerk.client.credentials import Credentials
    from stellwerk.metrics import Metrics
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

_MAX_LIST_TRIES: Final = 3
"""Times that a list is begun by pages, whose version the API server may forget meanwhile (410)."""
_FIRST_PAUSE_SECONDS: Final = 0.25
"""First pause before an API server that is away is asked again: one that is restarted beside the
operator is often there after a second."""
_MAX_PAUSE_SECONDS: Final = 5.0
"""Longest pause between two such questions. If the operator ended instead, kubelet would make it
five minutes."""
_FAILURES_PER_LINE: Final = 12
"""Failed questions for one line of the log: a line a minute at the longest pause."""
_DISCOVERY: Final = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
)
"""All groups with their versions and resources in one document, from servers that have it."""
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces"
_REVIEWS: Final = ("/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/")
"""Questions that are put as a POST; they store nothing."""

Items = list[JsonObject]


class KubernetesClient(ClusterClient, EventSink):
    """A client of one cluster. Close it, or use it as a context manager."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
        retry: RetryPolicy | None = None,
        fence: Fence | None = None,
        allowed_writes: AllowedWrites | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            credentials: the cluster's address, and credentials for it.
            clock: for latencies.
            metrics: counts requests.
            jitter: returns a number in [0, 1); spreads retries.
            retry: how patient to be.
            fence: holds writes back while the lease is not held; open by default.
            allowed_writes: those of a process that only observes; None: all.
        """
        self._transport = Transport(
            credentials,
            clock=clock,
            metrics=metrics,
            jitter=jitter,
            retry=retry or RetryPolicy(),
            fence=fence or open_fence(),
            allowed_writes=allowed_writes,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    async def check_reachable(self) -> str:
        """Return the server's version, as `server_version` says it.

        Raises:
            UnreachableError: no API server answers there.
            AccessRefusedError: it does not know us, or refuses to tell its version.
        """
        try:
            version = await self._transport.send(ApiRequest("GET", "/version"), attempts=1)
        except ApiError as error:
            cause = f"{error.status or error.reason} {error.message}".rstrip()
            refused = error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
            raise (AccessRefusedError if refused else UnreachableError)(
                f"no usable Kubernetes API at {self._transport.server}: {cause}"
            ) from error
        return server_version(version)

    def lease(
        self, namespace: str, name: str, annotations: Callable[[], Mapping[str, str]] = dict
    ) -> ApiLease:
        """Return the lease of that name, whether it exists or not.

        `annotations` are what the holder writes into it, as of the moment of each write.
        """
        return ApiLease(self._transport, namespace, name, annotations)

    # What scheduling needs.

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Assign a pod to a node.

        Raises:
            ApiError: Conflict if the pod is bound, gated, terminating or another one by now;
                NotFound if it is gone; OutcomeUnknown if it may have been bound all the same.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"kind": "Node", "name": node_name},
        }
        request = ApiRequest(
            "POST",
            f"{pod_path(namespace, name)}/binding",
            body,
            act=f"bind {namespace}/{name} to {node_name}",
            class_=RequestClass.SCHEDULING,
            wants_answer=False,
        )
        try:
            await self._transport.send(request)
        except (NotFound, NotLeader):
            raise
        except Conflict as conflict:
            # The attempt whose answer was lost may be the one that bound it.
            if conflict.earlier is None or not await self._is_bound(
                namespace, name, uid, node_name, conflict
            ):
                raise
        except ApiError as error:
            if error.may_have_been_applied:
                raise OutcomeUnknown.of(error) from error
            raise

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        """Apply a strategic merge patch to a pod's status; if not urgent, behind other calls.

        Raises:
            ApiError: the patch was refused.
        """
        request = ApiRequest(
            "PATCH",
            f"{pod_path(namespace, name)}/status",
            patch,
            act=f"patch the status of {namespace}/{name}",
            content_type=STRATEGIC_MERGE_PATCH,
            class_=RequestClass.SCHEDULING if urgent else RequestClass.REPORTS,
            wants_answer=False,
        )
        await self._transport.send(request)

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Delete exactly this pod, with the grace period that it asks for itself.

        Returns whether it is gone at once; else it is terminating.

        Raises:
            ApiError: Conflict if the name belongs to another pod by now; NotFound.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        request = ApiRequest(
            "DELETE",
            pod_path(namespace, name),
            body,
            act=f"delete {namespace}/{name}",
            class_=RequestClass.SCHEDULING,
        )
        answer = (await self._transport.send(request)).get("metadata") or {}
        return not answer.get("deletionGracePeriodSeconds") and not answer.get("finalizers")

    # Everything else.

    @override
    async def get(self, path: str) -> JsonObject:
        """Return what lies at a path of the API.

        Raises:
            ApiError: it cannot be had.
        """
        accept = _DISCOVERY if path == "/apis" else ""
        return await self._transport.send(ApiRequest("GET", path, accept=accept))

    @property
    def server(self) -> str:
        """The base URL of the API."""
        return self._transport.server

    def watch(self, path: str) -> AsyncGenerator[bytes]:
        """Give the events of a watch, a line each, until the server ends it.

        Raises:
            ApiError: it was refused, or broke.
        """
        return self._transport.stream(path)

    def lines(self, path: str) -> AsyncGenerator[bytes]:
        """Give the lines of a text, such as the counters of /metrics.

        Raises:
            ApiError: it was refused, or broke.
        """
        return self._transport.stream(path)

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[Items, str]:
        """Return all items of a collection, read in pages, and its resourceVersion.

        Raises:
            ApiError: it cannot be listed.
        """
        for _ in range(_MAX_LIST_TRIES):
            try:
                return await self._list_pages(path, limit)
            except ApiError as error:
                if error.status != HTTPStatus.GONE:
                    raise
        # The pages expire faster than they can be read: take it all at once.
        return await self._list_pages(path, limit=0)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """POST an object to a collection and return it as stored.

        Raises:
            ApiError: it was refused.
        """
        fenced = not path.startswith(_REVIEWS)
        return await self._transport.send(ApiRequest("POST", path, body, fenced=fenced))

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """PUT a whole object and return it as stored.

        Raises:
            ApiError: it was refused.
        """
        return await self._transport.send(ApiRequest("PUT", path, body))

    @override
    async def delete(self, path: str, uid: str) -> None:
        """DELETE an object if it has this uid, or any uid where none is given.

        Raises:
            ApiError: Conflict if the name belongs to another object by now; NotFound.
        """
        body: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            body["preconditions"] = {"uid": uid}
        await self._transport.send(ApiRequest("DELETE", path, body))

    @override
    async def patch(
        self, path: str, body: Mapping[str, Any], *, content_type: str = MERGE_PATCH
    ) -> JsonObject:
        """Patch an object and return it as stored.

        Raises:
            ApiError: it was refused.
        """
        return await self._transport.send(
            ApiRequest("PATCH", path, body, content_type=content_type)
        )

    @override
    async def write_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        """Create an events.k8s.io event, behind no binding.

        Raises:
            ApiError: it was refused.
        """
        path = f"{_EVENTS}/{quote(namespace, safe='')}/events"
        request = ApiRequest(
            "POST",
            path,
            event,
            protobuf=event_body,
            class_=RequestClass.EVENTS,
            wants_answer=False,
        )
        await self._transport.send(request)

    @override
    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        """Apply a strategic merge patch to an event, behind no binding.

        Raises:
            ApiError: it was refused; NotFound once the event has expired.
        """
        path = f"{_EVENTS}/{quote(namespace, safe='')}/events/{quote(name, safe='')}"
        await self._transport.send(
            ApiRequest(
                "PATCH", path, patch, content_type=STRATEGIC_MERGE_PATCH, class_=RequestClass.EVENTS
            )
        )

    async def _is_bound(
        self, namespace: str, name: str, uid: str, node_name: str, refused: Conflict
    ) -> bool:
        """Return whether a binding that was refused had been made before.

        Raises:
            OutcomeUnknown: the pod cannot be read.
        """
        try:
            pod = await self.get(pod_path(namespace, name))
        except NotFound:
            return False
        except ApiError as error:
            raise OutcomeUnknown.of(refused) from error
        bound_to = pod.get("spec", {}).get("nodeName")
        return bool(bound_to == node_name and pod["metadata"]["uid"] == uid)

    async def _list_pages(self, path: str, limit: int) -> tuple[Items, str]:
        items: Items = []
        version = ""

        def get(page_path: str) -> Awaitable[JsonObject]:
            return self._transport.send(ApiRequest("GET", page_path, act=f"list {path}"))

        async for page in pages(get, path, limit=limit):
            items += page.get("items") or ()
            version = (page.get("metadata") or {}).get("resourceVersion", "")
        return items, version


class FirstAnswer:
    """Waits at the start until an API server answers, and says meanwhile that it does not.

    Nothing that a server does ends the wait: it may be restarted, its name may not resolve yet, and
    it may refuse credentials that are about to be renewed.
    """

    def __init__(self, client: KubernetesClient, clock: Clock, jitter: Callable[[], float]) -> None:
        """Ask nothing yet; `jitter` is in [0, 1) and spreads the questions of replicas."""
        self._client = client
        self._clock = clock
        self._jitter = jitter
        self._began_seconds = clock.monotonic()
        self._failure = "it has not been asked yet"
        self._has_come = False

    def unready(self) -> str | None:
        """Return what is waited for; None: the server has answered."""
        if self._has_come:
            return None
        seconds = self._clock.monotonic() - self._began_seconds
        return f"waiting for {seconds:.0f} s: {self._failure}"

    async def version(self) -> str:
        """Return the server's version, however long that takes."""
        pause_seconds, failures = _FIRST_PAUSE_SECONDS, 0
        while True:
            try:
                version = await self._client.check_reachable()
            except UnreachableError as error:
                if failures % _FAILURES_PER_LINE == 0:
                    logger.warning("waiting for the API server: %s", error)
                self._failure = str(error)
                failures += 1
            else:
                if failures:
                    logger.info("the API server answers again after %d failed requests", failures)
                self._has_come = True
                return version
            await asyncio.sleep(pause_seconds * (1.0 + self._jitter()))
            pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)


def pod_path(namespace: str, name: str) -> str:
    """Return the API path of a pod."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
