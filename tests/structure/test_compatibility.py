"""docs/compatibility.md says what the tables of `stellwerk_kube.compatibility` say."""

import importlib
import re
import tomllib
from collections.abc import Iterator

import pytest

from stellwerk import __version__
from stellwerk.models.api_kinds import API_KINDS, ApiKind, Served, chosen_version
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import GROUP
from stellwerk_kube.compatibility import (
    GATES,
    NEWEST_PATCHES,
    ROWS,
    Effect,
    Gate,
    Release,
    ReleaseRule,
    Row,
    Sort,
    Stage,
)
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
EFFECTS = {
    Effect.RULE: "a rule above",
    Effect.SETTING: "what is served, and the profile, decide",
    Effect.NONE: "none",
    Effect.LEFT_OUT: "left out",
    Effect.KEPT_ON: "always on",
    Effect.BY_FIELDS: "always on, where there are its fields",
}


def gate_row(gate: Gate) -> str:
    """The row of a gate, as the page has it."""
    return f"| {gate.name} | {' | '.join(_states(gate))} | {EFFECTS[gate.effect]} |"


def _states(gate: Gate) -> Iterator[str]:
    for release in Release:
        step = gate.at(release)
        if step is None:
            yield "–"
        else:
            locked = ", locked" if step.locked else ""
            yield f"{step.stage}, {'on' if step.on else 'off'}{locked}"


def rule_row(row: Row) -> str:
    """The row of a rule, as the page has it."""
    return f"| {row.rule} | {row.sort} | {row.begins} |"


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.name)
def test_a_gate_stands_on_the_page_as_it_is(gate: Gate) -> None:
    assert gate_row(gate) in PAGE.splitlines()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule.name)
def test_a_rule_stands_on_the_page_as_it_is(row: Row) -> None:
    assert rule_row(row) in PAGE.splitlines()


def test_nothing_else_stands_in_the_tables() -> None:
    expected = {*map(gate_row, GATES.values()), *map(rule_row, ROWS)}
    headed = [line for line in PAGE.splitlines() if line.startswith("| ")]
    found = {line for line in headed if line.startswith(tuple(f"| {name} |" for name in GATES))}
    found -= set(map(kind_row, API_KINDS.values()))
    found |= {line for line in headed if " | behaviour | " in line or " | mends | " in line}
    assert found == expected


REPAIRED = [row for row in ROWS if row.source.startswith("#") and row.sort is Sort.MEND]


@pytest.mark.parametrize("row", REPAIRED, ids=lambda row: row.rule.name)
def test_a_repair_stands_on_the_page_with_its_numbers(row: Row) -> None:
    first = row.begins if not row.gate else f"{row.since}"
    expected = f"| {row.source} | {row.rule} | {first} | with `auto`, and from there on |"
    assert expected in PAGE.splitlines()


@pytest.mark.parametrize("release", Release, ids=str)
def test_the_page_says_what_a_minor_release_means(release: Release) -> None:
    assert f"`{release}` | {release}.{NEWEST_PATCHES[release]} |" in PAGE


WORKLOADS = ("workloads", "podgroups", "compositepodgroups")
CLAIMS = ("resourceclaims", "resourceslices", "deviceclasses")
SERVED: dict[Release, dict[str, Served]] = {
    Release.V1_33: {
        "resource.k8s.io": {"v1beta2": CLAIMS, "v1beta1": CLAIMS, "v1alpha3": ("devicetaintrules",)}
    },
    Release.V1_34: {
        "resource.k8s.io": {"v1": CLAIMS, "v1beta2": CLAIMS, "v1alpha3": ("devicetaintrules",)}
    },
    Release.V1_35: {
        "scheduling.k8s.io": {"v1alpha1": ("workloads",)},
        "resource.k8s.io": {"v1": CLAIMS, "v1beta2": CLAIMS, "v1alpha3": ("devicetaintrules",)},
    },
    Release.V1_36: {
        "scheduling.k8s.io": {"v1alpha2": ("workloads", "podgroups")},
        "resource.k8s.io": {
            "v1": CLAIMS,
            "v1beta2": (*CLAIMS, "devicetaintrules"),
            "v1alpha3": ("devicetaintrules",),
        },
    },
    Release.V1_37: {
        "scheduling.k8s.io": {"v1beta1": ("workloads", "podgroups"), "v1alpha3": WORKLOADS},
        "resource.k8s.io": {
            "v1": (*CLAIMS, "devicetaintrules"),
            "v1beta2": (*CLAIMS, "devicetaintrules"),
            "v1alpha3": ("devicetaintrules",),
        },
    },
    # As far as it is known before it is out.
    Release.V1_38: {
        "scheduling.k8s.io": {
            "v1": ("priorityclasses", "workloads", "podgroups"),
            "v1beta1": WORKLOADS,
            "v1alpha3": WORKLOADS,
        },
        "resource.k8s.io": {
            "v1": (*CLAIMS, "devicetaintrules"),
            "v1beta2": (*CLAIMS, "devicetaintrules"),
            "v1alpha3": ("devicetaintrules",),
        },
    },
}
"""What each release serves at most, with `--runtime-config`."""


