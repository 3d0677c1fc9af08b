"""The main job in one command: a cluster, the operator, examples, which pod runs where, and why.

The command line calls `run_demo`. Invariant: it ends with status 0 only if every example behaved as
its file says, and it leaves nothing running.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Final, TextIO

from stellwerk.app import RunOptions, run
from stellwerk.demo.examples import Example, load_examples, load_nodes, resource_of
from stellwerk.models.json_values import JsonObject
from stellwerk.serving.port import PortOptions
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.command import open_cluster

_PORT: Final = PortOptions("127.0.0.1:0", plain_http=True)
_WIDTH: Final = 80
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
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stellwerk-")))
        kubeconfig = directory / "kubeconfig"
        nodes = load_nodes()
        cluster = await stack.enter_async_context(open_cluster(nodes))
        cluster.write_kubeconfig(kubeconfig)
        operator = asyncio.create_task(
            run(
                RunOptions(
                    kubeconfig=str(kubeconfig), port=PortOptions("127.0.0.1:0", plain_http=True)
                )
            ),
            name="operator",
        )
        stack.push_async_callback(_stop, operator)
        print(f"A cluster of {len(nodes)} nodes at {cluster.url}\n", file=output)
        examples = load_examples()
        for example in examples:
            _apply(cluster, example)
            await _settle(cluster, example, operator, Progress(output))
        pods = list(cluster.api.all("pods", "default"))
        print(file=output)
        _print_table(examples, pods, output)
        wrong = [example for example in examples if not _as_expected(example, pods)]
        placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        print(
            f"\n{placed} of {len(pods)} pods placed in {time.perf_counter() - started:.1f} s.",
            file=output,
        )
        for example in wrong:
            print(f"not as expected: {example.title}", file=output)
        if keep:
            print(f"\nTry:  kubectl --kubeconfig {kubeconfig} get pods -o wide", file=output)
            print("Stop: Ctrl-C", file=output, flush=True)
            await operator
        return 1 if wrong else 0


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
        pods = [pod for pod in cluster.api.all("pods", "default") if example.owns(pod)]
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
    return "running" if example.schedulable else "told why it cannot run"


def _settled(example: Example, pod: JsonObject) -> bool:
    if example.schedulable:
        return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") == "Running"
    return bool(_message(pod))


def _as_expected(example: Example, pods: list[JsonObject]) -> bool:
    own = [pod for pod in pods if example.owns(pod)]
    return len(own) == example.pod_count and all(_settled(example, pod) for pod in own)


def _message(pod: JsonObject) -> str:
    """Why the scheduler found no node, in its own words; empty: it has not said so."""
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _print_table(examples: list[Example], pods: list[JsonObject], output: TextIO) -> None:
    width = max(len(pod["metadata"]["name"]) for pod in pods)
    print(f"{'POD':<{width}}  {'NODE':<8}  WHY", file=output)
    for example in examples:
        for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
            if example.owns(pod):
                for line in _row(example, pod, width):
                    print(line, file=output)


def _row(example: Example, pod: JsonObject, width: int) -> Iterator[str]:
    node = pod["spec"].get("nodeName") or "-"
    why = example.why if example.schedulable else _message(pod)
    first, *rest = wrap(why, _WIDTH - width - 12) or [""]
    yield f"{pod['metadata']['name']:<{width}}  {node:<8}  {first}"
    for line in rest:
        yield f"{'':<{width}}  {'':<8}  {line}"


async def _stop(operator: "asyncio.Task[None]") -> None:
    operator.cancel()
    await asyncio.wait({operator})
