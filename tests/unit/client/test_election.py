"""Which options of leader election make sense."""

from dataclasses import replace

import pytest

from stellwerk.client.election import LeaderElectionOptions
from stellwerk_kube.errors import ConfigurationError

DEFAULTS = LeaderElectionOptions(leader_elect=True)


def test_the_defaults_do() -> None:
    DEFAULTS.check()
    assert DEFAULTS.margin_seconds == 5


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        pytest.param(
            replace(DEFAULTS, lease_duration_seconds=10),
            "--leader-elect-lease-duration (10s) must be greater than "
            "--leader-elect-renew-deadline (10s)",
            id="a lease that is no longer than the deadline",
        ),
        pytest.param(
            replace(DEFAULTS, retry_period_seconds=8.5),
            "--leader-elect-renew-deadline (10s) must be greater than 1.2 times "
            "--leader-elect-retry-period (8.5s)",
            id="no time for another attempt",
        ),
        pytest.param(
            replace(DEFAULTS, resource_name=""),
            "--leader-elect-resource-name must not be empty",
            id="a lease without a name",
        ),
        pytest.param(
            replace(DEFAULTS, resource_namespace=""),
            "--leader-elect-resource-namespace must not be empty",
            id="a lease without a namespace",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line(options: LeaderElectionOptions, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        options.check()
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("duration_seconds", "recorded"),
    [
        pytest.param(15.0, 15, id="whole seconds"),
        pytest.param(14.2, 15, id="never shorter than it is"),
    ],
)
def test_a_lease_is_recorded_in_whole_seconds(duration_seconds: float, recorded: int) -> None:
    options = replace(DEFAULTS, lease_duration_seconds=duration_seconds)
    assert options.recorded_duration_seconds == recorded
