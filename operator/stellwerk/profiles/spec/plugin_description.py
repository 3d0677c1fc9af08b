"""The description of a plugin by which a profile names, configures and orders it.

`plugins/registry.py` builds one description per plugin (in-tree and from entry points); loading a
profile reads them. Invariant: a description is immutable and holds no plugin instance, so that a
profile can be checked without building a framework.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import BaseModel


class ExtensionPoint(StrEnum):
    """The extension points a profile lists, by their name in KubeSchedulerConfiguration v1."""

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"

    @property
    def label(self) -> str:
        """The point's name as metrics and logs write it: `PreFilter`."""
        return self.value[0].upper() + self.value[1:]


UNSET_WEIGHT: Final = 1
"""kube-scheduler turns a weight that is absent or 0 into 1 (getValidScoreWeights, v1.36)."""


@dataclass(frozen=True, slots=True)
class PluginKind:
    """A kind of objects that a plugin reads, and where the API serves it."""

    kind: str
    """The name under which objects, changes and events have it."""
    group: str
    version: str
    plural: str


@dataclass(frozen=True, slots=True)
class PluginDescription:
    """A plugin as profiles see it."""

    name: str
    """The name in profiles, reports and metrics; an alias maps to a description of this name."""

    extension_points: frozenset[ExtensionPoint]
    """The points at which multiPoint puts the plugin, and the only ones that may list it."""

    args_model: type[BaseModel] | None = None
    """The model that validates `pluginConfig[].args`; None for a plugin that takes no arguments."""

    default_weight: int = UNSET_WEIGHT
    """The score weight where a profile enables the plugin without one. kube-scheduler's rule is 1
    for every plugin; the weights of the default set are in `profile_defaults`, not here."""
