"""All functions that Kubernetes v1.36 gives to rules and selectors."""

from __future__ import annotations

from typing import Final

from stellwerk.cel.library.conversions import CONVERSIONS
from stellwerk.cel.library.formats import FORMATS
from stellwerk.cel.library.lists import LISTS
from stellwerk.cel.library.moments import MOMENTS
from stellwerk.cel.library.network import NETWORK
from stellwerk.cel.library.operators import OPERATORS
from stellwerk.cel.library.optionals import OPTIONALS
from stellwerk.cel.library.patterns import PATTERNS
from stellwerk.cel.library.quantities import QUANTITIES
from stellwerk.cel.library.strings import STRINGS
from stellwerk.cel.library.versions import VERSIONS
from stellwerk.cel.signatures import Library

KUBERNETES: Final = Library(
    OPERATORS,
    CONVERSIONS,
    MOMENTS,
    STRINGS,
    PATTERNS,
    OPTIONALS,
    LISTS,
    QUANTITIES,
    VERSIONS,
    NETWORK,
    FORMATS,
)
