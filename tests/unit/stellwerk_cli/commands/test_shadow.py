"""The table of a shadow's differences."""

import io
import json

from stellwerk.answers.answer import codec
from stellwerk.answers.shadow import ShadowDiff
from stellwerk_cli.commands.printer import console
from stellwerk_cli.commands.shadow import print_shadow
from tests.support.recorded_answers import recorded


def test_a_shadow_that_was_not_compared_yet_has_no_figures() -> None:
    answer = json.loads(recorded("a-shadow"))
    (shadow,) = (each["answer"] for path, each in answer.items() if path == "/shadow/next")
    counted = codec(ShadowDiff).read({**shadow, "compared": 0, "differing": 0, "differences": []})
    output = io.StringIO()
    print_shadow(counted, console(output))
    first = output.getvalue().splitlines()[0]
    assert first == "next shadows stellwerk: no decision was compared yet"
