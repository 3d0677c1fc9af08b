"""The operator under every kind of fault, one run each: the long set, of `make test-all`."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.fault_cases import CASES, LONG_OUTAGE
from tests.support.fault_runs import Case, Load, run_case, with_proxy
from tests.support.seeds import fault_seed

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

LOAD = Load(pods=400, per_second=125)
RESTARTED = Load(pods=1500, per_second=100)
"""Long enough for several restarts."""

DEFECTS = {
    "false-success": "a binding answered 2xx and never applied stays BINDING; the audit is silent",
    "older-revisions": "a server that returns with older resourceVersions leaves the cache stale",
}
"""What fails today (see test_found_defects.py)."""


def _params() -> list[object]:
    params: list[object] = []
    for name, case in CASES.items():
        if name == LONG_OUTAGE:
            continue  # two minutes away: `make soak`
        marks = []
        if name in DEFECTS:
            marks = [pytest.mark.xfail(strict=True, reason=DEFECTS[name])]
            case = replace(case, recovery_seconds=10.0)  # noqa: PLW2901 it does not recover
        load = RESTARTED if name in {"killed", "told-to-end"} else LOAD
        params.append(pytest.param(case, load, id=name, marks=marks))
    params += [
        pytest.param(with_proxy(CASES[name]), LOAD, id=f"{name}, by a proxy")
        for name in ("connection-resets", "cut-lines", "outage")
    ]
    return params


@pytest.mark.parametrize(("case", "load"), _params())
async def test_every_pod_is_bound_exactly_once(case: Case, load: Load, tmp_path: Path) -> None:
    outcome = await run_case(case, fault_seed(1), tmp_path, load)
    assert not outcome.wrongs, str(outcome)
