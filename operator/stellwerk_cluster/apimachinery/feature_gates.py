"""The feature gates that the embedded cluster has, which need which, and their flag.

Read by the command line, by the table of kinds and by admission. Invariant: a set of gates that is
in use is complete: what a gate needs is on, too.
"""

from __future__ import annotations

from typing import Final

GENERIC_WORKLOAD: Final = "GenericWorkload"
GANG_SCHEDULING: Final = "GangScheduling"
TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
PREEMPTION: Final = "WorkloadAwarePreemption"
CLAIMS: Final = "DRAWorkloadResourceClaims"
JOBS: Final = "WorkloadWithJob"
NEEDS: Final = {
    GENERIC_WORKLOAD: "",
    GANG_SCHEDULING: GENERIC_WORKLOAD,
    TOPOLOGY: GENERIC_WORKLOAD,
    PREEMPTION: GANG_SCHEDULING,
    CLAIMS: GENERIC_WORKLOAD,
    JOBS: GENERIC_WORKLOAD,
}
"""All gates, named as in kube-apiserver, each with the one that it needs; all are off by default,
as there.
"""
ALL_ALPHA: Final = "AllAlpha"
GANGS: Final = frozenset((GENERIC_WORKLOAD, GANG_SCHEDULING, TOPOLOGY, PREEMPTION))
"""What gangs of plain pods need."""


def feature_gates(text: str) -> frozenset[str]:
    """The gates that are on, from a text like `GenericWorkload=true,GangScheduling=true`.

    AllAlpha sets every gate that the text does not name.

    Raises:
        ValueError: the text has another form, names no gate, or leaves out what a gate needs.
    """
    given = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = each.partition("=")
        if name not in NEEDS and name != ALL_ALPHA:
            raise ValueError(f"no gate {name}; there are {', '.join((*NEEDS, ALL_ALPHA))}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{each}: expected {name}=true or {name}=false")
        given[name] = value.lower() == "true"
    everything = given.pop(ALL_ALPHA, False)
    gates = frozenset(name for name in NEEDS if given.get(name, everything))
    for name in sorted(gates):
        if NEEDS[name] and NEEDS[name] not in gates:
            raise ValueError(
                f"{name} is enabled, but depends on features that are disabled: [{NEEDS[name]}]"
            )
    return gates
