"""The status of ElasticQuota objects: what is used, and what is wrong with them.

Run beside the cycle by the replica that leads, once for all profiles that have the plugin.
Invariant: an object is written when its status would say something else, and then only.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from typing_extensions import override

from stellwerk.plugin_api import (
    ApiError,
    ClusterClient,
    JsonObject,
    ObjectStore,
    PeriodicTask,
    PluginMetrics,
    Recorder,
)
from stellwerk_plugins.conditions import condition, message_of, part, said, warn
from stellwerk_plugins.quotas.amounts import amount_as_text
from stellwerk_plugins.quotas.quota import KIND, NamespaceUse, Quota, Quotas

STATUS_PERIOD_SECONDS: Final = 5.0
"""Pause between two runs that write the status of quotas."""
_MAX_WRITES_PER_RUN: Final = 50
"""Writes of one run. The rest follows in the next one."""
_API: Final = "scheduling.x-k8s.io/v1alpha1"


class QuotaStatus(PeriodicTask):
    """Writes status.used and a condition of every quota."""

    name = "the status of elastic quotas"
    period_seconds = STATUS_PERIOD_SECONDS

    def __init__(
        self,
        objects: ObjectStore,
        quotas: Quotas,
        use: NamespaceUse,
        recorder: Recorder,
        metrics: PluginMetrics,
    ) -> None:
        self._objects = objects
        self._quotas = quotas
        self._use = use
        self._recorder = recorder
        self._amounts = metrics.gauge(
            "stellwerk_elastic_quota",
            "Amounts of elastic quotas, in cores or whole units: used, min or max.",
            *("namespace", "resource", "amount"),
        )
        self._shown: set[tuple[str, str, str]] = set()
        self._refused: set[tuple[str, str]] = set()
        """The objects that could not be written: the others go before them."""

    @override
    async def run(self, client: ClusterClient) -> None:
        self._show()
        failure: ApiError | None = None
        for obj, patch in list(self._due())[:_MAX_WRITES_PER_RUN]:
            namespace, name = _key(obj)
            path = f"/apis/{_API}/namespaces/{namespace}/elasticquotas/{name}/status"
            if (message := said(patch)) and (namespace, name) not in self._refused:
                warn(self._recorder, _API, KIND, obj, message)
            # With the uid: a quota that was made anew under the name gets its own status.
            identity = {"metadata": {"uid": uid}} if (uid := obj["metadata"].get("uid")) else {}
            try:
                await client.patch(path, {**identity, "status": patch})
            except ApiError as error:
                if error.met_another_object:
                    continue
                self._refused.add((namespace, name))
                failure = failure or error
            else:
                self._refused.discard((namespace, name))
        if failure is not None:
            # Counted and logged; the others are written all the same.
            raise failure

    def _show(self) -> None:
        """Set the metric of every quota that counts, and drop those of quotas that are gone."""
        now: dict[tuple[str, str, str], int] = {}
        for namespace, quota in self._quotas.by_namespace().items():
            used = self._use.used.get(namespace, {})
            for amount, amounts in (("used", used), ("min", quota.min), ("max", quota.max or {})):
                for resource, value in amounts.items():
                    now[namespace, resource, amount] = value
        for gone in self._shown - now.keys():
            self._amounts.remove(*gone)
        for (namespace, resource, amount), value in now.items():
            shown = value / 1000 if resource == "cpu" else float(value)
            self._amounts.set(shown, namespace, resource, amount)
        self._shown = set(now)

    def _due(self) -> Iterable[tuple[JsonObject, JsonObject]]:
        """The objects whose status says something else than it should, with what it lacks.

        Those that could not be written last come last.
        """
        due = {_key(obj): (obj, patch) for obj, patch in self._different()}
        self._refused &= due.keys()
        return [due[key] for key in sorted(due, key=lambda key: key in self._refused)]

    def _different(self) -> Iterable[tuple[JsonObject, JsonObject]]:
        counting = self._quotas.by_namespace()
        for obj in self._objects.list(KIND):
            metadata = obj["metadata"]
            quota = counting.get(metadata.get("namespace") or "default")
            if quota is None:
                continue
            counts = quota.name == metadata["name"]
            status = part(obj, "status")
            used = self._used(quota) if counts else {}
            patch = _changed_amounts(part(status, "used"), used)
            changed: JsonObject = {"used": patch} if patch else {}
            message = message_of(quota.faults if counts else (_not_counted(quota),))
            if said(status) != message:
                changed["conditions"] = [condition(message)]
            if changed:
                yield obj, changed

    def _used(self, quota: Quota) -> dict[str, str]:
        used = self._use.used.get(quota.namespace, {})
        named = dict.fromkeys([*used, *quota.min, *(quota.max or {})])
        return {resource: amount_as_text(resource, used.get(resource, 0)) for resource in named}


def _key(obj: JsonObject) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "default", metadata["name"]


def _changed_amounts(shown: Mapping[str, Any], used: Mapping[str, str]) -> dict[str, str | None]:
    """A merge patch from one list of amounts to the other."""
    patch: dict[str, str | None] = {
        resource: amount for resource, amount in used.items() if shown.get(resource) != amount
    }
    return patch | dict.fromkeys(shown.keys() - used.keys())


def _not_counted(quota: Quota) -> str:
    return f"of several quotas of the namespace the oldest counts, {quota.name}"
