"""The kinds of which the API server has other versions in other releases, and which can be read.

`handlers` chooses by it what is watched, docs/compatibility.md shows it. Invariant: this table is
the only place that says which versions are read; a new one goes in front, with whatever its parser
and its writer need to know of it where those read `apiVersion`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stellwerk.models.pod_group_key import WORKLOAD_API

_DEVICES: Final = "resource.k8s.io"

Served = Mapping[str, Collection[str]]
"""The plurals of each version of an API group that is served."""


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind that releases serve in different versions."""

    kind: str
    group: str
    plural: str
    versions: tuple[str, ...]
    """Those that can be read and written, newest first."""
    parser: str
    """The function that reads its objects, by what their apiVersion says."""
    writer: str
    """What writes them; empty: nothing does."""
    lack: str
    """The capability that is off where it is not served."""


_GROUP_VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
API_KINDS: Final[Mapping[str, ApiKind]] = MappingProxyType(
    {
        each.kind: each
        for each in (
            ApiKind(
                "PodGroup",
                WORKLOAD_API,
                "podgroups",
                _GROUP_VERSIONS,
                "models.pod_group.parse_pod_group",
                "scheduler.gangs.group_conditions",
                "pods that name a group wait, and say so",
            ),
            ApiKind(
                "Workload",
                WORKLOAD_API,
                "workloads",
                (*_GROUP_VERSIONS, "v1alpha1"),
                "",
                "",
                "nothing: groups are made from it by others",
            ),
            ApiKind(
                "CompositePodGroup",
                WORKLOAD_API,
                "compositepodgroups",
                ("v1alpha3",),
                "",
                "",
                "nothing: groups in trees are not placed",
            ),
            *(
                ApiKind(
                    kind,
                    _DEVICES,
                    plural,
                    ("v1", "v1beta2"),
                    "plugins.dynamic_resources",
                    writer,
                    "pods with claims wait",
                )
                for kind, plural, writer in (
                    ("ResourceClaim", "resourceclaims", "plugins.dynamic_resources.bind_claim"),
                    ("ResourceSlice", "resourceslices", ""),
                    ("DeviceClass", "deviceclasses", ""),
                )
            ),
            ApiKind(
                "DeviceTaintRule",
                _DEVICES,
                "devicetaintrules",
                ("v1", "v1beta2", "v1alpha3"),
                "plugins.dynamic_resources",
                "",
                "devices have the taints of their slices alone",
            ),
        )
    }
)
"""By kind."""


def chosen_version(
    plural: str, readable: Sequence[str], served: Served, in_use: str = ""
) -> str | None:
    """The version to use of what a group serves: the newest that can be read; None: there is none.

    A version that is in use is kept for as long as it is served.
    """
    found = [version for version in readable if plural in served.get(version, ())]
    if in_use in found:
        return in_use
    return found[0] if found else None


def unreadable_versions(plural: str, readable: Sequence[str], served: Served) -> list[str]:
    """The versions in which a plural is served and cannot be read."""
    return sorted(
        version
        for version, plurals in served.items()
        if plural in plurals and version not in readable
    )
