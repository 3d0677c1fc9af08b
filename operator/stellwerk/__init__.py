"""Stellwerk: a Kubernetes scheduler that decides as kube-scheduler does, faster, and says why.

Here are also the old paths of modules that plugins of users import: each gives the names of its
successor, with a warning. Python asks for them where it finds no module of that path.
"""

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:  # it would load much that nothing else needs
    from importlib.abc import Loader

__version__ = "0.1.0"

OLD_MODULES: Final = {
    "stellwerk.framework.cycle_state": "stellwerk.framework.types",
    "stellwerk.framework.filter_result": "stellwerk.framework.types",
    "stellwerk.framework.status": "stellwerk.framework.types",
    "stellwerk.snapshot.changes": "stellwerk.snapshot.columns",
    "stellwerk.snapshot.node_view": "stellwerk.snapshot.snapshot",
}
"""Old path → the module that has its names now."""


class OldModules:
    """Finder and loader of the old paths, in the words of `importlib.abc`."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """The spec of an old path."""
        return ModuleSpec(name, cast("Loader", self)) if name in OLD_MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module of an old path with the names of its successor."""
        successor = OLD_MODULES[module.__name__]
        text = f"{module.__name__} is now {successor}; plugins import stellwerk.plugin_api"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        names = vars(import_module(successor))
        vars(module).update({name: value for name, value in names.items() if name[0] != "_"})


sys.meta_path.append(OldModules())
