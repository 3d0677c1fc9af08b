"""What import-linter cannot say of its own contracts: each module of profiles stands in a layer."""

import tomllib

from tests.support.repository import ROOT


def test_each_module_of_profiles_has_its_height() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = (each for each in contracts["contracts"] if each.get("containers") == ["stellwerk"])
    names = {
        name.strip() for layer in layers["layers"] for name in layer.replace("|", ":").split(":")
    }
    folder = ROOT / "operator" / "stellwerk" / "profiles"
    present = {path.stem for path in folder.iterdir() if not path.name.startswith("_")}
    assert {f"profiles.{name}" for name in present} <= names
