"""What would help a pod that lacks devices: found, tried, and the claims as before."""

from copy import deepcopy

import pytest

from stellwerk.explain.report import explain_on
from stellwerk.explain.steps import finished
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.device_cases import DRIVER, case, claim, device, held, request, selecting

MINE = "request r of claim default/mine"
SMALL = f'device.attributes["{DRIVER}"].model == "small"'
OF_CLAIMS = frozenset({"editClaim", "freeClaim"})
"""Other changes, such as doing without the claim, are not this module's."""
TAINTED = [{"key": "broken", "effect": "NoSchedule"}]


def suggested(written: JsonObject) -> list[str]:
    loaded = Case(written)
    before = deepcopy(list(loaded.world.objects.list("ResourceClaim")))
    explanation = finished(explain_on(loaded.world, loaded.pod, loaded.profile))
    assert list(loaded.world.objects.list("ResourceClaim")) == before
    return [
        each.text
        for each in explanation.would_fit or ()
        if all(change.kind in OF_CLAIMS for change in each.changes)
    ]


@pytest.mark.parametrize(
    ("wanted", "devices", "texts"),
    [
        pytest.param(
            claim("mine", request(count=4)),
            [device(f"gpu-{number}") for number in range(3)],
            [f"ask for 3 devices instead of 4 in {MINE}"],
            id="the largest number that there is",
        ),
        pytest.param(
            claim("mine", request(**selecting(SMALL))),
            [device("gpu-0")],
            [f"drop selector #0 of {MINE}: {SMALL}"],
            id="a selector less",
        ),
        pytest.param(
            claim("mine", request()),
            [device("gpu-0", taints=TAINTED)],
            [f"tolerate broken:NoSchedule in {MINE}"],
            id="a toleration",
        ),
        pytest.param(
            claim("mine", request(count=3), constraints=[{"matchAttribute": f"{DRIVER}/group"}]),
            [device(f"gpu-{number}") for number in range(4)],
            [
                f"ask for 2 devices instead of 3 in {MINE}",
                f"drop matchAttribute {DRIVER}/group of claim default/mine",
            ],
            id="a constraint less, or fewer devices",
        ),
        pytest.param(
            claim("mine", request(capacity={"requests": {"memory": "2Gi"}})),
            [device("gpu-0", capacity={"memory": {"value": "1Gi"}})],
            [f"ask for no capacity in {MINE}"],
            id="no capacity",
        ),
    ],
)
def test_what_one_change_does(
    wanted: JsonObject, devices: list[JsonObject], texts: list[str]
) -> None:
    assert suggested(case(wanted, devices=devices)) == texts


def test_a_claim_that_holds_the_device_is_named_with_its_pod() -> None:
    written = case(
        claim("mine", request()), held("other", "gpu-0", by="q"), devices=[device("gpu-0")]
    )
    assert suggested(written) == ["free claim default/other, which default/q uses"]


def test_two_changes_are_tried_together_where_none_is_enough_alone() -> None:
    devices = [device("gpu-0"), device("gpu-1", taints=TAINTED)]
    wanted = claim("mine", request(count=2))
    texts = suggested(case(wanted, held("other", "gpu-0", by="q"), devices=devices))
    free = "free claim default/other, which default/q uses"
    assert f"{free} and tolerate broken:NoSchedule in {MINE}" in texts
    assert f"{free} and ask for 1 device instead of 2 in {MINE}" in texts


def test_nothing_is_said_where_nothing_helps() -> None:
    assert suggested(case(claim("mine", request()), devices=[])) == []
