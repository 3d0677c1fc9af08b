"""The admission plugins by name: which there are, and which are on unless a flag says otherwise.

Read by the verbs and by the command line. Invariant: names are those of kube-apiserver.
"""

from __future__ import annotations

from typing import Final

DEFAULT_PLUGINS: Final = frozenset(
    (
        "DefaultIngressClass",
        "DefaultStorageClass",
        "DefaultTolerationSeconds",
        "JobValidation",
        "LimitRanger",
        "PersistentVolumeClaimResize",
        "PodGroupProtection",
        "PodGroupWorkloadExists",
        "PodTopologyLabels",
        "Priority",
        "ResourceQuota",
        "RuntimeClass",
        "StorageObjectInUseProtection",
        "TaintNodesByCondition",
    )
)
"""On unless they are disabled, as in kube-apiserver."""
OPTIONAL_PLUGINS: Final = frozenset(
    (
        "ExtendedResourceToleration",
        "LimitPodHardAntiAffinityTopology",
        "PodTolerationRestriction",
    )
)
"""Off unless they are enabled."""


def plugins(enabled: str = "", disabled: str = "") -> frozenset[str]:
    """The plugins that are on; both texts are lists of names with commas.

    Raises:
        ValueError: a name is that of no plugin.
    """
    known = DEFAULT_PLUGINS | OPTIONAL_PLUGINS
    wanted, unwanted = (
        {name.strip() for name in text.split(",") if name.strip()} for text in (enabled, disabled)
    )
    unknown = sorted((wanted | unwanted) - known)
    if unknown:
        message = f"no admission plugin {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        raise ValueError(message)
    return (DEFAULT_PLUGINS | wanted) - unwanted
