"""One profile's plugins at the points after a node is chosen.

Reserve, Permit, PreBind, Bind, PostBind.

The scheduler's binding tasks drive it. Invariant: Unreserve runs for every Reserve plugin in
reverse order, whichever of them failed, so plugins may rely on being asked to clean up.
"""

from collections.abc import Mapping, Sequence

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import (
    BindPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PreBindPlugin,
    ReservePlugin,
)
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.status import OK, SKIP, Code, Status
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo

MAX_PERMIT_TIMEOUT_SECONDS = 15 * 60.0


class BindingPoints:
    """The binding half of a profile's plugins, in calling order."""

    def __init__(self, plugins: Mapping[ExtensionPoint, Sequence[Plugin]]) -> None:
        self._reserve = [
            p for p in plugins.get(ExtensionPoint.RESERVE, ()) if isinstance(p, ReservePlugin)
        ]
        self._permit = [
            p for p in plugins.get(ExtensionPoint.PERMIT, ()) if isinstance(p, PermitPlugin)
        ]
        self._pre_bind = [
            p for p in plugins.get(ExtensionPoint.PRE_BIND, ()) if isinstance(p, PreBindPlugin)
        ]
        self._bind = [p for p in plugins.get(ExtensionPoint.BIND, ()) if isinstance(p, BindPlugin)]
        self._post_bind = [
            p for p in plugins.get(ExtensionPoint.POST_BIND, ()) if isinstance(p, PostBindPlugin)
        ]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first that does not succeed ends it."""
        for plugin in self._reserve:
            try:
                status = plugin.reserve(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "Reserve", failure) from failure
            if not status.ok:
                return _answered(status, plugin, "Reserve")
        return OK

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> list[PluginFailure]:
        """Run Unreserve of every plugin, last first; returns what went wrong, having gone on."""
        failures = []
        for plugin in reversed(self._reserve):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception as failure:  # noqa: BLE001 the books of the others must be undone too
                failures.append(_failure(plugin, "Unreserve", failure))
        return failures

    async def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, Mapping[str, float]]:
        """Run Permit: (OK, Wait or a rejection; seconds each waiting plugin grants)."""
        waits: dict[str, float] = {}
        for plugin in self._permit:
            try:
                result = await plugin.permit(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "Permit", failure) from failure
            if result.status.code is Code.WAIT:
                waits[plugin.name] = min(result.timeout_seconds, MAX_PERMIT_TIMEOUT_SECONDS)
            elif not result.status.ok:
                return _answered(result.status, plugin, "Permit"), {}
        return (Status(Code.WAIT) if waits else OK), waits

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success if any PreBind has work to do, Skip if none; a plugin that skips is left out."""
        anyone = False
        for plugin in self._pre_bind:
            try:
                status = plugin.pre_bind_pre_flight(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "PreBindPreFlight", failure) from failure
            if status.skip:
                state.skipped_pre_binds.add(plugin.name)
            elif status.ok:
                anyone = True
            else:
                return _answered(status, plugin, "PreBindPreFlight")
        return OK if anyone else SKIP

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run PreBind of those plugins that have work."""
        for plugin in self._pre_bind:
            if plugin.name in state.skipped_pre_binds:
                continue
            try:
                status = await plugin.pre_bind(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "PreBind", failure) from failure
            if not status.ok:
                return _answered(status, plugin, "PreBind")
        return OK

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind: the first plugin that does not skip decides."""
        for plugin in self._bind:
            try:
                status = await plugin.bind(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "Bind", failure) from failure
            if not status.skip:
                return OK if status.ok else _answered(status, plugin, "Bind")
        return Status(Code.ERROR, ("no Bind plugin took the pod",))

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Tell everyone that the pod is bound."""
        for plugin in self._post_bind:
            try:
                await plugin.post_bind(state, pod, node_name)
            except Exception as failure:
                raise _failure(plugin, "PostBind", failure) from failure


def _failure(plugin: Plugin, point: str, failure: Exception) -> PluginFailure:
    return PluginFailure(plugin.name, point, f"{type(failure).__name__}: {failure}")


def _answered(status: Status, plugin: Plugin, point: str) -> Status:
    """A rejection keeps its reasons; an error says who ran into it, in kube-scheduler's words."""
    if status.rejected:
        return Status(status.code, status.reasons, status.plugin or plugin.name)
    reason = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(status.code, (reason,), plugin.name)
