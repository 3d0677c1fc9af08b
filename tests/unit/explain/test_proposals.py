"""Plugins of users in explanations: what they add, and how one that goes wrong is left out."""

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import pytest
from typing_extensions import override

from stellwerk.explain.report import explain_on
from stellwerk.plugin_api import (
    ChangeFields,
    DeletePod,
    EditPod,
    FilterResult,
    FilterResults,
    NodeChange,
    NodeInfo,
    PluginFacts,
    PodInfo,
    SetLabels,
    unschedulable,
)
from stellwerk.plugins import registry
from stellwerk_simulation.cases.decide import Case
from tests.support.answers import written
from tests.support.builders import make_node, make_pod, pod_info


class Pools:
    """Takes nodes with the label `pool` alone; tests give it `explain` and `propose`."""

    name: ClassVar[str] = "Pools"

    def __init__(self, *_: Any) -> None: ...

    def filter(self, _: Any, __: Any, nodes: Any) -> FilterResult:
        ids, _ = nodes.label("pool")
        lacking = unschedulable(self.name, "node(s) are in no pool")
        return FilterResult((ids < 0).astype("int32"), lambda _: lacking)


class OwnChange(NodeChange):
    """A change of the plugin's own making."""

    cost = SetLabels.cost

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("pool",)

    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        return SetLabels(node.name, (("pool", "own"),)).changed(node)

    @override
    def describe(self) -> str:
        return f"put {self.node_name} into a pool"

    @override
    def fields(self) -> ChangeFields:
        return ChangeFields(kind="pool", node=self.node_name)


class BrokenChange(OwnChange):
    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        raise LookupError(node.name)


def explained(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> dict[str, Any]:
    """The explanation of a pod that Pools turns away everywhere."""
    plugin = type("Pools", (Pools,), methods)
    known = registry._Registry()  # noqa: SLF001 as if it were installed
    known.known = registry._KnownPlugins(known.known.plugins | {"Pools": plugin}, {})  # noqa: SLF001
    monkeypatch.setattr(registry, "_registry", lambda: known)
    enabled = {"filter": {"enabled": [{"name": "Pools"}]}}
    loaded = Case({
        "id": "pools",
        "nodes": [make_node("n"), make_node("m", cpu="1")],
        "pod": make_pod("web", cpu="2"),
        "profile": {"plugins": enabled},
    })  # fmt: skip
    return written(explain_on(loaded.world, loaded.pod, loaded.profile))


def texts(answer: dict[str, Any]) -> list[str]:
    return [each["text"] for each in answer["wouldFit"]]


def test_its_lines_and_fields_stand_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(_: Any, state: Any, pod: PodInfo, nodes: Any) -> Generator[None, None, PluginFacts]:
        yield
        results = FilterResults.of(state)
        assert results is not None
        turned_away = int((results.results["Pools"].codes != 0).sum())
        fields = {"nodes": len(nodes), "turnedAway": turned_away}
        return PluginFacts(lines=[f"{pod.name} wants a pool"], fields=fields)

    answer = explained(monkeypatch, explain=explain)
    facts = {"lines": ["web wants a pool"], "fields": {"nodes": 2, "turnedAway": 2}}
    assert answer["plugins"] == {"Pools": facts}


def test_its_proposals_are_tried_and_those_that_help_are_suggested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def propose(_: Any, __: Any, ___: Any, row: int | None, nodes: Any) -> Any:
        if row is None:
            yield EditPod("do without nothing", lambda pod: pod)
            return
        name = nodes.snapshot.node_at(row).name
        yield None
        yield OwnChange(name)
        yield SetLabels(name, (("pools", "misspelt"),))

    answer = explained(monkeypatch, propose=propose)
    assert texts(answer) == ["put n into a pool"]
    assert answer["wouldFit"][0]["changes"] == [{"kind": "pool", "node": "n"}]
    assert "leftOut" not in answer


def raising(*_: Any) -> Any:
    raise KeyError("pool")


def raising_later(*_: Any) -> Iterator[None]:
    yield
    raise KeyError("pool")


def endless(*_: Any) -> Iterator[None]:
    while True:
        yield


def too_many(*_: Any) -> Any:
    return [SetLabels("n", (("pool", f"{number}"),)) for number in range(33)]


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        pytest.param({"explain": raising}, "Explain plugin.*KeyError", id="it raises"),
        pytest.param({"explain": raising_later}, "Explain plugin.*KeyError", id="between steps"),
        pytest.param({"explain": endless}, "more than 1000 steps", id="it never ends"),
        pytest.param({"explain": lambda *_: 7}, "answered int", id="it answers something else"),
        pytest.param(
            {"explain": lambda *_: PluginFacts(lines=[7])},  # type: ignore[list-item]
            "not with texts",
            id="lines that are no texts",
        ),
        pytest.param({"propose": raising}, "Propose plugin.*KeyError", id="proposing, it raises"),
        pytest.param({"propose": raising_later}, "Propose plugin.*KeyError", id="later"),
        pytest.param({"propose": endless}, "more than 1000 steps", id="proposals without an end"),
        pytest.param({"propose": too_many}, "more than 32 changes", id="too many proposals"),
        pytest.param({"propose": lambda *_: ["grow"]}, "proposed str", id="no change"),
        pytest.param({"propose": lambda *_: 7}, "answered int", id="no list"),
        pytest.param(
            {"propose": lambda *_: [SetLabels("nowhere", (("pool", "x"),))]},
            "KeyError",
            id="a node that is not there",
        ),
        pytest.param(
            {"propose": lambda *_: [DeletePod(pod_info("other", node_name="n"))]},
            "KeyError",
            id="a pod that is not on its node",
        ),
        pytest.param(
            {"propose": lambda *_: [BrokenChange("n")]}, "LookupError", id="it cannot be made"
        ),
    ],
)
def test_one_that_goes_wrong_is_left_out_by_name(
    methods: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = explained(monkeypatch, **methods)
    ((left_out),) = answer["leftOut"]
    assert left_out["plugin"] == "Pools"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(left_out["reason"])
    assert answer["verdicts"]["byPlugin"][0]["plugin"] == "Pools"
    assert texts(answer) == []
