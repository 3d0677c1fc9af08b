"""Every metric of the process: kube-scheduler's, with its names, labels and buckets, and own ones.

`app` builds it once and hands it to what measures; `serving` makes the text of /metrics of it. A
new family is one attribute, set in the method of its subject, and a line of docs/monitoring.md; an
own one is called `stellwerk_…`. Invariant: a family of kube-scheduler's has its name, labels and
buckets, and the words are ours.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from stellwerk.series import (
    Counter,
    CounterFamily,
    Gauge,
    GaugeFamily,
    Histogram,
    HistogramFamily,
    exponential,
)

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{2,127}")
_LABEL: Final = re.compile(r"(?!le$)[a-z][a-z0-9_]{0,63}")
_OF_KUBE_SCHEDULER: Final = "scheduler_"
_SUFFIXES: Final = ("_bucket", "_sum", "_count", "_total", "_created")
FamilyT = TypeVar("FamilyT", CounterFamily, GaugeFamily, HistogramFamily)


_ATTEMPT_BUCKETS: Final = exponential(0.001, 2, 15)
_POINT_BUCKETS: Final = exponential(0.0001, 2, 12)
_PLUGIN_BUCKETS: Final = exponential(0.00001, 1.5, 20)
_SLOW_BUCKETS: Final = exponential(0.01, 2, 20)
_DEVICE_BUCKETS: Final = exponential(0.1, 2, 14)
_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Metrics:
    """The families. Names, labels and buckets of `scheduler_…` are kube-scheduler's (v1.36)."""

    def __init__(self) -> None:
        self.families: list[CounterFamily | GaugeFamily | HistogramFamily] = []
        """All of them, in the order of the exposition."""
        self._scheduling()
        self._groups()
        self._plugins()
        self._preemption()
        self._queue()
        self._volumes()
        self._devices()
        self._events()
        self._requests()
        self._watches()
        self._own()
        self._state()
        self._profiles: dict[str, ProfileMetrics] = {}
        self._plugin_families: dict[str, CounterFamily | GaugeFamily | HistogramFamily] = {}

    def profile(self, name: str) -> ProfileMetrics:
        """Return the series of one profile, bound once; `name` is its schedulerName."""
        profile = self._profiles.get(name)
        if profile is None:
            profile = self._profiles[name] = ProfileMetrics(self, name)
        return profile

    def counter_of_plugins(self, name: str, text: str, labels: tuple[str, ...]) -> CounterFamily:
        """Return a family that plugins share, made when the first asks for it.

        Raises:
            ValueError: it is no name of a metric, or taken by another family.
        """
        found = self._of_plugins(name, labels, CounterFamily)
        return found or self._named_by_plugin(self._counter(name, text, *labels))

    def gauge_of_plugins(self, name: str, text: str, labels: tuple[str, ...]) -> GaugeFamily:
        """Return a gauge family that plugins share; raises as `counter_of_plugins`."""
        found = self._of_plugins(name, labels, GaugeFamily)
        return found or self._named_by_plugin(self._gauge(name, text, *labels))

    def histogram_of_plugins(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> HistogramFamily:
        """Return a histogram family that plugins share; raises as `counter_of_plugins`."""
        found = self._of_plugins(name, labels, HistogramFamily)
        return found or self._named_by_plugin(self._histogram(name, text, *labels, buckets=buckets))

    def _of_plugins(
        self, name: str, labels: tuple[str, ...], kind: type[FamilyT]
    ) -> FamilyT | None:
        """Return the family if there is one; None: it may be made."""
        family = self._plugin_families.get(name)
        if isinstance(family, kind) and family.label_names == labels:
            return family
        wrong = [label for label in labels if not _LABEL.fullmatch(label)]
        if not _NAME.fullmatch(name) or wrong:
            raise ValueError(f"{', '.join(wrong) or name} is not a name for a metric or label")
        own = {name, *(name.removesuffix(suffix) for suffix in _SUFFIXES)}
        if name.startswith(_OF_KUBE_SCHEDULER) or any(each.name in own for each in self.families):
            raise ValueError(f"the metric {name} is another one's")
        return None

    def _named_by_plugin(self, family: FamilyT) -> FamilyT:
        self._plugin_families[family.name] = family
        return family

    def _counter(self, name: str, text: str, *labels: str) -> CounterFamily:
        return self._added(CounterFamily(name, text, labels, Counter))

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeFamily:
        return self._added(GaugeFamily(name, text, labels, Gauge))

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...]
    ) -> HistogramFamily:
        return self._added(HistogramFamily(name, text, labels, lambda: Histogram(buckets)))

    def _added(self, family: FamilyT) -> FamilyT:
        self.families.append(family)
        if not family.label_names:
            family.labels()  # a series without labels exists from the start, at zero
        return family

    def _scheduling(self) -> None:
        self.schedule_attempts = self._counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule a pod, by result: scheduled, unschedulable or error.",
            *("result", "profile"),
        )
        self.scheduling_attempt_duration = self._histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of a scheduling attempt: the cycle and, if there was one, the binding.",
            *("result", "profile"),
            buckets=_ATTEMPT_BUCKETS,
        )
        self.scheduling_algorithm_duration = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of choosing a node.",
            buckets=_ATTEMPT_BUCKETS,
        )
        self.pod_scheduling_sli_duration = self._histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From a pod's first appearance in the queue until it is bound, by attempts needed.",
            "attempts",
            buckets=_SLOW_BUCKETS,
        )
        self.pod_scheduling_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a pod needed until it was scheduled.",
            buckets=exponential(1, 2, 5),
        )

    def _groups(self) -> None:
        self.podgroup_schedule_attempts = self._counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Attempts to place a group of pods, by result.",
            *("result", "profile"),
        )
        self.podgroup_scheduling_attempt_duration = self._histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Duration of an attempt to place a group of pods, without its bindings.",
            *("result", "profile"),
            buckets=exponential(0.001, 2, 15),
        )
        self.podgroup_scheduling_algorithm_duration = self._histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Duration of finding nodes for a group of pods.",
            buckets=exponential(0.001, 2, 15),
        )
        self.podgroups_waiting = self._gauge(
            "stellwerk_podgroups_waiting",
            "Pending groups of pods by what they wait for: pods, room or a turn.",
            "for",
        )
        self.podgroup_longest_wait = self._gauge(
            "stellwerk_podgroup_longest_wait_seconds",
            "Seconds for which the longest-waiting group has been pending.",
        )

    def _plugins(self) -> None:
        self.framework_extension_point_duration = self._histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of running all plugins of an extension point.",
            *("extension_point", "status", "profile"),
            buckets=_POINT_BUCKETS,
        )
        self.plugin_execution_duration = self._histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of one plugin at one extension point; one cycle in ten is measured.",
            *("plugin", "extension_point", "status"),
            buckets=_PLUGIN_BUCKETS,
        )
        self.plugin_evaluation = self._counter(
            "scheduler_plugin_evaluation_total",
            "Attempts in which a plugin was evaluated.",
            *("plugin", "extension_point", "profile"),
        )
        self.permit_wait_duration = self._histogram(
            "scheduler_permit_wait_duration_seconds",
            "How long a pod waited for Permit, by the outcome.",
            "result",
            buckets=_ATTEMPT_BUCKETS,
        )
        self.goroutines = self._gauge(
            "scheduler_goroutines",
            "Concurrent units of work (tasks here), by what they do.",
            "operation",
        )

    def _preemption(self) -> None:
        self.preemption_victims = self._histogram(
            "scheduler_preemption_victims",
            "Victims of a preemption.",
            buckets=exponential(1, 2, 7),
        )
        self.preemption_attempts = self._counter(
            "scheduler_preemption_attempts_total", "Preemption attempts in the cluster until now."
        )
        self.preemption_goroutines_duration = self._histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration of carrying out a preemption in the background.",
            "result",
            buckets=_SLOW_BUCKETS,
        )
        self.preemption_goroutines_execution = self._counter(
            "scheduler_preemption_goroutines_execution_total",
            "Preemptions carried out in the background.",
            "result",
        )

    def _queue(self) -> None:
        self.pending_pods = self._gauge(
            "scheduler_pending_pods",
            "Pending pods by queue: active, backoff, unschedulable or gated.",
            "queue",
        )
        self.queue_incoming_pods = self._counter(
            "scheduler_queue_incoming_pods_total",
            "Pods that entered a queue, by what moved them there.",
            *("queue", "event"),
        )
        self.unschedulable_pods = self._gauge(
            "scheduler_unschedulable_pods",
            "Unschedulable pods by the plugin that rejected them; a pod may count several times.",
            *("plugin", "profile"),
        )
        self.pod_scheduled_after_flush = self._counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods that were scheduled right after the periodic flush of unschedulable pods.",
        )
        self.queueing_hint_execution_duration = self._histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of a queueing hint function.",
            *("plugin", "event", "hint"),
            buckets=_PLUGIN_BUCKETS,
        )
        self.inflight_events = self._gauge(
            "scheduler_inflight_events",
            "Cluster events kept while pods are being scheduled.",
            "event",
        )

    def _volumes(self) -> None:
        self.volume_binder_cache_requests = self._counter(
            "scheduler_volume_binder_cache_requests_total",
            "Claims and volumes that Reserve assumed over the stored ones (add) or undid (delete).",
            "operation",
        )
        self.volume_scheduling_stage_errors = self._counter(
            "scheduler_volume_scheduling_stage_error_total",
            "Errors of VolumeBinding by stage: predicate, assume or bind.",
            "operation",
        )

    def _devices(self) -> None:
        self.resource_claim_creates = self._counter(
            "scheduler_resourceclaim_creates_total",
            "Resource claims created for extended resources, by status: success or failure.",
            "status",
        )
        labels = ("profile", "driver", "status")
        self.binding_conditions_allocations = self._counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Attempts that waited for devices with binding conditions, by driver and outcome.",
            *labels,
        )
        self.binding_conditions_wait_duration = self._histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time that an attempt waited for binding conditions, by driver and outcome.",
            *labels,
            buckets=_DEVICE_BUCKETS,
        )

    def _events(self) -> None:
        self.cache_size = self._gauge(
            "scheduler_cache_size",
            "Size of the cache, by type: nodes, pods or assumed_pods.",
            "type",
        )
        self.event_handling_duration = self._histogram(
            "scheduler_event_handling_duration_seconds",
            "Duration of handling a cluster event.",
            "event",
            buckets=_POINT_BUCKETS,
        )

    def _requests(self) -> None:
        self.rest_client_requests = self._counter(
            "rest_client_requests_total",
            "Requests to the API server, by status code, method and host.",
            *("code", "method", "host"),
        )
        self.rest_client_request_duration = self._histogram(
            "rest_client_request_duration_seconds",
            "Duration of a request to the API server.",
            *("verb", "host"),
            buckets=_REQUEST_BUCKETS,
        )
        self.rest_client_request_retries = self._counter(
            "rest_client_request_retries_total",
            "Requests that were retried, by the status code of the previous attempt.",
            *("code", "verb", "host"),
        )
        self.leader_election_master_status = self._gauge(
            "leader_election_master_status",
            "1 while this process holds the lease of that name, 0 while it stands by.",
            "name",
        )
        self.leader_election_slowpath = self._counter(
            "leader_election_slowpath_total",
            "Renewals of the lease of that name that had to read it first.",
            "name",
        )

    def _watches(self) -> None:
        self.lists = self._counter(
            "stellwerk_lists_total", "Complete lists of a watched kind.", "kind"
        )
        self.watch_failures = self._counter(
            "stellwerk_watch_failures_total",
            "Lists and watches of a kind that ended with an error.",
            "kind",
        )
        self.missed_deletions = self._counter(
            "stellwerk_missed_deletions_total",
            "Objects that a list no longer had, although no watch had reported their deletion.",
            "kind",
        )
        self.watch_silence = self._gauge(
            "stellwerk_watch_silence_seconds",
            "Seconds since the last event, bookmark or list of a kind from the API server.",
            "kind",
        )
        self.watch_restores = self._counter(
            "stellwerk_watch_restores_total",
            "Lists of a kind repeated because the server came back with an older or other history.",
            "kind",
        )
        self.audit_repairs = self._counter(
            "stellwerk_audit_repairs_total",
            "Objects that differed from the API twice and were read again, by what was wrong.",
            "discrepancy",
        )
        self.kind_unreadable = self._gauge(
            "stellwerk_kind_unreadable",
            "1 while the API serves a kind in no version that this version of Stellwerk can read.",
            "kind",
        )
        self.kind_missed = self._gauge(
            "stellwerk_kind_missed",
            "1 while pods wait for objects of a kind that the API does not show.",
            "kind",
        )
        self.unserved_pods = self._gauge(
            "stellwerk_unserved_pods",
            "Pending pods that no scheduler serves, by schedulerName; empty counts further names.",
            "scheduler_name",
        )
        self.unserved_pods_once_served = self._gauge(
            "stellwerk_unserved_pods_once_served",
            "Pods without a scheduler whose schedulerName a deleted profile served.",
        )
        self.kind_synced = self._gauge(
            "stellwerk_kind_synced",
            "1 once the first list of a kind is complete, or the kind is known to be unavailable.",
            "kind",
        )

    def _own(self) -> None:
        self.malformed_objects = self._counter(
            "stellwerk_malformed_objects_total",
            "Objects from the API that could not be read, and were skipped.",
            "kind",
        )
        self.plugin_failures = self._counter(
            "stellwerk_plugin_failures_total",
            "Calls of a plugin that raised, timed out or gave an invalid answer.",
            *("plugin", "extension_point", "profile"),
        )
        self.plugins_distrusted = self._gauge(
            "stellwerk_plugins_distrusted",
            "1 for a plugin whose answers are no longer reused, because a reused one was wrong.",
            *("plugin", "profile"),
        )
        self.source_failures = self._counter(
            "stellwerk_source_failures_total",
            "Readings of a plugin's source of numbers, and tasks of plugins, that failed.",
            "source",
        )
        self.source_age = self._gauge(
            "stellwerk_source_age_seconds",
            "Seconds since a plugin's source of numbers was last read; -1: never.",
            "source",
        )
        self.slow_attempts = self._counter(
            "stellwerk_slow_attempts_total",
            "Attempts whose decision held the event loop longer than 100 ms.",
            "profile",
        )
        self.handler_failures = self._counter(
            "stellwerk_handler_failures_total",
            "Events whose handling raised; the object is read again.",
            "kind",
        )
        self.port_refusals = self._counter(
            "stellwerk_port_refusals_total",
            "Connections and requests ended by a limit of the operator's port, by reason.",
            "reason",
        )
        self.events_recorded = self._counter(
            "stellwerk_events_recorded_total",
            "Events written, by what was written: event or series.",
            "written",
        )
        self.events_dropped = self._counter(
            "stellwerk_events_dropped_total",
            "Events not written, by reason: queue_full, superseded, spam, rejected or not_leader.",
            "reason",
        )
        self.concurrency_limit = self._gauge(
            "stellwerk_concurrency_limit",
            "Concurrent requests of a class that are allowed, adapted to the API server.",
            "class",
        )
        self.extender_duration = self._histogram(
            "stellwerk_extender_duration_seconds",
            "Duration of a call to an extender.",
            *("extender", "verb", "result"),
            buckets=_ATTEMPT_BUCKETS,
        )

    def _state(self) -> None:
        self.build_info = self._gauge(
            "stellwerk_build_info", "Always 1; the labels say what runs.", "version", "python"
        )
        self.ingest_lag = self._gauge(
            "stellwerk_ingest_lag_seconds",
            "Age of the oldest binding that the API accepted and the watch has not shown; else 0.",
        )
        self.cache_age = self._gauge(
            "stellwerk_cache_age_seconds",
            "Seconds since the API server last sent something about pods or nodes, the longer one.",
        )
        self.snapshot_rows_updated = self._counter(
            "stellwerk_snapshot_rows_updated_total",
            "Rows of the snapshot that were written because their node or its pods changed.",
        )
        self.profile_reloads = self._counter(
            "stellwerk_profile_reloads_total",
            "Verdicts on SchedulerProfiles: a version serves, is refused, or its object is gone.",
            "result",
        )
        self.served_profiles = self._gauge(
            "stellwerk_served_profiles",
            "SchedulerProfiles that schedule pods; 0: no pod is scheduled.",
        )
        self.shadow_decisions = self._counter(
            "stellwerk_shadow_decisions_total",
            "Decisions of a shadow profile by result: same, differing, skipped (pods waited) or "
            "failed.",
            "profile",
            "result",
        )
        self.observed_bindings = self._counter(
            "stellwerk_observed_bindings_total",
            "Bindings of another scheduler by how they compare with an observed profile: equal, "
            "sampled, differs, foundNone or notComparable.",
            "profile",
            "result",
        )
        self.observed_binding_duration = self._histogram(
            "stellwerk_observed_binding_duration_seconds",
            "Time from when an observed pod could be scheduled until its binding was seen.",
            "profile",
            buckets=_ATTEMPT_BUCKETS,
        )
        self.observed_decisions = self._counter(
            "stellwerk_observed_decisions_total",
            "Decisions on pods that wait for another scheduler, by result: node, rejected, failed "
            "or skipped (too many pods waited).",
            "profile",
            "result",
        )
        self.observed_pending_pods = self._gauge(
            "stellwerk_observed_pending_pods", "Pods that wait for another scheduler."
        )
        self.observed_changes = self._gauge(
            "stellwerk_observed_changes_waiting",
            "Changes of nodes and pods that the observer has yet to take, a second behind.",
        )
        self.requests_in_flight = self._gauge(
            "stellwerk_requests_in_flight",
            "Requests of a class that the API server has not answered yet.",
            "class",
        )


