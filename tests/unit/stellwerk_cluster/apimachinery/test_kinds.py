import pytest

from stellwerk_cluster.apimachinery.kinds import ALL_VERBS, built_in_kinds, parse_kinds
from stellwerk_cluster.schema.types import types

FILE = """
[subresources.status]
verbs = ["get", "patch"]

[v1.pods]
kind = "Pod"
short_names = ["po"]
subresources = ["status"]

["apps/v1".daemonsets]
kind = "DaemonSet"
verbs = ["get"]
"""


def test_a_kind_has_the_group_and_version_it_stands_under() -> None:
    _, (pod, daemon_set) = parse_kinds(FILE)
    assert (pod.group, pod.version, pod.plural, pod.kind) == ("", "v1", "pods", "Pod")
    assert daemon_set.api_version == "apps/v1"


def test_a_kind_differs_from_a_plain_one_only_in_what_its_table_says() -> None:
    subresources, (pod, daemon_set) = parse_kinds(FILE)
    assert (pod.verbs, pod.short_names, pod.namespaced) == (ALL_VERBS, ("po",), True)
    assert pod.subresource("status") == subresources["status"]
    assert (daemon_set.verbs, daemon_set.subresources) == (("get",), ())


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        pytest.param('["get"]', '["fetch"]', ValueError, "fetch", id="an unknown verb"),
        pytest.param(
            '["get", "patch"]', '["run"]', ValueError, "run", id="an unknown verb of a subresource"
        ),
        pytest.param(
            '["status"]', '["scale"]', ValueError, "scale", id="a subresource that is not there"
        ),
        pytest.param("short_names", "nicknames", TypeError, "nicknames", id="an unknown key"),
        pytest.param('kind = "Pod"', "", TypeError, "kind", id="a table without its kind"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    old: str, new: str, error: type[Exception], text: str
) -> None:
    assert old in FILE
    with pytest.raises(error, match=text):
        parse_kinds(FILE.replace(old, new))


def test_every_built_in_kind_has_a_type_of_its_own() -> None:
    assert [kind.kind for kind in built_in_kinds() if kind.type_name not in types()] == []


def test_no_two_built_in_kinds_share_a_name_in_their_group_and_version() -> None:
    names = [(kind.api_version, kind.kind) for kind in built_in_kinds()]
    assert len(names) == len(set(names))
