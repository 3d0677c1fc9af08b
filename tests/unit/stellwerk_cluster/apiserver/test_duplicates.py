"""Fields that stand twice, in bodies of any depth."""

import orjson
import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apiserver.duplicates import duplicate_fields


def nested(depth: int, innermost: str) -> bytes:
    return ('{"a":' * depth + innermost + "}" * depth).encode()


def paths(content: bytes) -> list[str]:
    return duplicate_fields(content, orjson.loads(content))


def test_a_field_that_stands_twice_is_named_by_its_path() -> None:
    assert paths(b'{"spec":{"a":1,"b":2,"a":3}}') == ["spec.a"]
    assert paths(b'{"spec":{"a":1,"b":2}}') == []


def test_deeper_than_json_is_written_it_is_still_found() -> None:
    assert paths(nested(300, '{"b":1,"b":2}')) == [".".join(["a"] * 300) + ".b"]
    assert paths(nested(300, "1")) == []


def test_what_is_too_deep_to_be_followed_is_refused() -> None:
    content = nested(1000, "1")
    with pytest.raises(StatusError) as refused:
        duplicate_fields(content, orjson.loads(content))
    assert refused.value.code == 400
