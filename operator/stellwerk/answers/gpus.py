"""GPUs that pods share, as they are answered: what one holds, or what is free for one that waits.

Explanations say it. Invariant: a line for people says nothing that is not in the fields.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.answers.answer import PortAnswer
from stellwerk.models.gpu import GpuRequest

_LINES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusOfNode(PortAnswer):
    """The free parts of one node's GPUs."""

    node: str
    free_milli: Sequence[int]
    """Thousandths that are free, by device."""
    rejected_by_others: bool
    """Whether plugins turn the node away that look at other things than GPUs."""

    @property
    def line(self) -> str:
        """The node in words."""
        other = " (other plugins reject it as well)" if self.rejected_by_others else ""
        return f"  {self.node}: {', '.join(map(str, self.free_milli))} free of its devices{other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusOfPod(PortAnswer):
    """The GPUs that a pod holds, or that it asks for and does not get."""

    devices: int
    """Devices that it asks for."""
    milli_of_each: int
    """Thousandths of each."""
    numbers: Sequence[int] | None = None
    """The devices that it holds on its node."""
    nodes_with_gpus: int | None = None
    idle_milli: int | None = None
    """Thousandths that are free on all nodes together."""
    most_free_milli: int | None = None
    """Thousandths that are free of one device, at most."""
    whole_devices_idle: int | None = None
    nearest: Sequence[GpusOfNode] | None = None
    """Some nodes, those first that lack least."""

    def lines(self) -> Iterator[str]:
        """The pod's request or devices, and the nearest nodes, for people."""
        asked = _amount(GpuRequest(self.devices, self.milli_of_each))
        if self.numbers is not None:
            yield f"It holds {asked}: number {', '.join(map(str, self.numbers))}."
            return
        nodes = "1 node" if self.nodes_with_gpus == 1 else f"{self.nodes_with_gpus} nodes"
        yield (
            f"It requests {asked}. {nodes} with GPUs: {self.idle_milli} thousandths are idle in "
            f"all, at most {self.most_free_milli} of them on one device; "
            f"{self.whole_devices_idle} devices are wholly idle."
        )
        for each in (self.nearest or ())[:_LINES]:
            yield each.line


def _amount(request: GpuRequest) -> str:
    if request.shares:
        return f"{request.milli} thousandths of one GPU"
    return "one whole GPU" if request.devices == 1 else f"{request.devices} whole GPUs"
