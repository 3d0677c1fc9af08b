"""A read that is refused, absent or late is said to be so, and is never an empty answer."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stellwerk_cli.commands.diagnosis import survey as module
from stellwerk_cli.commands.diagnosis.survey import Right, Survey, Unseen
from tests.support.fake_api import Answer, client_of, fake_api, refusal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("answer", "unseen"),
    [
        pytest.param(
            refusal(403, "token hunter2 may not", "Forbidden"),
            Unseen("needs the right to list pods in namespace team", forbidden=True),
            id="a right is missing",
        ),
        pytest.param(
            refusal(404, "no such kind", "NotFound"),
            Unseen("the API server has none", absent=True),
            id="there is none",
        ),
        pytest.param(
            refusal(422, "http://user:hunter2@x", "Invalid"),
            Unseen("the API server does not answer that: 422"),
            id="anything else, without the text of the server",
        ),
    ],
)
async def test_a_refusal_is_no_empty_list(answer: Answer, unseen: Unseen, tmp_path: Path) -> None:
    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.answers.append(answer)
        found = await Survey(client, "team", NOW).list("/api/v1/namespaces/team/pods")
        assert found == unseen


async def test_lists_are_read_by_pages_up_to_their_limit(tmp_path: Path) -> None:
    async with fake_api() as api, client_of(api, tmp_path) as client:
        items = [{"n": n} for n in range(2)]
        pages = [{"metadata": {"continue": f"{n}"}, "items": items} for n in range(9)]
        api.answers.extend(Answer(body=page) for page in pages)
        found = await Survey(client, "team", NOW).list("/api/v1/pods", limit=5)
        assert not isinstance(found, Unseen)
        assert len(found) == 5


async def test_a_log_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LINES_SECONDS", 0.2)
    hold = asyncio.Event()
    async with fake_api() as api, client_of(api, tmp_path) as client:
        api.answers.append(Answer(hold=hold))
        found = await Survey(client, "team", NOW).log("team", "web", "main")
        assert found == Unseen("the API server does not answer that: no lines in time")
        hold.set()


def test_a_right_is_put_to_a_review_without_empty_fields() -> None:
    right = Right("get", "pods/log", namespace="team")
    assert right.attributes() == {
        "resourceAttributes": {
            "verb": "get",
            "resource": "pods",
            "subresource": "log",
            "namespace": "team",
        }
    }
    assert Right("get", path="/metrics").attributes() == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"}
    }
