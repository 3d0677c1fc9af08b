"""What every test may ask for: the tools of the machine it runs on; and how Hypothesis searches.

A change is judged by examples that are the same in every run, so that it cannot be failed by chance
for what was there before: `make test` tries a third of them, `make test-all` all; `make search`
tries new ones.
"""

import asyncio
import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from stellwerk.garbage import collect_seldom
from tests.support.examples import SHORT
from tests.support.skipped_time import skipping_loop

# As long as it needs: a busy machine is no failure.
TIMELESS = (HealthCheck.too_slow,)
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=TIMELESS)
settings.register_profile(SHORT, parent=settings.get_profile("same"), max_examples=33)
settings.register_profile("search", deadline=None, print_blob=True, suppress_health_check=TIMELESS)
settings.load_profile(SHORT)

# What a script starts in the background ignores SIGINT, and so would every process of the tests:
# a program that is started has by default what its parent handles, and ignores what it ignores.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _default = signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        signal.signal(_number, _default)


def pytest_collection_finish() -> None:
    """See to it that the collector, which tests call, does not look through all tests each time.

    Among 400,000 objects that stay to the end it takes a quarter of a second.
    """
    gc.freeze()
    collect_seldom()


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that a test runs in: a real one, or with the marker `skips_time` one that skips."""
    if item.get_closest_marker("skips_time") is None:
        return {"real": asyncio.new_event_loop}
    return {"skipping": skipping_loop}


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """The path of a program, or the test skips; with STELLWERK_REQUIRE_TOOLS set, it fails."""

    def find(program: str) -> str:
        # Programs that come in wheels lie beside the interpreter.
        path = shutil.which(program) or shutil.which(program, path=Path(sys.executable).parent)
        if path is not None:
            return path
        reason = f"{program} is not on the PATH"
        if os.environ.get("STELLWERK_REQUIRE_TOOLS"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which part of a run the flows were: on two cores it is to stay below three minutes."""
    reports = [each for found in terminalreporter.stats.values() for each in found]
    seconds = [
        (each.duration, each.nodeid.startswith("tests/flows/"))
        for each in reports
        if isinstance(each, pytest.TestReport)
    ]
    flows, all_tests = (
        sum(each for each, is_flow in seconds if is_flow),
        sum(each for each, _ in seconds),
    )
    workers = terminalreporter.config.getoption("numprocesses", None) or 1
    if flows:
        terminalreporter.write_line(
            f"tests/flows: {flows / workers:.0f} s of {all_tests / workers:.0f} s "
            f"in each of {workers} processes"
        )
