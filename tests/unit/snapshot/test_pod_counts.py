"""A pod with very many volumes is counted as a whole, and found by each of them."""

from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import MAX_COUNTED_USES
from stellwerk.snapshot.pod_counts import VolumeUsers
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import pod_info


def claim(name: str, number: int = 0) -> JsonObject:
    return {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}


def pod_of_many(name: str = "huge", **metadata: str) -> PodInfo:
    many = [claim(f"c{number}", number) for number in range(MAX_COUNTED_USES)]
    return pod_info(name, volumes=[*many, claim("c0", MAX_COUNTED_USES)], **metadata)


def test_it_counts_as_often_as_its_volumes_name_a_claim() -> None:
    users, huge = VolumeUsers(), pod_of_many()
    small = pod_info("small", volumes=[claim("c0")])
    assert huge.volume_uses is not None
    assert small.volume_uses is None
    users.count_pod(3, huge, 1)
    users.count_pod(3, small, 1)
    users.count_pod(4, huge, 1)
    first, last, other = (
        ("persistentVolumeClaim", "default", name)
        for name in ("c0", f"c{MAX_COUNTED_USES - 1}", "x")
    )
    assert users.rows(first) == {3: 3, 4: 2}
    assert users.rows(last) == {3: 1, 4: 1}
    assert not users.rows(other)
    assert users.on_row(3)[first] == 3
    assert len(list(users.keys())) == MAX_COUNTED_USES
    users.count_pod(3, huge, -1)
    assert users.on_row(3) == {first: 1}
    assert users.rows(last) == {4: 1}


def test_a_newer_record_of_the_pod_takes_out_what_the_older_one_put_in() -> None:
    users = VolumeUsers()
    users.count_pod(0, pod_of_many(), 1)
    users.count_pod(0, pod_of_many(), -1)
    assert not list(users.keys())
    assert not users.on_row(0)
    assert pod_of_many(namespace="other").volume_uses is not pod_of_many().volume_uses
