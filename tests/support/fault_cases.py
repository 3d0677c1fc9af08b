"""The kinds of faults that runs strike with: the rows of the fault matrix.

Those that a table can say lie in docs/faults, for practice, too. Invariant: every file
there is one of them.
"""

from dataclasses import replace
from typing import Final

from tests.support.fault_runs import EXAMPLES, Case, Disruption, example
from tests.support.replicas import OWN_LEASE

LONG_OUTAGE: Final = "long-outage-without-history"


_ELECTION: Final = (
    "--leader-elect",
    *("--leader-elect-lease-duration", "4s", "--leader-elect-renew-deadline", "3s"),
    *("--leader-elect-retry-period", "500ms"),
    *OWN_LEASE,
)
"""A lease that some pauses outlive; a machine on which others work may cost one, too."""
_BAD_DAY: Final = example("everything-at-once")


def with_standby(title: str, *disruptions: Disruption, case: Case | None = None) -> Case:
    """Two replicas, of which one leads."""
    case = case or Case(title)
    return replace(case, title=title, disruptions=disruptions, replicas=2, arguments=_ELECTION)


def _examples() -> dict[str, Case]:
    names = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
    return {name: example(name) for name in names}


CASES: Final[dict[str, Case]] = {
    "nothing": Case("nothing"),
    **_examples(),
    "killed": Case("killed", disruptions=(Disruption("kill", (4, 7)),)),
    "told-to-end": Case("told to end", disruptions=(Disruption("terminate", (4, 7)),)),
    "paused": Case("paused", disruptions=(Disruption("pause", (0.3, 2)),)),
    "jumping-clock": Case("jumping clock", clock_jumps=True),
    "killed-beside-a-standby": with_standby("killed beside a standby", Disruption("kill", (4, 7))),
    "told-to-end-beside-a-standby": with_standby(
        "told to end beside a standby", Disruption("terminate", (4, 7))
    ),
    "paused-beside-a-standby": with_standby(
        "paused beside a standby", Disruption("pause", (3, 5), (1, 6))
    ),
    "killed-on-a-bad-day-beside-a-standby": with_standby(
        "everything at once, killed and paused beside a standby",
        Disruption("kill", (6, 10)),
        Disruption("pause", (3, 5), (1, 6)),
        case=_BAD_DAY,
    ),
    "gangs": replace(_BAD_DAY, title="everything at once, pods in gangs of four", group_size=4),
    "gangs-killed": Case(
        "killed, pods in gangs of four", disruptions=(Disruption("kill", (4, 7)),), group_size=4
    ),
    "gangs-killed-between-bindings": Case(
        "killed while a gang of twelve is bound",
        disruptions=(Disruption("kill", (1, 3), between_bindings=True),),
        group_size=12,
    ),
    "preemption": replace(
        _BAD_DAY, title="everything at once, pods that preempt others", preempting=True
    ),
    "preemption-killed": Case(
        "killed, pods that preempt others",
        disruptions=(Disruption("kill", (4, 7)),),
        preempting=True,
    ),
    "recorded-and-shadowed": replace(
        _BAD_DAY,
        title="everything at once, recorded and shadowed",
        arguments=("--record", "{directory}/run.journal"),
        shadowed=True,
    ),
}
"""By the name of the file, or of what is done to the process, and how the operator is run."""
