"""Images of curves: what is on them, where profiles part, and that nothing is loaded."""

import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from stellwerk_cli.cli import main
from stellwerk_simulation.figures import CurvePoint
from stellwerk_simulation.html_report import drawn, page
from tests.support.filled_answers import HOSTILE
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data" / "simulation"
TRACE = ("--nodes", str(DATA / "nodes.csv"), "--pods", str(DATA / "pods.csv"), "--jobs", "1")
TEXT = re.compile(r'<text[^>]* y="([0-9.]+)"[^>]*>([^<]*)</text>')


def flat_from(load: int, until_pct: int = 130) -> list[CurvePoint | None]:
    """All is placed up to a load, and nothing beyond it."""
    return [CurvePoint(each, float(min(each, load)), 5.0, 50.0) for each in range(until_pct + 1)]


def texts(image: str) -> list[tuple[float, str]]:
    return [(float(height), unescape(text)) for height, text in TEXT.findall(image)]


def test_an_image_begins_where_profiles_part_and_names_them() -> None:
    image = drawn({"one": [flat_from(90)], "<two>": [flat_from(95), flat_from(97)]}, 130)
    found = [text for _, text in texts(image)]
    assert "GPUs allocated, % of all, by load asked for (from 90 % on)" in found
    assert [found.count(name) for name in ("one", "<two>")] == [2, 2]


def test_a_name_breaks_neither_an_image_nor_a_page() -> None:
    image = drawn({HOSTILE: [flat_from(90)]}, 130)
    whole = page(
        (),
        [(HOSTILE, [[HOSTILE], [HOSTILE]])],
        130,
        about=[HOSTILE],
        facts=[(HOSTILE, HOSTILE)],
        compared={HOSTILE: {HOSTILE: 1.0}},
        heading=HOSTILE,
    )
    assert ET.fromstring(image).tag.endswith("svg")  # noqa: S314 our own
    for written in (image, whole):
        assert "[/bold]:skull:" in written
        assert [each for each in written if not each.isprintable() and each != "\n"] == []


def test_names_of_lines_that_end_together_are_not_written_over_one_another() -> None:
    image = drawn({f"p{number}": [flat_from(90)] for number in range(9)}, 130)
    heights = sorted(height for height, text in texts(image) if text in {"p0", "p1"})
    assert heights[1] - heights[0] >= 12


@pytest.mark.parametrize("values", [0.0, 100.0])
def test_a_line_without_any_change_is_drawn(values: float) -> None:
    line: list[CurvePoint | None] = [CurvePoint(each, values, values, 0.0) for each in range(131)]
    assert drawn({"one": [line]}, 130).count("NaN") == 0


def test_the_command_writes_an_image_that_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    arguments = ("--profile", "best-fit", "--inflate", "0.2", "--plot", str(path))
    assert main(["simulate", *TRACE, *arguments]) == 0
    image = path.read_text()
    assert [text for _, text in texts(image)].count("best-fit") == 2
    assert "http" not in image.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--plot", "out.png"), "--plot out.png: the name must end in .svg"),
        (("--plot", "/absent/out.svg"), "--plot /absent/out.svg: cannot be written there"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *TRACE, "--profile", "best-fit", *arguments]) == 2
    assert capsys.readouterr().err == f"stellwerk: {problem}\n"


@pytest.mark.parametrize(
    ("option", "name"),
    [("--plot", "a.svg"), ("--html", "a.html"), ("--curve", "a.csv"), ("--curve", "a.json")],
)
def test_what_is_written_takes_the_place_of_its_like_alone(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    command = ["simulate", *TRACE, "--profile", "best-fit", "--inflate", "0.2", option, str(path)]
    assert main(command) == 0
    assert main(command) == 0
    capsys.readouterr()
    path.write_text("mine\n")
    assert main(command) == 2
    problem = f"stellwerk: {option} {path}: exists and was not written by Stellwerk\n"
    assert capsys.readouterr().err == problem
    assert path.read_text() == "mine\n"


def test_pods_without_gpus_have_no_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods, image = tmp_path / "pods.csv", tmp_path / "out.svg"
    pods.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1024,0,0\n")
    trace = ("--nodes", str(DATA / "nodes.csv"), "--pods", str(pods))
    assert main(["simulate", *trace, "--profile", "default", "--plot", str(image)]) == 2
    assert "--plot shows loads of GPUs" in capsys.readouterr().err
    assert not image.exists()
