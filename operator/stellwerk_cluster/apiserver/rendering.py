"""Objects and lists in the form a client accepts: JSON, YAML, protobuf, Table, metadata.

Called by the HTTP layer and by watches. Invariant: plain JSON is put together from the stored
bytes, never serialised again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson
import yaml
from typing_extensions import override

from stellwerk_cluster.apimachinery import protobuf
from stellwerk_cluster.apimachinery.conversion import from_storage, is_converted
from stellwerk_cluster.apimachinery.failures import ACCEPTED_BODIES, StatusError, bad_request
from stellwerk_cluster.apimachinery.json_text import go_json
from stellwerk_cluster.apimachinery.messages import has_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apiserver.listing import ListPage
    from stellwerk_cluster.apiserver.tables import TableConvertor, TableConvertors
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject

JSON: Final = "application/json"
YAML: Final = "application/yaml"
_AVAILABLE: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS: Final = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
_ANY: Final = ("*/*", "application/*", "*")
_TRANSFORMING: Final = frozenset(("as", "g", "v"))
"""Parameters of a media type that name another kind than the path's."""
_PARTIAL: Final = "PartialObjectMetadata"
_FINISHED_TEXT: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The media type, the transformation and the detail that one request asks for."""

    media_type: str = JSON
    transform: str = ""
    """Table, PartialObjectMetadata, PartialObjectMetadataList, or empty for the objects
    themselves.
    """
    version: str = "v1"
    include: str = "Metadata"
    """The part of objects that the rows of a table carry beside their cells: Metadata, Object or
    None."""

    def including(self, query: Mapping[str, str]) -> ResponseFormat:
        """The form with the query's includeObject.

        Raises:
            StatusError: it has a value it may not have (400).
        """
        include = query.get("includeObject", "")
        if not include or self.transform != "Table":
            return self
        if include not in ("Metadata", "Object", "None"):
            message = (
                "Unable to convert to Table as requested: includeObject: Invalid value: "
                f'"{include}": '
                "must be 'Metadata', 'Object', 'None', or empty"
            )
            raise bad_request(message)
        return replace(self, include=include)

    def for_one(self, kind: ResourceKind) -> ResponseFormat:
        """The form for a single object.

        Raises:
            StatusError: the form is only for lists (406).
        """
        if self.transform == f"{_PARTIAL}List":
            raise self._misplaced("not a list", kind, kind.kind)
        return self

    def for_many(self, kind: ResourceKind) -> ResponseFormat:
        """The form for a list.

        Raises:
            StatusError: the form is only for single objects (406).
        """
        if self.transform == _PARTIAL:
            raise self._misplaced("a list", kind, kind.list_name)
        return self

    def _misplaced(self, is_what: str, kind: ResourceKind, name: str) -> StatusError:
        group = kind.group.partition(".")[0] or "core"
        if kind.custom:
            group, name = (
                "unstructured",
                "UnstructuredList" if is_what == "a list" else "Unstructured",
            )
        message = (
            f"you requested {self.transform}, but the requested object is {is_what} "
            f"(*{group}.{name})"
        )
        return StatusError(406, "NotAcceptable", message)


def _not_acceptable(available: str) -> StatusError:
    message = f"406: Not Acceptable\n\nAvailable representations: {available}"
    return StatusError(406, "NotAcceptable", message, details={})


def _not_among_accepted(accepted: str = ACCEPTED_BODIES) -> StatusError:
    message = f"only the following media types are accepted: {accepted}"
    return StatusError(406, "NotAcceptable", message)


PLAIN: Final = ResponseFormat()


def negotiate(
    accept: str,
    kind: ResourceKind | None = None,
    *,
    streams: bool = False,
    watch: bool = False,
    tables: bool = True,
) -> ResponseFormat:
    """The best form of an Accept header; protobuf only if the kind has a message.

    As in kube-apiserver, its router looks at the media types alone, and at those of built-in kinds
    only; what passes it is refused by its parameters, in other words. `streams`: lists and watches
    are served under the path; `watch`: a watch is asked for; `tables`: the answer has columns.

    Raises:
        StatusError: nothing in it can be produced (406).
    """
    if accept in ("", "*/*", JSON):
        return PLAIN
    clauses = list(_clauses(accept))
    if kind is None or not kind.custom:
        _check_routed(clauses, f"{_AVAILABLE}, {_STREAMS}" if streams else _AVAILABLE)
    for media_type, named in clauses:
        if not _is_known(named) or (named.get("as") == "Table" and not tables):
            continue
        transform, version = named.get("as", ""), named.get("v", "v1")
        if media_type in (JSON, *_ANY):
            return ResponseFormat(JSON, transform, version)
        if media_type == YAML and watch:
            raise _not_among_accepted(_STREAMS)
        if media_type == YAML:
            return ResponseFormat(YAML, transform, version)
        if (
            media_type == protobuf.MEDIA_TYPE
            and not transform
            and not watch
            and kind is not None
            and writes_protobuf(kind)
        ):
            return ResponseFormat(protobuf.MEDIA_TYPE)
    raise _not_among_accepted()


def check_acceptable(accept: str, *, json_only: bool = False, by_router: bool = True) -> None:
    """Refuse an Accept header that has none of the forms of a document about the API itself.

    `json_only`: it has that one, whatever the parameters; `by_router`: kube-apiserver's router
    refuses it before anything looks further.

    Raises:
        StatusError: it has none of them (406).
    """
    if not accept:
        return
    clauses = list(_clauses(accept))
    if by_router:
        _check_routed(clauses, JSON if json_only else _AVAILABLE, json_only=json_only)
    if json_only:
        return
    forms = (*_ANY, JSON, YAML, protobuf.MEDIA_TYPE)
    if not any(
        media_type in forms and not named.keys() & _TRANSFORMING and _is_known(named)
        for media_type, named in clauses
    ):
        raise _not_among_accepted()


def _clauses(accept: str) -> Iterable[tuple[str, dict[str, str]]]:
    """Media types and parameters, the best first: by quality, the specific ones before others."""
    found = []
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        named = dict(part.split("=", 1) for part in parameters if "=" in part)
        try:
            quality = float(named.get("q", "1"))
        except ValueError:
            quality = 1.0
        found.append((-quality, media_type in _ANY, media_type, named))
    return [(media_type, named) for *_, media_type, named in sorted(found, key=lambda one: one[:2])]


def _check_routed(
    clauses: Iterable[tuple[str, object]], available: str, *, json_only: bool = False
) -> None:
    routed = {"*/*", JSON} if json_only else {"*/*", JSON, YAML, protobuf.MEDIA_TYPE}
    if routed.isdisjoint(media_type for media_type, _named in clauses):
        raise _not_acceptable(available)


def _is_known(named: Mapping[str, str]) -> bool:
    """Whether the parameters ask for a transformation and a stream that there are, if for any."""
    if named.get("stream", "") not in ("", "watch"):
        return False
    return not named.keys() & _TRANSFORMING or (
        named.get("as") in ("Table", _PARTIAL, f"{_PARTIAL}List")
        and named.get("g") == "meta.k8s.io"
        and named.get("v") in ("v1", "v1beta1")
    )


def writes_protobuf(kind: ResourceKind) -> bool:
    """Whether objects of the kind can be answered as protobuf."""
    return not kind.custom and has_message(kind.type_name)


class Renderer:
    """Turns entries into bytes; holds the printers of tables."""

    def __init__(self, printers: TableConvertors) -> None:
        """Print tables with `printers`."""
        self._printers = printers

    def one(self, kind: ResourceKind, entry: Entry, form: ResponseFormat) -> bytes:
        """One object."""
        if form.transform == "Table":
            version: JsonObject = {"resourceVersion": str(entry.revision)}
            return _written(self._table(kind, [entry.obj], version, form), form)
        if form.transform == _PARTIAL:
            return _written(_partial(entry.obj, form), form)
        if form.media_type == YAML:
            return to_yaml(from_storage(kind, entry.obj))
        if form.media_type == protobuf.MEDIA_TYPE:
            return protobuf.write_body(kind.type_name, from_storage(kind, entry.obj))
        if is_converted(kind):
            return go_json(from_storage(kind, entry.obj))
        return entry.data

    def many(self, kind: ResourceKind, page: ListPage, form: ResponseFormat) -> Iterator[bytes]:
        """A list, in the pieces that it is sent in."""
        metadata: JsonObject = {"resourceVersion": str(page.revision)}
        if page.token or (kind.custom and not form.transform):
            metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if form.transform or form.media_type != JSON or is_converted(kind):
            yield self._derived_list(kind, page, metadata, form)
            return
        yield b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
            kind.list_name.encode(),
            kind.api_version.encode(),
            orjson.dumps(metadata),
        )
        yield from list_items(kind, page.entries)
        yield b"]}"

    def _derived_list(
        self, kind: ResourceKind, page: ListPage, metadata: JsonObject, form: ResponseFormat
    ) -> bytes:
        if form.transform == "Table":
            objects = [entry.obj for entry in page.entries]
            return _written(self._table(kind, objects, metadata, form), form)
        if form.transform == f"{_PARTIAL}List":
            items = [_partial(entry.obj, form) for entry in page.entries]
            version = f"meta.k8s.io/{form.version}"
            return _written(_list_of(f"{_PARTIAL}List", version, metadata, items), form)
        return self._converted_list(kind, page, metadata, form)

    def watched(
        self, kind: ResourceKind, obj: JsonObject, form: ResponseFormat, *, with_columns: bool
    ) -> JsonObject:
        """The object of a watch event, in a form other than plain JSON."""
        if form.transform == "Table":
            metadata = {"resourceVersion": obj["metadata"]["resourceVersion"]}
            table = self._table(kind, [obj], metadata, form)
            return table if with_columns else {**table, "columnDefinitions": None}
        if form.transform:
            return _partial(obj, form)
        return from_storage(kind, obj)

    def _converted_list(
        self, kind: ResourceKind, page: ListPage, metadata: JsonObject, form: ResponseFormat
    ) -> bytes:
        items = [from_storage(kind, entry.obj) for entry in page.entries]
        if not kind.custom:
            items = [
                {name: value for name, value in item.items() if name not in ("kind", "apiVersion")}
                for item in items
            ]
        body = _list_of(kind.list_name, kind.api_version, metadata, items)
        if form.media_type == protobuf.MEDIA_TYPE:
            return protobuf.write_body(f"{kind.type_name}List", body)
        return _written(body, form)

    def _table(
        self,
        kind: ResourceKind,
        objects: Iterable[JsonObject],
        metadata: JsonObject,
        form: ResponseFormat,
    ) -> JsonObject:
        printer = self._printers.printer(kind)
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": metadata,
            "columnDefinitions": printer.definitions(),
            "rows": [_row(printer, kind, obj, form) for obj in objects],
        }


def list_items(kind: ResourceKind, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The bytes of list items with commas between them.

    Items of built-in kinds carry neither kind nor apiVersion.
    """
    prefix = (
        b""
        if kind.custom
        else b'{"kind":"%b","apiVersion":"%b",' % (kind.kind.encode(), kind.api_version.encode())
    )
    cut, begin = len(prefix), b"{" if prefix else b""
    for entry in entries:
        yield begin + entry.data[cut:]
        begin = b",{" if prefix else b","


