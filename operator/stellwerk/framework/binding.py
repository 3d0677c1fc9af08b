"""One profile's plugins at the points after a node is chosen.

Reserve, Permit, PreBindPreFlight, PreBind, Bind, PostBind.

The scheduling cycle drives Reserve, binding tasks the rest. Invariant: Unreserve runs for every
Reserve plugin in reverse order, whichever of them failed, so plugins may rely on being asked to
clean up.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from stellwerk.framework.calls import UNMEASURED, Stopwatch, code_of, plugin_failure
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

Answer = TypeVar("Answer")


class BindingPoints:
    """The binding half of a profile's plugins, in calling order."""

    def __init__(
        self,
        plugins: Mapping[ExtensionPoint, Sequence[Plugin]],
        stopwatch: Stopwatch = UNMEASURED,
    ) -> None:
        self._stopwatch = stopwatch
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

    # --- the points -----------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first that does not succeed ends it.

        Raises:
            PluginFailure: a plugin raised.
        """
        started, code = self._stopwatch.started(), Code.ERROR
        try:
            status = self._reserved(state, pod, node_name)
            code = status.code
        finally:
            self._stopwatch.point("Reserve", code, started)
        return status

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> list[PluginFailure]:
        """Run Unreserve of every plugin, last first; returns what went wrong, having gone on."""
        started = self._stopwatch.started()
        failures = []
        for plugin in reversed(self._reserve):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception as failure:  # noqa: BLE001 the books of the others must be undone too
                failures.append(plugin_failure(plugin, "Unreserve", failure))
        self._stopwatch.point("Unreserve", Code.SUCCESS, started)
        return failures

    async def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, Mapping[str, float]]:
        """Run Permit: (OK, Wait or a rejection; seconds each waiting plugin grants).

        Raises:
            PluginFailure: a plugin raised.
        """
        started, code = self._stopwatch.started(), Code.ERROR
        try:
            status, waits = await self._permitted(state, pod, node_name)
            code = status.code
        finally:
            self._stopwatch.point("Permit", code, started)
        return status, waits

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success if any PreBind has work to do, Skip if none; a plugin that skips is left out.

        Raises:
            PluginFailure: a plugin raised.
        """
        started, code = self._stopwatch.started(), Code.ERROR
        try:
            status = self._pre_flight(state, pod, node_name)
            code = status.code
        finally:
            self._stopwatch.point("PreBindPreFlight", code, started)
        return status

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run PreBind of those plugins that have work.

        Raises:
            PluginFailure: a plugin raised.
        """
        started, code = self._stopwatch.started(), Code.ERROR
        try:
            status = await self._pre_bound(state, pod, node_name)
            code = status.code
        finally:
            self._stopwatch.point("PreBind", code, started)
        return status

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind: the first plugin that does not skip decides.

        Raises:
            PluginFailure: a plugin raised.
        """
        started, code = self._stopwatch.started(), Code.ERROR
        try:
            status = await self._bound(state, pod, node_name)
            code = status.code
        finally:
            self._stopwatch.point("Bind", code, started)
        return status

    async def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> list[PluginFailure]:
        """Tell everyone that the pod is bound; returns what went wrong, having gone on."""
        started = self._stopwatch.started()
        failures = []
        for plugin in self._post_bind:
            try:
                await plugin.post_bind(state, pod, node_name)
            except Exception as failure:  # noqa: BLE001 the others want to know, too
                failures.append(plugin_failure(plugin, "PostBind", failure))
        self._stopwatch.point("PostBind", Code.SUCCESS, started)
        return failures

    # --- their plugins --------------------------------------------------------------------------

    def _reserved(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        for plugin in self._reserve:
            status = self._asked(plugin, "Reserve", state, plugin.reserve, pod, node_name)
            if not status.ok:
                return _answered(status, plugin, "Reserve")
        return OK

    async def _permitted(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, Mapping[str, float]]:
        waits: dict[str, float] = {}
        for plugin in self._permit:
            result = await self._awaited(plugin, "Permit", state, plugin.permit, pod, node_name)
            if result.status.code is Code.WAIT:
                waits[plugin.name] = min(result.timeout_seconds, MAX_PERMIT_TIMEOUT_SECONDS)
            elif not result.status.ok:
                return _answered(result.status, plugin, "Permit"), {}
        return (Status(Code.WAIT) if waits else OK), waits

    def _pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        anyone = False
        for plugin in self._pre_bind:
            status = self._asked(
                plugin,
                "PreBindPreFlight",
                state,
                plugin.pre_bind_pre_flight,
                pod,
                node_name,
            )
            if status.skip:
                state.skipped_pre_binds.add(plugin.name)
            elif status.ok:
                anyone = True
            else:
                # A rejection is not foreseen here: kube-scheduler takes it for an error, too.
                return _erroneous(status, plugin, "PreBindPreFlight")
        return OK if anyone else SKIP

    async def _pre_bound(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        for plugin in self._pre_bind:
            if plugin.name in state.skipped_pre_binds:
                continue
            status = await self._awaited(plugin, "PreBind", state, plugin.pre_bind, pod, node_name)
            if not status.ok:
                return _answered(status, plugin, "PreBind")
        return OK

    async def _bound(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        for plugin in self._bind:
            status = await self._awaited(plugin, "Bind", state, plugin.bind, pod, node_name)
            if not status.skip:
                return OK if status.ok else _answered(status, plugin, "Bind")
        return Status(Code.ERROR, ("no Bind plugin took the pod",))

    def _asked(
        self,
        plugin: Plugin,
        label: str,
        state: CycleState,
        call: Callable[[CycleState, PodInfo, str], Answer],
        pod: PodInfo,
        node_name: str,
    ) -> Answer:
        started = self._stopwatch.started()
        try:
            answer = call(state, pod, node_name)
        except Exception as failure:
            raise plugin_failure(plugin, label, failure) from failure
        if state.sampled:
            self._stopwatch.plugin(plugin.name, label, code_of(answer), started)
        return answer

    async def _awaited(
        self,
        plugin: Plugin,
        label: str,
        state: CycleState,
        call: Callable[[CycleState, PodInfo, str], Awaitable[Answer]],
        pod: PodInfo,
        node_name: str,
    ) -> Answer:
        started = self._stopwatch.started()
        try:
            answer = await call(state, pod, node_name)
        except Exception as failure:
            raise plugin_failure(plugin, label, failure) from failure
        if state.sampled:
            self._stopwatch.plugin(plugin.name, label, code_of(answer), started)
        return answer


def _answered(status: Status, plugin: Plugin, point: str) -> Status:
    """A rejection keeps its reasons; an error says who ran into it, in kube-scheduler's words."""
    if status.rejected:
        return Status(status.code, status.reasons, status.plugin or plugin.name)
    return _erroneous(status, plugin, point)


def _erroneous(status: Status, plugin: Plugin, point: str) -> Status:
    reason = f'running {point} plugin "{plugin.name}": {status.message}'
    return Status(Code.ERROR, (reason,), plugin.name)
