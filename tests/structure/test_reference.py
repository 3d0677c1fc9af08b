"""The reference of a SchedulerProfile's fields: each has an example, and the examples are valid."""

import re
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

from stellwerk.metrics import Metrics
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import GROUP, PLURAL, load_profile
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.write_options import WriteOptions
from tests.structure.user_texts import Text, texts
from tests.support.repository import ROOT

EXAMPLES: Final = ROOT / "docs" / "reference" / "profile-examples.yaml"
PROFILES: Final = list(yaml.safe_load_all(EXAMPLES.read_text()))
STILL: Final = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
STRICT: Final = WriteOptions(field_validation="Strict")
WITHOUT: Final = {
    r"status(\..*)?": "the operator writes it",
    r"spec\.plugins\.\w+\.(enabled|disabled)\[\]\.weight": "of effect in two lists alone",
    r"spec\.plugins\.(?!multiPoint|score)\w+\.(enabled|disabled)(\[\]\.name)?": "as elsewhere",
    r"spec\.extenders\[\]\.tlsConfig\.keyData": "a key belongs into a Secret or a file",
}
"""Fields that need no example, and why."""


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fields(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Every field of a schema, those of the items of lists behind `[]`."""
    if schema.get("type") == "array":
        yield from fields(schema["items"], f"{prefix}[]")
    for name, below in schema.get("properties", {}).items():
        path = f"{prefix}.{name}".lstrip(".")
        yield path
        yield from fields(below, path)


def test_every_field_has_an_example(pages: ModuleType) -> None:
    (version,) = crd_manifest()["spec"]["versions"]
    known = list(fields(version["schema"]["openAPIV3Schema"]))
    assert len(known) > 150
    shown = pages.examples(EXAMPLES)
    without = [field for field in known if field not in shown]
    assert [
        field for field in without if not any(re.fullmatch(each, field) for each in WITHOUT)
    ] == []
    needed = [each for each in WITHOUT if any(re.fullmatch(each, field) for field in without)]
    assert needed == list(WITHOUT)


def test_the_table_shows_them_with_their_lines(pages: ModuleType) -> None:
    page = "\n".join(pages.profile_fields())
    line = EXAMPLES.read_text().splitlines().index("  shadowOf: batch") + 1
    (row,) = re.findall(r"^\| `spec\.shadowOf` .*$", page, re.MULTILINE)
    assert f"| `shadowOf: batch` (line {line}) |" in row
    (row,) = re.findall(r"^\| `spec\.plugins\.permit` .*$", page, re.MULTILINE)
    assert '`permit: {disabled: [{name: "*"}]}`' in row


@pytest.mark.parametrize("profile", PROFILES, ids=lambda each: each["metadata"]["name"])
def test_an_example_is_a_profile_that_acts_as_written(profile: dict[str, Any]) -> None:
    assert load_profile(profile, known_plugins()).remarks == ()


def test_an_api_server_takes_the_examples() -> None:
    api = EmbeddedCluster(0, options=STILL).api
    definitions = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    api.create(definitions, "", crd_manifest())
    for profile in PROFILES:
        api.create(api.kinds.resource(PLURAL, GROUP), "", profile, STRICT)


def test_each_metric_of_kube_scheduler_s_has_its_stability_and_no_other_has(
    pages: ModuleType,
) -> None:
    named = {each.name for each in Metrics().families}
    assert set(pages.STABILITY) == {name for name in named if not name.startswith("stellwerk_")}
    assert set(pages.STABILITY.values()) == {"STABLE", "BETA", "ALPHA"}
    rows = [line.split(" | ") for line in pages.metrics() if line.startswith("| `")]
    assert {row[0].strip("| `"): row[3] for row in rows} == {
        name: pages.STABILITY.get(name, "own") for name in named
    }


def test_a_message_has_its_meaning_and_a_remedy(
    pages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Text("alert", "StellwerkDown summary", "No replica answers for {{ $value }} s"),
        Text("log", "operator/stellwerk/a.py:1", "watching … failed, starting again", "warning"),
        Text("error", "operator/stellwerk_cli/b.py:2", "--x needs --y", "ConfigurationError"),
        Text("message", "operator/stellwerk/c.py:3", "node(s) had untolerated taint(s)"),
        Text("help", "stellwerk up --help", "list all namespaces"),
        Text("message", "operator/stellwerk_cli/d.py:4", "list all namespaces"),
    ]
    monkeypatch.setattr(pages, "texts", lambda: iter(found))
    rows = [line for line in pages.messages() if line.startswith(("| `", "| ["))]
    link = "../../monitoring.md#stellwerkdown"
    assert rows[0].startswith(f"| [StellwerkDown]({link}) | No replica answers for … s. ")
    assert rows[1] == "| `watching … failed, starting again` | warning | `stellwerk.a` |"
    assert rows[2].startswith("| `--x needs --y` | A mistake at start-up ")
    assert rows[2].endswith(" Exit status 2. | `stellwerk_cli.b` |")
    assert "](../../troubleshooting.md#node-s-had-untolerated-taint-s) | `stellwerk.c` |" in rows[3]
    assert len(rows) == 4


@pytest.mark.long  # four seconds: it reads every module
def test_each_line_of_the_log_and_each_error_is_listed(pages: ModuleType) -> None:
    page = "\n".join(line for line in pages.messages() if line.startswith("| "))
    listed = [each for each in texts() if each.kind in {"log", "error"}]
    assert len(listed) > 600
    for each in listed:
        words = " ".join(each.text.split())
        if len(words.split()) > 2:
            assert words.replace("|", r"\|") in page.replace(r"\<", "<").replace(r"\*", "*"), each
