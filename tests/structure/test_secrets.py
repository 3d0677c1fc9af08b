"""Every Secret that a profile names is read by `read_secret`, which looks at its addresses.

A new place that reads one by a path of its own, or a new field that names one, fails here.
"""

import ast
from collections.abc import Iterator

from stellwerk.profiles.spec.crd import crd_manifest
from tests.support.repository import ROOT

OPERATOR = ROOT / "operator"
READER = "stellwerk/framework/secret_reading.py"
CALLERS = {
    "stellwerk/client/extender.py": "user and password of an extender",
    "stellwerk/client/extender_tls.py": "certificate, key and roots of an extender",
    "stellwerk_plugins/load/sources.py": "the token of a Prometheus",
}
"""The modules that read Secrets, and what they read."""
REFERENCES = {
    "spec.extenders[].secretRef",
    "spec.extenders[].tlsConfig.secretRef",
    # Arguments of plugins are free in the definition; their models are below.
}
MODELS = {
    ("stellwerk/profiles/spec/extender_spec.py", "SecretReference"),
    ("stellwerk_plugins/load/sources.py", "TokenReference"),
}
"""The types of arguments and fields that name a Secret."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The modules that may run in the operator."""
    for package in ("stellwerk", "stellwerk_plugins", "stellwerk_kube"):
        for file in sorted((OPERATOR / package).rglob("*.py")):
            yield str(file.relative_to(OPERATOR)), ast.parse(file.read_text(encoding="utf-8"))


def test_one_function_reads_secrets() -> None:
    paths, callers = set(), set()
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and "/secrets/" in str(node.value):
                paths.add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "read_secret":
                callers.add(name)
    mounted = "stellwerk/client/access.py"  # the operator's own token, which no profile names
    assert paths == {READER, mounted}
    assert callers == CALLERS.keys()


def test_the_fields_that_name_secrets_are_these() -> None:
    schema = crd_manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(references(schema["properties"]["spec"], "spec")) == REFERENCES
    named = {
        (name, node.name)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Reference")
        if "ConfigModel" in map(ast.unparse, node.bases)
    }
    assert named == MODELS


def references(schema: dict[str, object], path: str) -> Iterator[str]:
    """The paths of fields that hold a namespace and a name."""
    properties = schema.get("properties")
    if isinstance(properties, dict):
        if {"namespace", "name"} <= properties.keys():
            yield path
        for name, each in properties.items():
            yield from references(each, f"{path}.{name}")
    items = schema.get("items")
    if isinstance(items, dict):
        yield from references(items, f"{path}[]")
