import sys
from importlib import import_module

import pytest

from stellwerk import OLD_MODULES


@pytest.mark.parametrize(("old", "new"), OLD_MODULES.items(), ids=OLD_MODULES)
def test_an_old_path_gives_the_names_of_its_successor_and_says_where_they_are(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}") as warned:
        module = import_module(old)
    successor = import_module(new)
    public = [name for name in vars(successor) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(successor, name) for name in public)
    assert len(warned) == 1


def test_the_warning_is_about_the_line_that_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stellwerk.framework.status", raising=False)
    with pytest.warns(DeprecationWarning, match="is now") as warned:
        from stellwerk.framework.status import Status  # type: ignore[import-not-found] # noqa: PLC0415
    assert warned[0].filename == __file__
    assert Status(reasons=("a", "b")).message == "a, b"


def test_other_paths_are_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("stellwerk.framework.no_such_module")
