"""The CustomResourceDefinition: equal to the models, structural, and refusing what it can see."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.profiles.spec.crd import crd_manifest, crd_yaml, editor_schema
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import API_VERSION, KIND
from tests.support.bad_profiles import BAD_PROFILES
from tests.support.json_schema import violations
from tests.support.repository import ROOT

Schema = dict[str, Any]

EDITORS = ROOT / "docs" / "static" / "schedulerprofile.schema.json"
CRD_FILE = ROOT / "crds" / "schedulerprofiles.yaml"

VALUE_KEYWORDS = {
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minimum",
    "maximum", "minItems", "maxItems", "maxProperties", "required", "properties", "items",
    "additionalProperties", "default", "x-kubernetes-validations", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def root() -> Schema:
    (version,) = crd_manifest()["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every node of a schema with its path."""
    yield path, schema
    for field, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{field}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}.*")


NODES = dict(nodes(root()))


def test_the_file_equals_the_models() -> None:
    assert CRD_FILE.read_text() == crd_yaml(), "run python -m stellwerk.profiles.spec.crd"
    assert yaml.safe_load(CRD_FILE.read_text()) == crd_manifest()


def test_the_schema_for_editors_equals_the_models() -> None:
    how = "run python -m stellwerk.profiles.spec.crd --for-editors"
    assert EDITORS.read_text(encoding="utf-8") == editor_schema(), how


MANIFESTS = [
    path
    for folder in ("manifests/profiles", "docs/examples")
    for path in sorted((ROOT / folder).rglob("*.yaml"))
    if f"kind: {KIND}\n" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_an_editor_finds_the_schema_of_each_manifest_and_nothing_wrong_in_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    schema = json.loads(EDITORS.read_text(encoding="utf-8"))
    documents = [each for each in yaml.safe_load_all(text) if each["kind"] == KIND]
    assert documents
    for document in documents:
        assert list(violations(document, schema, {})) == []
    if len(documents) == text.count("\nkind: "):
        first = text.partition("\n")[0]
        place = first.removeprefix("# yaml-language-server: $schema=")
        assert place != first
        assert (path.parent / place).resolve() == EDITORS


def test_an_editor_marks_a_field_that_is_misspelt() -> None:
    schema = json.loads(EDITORS.read_text(encoding="utf-8"))
    profile = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}}
    found = violations({**profile, "spec": {"schedulername": "a"}}, schema, {})
    assert list(found) == ["$.spec.schedulername is not described"]


def test_names_and_scope() -> None:
    spec = crd_manifest()["spec"]
    assert crd_manifest()["metadata"]["name"] == "schedulerprofiles.scheduling.stellwerk.dev"
    assert spec["scope"] == "Cluster"
    assert spec["versions"][0]["subresources"] == {"status": {}}


def test_columns() -> None:
    columns = crd_manifest()["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == [
        "Scheduler",
        "Mode",
        "Shadows",
        "Accepted",
        "Active",
        "Ready",
        "Reason",
        "Pending",
        "Scheduled",
        "Age",
    ]


def test_the_schema_is_structural() -> None:
    for path, node in NODES.items():
        assert node["type"] in {"object", "array", "string", "integer", "boolean"}, path
        assert set(node) <= VALUE_KEYWORDS, path
        if node["type"] == "array":
            assert node["items"]["type"], path
            assert node["x-kubernetes-list-type"] in {"map", "set", "atomic"}, path
        if "additionalProperties" in node:
            assert "properties" not in node, path


def test_every_field_that_users_see_is_described() -> None:
    for path, node in NODES.items():
        if path.startswith((".spec", ".status")) and not path.endswith(("[]", ".*")):
            assert node["description"].endswith("."), path


def test_map_lists_have_keys_that_are_required_or_have_a_default() -> None:
    for path, node in NODES.items():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            has_default = "default" in item["properties"][key]
            assert has_default or key in item["required"], path


def test_what_rules_look_at_is_bounded() -> None:
    """The API server estimates the cost of a rule from these bounds."""
    unbounded = [
        path
        for path, node in NODES.items()
        if path.startswith(".spec")
        and (
            (node["type"] == "array" and "maxItems" not in node)
            or (node["type"] == "string" and "maxLength" not in node)
            or ("additionalProperties" in node and "maxProperties" not in node)
        )
    ]
    assert unbounded == []


def test_every_extension_point_can_be_configured() -> None:
    points = root()["properties"]["spec"]["properties"]["plugins"]["properties"]
    assert set(points) == {"multiPoint", *ExtensionPoint}


def test_nothing_merges_an_unset_percentage_with_zero() -> None:
    percentage = root()["properties"]["spec"]["properties"]["percentageOfNodesToScore"]
    assert percentage["minimum"] == 0
    assert "maximum" not in percentage
    assert "default" not in percentage


def test_arguments_keep_fields_that_the_schema_does_not_know() -> None:
    args = NODES[".spec.pluginConfig[].args"]
    assert args["x-kubernetes-preserve-unknown-fields"] is True
    assert NODES[".status.lastGoodSpec"]["x-kubernetes-preserve-unknown-fields"] is True


def test_scheduler_name_is_immutable() -> None:
    (rule,) = NODES[".spec.schedulerName"]["x-kubernetes-validations"]
    assert rule["rule"] == "self == oldSelf"


@pytest.fixture(scope="module")
def apply_on_server(require_tool: Callable[[str], str]) -> Callable[[str], str]:
    """What a real API server says to a manifest, tried without storing it."""
    kubeconfig = os.environ.get("STELLWERK_TEST_KUBECONFIG")
    if not kubeconfig:
        pytest.skip("STELLWERK_TEST_KUBECONFIG names no API server to try the schema on")
    kubectl = [require_tool("kubectl"), "--kubeconfig", kubeconfig]

    def run(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [*kubectl, *arguments], input=text, text=True, capture_output=True, check=False
        )
        return done.stdout + done.stderr

    run("apply", "--filename", str(CRD_FILE))
    run("wait", "--for=condition=Established", "--timeout=30s", "--filename", str(CRD_FILE))
    return lambda text: run("apply", "--dry-run=server", "--filename", "-", text=text)


def test_an_api_server_refuses_exactly_what_the_schema_sees(
    apply_on_server: Callable[[str], str],
) -> None:
    surprises: dict[str, str] = {}
    for bad in BAD_PROFILES:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "bad"},
            "spec": bad.spec,
        }
        answer = apply_on_server(json.dumps(manifest))
        refused = "is invalid" in answer and bad.field in answer
        unknown_field = "strict decoding error" in answer
        if not unknown_field and refused != bad.seen_by_schema:
            surprises[bad.rule] = answer
    assert surprises == {}
