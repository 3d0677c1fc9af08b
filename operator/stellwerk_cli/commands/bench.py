"""`stellwerk bench`: how fast a scheduler gives nodes to pods, on nodes that are made for it.

The command line calls it. Without a cluster it measures Stellwerk on an embedded one, both in
processes of their own. Invariant: everything that it makes in a cluster is made and written down
by `bench_objects`, and is deleted when it ends, also by a signal; what a killed run has left is
named by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stellwerk.models.number_options import WholeNumber
from stellwerk_cli.commands.arguments import check_embedded_cluster, seconds
from stellwerk_cli.commands.bench_objects import (
    ID_BYTES,
    LABEL,
    MAX_BENCH_NODES,
    NAMESPACES,
    NODES,
    Left,
    RunObjects,
    delete_exactly,
    ended,
    find_left,
    side_by_side,
)
from stellwerk_cli.commands.bench_server_cost import cost_per_pod, read_api_server, read_etcd
from stellwerk_cli.commands.confirmation import is_confirmed
from stellwerk_cli.commands.port_arguments import add_access_arguments, add_output_arguments
from stellwerk_cli.progress_line import waiting_for
from stellwerk_kube.errors import ApiError, ConfigurationError, NotFound, SchedulerError
from stellwerk_kube.untrusted_text import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Callable,
        Mapping,
        Sequence,
    )
    from typing import Self

    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk_cli.commands.bench_server_cost import ServerCounters
    from stellwerk_kube.json_values import JsonObject
    from stellwerk_simulation.answers import BenchAnswer, BenchRun

HELP: Final = "benchmark the throughput of a scheduler"
EXAMPLES: Final = (
    "bench --workload basic --nodes 50 --pods 100",
    "bench --context stellwerk --workload spread --pods 100 --yes",
    "bench --context stellwerk --clean --yes",
)

WORKLOADS: Final[Mapping[str, str]] = {
    "basic": "basic",
    "zipf": "zipf",
    "unique": "unique",
    "spread": "spread",
    "preferred-spread": "prefspread",
    "affinity": "aff",
    "anti-affinity": "anti",
    "preferred-anti-affinity": "prefanti",
    "preemption": "preempt",
}
"""By the names that users give; docs/performance.md describes them."""
_PROFILES: Final = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles"
_HARMLESS_PROVIDERS: Final = ("kind://", "k3s://")
"""Providers of clusters on one machine: their controllers delete no node that they do not know."""
_UNINITIALIZED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_PODS_PER_NODE: Final = 10
"""Pods of every workload that fit on a node which takes more than one."""
MAX_BENCH_PODS: Final = 1_000_000
"""The largest number of pods, and of pods a second: more than a cluster holds."""
_POLL_SECONDS: Final = 0.2
_START_SECONDS: Final = 60.0
_ACCOUNT_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 20.0
_INTERRUPTED: Final = 130
_OWN_SCHEDULER: Final = "stellwerk"
_EVENTS_SECONDS: Final = 5.0
"""Time after the last binding in which a scheduler writes the events of its last pods. The API
server's counters are read then."""
_SHOWN: Final = 5
"""Names in a line about objects that stay."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the workloads, the schedulers and the cluster."""
    parser.add_argument(
        "--workload",
        action="append",
        choices=list(WORKLOADS),
        metavar="NAME",
        help=f"{', '.join(WORKLOADS)}; may be repeated (default: all of them)",
    )
    for name, count, largest in (("nodes", 200, MAX_BENCH_NODES), ("pods", 1000, MAX_BENCH_PODS)):
        parser.add_argument(
            f"--{name}",
            type=WholeNumber(1, largest),
            default=count,
            metavar="NUMBER",
            help=f"number of {name} in a workload (default: {count})",
        )
    parser.add_argument(
        "--rate",
        type=WholeNumber(1, MAX_BENCH_PODS),
        metavar="PODS",
        help="pods to create per second (default: all at once)",
    )
    parser.add_argument(
        "--scheduler",
        action="append",
        metavar="NAME",
        help="schedulerName of the pods, on a named cluster; may be repeated to measure one "
        f"after the other (default: {_OWN_SCHEDULER})",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="DURATION",
        help="how long to wait for the pods of one workload (default: 5m)",
    )
    parser.add_argument(
        "--etcd-metrics",
        metavar="URL",
        help="also report etcd's CPU time, by the metrics at this address",
    )
    parser.add_argument(
        "--clean",
        action="store_true",
        help="delete what interrupted runs left in the cluster, and measure nothing",
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="also write a page with the table and bars"
    )
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask for confirmation; required without a terminal",
    )
    add_output_arguments(parser)
    group = parser.add_argument_group(
        "how to reach the cluster (default: an embedded one for this run)"
    )
    add_access_arguments(group)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Measure, print the table and say what was not bound.

    Raises:
        ConfigurationError: the cluster is none to make nodes in, or has some of an earlier run.
    """
    named = options.kubeconfig is not None or options.context is not None
    if not named and (options.scheduler or options.clean or options.etcd_metrics):
        option = "--etcd-metrics"
        if options.scheduler or options.clean:
            option = "--scheduler" if options.scheduler else "--clean"
        raise ConfigurationError(
            f"{option} needs a cluster: name one with --kubeconfig or --context"
        )
    if not named:
        check_embedded_cluster()
    most = options.nodes * _PODS_PER_NODE
    if options.pods > most:
        raise ConfigurationError(
            f"--pods {options.pods}: {options.nodes} nodes take {most}, {_PODS_PER_NODE} each"
        )
    if options.html is not None:
        from stellwerk_cli.commands.simulation import check_writable  # noqa: PLC0415 for a page alone

        check_writable("--html", options.html, (".html",), ())
    asked = asyncio.run(_until_signalled(_on_cluster(options) if named else _embedded(options)))
    if isinstance(asked, int):
        return asked
    _show(asked, options.output)
    if options.html is not None:
        _write_page(asked, options.html)
    return 0 if all(each.bound == each.pods for each in asked.runs) else 1


async def _until_signalled(work: Awaitable[BenchAnswer | int]) -> BenchAnswer | int:
    """Let SIGINT and SIGTERM end the work, which deletes what it has made; once."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()

    def on_signals(act: Callable[[], object]) -> None:
        # Threads that are not the first get no signals.
        with contextlib.suppress(RuntimeError, ValueError):
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, act)

    def end() -> None:
        on_signals(lambda: None)  # a second one would leave nodes behind
        task.cancel()

    on_signals(end)
    try:
        return await task
    except asyncio.CancelledError:
        return _INTERRUPTED