def _written(body: JsonObject, form: ResponseFormat) -> bytes:
    return to_yaml(body) if form.media_type == YAML else go_json(body)


def to_yaml(body: JsonObject) -> bytes:
    """The object as YAML, keys in order."""
    text: str = yaml.dump(
        body, Dumper=_Dumper, default_flow_style=False, sort_keys=True, allow_unicode=True
    )
    return text.encode()


class _Dumper(yaml.SafeDumper):
    """Writes texts that look like something else in double quotes, and lines as lines."""

    @override
    def represent_str(self, data: str) -> yaml.ScalarNode:
        found: str = self.resolve(yaml.ScalarNode, data, (True, False))  # type: ignore[no-untyped-call]
        plain = found == self.DEFAULT_SCALAR_TAG
        style = None if plain else '"'
        return self.represent_scalar(self.DEFAULT_SCALAR_TAG, data, "|" if "\n" in data else style)

    @override
    def ignore_aliases(self, data: object) -> bool:
        return True  # sets of owned fields are shared between entries


_Dumper.add_representer(str, _Dumper.represent_str)


def _row(
    printer: TableConvertor, kind: ResourceKind, obj: JsonObject, form: ResponseFormat
) -> JsonObject:
    conditions = _row_conditions(kind, obj)
    return {
        "cells": printer.cells(obj),
        **({"conditions": conditions} if conditions else {}),
        "object": _row_object(kind, obj, form),
    }


def _row_conditions(kind: ResourceKind, obj: JsonObject) -> list[JsonObject]:
    """Finished pods are marked, so that clients can hide them."""
    phase = (obj.get("status") or {}).get("phase") if kind.kind == "Pod" else None
    if phase not in _FINISHED_TEXT:
        return []
    text = _FINISHED_TEXT[phase]
    return [{"type": "Completed", "status": "True", "reason": phase, "message": text}]


def _row_object(kind: ResourceKind, obj: JsonObject, form: ResponseFormat) -> JsonObject | None:
    if form.include == "None":
        return None
    return from_storage(kind, obj) if form.include == "Object" else _partial(obj, form)


def _list_of(
    kind: str, api_version: str, metadata: JsonObject, items: list[JsonObject]
) -> JsonObject:
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}


def _partial(obj: JsonObject, form: ResponseFormat) -> JsonObject:
    return {
        "kind": _PARTIAL,
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": obj["metadata"],
    }
