"""Jobs: counting, indexes, backoff, failure policies, deadlines, suspension, and their end."""

from typing import Any

import pytest

from stellwerk_cluster.controllers.job_outcome import TRACKING, indexes_text, parse_indexes
from tests.support.cluster_driver import Driver

STILL = {"kubelet": None}


def start(driver: Driver, **spec: Any) -> None:
    containers = [{"name": "c", "image": "i:1"}]
    pod = {"nodeName": "node-1", "restartPolicy": "Never", "containers": containers}
    body = {"metadata": {"name": "j"}, "spec": {"template": {"spec": pod}, **spec}}
    driver.create("jobs", body, "batch")


def status(driver: Driver) -> dict[str, Any]:
    found: dict[str, Any] = driver.get("jobs.batch", "j")["status"]
    return found


def ends(driver: Driver) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in status(driver).get("conditions") or ()}


def running(driver: Driver) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in driver.pods()
        if pod["status"]["phase"] in ("Pending", "Running")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def test_the_pods_of_a_job_end_by_themselves_after_ten_seconds() -> None:
    driver = Driver()
    start(driver)
    driver.run(9)
    assert driver.phases() == ["Running"]
    driver.run(3)
    assert ends(driver)["Complete"] == "CompletionsReached"
    assert status(driver)["completionTime"]
    assert ("Normal", "Completed", "Job completed") in driver.events("j")
    assert driver.cluster.work.busy == []


def test_as_many_pods_run_at_once_as_the_parallelism_says() -> None:
    driver = Driver(**STILL)
    start(driver, completions=5, parallelism=2)
    for succeeded in range(1, 6):
        assert len(running(driver)) == min(2, 6 - succeeded)
        driver.report(running(driver)[0], "Succeeded")
        assert status(driver)["succeeded"] == succeeded
    assert ends(driver)["Complete"] == "CompletionsReached"
    assert running(driver) == []


def test_a_pod_that_succeeded_and_was_deleted_stays_counted() -> None:
    driver = Driver(**STILL)
    start(driver, completions=2, parallelism=1)
    first = running(driver)[0]
    driver.report(first, "Succeeded")
    driver.delete("pods", first)
    assert first not in driver.names()
    driver.report(running(driver)[0], "Succeeded")
    assert ends(driver)["Complete"] == "CompletionsReached"


def test_failed_pods_are_replaced_ever_later_until_the_backoff_limit() -> None:
    driver = Driver(**STILL)
    start(driver, backoffLimit=2)
    for wait in (10, 20):
        driver.report(running(driver)[0], "Failed")
        driver.advance(wait - 1)
        assert running(driver) == []
        driver.advance(1.5)
        assert len(running(driver)) == 1
    driver.report(running(driver)[0], "Failed")
    assert ends(driver) == {
        "FailureTarget": "BackoffLimitExceeded",
        "Failed": "BackoffLimitExceeded",
    }
    message = "Job has reached the specified backoff limit"
    assert ("Warning", "BackoffLimitExceeded", message) in driver.events("j")
    assert status(driver)["failed"] == 3


def test_an_indexed_job_runs_each_index_once() -> None:
    driver = Driver(**STILL)
    start(driver, completions=4, parallelism=4, completionMode="Indexed")
    pods = sorted(driver.pods(), key=lambda pod: str(pod["metadata"]["name"]))
    assert [pod["metadata"]["name"][:4] for pod in pods] == ["j-0-", "j-1-", "j-2-", "j-3-"]
    assert [pod["spec"]["hostname"] for pod in pods] == ["j-0", "j-1", "j-2", "j-3"]
    assert pods[0]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    for position in (0, 1, 3):
        driver.report(pods[position]["metadata"]["name"], "Succeeded")
    assert status(driver)["completedIndexes"] == "0,1,3"
    driver.report(pods[2]["metadata"]["name"], "Succeeded")
    assert status(driver)["completedIndexes"] == "0-3"
    assert ends(driver)["Complete"] == "CompletionsReached"


def test_an_index_that_failed_too_often_fails_the_job_when_the_others_are_done() -> None:
    driver = Driver(**STILL)
    start(
        driver,
        completions=2,
        parallelism=2,
        completionMode="Indexed",
        backoffLimitPerIndex=1,
        backoffLimit=100,
    )
    for _ in range(2):
        (failing,) = [name for name in running(driver) if name.startswith("j-0-")]
        driver.report(failing, "Failed")
    assert status(driver)["failedIndexes"] == "0"
    assert ends(driver) == {}
    driver.report(running(driver)[0], "Succeeded")
    assert ends(driver)["Failed"] == "FailedIndexes"


@pytest.mark.parametrize(
    ("code", "reason", "failed"),
    [
        pytest.param(42, "PodFailurePolicy", 1, id="a code of FailJob fails the job at once"),
        pytest.param(137, None, 0, id="a code of Ignore does not count"),
        pytest.param(3, None, 1, id="another code counts"),
    ],
)
def test_a_failure_policy(code: int, reason: str | None, failed: int) -> None:
    driver = Driver(**STILL)
    rules = [
        {"action": action, "onExitCodes": {"operator": "In", "values": [value]}}
        for action, value in (("FailJob", 42), ("Ignore", 137))
    ]
    start(driver, podFailurePolicy={"rules": rules}, backoffLimit=6)
    (name,) = running(driver)
    driver.report(name, "Failed", code)
    assert ends(driver).get("Failed") == reason
    assert status(driver).get("failed", 0) == failed
    if reason:
        (condition,) = [each for each in status(driver)["conditions"] if each["type"] == "Failed"]
        text = f"Container c for pod default/{name} failed with exit code 42"
        assert condition["message"] == f"{text} matching FailJob rule at index 0"


