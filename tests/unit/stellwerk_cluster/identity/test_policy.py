from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.policy import (
    EVERYTHING,
    PolicyRule,
    missing_rights,
    quoted,
    rule_of,
)

WORDS = st.lists(st.sampled_from(["*", "a", "b", "c"]), min_size=1, max_size=2, unique=True)
RESOURCES = st.lists(
    st.sampled_from(["*", "pods", "pods/log", "*/log", "nodes"]),
    min_size=1,
    max_size=2,
    unique=True,
)
NAMES = st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True)
RULES = st.builds(
    lambda verbs, groups, resources, names: PolicyRule(
        tuple(verbs), tuple(groups), tuple(resources), tuple(names)
    ),
    WORDS,
    WORDS,
    RESOURCES,
    NAMES,
)
ACTS = st.builds(
    Attributes,
    verb=st.sampled_from(["a", "b", "c"]),
    group=st.sampled_from(["a", "b", "c"]),
    resource=st.sampled_from(["pods", "nodes", "secrets"]),
    subresource=st.sampled_from(["", "log"]),
    name=st.sampled_from(["", "x", "z"]),
)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3), ACTS)
def test_rights_that_are_not_missing_are_held(
    held: list[PolicyRule], asked: list[PolicyRule], act: Attributes
) -> None:
    if not missing_rights(held, asked) and any(rule.allows(act) for rule in asked):
        assert any(rule.allows(act) for rule in held)


@given(st.lists(RULES, max_size=3))
def test_what_is_held_is_never_missing(rules: list[PolicyRule]) -> None:
    assert missing_rights(EVERYTHING, rules) == []
    assert missing_rights(rules, rules) == []


@given(RULES)
def test_a_rule_survives_its_document(rule: PolicyRule) -> None:
    assert rule_of(rule.document()) == rule


def test_a_url_ends_in_a_star() -> None:
    rule = PolicyRule(("get",), urls=("/healthz/*", "/version"))
    assert rule.allows(Attributes("get", path="/healthz/etcd"))
    assert rule.allows(Attributes("get", path="/version"))
    assert not rule.allows(Attributes("get", path="/version/x"))
    assert not rule.allows(Attributes("list", "", "v1", "pods"))


def test_a_rule_with_names_lets_no_list_pass() -> None:
    rule = PolicyRule(("list", "get"), ("",), ("pods",), ("x",))
    assert rule.allows(Attributes("get", resource="pods", name="x"))
    assert not rule.allows(Attributes("list", resource="pods"))


def test_a_rule_for_a_resource_is_none_for_its_subresources() -> None:
    assert not PolicyRule(("get",), ("",), ("pods",)).allows(
        Attributes("get", resource="pods", subresource="log")
    )


def test_missing_rights_are_put_together_by_resource() -> None:
    held = [PolicyRule(("get",), ("",), ("pods",))]
    asked = [PolicyRule(("get", "list", "watch"), ("",), ("pods", "nodes"))]
    assert [rule.text() for rule in missing_rights(held, asked)] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}',
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get" "list" "watch"]}',
    ]


def test_texts_are_quoted_as_in_go() -> None:
    assert quoted(["a", 'b"']) == '["a" "b\\""]'
