"""What the API server says of a text that is no quantity.

Quoted by the schemas for every field of type Quantity.
"""

from typing import Final

SYNTAX: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
"""The expression that the API quotes when it refuses a quantity."""
