"""Prints field_numbers.txt anew: `python -m tests.support.field_numbers KUBECTL`.

The numbers stand in the tags of the struct types that a kubectl (1.34 or later) is built from.
"""

import re
import sys
import textwrap
from pathlib import Path

from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from tests.support.go_structs import MAP, POINTER, SLICE, STRUCT, GoProgram
from tests.support.repository import ROOT

FILE = ROOT / "operator/stellwerk_cluster/apimachinery/field_numbers.txt"
_META = "k8s.io/apimachinery/pkg/apis/meta/v1"
BESIDE = {
    "Eviction": "k8s.io/api/policy/v1",
    "Scale": "k8s.io/api/autoscaling/v1",
    "TokenRequest": "k8s.io/api/authentication/v1",
    "DeleteOptions": _META,
    "ListMeta": _META,
    "Status": _META,
}
SCALARS = {"Quantity", "Time", "MicroTime", "IntOrString", "RawExtension", "FieldsV1", "ShardInfo"}
OTHER_NAMES = {
    ("k8s.io/api/events/v1", "EventSeries"): "EventsEventSeries",
    ("k8s.io/api/discovery/v1", "EndpointPort"): "SliceEndpointPort",
    ("k8s.io/api/storage/v1", "TokenRequest"): "CSITokenRequest",
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
"""Types that share their name with another one, as types.txt calls them."""


def printed(program: GoProgram) -> str:
    """The file without its comment."""
    walk = _Walk(program)
    for kind in built_in_kinds():
        package = f"k8s.io/api/{kind.group.partition('.')[0] or 'core'}/{kind.version}"
        if kind.group != "apiextensions.k8s.io":
            walk.add(package, kind.kind, kind.type_name)
    for name, package in BESIDE.items():
        walk.add(package, name, name)
    lines = []
    for name, fields in sorted(walk.found.items()):
        ordered = sorted(fields.items(), key=lambda item: [int(n) for n in item[1].split(".")])
        words = " ".join([name, *(f"{field}={number}" for field, number in ordered)])
        lines.append(
            textwrap.fill(
                words,
                100,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
    return "\n".join(lines) + "\n"


def comment() -> str:
    """The first lines of the present file."""
    return "".join(
        line for line in FILE.read_text().splitlines(keepends=True) if line.startswith("#")
    )


class _Walk:
    """Collects the fields of types and of the types they lead to."""

    def __init__(self, program: GoProgram) -> None:
        self.found: dict[str, dict[str, str]] = {}
        self._program = program
        self._by_name = {
            (program.package(each), program.name(each).partition(".")[2]): each
            for each in program.structs()
        }

    def add(self, package: str, name: str, type_name: str) -> None:
        if type_name not in self.found:
            self.found[type_name] = {}
            self._collect(self._by_name[package, name], self.found[type_name], "")

    def _collect(self, struct: int, fields: dict[str, str], before: str) -> None:
        for field in self._program.fields(struct):
            json_name = re.search(r'json:"([^",]*)', field.tag)
            number = re.search(r'protobuf:"\w+,(\d+)', field.tag)
            if json_name is None or json_name[1] == "-":
                continue
            path = before + (number[1] if number else "")
            if field.embedded and not json_name[1]:
                if number:
                    self._collect(field.type, fields, f"{path}.")
                continue
            if self._lead_to(field.type):
                fields[json_name[1]] = path

    def _lead_to(self, type_: int) -> bool:
        """Add the struct that a type is made of; False for what we leave out."""
        while self._program.kind(type_) in (POINTER, SLICE, MAP):
            type_ = self._program.element(type_)
        if self._program.kind(type_) != STRUCT:
            return True
        name = self._program.name(type_).partition(".")[2]
        if name in SCALARS:
            return name != "ShardInfo"
        package = self._program.package(type_)
        self.add(package, name, OTHER_NAMES.get((package, name), name))
        return True


if __name__ == "__main__":
    sys.stdout.write(comment() + printed(GoProgram(Path(sys.argv[1]))))
