"""CEL rules of custom kinds: at creation of the definition, and with every write of an object."""

from typing import Any

import pytest

from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import API_VERSION, GROUP, KIND, PLURAL
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.rules import RuleTree
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.write_options import WriteOptions
from stellwerk_kube.clock import VirtualClock
from tests.support.bad_profiles import BAD_PROFILES, BadProfile

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}


def empty_cluster() -> Api:
    options = ClusterOptions(seed=1, heartbeats=False, controllers=False, kubelet=None)
    return EmbeddedCluster(0, clock=VirtualClock(), options=options).api


@pytest.fixture
def api() -> Api:
    return empty_cluster()


def rule(text: str, **fields: Any) -> Schema:
    return {"rule": text, **fields}


def obj(properties: Schema, *rules: Schema, **fields: Any) -> Schema:
    written = {"x-kubernetes-validations": list(rules)} if rules else {}
    return {"type": "object", "properties": properties, **written, **fields}


def listed(items: Schema, **fields: Any) -> Schema:
    return {"type": "array", "items": items, **fields}


def keyed(items: Schema) -> Schema:
    return listed(
        {**items, "required": ["k"]},
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    )


def ruled(schema: Schema, *rules: Schema) -> Schema:
    return {**schema, "x-kubernetes-validations": list(rules)}


def define(api: Api, spec: Schema, *root_rules: Schema) -> None:
    kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    schema = obj({"spec": spec, "status": obj({"n": NUMBER})}, *root_rules)
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    api.create(
        kind,
        "",
        {
            "metadata": {"name": "things.lab.example"},
            "spec": {
                "group": "lab.example",
                "scope": "Cluster",
                "names": names,
                "versions": [version],
            },
        },
    )


def refused(call: Any, *arguments: Any, **options: Any) -> list[str]:
    """What a refusal names; nothing if the call is not refused."""
    try:
        call(*arguments, **options)
    except StatusError as error:
        return [
            f"{cause['field']}: {cause['message']}" for cause in (error.details or {})["causes"]
        ]
    return []


def create(api: Api, spec: Any, name: str = "one", **fields: Any) -> list[str]:
    body = {"metadata": {"name": name}, "spec": spec, **fields}
    return refused(api.create, api.kinds.resource("things", "lab.example"), "", body)


def patch(api: Api, change: Any, name: str = "one", subresource: str = "") -> list[str]:
    kind = api.kinds.resource("things", "lab.example")
    return refused(api.patch, kind, ("", name), change, subresource=subresource)


def update(api: Api, spec: Any, name: str = "one") -> list[str]:
    kind = api.kinds.resource("things", "lab.example")
    version = api.get(kind, "", name).obj["metadata"]["resourceVersion"]
    body = {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}
    return refused(api.update, kind, ("", name), body)


def test_a_rule_that_is_broken_names_its_level_and_message(api: Api) -> None:
    define(api, obj({"a": NUMBER, "b": NUMBER}, rule("self.a <= self.b", message="a is too large")))
    assert create(api, {"a": 1, "b": 2}) == []
    assert create(api, {"a": 3, "b": 2}, "two") == ["spec: Invalid value: a is too large"]


def test_without_a_message_the_rule_itself_is_shown(api: Api) -> None:
    define(api, obj({"a": ruled(NUMBER, rule("self != 3"))}))
    assert create(api, {"a": 3}) == ["spec.a: Invalid value: 3: failed rule: self != 3"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param(
            {"messageExpression": "'got ' + string(self.a)"},
            "spec: Invalid value: got 3",
            id="a message that is computed",
        ),
        pytest.param(
            {"message": "wrong", "messageExpression": "'got ' + self.b"},
            "spec: Invalid value: wrong",
            id="a computed message that fails gives way to the written one",
        ),
        pytest.param(
            {"message": "wrong", "messageExpression": "'  '"},
            "spec: Invalid value: wrong",
            id="so does an empty one",
        ),
        pytest.param(
            {"message": "wrong", "messageExpression": "'a\\nb'"},
            "spec: Invalid value: wrong",
            id="and one of two lines",
        ),
        pytest.param(
            {"message": "no", "reason": "FieldValueForbidden"},
            "spec: Forbidden: no",
            id="forbidden",
        ),
        pytest.param(
            {"message": "no", "reason": "FieldValueRequired"},
            "spec: Required value: no",
            id="required",
        ),
        pytest.param(
            {"message": "no", "reason": "FieldValueDuplicate"},
            "spec: Duplicate value",
            id="duplicate",
        ),
        pytest.param(
            {"message": "no", "reason": "FieldValueInvalid", "fieldPath": ".a"},
            "spec.a: Invalid value: no",
            id="another field is blamed",
        ),
        pytest.param(
            {"message": "no", "fieldPath": ".m['x.y']"},
            "spec.m[x.y]: Invalid value: no",
            id="an entry of a map is blamed",
        ),
    ],
)
def test_what_a_rule_reports(api: Api, fields: Schema, expected: str) -> None:
    entries = {"type": "object", "additionalProperties": TEXT}
    define(api, obj({"a": NUMBER, "b": TEXT, "m": entries}, rule("self.a != 3", **fields)))
    assert create(api, {"a": 3}) == [expected]


