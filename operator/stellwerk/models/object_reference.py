"""A reference to the object that an event is about, as `involvedObject` names it.

The scheduler makes them for the recorder. Invariant: a reference holds names alone, never the
object, so that an event in the queue keeps nothing else in memory.
"""

from dataclasses import dataclass

from stellwerk.models.pod import PodInfo


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object that an event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


def pod_reference(pod: PodInfo) -> ObjectReference:
    """A pod as the object of an event."""
    return ObjectReference("Pod", "v1", pod.namespace, pod.name, pod.uid, pod.resource_version)
