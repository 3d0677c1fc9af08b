"""`python -m stellwerk_cli` and the `stellwerk` command."""

import sys

from stellwerk_cli.cli import main
from stellwerk_cli.commands.completion import REQUEST


def complete() -> int:
    """`kubectl_complete-stellwerk`: kubectl hands over the words after `kubectl stellwerk`."""
    return main([REQUEST, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