# --- where it is measured -------------------------------------------------------------------------


async def _on_cluster(options: argparse.Namespace) -> BenchAnswer | int:
    """Measure at the cluster that is named, once it is known to be one for this."""
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 aiohttp

    async def measured(client: KubernetesClient) -> BenchAnswer | int:
        left = await find_left(client)
        if options.clean:
            return await _cleaned(client, options, left)
        _check_providers((await client.list(NODES))[0])
        if left.made:
            said = f"another run has left {left}, or is still running"
            offered = sys.stdin.isatty() and not options.yes
            if not offered or not is_confirmed(options, f"{said}. Delete them?"):
                raise ConfigurationError(f"{said}; stellwerk bench --clean deletes them")
            await delete_exactly(client, left)
        bench = Bench(client, options)
        question = (
            f"Create {options.nodes} nodes {bench.name}-…, a namespace for each workload, a "
            f"PriorityClass and a ConfigMap in kube-system in the cluster at {client.server}, and "
            "delete them afterwards?"
        )
        return await bench.measured() if is_confirmed(options, question) else 1

    return await with_client(options.kubeconfig, options.context, measured)


async def _embedded(options: argparse.Namespace) -> BenchAnswer | int:
    """Measure `stellwerk run` at `stellwerk cluster`."""
    import tempfile  # noqa: PLC0415

    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 aiohttp

    with tempfile.TemporaryDirectory(prefix="stellwerk-") as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        access = ("--kubeconfig", str(kubeconfig))
        controllers = ("--controllers", "namespace-controller")
        async with contextlib.AsyncExitStack() as stack:
            cluster = Process("cluster", "--nodes", "0", *access, *controllers, folder=directory)
            await stack.enter_async_context(cluster)
            with waiting_for("starting the cluster"):
                await cluster.until(lambda: asyncio.sleep(0, kubeconfig.exists()))
            port = ("--bind-address", "127.0.0.1:0", "--plain-http")
            scheduler = Process("run", *access, *port, folder=directory)
            await stack.enter_async_context(scheduler)

            async def measured(client: KubernetesClient) -> BenchAnswer:
                with waiting_for("starting the scheduler"):
                    await scheduler.until(lambda: _is_serving(client))
                return await Bench(client, options, scheduler).measured()

            return await with_client(str(kubeconfig), None, measured)


