"""A walk over the struct types of Kubernetes' API in a kubectl, from kind to field to type.

The script that writes into the tables of schema/ notes what it wants of each field.
"""

import re
from abc import ABC, abstractmethod

from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from tests.support.go_structs import MAP, POINTER, SLICE, STRUCT, GoField, GoProgram

_META = "k8s.io/apimachinery/pkg/apis/meta/v1"
BESIDE = {
    "Eviction": "k8s.io/api/policy/v1",
    "Scale": "k8s.io/api/autoscaling/v1",
    "TokenRequest": "k8s.io/api/authentication/v1",
    "DeleteOptions": _META,
    "ListMeta": _META,
    "Status": _META,
}
_ELSEWHERE = ("apiextensions.k8s.io", "apiregistration.k8s.io")
"""Groups that no kubectl has."""
_LEFT_OUT = "ShardInfo"
_SCALARS = {"Quantity", "Time", "MicroTime", "IntOrString", "RawExtension", "FieldsV1", _LEFT_OUT}
_OTHER_NAMES = {
    ("k8s.io/api/events/v1", "EventSeries"): "EventsEventSeries",
    ("k8s.io/api/discovery/v1", "EndpointPort"): "SliceEndpointPort",
    ("k8s.io/api/storage/v1", "TokenRequest"): "CSITokenRequest",
    ("k8s.io/api/admissionregistration/v1", "ServiceReference"): "AdmissionServiceReference",
    ("k8s.io/api/admissionregistration/v1", "WebhookClientConfig"): "AdmissionClientConfig",
    ("k8s.io/api/flowcontrol/v1", "Subject"): "FlowSubject",
    (
        "k8s.io/api/scheduling/v1alpha2",
        "TypedLocalObjectReference",
    ): "WorkloadControllerReference",
    ("k8s.io/api/autoscaling/v1", "HorizontalPodAutoscalerSpec"): "HorizontalPodAutoscalerSpecV1",
    (
        "k8s.io/api/autoscaling/v1",
        "HorizontalPodAutoscalerStatus",
    ): "HorizontalPodAutoscalerStatusV1",
}
"""Types that share their name with another one, as the tables calls them."""


class GoWalk(ABC):
    """Notes something of every field of the built-in kinds, and of the types they lead to."""

    def __init__(self, program: GoProgram) -> None:
        self.found: dict[str, dict[str, str]] = {}
        """By type and field, in their names in the tables and in JSON."""
        self._program = program
        self._by_name = {
            (program.package(each), program.name(each).partition(".")[2]): each
            for each in program.structs()
        }
        for kind in built_in_kinds():
            package = f"k8s.io/api/{kind.group.partition('.')[0] or 'core'}/{kind.version}"
            if kind.group not in _ELSEWHERE and not kind.since and not kind.stored:
                self._add(package, kind.kind, kind.type_name)
        for name, package in BESIDE.items():
            self._add(package, name, name)

    @abstractmethod
    def noted(self, field: GoField, before: str) -> str:
        """What is wanted of a field; `before`: what stands before an embedded struct's."""

    @abstractmethod
    def before_embedded(self, field: GoField, before: str) -> str | None:
        """What stands before the fields of an embedded struct; None: they are left out."""

    def _add(self, package: str, name: str, type_name: str) -> None:
        if type_name not in self.found:
            self.found[type_name] = {}
            self._collect(self._by_name[package, name], self.found[type_name], "")

    def _collect(self, struct: int, fields: dict[str, str], before: str) -> None:
        for field in self._program.fields(struct):
            json_name = re.search(r'json:"([^",]*)', field.tag)
            if json_name is None or json_name[1] == "-":
                continue
            if field.embedded and not json_name[1]:
                within = self.before_embedded(field, before)
                if within is not None:
                    self._collect(field.type, fields, within)
            elif self._lead_to(field.type):
                fields[json_name[1]] = self.noted(field, before)

    def _lead_to(self, type_: int) -> bool:
        """Add the struct that a type is made of; False for what is left out."""
        while self._program.kind(type_) in (POINTER, SLICE, MAP):
            type_ = self._program.element(type_)
        if self._program.kind(type_) != STRUCT:
            return True
        name = self._program.name(type_).partition(".")[2]
        if name in _SCALARS:
            return name != _LEFT_OUT
        package = self._program.package(type_)
        self._add(package, name, _OTHER_NAMES.get((package, name), name))
        return True
