"""Findings about objects that are odd, old or of another version."""

from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk import __version__
from stellwerk_cli.commands.diagnosis.checks import (
    HeldLease,
    Installation,
    check_leases,
    check_profiles,
    check_versions,
    served_names,
)
from stellwerk_cli.commands.diagnosis.survey import Unseen
from stellwerk_kube.json_values import JsonObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KUBE_SYSTEM = ("kube-system", "kube-scheduler")


def pod(image: str, *arguments: str) -> JsonObject:
    container = {"name": "stellwerk", "image": image, "args": ["run", *arguments]}
    metadata = {"name": "stellwerk-1", "namespace": "stellwerk"}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def installed(**fields: Any) -> Installation:
    given = {"deployments": (), "pods": (), "leases": (), "profiles": (), **fields}
    return Installation(**given)


@pytest.mark.parametrize(
    ("server", "state"),
    [
        ("v1.36.2", "ok"),
        ("v1.37.0-gke.1", "ok"),
        ("v1.30.1", "warning"),
        ("v1.99.0", "warning"),
        ("unknown", "warning"),
    ],
)
def test_releases_that_decisions_cannot_follow_are_warned_of(server: str, state: str) -> None:
    assert check_versions(server, installed()).state == state


@pytest.mark.parametrize(
    ("image", "state"),
    [
        (f"stellwerk:{__version__}", "ok"),
        ("registry.example:5000/stellwerk:v9.8.7", "warning"),
        ("registry.example:5000/stellwerk", "ok"),
        ("stellwerk:0f3acd", "ok"),
        (f"stellwerk@sha256:{'0' * 64}", "ok"),
    ],
)
def test_an_image_of_another_release_is_warned_of(image: str, state: str) -> None:
    finding = check_versions("v1.36.2", installed(pods=[pod(image)]))
    assert (finding.state, "9.8.7" in finding.what) == (state, state == "warning")


def lease(
    key: tuple[str, str], holder: str, *, is_stellwerk: bool = True, is_alive: bool = True
) -> HeldLease:
    return HeldLease(*key, holder, is_stellwerk=is_stellwerk, is_alive=is_alive)


OWN = ("stellwerk", "stellwerk")


@pytest.mark.parametrize(
    ("leases", "states"),
    [
        pytest.param([], ["failed"], id="there is none"),
        pytest.param([lease(OWN, "a")], ["ok"], id="it is held"),
        pytest.param([lease(OWN, "a", is_alive=False)], ["failed"], id="its holder is silent"),
        pytest.param(
            [lease(OWN, "", is_alive=False), lease(KUBE_SYSTEM, "a")],
            ["ok"],
            id="it was left behind in kube-scheduler's place",
        ),
        pytest.param(
            [lease(OWN, "a"), lease(("stellwerk", "gpu"), "b", is_alive=False)],
            ["ok", "warning"],
            id="a second operator is away",
        ),
        pytest.param(
            [lease(OWN, "a"), lease(KUBE_SYSTEM, "b", is_stellwerk=False, is_alive=False)],
            ["ok"],
            id="kube-scheduler is away, which is not our concern",
        ),
    ],
)
def test_leases_are_judged_together(leases: list[HeldLease], states: list[str]) -> None:
    assert [each.state for each in check_leases(installed(leases=leases))] == states


def test_leases_that_cannot_be_seen_are_unknown() -> None:
    (finding,) = check_leases(installed(leases=Unseen("needs the right to list leases")))
    assert finding.state == "unknown"


def test_the_lease_of_an_operator_that_does_not_run_is_that_of_its_arguments() -> None:
    own = pod("a", "--leader-elect-resource-name=x", "--leader-elect-resource-namespace=y")
    assert installed(pods=[own]).wanted_lease == ("y", "x")
    assert installed(pods=[pod("a")]).wanted_lease == KUBE_SYSTEM
    assert installed().wanted_lease == OWN


def profile(name: str, **spec: Any) -> JsonObject:
    conditions = [{"type": "Active", "status": "True"}]
    return {
        "metadata": {"name": name},
        "spec": {"schedulerName": name, **spec},
        "status": {"conditions": conditions},
    }


def test_a_kube_scheduler_that_is_observed_and_silent_is_warned_of() -> None:
    leases = [lease(OWN, "a"), lease(KUBE_SYSTEM, "b", is_stellwerk=False, is_alive=False)]
    profiles = [profile("default-scheduler", mode="Observe")]
    own, silent = check_leases(installed(leases=leases, profiles=profiles))
    assert (own.state, silent.state) == ("ok", "warning")
    assert silent.what.startswith("kube-system/kube-scheduler: its last holder b no longer renews")


def test_names_are_served_while_their_scheduler_lives() -> None:
    profiles = [profile("packing"), profile("team", selector={"podSelector": {}})]
    profiles.append(profile("", shadowOf="packing"))
    kube_scheduler = lease(KUBE_SYSTEM, "kube-scheduler_1", is_stellwerk=False)
    silent = lease(OWN, "a", is_alive=False)
    assert served_names(installed(leases=[silent], profiles=profiles)) == set()
    assert served_names(installed(leases=[lease(OWN, "a")], profiles=profiles)) == {
        "packing",
        "team",
        "default-scheduler",
    }
    assert served_names(installed(leases=[kube_scheduler])) == {"default-scheduler"}
    observed = [profile("default-scheduler", mode="Observe")]
    assert served_names(installed(leases=[lease(OWN, "a")], profiles=observed)) == set()


@pytest.mark.parametrize(
    ("conditions", "state", "words"),
    [
        ({}, "warning", "has no condition"),
        ({"Ready": ("Unknown", "Pending")}, "warning", "has no condition"),
        ({"Accepted": ("True", "Valid"), "Active": ("True", "Serving")}, "ok", "1 profile is"),
        (
            {
                "Accepted": ("True", "Valid"),
                "Active": ("True", "Serving"),
                "Ready": ("False", "NotAllowed"),
            },
            "warning",
            "serves and is not ready (NotAllowed)",
        ),
        ({"Accepted": ("False", "Invalid")}, "failed", "is not accepted (Invalid)"),
    ],
)
def test_a_profile_is_judged_by_its_conditions(
    conditions: dict[str, tuple[str, str]], state: str, words: str
) -> None:
    found = profile("packing")
    found["status"] = {
        "conditions": [
            {"type": type_, "status": status, "reason": reason, "message": "why"}
            for type_, (status, reason) in conditions.items()
        ]
    }
    (finding,) = check_profiles(installed(profiles=[found]))
    assert finding.state == state
    assert words in finding.what
    assert state != "warning" or finding.remedy


def test_a_kube_scheduler_that_cannot_be_seen_is_not_called_away() -> None:
    unseen = Unseen("needs the right to get leases kube-scheduler", forbidden=True)
    found = installed(leases=[lease(OWN, "a")], unseen_lease=unseen)
    assert found.kube_scheduler_runs == unseen
    assert [each.state for each in check_leases(found)] == ["unknown", "ok"]
    assert installed(leases=unseen).kube_scheduler_runs == unseen
    assert installed().kube_scheduler_runs is False


def test_a_static_pod_with_a_kubeconfig_has_no_service_account() -> None:
    static = pod("a", "--kubeconfig=/etc/kubernetes/scheduler.conf")
    assert installed(pods=[static]).account is None
    assert installed(pods=[static, pod("a")]).account == ("stellwerk", "default")
