"""The addresses of a cluster of `stellwerk up`, and how they are printed.

It is apart from `sandbox` because the command that starts a cluster in the background prints them,
too, and imports none of what makes a cluster.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from shutil import which
from typing import TextIO


def own_command() -> str:
    """The way to call this command again: its name if that is enough, otherwise its path."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m stellwerk_cli"
    found = which(called.name)
    if found is not None and Path(found).resolve() == called.resolve():
        return called.name
    return str(called.resolve())


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a cluster of `stellwerk up` that serves."""

    release: str
    """The sentence on the release and on groups of pods."""
    cluster: str
    kubeconfig: str
    context: str
    """To be named to kubectl; empty: the current one."""
    scheduler: str
    page: str
    node: str
    """The first node, for a command to try; empty: there is none."""

    def print(self, output: TextIO, stop: str, where: str) -> None:
        """Print them with commands to try; `stop` ends the cluster, `where` to type them."""
        command, context = own_command(), f" --context {self.context}" if self.context else ""
        lines = (
            self.release,
            f"Cluster:    {self.cluster}",
            f"Kubeconfig: {self.kubeconfig}",
            f"Scheduler:  {self.scheduler}",
            f"Page:       {self.page}",
            f"\nTry, {where}:",
            f"  export KUBECONFIG={quote(self.kubeconfig)}",
            f"  kubectl{context} run hello --image=registry.k8s.io/pause:3.10",
            f"  {command} explain pod hello{context}",
            *([f"  {command} what-if --drain {quote(self.node)}{context}"] if self.node else ()),
            f"\nStop: {stop}",
        )
        print(*lines, sep="\n", file=output, flush=True)
