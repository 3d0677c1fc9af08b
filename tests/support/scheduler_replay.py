"""Plays a recorded scenario of kube-scheduler to Stellwerk, and writes down what Stellwerk does.

The whole operator (`stellwerk.app.run`: kopf's watches, client, recorder) runs against an embedded
cluster over loopback, in virtual time. Invariant: the operator sees what kube-scheduler saw at the
time at which it saw it, and every request of its own that changes something is written down.
"""

import asyncio
import gc
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
from aiohttp import web

from stellwerk import app
from stellwerk.handlers.delivery import Delivery
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.serving.exposition import exposition
from stellwerk.serving.port import PortOptions
from stellwerk_cli.convert.conversion import convert
from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apimachinery.protobuf import open_envelope, read_message
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.definitions import profile_definition
from tests.support.recorded_extender import RECORDED_ADDRESS, RecordedExtender
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.skipped_time import run_skipping_over_sockets

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ANSWERS: Final = {"POST": HTTPStatus.CREATED}
_REPLAY: Final = "replay"
"""The User-Agent of requests that the test makes."""
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PROFILES: Final = f"/apis/{API_VERSION}/{PLURAL}"
_POLICIES: Final = "/admissionregistration.k8s.io/"
_POD_GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
_ROLES: Final = "/apis/rbac.authorization.k8s.io/"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
_START_SECONDS: Final = 30.0
_OBSERVATION_SECONDS: Final = 0.005
"""So long an observation took; the next action followed it at once."""
_LONGEST_BACKOFF_SECONDS: Final = 11.0
"""Groups are not tried again at once: what is recorded at the end comes when their backoff ends."""
_SEED: Final = 1
"""Of uids, by which equal victims are told apart."""
_SETTLE_SECONDS: Final = 0.001
"""Virtual: whatever can happen at once has happened."""


@dataclass
class Outcome:
    """What Stellwerk did."""

    requests: list[JsonObject] = field(default_factory=list)
    """Those that change something: t, verb, uri, requestObject, status."""
    attempts: list[tuple[float, str]] = field(default_factory=list)
    """(t, pod) for each pod that was taken up."""
    observations: list[JsonObject] = field(default_factory=list)
    events: list[JsonObject] = field(default_factory=list)
    final_pods: dict[str, JsonObject] = field(default_factory=dict)
    final_pod_groups: dict[str, JsonObject] = field(default_factory=dict)
    final_objects: list[JsonObject] = field(default_factory=list)
    extender_calls: list[JsonObject] = field(default_factory=list)
    names_of_uids: dict[str, str] = field(default_factory=dict)
    extender_address: str = ""
    metrics_before: str = ""
    metrics_after: str = ""


def play(
    recording: JsonObject,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tick_seconds: float = 0.5,
) -> Outcome:
    """Play one scenario from beginning to end.

    Args:
        recording: as it was read.
        folder: for files.
        monkeypatch: puts the clock, and ears, into the operator.
        tick_seconds: where in a recorded second the clock of kube-scheduler's backoffs ticked.
    """

    async def replay(clock: VirtualClock) -> Outcome:
        options = app.RunOptions(
            kubeconfig=str(folder / "kubeconfig"),
            port=PortOptions("127.0.0.1:0", plain_http=True),
            is_own_cluster=True,
        )
        return await _Replay(recording, options, tick_seconds, clock).run(monkeypatch)

    # The operator takes the collector for its own process's.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    return run_skipping_over_sockets(replay)


