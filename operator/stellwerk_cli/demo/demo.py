"""The main job in one command: a cluster, the operator, examples, which pod runs where, and why.

The command line calls `run_demo`. A manifest of `examples/` begins with a comment line, its title,
and perhaps a second one, "unschedulable": its pods go nowhere. Files are applied in the order of
their names. Invariant: it ends with status 0 only if every example behaved as its file says, which
is judged without the scheduler's own columns, and it leaves nothing running.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.resources import files
from textwrap import wrap
from typing import Final, TextIO

from stellwerk.answers.pod import DecisionFields, PodExplanation
from stellwerk.explain.report import scheduled_message
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_affinity import AffinityTerm
from stellwerk_cli.demo.sandbox import Sandbox, open_sandbox, own_command
from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cli.progress_line import waiting_for
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo, parse_node
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, untolerated
from stellwerk_kube.untrusted_text import printable, terminal
from stellwerk_kube.yaml_file import parse_yaml

_RESOURCES: Final = {
    "Pod": ("pods", "", "default"),
    "Deployment": ("deployments", "apps", "default"),
    "PriorityClass": ("priorityclasses", "scheduling.k8s.io", ""),
}
_UNSCHEDULABLE: Final = "# unschedulable"


@dataclass(frozen=True, slots=True)
class Example:
    """One file: its title, its objects, and what is to become of its pods."""

    title: str
    schedulable: bool
    """Whether its pods are to get a node; the others get a condition that says why not."""
    objects: tuple[JsonObject, ...]

    @property
    def workloads(self) -> list[JsonObject]:
        """Its pods and deployments."""
        return [obj for obj in self.objects if obj["kind"] in {"Pod", "Deployment"}]

    @property
    def pod_count(self) -> int:
        """The number of pods that it makes."""
        return sum(obj["spec"].get("replicas", 1) for obj in self.workloads)

    def owns(self, pod: PodInfo) -> bool:
        """Whether a pod is one of the example's."""
        names = [(obj["metadata"]["name"], obj["kind"] == "Pod") for obj in self.workloads]
        return any(
            pod.name == name if is_pod else pod.name.startswith(f"{name}-")
            for name, is_pod in names
        )


def resource_of(obj: JsonObject) -> tuple[str, str, str]:
    """(plural, group, namespace) of an object of the demo."""
    return _RESOURCES[obj["kind"]]


def load_examples() -> list[Example]:
    """Every example, in the order of the file names."""
    return list(_read())


def load_nodes() -> list[JsonObject]:
    """The demo's nodes."""
    (listed,) = parse_yaml(_text("nodes.yaml"))
    return list(listed["items"])


def _read() -> Iterator[Example]:
    directory = files(__package__) / "examples"
    for name in sorted(entry.name for entry in directory.iterdir()):
        if name[0].isdigit():
            text = _text(name)
            title, second, _ = text.split("\n", 2)
            objects = tuple(parse_yaml(text))
            yield Example(title.removeprefix("# "), second != _UNSCHEDULABLE, objects)


def _text(name: str) -> str:
    return (files(__package__) / "examples" / name).read_text(encoding="utf-8")


_WIDTH: Final = 100
_DEADLINE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Progress:
    """One line that is rewritten on a terminal, and printed once where output is kept."""

    output: TextIO
    _shown: str = field(default="", init=False)

    def show(self, text: str) -> None:
        """Show the line as it is now."""
        if self.output.isatty() and text != self._shown:
            line = f"\r{printable(text):<{len(self._shown)}}"
            print(line, end="", file=terminal(self.output), flush=True)
            self._shown = text

    def end(self, text: str) -> None:
        """Show the line for the last time."""
        self.show(text)
        print("" if self.output.isatty() else text, file=self.output, flush=True)
        self._shown = ""