def test_rules_stand_at_every_level_and_are_reported_from_the_outside_in(api: Api) -> None:
    items = ruled(obj({"n": ruled(NUMBER, rule("self > 0", message="n"))}), rule("has(self.n)"))
    entries = {
        "type": "object",
        "additionalProperties": ruled(TEXT, rule("self != ''", message="e")),
    }
    define(
        api,
        obj({"l": listed(items), "m": entries}, rule("self.l.size() < 3", message="l")),
        rule("self.metadata.name != 'bad' && self.kind == 'Thing'", message="name"),
    )
    assert create(api, {"l": [{"n": 1}], "m": {"k": "v"}}) == []
    assert create(api, {"l": [{"n": 0}, {}, {"n": 2}], "m": {"k.d": ""}}, "bad") == [
        "<nil>: Invalid value: name",
        "spec: Invalid value: l",
        "spec.l[0].n: Invalid value: 0: n",
        "spec.l[1]: Invalid value: failed rule: has(self.n)",
        'spec.m[k.d]: Invalid value: "": e',
    ]


def test_a_rule_that_fails_to_evaluate_says_how(api: Api) -> None:
    define(
        api,
        obj(
            {"a": NUMBER, "p": {"x-kubernetes-int-or-string": True}},
            rule("10 / self.a > 1", message="small"),
            rule("!has(self.p) || self.p < 5", message="port"),
        ),
    )
    assert create(api, {}) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: small'
    ]
    assert create(api, {"a": 0}) == [
        'spec: Invalid value: "object": division by zero evaluating rule: small'
    ]
    assert create(api, {"a": 1, "p": "x"}) == [
        (
            "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a "
            "supported operator, function or macro signature for rule: port"
        )
    ]


def test_rules_are_not_evaluated_when_types_are_wrong(api: Api) -> None:
    define(api, obj({"a": NUMBER}, rule("self.a > 5", message="small")))
    first, second = create(api, {"a": "x"})
    assert first.startswith("spec.a: Invalid value")
    assert second.startswith("<nil>: Invalid value: null: some validation rules were not checked")


def test_rules_see_values_in_the_types_of_the_schema(api: Api) -> None:
    fields = {
        "time": {**TEXT, "format": "date-time"},
        "day": {**TEXT, "format": "date"},
        "span": {**TEXT, "format": "duration"},
        "bytes": {**TEXT, "format": "byte"},
        "float": {"type": "number"},
        "any": {"x-kubernetes-int-or-string": True},
        "set": listed(TEXT, **{"x-kubernetes-list-type": "set"}),
    }
    define(
        api,
        obj(
            fields,
            rule("self.time.getHours() == 3 && self.day < self.time"),
            rule("self.span > duration('59s')"),
            rule("self.bytes == b'hi'"),
            rule("self.float / 2.0 == 1.5 && type(self.float) == double"),
            rule("type(self.any) == string && self.any == '50%'"),
            rule("self.set == ['b', 'a'] && self.set + ['a', 'c'] == ['c', 'a', 'b']"),
        ),
    )
    spec = {
        "time": "2020-01-02T03:04:05Z",
        "day": "2020-01-02",
        "span": "1m",
        "bytes": "aGk=",
        "float": 3,
        "any": "50%",
        "set": ["a", "b"],
    }
    assert create(api, spec) == []


