"""The end of a namespace, and what its conditions say while something is left."""

from tests.support.cluster_driver import Driver


def test_a_namespace_says_what_keeps_it() -> None:
    driver = Driver()
    driver.create("namespaces", {"metadata": {"name": "team"}})
    held = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    driver.create("configmaps", held, namespace="team")
    driver.delete("namespaces", "team")
    driver.run(2)
    namespace = driver.get("namespaces", "team", "")
    assert namespace["status"]["phase"] == "Terminating"
    conditions = {each["type"]: each for each in namespace["status"]["conditions"]}
    assert conditions["NamespaceDeletionContentFailure"]["status"] == "False"
    left = conditions["NamespaceContentRemaining"]
    assert left["message"] == ("Some resources are remaining: configmaps. has 1 resource instances")
    held_by = conditions["NamespaceFinalizersRemaining"]
    assert held_by["message"] == (
        "Some content in the namespace has finalizers remaining: "
        "example.com/hold in 1 resource instances"
    )
    kind = driver.api.kinds.resource("configmaps")
    driver.api.patch(kind, ("team", "c"), {"metadata": {"finalizers": None}})
    driver.run(2)
    assert driver.get("namespaces", "team", "") is None


def test_pods_go_first_and_all_else_stays_until_they_are_gone() -> None:
    driver = Driver()
    driver.create("namespaces", {"metadata": {"name": "team"}})
    held = {"name": "p", "finalizers": ["example.com/hold"]}
    containers = [{"name": "c", "image": "i:1"}]
    pod = {"metadata": held, "spec": {"nodeName": "node-1", "containers": containers}}
    driver.create("pods", pod, namespace="team")
    driver.create("configmaps", {"metadata": {"name": "c"}}, namespace="team")
    driver.create("secrets", {"metadata": {"name": "s"}}, namespace="team")
    driver.run(2)
    driver.delete("namespaces", "team")
    driver.run(5)
    assert driver.get("pods", "p", "team")["metadata"]["deletionTimestamp"]
    for kind, name in (("configmaps", "c"), ("secrets", "s")):
        assert "deletionTimestamp" not in driver.get(kind, name, "team")["metadata"]
    conditions = driver.get("namespaces", "team", "")["status"]["conditions"]
    [left] = [each for each in conditions if each["type"] == "NamespaceContentRemaining"]
    assert left["message"] == "Some resources are remaining: pods. has 1 resource instances"
    pods = driver.api.kinds.resource("pods")
    driver.api.patch(pods, ("team", "p"), {"metadata": {"finalizers": None}})
    driver.run(2)
    assert driver.get("namespaces", "team", "") is None


def test_conditions_of_others_stay_where_they_are() -> None:
    driver = Driver()
    other = {"type": "example.com/Seen", "status": "True", "reason": "R", "message": "m"}
    driver.create("namespaces", {"metadata": {"name": "team"}})
    driver.patch("namespaces", "team", {"status": {"conditions": [other]}}, "", "status")
    held = {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    driver.create("configmaps", held, namespace="team")
    driver.delete("namespaces", "team")
    driver.run(2)
    assert driver.get("namespaces", "team", "")["status"]["conditions"][0] == other
