"""The main job in one command: a cluster, the operator, examples, which pod runs where, and why.

The command line calls `run_demo`. Invariant: it ends with status 0 only if every example behaved as
its file says, and it leaves nothing running.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Final, TextIO

from stellwerk.demo.examples import Example, load_examples, load_nodes, resource_of
from stellwerk.demo.reasons import forbidden, reason
from stellwerk.demo.sandbox import Sandbox, open_sandbox, own_command
from stellwerk.explain.report import scheduled_message
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk_cluster.cluster import EmbeddedCluster

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
            print(f"\r{text:<{len(self._shown)}}", end="", file=self.output, flush=True)
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
    async with open_sandbox(nodes) as sandbox:
        cluster = sandbox.cluster
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
    print(f"      {command} explain pod NAME --url {sandbox.url}", file=output)
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
