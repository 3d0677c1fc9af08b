"""Of texts from outside only what is listed gets into a support bundle."""

import pytest

from stellwerk_cli.commands.diagnosis.allowed_text import (
    LEFT_OUT,
    dump_line,
    image,
    log_line,
    metric_lines,
    named,
    version,
    word,
)

KNOWN = frozenset({"node-1", "default/web", "stellwerk"})
HEAD = "2026-01-01 00:00:00,000 INFO    stellwerk.app:"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("stellwerk-1_0f3a.b", None, id="the holder of a lease"),
        pytest.param("system:serviceaccount:stellwerk:stellwerk", None, id="a user"),
        pytest.param("team/web-0", None, id="a pod"),
        pytest.param("https://example/T0KEN", LEFT_OUT, id="a URL"),
        pytest.param("user:secret@host", LEFT_OUT, id="a password before a host"),
        pytest.param("two words", LEFT_OUT, id="a sentence"),
        pytest.param("x" * 300, LEFT_OUT, id="longer than a name"),
        pytest.param(7, LEFT_OUT, id="no text"),
    ],
)
def test_names_are_made_of_a_names_characters(text: object, shown: str | None) -> None:
    assert named(text) == (text if shown is None else shown)


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("stellwerk:0.1.0", True),
        ("registry.example:5000/team/stellwerk:1.2", True),
        (f"registry.example/stellwerk@sha256:{'0' * 64}", True),
        ("https://user:secret@registry.example/stellwerk", False),
        ("user:secret@registry.example/stellwerk", False),
    ],
)
def test_images_have_no_credentials(text: str, *, is_shown: bool) -> None:
    assert (image(text) == text) == is_shown


def test_reasons_are_words_and_versions_begin_with_a_number() -> None:
    assert (word("ImagePullBackOff"), word("a b")) == ("ImagePullBackOff", LEFT_OUT)
    assert (version("v1.36.2+k3s1"), version("secret")) == ("v1.36.2+k3s1", LEFT_OUT)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(
            f"{HEAD} serving stellwerk with 2 nodes",
            "2026-01-01 00:00:00,000 INFO stellwerk.app: serving stellwerk with 2 nodes",
            id="a sentence with known values",
        ),
        pytest.param(
            f"{HEAD} serving hunter2 with 2 nodes",
            "2026-01-01 00:00:00,000 INFO stellwerk.app: serving … with 2 nodes",
            id="a sentence with another value",
        ),
        pytest.param(
            f"{HEAD} cannot tell whether Pod can be watched: cannot list /x?key=1: 403 Forbidden",
            "2026-01-01 00:00:00,000 INFO stellwerk.app: cannot tell whether … can be watched: "
            "cannot list … 403 Forbidden",
            id="an error with its status",
        ),
        pytest.param(
            f"{HEAD} password=hunter2",
            "2026-01-01 00:00:00,000 INFO stellwerk.app: …",
            id="a sentence of another program",
        ),
        pytest.param(
            '{"time": "2026-01-01T00:00:00.000Z", "level": "info", "logger": "stellwerk.app", '
            '"message": "serving hunter2 with 3 nodes", "password": "hunter2"}',
            "2026-01-01T00:00:00.000Z info stellwerk.app: serving … with 3 nodes",
            id="a line of JSON",
        ),
        pytest.param('{"message": 1', LEFT_OUT, id="a line that is not JSON"),
        pytest.param("[1]", LEFT_OUT, id="a list"),
        pytest.param(
            "Traceback (most recent call last):", "Traceback (most recent call last):", id="trace"
        ),
        pytest.param(
            '  File "/home/me/hunter2/site-packages/stellwerk/app.py", line 7, in run',
            '  File "stellwerk/app.py", line 7, in run',
            id="a frame",
        ),
        pytest.param("    token = 'hunter2'", LEFT_OUT, id="the source of a frame"),
        pytest.param("KeyError: 'hunter2'", "KeyError: …", id="what was raised"),
        pytest.param("hunter2", LEFT_OUT, id="anything else"),
    ],
)
def test_lines_of_logs_are_known_sentences(line: str, shown: str) -> None:
    assert log_line(line, KNOWN) == shown


def test_a_long_line_is_no_work() -> None:
    for line in ("a" * 1_000_000, " File " * 100_000, "{" * 100_000, f"{HEAD} {': ' * 100_000}"):
        assert len(log_line(line, KNOWN)) < 100


def test_metrics_have_own_families_and_labels_that_are_names() -> None:
    text = (
        "# HELP scheduler_pending_pods secret\n"
        'scheduler_pending_pods{queue="active"} 3\n'
        'stellwerk_extender_duration_seconds_bucket{extender="http://u:hunter2@x",le="+Inf"} 1\n'
        'secret_family{queue="active"} 3\n'
        'scheduler_pending_pods{queue="hunter 2"} 3\n'
        'scheduler_pending_pods{queue="active"} hunter2\n'
        "process_open_fds 7.0\n"
    )
    assert list(metric_lines(text)) == [
        'scheduler_pending_pods{queue="active"} 3',
        'stellwerk_extender_duration_seconds_bucket{extender="…",le="+Inf"} 1',
        'scheduler_pending_pods{queue="…"} 3',
        "process_open_fds 7.0",
    ]


def test_lines_of_dumps_hold_names_and_amounts() -> None:
    line = "  default/web: requests cpu=1000,example.com/gpu=1, assumed"
    assert dump_line(line) == line
    assert dump_line("node http://u:p@x") == LEFT_OUT