async def _is_serving(client: KubernetesClient) -> bool:
    """Whether a profile schedules pods."""
    try:
        profiles, _ = await client.list(_PROFILES)
    except NotFound:
        return False
    found = [each.get("status", {}).get("conditions") or () for each in profiles]
    return any(each["type"] == "Active" and each["status"] == "True" for of in found for each in of)


class Process:
    """A command of Stellwerk in a process of its own, from enter to exit."""

    def __init__(self, *words: str, folder: str) -> None:
        """Run `stellwerk WORDS`; what it says goes into a file of `folder`."""
        self._words = words
        self._log = Path(folder) / f"{words[0]}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "stellwerk_cli", *self._words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C of the terminal is for the command, which ends this one at last.
                start_new_session=True,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it has come so far.

        Raises:
            SchedulerError: it has ended, or does not come so far.
        """
        began = time.monotonic()
        while not await condition():
            ended = self._process is None or self._process.returncode is not None
            if ended or time.monotonic() - began > _START_SECONDS:
                said = self._log.read_text(encoding="utf-8", errors="replace")
                last = said.strip().splitlines()[-1:]
                raise SchedulerError(f"stellwerk {self._words[0]} did not start: {''.join(last)}")
            await asyncio.sleep(_POLL_SECONDS)

    def usage(self) -> tuple[float, float] | None:
        """(seconds of CPU, largest MiB) so far; None: this system does not tell."""
        if self._process is None:
            return None
        folder = Path(f"/proc/{self._process.pid}")
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            status = (folder / "status").read_text()
        except OSError:
            return None
        ticks = int(fields[11]) + int(fields[12])
        peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        return ticks / os.sysconf("SC_CLK_TCK"), int(peak) / 1024


# --- what is made in the cluster, and deleted -----------------------------------------------------


def _check_providers(nodes: Sequence[JsonObject]) -> None:
    """Refuse a cluster whose cloud controller would delete nodes that are no machine of its own.

    Raises:
        ConfigurationError: a node is of a cloud.
    """
    for node in nodes:
        provider = node.get("spec", {}).get("providerID", "")
        taints = [each["key"] for each in node.get("spec", {}).get("taints") or ()]
        if (provider and not provider.startswith(_HARMLESS_PROVIDERS)) or _UNINITIALIZED in taints:
            name, of = node["metadata"]["name"], provider or f"the taint {_UNINITIALIZED}"
            raise ConfigurationError(
                f"node {name} has {of}: the cloud's controller would delete the nodes of the "
                "benchmark, which are not machines of the cloud. Use a cluster without such a "
                "controller"
            )


async def _cleaned(client: KubernetesClient, options: argparse.Namespace, left: Left) -> int:
    """Delete what killed runs have left: what the question shows, and nothing that comes later."""
    if left.unproven:
        shown = ", ".join(left.unproven[:_SHOWN]) + (", …" if left.unproven[_SHOWN:] else "")
        reason = f"the label {LABEL} alone does not show that a run created it"
        sys.stderr.write(f"{printable(f'stellwerk: not deleted: {shown}: {reason}')}\n")
    if not left.made:
        # Records without objects are what a run left that was killed before its first node.
        await delete_exactly(client, left)
        print("no run has left objects behind")
        return 0
    if options.output == "name":
        print("\n".join(map(printable, map(str, left.made))), flush=True)
    if not is_confirmed(options, f"Delete {left} at {client.server}? (-o name lists them)"):
        return 1
    try:
        replaced = await delete_exactly(client, left)
    except ApiError as error:
        raise SchedulerError(
            f"not everything is deleted: {error}; stellwerk bench --clean deletes the rest"
        ) from error
    for each in replaced:
        said = f"stellwerk: not deleted: {each}: another object now has this name"
        sys.stderr.write(f"{printable(said)}\n")
    if options.output != "name":
        print(f"deleted: {left}" if not replaced else "the others are deleted")
    return 1 if replaced else 0


# --- the measurement ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Seen:
    """The moments of one workload's pods, by name, on the clock of this process."""

    created: dict[str, float]
    bound: dict[str, float]


