"""Which pods are nominated to which node, through updates that cross in flight."""

import pytest

from stellwerk.backend.nominator import Nominator
from tests.support.builders import pod_info
from tests.support.queue_driver import QueueDriver


def names(nominator: Nominator, node_name: str) -> list[str]:
    return [pod.name for pod in nominator.pods_for_node(node_name)]


def test_a_status_nominates() -> None:
    nominator = Nominator()
    nominator.add(pod_info("a", nominated_node_name="n1"))
    nominator.add(pod_info("b"))
    assert names(nominator, "n1") == ["a"]
    assert list(nominator.by_node) == ["n1"]


def test_a_second_nomination_takes_the_place_of_the_first() -> None:
    nominator = Nominator()
    pod = pod_info("a", nominated_node_name="n1")
    nominator.add(pod)
    nominator.nominate(pod, "n2")
    assert list(nominator.by_node) == ["n2"]
    nominator.nominate(pod, "")
    assert list(nominator.by_node) == []


@pytest.mark.parametrize(
    ("in_memory", "before", "after", "expected"),
    [
        pytest.param("n1", None, None, "n1", id="an update under way does not undo a promise"),
        pytest.param("n1", None, "n1", "n1", id="the API confirms it"),
        pytest.param("n1", None, "n2", "n2", id="the API says another node"),
        pytest.param("n1", "n1", None, "", id="the API takes it away"),
        pytest.param("", None, "n2", "n2", id="another component nominates"),
        pytest.param("", "n1", "n1", "n1", id="cleared in memory, but the API still says so"),
    ],
)
def test_an_update_follows_the_api_unless_it_is_silent(
    in_memory: str, before: str | None, after: str | None, expected: str
) -> None:
    nominator = Nominator()
    old = pod_info("a", nominated_node_name=before)
    new = pod_info("a", nominated_node_name=after)
    nominator.nominate(old, in_memory)
    nominator.update(old, new)
    assert nominator.node_of(new.uid) == expected
    assert list(nominator.pods_for_node(expected)) == ([new] if expected else [])


def test_the_newest_version_of_a_pod_is_handed_out() -> None:
    nominator = Nominator()
    old, new = pod_info("a"), pod_info("a", labels={"tier": "web"})
    nominator.nominate(old, "n1")
    nominator.update(old, new)
    assert nominator.pods_for_node("n1") == (new,)


def test_removing_is_idempotent() -> None:
    nominator = Nominator()
    nominator.nominate(pod_info("a"), "n1")
    nominator.remove("uid-default-a")
    nominator.remove("uid-default-a")
    assert not nominator.pods_for_node("n1")


# --- with the queue -----------------------------------------------------------------------------


def test_the_queue_follows_pods_from_add_to_delete() -> None:
    driver = QueueDriver()
    nominator = driver.queue.nominator
    driver.add(pod_info("a", nominated_node_name="n1"))
    assert names(nominator, "n1") == ["a"]
    driver.queue.update(pod_info("a", nominated_node_name="n2"), driver.now)
    assert names(nominator, "n2") == ["a"]
    driver.queue.delete("uid-default-a")
    assert list(nominator.by_node) == []


def test_a_pod_that_is_gone_is_not_nominated() -> None:
    driver = QueueDriver()
    driver.queue.nominate(pod_info("a"), "n1")
    assert not driver.queue.nominator.pods_for_node("n1")


def test_a_failed_pod_keeps_a_nomination_that_is_only_in_memory() -> None:
    driver = QueueDriver()
    driver.add(pod_info("a"))
    entry = driver.pop_named("a")
    driver.queue.nominate(entry.pod, "n1")
    driver.fail(entry, "Fit")
    assert names(driver.queue.nominator, "n1") == ["a"]


def test_a_binding_that_fails_falls_back_on_the_status() -> None:
    driver = QueueDriver()
    driver.add(pod_info("a", nominated_node_name="n1"))
    entry = driver.pop_named("a")
    driver.queue.nominator.remove(entry.pod.uid)  # assumed: it counts on its node by itself
    driver.queue.done(entry.pod.uid)
    driver.fail(entry)
    assert names(driver.queue.nominator, "n1") == ["a"]


def test_a_fork_and_its_original_nominate_apart() -> None:
    nominator = Nominator()
    a, b = pod_info("a"), pod_info("b")
    nominator.nominate(a, "n1")
    fork = nominator.fork()
    assert names(fork, "n1") == ["a"]
    assert fork.changes.since(0) is None
    fork.nominate(a, "n2")
    nominator.nominate(b, "n1")
    assert (names(fork, "n1"), names(fork, "n2")) == ([], ["a"])
    assert (names(nominator, "n1"), names(nominator, "n2")) == (["a", "b"], [])
    assert (fork.node_of(a.uid), nominator.node_of(a.uid)) == ("n2", "n1")
