import pytest

from stellwerk.errors import ConfigurationError
from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.command import ApiFeatures, api_features, open_cluster


def test_flags_say_what_is_on_in_the_api() -> None:
    assert api_features() == ApiFeatures(DEFAULT_PLUGINS, frozenset())
    features = api_features(disabled="LimitRanger", gates="GenericWorkload=true")
    assert features == ApiFeatures(
        DEFAULT_PLUGINS - {"LimitRanger"}, frozenset({"GenericWorkload"})
    )
    kinds = open_cluster(0, features=features).api.kinds
    assert kinds.find("scheduling.k8s.io", "v1alpha2", "podgroups") is not None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(
            {"enabled": "Nope"}, "admission plugins: no admission plugin Nope", id="plugin"
        ),
        pytest.param({"gates": "Nope=true"}, "--feature-gates: no gate Nope; there are", id="gate"),
    ],
)
def test_a_flag_that_names_nothing_is_refused(flags: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        api_features(**flags)
