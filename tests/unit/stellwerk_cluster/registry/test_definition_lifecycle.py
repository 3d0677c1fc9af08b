import copy
from random import Random
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.conversion import from_storage
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
from stellwerk_cluster.apimachinery.patching import MERGE_PATCH
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.definition_lifecycle import DefinitionLifecycle
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.scale import patch_scale, read_scale
from stellwerk_cluster.registry.store import Store
from stellwerk_cluster.registry.write_options import WriteOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject


def version(
    name: str, more: JsonObject | None = None, *, storage: bool = False, served: bool = True
) -> JsonObject:
    properties = {"size": {"type": "integer", "default": 1}, **(more or {})}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }
    return {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
    }


def definition(*versions: JsonObject, plural: str = "things", **names: Any) -> JsonObject:
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": "Thing", **names},
            "versions": list(versions),
        },
    }


class Definitions:
    """An API with its definitions, and the objects of the kind `things`."""

    def __init__(self) -> None:
        self.api = Api(Store(), KindTable(), VirtualClock(), Random(1))
        DefinitionLifecycle(self.api)
        self.kind = self.api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")

    def create(self, body: JsonObject) -> None:
        self.api.create(self.kind, "", body)

    def get(self, plural: str = "things") -> JsonObject:
        return copy.deepcopy(self.api.get(self.kind, "", f"{plural}.example.com").obj)

    def update(self, *versions: JsonObject) -> None:
        body = self.get()
        body["spec"]["versions"] = list(versions)
        self.api.update(self.kind, ("", "things.example.com"), body)

    def condition(self, type_: str, plural: str = "things") -> tuple[str, str, str]:
        for each in self.get(plural)["status"]["conditions"]:
            if each["type"] == type_:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def row(self, name: str) -> ResourceKind:
        found = self.api.kinds.find("example.com", name, "things")
        assert found is not None
        return found

    def put(self, name: str, **spec: Any) -> None:
        body = {"metadata": {"name": "a"}, "spec": spec}
        self.api.create(self.row(name), "", body)

    def shown(self, name: str) -> JsonObject:
        row = self.row(name)
        return from_storage(row, self.api.get(row, "", "a").obj)


@pytest.fixture
def definitions() -> Definitions:
    return Definitions()


def test_an_object_is_shown_in_the_version_that_is_asked_for(definitions: Definitions) -> None:
    extra = {"extra": {"type": "string", "default": "by default"}}
    definitions.create(definition(version("v1", storage=True), version("v2", extra)))
    definitions.put("v2", size=3, extra="x", unknown=1)
    assert definitions.shown("v1")["apiVersion"] == "example.com/v1"
    assert definitions.shown("v1")["spec"] == {"size": 3}
    # The storage version does not know the field, which was lost on the way.
    assert definitions.shown("v2")["spec"] == {"extra": "by default", "size": 3}


def test_a_default_that_the_definition_gets_later_is_shown(definitions: Definitions) -> None:
    definitions.create(definition(version("v1", storage=True)))
    definitions.put("v1", size=3)
    definitions.update(version("v1", {"late": {"type": "string", "default": "x"}}, storage=True))
    assert definitions.shown("v1")["spec"] == {"late": "x", "size": 3}


def test_storage_versions_are_remembered_and_must_stay(definitions: Definitions) -> None:
    definitions.create(definition(version("v1", storage=True), version("v2")))
    definitions.update(version("v1"), version("v2", storage=True))
    assert definitions.get()["status"]["storedVersions"] == ["v1", "v2"]
    with pytest.raises(StatusError, match="v1 was previously a storage version"):
        definitions.update(version("v2", storage=True))


def test_versions_that_are_served_no_longer_are_gone(definitions: Definitions) -> None:
    definitions.create(definition(version("v1", storage=True), version("v2"), version("v3")))
    definitions.update(version("v1", storage=True), version("v2", served=False))
    assert definitions.api.kinds.groups()["example.com"] == ["v1"]


