"""Answers the questions of commands from one reading of a cluster, in place of an operator's port.

`commands.door` opens it. An Operator that may not write is filled as by a watch, with nodes, pods
and the kinds that the question needs; the profiles that serve are those of the configuration
assumed. Invariant: no request but GET is sent, and an answer names its reading.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random  # noqa: TID251 breaks ties of an answer
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from stellwerk.answers.answer import codec
from stellwerk.answers.reading import AssumedConfiguration, ClusterReading, KindLeftOut
from stellwerk.answers.what_if import Supposition
from stellwerk.client.operator_port import PortRefusal
from stellwerk.client.reading import ReadOnlyClient
from stellwerk.explain.attempt import take_out_own_copies
from stellwerk.explain.lists.claims import explain_claim
from stellwerk.explain.lists.devices import DevicesAsked, devices_page, explain_device
from stellwerk.explain.lists.nodes import NodesAsked, explain_node, nodes_page
from stellwerk.explain.lists.page import MAX_ENTRIES_PER_PAGE, Page, PodsAsked
from stellwerk.explain.reading import (
    after_extenders,
    explain_read_group,
    explain_read_pod,
    unbound_pods,
)
from stellwerk.explain.steps import OutOfTime, finished, suggested
from stellwerk.explain.what_if import what_if
from stellwerk.framework.watch_handlers import Lack
from stellwerk.journal.entries import WatchEvent
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk.profiles.spec.profile import LoadedProfile, load_profile
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.wiring import Operator, OperatorSettings
from stellwerk.world.world import profile_on
from stellwerk_cli.reading.assumed import Assumed, assumed_configuration
from stellwerk_cli.reading.needs import (
    DEVICES,
    KINDS,
    SPREAD,
    needed,
    without_blind_plugins,
)
from stellwerk_cli.reading.reader import BY_KIND, KindReader, Unread
from stellwerk_kube.clock import SystemClock, rfc3339_milliseconds
from stellwerk_kube.compatibility import is_newer_than_known
from stellwerk_kube.errors import ConfigurationError, ProfileError, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.offline_operator import deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stellwerk.answers.pod import PodExplanation
    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk.explain.steps import Result, Steps
    from stellwerk.framework.offline import Offline

MAX_LOCAL_COMPUTING_SECONDS: Final = 20.0
"""CPU time after which an answer ends with what it has, and says so. No decision waits for it."""
_MIN_PAUSE_FACTOR: Final = 10.0
"""A watched answer reads the cluster anew after this many times the duration of the last reading,
so that it asks the API server for a tenth of the time at most."""
_NOT_FOUND: Final = 404
_MAX_NAMESPACES: Final = 5
"""Namespaces whose services and controllers are listed one by one. Those of more are listed over
the whole cluster."""


class _Question(NamedTuple):
    """A question: the pods that are decided for it, the further kinds, and the answer."""

    pods: Callable[[Operator], Iterable[PodInfo]]
    kinds: frozenset[str]
    steps: Callable[[Operator], Steps[Any]]
    is_of_one_pod: bool = False
    """Whether extenders can be asked about it: it is about one pod."""


class LocalPort:
    """Questions to a cluster that is read once, or anew for an answer that is watched."""

    def __init__(
        self,
        client: KubernetesClient,
        config: str,
        why_no_operator: str,
        *,
        calls_extenders: bool = False,
    ) -> None:
        """Read nothing yet.

        Args:
            client: of the cluster, with the caller's credentials.
            config: a file or configmap/NAMESPACE/NAME with the scheduler's configuration, or empty.
            why_no_operator: for the answers, the reason for which no operator is asked.
            calls_extenders: the extenders of the configuration are asked about a pod.
        """
        self._calls_extenders = calls_extenders
        self._client = client
        self._config = config
        self._why_no_operator = why_no_operator
        self._cluster: _ReadCluster | None = None
        self._read_seconds = 0.0

    async def close(self) -> None:
        """End what the Operator of the last reading has begun."""
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def ask_json(self, path: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """The answer to a question of the operator's port, decided on the cluster as it was read.

        Raises:
            ConfigurationError: the question cannot be answered from a reading.
            PortRefusal: there is no such object.
            SchedulerError: the cluster cannot be read.
        """
        question = _question(path, body)
        began = time.monotonic()
        with _rare_collections():
            if self._cluster is None:
                self._cluster = _ReadCluster(
                    ReadOnlyClient(self._client), self._config, self._calls_extenders
                )
                await self._cluster.read_pods(await self._client.check_reachable())
            cluster = self._cluster
            await cluster.read_kinds(question)
            cluster.operator.world.cache.update_snapshot()
            self._read_seconds = time.monotonic() - began
            answer = _within(MAX_LOCAL_COMPUTING_SECONDS, question.steps(cluster.operator))
            if question.is_of_one_pod:
                answer = await cluster.with_extenders(answer)
        answer = replace(answer, read=cluster.reading(self._why_no_operator))
        return codec(type(answer)).as_json(answer)

    def progress(self) -> str:
        """The work that goes on, for the line of a command that waits."""
        cluster = self._cluster
        return "reading the cluster" if cluster is None else cluster.progress()

    async def renew(self) -> None:
        """Read the cluster anew for the next question, when the API server had a pause."""
        await asyncio.sleep(self._read_seconds * _MIN_PAUSE_FACTOR)
        await self.close()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Have no search for reference cycles inside: JSON has none, and a search looks at all pods."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _within(seconds: float, steps: Steps[Result]) -> Result:
    """The result of steps, which end with what they have after so much CPU time.

    Raises:
        SchedulerError: they have nothing then.
    """
    began, left = time.thread_time(), seconds
    try:
        while True:
            next(steps)
            if time.thread_time() - began > left:
                left = math.inf
                steps.throw(OutOfTime(f"the answer ends here: it has taken {seconds:g} s"))
    except StopIteration as ended:
        result: Result = ended.value
        return result
    except OutOfTime as over:
        raise SchedulerError(str(over)) from over


# --- the cluster ----------------------------------------------------------------------------------


@dataclass
class _ReadCluster:
    """An Operator that was filled from lists."""

    client: Offline
    config: str
    calls_extenders: bool = False
    clock: SystemClock = field(default_factory=SystemClock)
    unread: dict[str, Unread] = field(default_factory=dict)
    """The kinds that were needed and could not be read."""
    done: set[tuple[str, str]] = field(default_factory=set)
    """(kind, namespace) of what was read; an empty namespace stands for all."""
    named_nodes: set[str] = field(default_factory=set)
    """The nodes that pods name."""

    needs_classes: bool = False
    """Whether a pod has no priority of its own, but the one of its class."""

    def __post_init__(self) -> None:
        self.reader = KindReader(self.client)
        self.operator = Operator(
            self.client,
            self.client,
            Metrics(),
            self.clock,
            OperatorSettings(),
            numbers=random.Random,
        )
        self.assumed: Assumed | None = None
        self.version = self.read_at = ""

    async def close(self) -> None:
        """End the tasks of the Operator."""
        await self.operator.extenders.close()
        await self.operator.sources.close()
        self.operator.worker.close()

    def progress(self) -> str:
        """The objects that were read so far, in words."""
        counts = list(self.reader.counts.items())  # another thread asks
        # The last two: a line that is wider than the terminal cannot be written over.
        shown = [f"{number:,} {BY_KIND[kind].plural}" for kind, number in counts if number][-2:]
        read = ", ".join(shown)
        return f"reading the cluster: {read}" if read else "reading the cluster"

    async def read_pods(self, version: str) -> None:
        """Read nodes and pods, with the configuration that they are decided by."""
        self.version = version
        self.assumed = await assumed_configuration(self.client, version, self.config)
        profiles = self.operator.world.profiles
        profiles.compatibility, profiles.server_version = self.assumed.compatibility, version
        await self._read_profiles()
        self._serve()
        # Before pods: one without a priority would be held as it came until its class is known.
        await self._read("PriorityClass")
        await self._read("Node")
        self.read_at = rfc3339_milliseconds(self.clock.now())
        await self._read("Pod")
        cache = self.operator.world.cache
        if any(cache.node(name) is None for name in self.named_nodes):
            # A node that came meanwhile; one that is still not there is gone.
            await self._read("Node", self._known("Node"))

    async def read_kinds(self, question: _Question) -> None:
        """Read what the question needs beside nodes and pods."""
        world, pods = self.operator.world, list(question.pods(self.operator))
        kinds = question.kinds | (needed(world, pods) if pods else frozenset())
        self.needs_classes = self.needs_classes or "PriorityClass" in kinds
        namespaces = sorted({pod.namespace for pod in pods})
        for kind in KINDS:
            if kind not in kinds or kind in {PROFILE, "PriorityClass"}:
                continue
            is_local = kind in SPREAD and len(namespaces) <= _MAX_NAMESPACES
            for namespace in namespaces if is_local else [""]:
                if {(kind, namespace), (kind, "")}.isdisjoint(self.done):
                    await self._read(kind, namespace=namespace)
        self._serve()

    async def _read_profiles(self) -> None:
        """The SchedulerProfiles of a Stellwerk that the cluster has, or had."""
        self.profiles = list[JsonObject]()
        found = await self.reader.read(BY_KIND[PROFILE], self.profiles.append, self.profiles.clear)
        self.reader.counts.pop(PROFILE, None)
        if isinstance(found, Unread) and not found.absent:
            self.unread[PROFILE] = found

    def _known(self, kind: str) -> dict[str, JsonObject]:
        """The known objects of a kind, by uid, as the metadata that a deletion has."""
        operator, world = self.operator, self.operator.world
        if kind == "Node":
            return {node.name: {"name": node.name, "uid": ""} for node in world.cache.nodes()}
        if kind == "Pod":
            pods = [
                *world.cache.pods(),
                *(entry.newest for entry in world.queue.entries.values()),
                *operator.without_profile.pods.values(),
            ]
            return {
                pod.uid: {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
                for pod in pods
            }
        return {
            str(obj["metadata"].get("uid")): obj["metadata"] for obj in world.objects.list(kind)
        }

    async def _read(
        self, kind: str, stale: dict[str, JsonObject] | None = None, namespace: str = ""
    ) -> None:
        """Hand every object of a kind to the operator; what is `stale` and not there is gone."""
        gone = {} if stale is None else stale
        id_field = "name" if kind == "Node" else "uid"

        def take(obj: JsonObject) -> None:
            if gone:
                gone.pop(obj["metadata"].get(id_field), None)
            if kind == "Pod":
                spec = obj.get("spec") or {}
                if name := spec.get("nodeName"):
                    self.named_nodes.add(name)
                self.needs_classes = self.needs_classes or spec.get("priority") is None
            deliver(handlers, WatchEvent(0.0, kind, None, obj))

        def restart() -> None:
            gone.update(self._known(kind))

        handlers = self.operator.handlers
        found = await self.reader.read(BY_KIND[kind], take, restart, namespace)
        self.done.add((kind, namespace))
        for metadata in gone.values():
            deliver(handlers, WatchEvent(0.0, kind, "DELETED", {"metadata": metadata}))
        if isinstance(found, Unread):
            handlers.on_lack(kind, Lack(found.reason))
            if not found.absent:
                self.unread[kind] = found
        elif found.readable:
            handlers.on_version(kind, f"{found.group}/{found.version}")
        handlers.on_synced(kind)

    def _serve(self) -> None:
        """Serve the profiles of the cluster, and those assumed for other schedulerNames."""
        if self.assumed is None:
            raise RuntimeError("the configuration is assumed first")
        world = self.operator.world
        remarks = list[str]()
        loaded = {each.scheduler_name: each for each in map(self._loaded, self.assumed.manifests)}
        followed = list[str]()
        for manifest in sorted(self.profiles, key=_age):
            profile = self._of_cluster(manifest, remarks)
            if profile is not None and not profile.spec.shadow_of:
                if self.assumed.is_known and profile.scheduler_name in loaded:
                    continue
                loaded[profile.scheduler_name] = profile
                followed.append(profile.name)
        if followed:
            remarks.append(f"SchedulerProfiles of the cluster are followed: {', '.join(followed)}")
        # An operator in the scheduler's place: nothing is assumed then.
        is_used = any(each.uid == "" for each in loaded.values())
        self.loaded, self.remarks = loaded, [*(self.assumed.remarks if is_used else ()), *remarks]
        if self.calls_extenders:
            # Before nodes and pods, of which some extenders are sent the objects.
            for each in loaded.values():
                self.operator.extenders.serve(each.scheduler_name, each.spec.extenders)
        world.profiles.serve([profile_on(world, each) for each in loaded.values()], {})

    async def with_extenders(self, found: PodExplanation) -> PodExplanation:
        """The explanation of a pod with the word of its profile's extenders, if they are asked."""
        world, pools = self.operator.world, self.operator.extenders
        entry = world.queue.entries.get(found.uid or "")
        pod = entry.newest if entry is not None else world.cache.pod(found.uid or "")
        served = None if pod is None else world.profiles.of(pod)
        extenders = None if served is None else pools.of(served.scheduler_name)
        if pod is None or served is None or extenders is None:
            return found
        fork = world.fork(random.Random(0))
        try:
            take_out_own_copies(fork, [pod])
            fork.cache.update_snapshot()
            profile, unbound = fork.profiles.served[served.scheduler_name], pod.with_node("")
            decision = await decide_with_extenders(
                fork, unbound, profile, extenders, profile.new_state(unbound)
            )
            return after_extenders(found, decision, self.clock)
        except SchedulerError as failure:
            words = f"its extenders cannot be asked: {failure}"
            return replace(found, would_get_node=None, tied=None, tied_nodes=None, would_wait=words)
        finally:
            fork.forget_results()

    def _loaded(self, manifest: JsonObject) -> LoadedProfile:
        """A profile of the assumed configuration.

        Raises:
            ConfigurationError: it cannot be used, for example because a plugin is not installed.
        """
        try:
            return load_profile(
                self._without_blind_plugins(manifest),
                known_plugins(),
                self.operator.world.profiles.compatibility,
            )
        except ProfileError as error:
            raise ConfigurationError(f"the configuration cannot be used: {error}") from error

    def _of_cluster(self, manifest: JsonObject, remarks: list[str]) -> LoadedProfile | None:
        """A SchedulerProfile, or its last good version; None: it has none."""
        status = manifest.get("status")
        good = status.get("lastGoodSpec") if isinstance(status, dict) else None
        auto = self.operator.world.profiles.compatibility
        for spec in (manifest.get("spec"), good):
            if not isinstance(spec, dict):
                continue
            try:
                return load_profile(
                    self._without_blind_plugins({**manifest, "spec": spec}), known_plugins(), auto
                )
            except ProfileError as error:
                refusal = str(error)
        remarks.append(
            f"SchedulerProfile {manifest['metadata']['name']} is not followed: {refusal}"
        )
        return None

    def _without_blind_plugins(self, manifest: JsonObject) -> JsonObject:
        """The profile without the plugins whose objects could not be read."""
        return without_blind_plugins(manifest, self.unread)

    def reading(self, why_no_operator: str) -> ClusterReading:
        """The reading, for the answer."""
        if self.assumed is None:
            raise RuntimeError("nothing was read")
        counts = self.reader.counts
        extenders = [
            extender.shown_url_prefix
            for each in self.loaded.values()
            for extender in each.spec.extenders
            if not self.calls_extenders
        ]
        return ClusterReading(
            server_version=self.version,
            read_at=self.read_at,
            nodes=counts.get("Node", 0),
            pods=counts.get("Pod", 0),
            operator=why_no_operator,
            configuration=AssumedConfiguration(
                source=self.assumed.source,
                compatibility=str(self.assumed.compatibility.version),
                scheduler_names=sorted(self.loaded),
                remarks=self.remarks or None,
                extenders_not_asked=list(dict.fromkeys(extenders)) or None,
            ),
            left_out=[
                KindLeftOut(kind=kind, reason=why.reason, consequence=KINDS[kind].consequence)
                for kind, why in self.unread.items()
                if kind != "PriorityClass" or self.needs_classes
            ]
            or None,
        )


