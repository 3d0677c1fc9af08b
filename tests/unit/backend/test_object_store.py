"""The object store answers by name, namespace and index, and shows assumptions until overtaken."""

from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk_kube.json_values import JsonObject
from tests.support.storage import make_attachment, make_claim, make_volume


def versioned(obj: JsonObject, version: int) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def names(objects: Any) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects]


def store_with(kind: str, *objects: JsonObject) -> IndexedObjectStore:
    store = IndexedObjectStore()
    for obj in objects:
        store.set(kind, obj)
    return store


def test_an_object_is_found_by_kind_namespace_and_name() -> None:
    claim = make_claim("data")
    store = store_with("PersistentVolumeClaim", claim)
    assert store.get("PersistentVolumeClaim", "default", "data") is claim
    assert store.get("PersistentVolumeClaim", "other", "data") is None
    assert store.get("PersistentVolume", "default", "data") is None


@pytest.mark.parametrize("claim", ["text", {"namespace": "a"}, [5]])
def test_a_malformed_volume_changes_nothing(claim: Any) -> None:
    volume = make_volume("disk")
    store = store_with("PersistentVolume", volume)
    malformed = versioned({**volume, "spec": {**volume["spec"], "claimRef": claim}}, 5)
    with pytest.raises((KeyError, TypeError, AttributeError)):
        store.set("PersistentVolume", malformed)
    assert store.get("PersistentVolume", "", "disk") is volume
    mended = versioned(volume, 6)
    store.set("PersistentVolume", mended)
    assert store.get("PersistentVolume", "", "disk") is mended
    assert store.remove("PersistentVolume", mended) is mended


def test_listing_a_namespace_leaves_the_others_out() -> None:
    elsewhere = make_claim("b")
    elsewhere["metadata"]["namespace"] = "other"
    store = store_with("PersistentVolumeClaim", make_claim("a"), elsewhere)
    assert names(store.list("PersistentVolumeClaim")) == ["a", "b"]
    assert names(store.list("PersistentVolumeClaim", "other")) == ["b"]
    assert names(store.list("Service", "other")) == []


def test_set_returns_what_was_there_before() -> None:
    store = IndexedObjectStore()
    first, second = versioned(make_volume("v"), 1), versioned(make_volume("v"), 2)
    assert store.set("PersistentVolume", first) is None
    assert store.set("PersistentVolume", second) is first
    assert store.remove("PersistentVolume", second) is second
    assert store.remove("PersistentVolume", second) is None


def test_a_deletion_of_an_earlier_object_of_the_name_is_ignored() -> None:
    store = store_with("PersistentVolumeClaim", make_claim("data"))
    store.remove(
        "PersistentVolumeClaim",
        {"metadata": {"name": "data", "namespace": "default", "uid": "of the one before"}},
    )
    assert store.get("PersistentVolumeClaim", "default", "data") is not None


def test_a_deletion_without_uid_counts() -> None:
    store = store_with("PersistentVolumeClaim", make_claim("data"))
    store.remove("PersistentVolumeClaim", {"metadata": {"name": "data", "namespace": "default"}})
    assert store.get("PersistentVolumeClaim", "default", "data") is None


def test_a_volume_is_found_by_the_claim_it_names() -> None:
    store = store_with("PersistentVolume", make_volume("v", claim="c"), make_volume("free"))
    assert names(store.list_by("PersistentVolume", "claim", "default/c")) == ["v"]


def test_an_index_follows_changes_and_deletions() -> None:
    store = store_with("VolumeAttachment", make_attachment("a", "n1", "v"))
    store.set("VolumeAttachment", make_attachment("a", "n2", "v"))
    assert names(store.list_by("VolumeAttachment", "nodeName", "n1")) == []
    assert names(store.list_by("VolumeAttachment", "nodeName", "n2")) == ["a"]
    store.remove("VolumeAttachment", make_attachment("a", "n2", "v"))
    assert names(store.list_by("VolumeAttachment", "nodeName", "n2")) == []


def test_an_unknown_index_is_an_error() -> None:
    with pytest.raises(KeyError):
        IndexedObjectStore().list_by("PersistentVolume", "colour", "red")


def test_changes_name_what_was_written() -> None:
    store = store_with("PersistentVolume", make_volume("a"))
    changes = store.changes("PersistentVolume")
    position = changes.position
    store.set("PersistentVolume", make_volume("b"))
    assert changes.since(position) == [("", "b")]
    assert changes.since(changes.position) == []


def test_changes_of_a_kind_that_comes_later_are_followed_from_the_beginning() -> None:
    store = IndexedObjectStore()
    changes = store.changes("PersistentVolume")
    store.set("PersistentVolume", make_volume("a"))
    assert changes.since(0) == [("", "a")]


