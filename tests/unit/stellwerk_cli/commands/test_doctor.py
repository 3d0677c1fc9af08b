"""The table of a diagnosis fits 80 columns."""

import io

from stellwerk.answers.diagnosis import DoctorReport, Finding
from stellwerk_cli.commands.doctor import print_diagnosis
from stellwerk_cli.commands.printer import console


def test_a_finding_fits_80_columns_and_its_texts_are_no_markup() -> None:
    finding = Finding(
        check="operator",
        state="failed",
        what=f"pod {'x' * 120}: the image cannot be pulled",
        remedy="name another one",
        quoted=["[red]not red[/] \x1b[31m\n" + "y" * 200, "[/unclosed"],
    )
    report = DoctorReport(state="failed", items=[finding, finding])
    shown = io.StringIO()
    print_diagnosis(report, console(shown))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("failed   operator: ")
    assert "         > name another one" in lines
    assert "[red]not red[/]  [31m" in shown.getvalue()
    assert "[/unclosed" in shown.getvalue()
    assert lines[-1] == "0 ok, 0 warning, 2 failed, 0 unknown"
    wide = console(shown := io.StringIO())
    wide.is_wide = True
    print_diagnosis(report, wide)
    assert len(shown.getvalue().splitlines()) == 9