def test_names_that_cel_cannot_write_are_escaped(api: Api) -> None:
    names = ("a-b", "c.d", "e/f", "g__h", "namespace", "in", "plain_name")
    define(
        api,
        obj(
            dict.fromkeys(names, NUMBER),
            rule("self.a__dash__b + self.c__dot__d + self.e__slash__f == 6"),
            rule("self.g__underscores__h == 4 && self.__namespace__ == 5 && self.__in__ == 6"),
            rule("self.plain_name == 7 && has(self.a__dash__b)"),
        ),
    )
    assert create(api, dict(zip(names, range(1, 8), strict=True))) == []


def test_a_transition_rule_compares_with_the_object_it_replaces(api: Api) -> None:
    define(api, obj({"a": ruled(NUMBER, rule("self >= oldSelf", message="a falls")), "b": TEXT}))
    assert create(api, {"a": 5}) == []
    assert patch(api, {"spec": {"a": 6}}) == []
    assert patch(api, {"spec": {"a": 5}}) == ["spec.a: Invalid value: 5: a falls"]
    assert update(api, {"a": 1}) == ["spec.a: Invalid value: 1: a falls"]
    assert patch(api, {"spec": {"a": None}}) == []
    assert patch(api, {"spec": {"a": 1}}) == []


def test_an_optional_old_value_lets_a_transition_rule_run_at_creation(api: Api) -> None:
    once = rule(
        "oldSelf.hasValue() ? self == oldSelf.value() : self == 1",
        optionalOldSelf=True,
        message="begins with 1 and stays",
    )
    define(api, obj({"a": ruled(NUMBER, once)}))
    assert create(api, {"a": 2}) == ["spec.a: Invalid value: 2: begins with 1 and stays"]
    assert create(api, {"a": 1}) == []
    assert patch(api, {"spec": {"a": 2}}) == ["spec.a: Invalid value: 2: begins with 1 and stays"]


def test_elements_of_keyed_lists_are_compared_with_those_of_the_same_key(api: Api) -> None:
    item = ruled(obj({"k": TEXT, "v": NUMBER}), rule("self.v >= oldSelf.v", message="v falls"))
    define(api, obj({"l": keyed(item)}))
    assert create(api, {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}) == []
    assert update(api, {"l": [{"k": "b", "v": 2}, {"k": "c", "v": 0}, {"k": "a", "v": 5}]}) == []
    assert update(api, {"l": [{"k": "b", "v": 1}, {"k": "a", "v": 6}]}) == [
        "spec.l[0]: Invalid value: v falls"
    ]


def test_keyed_lists_are_equal_in_any_order(api: Api) -> None:
    same = rule("self.l == oldSelf.l", message="l is immutable")
    define(api, obj({"l": keyed(obj({"k": TEXT, "v": NUMBER}))}, same))
    assert create(api, {"l": [{"k": "a", "v": 5}, {"k": "b", "v": 1}]}) == []
    assert update(api, {"l": [{"k": "b", "v": 1}, {"k": "a", "v": 5}]}) == []
    assert update(api, {"l": [{"k": "b", "v": 1}]}) == ["spec: Invalid value: l is immutable"]


def test_what_was_wrong_before_may_stay_as_long_as_it_is_not_touched(api: Api) -> None:
    define(api, obj({"a": NUMBER, "b": NUMBER}))
    assert create(api, {"a": 9, "b": 0}) == []
    kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    schema = obj({"a": ruled(NUMBER, rule("self < 5", message="large")), "b": NUMBER})
    versions = api.get(kind, "", "things.lab.example").obj["spec"]["versions"]
    changed = {**versions[0], "schema": {"openAPIV3Schema": obj({"spec": schema})}}
    api.patch(kind, ("", "things.lab.example"), {"spec": {"versions": [changed]}})
    assert patch(api, {"spec": {"b": 1}}) == []
    assert patch(api, {"spec": {"a": 8}}) == ["spec.a: Invalid value: 8: large"]


def test_the_status_is_ruled_through_its_subresource(api: Api) -> None:
    define(
        api,
        obj({"a": NUMBER}),
        rule("!has(self.status) || self.status.n <= self.spec.a", message="n"),
    )
    assert create(api, {"a": 5}) == []
    assert patch(api, {"status": {"n": 5}}, subresource="status") == []
    assert patch(api, {"status": {"n": 6}}, subresource="status") == ["<nil>: Invalid value: n"]
    assert patch(api, {"status": {"n": "x"}}, subresource="status")[0] == (
        'status.n: Invalid value: "string": n in body must be of type integer: "string"'
    )