class HealthcheckMetrics:
    """The families of /metrics/slis: how each check of a probe ended, when it was asked."""

    def __init__(self) -> None:
        self.results = GaugeFamily(
            "kubernetes_healthcheck",
            "1 if a check passed when it last ran, 0 if it failed; type is the probe.",
            ("name", "type"),
            Gauge,
        )
        self.totals = CounterFamily(
            "kubernetes_healthchecks_total",
            "Runs of a check by result: success or error.",
            ("name", "type", "status"),
            Counter,
        )
        self.families = (self.results, self.totals)

    def observe(self, check: str, probe: str, *, passed: bool) -> None:
        """Count one answer of a check."""
        self.results.labels(check, probe).set(1.0 if passed else 0.0)
        self.totals.labels(check, probe, "success" if passed else "error").inc()


class ProfileMetrics:
    """The series of one profile that every attempt touches, without label look-ups."""

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self._attempts = {
            result: (
                metrics.schedule_attempts.labels(result, profile),
                metrics.scheduling_attempt_duration.labels(result, profile),
            )
            for result in ("scheduled", "unschedulable", "error")
        }

    def attempt(self, result: str, duration_seconds: float) -> None:
        """Count one attempt: scheduled, unschedulable or error."""
        total, duration = self._attempts[result]
        total.inc()
        duration.observe(duration_seconds)


SLI_ATTEMPTS: Final = tuple(str(attempts) for attempts in range(1, 15))


def attempts_label(attempts: int) -> str:
    """Return the `attempts` label of the SLI histogram: 1 to 14, then "15+"."""
    return SLI_ATTEMPTS[attempts - 1] if attempts <= len(SLI_ATTEMPTS) else "15+"
