"""Reserve to PostBind: the binding half of a profile's plugins.

`world.decide` runs Reserve and Unreserve, and the binding cycle of each pod runs the rest.
Invariant: Unreserve runs for every Reserve plugin in reverse order, whichever of them failed, so
that a plugin may rely on being asked to clean up. One failing plugin never keeps the others of
Unreserve and PostBind from running.
"""

from collections.abc import Mapping
from typing import Final

from stellwerk.framework.extension_points import (
    BIND,
    PERMIT,
    POST_BIND,
    PRE_BIND,
    PRE_BIND_PRE_FLIGHT,
    RESERVE,
    UNRESERVE,
    PluginsByPoint,
)
from stellwerk.framework.metrics_recorder import UNMEASURED, MetricsRecorder
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.types import OK, SKIP, Code, CycleState, PluginFailure, Status
from stellwerk.models.pod import PodInfo

MAX_PERMIT_TIMEOUT_SECONDS: Final = 15 * 60.0
"""Longest time that a Permit plugin can let a pod wait (`maxTimeout`, v1.36); longer ones are cut.
The pod's resources are reserved meanwhile."""


class BindingPoints:
    """The plugins of Reserve to PostBind, in calling order."""

    def __init__(
        self, plugins: PluginsByPoint, metrics_recorder: MetricsRecorder = UNMEASURED
    ) -> None:
        self._reserve = PointRunner(RESERVE, plugins, metrics_recorder)
        self._unreserve = PointRunner(UNRESERVE, plugins, metrics_recorder)
        self._permit = PointRunner(PERMIT, plugins, metrics_recorder)
        self._pre_flight = PointRunner(PRE_BIND_PRE_FLIGHT, plugins, metrics_recorder)
        self._pre_bind = PointRunner(PRE_BIND, plugins, metrics_recorder)
        self._bind = PointRunner(BIND, plugins, metrics_recorder)
        self._post_bind = PointRunner(POST_BIND, plugins, metrics_recorder)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first that does not succeed ends it.

        Raises:
            PluginFailure: a plugin raised.
        """
        point = self._reserve
        with point.timed(state) as timing:
            for plugin, reserve in point.measured_calls if state.sampled else point.calls:
                try:
                    status = reserve(state, pod, node_name)
                except Exception as failure:
                    raise point.failure(plugin, failure) from failure
                if not status.ok:
                    return timing.noted(point.named(plugin, status))
            return timing.noted(OK)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> list[PluginFailure]:
        """Run Unreserve of every plugin, last first; returns the failures."""
        failures = []
        with self._unreserve.timed(state) as timing:
            for plugin, unreserve in reversed(self._unreserve.calls):
                try:
                    unreserve(state, pod, node_name)
                except Exception as failure:  # noqa: BLE001 what others reserved must be undone too
                    failures.append(self._unreserve.failure(plugin, failure))
            timing.code = Code.SUCCESS
        return failures

    async def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, Mapping[str, float]]:
        """Run Permit; returns (OK, Wait or a rejection; seconds that each waiting plugin grants).

        Raises:
            PluginFailure: a plugin raised.
        """
        waits: dict[str, float] = {}
        point = self._permit
        if not point.calls:
            state.point_runs.append(point.empty_run)
            return OK, waits
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                result = await point.wait(plugin, call, state, pod, node_name)
                if result.status.code is Code.WAIT:
                    waits[plugin.name] = min(result.timeout_seconds, MAX_PERMIT_TIMEOUT_SECONDS)
                elif not result.status.ok:
                    return timing.noted(point.named(plugin, result.status)), {}
            return timing.noted(Status(Code.WAIT) if waits else OK), waits

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Find the PreBind plugins with work to do; returns Success if there are any, else Skip.

        A plugin that answers Skip is left out of `pre_bind`.

        Raises:
            PluginFailure: a plugin raised.
        """
        any_has_work = False
        point = self._pre_flight
        with point.timed(state) as timing:
            for plugin, look_ahead in point.measured_calls if state.sampled else point.calls:
                try:
                    status = look_ahead(state, pod, node_name)
                except Exception as failure:
                    raise point.failure(plugin, failure) from failure
                if status.skip:
                    state.skipped_pre_binds.add(plugin.name)
                elif status.ok:
                    any_has_work = True
                else:
                    # Rejections are not allowed here; kube-scheduler makes them errors (v1.36).
                    return timing.noted(point.error(plugin, status))
            return timing.noted(OK if any_has_work else SKIP)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run PreBind of those plugins that have work.

        Raises:
            PluginFailure: a plugin raised.
        """
        point, skipped = self._pre_bind, state.skipped_pre_binds
        calls = [each for each in point.calls if each[0].name not in skipped]
        if not calls:
            state.point_runs.append(point.empty_run)
            return OK
        with point.timed(state) as timing:
            for plugin, call in calls:
                status = await point.wait(plugin, call, state, pod, node_name)
                if not status.ok:
                    return timing.noted(point.named(plugin, status))
            return timing.noted(OK)

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind: the first plugin that does not skip decides.

        Raises:
            PluginFailure: a plugin raised.
        """
        point = self._bind
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = await point.wait(plugin, call, state, pod, node_name)
                if not status.skip:
                    return timing.noted(OK if status.ok else point.named(plugin, status))
            return timing.noted(Status(Code.ERROR, ("no Bind plugin bound the pod",)))

    async def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> list[PluginFailure]:
        """Run PostBind of every plugin; returns the failures."""
        failures: list[PluginFailure] = []
        point = self._post_bind
        if not point.calls:
            state.point_runs.append(point.empty_run)
            return failures
        with point.timed(state) as timing:
            for plugin, post_bind in point.calls:
                try:
                    await post_bind(state, pod, node_name)
                except Exception as failure:  # noqa: BLE001 the other plugins run, too
                    failures.append(point.failure(plugin, failure))
            timing.code = Code.SUCCESS
        return failures
