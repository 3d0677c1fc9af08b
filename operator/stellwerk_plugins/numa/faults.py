"""Faults of NodeResourceTopology objects, shown in their conditions and in events.

Run beside the cycle by the replica that leads, once for all profiles that have the plugin.
Invariant: each fault is said once; where the definition that an exporter brought has no status, the
event says it alone.
"""

from typing import Final

from typing_extensions import override

from stellwerk.plugin_api import (
    ApiError,
    ClusterClient,
    NotFound,
    ObjectStore,
    PeriodicTask,
    Recorder,
)
from stellwerk_plugins.conditions import condition, message_of, part, said, warn
from stellwerk_plugins.numa.columns import Zones
from stellwerk_plugins.numa.topology import KIND

FAULTS_PERIOD_SECONDS: Final = 10.0
"""Pause between two runs that write conditions and events of topologies."""
_API: Final = "topology.node.k8s.io/v1alpha2"
_MAX_WRITES_PER_RUN: Final = 50
"""Writes of one run. The rest follows in the next one."""


class TopologyFaults(PeriodicTask):
    """Writes conditions and events of objects that make no sense, and of those that do again."""

    name = "the faults of topologies"
    period_seconds = FAULTS_PERIOD_SECONDS

    def __init__(self, objects: ObjectStore, zones: Zones, recorder: Recorder) -> None:
        self._objects = objects
        self._zones = zones
        self._recorder = recorder
        self._told: dict[str, str] = {}
        """By node, what was last said against its object."""
        self._unwritten: set[str] = set()
        """Nodes whose objects could not be written last."""

    @override
    async def run(self, client: ClusterClient) -> None:
        self._zones.follow_objects()
        faults = self._zones.faults
        due = [name for name in faults if message_of(faults[name]) != self._told.get(name)]
        due += [name for name in self._told if name not in faults]
        due += sorted(self._unwritten.difference(due))
        failure: ApiError | None = None
        for name in due[:_MAX_WRITES_PER_RUN]:
            obj = self._objects.get(KIND, "", name)
            message = message_of(faults.get(name, ()))
            told, self._told[name] = self._told.get(name), message
            if obj is None or not message:
                del self._told[name]
            self._unwritten.discard(name)
            if obj is None or said(part(obj, "status")) == message:
                continue
            if message and message != told:
                warn(self._recorder, _API, KIND, obj, message)
            path = f"/apis/{_API}/noderesourcetopologies/{name}/status"
            # With the uid: a topology that was made anew under the name is judged by itself.
            identity = {"metadata": {"uid": uid}} if (uid := obj["metadata"].get("uid")) else {}
            try:
                await client.patch(
                    path, {**identity, "status": {"conditions": [condition(message)]}}
                )
            except NotFound:
                continue  # a definition without status, or the object is gone
            except ApiError as error:
                self._unwritten.add(name)
                if error.met_another_object:
                    continue
                failure = failure or error
        if failure is not None:
            # Counted and logged; the others are written all the same.
            raise failure
