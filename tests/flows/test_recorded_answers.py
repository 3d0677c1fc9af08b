"""The answers of the operator's port, and their tables, are the recorded ones to the letter."""

import pytest

from tests.support.explaining_port import explaining_port
from tests.support.json_schema import described
from tests.support.recorded_answers import STORIES, answers_of, as_text, recorded


@pytest.mark.parametrize("name", STORIES)
async def test_answers_are_as_recorded(name: str) -> None:
    assert as_text(await answers_of(STORIES[name])) == recorded(name)


async def test_the_document_describes_what_it_described() -> None:
    async with explaining_port() as port:
        _, document = await port.get("/openapi/v3")
    assert as_text(described(document)) == recorded("openapi")