def test_the_most_stable_version_is_preferred(definitions: Definitions) -> None:
    names = ("foo1", "v1beta1", "v1", "v11alpha2", "v2", "v3beta1", "v11beta2", "foo10")
    definitions.create(
        definition(*(version(name, storage=name == "v1") for name in names)),
    )
    assert definitions.api.kinds.groups()["example.com"] == [
        *("v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v11alpha2", "foo1", "foo10")
    ]


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        pytest.param({"kind": "Thing"}, "ListKindConflict", '"ThingList" is', id="kind and list"),
        pytest.param(
            {"kind": "Thing", "listKind": "L", "singular": "s"},
            *("KindConflict", '"Thing" is'),
            id="kind",
        ),
        pytest.param(
            {"kind": "Other", "shortNames": ["t"]}, "ShortNamesConflict", '"t" is', id="short name"
        ),
        pytest.param(
            {"kind": "Other", "singular": "things"},
            *("SingularConflict", '"things" is'),
            id="singular",
        ),
    ],
)
def test_names_that_are_taken_are_refused_until_they_are_free(
    definitions: Definitions, names: JsonObject, reason: str, message: str
) -> None:
    definitions.create(definition(version("v1", storage=True), shortNames=["t"]))
    definitions.create(definition(version("v1", storage=True), plural="others", **names))
    found = definitions.condition("NamesAccepted", "others")
    assert found == ("False", reason, f"{message} already in use")
    assert definitions.condition("Established", "others")[:2] == ("False", "NotAccepted")
    delete(definitions.api, definitions.kind, ("", "things.example.com"), DeleteOptions())
    assert definitions.condition("Established", "others")[0] == "True"


def test_a_definition_goes_with_the_last_of_its_objects(definitions: Definitions) -> None:
    definitions.create(definition(version("v1", storage=True)))
    held = {"name": "a", "finalizers": ["example.com/hold"]}
    row = definitions.row("v1")
    definitions.api.create(row, "", {"metadata": held})
    definitions.api.create(row, "", {"metadata": {"name": "b"}})
    delete(definitions.api, definitions.kind, ("", "things.example.com"), DeleteOptions())
    assert definitions.condition("Terminating")[1] == "InstanceDeletionInProgress"
    assert [each["metadata"]["name"] for each in definitions.api.all(row.storage_name)] == ["a"]
    with pytest.raises(StatusError, match="create not allowed while"):
        definitions.api.create(row, "", {"metadata": {"name": "c"}})
    definitions.api.patch(row, ("", "a"), {"metadata": {"finalizers": None}})
    with pytest.raises(StatusError, match="not found"):
        definitions.get()
    assert definitions.api.kinds.find("example.com", "v1", "things") is None


def test_the_scale_of_a_custom_object_lies_where_its_definition_says(
    definitions: Definitions,
) -> None:
    scaled = version("v1", {"wanted": {"type": "integer"}}, storage=True)
    scaled["subresources"] = {
        "scale": {"specReplicasPath": ".spec.wanted", "statusReplicasPath": ".status.there"}
    }
    definitions.create(definition(scaled))
    definitions.put("v1", wanted=3)
    row = definitions.row("v1")
    patch = {"spec": {"replicas": 5}}
    scale = patch_scale(definitions.api, row, ("", "a"), patch, MERGE_PATCH, WriteOptions())
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": 5}, 0)
    assert definitions.shown("v1")["spec"]["wanted"] == 5


def test_an_object_without_replicas_has_no_scale(definitions: Definitions) -> None:
    scaled = version("v1", storage=True)
    scaled["subresources"] = {
        "scale": {"specReplicasPath": ".spec.wanted", "statusReplicasPath": ".status.there"}
    }
    definitions.create(definition(scaled))
    definitions.put("v1")
    with pytest.raises(StatusError, match=r'spec replicas field "\.spec\.wanted" does not exist'):
        read_scale(definitions.row("v1"), definitions.shown("v1"))


def test_a_text_in_the_place_of_an_object_is_refused(definitions: Definitions) -> None:
    definitions.create(definition(version("v1", {"wanted": {"type": "integer"}}, storage=True)))
    row = definitions.row("v1")
    body = {"metadata": {"name": "a"}, "spec": "text"}
    definitions.put("v1", wanted=1)
    with pytest.raises(StatusError, match="spec in body must be of type object"):
        definitions.api.create(row, "", {**body, "metadata": {"name": "b"}})
