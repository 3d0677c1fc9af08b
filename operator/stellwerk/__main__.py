"""`python -m stellwerk` and the `stellwerk` command."""

import sys

from stellwerk.cli import main
from stellwerk.commands.completion import REQUEST


def complete() -> int:
    """`kubectl_complete-stellwerk`: kubectl hands over the words after `kubectl stellwerk`."""
    return main([REQUEST, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
