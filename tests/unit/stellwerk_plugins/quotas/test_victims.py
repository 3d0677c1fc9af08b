"""The search for victims: what recordings do not show."""

from typing import Any

import pytest

from stellwerk_plugins.quotas import victims
from stellwerk_simulation.cases.plugin_cases import decide_plugin_case


def case(nodes: int) -> dict[str, Any]:
    def pod(name: str, namespace: str, cpu: str, node: str = "") -> dict[str, Any]:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"containers": [container], "priority": 0 if node else 10}
        if node:
            spec["nodeName"] = node
        status = {"startTime": "2026-01-01T00:00:00Z"}
        return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}

    offer = {"cpu": "1", "memory": "1Gi", "pods": "9"}
    return {
        "id": "many",
        "suite": "quota-preemption",
        "plugin": "CapacityScheduling",
        "nodes": [
            {"metadata": {"name": f"n{number}"}, "status": {"allocatable": offer}}
            for number in range(nodes)
        ],
        "pods": [pod(f"p{number}", "free", "1", f"n{number}") for number in range(nodes)],
        "pod": pod("incoming", "free", "1"),
    }


def test_the_search_ends_once_time_is_over_and_there_is_a_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(decide_plugin_case(case(300))["preemption"]["candidates"]) == 300
    monkeypatch.setattr(victims, "_LONGEST_SECONDS", -1.0)
    assert len(decide_plugin_case(case(300))["preemption"]["candidates"]) == 256