def test_a_rule_that_costs_too_much_ends_the_validation(api: Api) -> None:
    many = rule("self.l.all(x, self.l.all(y, self.l.all(z, x + y + z >= 0)))", message="sums")
    define(api, obj({"l": listed(NUMBER)}, many, rule("false", message="never reached")))
    assert create(api, {"l": [1] * 500}) == [
        (
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': "
            "no further validation rules will be run due to call cost exceeds limit for rule: sums"
        )
    ]


def test_all_rules_of_an_object_share_one_budget() -> None:
    many = rule("self.l.all(x, x >= 0)", message="sums")
    tree = RuleTree(obj({"o": listed(obj({"l": listed(NUMBER)}, many))}))
    value = {"o": [{"l": [1] * 100}] * 30}
    assert tree.validate(value) == []
    (cause,) = tree.validate(value, budget=5_000)
    assert cause.message == (
        'Invalid value: "object": validation failed due to running out of cost budget, no further '
        "validation rules will be run"
    )


PREFIX = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
ATOMIC = obj({"l": listed(ruled(NUMBER, rule("self == oldSelf")))})


@pytest.mark.parametrize(
    ("written", "field", "message"),
    [
        pytest.param(rule("self.b > 1"), "rule", "undefined field 'b'", id="an unknown field"),
        pytest.param(
            rule("self.a > 'x'"), "rule", "found no matching overload for '_>_'", id="types"
        ),
        pytest.param(
            rule("self.a"), "rule", "cel expression must evaluate to a bool", id="a number"
        ),
        pytest.param(rule("other > 1"), "rule", "undeclared reference to 'other'", id="a variable"),
        pytest.param(
            rule("self.a >"), "rule", "Syntax error: mismatched input", id="no expression"
        ),
        pytest.param(rule("  "), "rule", "Required value: rule is not specified", id="nothing"),
        pytest.param(
            rule("true\n|| false"),
            "message",
            "Required value: message must be specified if rule contains line breaks",
            id="two lines without a message",
        ),
        pytest.param(
            rule("true", message=" "), "message", "must be non-empty", id="a blank message"
        ),
        pytest.param(
            rule("true", message="a\nb"), "message", "must not contain line breaks", id="lines"
        ),
        pytest.param(
            rule("true", message="x" * 2049), "message", "maximum length of 2048", id="long"
        ),
        pytest.param(rule("true", reason="No"), "reason", 'Unsupported value: "No"', id="a reason"),
        pytest.param(
            rule("true", fieldPath=".b"), "fieldPath", "must be a valid path", id="a path"
        ),
        pytest.param(rule("true", fieldPath="a"), "fieldPath", "must be a valid path", id="no dot"),
        pytest.param(
            rule("true", messageExpression="self.a"),
            "messageExpression",
            "messageExpression must evaluate to a string",
            id="a message that is no text",
        ),
        pytest.param(
            rule("true", messageExpression="self.b"),
            "messageExpression",
            "messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'b'",
            id="a message about an unknown field",
        ),
        pytest.param(
            rule("self.a > 1", optionalOldSelf=True),
            "optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
            id="an optional old value that is not used",
        ),
    ],
)
def test_a_definition_with_a_wrong_rule_is_refused(
    api: Api, written: Schema, field: str, message: str
) -> None:
    (found,) = refused(define, api, obj({"a": NUMBER}, written))
    where, _, text = found.partition(": ")
    assert where == f"{PREFIX}.{field}"
    assert message in text


def test_the_old_value_of_an_element_without_key_cannot_be_told(api: Api) -> None:
    (found,) = refused(define, api, ATOMIC)
    schema = "spec.validation.openAPIV3Schema.properties[spec].properties[l]"
    assert found == (
        f"{schema}.items.x-kubernetes-validations[0].rule: "
        'Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of '
        f"the schema within {schema}"
    )


def test_the_text_of_a_rule_that_does_not_compile_is_the_api_servers(api: Api) -> None:
    (found,) = refused(define, api, obj({"a": NUMBER}, rule("self.a < 1 && self.b")))
    assert found == (
        f'{PREFIX}.rule: Invalid value: {{"Rule":"self.a \\u003c 1 \\u0026\\u0026 self.b",'
        '"Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: '
        "compilation failed: ERROR: <input>:1:19: undefined field 'b'\n"
        " | self.a < 1 && self.b\n"
        " | ..................^"
    )