class _Replay:
    def __init__(
        self,
        recording: JsonObject,
        options: app.RunOptions,
        tick_seconds: float,
        clock: VirtualClock,
    ) -> None:
        self._clock = clock
        self._metrics = Metrics()
        self._recording = recording
        self._options = options
        self._tick_seconds = tick_seconds
        self._outcome = Outcome()
        self._origin_seconds = 0.0
        self._binding_forbidden = False
        without_helpers = ClusterOptions(
            controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED
        )
        gates = recording.get("featureGates", {"apiServer": "", "scheduler": ""})
        without_helpers = replace(without_helpers, feature_gates=feature_gates(gates["apiServer"]))
        if without_helpers.feature_gates:
            # The taint of a new node is taken off by the step after; here there is time to try
            # pods in between.
            untainted = DEFAULT_PLUGINS - {"TaintNodesByCondition"}
            without_helpers = replace(without_helpers, admission_plugins=untainted, seed=_SEED)
        self._gangs = "GangScheduling=true" in gates["scheduler"]
        self._operator: asyncio.Task[None]
        self._refused_bindings: frozenset[str] = frozenset()
        self._cluster = EmbeddedCluster(0, clock=clock, options=without_helpers)
        self._names_of_recorded_uids = dict(names_of_uids(recording))
        self._session: aiohttp.ClientSession
        self._extender: RecordedExtender
        self._groups_listed = asyncio.Event()

    async def run(self, monkeypatch: pytest.MonkeyPatch) -> Outcome:
        self._listen(monkeypatch)
        calls = self._recording.get("extenderCalls", [])
        async with (
            self._cluster,
            RecordedExtender(calls, self._with_present_uids, self._bind) as self._extender,
            aiohttp.ClientSession(
                self._cluster.url, headers={"User-Agent": _REPLAY}
            ) as self._session,
        ):
            write_operator_kubeconfig(self._cluster, Path(self._options.kubeconfig or ""))
            await self._set_up()
            self._operator = asyncio.create_task(app.run(self._options))
            try:
                await self._wait_until_ready()
                await self._play_timeline()
            finally:
                await self._stop_operator()
            await self._collect()
        return self._outcome

    async def _stop_operator(self) -> None:
        self._operator.cancel()
        with suppress(asyncio.CancelledError):
            await self._operator

    # --- what is written down -------------------------------------------------------------------

    def _listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "SystemClock", lambda: self._clock)
        monkeypatch.setattr(app, "Metrics", lambda: self._metrics)
        schedule_one = ScheduleOne.schedule_one

        async def noted(this: ScheduleOne, queued: Any) -> None:
            self._outcome.attempts.append((self._now(), queued.pod.key))
            await schedule_one(this, queued)

        monkeypatch.setattr(ScheduleOne, "schedule_one", noted)
        end_listing = Delivery.end_listing

        async def ended(delivery: Delivery) -> None:
            await end_listing(delivery)
            if delivery.watched.plural == "podgroups":
                self._groups_listed.set()

        monkeypatch.setattr(Delivery, "end_listing", ended)
        server = self._cluster._server  # noqa: SLF001 the only place that sees every request
        monkeypatch.setattr(server, "handle", self._recorded(server.handle))

    def _recorded(
        self, handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        async def recorded(request: web.BaseRequest) -> web.StreamResponse:
            verb = _VERBS.get(request.method)
            ours = request.headers.get("User-Agent") != _REPLAY
            if ours and self._gangs and (request.method, request.path) == ("GET", "/api/v1/pods"):
                # The clock stands still at the start: what comes first is first in the queue.
                await self._groups_listed.wait()
            if verb is None or not ours or not _is_of_interest(request.path):
                return await handle(request)
            body = await request.read()
            entry = {
                "t": self._now(),
                "verb": verb,
                "uri": request.path_qs,
                "requestObject": _object_in(body, self._cluster.api.kinds) if body else None,
            }
            self._outcome.requests.append(entry)
            if self._binding_forbidden and request.path.endswith("/binding"):
                response: web.StreamResponse = _forbidden(request.path)
            elif request.path in self._refused_bindings:
                response = self._recorded_refusal(request.path)
            else:
                response = await handle(request)
            entry["status"] = response.status
            return response

        return recorded

    def _now(self) -> float:
        return self._clock.monotonic() - self._origin_seconds

    # --- what happens ---------------------------------------------------------------------------

    async def _set_up(self) -> None:
        await self._request("POST", _DEFINITIONS, profile_definition())
        for manifest in convert(self._config()).manifests:
            if self._gangs:
                manifest["spec"]["gangScheduling"] = True
            await self._request("POST", _PROFILES, manifest)
        if not self._recording["setup"]:
            for obj in self._recording["initialObjects"]:
                await self._create_node(obj)
        for step in self._recording["setup"]:
            await self._act(step)

    def _config(self) -> JsonObject:
        """The recorded configuration, with the extender where it is now."""
        recorded = {**self._recording["schedulerConfig"]}
        del recorded["leaderElection"]
        text = orjson.dumps(recorded).decode()
        config: JsonObject = orjson.loads(text.replace(RECORDED_ADDRESS, self._extender.address))
        return config

    async def _create_node(self, obj: JsonObject) -> None:
        metadata = {key: obj["metadata"][key] for key in ("name", "labels")}
        await self._request("POST", "/api/v1/nodes", {**obj, "metadata": metadata})
        path = f"/api/v1/nodes/{metadata['name']}"
        await self._request("PATCH", path, {"spec": {"taints": None}})

    async def _wait_until_ready(self) -> None:
        async with asyncio.timeout(_START_SECONDS):
            while not await self._profiles_active():
                if self._operator.done():
                    self._operator.result()
                await asyncio.sleep(_SETTLE_SECONDS)
        # Profiles are reported active when the clock of the backoffs begins to tick.
        await asyncio.sleep(1 - self._tick_seconds)
        self._origin_seconds = self._clock.monotonic()
        self._outcome.metrics_before = exposition(self._metrics).decode()

    async def _profiles_active(self) -> bool:
        listed = await self._request("GET", _PROFILES)
        return all(
            any(
                condition["type"] == "Active" and condition["status"] == "True"
                for condition in profile.get("status", {}).get("conditions", ())
            )
            for profile in listed["items"]
        )

    async def _play_timeline(self) -> None:
        steps = [(step["t"], self._act, step) for step in self._recording["actions"]]
        steps += [
            (step["t"] - _OBSERVATION_SECONDS, self._observe, step)
            for step in self._recording["observations"]
        ]
        for at_seconds, do, step in sorted(steps, key=lambda each: each[0]):
            await asyncio.sleep(max(0.0, at_seconds - self._now()))
            await do(step)
        await asyncio.sleep(max(1.0, self._recording["recordedForSeconds"] - self._now()))
        if self._gangs:
            await asyncio.sleep(_LONGEST_BACKOFF_SECONDS)
        self._outcome.metrics_after = exposition(self._metrics).decode()

    async def _act(self, step: JsonObject) -> None:
        if step.get("restartScheduler"):
            await self._stop_operator()
            await asyncio.sleep(max(0.0, step["readyAgain"] - self._now()))
            self._operator = asyncio.create_task(app.run(self._options))
            return
        if _POLICIES in step["path"]:
            # There are no such policies here; what the one that was recorded refuses is acted out.
            bound = step["method"] == "POST"
            self._refused_bindings = self._recorded_refusals() if bound else frozenset()
            return
        if step["path"].startswith(_ROLES):
            # The operator has the rights of the manifests; what follows from these is acted out.
            rules = orjson.dumps(step["body"]["rules"])
            self._binding_forbidden = b"pods/binding" not in rules
            return
        body = self._with_present_uids(step.get("body"))
        await self._request(step["method"], step["path"], body, step.get("contentType"))
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _observe(self, step: JsonObject) -> None:
        seen = {"note": step["note"], "pods": await self._pods()}
        self._outcome.observations.append({**seen, "podGroups": await self._pod_groups()})

    async def _bind(self, namespace: str, name: str, node_name: str) -> None:
        target = {"kind": "Node", "name": node_name}
        body = {"metadata": {"name": name}, "target": target}
        await self._request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body)

    async def _collect(self) -> None:
        outcome = self._outcome
        outcome.final_pods = await self._pods()
        outcome.final_pod_groups = await self._pod_groups()
        outcome.events = (await self._request("GET", _EVENTS))["items"]
        outcome.extender_calls = self._extender.calls
        outcome.extender_address = self._extender.address
        objects = list(self._stored())
        outcome.final_objects = objects
        seen = [objects, outcome.requests, outcome.events, outcome.extender_calls]
        outcome.names_of_uids = dict(names_of_uids(seen))

    # --- the cluster ----------------------------------------------------------------------------

    async def _request(
        self, method: str, path: str, body: Any = None, content_type: str | None = None
    ) -> JsonObject:
        default = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": content_type or default}
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(method, path, data=data, headers=headers) as response:
            answer: JsonObject = await response.json(content_type=None)
            assert response.status < HTTPStatus.BAD_REQUEST, (method, path, answer)
        return answer

    async def _pods(self) -> dict[str, JsonObject]:
        listed = await self._request("GET", "/api/v1/namespaces/default/pods")
        return {pod["metadata"]["name"]: _state(pod) for pod in listed["items"]}

    async def _pod_groups(self) -> dict[str, JsonObject]:
        """The status of each group; none where the kind is not served."""
        if self._cluster.api.kinds.find("scheduling.k8s.io", "v1alpha2", "podgroups") is None:
            return {}
        listed = await self._request("GET", _POD_GROUPS)
        return {group["metadata"]["name"]: group["status"] for group in listed["items"]}

    def _recorded_refusals(self) -> frozenset[str]:
        """The bindings that were refused, by path."""
        return frozenset(
            each["uri"]
            for each in self._recording["schedulerRequests"]
            if each["uri"].endswith("/binding") and each["status"] >= HTTPStatus.BAD_REQUEST
        )

    def _recorded_refusal(self, path: str) -> web.Response:
        for each in self._recording["schedulerRequests"]:
            if each["uri"] == path and "responseObject" in each:
                body = orjson.dumps(each["responseObject"])
                return web.Response(
                    status=each["status"], body=body, content_type="application/json"
                )
        raise AssertionError(f"no refusal of {path} was recorded")

    def _stored(self) -> Iterator[JsonObject]:
        store = self._cluster.store
        for name in store.names():
            for entry in store.collection(name).entries():
                yield entry.obj

    def _with_present_uids(self, value: Any) -> Any:
        """What was recorded, with the uids that the objects named in it have here."""
        present: dict[str, str] = {
            obj["metadata"]["name"]: obj["metadata"]["uid"]
            for obj in self._stored()
            if obj.get("kind") != "Event"
        }

        def replaced(match: re.Match[str]) -> str:
            name = self._names_of_recorded_uids.get(match[0], "")
            return present.get(name, match[0])

        return orjson.loads(_UID.sub(replaced, orjson.dumps(value).decode()))


