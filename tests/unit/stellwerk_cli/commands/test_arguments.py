"""Arguments of several commands: what is malformed is one line."""

import argparse

import pytest

from stellwerk_cli.commands import decide
from stellwerk_cli.commands.arguments import chosen_compatibility, port_number
from stellwerk_kube.compatibility import (
    AS_RECORDED,
    NEWEST_RELEASED,
    RECORDED,
    Release,
    ReleaseRule,
)
from stellwerk_kube.errors import ConfigurationError


@pytest.mark.parametrize("text", ["0", "1", "10259", "65535"])
def test_ports_are_numbers_of_two_bytes(text: str) -> None:
    assert port_number(text) == int(text)


@pytest.mark.parametrize(
    "text", ["65536", "99999", "-1", "", "http", "\u0661", "9" * 5000, "0000070000"]
)
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a port from 0 to 65535"):
        port_number(text)


def _decide(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    decide.add_arguments(parser)
    return parser.parse_args(["cases.jsonl", *arguments])


def test_decisions_follow_the_server_or_the_newest_release_unless_one_is_named() -> None:
    assert chosen_compatibility(_decide()).release is NEWEST_RELEASED
    assert chosen_compatibility(_decide(), "v1.35.4").release is Release.V1_35
    assert (
        chosen_compatibility(_decide("--compatibility", "1.36"), "v1.37.0").release is Release.V1_36
    )
    assert chosen_compatibility(_decide(), default=RECORDED) == AS_RECORDED
    assert chosen_compatibility(_decide("--compatibility", "1.37")).release is Release.V1_37


def test_gates_change_what_a_release_does() -> None:
    chosen = chosen_compatibility(_decide("--feature-gates", "StorageCapacityScoring=true"))
    assert ReleaseRule.SCORE_STORAGE_CAPACITY in chosen


def test_a_gate_that_no_release_knows_is_refused() -> None:
    with pytest.raises(argparse.ArgumentError, match="unrecognized feature gate: Wrong"):
        _decide("--feature-gates", "Wrong=true")


def test_a_gate_that_this_release_does_not_know_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="--feature-gates: unrecognized feature gate: GangScheduling"
    ):
        chosen_compatibility(
            _decide("--compatibility", "1.37", "--feature-gates", "GangScheduling=true")
        )