def _age(manifest: JsonObject) -> tuple[str, str]:
    """The order of profiles, in which the last one of a schedulerName serves: the oldest."""
    metadata = manifest["metadata"]
    created = str(metadata.get("creationTimestamp") or "")
    return "".join(chr(0x10FFFF - ord(each)) for each in created), str(metadata["name"])


# --- the questions --------------------------------------------------------------------------------


def _question(  # noqa: PLR0911 a table of paths
    path: str, body: Mapping[str, Any] | None
) -> _Question:
    """The question that a path of the operator's port asks.

    Raises:
        ConfigurationError: only an operator can answer it, or its words are wrong.
    """
    parts = urlsplit(path)
    words = {key: values[-1].strip() for key, values in parse_qs(parts.query).items()}
    page = Page(int(words.get("limit", MAX_ENTRIES_PER_PAGE)), int(words.get("offset", 0)))
    match [unquote(each) for each in parts.path.strip("/").split("/")]:
        case ["what-if"]:
            return _what_if(dict(body or {}))
        case ["queue"]:
            if words.get("queue"):
                raise ConfigurationError(
                    "--queue asks for the queues of an operator, and there is none here"
                )
            asked = PodsAsked(text=words.get("q", ""), plugin=words.get("plugin", ""))
            return _Question(
                _waiting,
                frozenset(),
                lambda op: unbound_pods(op.world, op.without_profile.pods.values(), asked),
            )
        case ["nodes"] if "explain" in words:
            name = words["explain"]
            return _Question(
                _waiting,
                frozenset(),
                lambda op: (
                    explain_node(op.world, name)
                    or _absent("node", name, (each.name for each in op.world.cache.nodes()))
                ),
            )
        case ["nodes"]:
            wanted = NodesAsked(words.get("q", ""), words.get("label", ""), words.get("sort", ""))
            return _Question(_nobody, frozenset(), lambda op: nodes_page(op.world, page, wanted))
        case ["explain", "devices"]:
            return _devices(words, page)
        case ["explain", namespace, "podgroups", name]:
            return _Question(
                lambda op: (
                    pod
                    for pod in _waiting(op)
                    if pod.group is not None
                    and (pod.group.namespace, pod.group.name) == (namespace, name)
                ),
                frozenset({"PodGroup", "CoschedulingPodGroup", "Namespace"}),
                lambda op: (
                    explain_read_group(op.world, namespace, name)
                    or _absent("pod group", f"{namespace}/{name}")
                ),
            )
        case ["explain", namespace, "resourceclaims", name]:
            return _Question(
                _nobody,
                frozenset({"ResourceClaim"}),
                lambda op: (
                    explain_claim(op.world, namespace, name)
                    or _absent("claim", f"{namespace}/{name}")
                ),
            )
        case ["explain", namespace, name]:
            return _Question(
                lambda op: (
                    pod for pod in _all(op) if (pod.namespace, pod.name) == (namespace, name)
                ),
                frozenset(),
                lambda op: (
                    explain_read_pod(op.explanations, namespace, name)
                    or _absent(
                        "pod",
                        f"{namespace}/{name}",
                        (pod.name for pod in _all(op) if pod.namespace == namespace),
                    )
                ),
                is_of_one_pod=True,
            )
        case _:
            raise ConfigurationError("only an operator can answer this, and there is none here")


