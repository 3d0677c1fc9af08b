"""The operator under faults, for a few seconds: the short set.

Every run is judged by the API's own history: every pod bound exactly once, none lost, no node
over-committed at any moment, and the operator's cache like a fresh list at the end. The long set is
test_faults_long.py, the longest `make soak`.
"""

from pathlib import Path

import pytest

from tests.support.fault_cases import CASES
from tests.support.fault_load import Load
from tests.support.fault_runs import Case, Disruption, run_case, with_proxy
from tests.support.seeds import fault_seed

SHORT = Load(pods=250, per_second=125)
DISRUPTED = Case(
    "killed and paused",
    disruptions=(Disruption("kill", (1, 2), times=1), Disruption("pause", (0.5, 1.0), (0.2, 0.5))),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "load"),
    [
        pytest.param(with_proxy(CASES["everything-at-once"]), SHORT, id="all at once, by a proxy"),
        pytest.param(CASES["outage-without-history"], SHORT, id="an outage without history"),
        pytest.param(DISRUPTED, Load(pods=250, per_second=100), id="killed and paused"),
    ],
)
async def test_every_pod_is_bound_exactly_once(case: Case, load: Load, tmp_path: Path) -> None:
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.wrongs, str(outcome)
