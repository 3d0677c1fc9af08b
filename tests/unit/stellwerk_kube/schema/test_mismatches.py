from typing import Any

import pytest
from hypothesis import given

from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError
from tests.support.odd_requests import GOOD_BODIES, POD, altered

_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **fields}]}}


def refusal(body: dict[str, Any], type_name: str = "Pod") -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(type_name, body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "found", "place", "go_type"),
    [
        ({"spec": "x"}, "string", "Pod.spec", "v1.PodSpec"),
        ({"spec": {"containers": {}}}, "object", "PodSpec.spec.containers", "[]v1.Container"),
        ({"spec": {"containers": ["x"]}}, "string", "PodSpec.spec.containers", "v1.Container"),
        (
            {"spec": {"restartPolicy": 5}},
            "number",
            "PodSpec.spec.restartPolicy",
            "v1.RestartPolicy",
        ),
        ({"spec": {"priority": 1.5}}, "number 1.5", "PodSpec.spec.priority", "int32"),
        ({"spec": {"priority": 1 << 31}}, "number 2147483648", "PodSpec.spec.priority", "int32"),
        (
            {"spec": {"activeDeadlineSeconds": "1"}},
            "string",
            "PodSpec.spec.activeDeadlineSeconds",
            "int64",
        ),
        ({"spec": {"hostNetwork": "true"}}, "string", "PodSpec.spec.hostNetwork", "bool"),
        (
            {"metadata": {"labels": {"a": 1}}},
            "number",
            "ObjectMeta.metadata.labels",
            "string",
        ),
        ({"metadata": {"labels": []}}, "array", "ObjectMeta.metadata.labels", "map[string]string"),
        ({"metadata": {"uid": 5}}, "number", "ObjectMeta.metadata.uid", "types.UID"),
        (
            {"metadata": {"creationTimestamp": 5}},
            "number",
            "ObjectMeta.metadata.creationTimestamp",
            "string",
        ),
        (
            container(livenessProbe={"httpGet": {"port": True}}),
            "bool",
            "HTTPGetAction.spec.containers.livenessProbe.httpGet.port",
            "int32",
        ),
        (
            container(resources={"requests": ["cpu"]}),
            "array",
            "ResourceRequirements.spec.containers.resources.requests",
            "v1.ResourceList",
        ),
    ],
)
def test_the_struct_the_path_and_the_type_are_named(
    body: dict[str, Any], found: str, place: str, go_type: str
) -> None:
    expected = f"json: cannot unmarshal {found} into Go struct field {place} of type {go_type}"
    assert str(refusal(body)) == expected


@pytest.mark.parametrize("amount", ["", "1x", True, {}, "one", "1 Gi"])
def test_what_is_no_amount_is_refused_in_one_sentence(amount: object) -> None:
    assert str(refusal(container(resources={"requests": {"cpu": amount}}))) == _QUANTITY


@pytest.mark.parametrize(
    ("text", "place"),
    [("%%", 0), ("YW%j", 2), ("YWJj=", 4), ("YWJ", 0), ("YWJjZA", 4)],
)
def test_bytes_are_refused_where_they_end(text: str, place: int) -> None:
    found = refusal({"binaryData": {"a": text}}, "ConfigMap")
    assert str(found) == f"illegal base64 data at input byte {place}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", 'as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2024-01-02", 'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"'),
        (
            "2024-01-02T03:04:05",
            'as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"',
        ),
        ("2024-13-02T03:04:05Z", ": month out of range"),
        ("2024-02-30T03:04:05Z", ": day out of range"),
        ("2024-02-03T24:04:05Z", ": hour out of range"),
        ("2024-02-03T04:04:05Zx", ': extra text: "x"'),
    ],
)
def test_a_time_is_refused_at_the_part_that_is_wrong(text: str, why: str) -> None:
    found = refusal({"metadata": {"creationTimestamp": text}})
    separator = "" if why.startswith(":") else " "
    assert str(found) == f'parsing time "{text}"{separator}{why}'


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"spec": {"containers": "x"}}, "cannot restore slice from string"),
        ({"spec": []}, "cannot restore struct from: slice"),
        ({"metadata": {"labels": "x"}}, "cannot restore map from string"),
        ({"metadata": {"labels": {"a": 1}}}, "cannot convert int64 to string"),
        ({"spec": {"restartPolicy": 1}}, "cannot convert int64 to v1.RestartPolicy"),
        ({"spec": {"priority": "1"}}, "unrecognized type: int32"),
        ({"spec": {"hostNetwork": "x"}}, "unrecognized type: bool"),
        ({"spec": {"nodeName": True}}, "unrecognized type: string"),
    ],
)
def test_a_merged_map_is_refused_in_the_words_of_its_reader(body: dict[str, Any], why: str) -> None:
    assert refusal(body).in_a_map == why


@given(body=altered(POD))
def test_whatever_stands_in_a_body_is_decoded_or_refused(body: Any) -> None:
    if isinstance(body, dict):
        try:
            decode("Pod", body)
        except DecodeError as refused:
            words = str(refused), refused.in_a_map
        else:
            return
        assert all(words)


@given(body=altered(GOOD_BODIES["/apis/batch/v1/namespaces/default/cronjobs"]))
def test_what_was_decoded_is_decoded_again_as_it_is(body: Any) -> None:
    if isinstance(body, dict):
        try:
            once = decode("CronJob", body)[0]
        except DecodeError:
            return
        assert decode("CronJob", once)[0] == once