def kind_row(kind: ApiKind) -> str:
    """The row of a kind, as the page has it."""
    used = [
        chosen_version(kind.plural, kind.versions, SERVED[release].get(kind.group, {})) or "–"
        for release in Release
    ]
    return f"| {kind.kind} | {kind.group} | {' | '.join(used)} | {kind.lack} |"


@pytest.mark.parametrize("kind", API_KINDS.values(), ids=lambda kind: kind.kind)
def test_the_versions_of_a_kind_stand_on_the_page(kind: ApiKind) -> None:
    assert kind_row(kind) in PAGE.splitlines()


@pytest.mark.parametrize("kind", API_KINDS.values(), ids=lambda kind: kind.kind)
def test_what_reads_and_writes_a_kind_exists(kind: ApiKind) -> None:
    for named in filter(None, (kind.parser, kind.writer)):
        module, _, name = f"stellwerk.{named}".rpartition(".")
        try:
            importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), name), named


def test_a_gate_that_is_left_out_is_a_named_difference() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    left_out = {gate.name for gate in GATES.values() if gate.effect is Effect.LEFT_OUT}
    (row,) = (line for line in page.splitlines() if line.startswith("| alpha gates that are off"))
    assert {name for name in GATES if f"`{name}`" in row} == left_out


@pytest.mark.parametrize("effect", [Effect.KEPT_ON, Effect.BY_FIELDS], ids=lambda each: each.name)
def test_a_gate_that_is_always_on_is_a_named_difference(effect: Effect) -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    begins = {
        Effect.KEPT_ON: "| gates that can be turned off",
        Effect.BY_FIELDS: "| gates whose fields the API server drops",
    }
    (row,) = (line for line in page.splitlines() if line.startswith(begins[effect]))
    kept_on = {gate.name for gate in GATES.values() if gate.effect is effect}
    assert {name for name in GATES if f"`{name}`" in row} == kept_on


def test_a_gate_of_no_effect_that_is_alpha_is_named() -> None:
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| alpha gates of 1.37 on"))
    alpha = {
        gate.name
        for gate in GATES.values()
        if gate.effect is Effect.NONE
        and (step := gate.at(max(Release))) is not None
        and step.stage is Stage.ALPHA
    }
    # Jobs' groups are made by who makes their pods; decisions read the groups.
    assert {name for name in GATES if f"`{name}`" in row} == alpha - {"WorkloadWithJob"}


def test_a_rule_is_asked_for_somewhere() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "operator").rglob("*.py")
        if path.name != "compatibility.py"
    )
    assert [rule for rule in ReleaseRule if f"ReleaseRule.{rule.name}" not in source] == []


def test_the_page_has_the_row_of_this_version() -> None:
    """What runs with what: the version, the releases, the definition's version and Python."""
    (row,) = re.findall(rf"^\| {re.escape(minor_version())} \|.*$", PAGE, re.MULTILINE)
    oldest, *_, newest = sorted(Release)
    (served,) = crd_manifest()["spec"]["versions"]
    assert f"| {oldest} to {newest} |" in row
    assert f"`{GROUP}/{served['name']}`, served and stored" in row
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(classifiers))
    assert f"| {pythons[0]} to {pythons[-1]} |" in row


def minor_version() -> str:
    """The version without its last number."""
    return __version__.rpartition(".")[0]
