import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.conversion import stored_field_path
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


_NAME = "name part must consist of alphanumeric characters, '-', '_' or '.'"
_VALUE = "a valid label must be an empty string or consist of alphanumeric characters"


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in ()", "unable to parse requirement: values: Invalid value: []: for 'in', 'notin'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("n>x", "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt'"),
        ("n>9223372036854775808", "unable to parse requirement: values[0]: Invalid value: "),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("-a", f'unable to parse requirement: <nil>: Invalid value: "-a": {_NAME}'),
        ("a=-b", f'unable to parse requirement: values[0][a]: Invalid value: "-b": {_VALUE}'),
    ],
)
def test_a_malformed_label_selector_is_refused_at_a_word(selector: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_labels(selector)
    assert caught.value.code == 400
    assert caught.value.message.startswith(message)


@given(selector=st.text("ab in,()=!<>0-/ ", max_size=14))
def test_every_text_is_a_selector_or_a_bad_request(selector: str) -> None:
    try:
        parse_labels(selector)
    except StatusError as refused:
        code = refused.code
    else:
        return
    assert code == 400


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
    predicates = parse_fields(selector, PODS, lambda name: stored_field_path(PODS, name))
    assert all(holds(pod) for holds in predicates) is selected


def test_a_field_that_the_kind_does_not_select_by_is_refused() -> None:
    with pytest.raises(StatusError, match=r"field label not supported: spec\.foo"):
        parse_fields("spec.foo=1", PODS, lambda name: stored_field_path(PODS, name))


def test_kinds_without_fields_of_their_own_name_those_of_all() -> None:
    kind = KindTable().resource("configmaps")
    known = 'only "metadata.name", "metadata.namespace"'
    with pytest.raises(StatusError, match=f'"data.k" is not a known field selector: {known}'):
        parse_fields("data.k=1", kind, lambda name: stored_field_path(kind, name))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (r"\x", r"invalid escape sequence: \\x"),
        ("a=b", "unescaped character in value: ="),
        ("\\", "invalid escape sequence: "),
    ],
)
def test_a_value_with_an_odd_character_is_refused(value: str, why: str) -> None:
    with pytest.raises(StatusError, match=f"invalid field selector: {why}"):
        parse_fields(f"metadata.name={value}", PODS, lambda name: stored_field_path(PODS, name))