# The definition of SchedulerProfile.


@pytest.fixture(scope="module")
def profiles() -> Api:
    """A cluster that has the definition, on which tests only try."""
    api = empty_cluster()
    kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    api.create(kind, "", crd_manifest())
    return api


def create_profile(api: Api, name: str, spec: Schema, **options: Any) -> list[str]:
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    kind = api.kinds.resource(PLURAL, GROUP)
    return refused(api.create, kind, "", body, WriteOptions(**options))


def test_the_scheduler_name_of_a_profile_is_immutable(profiles: Api) -> None:
    assert create_profile(profiles, "mine", {"schedulerName": "mine"}) == []
    kind, key = profiles.kinds.resource(PLURAL, GROUP), ("", "mine")
    assert refused(profiles.patch, kind, key, {"spec": {"schedulerName": "other"}}) == [
        (
            'spec.schedulerName: Invalid value: "other": schedulerName is immutable; '
            "create a new profile"
        )
    ]
    assert refused(profiles.patch, kind, key, {"spec": {"podInitialBackoffSeconds": 2}}) == []
    assert refused(profiles.patch, kind, key, {"spec": {"podMaxBackoffSeconds": 1}}) == [
        "spec.podMaxBackoffSeconds: Invalid value: must be at least podInitialBackoffSeconds"
    ]


@pytest.mark.parametrize("bad", [pytest.param(bad, id=bad.rule) for bad in BAD_PROFILES])
def test_exactly_the_profiles_that_the_schema_can_refuse_are_refused(
    profiles: Api, bad: BadProfile
) -> None:
    found = create_profile(profiles, "bad", bad.spec, dry_run=True)
    assert any(bad.field in cause for cause in found) == bad.seen_by_schema


def disabled(*names: str) -> Schema:
    return {"disabled": [{"name": name} for name in names]}


def enabled(*names: str) -> Schema:
    return {"enabled": [{"name": name} for name in names]}


@pytest.mark.parametrize(
    "plugins",
    [
        pytest.param(
            {"queueSort": {**disabled("PrioritySort"), **enabled("Fifo")}}, id="another queue sort"
        ),
        pytest.param({"queueSort": {**disabled("*"), **enabled("Fifo")}}, id="all others out"),
        pytest.param({"queueSort": enabled("PrioritySort")}, id="the default one by name"),
        pytest.param(
            {"multiPoint": {**disabled("*"), **enabled("PrioritySort", "DefaultBinder")}},
            id="only what is named",
        ),
        pytest.param(
            {"multiPoint": {**disabled("PrioritySort", "DefaultBinder"), **enabled("Mine")}},
            id="a plugin that may order and bind",
        ),
        pytest.param(
            {"bind": {**disabled("DefaultBinder"), **enabled("Mine")}}, id="another binder"
        ),
        pytest.param({"score": disabled("EBSLimits")}, id="a removed plugin may be disabled"),
    ],
)
def test_no_rule_refuses_what_could_be_loaded(profiles: Api, plugins: Schema) -> None:
    spec = {"schedulerName": "good", "plugins": plugins}
    assert create_profile(profiles, "good", spec, dry_run=True) == []


def test_arguments_of_other_plugins_are_their_own(profiles: Api) -> None:
    args = {"scoringStrategy": {"type": "Mine"}, "hardPodAffinityWeight": 1000}
    spec = {"schedulerName": "good", "pluginConfig": [{"name": "Mine", "args": args}]}
    assert create_profile(profiles, "good", spec, dry_run=True) == []


def test_the_largest_profile_stays_within_the_cost_of_its_rules(profiles: Api) -> None:
    names = [f"{'p' * 120}{number}" for number in range(64)]
    points = [*(point.value for point in ExtensionPoint), "multiPoint"]
    lists = {point: {**enabled(*names), **disabled(*names)} for point in points}
    lists["queueSort"]["enabled"] = [{"name": "PrioritySort"}]
    shape = [{"utilization": percent, "score": 1} for percent in range(101)]
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": f"{'r' * 300}{number}", "weight": 1} for number in range(64)],
        "requestedToCapacityRatio": {"shape": shape},
    }
    configs = [{"name": name, "args": {"scoringStrategy": strategy}} for name in names[1:]]
    configs.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    spec = {"schedulerName": "large", "plugins": lists, "pluginConfig": configs}
    assert create_profile(profiles, "large", spec, dry_run=True) == []
