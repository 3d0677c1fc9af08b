"""`stellwerk up --open`: the page is opened in a browser, or its address is named."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from stellwerk_cli.demo.addresses import Addresses

PAGE = "http://127.0.0.1:8443/?key=k"


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_page_is_opened_or_its_address_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    has_browser: bool,
) -> None:
    opened, started = [], list[list[str]]()

    def start(_kubeconfig: Path, words: Sequence[str]) -> Addresses:
        started.append([*words])
        return Addresses("release", "http://c", "k", "", "http://s", PAGE, "n 1")

    def browser(url: str) -> bool:
        opened.append(url)
        return has_browser

    monkeypatch.setattr("stellwerk_cli.commands.detached_cluster.start", start)
    monkeypatch.setattr("webbrowser.open", browser)
    command = ["up", "--detach", "--open", "--nodes", "2", "--kubeconfig", str(tmp_path / "k")]
    assert main(command) == 0
    printed, said = capsys.readouterr()
    assert opened == [PAGE]
    assert f"Page:       {PAGE}" in printed
    assert "what-if --drain 'n 1'" in printed
    assert ("there is no browser here" in said) == (not has_browser)
    assert started == [["up", "--nodes", "2", "--kubeconfig", str(tmp_path / "k")]]
