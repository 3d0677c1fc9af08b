"""What a pod's volumes occupy, an image of very many monitors included."""

from typing import TYPE_CHECKING

from stellwerk.models.volumes import MAX_COUNTED_USES, MonitoredImage, PodVolume, parse_volumes

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject


def image(monitors: list[str], **source: object) -> PodVolume:
    rbd: JsonObject = {"pool": "p", "image": "i", "monitors": monitors, **source}
    (volume,) = parse_volumes("pod", [{"name": "v", "rbd": rbd}])
    return volume


def monitors(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def test_an_image_of_many_monitors_occupies_what_one_of_few_does() -> None:
    many, few = image(monitors(MAX_COUNTED_USES + 1)), image(monitors(3))
    uses = many.usage_keys("default")
    assert isinstance(uses, MonitoredImage)
    assert set(uses) == set(many.disk_keys("rw"))
    assert len(uses) == MAX_COUNTED_USES + 1
    assert set(few.usage_keys("default")) < set(uses)


def test_it_contains_its_own_uses_and_no_others() -> None:
    uses = image(monitors(MAX_COUNTED_USES + 1)).usage_keys("default")
    assert ("rbd", "m7", "p", "i", "rw") in uses
    for other in (
        ("rbd", "x", "p", "i", "rw"),
        ("rbd", "m7", "q", "i", "rw"),
        ("rbd", "m7", "p", "j", "rw"),
        ("rbd", "m7", "p", "i", "ro"),
        ("iscsi", "m7", "rw"),
        "rbd",
    ):
        assert other not in uses


def test_equal_images_are_identical() -> None:
    one, other = (image(monitors(MAX_COUNTED_USES + 1)) for _ in range(2))
    assert one.disk_uses is other.disk_uses
    assert image(monitors(MAX_COUNTED_USES + 2)).disk_uses is not one.disk_uses
    assert image(monitors(MAX_COUNTED_USES + 1), readOnly=True).disk_uses is not one.disk_uses


def test_whether_a_volume_occupies_any_of_some_keys() -> None:
    for volume in (image(monitors(MAX_COUNTED_USES + 1)), image(monitors(9))):
        assert volume.uses_any("default", {("rbd", "m8", "p", "i", "rw"), ("iscsi", "a", "rw")})
        assert not volume.uses_any("default", {("rbd", "m8", "p", "i", "ro")})
    (claim,) = parse_volumes("pod", [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    assert claim.uses_any("a", {("persistentVolumeClaim", "a", "c")})
    assert not claim.uses_any("b", {("persistentVolumeClaim", "a", "c")})