async def run_demo(*, keep: bool, output: TextIO | None = None) -> int:
    """Run the demo; returns the exit status."""
    output = output or sys.stdout
    started = time.perf_counter()
    nodes = load_nodes()
    features = api_features()
    async with AsyncExitStack() as stack:
        with waiting_for("starting the cluster and its scheduler"):
            sandbox = await stack.enter_async_context(open_sandbox(nodes, features=features))
        cluster = sandbox.cluster
        print(features.groups_of_pods(), file=output)
        print(f"A cluster of {len(nodes)} nodes at {cluster.url}\n", file=output)
        examples = load_examples()
        for example in examples:
            _apply(cluster, example)
            await _settle(cluster, example, sandbox.operator, Progress(output))
        pods = _pods(cluster)
        print(file=output)
        await _print_table(sandbox, examples, pods, output)
        wrong = list(_wrong(examples, pods, nodes))
        placed = sum(bool(pod.node_name) for pod in pods)
        print(
            f"\n{placed} of {len(pods)} pods placed in {time.perf_counter() - started:.1f} s.",
            file=output,
        )
        for text in wrong:
            print(f"not as expected: {text}", file=output)
        await _explain_impossible(sandbox, examples, pods, output)
        _print_ways_on(sandbox, output, keep=keep)
        if keep:
            await sandbox.operator
        return 1 if wrong else 0


async def _explain_impossible(
    sandbox: Sandbox, examples: list[Example], pods: list[PodInfo], output: TextIO
) -> None:
    """Print suggestions for the pods that fit nowhere."""
    for example in examples:
        for pod in pods:
            if example.schedulable or not example.owns(pod):
                continue
            explanation = await sandbox.explain("default", pod.name)
            print(f"\n{pod.name} fits nowhere. What would make it fit, each tried:", file=output)
            suggestions = explanation.would_fit if explanation is not None else None
            for suggestion in suggestions or ():
                print(f"  - {suggestion.text}", file=output)


def _print_ways_on(sandbox: Sandbox, output: TextIO, *, keep: bool) -> None:
    command = own_command()
    if not keep:
        print(f"\nGo on: {command} up", file=output)
        print(f"       {command} demo --keep", file=output)
        return
    print(f"\nTry:  kubectl --kubeconfig {sandbox.kubeconfig} get pods -o wide", file=output)
    print(f"      {command} explain pod NAME --kubeconfig {sandbox.kubeconfig}", file=output)
    print("Stop: Ctrl-C", file=output, flush=True)


def _wrong(examples: list[Example], pods: list[PodInfo], nodes: list[JsonObject]) -> Iterator[str]:
    """Find pods that are not as the examples say, or where their manifests forbid it."""
    for example in examples:
        if not _as_expected(example, pods):
            yield example.title
    by_name = {node.name: node for node in map(parse_node, nodes)}
    for pod in pods:
        objection = forbidden(pod, pods, by_name) if pod.node_name else ""
        if objection:
            yield f"{pod.name}: {objection}"


def _apply(cluster: EmbeddedCluster, example: Example) -> None:
    for obj in example.objects:
        plural, group, namespace = resource_of(obj)
        cluster.api.create(cluster.api.kinds.resource(plural, group), namespace, obj)


async def _settle(
    cluster: EmbeddedCluster, example: Example, operator: "asyncio.Task[None]", progress: Progress
) -> None:
    """Wait until every pod of the example is where it belongs, or until it takes too long."""
    deadline = time.perf_counter() + _DEADLINE_SECONDS
    while True:
        pods = [pod for pod in _pods(cluster) if example.owns(pod)]
        settled = sum(_settled(example, pod) for pod in pods)
        text = f"{example.title:<44} {settled}/{example.pod_count} {_goal(example)}"
        if settled == example.pod_count or time.perf_counter() > deadline:
            progress.end(text)
            return
        progress.show(text)
        if operator.done():
            # It ended of its own accord: its error is the demo's.
            await operator
            return
        await asyncio.sleep(_POLL_SECONDS)


def _goal(example: Example) -> str:
    return "running" if example.schedulable else "known not to fit"


def _pods(cluster: EmbeddedCluster) -> list[PodInfo]:
    """The demo's pods as the API has them."""
    return [parse_pod(pod) for pod in cluster.api.all("pods", "default")]


def _settled(example: Example, pod: PodInfo) -> bool:
    if example.schedulable:
        return bool(pod.node_name) and pod.phase == "Running"
    return bool(scheduled_message(pod))


def _as_expected(example: Example, pods: list[PodInfo]) -> bool:
    own = [pod for pod in pods if example.owns(pod)]
    return len(own) == example.pod_count and all(_settled(example, pod) for pod in own)


