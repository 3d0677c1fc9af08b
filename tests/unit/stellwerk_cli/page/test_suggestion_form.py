"""Suggestions as forms that are filled in: each kind of change, and what is left to the user."""

from typing import Any

import pytest

from stellwerk.answers.nodes import NodeFields
from stellwerk.answers.suggestion import ChangeFields, TaintFields
from stellwerk_cli.page.suggestion_form import (
    changes_text,
    filled_form,
    nodes_of,
    read_changes,
)
from stellwerk_cli.page.supposition_form import supposition
from stellwerk_kube.errors import ConfigurationError
from tests.support.builders import make_pod

CORDON = TaintFields(key="node.kubernetes.io/unschedulable", value="", effect="NoSchedule")
FULL = NodeFields(
    name="full",
    allocatable={"cpu": 4000, "memory": 8 << 30},
    requested={"cpu": 3000},
    labels={"disk": "ssd"},
    taints=[CORDON],
    unschedulable=True,
)
GPU = TaintFields(key="dedicated", value="gpu", effect="NoSchedule")


def body(*changes: ChangeFields) -> dict[str, Any]:
    """The question that the form asks, once the changes have gone through an address."""
    read = read_changes(changes_text(changes))
    assert read == list(changes)
    filled = filled_form(read, make_pod("web", cpu="2"), dict.fromkeys(nodes_of(read), FULL))
    assert filled.by_hand == []
    return supposition(filled.form)


def test_a_toleration_is_in_the_pod() -> None:
    pod = body(ChangeFields(kind="tolerate", taint=GPU))["pod"]
    toleration = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "operator": "Equal"}
    assert pod["spec"]["tolerations"] == [toleration]


def test_acts_on_nodes_and_pods_are_lines_of_the_form() -> None:
    asked = body(
        ChangeFields(kind="removeTaints", node="n", taints=["dedicated=gpu:NoSchedule"]),
        ChangeFields(kind="labelNode", node="n", labels={"disk": "ssd", "old": None}),
        ChangeFields(kind="deletePod", pod="shop/a", node="n", budget="shop/b"),
    )
    assert asked["taint"] == ["n dedicated:NoSchedule-"]
    assert asked["relabel"] == ["n disk=ssd old-"]
    assert asked["delete"] == ["pod/shop/a"]


def test_a_smaller_request_is_in_the_one_container() -> None:
    change = ChangeFields(
        kind="editPod", edit="request 750m instead of 2 CPU", amounts={"cpu": 750}
    )
    (container,) = body(change)["pod"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "750m"
    two = make_pod("web", cpu="2")
    two["spec"]["containers"] *= 2
    assert filled_form([change], two, {}).by_hand == ["request 750m instead of 2 CPU"]


@pytest.mark.parametrize(
    ("kind", "cpu", "cordoned"),
    [
        pytest.param("freeResources", "1500m", True, id="what is free and what is freed"),
        pytest.param("growNode", "4500m", True, id="an empty node that is larger"),
        pytest.param("uncordon", "1000m", False, id="what is free, without the taint"),
    ],
)
def test_a_node_is_supposed_as_it_would_be(kind: str, cpu: str, *, cordoned: bool) -> None:
    amounts = None if kind == "uncordon" else {"cpu": 500}
    (node,) = body(ChangeFields(kind=kind, node="full", amounts=amounts))["addNodes"]
    assert node["status"]["allocatable"]["cpu"] == cpu
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert (bool(node["spec"]), node["spec"].get("unschedulable", False)) == (cordoned, cordoned)


def test_what_no_form_can_suppose_is_left_to_the_user() -> None:
    changes = [
        ChangeFields(kind="editPod", edit="request 750m instead of 7 CPU"),
        ChangeFields(kind="editClaim", claim="a/b", change="ask for 2 devices"),
        ChangeFields(kind="uncordon", node="gone"),
    ]
    found = filled_form(changes, make_pod("web"), {})
    assert found.by_hand == ["request 750m instead of 7 CPU", "ask for 2 devices", "uncordon"]
    assert "name: web" in found.form["pod"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"kind": 5}]', f"[{'{},' * 40}{{}}]"])
def test_an_address_without_changes_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^changes: "):
        read_changes(text)
