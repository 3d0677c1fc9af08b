"""Types as the tables say them; `kubectl explain` has a line for everything that is served."""

from collections import Counter

import orjson
import pytest
from aiohttp.test_utils import make_mocked_request

from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apiserver.openapi import OpenApi
from stellwerk_cluster.registry.custom_kinds import CustomKinds
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.schema.tables import blocks
from stellwerk_kube.schema.types import (
    ANY_TYPE,
    describe_field,
    describe_type,
    type_block,
    types,
)


def served_schemas() -> dict[str, JsonObject]:
    """Every type in every document of /openapi/v3."""
    kinds = KindTable(GANGS)
    openapi = OpenApi(kinds, CustomKinds(kinds))
    schemas: dict[str, JsonObject] = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = ["v3", "apis", group, version] if group else ["v3", "api", version]
            answer = openapi.answer(make_mocked_request("GET", "/openapi/" + "/".join(path)), path)
            assert isinstance(answer.body, bytes)
            schemas.update(orjson.loads(answer.body)["components"]["schemas"])
    return schemas


def test_everything_that_is_served_is_described() -> None:
    schemas = served_schemas()
    assert {"io.k8s.CSIVolumeSource", "io.k8s.Probe", "io.k8s.ExactDeviceRequest"} <= set(schemas)
    undescribed = [
        f"{type_name}.{name}".rstrip(".")
        for type_name, schema in schemas.items()
        for name, part in {"": schema, **schema["properties"]}.items()
        if not part["description"]
    ]
    assert undescribed == []


def test_no_description_stands_twice_and_none_is_of_something_else() -> None:
    described = [type_block(name) for name in blocks()]
    texts = Counter(each.text for each in described if each.text)
    texts.update(line.text for each in described for line in each.lines if line.text)
    assert [text for text, times in texts.items() if times > 1] == []
    known = {name for fields in types().values() for name in fields}
    assert set(type_block(ANY_TYPE).fields) <= known


def test_a_type_is_described_like_one_that_there_is() -> None:
    likes = {type_block(name).words.get("like") for name in types()} - {None}
    assert likes <= set(types())


def test_a_field_may_have_the_name_of_its_type() -> None:
    field = types()["DeviceAttribute"]["bool"]
    assert (field.type, field.number, "pointer" in field.words) == ("bool", (3,), True)


@pytest.mark.parametrize(
    ("type_name", "field_name", "text"),
    [
        pytest.param("CSIVolumeSource", "readOnly", "only read", id="what is said of any type"),
        pytest.param("PodCondition", "status", "True, False or Unknown", id="of a type like it"),
        pytest.param("EphemeralContainer", "name", "Name.", id="of any type, past one like it"),
        pytest.param("VolumeMount", "readOnly", "container only reads", id="of the type itself"),
        pytest.param("Unknown", "field", "", id="nothing"),
    ],
)
def test_the_nearest_text_is_taken(type_name: str, field_name: str, text: str) -> None:
    assert text in describe_field(type_name, field_name)
    assert bool(text) is bool(describe_type(type_name))
