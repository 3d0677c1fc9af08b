"""Seeds of runs under faults: fixed, so that a change is not failed by chance, or asked for."""

import os

_VARIABLE = "STELLWERK_FAULT_SEED"


def fault_seed(usual: int) -> int:
    """The seed of the environment variable STELLWERK_FAULT_SEED, or the usual one."""
    return int(os.environ.get(_VARIABLE, usual))
