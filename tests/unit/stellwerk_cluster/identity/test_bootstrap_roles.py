from stellwerk_cluster.identity.bootstrap_roles import bootstrap_roles, parse_roles


def test_a_role_has_labels_rules_and_bindings() -> None:
    text = """
# a comment
Role space/reader +aggregate-to-view
  read pods core x,y
  get /healthz
  as others to Group:system:authenticated ServiceAccount:space/robot
ClusterRole sum =aggregate-to-view
"""
    role, total = parse_roles(text)
    assert (role.kind, role.namespace, role.name) == ("Role", "space", "reader")
    assert role.role()["metadata"]["labels"] == {
        "kubernetes.io/bootstrapping": "rbac-defaults",
        "rbac.authorization.k8s.io/aggregate-to-view": "true",
    }
    assert role.rules == [
        {
            "verbs": ["get", "list", "watch"],
            "apiGroups": [""],
            "resources": ["pods"],
            "resourceNames": ["x", "y"],
        },
        {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
    ]
    assert role.role_binding()["metadata"]["name"] == "others"
    assert [each["kind"] for each in role.subjects] == ["Group", "ServiceAccount"]
    (selector,) = total.role()["aggregationRule"]["clusterRoleSelectors"]
    assert selector["matchLabels"] == {"rbac.authorization.k8s.io/aggregate-to-view": "true"}


def test_no_role_stands_twice_in_the_file() -> None:
    names = [(each.namespace, each.name) for each in bootstrap_roles()]
    assert len(names) == len(set(names))


def test_verbs_stand_in_order() -> None:
    for role in bootstrap_roles():
        for rule in role.rules:
            assert rule["verbs"] == sorted(rule["verbs"]), role.name


def test_rules_of_a_feature_gate_are_there_with_the_gate() -> None:
    text = "ClusterRole x\n  read pods core\n  ?Gate read groups example.com\n  to User:u\n"
    (without,), (with_gate,) = parse_roles(text), parse_roles(text, {"Gate"})
    assert [rule["resources"] for rule in without.rules] == [["pods"]]
    assert [rule["resources"] for rule in with_gate.rules] == [["pods"], ["groups"]]
