import pytest

from stellwerk_cluster.apimachinery.kinds import ALL_VERBS, built_in_kinds, kinds_of
from stellwerk_kube.schema.tables import parse_tables
from stellwerk_kube.schema.types import types

TEXT = """
subresource status verbs=get,patch
kind v1 pods Pod
  short_names=po subresources=status
kind apps/v1 daemonsets DaemonSet
  verbs=get namespaced=no
  warning | Old.
"""


def test_a_kind_has_the_group_and_version_it_stands_under() -> None:
    _, (pod, daemon_set) = kinds_of(parse_tables(TEXT))
    assert (pod.group, pod.version, pod.plural, pod.kind) == ("", "v1", "pods", "Pod")
    assert daemon_set.api_version == "apps/v1"


def test_a_kind_differs_from_a_plain_one_only_in_what_its_block_says() -> None:
    subresources, (pod, daemon_set) = kinds_of(parse_tables(TEXT))
    assert (pod.verbs, pod.short_names, pod.namespaced) == (ALL_VERBS, ("po",), True)
    assert pod.subresource("status") == subresources["status"]
    assert (daemon_set.verbs, daemon_set.subresources) == (("get",), ())
    assert (daemon_set.namespaced, daemon_set.warning) == (False, "Old.")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        pytest.param("  verbs=get ", "  verbs=fetch ", "fetch", id="an unknown verb"),
        pytest.param("get,patch", "get,run", "run", id="an unknown verb of a subresource"),
        pytest.param("=status", "=scale", "scale", id="a subresource that is not there"),
        pytest.param("short_names", "nicknames", "nicknames", id="an unknown word"),
        pytest.param(" Pod", "", "values to unpack", id="a block without its kind"),
    ],
)
def test_a_mistake_in_a_table_is_named(old: str, new: str, text: str) -> None:
    assert old in TEXT
    with pytest.raises(ValueError, match=text):
        kinds_of(parse_tables(TEXT.replace(old, new)))


def test_every_built_in_kind_has_a_type_of_its_own() -> None:
    assert [kind.kind for kind in built_in_kinds() if kind.type_name not in types()] == []


def test_no_two_built_in_kinds_share_a_name_in_their_group_and_version() -> None:
    names = [(kind.api_version, kind.kind) for kind in built_in_kinds()]
    assert len(names) == len(set(names))
