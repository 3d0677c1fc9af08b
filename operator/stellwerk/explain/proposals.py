"""Proposals of a profile's plugins, and their parts of explanations; none is asked by name.

The explanation of a pod and the search for what would make it fit ask it. The search itself adds
most deletions of pods in the way (`would_fit.PodsInTheWay`), for which it knows two plugins by name
(`would_fit._DOMAIN_PLUGINS`). Invariant: a plugin that
does not come with Stellwerk and raises, takes too long or proposes too much has no part in the
answer but its name and the reason.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from stellwerk.answers.pod import PluginLeftOut
from stellwerk.explain.steps import Steps
from stellwerk.framework.changes import Change, EditObject, EditPod, PodPart, SetLabels
from stellwerk.framework.extension_points import EXPLAIN, PROPOSE
from stellwerk.framework.interface import Plugin, PluginPart
from stellwerk.framework.types import CycleState, PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.columns import RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.profiles import ServedProfile
from stellwerk_kube.node import describes_node

EXPLANATION_POINTS: Final = frozenset({"Explain", "Propose"})
"""Points of a PluginFailure that concerns explanations alone."""


class PluginsAsked:
    """The plugins of one profile, asked about one pod."""

    def __init__(
        self, snapshot: Snapshot, pod: PodInfo, profile: ServedProfile, state: CycleState
    ) -> None:
        """`state`: of an attempt up to Filter."""
        self._pod = pod
        self._state = state
        self._snapshot = snapshot
        self._nodes = NodeView(snapshot, np.array(list(snapshot.row_of.values()), np.intp))
        points = profile.framework.plugins
        ordered = [
            *points.get(ExtensionPoint.FILTER, ()),
            *(p for at in points.values() for p in at),
        ]
        self._plugins: Sequence[Plugin] = list(dict.fromkeys(ordered))
        self._proposing = {each.name: each for each in PROPOSE.among(self._plugins)}
        self._reasons: dict[str, str] = {}
        self._of_pod: dict[str, list[Change]] = {}
        self.object_edits: list[EditObject] = []
        """Changes of other objects that plugins propose, once `ask_about_pod` is through."""

    @property
    def left_out(self) -> list[PluginLeftOut]:
        """The plugins that have no part in the answer."""
        return [
            PluginLeftOut(plugin=plugin, reason=reason) for plugin, reason in self._reasons.items()
        ]

    def leave_out(self, failure: PluginFailure) -> None:
        """Ask a plugin no more.

        Raises:
            PluginFailure: that one, where it broke as a filter.
        """
        if failure.point not in EXPLANATION_POINTS:
            raise failure
        self._reasons.setdefault(failure.plugin, str(failure))

    def parts(self) -> Steps[Mapping[str, PluginPart]]:
        """Each plugin's part of the explanation, by its name."""
        found: dict[str, PluginPart] = {}
        for plugin in EXPLAIN.among(self._plugins):
            try:
                part = plugin.explain(self._state, self._pod, self._nodes)
                if isinstance(part, Generator):
                    part = yield from part
            except PluginFailure as failure:
                self.leave_out(failure)
                continue
            if part is not None:
                found[plugin.name] = part
            yield
        return found

    # --- proposals ------------------------------------------------------------------------------

    def ask_about_pod(self, nearest: RowColumn) -> Iterator[None]:
        """Have every plugin propose what the pod could do without.

        `nearest`: (n,) the rows that fewest plugins turn away.
        """
        nodes = NodeView(self._snapshot, nearest)
        for name, plugin in self._proposing.items():
            changes: list[Change] = []
            edits: list[EditObject] = []
            try:
                for each in plugin.propose(self._state, self._pod, None, nodes):
                    if each is None:
                        yield
                    elif isinstance(each, EditObject):
                        edits.append(each)
                    elif not _would_lie(each):
                        changes.append(each)
            except PluginFailure as failure:
                self.leave_out(failure)
                continue
            self._of_pod[name] = changes
            self.object_edits += edits
            yield

    def of_pod(self) -> list[Change]:
        """Edits of the pod, in the order in which they are tried."""
        return sorted((each for found in self._of_pod.values() for each in found), key=_part)

    def edits_for(self, plugin: str) -> list[Change]:
        """Edits of the pod for one plugin's sake that may be combined with other changes."""
        found = self._of_pod.get(plugin, ())
        return [each for each in found if _part(each) is not PodPart.REQUESTS]

    def requests_for(self, row: int) -> list[Change]:
        """Edits of the pod that cut its requests to what one node has."""
        nodes = NodeView(self._snapshot, np.array([row]))
        found: list[Change] = []
        for name, plugin in self._proposing.items():
            if name in self._reasons:
                continue
            try:
                proposed = list(plugin.propose(self._state, self._pod, None, nodes))
            except PluginFailure as failure:
                self.leave_out(failure)
                continue
            found += (
                each
                for each in proposed
                if isinstance(each, EditPod) and each.part is PodPart.REQUESTS
            )
        return found

    def for_node(self, row: int, failing: Sequence[str]) -> Iterator[tuple[str, Change]]:
        """(plugin, change) for each plugin that turns the node away."""
        for name in failing:
            plugin = self._proposing.get(name)
            if plugin is None or name in self._reasons:
                continue
            try:
                found = list(plugin.propose(self._state, self._pod, row, self._nodes))
            except PluginFailure as failure:
                self.leave_out(failure)
                continue
            for each in found:
                if each is not None and not isinstance(each, EditObject) and not _would_lie(each):
                    yield name, each


def _would_lie(change: Change) -> bool:
    """Whether a change labels a node as what it is not, such as with the name of another."""
    return isinstance(change, SetLabels) and any(describes_node(key) for key, _ in change.labels)


def _part(change: Change) -> PodPart:
    return change.part if isinstance(change, EditPod) else PodPart.PLACEMENT
