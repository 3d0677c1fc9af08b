"""The feature gates that the embedded cluster has, by release, which need which, and their flag.

Read by the command line, by the table of kinds, by the verbs and by admission. Invariant: a set of
gates that is in use is complete: what a gate needs is on, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, exists

GENERIC_WORKLOAD: Final = "GenericWorkload"
GANG_SCHEDULING: Final = "GangScheduling"
COMPOSITE: Final = "CompositePodGroup"
TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
PREEMPTION: Final = "WorkloadAwarePreemption"
PREEMPTION_POLICY: Final = "PodGroupPreemptionPolicy"
CLAIMS: Final = "DRAWorkloadResourceClaims"
JOBS: Final = "WorkloadWithJob"
VOLUME_LIMITS: Final = "VolumeLimitScaling"
UNUSED_CLAIMS: Final = "PersistentVolumeClaimUnusedSinceTime"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate, named as in kube-apiserver."""

    name: str
    needs: str = ""
    """The gate that must be on, too."""
    since: str = ""
    until: str = ""
    beta: str = ""
    """The release in which it is no longer alpha; empty: it is in all."""
    ga: str = ""
    """The release from which it is GA, so that AllAlpha and AllBeta leave it alone; empty: none."""
    on: str = ""
    """The release from which it is on unless it is turned off; empty: none."""


GATES: Final = (
    Gate(GENERIC_WORKLOAD, beta="1.37", ga="1.38", on="1.38"),
    Gate(GANG_SCHEDULING, GENERIC_WORKLOAD, until="1.36"),
    Gate(TOPOLOGY, GENERIC_WORKLOAD, beta="1.38"),
    Gate(COMPOSITE, TOPOLOGY, since="1.38", beta="1.38"),
    Gate(PREEMPTION, GANG_SCHEDULING, until="1.36"),
    Gate(CLAIMS, GENERIC_WORKLOAD, beta="1.37"),
    Gate(JOBS, GENERIC_WORKLOAD),
    Gate(PREEMPTION_POLICY, GENERIC_WORKLOAD, since="1.37"),
    Gate(VOLUME_LIMITS, beta="1.37", on="1.37"),
    Gate(UNUSED_CLAIMS, beta="1.37", on="1.37"),
)
ALL_ALPHA: Final = "AllAlpha"
ALL_BETA: Final = "AllBeta"
GANGS: Final = frozenset((GENERIC_WORKLOAD, GANG_SCHEDULING, TOPOLOGY, PREEMPTION))
"""Gates that gangs of plain pods need in 1.36."""


def gates_of(release: str) -> dict[str, Gate]:
    """The gates that a release has, by name."""
    return {gate.name: gate for gate in GATES if exists(release, gate.since, gate.until)}


def default_gates(release: str = RECORDED_RELEASE) -> frozenset[str]:
    """The gates that are on where nothing is said, as in kube-apiserver."""
    return frozenset(
        name for name, gate in gates_of(release).items() if gate.on and exists(release, gate.on, "")
    )


def feature_gates(
    text: str, release: str = RECORDED_RELEASE, default: frozenset[str] | None = None
) -> frozenset[str]:
    """The gates that are on, from a text like `GenericWorkload=true,GangScheduling=true`.

    AllAlpha and AllBeta set every gate of that stability that the text does not name; `default` are
    those that are on where nothing is said, without it those of the release.

    Raises:
        ValueError: the text has another form, names no gate of the release, or leaves out what a
            gate needs.
    """
    known = gates_of(release)
    default = default_gates(release) if default is None else default
    given = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = each.partition("=")
        if name not in (*known, ALL_ALPHA, ALL_BETA):
            listed = ", ".join((*known, ALL_ALPHA, ALL_BETA))
            raise ValueError(f"no gate {name} in {release}; there are {listed}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{each}: expected {name}=true or {name}=false")
        given[name] = value.lower() == "true"
    alpha, beta = given.pop(ALL_ALPHA, None), given.pop(ALL_BETA, None)
    gates = set()
    for name, gate in known.items():
        wide = beta if gate.beta and exists(release, gate.beta, "") else alpha
        if gate.ga and exists(release, gate.ga, ""):
            wide = None
        if given.get(name, name in default if wide is None else wide):
            gates.add(name)
    for name in sorted(gates):
        needed = known[name].needs
        if needed and needed not in gates:
            raise ValueError(
                f"{name} is enabled, but depends on features that are disabled: [{needed}]"
            )
    return frozenset(gates)
