"""The field numbers are those of Kubernetes, as far as the kubectls of this machine tell."""

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, unknown_fields
from google.protobuf.message import DecodeError, Message

from stellwerk_cluster.apimachinery import protobuf
from stellwerk_cluster.apimachinery.messages import field_numbers, message_class
from stellwerk_kube.schema.types import types
from tests.support import schema_tables
from tests.support.go_structs import GoProgram
from tests.support.kubectls import helm, installed, program_of
from tests.support.recordings import TRANSCRIPTS

LAST_WITH_DESCRIPTORS = 33
RENAMED = {
    "DeviceResourceClaim": "resource.v1.ResourceClaim",
    "EventsEvent": "events.v1.Event",
    "EventsEventSeries": "events.v1.EventSeries",
    "SliceEndpointPort": "discovery.v1.EndpointPort",
    "CSITokenRequest": "storage.v1.TokenRequest",
    "AdmissionServiceReference": "admissionregistration.v1.ServiceReference",
    "AdmissionClientConfig": "admissionregistration.v1.WebhookClientConfig",
    "FlowSubject": "flowcontrol.v1.Subject",
    "HorizontalPodAutoscalerV1": "autoscaling.v1.HorizontalPodAutoscaler",
    "HorizontalPodAutoscalerSpecV1": "autoscaling.v1.HorizontalPodAutoscalerSpec",
    "HorizontalPodAutoscalerStatusV1": "autoscaling.v1.HorizontalPodAutoscalerStatus",
}


def test_the_tables_are_what_the_script_writes_for_the_newest_kubectl() -> None:
    for path, content in schema_tables.written(GoProgram(newest_program())).items():
        assert content == path.read_text(), path.name


def newest_program() -> Path:
    return program_of(max(*installed(), 36))


def test_the_numbers_of_definitions_are_those_that_helm_is_built_from() -> None:
    """No kubectl has the types of definitions; the helm that is installed beside one has."""
    program, compared = GoProgram(helm()), set()
    for struct in program.structs():
        name = program.name(struct).removeprefix("v1.")
        if not program.package(struct).endswith("/apiextensions/v1") or name not in types():
            continue
        tags = [each.tag for each in program.fields(struct)]
        pairs = [re.search(r'json:"([^",]+).*protobuf:"\w+,(\d+)', each) for each in tags]
        theirs = {each[1]: (int(each[2]),) for each in pairs if each}
        if name in field_numbers() and theirs:
            assert field_numbers()[name] == theirs, name
            compared.add(name)
    assert {"CustomResourceDefinition", "JSONSchemaProps", "ValidationRule"} <= compared


def described_messages(program: Path) -> dict[str, descriptor_pb2.DescriptorProto]:
    """The messages that a Go program carries the compressed descriptors of, by their full names."""
    content = program.read_bytes()
    found = {}
    at = content.find(b"\x1f\x8b\x08")
    while at >= 0:
        try:
            raw = zlib.decompressobj(wbits=31).decompress(content[at : at + (1 << 20)])
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        except (zlib.error, gzip.BadGzipFile, DecodeError):
            pass
        else:
            for message in file.message_type:
                found[f"{file.package.removeprefix('k8s.io.')}.{message.name}"] = message
        at = content.find(b"\x1f\x8b\x08", at + 1)
    return found


def flattened(
    name: str, wanted: set[str], described: dict[str, descriptor_pb2.DescriptorProto]
) -> dict[str, str]:
    """The fields of a message; where a wanted one is missing, those of the messages inside."""
    # Some messages have their fields under the names of Go.
    own = {
        each.name if each.name in wanted else each.name[:1].lower() + each.name[1:]: each
        for each in described[name].field
    }
    numbers = {each: str(field.number) for each, field in own.items()}
    for own_name, field in own.items():
        inner = field.type_name.removeprefix(".k8s.io.")
        if own_name not in wanted and inner in described:
            for each, number in flattened(inner, wanted, described).items():
                numbers.setdefault(each, f"{field.number}.{number}")
    return numbers


def test_the_numbers_are_those_of_the_descriptors_inside_an_older_kubectl() -> None:
    older = [minor for minor in installed() if minor <= LAST_WITH_DESCRIPTORS]
    described = described_messages(program_of(max(older, default=LAST_WITH_DESCRIPTORS)))
    packages = sorted({name.rpartition(".")[0] for name in described})
    differences, compared = [], 0
    for type_name, fields in field_numbers().items():
        renamed = RENAMED.get(type_name)
        names = [f"api.{renamed}"] if renamed else [f"{each}.{type_name}" for each in packages]
        names = [each for each in names if each in described]
        ours = {field: ".".join(map(str, path)) for field, path in fields.items()}
        candidates = [flattened(each, set(ours), described) for each in names]
        if not candidates:
            continue
        compared += 1
        if not any(
            all(theirs.get(field, number) == number for field, number in ours.items())
            and set(theirs) & set(ours)
            for theirs in candidates
        ):
            differences.append((type_name, ours, candidates[0]))
    assert differences == []
    assert compared > 300


def recorded_bodies() -> Iterator[tuple[str, bytes]]:
    if not TRANSCRIPTS.is_dir():
        pytest.skip("the recorded transcripts are not beside this repository")
    for file in sorted((TRANSCRIPTS / "kubectl").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            step = json.loads(line)
            for side in ("request", "response"):
                body = (step.get(side) or {}).get("bodyBase64")
                content = base64.b64decode(body) if body else b""
                if content.startswith(b"k8s\0"):
                    yield f"{file.stem} {step['step']} {side}", content


def unknown_numbers(message: Message) -> list[Any]:
    unknown = unknown_fields.UnknownFieldSet(message)
    found: list[Any] = [
        (message.DESCRIPTOR.full_name, unknown[position].field_number)
        for position in range(len(unknown))
    ]
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None or descriptor.message_type.GetOptions().map_entry:
            continue
        for each in value if descriptor.is_repeated else [value]:
            found += unknown_numbers(each)
    return found


def test_every_field_of_the_recorded_messages_is_known_and_survives() -> None:
    kinds = set()
    for where, content in recorded_bodies():
        envelope = protobuf.open_envelope(content)
        kinds.add(envelope.kind)
        message = message_class(envelope.kind)()
        message.ParseFromString(envelope.raw)
        assert unknown_numbers(message) == [], where
        read = protobuf.read_message(envelope.kind, envelope.raw)
        named = {**read, "kind": envelope.kind, "apiVersion": envelope.api_version}
        again = protobuf.open_envelope(protobuf.write_body(envelope.kind, named))
        assert protobuf.read_message(envelope.kind, again.raw) == read, where
    assert {"Deployment", "PodList", "SelfSubjectAccessReview", "TokenRequest"} <= kinds
