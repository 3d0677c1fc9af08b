"""The plugin of devices, as a whole: which claims it looks at."""

import pytest

from stellwerk.plugins.dynamic_resources.plugin import MAX_POD_SELECTOR_BYTES
from stellwerk_simulation.cases.decide import decide
from tests.support.device_cases import case, claim, device, request

LONG = "device.driver != 'x{}'" + " || 1 == 1" * 400


def asking(selectors: int, text: str = LONG) -> str:
    """What is said of a pod whose claim has so many selectors, in requests of 30; "" where fine."""
    terms = [{"cel": {"expression": text.format(each)}} for each in range(selectors)]
    requests = [request(f"r{at}", selectors=terms[at : at + 30]) for at in range(0, len(terms), 30)]
    found = decide(case(claim("mine", *requests), devices=[device(f"gpu-{n}") for n in range(4)]))
    return "" if found.get("node") else str(found)


@pytest.mark.parametrize(
    ("selectors", "text", "is_too_complex"),
    [
        pytest.param(4, LONG, False, id="what is written by hand has less"),
        pytest.param(5, LONG, True, id="beyond the limit"),
        pytest.param(60, "device.driver != 'x'" + " || 1 == 1" * 400, False, id="one, 60 times"),
    ],
)
def test_claims_with_selectors_beyond_a_limit_are_not_looked_at(
    selectors: int, text: str, *, is_too_complex: bool
) -> None:
    assert 4 * len(LONG) < MAX_POD_SELECTOR_BYTES < 5 * len(LONG)
    assert ("too complex to schedule" in asking(selectors, text)) is is_too_complex
