"""One profile's plugins at the points after a node is chosen.

Reserve, Permit, PreBindPreFlight, PreBind, Bind, PostBind.

The scheduling cycle drives Reserve, binding tasks the rest. Invariant: Unreserve runs for every
Reserve plugin in reverse order, whichever of them failed, so plugins may rely on being asked to
clean up.
"""

from collections.abc import Mapping

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
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.stopwatch import UNMEASURED, Stopwatch
from stellwerk.framework.types import OK, SKIP, Code, CycleState, Status
from stellwerk.models.pod import PodInfo

MAX_PERMIT_TIMEOUT_SECONDS = 15 * 60.0
OUTCOME_UNKNOWN = "BindOutcomeUnknown"
"""A Bind plugin that failed writes True under this key where the pod may be bound all the same."""


class BindingPoints:
    """The binding half of a profile's plugins, in calling order."""

    def __init__(self, plugins: PluginsByPoint, stopwatch: Stopwatch = UNMEASURED) -> None:
        self._reserve = PointRunner(RESERVE, plugins, stopwatch)
        self._unreserve = PointRunner(UNRESERVE, plugins, stopwatch)
        self._permit = PointRunner(PERMIT, plugins, stopwatch)
        self._pre_flight = PointRunner(PRE_BIND_PRE_FLIGHT, plugins, stopwatch)
        self._pre_bind = PointRunner(PRE_BIND, plugins, stopwatch)
        self._bind = PointRunner(BIND, plugins, stopwatch)
        self._post_bind = PointRunner(POST_BIND, plugins, stopwatch)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first that does not succeed ends it.

        Raises:
            PluginFailure: a plugin raised.
        """
        point = self._reserve
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = point.ask(plugin, call, state, pod, node_name)
                if not status.ok:
                    return timing.noted(point.named(plugin, status))
            return timing.noted(OK)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> list[PluginFailure]:
        """Run Unreserve of every plugin, last first; returns what went wrong, having gone on."""
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
        """Run Permit: (OK, Wait or a rejection; seconds each waiting plugin grants).

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
        """Success if any PreBind has work to do, Skip if none; a plugin that skips is left out.

        Raises:
            PluginFailure: a plugin raised.
        """
        any_has_work = False
        point = self._pre_flight
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = point.ask(plugin, call, state, pod, node_name)
                if status.skip:
                    state.skipped_pre_binds.add(plugin.name)
                elif status.ok:
                    any_has_work = True
                else:
                    # A rejection is not foreseen here: kube-scheduler takes it for an error, too.
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
            return timing.noted(Status(Code.ERROR, ("no Bind plugin took the pod",)))

    async def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> list[PluginFailure]:
        """Run PostBind of every plugin; returns what went wrong, having gone on."""
        failures: list[PluginFailure] = []
        point = self._post_bind
        if not point.calls:
            state.point_runs.append(point.empty_run)
            return failures
        with point.timed(state) as timing:
            for plugin, post_bind in point.calls:
                try:
                    await post_bind(state, pod, node_name)
                except Exception as failure:  # noqa: BLE001 the others want to run, too
                    failures.append(point.failure(plugin, failure))
            timing.code = Code.SUCCESS
        return failures
