"""On any small cluster, every suggestion makes the pod fit, and none of its changes is needless."""

from itertools import combinations
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from stellwerk.explain.would_fit import WouldFit
from stellwerk_simulation.cases.decide import Case
from tests.support.answers import as_json
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.single_changes import fits, with_change

EXACT_KINDS = frozenset({"tolerate", "deletePod", "uncordon", "removeTaints", "labelNode"})
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b"]),
            "value": st.sampled_from(["", "x"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        }
    ),
    max_size=2,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A few nodes that are full, tainted, cordoned or wrongly labelled, and a pod."""
    nodes: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        name, labels = f"n{number}", draw(st.sampled_from([{}, {"disk": "ssd"}, {"disk": "hdd"}]))
        node = make_node(name, cpu="2", labels=labels, taints=draw(TAINTS))
        node.setdefault("spec", {})["unschedulable"] = draw(st.booleans())
        nodes.append(node)
        for cpu in draw(st.lists(st.sampled_from(["500m", "1", "1500m"]), max_size=2)):
            app = draw(st.sampled_from(["web", "db"]))
            key = f"p{len(pods)}"
            pods.append(make_pod(key, cpu=cpu, node_name=name, labels={"app": app}))
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["nodeSelector"] = {"disk": "ssd"}
    if draw(st.booleans()):
        selector = {"matchLabels": {"app": "web"}}
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        fields["affinity"] = {"podAntiAffinity": anti}
    pod = make_pod("new", cpu=draw(st.sampled_from(["500m", "1", "3"])), **fields)
    return {"id": "random", "nodes": nodes, "pods": pods, "pod": pod}


@given(cases())
@settings(max_examples=examples(60), deadline=None)
def test_suggestions_are_true_and_as_small_as_can_be(case: dict[str, Any]) -> None:
    loaded = Case(case)
    search = WouldFit(loaded.world, loaded.pod, loaded.profile)
    for _ in search.search():
        pass
    for suggestion in search.suggestions:
        described = as_json(suggestion.answer())
        for changes in (described["changes"], *described["alternatives"]):
            if not all(change["kind"] in EXACT_KINDS for change in changes):
                continue
            assert fits(changed(case, changes)), changes
            for fewer in combinations(changes, len(changes) - 1):
                assert not fits(changed(case, fewer)), fewer


def changed(case: dict[str, Any], changes: Any) -> dict[str, Any]:
    for change in changes:
        case = with_change(case, change)
    return case
