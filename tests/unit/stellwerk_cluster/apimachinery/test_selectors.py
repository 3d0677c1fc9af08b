import pytest

from stellwerk_cluster.apimachinery.event_views import field_path
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apimachinery.selectors import parse_fields, parse_labels

PODS = KindTable().resource("pods")


def matches(selector: str, **labels: str) -> bool:
    return parse_labels(selector).matches(labels)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param("", True, id="nothing selects everything"),
        pytest.param("app=web", True, id="equality"),
        pytest.param("app==db", False, id="double equality"),
        pytest.param("app!=db", True, id="inequality"),
        pytest.param("tier!=db", True, id="inequality holds for a missing label"),
        pytest.param("app in (db, web)", True, id="membership"),
        pytest.param("app notin (web)", False, id="no membership"),
        pytest.param("app,n>3", True, id="existence and comparison"),
        pytest.param("n<3", False, id="less than"),
        pytest.param("missing<3", False, id="nothing is less than a number"),
        pytest.param("!tier", True, id="absence"),
        pytest.param("!app", False, id="absence of a present label"),
    ],
)
def test_label_selector(selector: str, *, selected: bool) -> None:
    assert matches(selector, app="web", n="5") is selected


@pytest.mark.parametrize(
    "selector", ["a in (b", "a in b", "n>x", "n>9223372036854775808", "=b", "a b"]
)
def test_a_malformed_label_selector_is_a_bad_request(selector: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(selector)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        pytest.param("spec.nodeName=n1", True, id="equality"),
        pytest.param("spec.nodeName!=n1", False, id="inequality"),
        pytest.param("status.nominatedNodeName=", True, id="a missing field is empty"),
        pytest.param("spec.hostNetwork=false", True, id="a missing boolean is false"),
        pytest.param("status.phase!=Failed,metadata.name=a", True, id="both"),
    ],
)
def test_field_selector(selector: str, *, selected: bool) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    predicates = parse_fields(selector, PODS, lambda name: field_path(PODS, name))
    assert all(holds(pod) for holds in predicates) is selected


def test_a_field_that_the_kind_does_not_select_by_is_refused() -> None:
    with pytest.raises(StatusError, match=r"field label not supported: spec\.foo"):
        parse_fields("spec.foo=1", PODS, lambda name: field_path(PODS, name))
