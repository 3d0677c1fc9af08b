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
from itertools import zip_longest
from textwrap import wrap
from typing import Final, TextIO, TypeAlias

from stellwerk.answers.pod import DecisionFields, PodExplanation
from stellwerk.explain.lists.queue import scheduled_message
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_affinity import AffinityTerm
from stellwerk_cli.demo.addresses import own_command
from stellwerk_cli.demo.sandbox import Sandbox, open_sandbox
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
        return any(owns(workload, pod) for workload in self.workloads)


def owns(workload: JsonObject, pod: PodInfo) -> bool:
    """Whether a pod is a manifest's, or one that it makes."""
    name = workload["metadata"]["name"]
    return pod.name == name if workload["kind"] == "Pod" else pod.name.startswith(f"{name}-")


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


_WIDTH: Final = 80
"""Columns of a terminal of the usual width."""
_NODES_WIDTH: Final = 18
"""Columns for the nodes of a workload: two names."""
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


async def run_demo(*, keep: bool, is_verbose: bool = False, output: TextIO | None = None) -> int:
    """Run the demo; returns the exit status.

    `is_verbose`: the table also has the scheduler's own messages, pod by pod.
    """
    output = output or sys.stdout
    started = time.perf_counter()
    nodes = load_nodes()
    features = api_features()
    async with AsyncExitStack() as stack:
        with waiting_for("starting the cluster and its scheduler"):
            sandbox = await stack.enter_async_context(open_sandbox(nodes, features=features))
        cluster = sandbox.cluster
        print(f"Kubernetes {features.release}, {len(nodes)} nodes, at {cluster.url}\n", file=output)
        examples = load_examples()
        for example in examples:
            _apply(cluster, example)
            await _settle(cluster, example, sandbox.operator, Progress(output))
        pods = _pods(cluster)
        print(file=output)
        explanations = {pod.name: await sandbox.explain("default", pod.name) for pod in pods}
        for line in table(examples, pods, explanations, is_verbose=is_verbose):
            print(line, file=output)
        wrong = list(_wrong(examples, pods, nodes))
        placed = sum(bool(pod.node_name) for pod in pods)
        print(
            f"\n{placed} of {len(pods)} pods placed in {time.perf_counter() - started:.1f} s.",
            file=output,
        )
        for text in wrong:
            print(f"not as expected: {text}", file=output)
        for line in _ways_on(sandbox, keep=keep):
            print(line, file=output, flush=True)
        if keep:
            await sandbox.operator
        return 1 if wrong else 0


def _ways_on(sandbox: Sandbox, *, keep: bool) -> Iterator[str]:
    """Say what to type next."""
    command = own_command()
    if keep:
        kubeconfig = f"--kubeconfig {sandbox.kubeconfig}"
        yield "\nTry, in another terminal:"
        yield f"  kubectl {kubeconfig} get pods -o wide"
        yield f"  {command} explain pod impossible {kubeconfig}"
        yield "Stop: Ctrl-C"
        return
    ways = (
        ("up --detach --open", "a cluster to try things on, and its page"),
        ("demo --keep", "this one again, kept for kubectl"),
        ("demo -v", "the scheduler's own messages"),
    )
    rows = [f"  {f'{command} {words}':<30}  {what}" for words, what in ways]
    # The command's path may be long: then what it does stands above it.
    if max(map(len, rows)) > _WIDTH:
        rows = [f"  # {what}\n  {command} {words}" for words, what in ways]
    yield from ("\nNext:", *rows)


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


Explanations: TypeAlias = Mapping[str, PodExplanation | None]
"""The operator's explanation of each pod, by name."""


def table(
    examples: Sequence[Example],
    pods: Sequence[PodInfo],
    explanations: Explanations,
    *,
    is_verbose: bool = False,
) -> Iterator[str]:
    """The lines of the table: a row for each workload, with the nodes of its pods and why."""
    rows = []
    for example in examples:
        for workload in example.workloads:
            own = sorted((pod for pod in pods if owns(workload, pod)), key=lambda pod: pod.name)
            name = workload["metadata"]["name"]
            label = f"{name} ({len(own)})" if len(own) > 1 else name
            nodes = ", ".join(sorted(pod.node_name for pod in own if pod.node_name)) or "none"
            rows.append((label, nodes, own))
    width = max(len(label) for label, _, _ in rows)
    why_width = _WIDTH - width - _NODES_WIDTH - 4
    yield f"{'WORKLOAD':<{width}}  {'ON':<{_NODES_WIDTH}}  WHY"
    for label, nodes, own in rows:
        cells = (
            [label],
            wrap(nodes, _NODES_WIDTH, break_long_words=False),
            wrap(why(own, explanations), why_width, break_long_words=False),
        )
        for first, second, third in zip_longest(*cells, fillvalue=""):
            yield f"{first:<{width}}  {second:<{_NODES_WIDTH}}  {third}".rstrip()
        for pod in own if is_verbose else ():
            message = raw_message(pod, explanations.get(pod.name))
            indent = "    "
            yield from wrap(
                f"{pod.name}: {message}", _WIDTH, initial_indent="  ", subsequent_indent=indent
            )
    for _, _, own in rows:
        for pod in own:
            yield from _fixes(pod, explanations.get(pod.name))


def _fixes(pod: PodInfo, explanation: PodExplanation | None) -> Iterator[str]:
    """Lines with the changes that let a pod in that fits nowhere."""
    if pod.node_name or explanation is None or not explanation.would_fit:
        return
    yield f"\n{pod.name} fits nowhere. Each of these changes was tried, and lets it in:"
    for suggestion in explanation.would_fit:
        yield from wrap(suggestion.text, _WIDTH, initial_indent="  - ", subsequent_indent="    ")


