import asyncio
import time
from functools import partial

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
from stellwerk_cluster.apiserver.bodies import (
    delete_options_body,
    duplicate_fields,
    forget_ahead,
    json_of,
    object_body,
    plain_body,
    read_ahead,
    yaml_of,
)
from stellwerk_cluster.registry.write_options import WriteOptions

KINDS = KindTable()
GROUPS = {"deployments": "apps", "customresourcedefinitions": "apiextensions.k8s.io"}
JSON = "application/json"
YAML = "application/yaml"
_PARSE = "couldn't get version/kind; json parse error: "


def _kind(plural: str) -> ResourceKind:
    return KINDS.resource(plural, GROUPS.get(plural, ""))


def refusal(content: bytes, plural: str = "deployments", media_type: str = JSON) -> str:
    with pytest.raises(StatusError) as caught:
        object_body(content, media_type, _kind(plural), KINDS)
    assert caught.value.code == 400
    return caught.value.message


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b"{x}", "invalid character 'x' looking for beginning of object key string ({x})"),
        (
            b'{"a":[1,2,3,4,5,6,7,8,9,0,1,2,3,4,}',
            (
                "invalid character '}' looking for beginning of value "
                '({"a":[1,2,3,4,5,6,7,8,9,0,1,2, ...)'
            ),
        ),
        (b"nul", "unexpected end of JSON input (6e756c)"),
        (
            b'{"kind": 5}',
            'json: cannot unmarshal number into Go struct field .kind of type string ({"kind": 5})',
        ),
    ],
)
def test_a_body_that_is_no_json_is_refused_with_its_beginning(content: bytes, why: str) -> None:
    head = "the object provided is unrecognized (must be of type Deployment)"
    assert refusal(content) == f"{head}: {_PARSE}{why}"


def test_a_version_with_two_slashes_is_none() -> None:
    assert "unexpected GroupVersion string: a/b/c" in refusal(b'{"apiVersion": "a/b/c"}')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'{"apiVersion": "apps/v1", "kind": "ReplicaSet"}',
            (
                'ReplicaSet in version "v1" cannot be handled as a Deployment: converting '
                "(v1.ReplicaSet) to (apps.Deployment): unknown conversion"
            ),
        ),
        (
            b'{"apiVersion": "apps/v9", "kind": "Deployment"}',
            (
                'Deployment in version "v9" cannot be handled as a Deployment: no kind '
                '"Deployment" is registered for version "apps/v9" '
                'in scheme "pkg/api/legacyscheme/scheme.go:30"'
            ),
        ),
        (
            b'{"metadata": []}',
            (
                'Deployment in version "v1" cannot be handled as a Deployment: json: cannot '
                "unmarshal array into Go struct field Deployment.metadata of type v1.ObjectMeta"
            ),
        ),
    ],
)
def test_a_body_of_another_kind_is_refused(content: bytes, message: str) -> None:
    assert refusal(content) == message


def test_null_is_an_object_with_nothing_in_it() -> None:
    assert object_body(b"null", JSON, KINDS.resource("pods"), KINDS) == {}


def test_yaml_is_refused_with_the_line_that_is_wrong() -> None:
    assert "): yaml: line " in refusal(b"a: b\nc: [\n", media_type=YAML)


def test_options_of_a_delete_are_refused_in_the_decoders_words() -> None:
    with pytest.raises(StatusError) as caught:
        delete_options_body(b"[1]", JSON)
    assert caught.value.message.startswith(f"{_PARSE}json: cannot unmarshal array into Go value")


@given(
    content=st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=60).map(lambda raw: b"k8s\0" + raw),
        st.text('{}[]:,"k8s- \n&*!|>', max_size=30).map(str.encode),
    ),
    media_type=st.sampled_from([JSON, YAML, "application/vnd.kubernetes.protobuf", "", "x"]),
    plural=st.sampled_from(["pods", "deployments", "bindings", "customresourcedefinitions"]),
)
def test_any_bytes_are_an_object_or_refused(content: bytes, media_type: str, plural: str) -> None:
    readers = (
        partial(object_body, content, media_type, _kind(plural), KINDS),
        partial(plain_body, content, media_type, "Eviction", KINDS, WriteOptions()),
        partial(delete_options_body, content, media_type),
    )
    codes = set()
    for read in readers:
        try:
            assert isinstance(read(), dict)
        except StatusError as error:
            codes.add(error.code)
    assert codes <= {400, 415}


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


LONG = b"x" * (70 << 10)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        pytest.param(b'{"a": "%b"}' % LONG, "application/json", id="JSON"),
        pytest.param(b"a: %b\nb: [1, 2]\na: 3\n" % LONG, "application/yaml", id="YAML"),
        pytest.param(b"a: &x {b: 1}\nc: *x\nd: %b\n" % LONG, "application/yaml", id="aliases"),
        pytest.param(b'{"a": "%b", }' % LONG, "application/json", id="no JSON"),
        pytest.param(b"a: [%b\n" % LONG, "application/yaml", id="no YAML"),
    ],
)
async def test_a_long_body_that_is_read_ahead_is_the_same(content: bytes, media_type: str) -> None:
    read = yaml_of if media_type == "application/yaml" else json_of

    def outcome() -> object:
        try:
            return read(content)
        except ValueError as error:
            return type(error), str(error)

    at_once = outcome()
    await read_ahead(content, media_type)
    assert outcome() == at_once
    assert outcome() is outcome() or isinstance(at_once, tuple)
    forget_ahead()
    assert outcome() == at_once


@pytest.mark.parametrize("media_type", [YAML, JSON, "application/apply-patch+yaml"])
async def test_a_body_of_many_parts_is_too_large_before_they_are_made(media_type: str) -> None:
    keys = [f"k{number}" for number in range(230_000)]
    content = b"data:\n" + "".join(f"  {key}: a\n" for key in keys).encode()
    if media_type == JSON:
        content = orjson.dumps({"data": dict.fromkeys(keys, "a")})
    began = time.process_time()
    with pytest.raises(StatusError, match="more than 60000 keys and values") as caught:
        await read_ahead(content, media_type)
    assert caught.value.code == 413
    # To make the object takes several seconds; counting its parts takes half a one here.
    assert time.process_time() - began < 2


@pytest.mark.parametrize("media_type", [YAML, JSON])
@pytest.mark.parametrize("values", [59_995, 59_996])
async def test_keys_and_values_are_counted_alike(values: int, media_type: str) -> None:
    """The mapping, two keys, the list and the text are five more."""
    content = orjson.dumps({"a": [1] * values, "b": "x" * (64 << 10)})
    if values == 59_996:
        with pytest.raises(StatusError):
            await read_ahead(content, media_type)
    else:
        await read_ahead(content, media_type)
        forget_ahead()


async def test_others_have_their_turn_while_a_long_body_is_read() -> None:
    content = b"a:\n" + b"".join(b"  k%d: {b: [1, 2, 3]}\n" % number for number in range(8_000))
    longest, last, reading = 0.0, time.perf_counter(), True

    async def look() -> None:
        nonlocal longest, last
        while reading:
            await asyncio.sleep(0)
            longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

    looking = asyncio.create_task(look())
    began = time.perf_counter()
    await read_ahead(content, "application/yaml")
    took, reading = time.perf_counter() - began, False
    await looking
    assert longest < took / 3
