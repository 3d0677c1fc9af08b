from typing import Any

import pytest

from tests.support.embedded_rules import Rules, pod

IMAGE = {"name": "c", "image": "registry.example/app:2"}


def change(body: dict[str, Any], patch: dict[str, Any], **where: str) -> list[str]:
    rules = Rules()
    rules.create("pods", body)
    return rules.change_refused("pods", "p", {"spec": patch}, **where)


@pytest.mark.parametrize(
    ("body", "patch"),
    [
        pytest.param(pod(), {"activeDeadlineSeconds": 5}, id="a deadline comes"),
        pytest.param(pod(activeDeadlineSeconds=9), {"activeDeadlineSeconds": 5}, id="and nears"),
        pytest.param(
            pod(terminationGracePeriodSeconds=-5),
            {"terminationGracePeriodSeconds": 1},
            id="a negative grace period becomes one second",
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "g"}]), {"schedulingGates": None}, id="a gate opens"
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "g"}]),
            {"nodeSelector": {"a": "b"}},
            id="a gated pod narrows",
        ),
    ],
)
def test_what_may_change(body: dict[str, Any], patch: dict[str, Any]) -> None:
    assert change(body, patch) == []


@pytest.mark.parametrize(
    ("body", "patch", "expected"),
    [
        pytest.param(
            pod(),
            {"containers": [IMAGE, {"name": "d", "image": "x"}]},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="no container more",
        ),
        pytest.param(
            pod(tolerations=[{"key": "a", "operator": "Exists"}]),
            {"tolerations": [{"key": "b", "operator": "Exists"}]},
            [
                (
                    "spec.tolerations: Forbidden: existing toleration can not be "
                    "modified except its tolerationSeconds"
                )
            ],
            id="no toleration less",
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "g"}], nodeSelector={"a": "b"}),
            {"nodeSelector": {"a": "c"}},
            [
                (
                    'spec.nodeSelector: Invalid value: {"a":"c"}: only additions '
                    "to spec.nodeSelector are "
                    "allowed (no mutations or deletions)"
                )
            ],
            id="a gated pod does not widen",
        ),
    ],
)
def test_what_may_not_change(
    body: dict[str, Any], patch: dict[str, Any], expected: list[str]
) -> None:
    assert change(body, patch) == expected


def test_a_forbidden_change_is_shown_as_the_difference_of_the_internal_form() -> None:
    (error,) = change(pod(), {"hostNetwork": True})
    difference = (
        '@@ -44,7 +44,7 @@\n  "AutomountServiceAccountToken": null,\n  "NodeName": "",\n'
        '  "SecurityContext": {\n-  "HostNetwork": false,\n+  "HostNetwork": true,\n'
        '   "HostPID": false,\n   "HostIPC": false,\n   "ShareProcessNamespace": null,\n'
    )
    assert error.endswith(f"(allow it to be set to 1 if it was previously negative)\n{difference}")


def resized(requests: dict[str, str]) -> dict[str, Any]:
    return {"containers": [{**IMAGE, "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({"cpu": "1"}, {"cpu": "2"}, [], id="more cpu"),
        pytest.param(
            {"cpu": "1", "ephemeral-storage": "1Gi"},
            {"cpu": "1", "ephemeral-storage": "2Gi"},
            ["spec: Forbidden: only cpu and memory resources are mutable"],
            id="only cpu and memory",
        ),
        pytest.param(
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "1"},
            [
                (
                    "spec.containers[0].resources.requests: Forbidden: resource "
                    "requests cannot be removed"
                )
            ],
            id="nothing goes",
        ),
        pytest.param(
            {},
            {"cpu": "1"},
            [
                (
                    'spec: Invalid value: "BestEffort": Pod QOS Class may not '
                    "change as a result of resizing"
                )
            ],
            id="the class stays",
        ),
    ],
)
def test_a_pod_is_resized_within_bounds(
    before: dict[str, str], after: dict[str, str], expected: list[str]
) -> None:
    assert change(pod(**resized(before)), resized(after), subresource="resize") == expected


def test_an_ephemeral_container_comes_and_stays() -> None:
    rules = Rules()
    rules.create("pods", pod())
    added = {"ephemeralContainers": [{"name": "debug", "image": "x", "targetContainerName": "c"}]}
    changed = rules.patch("pods", "p", {"spec": added}, subresource="ephemeralcontainers")
    assert changed["spec"]["ephemeralContainers"][0]["name"] == "debug"
    gone = {"spec": {"ephemeralContainers": None}}
    refusal = rules.change_refused("pods", "p", gone, subresource="ephemeralcontainers")
    assert refusal == [
        (
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers "
            '"debug" may not be removed\n'
        )
    ]
