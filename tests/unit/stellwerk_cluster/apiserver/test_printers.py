from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stellwerk_cluster.apiserver.printers import (
    PLACED,
    WAITING,
    age_text,
    group_policy,
    group_status,
)
from stellwerk_cluster.apiserver.tables import columns_of
from stellwerk_kube.names import duration_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group(*conditions: tuple[str, str, str], policy: str = "gang") -> dict[str, Any]:
    listed = [dict(zip(("type", "status", "reason"), each, strict=True)) for each in conditions]
    return {"spec": {"schedulingPolicy": {policy: {}}}, "status": {"conditions": listed}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(group(), "Pending", id="nothing was said yet"),
        pytest.param(group(("PodGroupScheduled", "True", "Scheduled")), "Scheduled", id="placed"),
        pytest.param(
            group(("PodGroupScheduled", "False", "Unschedulable")), "Unschedulable", id="not placed"
        ),
        pytest.param(
            group(
                ("PodGroupScheduled", "True", "Scheduled"),
                ("DisruptionTarget", "True", "PreemptionByScheduler"),
            ),
            "PreemptionByScheduler",
            id="about to be disrupted",
        ),
        pytest.param(
            group(("PodGroupScheduled", "True", "Scheduled"), (WAITING, "True", "WaitingForPods")),
            "WaitingForPods",
            id="placed before, waiting again",
        ),
        pytest.param(
            group(("PodGroupScheduled", "True", "Scheduled"), (WAITING, "False", "Scheduled")),
            "Scheduled",
            id="placed again",
        ),
    ],
)
def test_the_status_is_one_word(obj: dict[str, Any], expected: str) -> None:
    assert group_status(obj, NOW) == expected


def test_the_status_says_how_many_pods_are_placed_where_a_condition_does() -> None:
    obj = group(("PodGroupScheduled", "False", "Unschedulable"), (PLACED, "False", "Waiting"))
    obj["status"]["conditions"][1]["message"] = "2/4 pods are placed, 3 exist"
    assert group_status(obj, NOW) == "Unschedulable (2/4)"


def test_the_policy_is_one_word() -> None:
    assert [group_policy(group(policy=each), NOW) for each in ("gang", "basic")] == [
        "Gang",
        "Basic",
    ]


A_MINUTE_LATER = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


def cells(kind: str, **fields: Any) -> list[Any]:
    obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}, **fields}
    return [column.cell(obj, A_MINUTE_LATER) for column in columns_of(kind)]


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        pytest.param(
            "Ingress",
            {
                "spec": {
                    "ingressClassName": "nginx",
                    "rules": [{"host": f"{letter}.example"} for letter in "abcd"],
                    "tls": [{}],
                },
                "status": {"loadBalancer": {"ingress": [{"ip": "10.1.1.1"}, {"hostname": "h"}]}},
            },
            [
                "nginx",
                "a.example,b.example,c.example + 1 more...",
                "10.1.1.1,h",
                "80, 443",
                "60s",
            ],
            id="an ingress shows three hosts and how many more there are",
        ),
        pytest.param(
            "Ingress",
            {"spec": {}},
            ["<none>", "*", "", "80", "60s"],
            id="an ingress without rules is for all hosts",
        ),
        pytest.param(
            "CronJob",
            {
                "spec": {
                    "schedule": "* * * * *",
                    "suspend": True,
                    "jobTemplate": {
                        "spec": {
                            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}
                        }
                    },
                },
                "status": {"active": [{}], "lastScheduleTime": CREATED},
            },
            ["* * * * *", "<none>", "True", 1, "60s", "60s", "c", "i", "<none>"],
            id="a cron job shows the containers of its jobs",
        ),
        pytest.param(
            "HorizontalPodAutoscaler",
            {
                "spec": {
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {
                                "name": "cpu",
                                "target": {"type": "Utilization", "averageUtilization": 50},
                            },
                        },
                        {"type": "Pods", "pods": {"target": {"averageValue": "7"}}},
                    ],
                }
            },
            ["Deployment/web", "cpu: <unknown>/50%, <unknown>/7", 1, 3, 0, "60s"],
            id="an autoscaler measures nothing",
        ),
        pytest.param(
            "ResourceQuota",
            {
                "status": {
                    "hard": {"requests.cpu": "2", "limits.cpu": "4", "pods": "3"},
                    "used": {"pods": "1"},
                }
            },
            ["pods: 1/3, requests.cpu: 0/2", "limits.cpu: 0/4", "60s"],
            id="a quota shows limits apart",
        ),
        pytest.param(
            "RoleBinding",
            {
                "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [
                    {"kind": "User", "name": "bob"},
                    {"kind": "Group", "name": "devs"},
                    {"kind": "ServiceAccount", "name": "robot", "namespace": "team"},
                ],
            },
            ["Role/r", "60s", "bob", "devs", "team/robot"],
            id="a role binding names its subjects by kind",
        ),
        pytest.param(
            "Endpoints",
            {
                "subsets": [
                    {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}]}
                ]
            },
            ["10.0.0.1:80,10.0.0.2:80", "60s"],
            id="endpoints show addresses with ports",
        ),
        pytest.param(
            "EndpointSlice",
            {"addressType": "IPv4", "endpoints": None, "ports": None},
            ["IPv4", "<unset>", "<unset>", "60s"],
            id="an empty endpoint slice",
        ),
    ],
)
def test_cells_of_kinds_that_are_only_stored(
    kind: str, fields: dict[str, Any], expected: list[Any]
) -> None:
    assert cells(kind, **fields) == ["x", *expected]


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2, seconds=1), "2m1s"),
        (timedelta(minutes=10, seconds=59), "10m"),
        (timedelta(hours=3, minutes=5), "3h5m"),
        (timedelta(hours=47, minutes=59), "47h"),
        (timedelta(days=2, hours=3), "2d3h"),
        (timedelta(days=8, hours=3), "8d"),
        (timedelta(days=2 * 365 + 4), "2y4d"),
        (timedelta(days=9 * 365), "9y"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_duration_is_exact_while_short_and_coarse_when_long(
    duration: timedelta, text: str
) -> None:
    assert duration_text(duration.total_seconds()) == text


def test_an_age_without_a_beginning_is_unknown() -> None:
    assert age_text(None, datetime(2026, 1, 1, tzinfo=UTC)) == "<unknown>"
