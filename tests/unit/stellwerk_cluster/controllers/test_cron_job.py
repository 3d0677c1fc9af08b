"""CronJobs: when Jobs are made, which are kept, and what happens when one still runs."""

from typing import Any

import pytest

from tests.support.cluster_driver import Driver


def start(driver: Driver, run_seconds: str = "5", exit_code: str = "0", **spec: Any) -> None:
    containers = [{"name": "c", "image": "i:1"}]
    pod = {"nodeName": "node-1", "restartPolicy": "Never", "containers": containers}
    annotations = {"stellwerk.dev/run-seconds": run_seconds, "stellwerk.dev/exit-code": exit_code}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    job = {"spec": {"template": template, "backoffLimit": 0}}
    body = {"metadata": {"name": "often"}, "spec": {"schedule": "* * * * *", **spec}}
    body["spec"]["jobTemplate"] = job
    driver.create("cronjobs", body, "batch")


def jobs(driver: Driver) -> list[str]:
    return driver.names("jobs.batch")


def reasons(driver: Driver) -> list[str]:
    return [each[1] for each in driver.events("often")]


def test_a_job_comes_each_minute_and_old_ones_are_forgotten() -> None:
    driver = Driver()
    start(driver)
    driver.run(59)
    assert jobs(driver) == []
    driver.run(2)
    minutes = int(driver.clock.now().timestamp()) // 60
    assert jobs(driver) == [f"often-{minutes}"]
    assert driver.get("cronjobs.batch", "often")["status"]["active"][0]["name"] == jobs(driver)[0]
    driver.run(609)
    assert len(jobs(driver)) in (3, 4)
    status = driver.get("cronjobs.batch", "often")["status"]
    assert status["lastSuccessfulTime"] > status["lastScheduleTime"]
    assert {"SuccessfulCreate", "SawCompletedJob", "SuccessfulDelete"} <= set(reasons(driver))


def test_one_failed_job_is_kept() -> None:
    driver = Driver()
    start(driver, exit_code="1")
    driver.run(330)
    assert len(jobs(driver)) == 1


@pytest.mark.parametrize(
    ("policy", "running", "reason"),
    [("Allow", 3, None), ("Forbid", 1, "JobAlreadyActive"), ("Replace", 1, "SuccessfulDelete")],
)
def test_a_job_that_still_runs(policy: str, running: int, reason: str | None) -> None:
    driver = Driver()
    start(driver, "10000", concurrencyPolicy=policy)
    driver.run(185)
    assert len(jobs(driver)) == running
    assert reason is None or reason in reasons(driver)


def test_a_suspended_schedule_makes_nothing_until_it_goes_on() -> None:
    driver = Driver()
    start(driver, suspend=True)
    driver.run(120)
    assert jobs(driver) == []
    driver.patch("cronjobs", "often", {"spec": {"suspend": False}}, "batch")
    driver.run(1)
    assert len(jobs(driver)) == 1


def test_a_time_that_was_missed_for_too_long_is_left_out() -> None:
    driver = Driver()
    start(driver, suspend=True, schedule="0 * * * *", startingDeadlineSeconds=30)
    driver.run(3700, 100)
    driver.patch("cronjobs", "often", {"spec": {"suspend": False}}, "batch")
    assert jobs(driver) == []
    driver.advance(3600 - 100 + 10)
    assert len(jobs(driver)) == 1


def test_after_very_many_missed_times_the_last_one_runs_and_the_user_is_warned() -> None:
    driver = Driver()
    start(driver, suspend=True)
    driver.advance(60 * 500 + 10)
    driver.patch("cronjobs", "often", {"spec": {"suspend": False}}, "batch")
    assert jobs(driver) == [f"often-{int(driver.clock.now().timestamp()) // 60}"]
    assert "TooManyMissedTimes" in reasons(driver)
