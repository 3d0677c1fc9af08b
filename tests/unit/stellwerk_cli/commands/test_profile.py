"""What `stellwerk profile` says, and which specs it does not write."""

import io

import pytest

from stellwerk.answers.profile_history import AcceptedSpec, ProfileHistory
from stellwerk_cli.cli import build_parser
from stellwerk_cli.commands.printer import console
from stellwerk_cli.commands.profile import check_here, print_history
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import make_profile


def revision(number: int, spec: JsonObject | None, replaced_at: str | None = None) -> AcceptedSpec:
    return AcceptedSpec(
        revision=number,
        generation=0,
        accepted_at="",
        replaced_at=replaced_at,
        scheduled_pods=4,
        spec=spec,
    )


def table(*revisions: AcceptedSpec) -> list[str]:
    output = io.StringIO()
    print_history(ProfileHistory(profile="packing", revisions=revisions), console(output))
    return [" ".join(line.split()) for line in output.getvalue().splitlines()]


def test_the_table_says_which_fields_changed_and_prints_no_controls() -> None:
    lines = table(
        revision(3, {"a": 1, "[red]\x1b[2J": 2}),
        revision(2, {"a": 2}, "then"),
        revision(1, None, "before"),
    )
    assert lines[1:] == [
        "3 in use 4 [red] [2J, a",
        "2 then 4",
        "1 before 4 not kept: too large, or no spec",
    ]


def test_no_history_is_a_sentence() -> None:
    (line,) = table()
    assert line == "SchedulerProfile packing has no history here; -n names the operator's namespace"


def test_a_plugin_that_this_machine_lacks_is_left_to_the_operator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_here(make_profile("packing", weights={"NoSuchPlugin": 1}))
    assert 'unknown plugin "NoSuchPlugin"' in capsys.readouterr().err


def test_what_breaks_a_rule_is_refused_here() -> None:
    with pytest.raises(ProfileError, match="weights"):
        check_here(make_profile("packing", weights={"ImageLocality": -1}))


def test_options_are_taken_before_and_after_the_name() -> None:
    options = build_parser().parse_args(
        ["profile", "rollback", "--to", "3", "packing", "--dry-run", "-n", "kube-system"]
    )
    assert (options.name, options.to, options.dry_run) == ("packing", 3, True)
    assert options.namespace == "kube-system"
