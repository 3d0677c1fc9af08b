"""`promote` shows what it is about to write, also of a promotion that it resumes."""

import pytest

from stellwerk_cli.commands.promote import _described
from stellwerk_cli.promotion import Promotion
from stellwerk_kube.json_values import JsonObject


def profile(name: str, spec: JsonObject) -> JsonObject:
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("resumed", [False, True])
def test_a_resumed_promotion_shows_both_specs(*, resumed: bool) -> None:
    new, old = {"schedulerName": "a", "weights": {"X": 1}}, {"schedulerName": "a"}
    shadow = {"shadowOf": "a", "weights": {"X": 1}}
    planned = Promotion(
        profile("a", new), profile("b", shadow), new, {"shadowOf": "a"}, old, resumed=resumed
    )
    said = _described(planned)
    assert "a has the spec of b already." in said
    assert ("An earlier promotion of b was interrupted" in said) is resumed
    assert ("--- b as it is" in said and "-weights:" in said) is resumed
