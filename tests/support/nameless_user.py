"""`python -m tests.support.nameless_user COMMAND …`: `stellwerk` as a container's user has it.

The user is a number that the system has no name for, and has no home. With `--each` the words are
JSON of several command lines, which run one after the other in this one process; what each printed,
said and ended with is printed as JSON.
"""

import io
import json
import os
import pwd
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final, NoReturn

VARIABLES: Final = ("HOME", "LNAME", "LOGNAME", "USER", "USERNAME", "LANG", "LC_ALL", "LC_CTYPE")


def _unknown(name: Any) -> NoReturn:
    raise KeyError(f"name not found: {name}")


def install() -> None:
    """Take the names, the home and the locale from this process."""
    setattr(pwd, "getpwuid", _unknown)  # noqa: B010 mypy sees a function
    setattr(pwd, "getpwnam", _unknown)  # noqa: B010 as above
    for name in VARIABLES:
        os.environ.pop(name, None)


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command line; returns its status, what it printed and what it said."""
    from stellwerk_cli.cli import main  # noqa: PLC0415 imported by the user without a name

    printed, said = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(said):
        try:
            status = main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, printed.getvalue(), said.getvalue()


if __name__ == "__main__":
    install()
    if sys.argv[1] == "--each":
        answers = [run(words) for words in json.loads(sys.argv[2])]
        sys.stdout.write(json.dumps(answers))
    else:
        from stellwerk_cli.cli import main

        sys.exit(main())