def _object_in(body: bytes, kinds: KindTable) -> JsonObject:
    """The object in the body of a request: the operator sends events in protobuf."""
    if body.startswith(b"{"):
        found: JsonObject = orjson.loads(body)
        return found
    envelope = open_envelope(body)
    kind = kinds.resource("events", "events.k8s.io")
    assert (envelope.kind, envelope.api_version) == (kind.kind, "events.k8s.io/v1")
    return {
        "kind": envelope.kind,
        "apiVersion": envelope.api_version,
        **read_message(kind.type_name, envelope.raw),
    }


def names_of_uids(value: Any) -> Iterator[tuple[str, str]]:
    """(uid, name) wherever both stand side by side."""
    if isinstance(value, Mapping):
        uid, name = value.get("uid"), value.get("name")
        if isinstance(uid, str) and isinstance(name, str):
            yield uid, name
        for each in value.values():
            yield from names_of_uids(each)
    elif isinstance(value, list):
        for each in value:
            yield from names_of_uids(each)


def _is_of_interest(path: str) -> bool:
    """Whether kube-scheduler could have made such a request: profiles are Stellwerk's own."""
    return not path.startswith((_PROFILES, "/apis/authorization.k8s.io/"))


def _state(pod: JsonObject) -> JsonObject:
    """A pod as observations show it."""
    spec, status, metadata = pod["spec"], pod["status"], pod["metadata"]
    state = {"nodeName": spec.get("nodeName"), "phase": status.get("phase")}
    for key in ("conditions", "nominatedNodeName"):
        if status.get(key):
            state[key] = status[key]
    if metadata.get("deletionTimestamp"):
        state["deletionTimestamp"] = metadata["deletionTimestamp"]
    return state


def _forbidden(path: str) -> web.Response:
    """The answer to a scheduler without the right to bind."""
    namespace, name = path.split("/")[4], path.split("/")[6]
    message = (
        f'pods "{name}" is forbidden: User "system:kube-scheduler" cannot create resource '
        f'"pods/binding" in API group "" in the namespace "{namespace}"'
    )
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Forbidden",
        "details": {"name": name, "kind": "pods"},
        "code": 403,
    }
    return web.Response(
        status=HTTPStatus.FORBIDDEN, body=orjson.dumps(status), content_type="application/json"
    )
