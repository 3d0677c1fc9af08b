"""The table of a dump says first what differs."""

import io

from stellwerk.answers.dump import CacheDifference, CacheDump
from stellwerk_cli.commands.dump import print_dump
from stellwerk_cli.commands.printer import console


def test_a_dump_begins_with_what_differs() -> None:
    dump = CacheDump(
        compared_at="2026-01-01T00:00:00Z",
        comparison="cache compared with the API: 3 missed pods",
        compared=True,
        differences=[CacheDifference(kind="missed pods", count=3, names=["a/[b]"])],
        items=["node n1: allocatable cpu=1, 0 pods", "  [a]/b: requests nothing"],
        stopped="the dump ends here",
    )
    shown = io.StringIO()
    print_dump(dump, console(shown))
    first, second, *rest = shown.getvalue().splitlines()
    assert first.startswith("cache compared with the API: 3 missed pods (")
    assert second == "missed pods: a/[b] and 2 more"
    assert rest == [*dump.items, "the dump ends here"]