def why(pods: Sequence[PodInfo], explanations: Explanations) -> str:
    """The reason in plain words for which the pods of a workload are where they are."""
    found = [explanations.get(pod.name) for pod in pods]
    decisions = [each.decision for each in found if each is not None and each.decision is not None]
    if len(decisions) < len(pods):
        verdicts = found[0].verdicts if found and found[0] is not None else None
        if verdicts is None or not verdicts.first_reasons:
            return scheduled_message(pods[0]) if pods else "it has no pods"
        counts = [verdicts.first_reasons]
        head = "no node fits"
    else:
        counts = [_rejections(decision) for decision in decisions]
        head = _head(decisions)
    reasons = dict.fromkeys(reason for each in counts for reason in each)
    parts = []
    for reason in reasons:
        numbers = [each.get(reason, 0) for each in counts]
        up_to = "up to " if min(numbers) != max(numbers) else ""
        parts.append(f"{up_to}{in_plain_words(reason, max(numbers), pods[0])}")
    return f"{head}: {', '.join(parts)}" if parts else head


def _rejections(decision: DecisionFields) -> Mapping[str, int]:
    """Nodes by the reason against them, the most first."""
    others = decision.others
    if others is None or others.nodes != decision.nodes - decision.feasible:
        return {}  # the nodes have changed since
    found = sorted(others.reasons, key=lambda each: -each.nodes)
    return {", ".join(each.reasons): each.nodes for each in found}


def _head(decisions: Sequence[DecisionFields]) -> str:
    """The choice among the nodes that fit."""
    first = decisions[0]
    if len(decisions) > 1:
        fits = sorted(each.feasible for each in decisions)
        span = f"{fits[0]}" if fits[0] == fits[-1] else f"{fits[0]} to {fits[-1]}"
        return f"{span} of {first.nodes} nodes fit each"
    if first.feasible == 1:
        return "the only node that fits"
    if first.tied > 1 or len(first.best) == 1:
        return f"one of {first.tied} equally good of {first.feasible} that fit"
    best = _leads(first)
    plain = _PLAIN_PLUGINS.get(best[0][0], f"by {best[0][0]}") if best else "by its scores"
    return f"best of {first.feasible} that fit, {plain}"


_PLAIN_PLUGINS: Final = {
    "NodeAffinity": "as the one it prefers",
    "InterPodAffinity": "for the pods on it",
    "PodTopologySpread": "as it spreads best",
    "NodeResourcesFit": "as it has most room",
    "NodeResourcesBalancedAllocation": "as its use is most even",
    "ImageLocality": "as it has the image",
    "TaintToleration": "as it has fewest taints",
}
"""The reason for a choice, by the plugin whose score was decisive."""


def in_plain_words(reason: str, nodes: int, pod: PodInfo) -> str:
    """kube-scheduler's reason against some nodes, in words for a reader who is new to it."""
    one = nodes == 1
    if reason == "node(s) didn't match Pod's node affinity/selector":
        selector = pod.spec.node_selector
        if selector and pod.spec.required_node_affinity is None:
            wanted = ", ".join(f"{key}={value}" for key, value in selector.items())
            return f"{nodes} {'lacks' if one else 'lack'} {wanted}"
        return f"{nodes} {'lacks' if one else 'lack'} the labels it requires"
    if reason.startswith("Insufficient "):
        resource = reason.removeprefix("Insufficient ")
        return f"{nodes} {'has' if one else 'have'} too little {resource}"
    singular, plural = _PLAIN_REASONS.get(reason, (f"({reason})", f"({reason})"))
    return f"{nodes} {singular if one else plural}"


_PLAIN_REASONS: Final = {
    "node(s) had untolerated taint(s)": ("is tainted", "are tainted"),
    "node(s) didn't match pod anti-affinity rules": (
        "has a pod that it avoids",
        "have a pod that it avoids",
    ),
    "node(s) didn't match pod affinity rules": (
        "has no pod that it must be near",
        "have no pod that it must be near",
    ),
    "node(s) didn't match pod topology spread constraints": (
        "would be uneven",
        "would be uneven",
    ),
    "node(s) were unschedulable": ("is cordoned", "are cordoned"),
}
"""kube-scheduler's reasons, as what one node is or has, and several."""


_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
_SCORES: Final = 2
"""Scores that are named."""


def raw_message(pod: PodInfo, explanation: PodExplanation | None) -> str:
    """The scheduler's own words about a pod: each reason, and the scores that were decisive."""
    if not pod.node_name or explanation is None or explanation.decision is None:
        note = explanation.note if explanation is not None else ""
        return scheduled_message(pod) or note or "not explained"
    decision = explanation.decision
    words = [f"{decision.feasible} of {decision.nodes} nodes fit"]
    words += (f"{nodes}: {reason}" for reason, nodes in _rejections(decision).items())
    if len(decision.best) > 1:
        words.append(_choice(decision))
    return "; ".join(words)


def _choice(decision: DecisionFields) -> str:
    """The scores that put the chosen node before the next one."""
    chosen, second = decision.best[:2]
    if decision.tied > 1:
        return f"{decision.tied} tied at {chosen.total}; picked one at random"
    named = ", ".join(f"{plugin} +{lead}" for plugin, lead in _leads(decision)[:_SCORES])
    return f"best by {chosen.total} to {second.total} ({named})"


def _leads(decision: DecisionFields) -> list[tuple[str, int]]:
    """The plugins that put the chosen node before the next one, the largest lead first."""
    chosen, second = decision.best[:2]
    leads = {
        plugin: score.weighted - second.scores[plugin].weighted
        for plugin, score in chosen.scores.items()
    }
    ahead = [(plugin, lead) for plugin, lead in leads.items() if lead > 0]
    return sorted(ahead, key=lambda each: -each[1])


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