async def _print_table(
    sandbox: Sandbox, examples: list[Example], pods: list[PodInfo], output: TextIO
) -> None:
    width = max(len(pod.name) for pod in pods)
    print(f"{'POD':<{width}}  {'NODE':<8}  WHY", file=output)
    for example in examples:
        for pod in sorted(pods, key=lambda each: each.name):
            if example.owns(pod):
                why = scheduled_message(pod)
                if example.schedulable:
                    why = reason(await sandbox.explain("default", pod.name))
                for line in _row(pod, why, width):
                    print(line, file=output)


def _row(pod: PodInfo, why: str, width: int) -> Iterator[str]:
    first, *rest = wrap(why, _WIDTH - width - 12) or [""]
    yield f"{pod.name:<{width}}  {pod.node_name or '-':<8}  {first}"
    for line in rest:
        yield f"{'':<{width}}  {'':<8}  {line}"


_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
_SCORES: Final = 2
"""Scores that are named."""


def reason(explanation: PodExplanation | None) -> str:
    """The reason for which a bound pod is where it is."""
    if explanation is None:
        return "not explained"
    decision = explanation.decision
    if decision is None:
        return explanation.note or "not explained"
    words = [f"{decision.feasible} of {decision.nodes} nodes fit"]
    others = decision.others
    if others is not None and others.nodes == decision.nodes - decision.feasible:
        words += (f"{each.nodes}: {', '.join(each.reasons)}" for each in others.reasons)
    if len(decision.best) > 1:
        words.append(_choice(decision))
    return "; ".join(words)


def _choice(decision: DecisionFields) -> str:
    """The scores that put the chosen node before the next one."""
    chosen, second = decision.best[:2]
    if decision.tied > 1:
        return f"{decision.tied} tied at {chosen.total}; picked one at random"
    leads = {
        plugin: score.weighted - second.scores[plugin].weighted
        for plugin, score in chosen.scores.items()
    }
    ahead = sorted((plugin for plugin, lead in leads.items() if lead > 0), key=leads.__getitem__)
    named = ", ".join(f"{plugin} +{leads[plugin]}" for plugin in reversed(ahead[-_SCORES:]))
    return f"best by {chosen.total} to {second.total} ({named})"


def forbidden(pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]) -> str:
    """The first objection of the pod's manifest to its node; empty: none."""
    return next(_objections(pod, pods, nodes), "")


def _objections(
    pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]
) -> Iterator[str]:
    node, spec = nodes[pod.node_name], pod.spec
    for key, value in spec.node_selector.items():
        if node.labels.get(key) != value:
            yield f"{node.name} is not labelled {key}={value}"
    required = spec.required_node_affinity
    if required is not None and not required.matches(node.labels, node.name):
        yield f"{node.name} does not match the required node affinity"
    for taint in untolerated(node.taints, spec.tolerations, _HARD):
        yield f"{node.name} has the taint {taint.key}, which is not tolerated"
    others = [other for other in pods if other.uid != pod.uid and other.node_name]
    for term in spec.pod_affinity.required_anti:
        if any(_together(term, pod, other, nodes) for other in others):
            yield f"{node.name} shares its {term.topology_key} with a pod that is to be avoided"
    for term in spec.pod_affinity.required:
        if not any(_together(term, pod, other, nodes) for other in pods):
            yield f"{node.name} shares its {term.topology_key} with no pod that is asked for"
    yield from _uneven(pod, pods, nodes)


def _together(
    term: AffinityTerm, pod: PodInfo, other: PodInfo, nodes: Mapping[str, NodeInfo]
) -> bool:
    key = term.topology_key
    value = nodes[pod.node_name].labels.get(key)
    return (
        bool(other.node_name)
        and value is not None
        and nodes[other.node_name].labels.get(key) == value
        and term.matcher.matches(other.namespace, other.labels, {})
    )


def _uneven(pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]) -> Iterator[str]:
    for constraint in pod.spec.spread_constraints:
        if not constraint.hard or constraint.selector is None:
            continue
        key, selector = constraint.topology_key, constraint.selector
        counts = Counter({node.labels[key]: 0 for node in nodes.values() if key in node.labels})
        for other in pods:
            if other.node_name and selector.matches(other.labels):
                counts[nodes[other.node_name].labels[key]] += 1
        skew = counts[nodes[pod.node_name].labels[key]] - min(counts.values())
        if skew > constraint.max_skew:
            yield f"{key} differs by {skew} pods, more than {constraint.max_skew}"
