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