class Bench:
    """One run: its nodes, and its workloads one after the other."""

    def __init__(
        self,
        client: KubernetesClient,
        options: argparse.Namespace,
        scheduler: Process | None = None,
    ) -> None:
        """Measure at the cluster of the client; `scheduler` is one whose costs can be read."""
        self._client, self._options, self._process = client, options, scheduler
        self.name = f"bench-{os.urandom(ID_BYTES).hex()}"
        self._objects = RunObjects(client, self.name)

    async def measured(self) -> BenchAnswer:
        """Make what is needed, measure, and delete it again whatever happens.

        Raises:
            ApiError: the API refused something.
            SchedulerError: something could not be deleted.
        """
        from stellwerk_simulation.answers import BenchAnswer  # noqa: PLC0415 pydantic

        options = self._options
        kinds = list(dict.fromkeys(options.workload or WORKLOADS))
        schedulers = list(dict.fromkeys(options.scheduler or [_OWN_SCHEDULER]))
        version = await self._client.check_reachable()
        try:
            from stellwerk_cli.commands.printer import progress  # noqa: PLC0415 rich

            with progress(len(kinds) * len(schedulers)) as shown:
                shown("creating nodes", 0, options.nodes)
                await self._objects.open()
                nodes = [self._node(index) for index in range(options.nodes)]
                await self._objects.create("node", nodes)
                if "preemption" in kinds:
                    await self._create_class()
                runs = [
                    await self._measured(kind, scheduler, shown)
                    for kind in kinds
                    for scheduler in schedulers
                ]
        finally:
            with waiting_for("deleting what was created"):
                await self._objects.delete_all()
        return BenchAnswer(
            server_version=version,
            embedded=self._process is not None,
            nodes=options.nodes,
            rate=options.rate,
            runs=runs,
        )

    async def _measured(
        self, workload: str, scheduler: str, shown: Callable[[str, int, int], None]
    ) -> BenchRun:
        """One workload with one scheduler, in a namespace of its own."""
        from stellwerk_simulation.workloads import ONE_A_NODE  # noqa: PLC0415 as above

        kind, options = WORKLOADS[workload], self._options
        count = min(options.pods, options.nodes) if kind in ONE_A_NODE else options.pods
        namespace = f"{self.name}-{workload}-{os.urandom(2).hex()}"
        pods = f"{NAMESPACES}/{namespace}/pods"
        await self._create_namespace(namespace)
        bound_before = self._bound_before(kind, scheduler, namespace)
        await side_by_side(bound_before, lambda pod: self._create(pods, pod))
        listed = await self._client.get(f"{pods}?limit=1")
        seen = _Seen({}, {})
        before = self._process.usage() if self._process else None
        server_before = await self._server_counters()
        watch = asyncio.create_task(
            self._watch(pods, listed["metadata"]["resourceVersion"], seen, count)
        )
        label = f"{workload}, {scheduler}"
        try:
            creation = asyncio.create_task(self._create_pods(pods, kind, scheduler, count, seen))
            began = time.monotonic()
            while not watch.done() and time.monotonic() - began < options.timeout:
                shown(label, len(seen.bound), count)
                await asyncio.wait({watch}, timeout=_POLL_SECONDS)
                if creation.done():
                    creation.result()
            if watch.done():
                watch.result()
        finally:
            await ended(watch, creation)
        after = self._process.usage() if self._process else None
        costs: dict[str, Any] = {}
        if server_before is not None:
            await asyncio.sleep(_EVENTS_SECONDS)
            server_after = await self._server_counters()
            if server_after is not None and seen.bound:
                costs = _server_figures(server_before, server_after, len(seen.bound))
        # Its pods take no room from the next ones.
        await self._objects.delete("namespace", namespace)
        return replace(_figures(workload, scheduler, count, seen, before, after), **costs)

    async def _server_counters(self) -> tuple[ServerCounters, ServerCounters | None] | None:
        """Counters of the API server and, if its address is given, of etcd; None: there are none.

        The embedded cluster has no /metrics.
        """
        if self._process is not None:
            return None
        server = await read_api_server(self._client)
        if server is None:
            return None
        url = self._options.etcd_metrics
        return server, await read_etcd(url) if url else None

    # --- what is made ---

    def _node(self, index: int) -> JsonObject:
        """A node for the pods of this run alone.

        It has no operating system in its labels, so that DaemonSets that ask for one keep away.
        """
        from stellwerk_simulation.workloads import posted_node  # noqa: PLC0415 with the command

        node = posted_node(index, self.name)
        node["metadata"]["labels"][LABEL] = self.name
        taint = {"key": LABEL, "value": self.name, "effect": "NoSchedule"}
        node["spec"] = {"taints": [taint]}
        return node

    def _pod(
        self, kind: str, index: int, scheduler: str, namespace: str, prefix: str
    ) -> JsonObject:
        """A pod that selects the run's nodes, whether their kubelet is heard of or not."""
        from stellwerk_simulation.workloads import posted_pod  # noqa: PLC0415 with the command

        pod = posted_pod(kind, index, scheduler_name=scheduler, prefix=prefix)
        pod["metadata"]["namespace"] = namespace
        keys = (LABEL, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        pod["spec"] |= {
            "automountServiceAccountToken": False,
            "nodeSelector": {LABEL: self.name},
            "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
        }
        if "priorityClassName" in pod["spec"]:
            pod["spec"]["priorityClassName"] = self.name
        return pod

    def _bound_before(self, kind: str, scheduler: str, namespace: str) -> list[JsonObject]:
        """The pods that are on the nodes already: those that `preempt` has to evict."""
        from stellwerk_simulation.workloads import (  # noqa: PLC0415 with the command
            LOW_PODS_PER_NODE,
            node_name,
            on_node,
        )

        nodes = self._options.nodes
        return [
            on_node(
                self._pod("low", index, scheduler, namespace, "low"),
                node_name(index % nodes, self.name),
            )
            for index in range(LOW_PODS_PER_NODE * nodes if kind == "preempt" else 0)
        ]

    async def _create_class(self) -> None:
        from stellwerk_simulation.workloads import HIGH_PRIORITY  # noqa: PLC0415 with the command

        metadata = {"name": self.name, "labels": {LABEL: self.name}}
        await self._objects.create("priorityclass", [{**HIGH_PRIORITY, "metadata": metadata}])
        await asyncio.sleep(1)  # admission reads classes through a cache

    async def _create_namespace(self, name: str) -> None:
        """Create it, and wait for its account, without which admission may refuse pods."""
        labels = {LABEL: self.name, "pod-security.kubernetes.io/enforce": "privileged"}
        await self._objects.create("namespace", [{"metadata": {"name": name, "labels": labels}}])
        began = time.monotonic()
        while self._process is None and time.monotonic() - began < _ACCOUNT_SECONDS:
            try:
                await self._client.get(f"{NAMESPACES}/{name}/serviceaccounts/default")
            except NotFound:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return

    async def _create(self, path: str, body: JsonObject) -> None:
        await self._client.create(path, body)

    async def _create_pods(
        self, path: str, kind: str, scheduler: str, count: int, seen: _Seen
    ) -> None:
        """Create the workload's pods, all at once or at the rate."""
        namespace, rate, began = path.split("/")[-2], self._options.rate, time.monotonic()

        async def create(index: int) -> None:
            if rate:
                await asyncio.sleep(max(0.0, began + index / rate - time.monotonic()))
            pod = self._pod(kind, index, scheduler, namespace, "pod")
            seen.created[pod["metadata"]["name"]] = time.monotonic()
            await self._client.create(path, pod)

        await side_by_side(range(count), create)

    # --- what is seen ---

    async def _watch(self, path: str, version: str, seen: _Seen, count: int) -> None:
        """Note when each pod was bound; a watch that ends is resumed where it was."""
        import orjson  # noqa: PLC0415 with the command

        while len(seen.bound) < count:
            query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={version}"
            lines: AsyncGenerator[bytes] = self._client.watch(path + query)
            async with contextlib.aclosing(lines):
                async for line in lines:
                    now, event = time.monotonic(), orjson.loads(line)
                    obj = event["object"]
                    if event["type"] == "ERROR":
                        text = str(obj.get("message", ""))
                        raise ApiError(f"watch {path}", obj.get("code"), "", text)
                    version = obj["metadata"]["resourceVersion"]
                    name = obj["metadata"].get("name", "")
                    if name.startswith("pod-") and obj.get("spec", {}).get("nodeName"):
                        seen.bound.setdefault(name, now)
                    if len(seen.bound) >= count:
                        return


# --- what is said ---------------------------------------------------------------------------------


def _figures(
    workload: str,
    scheduler: str,
    count: int,
    seen: _Seen,
    before: tuple[float, float] | None,
    after: tuple[float, float] | None,
) -> BenchRun:
    from stellwerk_simulation.answers import BenchRun  # noqa: PLC0415 pydantic

    waits = sorted(1000 * (at - seen.created[name]) for name, at in seen.bound.items())
    figures: dict[str, Any] = {}
    if waits:
        took = max(seen.bound.values()) - min(seen.created.values())
        figures["seconds"] = round(took, 3)
        figures["pods_per_second"] = round(len(waits) / took, 1)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            at = min(len(waits) - 1, int(share * len(waits)))
            figures[f"{name}_milliseconds"] = round(waits[at], 1)
    if waits and before is not None and after is not None:
        figures["cpu_milliseconds_per_pod"] = round(1000 * (after[0] - before[0]) / len(waits), 2)
        figures["peak_mib"] = round(after[1], 1)
    return BenchRun(workload=workload, scheduler=scheduler, pods=count, bound=len(waits), **figures)


def _server_figures(
    before: tuple[ServerCounters, ServerCounters | None],
    after: tuple[ServerCounters, ServerCounters | None],
    pods: int,
) -> dict[str, Any]:
    """The fields of a run that say what each of its pods cost the API server and etcd."""
    (server_before, etcd_before), (server_after, etcd_after) = before, after
    cost = cost_per_pod(server_before, server_after, pods)
    figures: dict[str, Any] = {
        "api_server_cpu_milliseconds_per_pod": cost.cpu_milliseconds,
        "requests_per_pod": cost.requests,
        "request_bytes_per_pod": cost.body_bytes,
        "watch_bytes_per_pod": cost.watched_bytes,
    }
    if etcd_before is not None and etcd_after is not None:
        of_etcd = cost_per_pod(etcd_before, etcd_after, pods)
        figures["etcd_cpu_milliseconds_per_pod"] = of_etcd.cpu_milliseconds
    return figures


def _show(answer: BenchAnswer, form: str) -> None:
    from stellwerk_cli.commands.bench_table import print_bench  # noqa: PLC0415 rich
    from stellwerk_cli.commands.output import show_answer  # noqa: PLC0415
    from stellwerk_cli.commands.printer import console  # noqa: PLC0415

    if form in {"table", "wide"}:
        print_bench(answer, console())
        return
    show_answer(answer, form, [each.workload for each in answer.runs])


def _write_page(answer: BenchAnswer, file: Path) -> None:
    """Write the table and bars, with what a reader needs to measure again."""
    import platform  # noqa: PLC0415 as what follows

    from stellwerk_cli.commands.bench_table import bench_headline, bench_lines  # noqa: PLC0415 rich
    from stellwerk_cli.commands.simulation import facts_of  # noqa: PLC0415 for a page alone
    from stellwerk_simulation.html_report import page  # noqa: PLC0415 numpy
    from stellwerk_simulation.report import write_whole  # noqa: PLC0415 as above

    speeds: dict[str, dict[str, float]] = {}
    for each in answer.runs:
        speeds.setdefault(f"{each.workload}, pods a second", {})[each.scheduler] = (
            each.pods_per_second or 0.0
        )
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    facts = [*facts_of([]), ("Kubernetes", answer.server_version), ("machine", machine)]
    text = page(
        (),
        [("Workloads", bench_lines(answer))],
        0,
        about=[bench_headline(answer)],
        facts=facts,
        compared=speeds,
        heading="Benchmark",
    )
    write_whole(file, text.encode())