def test_a_disrupted_pod_that_the_policy_ignores_does_not_count() -> None:
    driver = Driver()
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    start(driver, podFailurePolicy={"rules": [rule]}, backoffLimit=0)
    driver.run(2)
    driver.delete("nodes", "node-1")
    driver.advance(41)
    assert status(driver).get("failed", 0) == 0
    assert ends(driver) == {}


def test_a_job_that_is_active_too_long_fails() -> None:
    driver = Driver(**STILL)
    start(driver, activeDeadlineSeconds=30)
    driver.advance(29)
    assert ends(driver) == {}
    driver.advance(2)
    assert ends(driver)["FailureTarget"] == "DeadlineExceeded"


def test_a_suspended_job_runs_nothing_and_goes_on_when_resumed() -> None:
    driver = Driver()
    start(driver, suspend=True)
    assert driver.pods() == []
    assert "startTime" not in status(driver)
    driver.patch("jobs", "j", {"spec": {"suspend": False}}, "batch")
    assert len(driver.pods()) == 1
    driver.run(2)
    driver.patch("jobs", "j", {"spec": {"suspend": True}}, "batch")
    driver.run(2)
    assert driver.pods() == []
    assert status(driver).get("failed", 0) == 0
    assert [each[1] for each in driver.events("j") if "ed" in each[1] and "Job" in each[2]] == [
        "Suspended",
        "Resumed",
    ]


def test_a_finished_job_goes_when_its_time_is_over() -> None:
    driver = Driver()
    start(driver, ttlSecondsAfterFinished=100)
    driver.run(15)
    assert driver.get("jobs.batch", "j") is not None
    driver.run(101)
    assert driver.get("jobs.batch", "j") is None
    assert driver.pods() == []


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_no_pod_keeps_the_finalizer_of_a_deleted_job(propagation: str) -> None:
    driver = Driver()
    start(driver, parallelism=2, completions=2)
    driver.run(2)
    driver.delete("jobs", "j", "batch", propagation=propagation)
    driver.run(3)
    assert driver.get("jobs.batch", "j") is None
    assert len(driver.pods()) == (2 if propagation == "Orphan" else 0)
    assert all(TRACKING not in pod["metadata"].get("finalizers", ()) for pod in driver.pods())


@pytest.mark.parametrize(
    ("text", "indexes"), [("", []), ("0", [0]), ("0,1", [0, 1]), ("0,2-4,7", [0, 2, 3, 4, 7])]
)
def test_indexes_as_text(text: str, indexes: list[int]) -> None:
    assert indexes_text(indexes) == text
    assert parse_indexes(text) == set(indexes)


@pytest.mark.parametrize(
    ("rules", "succeed", "matched"),
    [
        pytest.param([{"succeededIndexes": "1,3"}], [1, 3], 0, id="all of the named indexes"),
        pytest.param([{"succeededIndexes": "0-2", "succeededCount": 1}], [2], 0, id="one of them"),
        pytest.param([{"succeededCount": 2}], [0, 3], 0, id="so many of any"),
        pytest.param(
            [{"succeededIndexes": "0"}, {"succeededCount": 2}], [1, 2], 1, id="the second rule"
        ),
    ],
)
def test_a_success_policy_ends_a_job_before_all_of_its_indexes_are_done(
    rules: list[dict[str, Any]], succeed: list[int], matched: int
) -> None:
    driver = Driver(**STILL)
    policy = {"successPolicy": {"rules": rules}}
    start(driver, completions=4, parallelism=4, completionMode="Indexed", **policy)
    by_index = {name.split("-")[1]: name for name in running(driver)}
    for index in succeed:
        assert "Complete" not in ends(driver)
        driver.report(by_index[str(index)], "Succeeded")
    assert ends(driver)["SuccessCriteriaMet"] == "SuccessPolicy"
    (met,) = (each for each in status(driver)["conditions"] if each["type"] == "SuccessCriteriaMet")
    assert met["message"] == f"Matched rules at index {matched}"
    assert running(driver) == []
    assert status(driver)["completedIndexes"] == ",".join(map(str, succeed))


def test_conditions_of_others_stay_where_they_are() -> None:
    driver = Driver(**STILL)
    start(driver, completions=1)
    other = {"type": "example.com/Seen", "status": "True", "reason": "R", "message": "m"}
    driver.patch("jobs", "j", {"status": {"conditions": [other]}}, "batch", "status")
    driver.patch("jobs", "j", {"spec": {"suspend": True}}, "batch")
    driver.patch("jobs", "j", {"spec": {"suspend": False}}, "batch")
    driver.report(running(driver)[0], "Succeeded")
    conditions = status(driver)["conditions"]
    assert [each["type"] for each in conditions] == [
        *(other["type"], "Suspended", "SuccessCriteriaMet", "Complete")
    ]
    assert other.items() <= conditions[0].items()


def test_a_status_that_somebody_else_writes_is_put_right() -> None:
    driver = Driver(**STILL)
    start(driver, completions=2, parallelism=1)
    driver.report(running(driver)[0], "Succeeded")
    driver.patch("jobs", "j", {"status": {"ready": 5, "active": 9}}, "batch", "status")
    assert (status(driver)["ready"], status(driver)["active"]) == (0, 1)