def _devices(words: Mapping[str, str], page: Page) -> _Question:
    kinds, name = frozenset(DEVICES), words.get("explain", "")
    if name:
        return _Question(
            _nobody, kinds, lambda op: explain_device(op.world, name) or _absent("device", name)
        )
    asked = DevicesAsked(words.get("q", ""), words.get("node", ""), words.get("state", ""))
    return _Question(_nobody, kinds, lambda op: devices_page(op.world, page, asked))


def _what_if(body: JsonObject) -> _Question:
    """A supposition: a drain and pods say by themselves which pods are decided, others do not."""
    supposed = Supposition.of(body)
    manifests = [*supposed.pods, *([supposed.pod] if supposed.pod else [])]

    def pods(op: Operator) -> Iterator[PodInfo]:
        yield from _parsed(manifests)
        if supposed.acts:
            yield from _all(op)
        elif supposed.drained_nodes:
            for node in supposed.drained_nodes:
                yield from op.world.cache.pods_on(node).values()
        elif not manifests:
            yield from _waiting(op)

    kinds = {"PodDisruptionBudget", "Namespace"} | ({"PriorityClass"} if manifests else set())
    return _Question(
        pods,
        frozenset(kinds | set(SPREAD) if supposed.scale else kinds),
        lambda op: what_if(
            op.world,
            Supposition.of(
                body, is_server_newer=is_newer_than_known(op.world.profiles.server_version)
            ),
        ),
    )


def _parsed(manifests: Iterable[JsonObject]) -> Iterator[PodInfo]:
    """The supposed pods, to see what they need; the answer itself reports one that is malformed."""
    for manifest in manifests:
        spec = {
            key: each for key, each in (manifest.get("spec") or {}).items() if key != "nodeName"
        }
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            yield parse_pod({**manifest, "spec": spec})


def _absent(kind: str, name: str, others: Iterable[str] = ()) -> Steps[Any]:
    """Say that there is no such object.

    Raises:
        PortRefusal: always.
    """
    near = finished(suggested(name.rpartition("/")[2], others))
    raise PortRefusal(_NOT_FOUND, f'there is no {kind} "{name}" here{near}')


def _nobody(_: Operator) -> Iterator[PodInfo]:
    return iter(())


def _waiting(op: Operator) -> Iterator[PodInfo]:
    yield from (entry.newest for entry in op.world.queue.entries.values())


def _all(op: Operator) -> Iterator[PodInfo]:
    yield from _waiting(op)
    yield from op.world.cache.pods()
    yield from op.without_profile.pods.values()
