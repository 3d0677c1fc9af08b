"""The chart of the queues: no peak lost, no more points than are seen."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from stellwerk.answers.queue import QueueSample
from stellwerk_cli.page.queue_chart import HEIGHT, QUEUES, queue_chart
from tests.support.repository import ROOT

STYLES = (ROOT / "operator/stellwerk_cli/page/static/page.css").read_text()
BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)


def sample(number: int, **counts: int) -> QueueSample:
    at = (BEGIN + timedelta(seconds=5 * number)).isoformat()
    none = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0, "scheduled": 0}
    return QueueSample(at=at, **(none | counts))


def heights(path: str) -> list[float]:
    """The y coordinates of a path."""
    points = path.removeprefix("M").removesuffix(" Z").replace(" L", " ").split()
    return [float(point.split(",")[1]) for point in points]


def test_areas_lie_on_each_other() -> None:
    chart = queue_chart([sample(0, active=2, gated=3), sample(1, active=10)])
    assert chart.highest == 10
    assert heights(chart.areas["active"]) == [HEIGHT * 0.8, 0, HEIGHT, HEIGHT]
    assert heights(chart.areas["gated"])[:2] == [HEIGHT * 0.5, 0]


def test_one_sample_is_a_level() -> None:
    chart = queue_chart([sample(0, backoff=5)])
    assert heights(chart.areas["backoff"])[:2] == [0, 0]
    assert chart.pods_per_second == 0


def test_a_short_peak_in_an_hour_is_drawn() -> None:
    samples = [sample(number, active=100 if number == 401 else 1) for number in range(721)]
    chart = queue_chart(samples)
    drawn = heights(chart.areas["active"])
    assert chart.highest == 100
    assert min(drawn) == 0
    assert len(drawn) < 400
    assert len(chart.rows) <= 12


def test_the_rate_is_that_of_the_last_minute() -> None:
    samples = [sample(number, scheduled=max(0, number - 12) * 10) for number in range(25)]
    assert queue_chart(samples).pods_per_second == 2.0


def test_a_count_that_fell_is_no_rate() -> None:
    assert queue_chart([sample(0, scheduled=9), sample(1)]).pods_per_second == 0


@pytest.mark.parametrize(
    ("pods", "figures"),
    [(3, [5, 4, 3, 2, 1, 0]), (8, [8, 6, 4, 2, 0]), (10, [10, 5, 0]), (7, [7, 0])],
)
def test_the_axis_has_whole_numbers_at_even_distances(pods: int, figures: list[int]) -> None:
    marks = queue_chart([sample(0, active=pods)]).marks
    assert [value for value, _ in marks] == figures
    assert (marks[0][1], marks[-1][1]) == (0, HEIGHT)


def test_an_area_has_an_edge_where_it_has_pods() -> None:
    chart = queue_chart([sample(0, active=2, gated=3)])
    assert list(chart.edges) == ["active", "gated"]
    assert heights(chart.edges["active"]) == [HEIGHT * 0.6] * 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_area_stands_out_from_the_ground_which_parts_it_from_the_next(scheme: str) -> None:
    tables = re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
    table = tables[scheme == "dark"]
    colours = dict(re.findall(r"--([a-z]+): #([0-9a-f]{6})", table))
    ground = luminance(colours["ground"])
    for queue in QUEUES:
        lighter, darker = sorted((luminance(colours[queue]), ground), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, queue
    assert ".edge-line { fill: none; stroke: var(--ground); stroke-width: 2.5;" in STYLES


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
