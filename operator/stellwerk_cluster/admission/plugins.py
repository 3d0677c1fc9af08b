"""The admission plugins by name: which there are, and which are on unless a flag says otherwise.

Read by the verbs and by the command line. Invariant: names are those of kube-apiserver.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, exists

DEFAULT_PLUGINS: Final = frozenset(
    (
        "DefaultIngressClass",
        "DefaultStorageClass",
        "DefaultTolerationSeconds",
        "JobValidation",
        "LimitRanger",
        "NamespaceLifecycle",
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
_UNTIL: Final = {"PodGroupWorkloadExists": "1.36"}
"""Plugins that a later release has no longer, with the last one that has them."""
OPTIONAL_PLUGINS: Final = frozenset(
    (
        "ExtendedResourceToleration",
        "LimitPodHardAntiAffinityTopology",
        "PodTolerationRestriction",
    )
)
"""Off unless they are enabled."""


NODE_RESTRICTION: Final = "NodeRestriction"
SERVICE_ACCOUNT: Final = "ServiceAccount"
RBAC_PLUGINS: Final = frozenset((NODE_RESTRICTION, SERVICE_ACCOUNT))
"""On where rights are enforced, elsewhere off, unless a flag says otherwise."""


class PluginFlags(NamedTuple):
    """The plugins that two flags switch on and off beside those that are on by default."""

    enabled: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()

    def applied(self, *, enforced: bool, release: str = RECORDED_RELEASE) -> frozenset[str]:
        """The plugins of a release that are on; `enforced`: rights are."""
        default = default_plugins(release)
        return ((default | RBAC_PLUGINS if enforced else default) | self.enabled) - self.disabled


def default_plugins(release: str = RECORDED_RELEASE) -> frozenset[str]:
    """The plugins that a release has on."""
    return frozenset(name for name in DEFAULT_PLUGINS if exists(release, "", _UNTIL.get(name, "")))


def plugin_flags(
    enabled: str = "", disabled: str = "", release: str = RECORDED_RELEASE
) -> PluginFlags:
    """The plugins of two flags; both texts are lists of names with commas.

    Raises:
        ValueError: a name is that of no plugin, or stands in both.
    """
    known = default_plugins(release) | OPTIONAL_PLUGINS | RBAC_PLUGINS
    wanted, unwanted = (
        {name.strip() for name in text.split(",") if name.strip()} for text in (enabled, disabled)
    )
    unknown = sorted((wanted | unwanted) - known)
    if unknown:
        message = f"no admission plugin {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        raise ValueError(message)
    if wanted & unwanted:
        message = (
            f"{', '.join(sorted(wanted & unwanted))} in enable-admission-plugins and "
            "disable-admission-plugins overlapped"
        )
        raise ValueError(message)
    return PluginFlags(frozenset(wanted), frozenset(unwanted))
