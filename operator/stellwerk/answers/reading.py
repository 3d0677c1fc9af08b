"""The cluster behind an answer that no operator gave: when it was read, and what is assumed of it.

The commands that read a cluster in place of an operator make it (`stellwerk_cli.reading`); each of
their answers holds it as `read`. An operator's answers have no such field.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class KindLeftOut(PortAnswer):
    """A kind of objects that decisions need and that was not read."""

    kind: str
    reason: str
    """The reason for which it was not read, for example the right that is missing."""
    consequence: str
    """The effect on this answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedConfiguration(PortAnswer):
    """The configuration of the cluster's scheduler, as far as it can be known from outside."""

    source: str
    """The place that it was taken from, in words."""
    compatibility: str
    """The Kubernetes release that decisions follow where a profile names none."""
    scheduler_names: Sequence[str]
    """The schedulerNames that it has a profile for."""
    remarks: Sequence[str] | None = None
    """Settings that cannot be seen, or mean something else here."""
    extenders_not_asked: Sequence[str] | None = None
    """The URLs of extenders that have a say in the scheduler's decisions and none in this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReading(PortAnswer):
    """One reading of a cluster, on which an answer was decided."""

    server_version: str
    read_at: Time
    nodes: int
    pods: int
    """Pods that have not finished."""
    configuration: AssumedConfiguration
    operator: str
    """The reason for which no operator was asked."""
    left_out: Sequence[KindLeftOut] | None = None

    def lines(self) -> Iterator[str]:
        """The reading in words: one line, and one more for each thing that is not as it seems."""
        yield (
            f"{self.operator}: {read_text(self.nodes, self.pods, self.read_at)}, decided as "
            f"kube-scheduler {self.configuration.compatibility} is assumed to"
        )
        yield from self.configuration.remarks or ()
        if self.configuration.extenders_not_asked:
            urls = ", ".join(self.configuration.extenders_not_asked)
            yield f"extenders were not asked: {urls} (--call-extenders asks them)"
        for each in self.left_out or ():
            yield f"without {each.kind}: {each.reason}; {each.consequence}"


def read_text(nodes: int, pods: int, read_at: Time) -> str:
    """The size of a cluster that was read, and the time of day."""
    at = read_at.partition("T")[2].partition(".")[0]
    return f"read {counted(nodes, 'node')} and {counted(pods, 'pod')} at {at}"