class TestAssumption:
    def test_it_stands_in_for_the_stored_object(self) -> None:
        volume = versioned(make_volume("v"), 1)
        store = store_with("PersistentVolume", volume)
        taken = versioned(make_volume("v", claim="c"), 1)
        store.assume("PersistentVolume", taken)
        assert store.get("PersistentVolume", "", "v") is taken
        assert store.stored("PersistentVolume", "", "v") is volume
        assert names(store.list_by("PersistentVolume", "claim", "default/c")) == ["v"]

    def test_it_must_be_based_on_what_is_stored(self) -> None:
        store = store_with("PersistentVolume", versioned(make_volume("v"), 2))
        with pytest.raises(ValueError, match=r'"v" is out of sync \(stored: 2, assume: 1\)'):
            store.assume("PersistentVolume", versioned(make_volume("v"), 1))
        with pytest.raises(ValueError, match="does not exist"):
            store.assume("PersistentVolume", make_volume("gone"))

    def test_restoring_brings_the_stored_object_back(self) -> None:
        volume = versioned(make_volume("v"), 1)
        store = store_with("PersistentVolume", volume)
        taken = versioned(make_volume("v", claim="c"), 1)
        store.assume("PersistentVolume", taken)
        store.restore("PersistentVolume", taken)
        store.restore("PersistentVolume", taken)
        assert store.get("PersistentVolume", "", "v") is volume
        assert names(store.list_by("PersistentVolume", "claim", "default/c")) == []

    def test_a_newer_object_overtakes_it(self) -> None:
        store = store_with("PersistentVolume", versioned(make_volume("v"), 1))
        taken = versioned(make_volume("v", claim="c"), 1)
        store.assume("PersistentVolume", taken)
        newer = versioned(make_volume("v", claim="other"), 2)
        store.set("PersistentVolume", newer)
        store.restore("PersistentVolume", taken)
        assert store.get("PersistentVolume", "", "v") is newer

    def test_seeing_the_same_version_again_does_not_end_it(self) -> None:
        store = store_with("PersistentVolume", versioned(make_volume("v"), 1))
        taken = versioned(make_volume("v", claim="c"), 1)
        store.assume("PersistentVolume", taken)
        store.set("PersistentVolume", versioned(make_volume("v"), 1))
        assert store.get("PersistentVolume", "", "v") is taken

    def test_a_deletion_ends_it(self) -> None:
        store = store_with("PersistentVolume", versioned(make_volume("v"), 1))
        taken = versioned(make_volume("v", claim="c"), 1)
        store.assume("PersistentVolume", taken)
        store.remove("PersistentVolume", taken)
        store.restore("PersistentVolume", taken)
        assert store.get("PersistentVolume", "", "v") is None


def test_a_fork_and_its_original_change_apart() -> None:
    volumes, claims = "PersistentVolume", "PersistentVolumeClaim"
    store = store_with(volumes, versioned(make_volume("v"), 1), versioned(make_volume("w"), 1))
    for name in ("a", "b"):
        store.set(claims, make_claim(name, volume="v"))
    assumed = versioned(make_volume("v"), 1)
    store.assume(volumes, assumed)
    fork = store.fork()
    assert fork.get(volumes, "", "v") is assumed
    assert fork.stored(volumes, "", "v") is store.stored(volumes, "", "v")
    fork.restore(volumes, assumed)
    fork.remove(claims, make_claim("a"))
    store.set(claims, make_claim("c", volume="v"))
    assert store.get(volumes, "", "v") is assumed
    assert names(store.list_by(claims, "volumeName", "v")) == ["a", "b", "c"]
    assert names(fork.list_by(claims, "volumeName", "v")) == ["b"]
    assert names(fork.list(claims)) == ["b"]


def test_versions_of_a_fork_go_on_and_its_changes_begin_anew() -> None:
    store = store_with("PersistentVolume", make_volume("v"))
    before = store.changes("PersistentVolume").position
    fork = store.fork()
    assert fork.changes("PersistentVolume").position == before
    assert fork.changes("PersistentVolume").since(0) is None
    fork.set("PersistentVolume", make_volume("w"))
    assert list(fork.changes("PersistentVolume").since(before) or ()) == [("", "w")]
    assert list(store.changes("PersistentVolume").since(before) or ()) == []


def test_the_latest_assumptions_can_be_set_aside_for_a_moment() -> None:
    store = IndexedObjectStore()
    volume = make_volume("v")
    store.set("PersistentVolume", volume)
    for name in ("earlier", "later"):
        store.set("PersistentVolumeClaim", make_claim(name))
    earlier = make_claim("earlier", annotations={"chosen": "n1"})
    store.assume("PersistentVolumeClaim", earlier)
    made = store.assumptions
    claimed = make_volume("v", claim="later")
    store.assume("PersistentVolume", claimed)
    again = make_claim("earlier", annotations={"chosen": "n2"})
    store.assume("PersistentVolumeClaim", again)
    with store.before(made):
        assert store.get("PersistentVolume", "", "v") == volume
        assert list(store.list_by("PersistentVolume", "claim", "default/later")) == []
        assert store.get("PersistentVolumeClaim", "default", "earlier") == earlier
    assert store.get("PersistentVolume", "", "v") == claimed
    assert list(store.list_by("PersistentVolume", "claim", "default/later")) == [claimed]
    assert store.get("PersistentVolumeClaim", "default", "earlier") == again
    store.restore("PersistentVolume", claimed)
    store.restore("PersistentVolumeClaim", again)
    assert store.get("PersistentVolume", "", "v") == volume
    assert store.get("PersistentVolumeClaim", "default", "earlier") == make_claim("earlier")
