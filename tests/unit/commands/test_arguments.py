"""Arguments of several commands: what is malformed is one line."""

import argparse

import pytest

from stellwerk.commands.arguments import port_number


@pytest.mark.parametrize("text", ["0", "1", "10259", "65535"])
def test_ports_are_numbers_of_two_bytes(text: str) -> None:
    assert port_number(text) == int(text)


@pytest.mark.parametrize(
    "text", ["65536", "99999", "-1", "", "http", "\u0661", "9" * 5000, "0000070000"]
)
def test_other_ports_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a port from 0 to 65535"):
        port_number(text)
