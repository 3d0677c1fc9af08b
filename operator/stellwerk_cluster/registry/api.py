"""The verbs: create, read, update and patch objects, under the rules of their kinds.

The HTTP layer, the controllers and the hollow kubelets all write through `Api`. Every method is
synchronous and runs to its end without yielding, so that each request is atomic without a lock.
Invariant: whatever is in the store went through decode, default, prepare, admit, validate.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.admission.metadata import metadata_create_causes, metadata_update_causes
from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.admission.quota_admission import new_usage
from stellwerk_cluster.admission.quotas import QUOTAS
from stellwerk_cluster.admission.strategies import strategy_of
from stellwerk_cluster.admission.strategy import Reader
from stellwerk_cluster.apimachinery import patching
from stellwerk_cluster.apimachinery.failures import (
    already_exists,
    bad_request,
    bad_value,
    first_causes,
    internal,
    invalid,
    not_found,
    unsupported_patch,
)
from stellwerk_cluster.apimachinery.names import NAME_ALPHABET
from stellwerk_cluster.apimachinery.objects import (
    JsonValue,
    Key,
    is_terminating,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.schema import DecodeError, decode, empty_field
from stellwerk_cluster.apimachinery.views import from_storage, to_storage
from stellwerk_cluster.registry.custom_kinds import CustomKinds
from stellwerk_cluster.registry.entries import Entry
from stellwerk_cluster.registry.write_rules import (
    NEVER_GIVEN,
    bad_patch,
    cannot_handle,
    check_body_name,
    check_body_namespace,
    check_version,
    keep_all_but_status,
    keep_field,
    keep_server_owned,
    kind_as_given,
    kind_causes,
    shown_warnings,
    specification,
    terminating_namespace,
    waits_for_more,
    wrong_uid,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from random import Random  # noqa: TID251  (its type only: the generator is injected)

    from stellwerk.clock import Clock
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Strategy
    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.registry.store import Store

_SUFFIX_LENGTH: Final = 5
_LONGEST_PREFIX: Final = 58


@dataclass(slots=True)
class WriteOptions:
    """What a write request says beside its object, and the warnings that its answer carries."""

    dry_run: bool = False
    field_validation: str = "Warn"
    warnings: list[str] = field(default_factory=list)


class Api(Reader):
    """The verbs on one object; delete and the subresources have modules of their own."""

    def __init__(self, store: Store, kinds: KindTable, clock: Clock, random: Random) -> None:
        """Serve `kinds` from `store`; `random` makes the suffixes of generated names."""
        self.store = store
        self.kinds = kinds
        self.clock = clock
        self.custom = CustomKinds(kinds)
        self.plugins = DEFAULT_PLUGINS
        """The admission plugins that are on."""
        self._random = random

    # What admission reads (admission.strategy.Reader).

    @override
    def find(self, storage_name: str, namespace: str, name: str) -> JsonObject | None:
        """The present object of that name, or None."""
        entry = self.store.collection(storage_name).get((namespace, name))
        return entry.obj if entry else None

    @override
    def all(self, storage_name: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """All present objects of a resource, parsed one after the other."""
        return (entry.obj for entry in self.store.collection(storage_name).entries(namespace))

    @override
    def enabled(self, plugin: str) -> bool:
        """Whether an admission plugin is on."""
        return plugin in self.plugins

    @override
    def now(self) -> datetime:
        """The wall-clock time."""
        return self.clock.now()

    # Reading.

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Entry:
        """The present version of an object.

        Raises:
            StatusError: it does not exist (404).
        """
        entry = self.store.collection(kind.storage_name).get((namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry

    # Writing.

    def create(
        self,
        kind: ResourceKind,
        namespace: str,
        body: JsonObject,
        options: WriteOptions | None = None,
    ) -> Entry:
        """Store a new object.

        Raises:
            StatusError: the body is malformed, refused by admission, invalid, or exists.
        """
        options = options or WriteOptions()
        obj = self.decode(kind, body, options)
        strategy = self.strategy(kind)
        self._begin_metadata(kind, namespace, obj)
        if not strategy.status_in_create and kind.subresource("status"):
            self._reset_status(kind, obj)
        strategy.default(obj)
        strategy.prepare_create(obj, self)
        self._check_namespace(kind, namespace, obj)
        strategy.admit_create(obj, self, kind)
        causes = first_causes(
            kind_causes(kind, body),
            metadata_create_causes(obj, strategy.name_errors, custom=kind.custom),
            strategy.validate(obj),
        )
        if causes:
            raise invalid(kind_as_given(kind, body), obj["metadata"].get("name", ""), causes)
        strategy.check_create(obj, self, kind)
        usage = self._usage(obj, None, kind)
        key: Key = (namespace, obj["metadata"]["name"])
        if self.store.collection(kind.storage_name).get(key) is not None:
            raise already_exists(kind, key[1])
        options.warnings.extend(shown_warnings(strategy.warn(obj, None)))
        if options.dry_run:
            return Entry(key, obj, self.store.revision)
        self._store_usage(usage)
        return self.store.create(kind.storage_name, obj)

    def update(
        self,
        kind: ResourceKind,
        key: Key,
        body: JsonObject,
        options: WriteOptions | None = None,
        *,
        subresource: str = "",
    ) -> Entry:
        """Replace an object, or its status or scale.

        Raises:
            StatusError: as for create; missing (404), changed meanwhile (409).
        """
        options = options or WriteOptions()
        namespace, name = key
        obj = self.decode(kind, body, options)
        metadata = obj.get("metadata") or {}
        check_body_name(name, metadata.get("name", name))
        check_body_namespace(namespace, metadata)
        stored = self.store.collection(kind.storage_name).get(key)
        if stored is None:
            raise not_found(kind, name)
        check_version(kind, name, metadata.get("resourceVersion", ""), stored)
        if metadata.get("uid", stored.obj["metadata"]["uid"]) != stored.obj["metadata"]["uid"]:
            raise wrong_uid(kind, key, metadata["uid"], stored)
        wrong_kind = kind_causes(kind, body)
        if wrong_kind:
            raise invalid(kind_as_given(kind, body), name, wrong_kind)
        return self._replace(kind, stored, obj, options, subresource)

    def patch(
        self,
        kind: ResourceKind,
        key: Key,
        patch: JsonValue,
        media_type: str = patching.MERGE_PATCH,
        options: WriteOptions | None = None,
        *,
        subresource: str = "",
    ) -> Entry:
        """Change parts of an object.

        Raises:
            StatusError: as for update; 415 when the kind does not know this sort of patch.
        """
        options = options or WriteOptions()
        stored = self.get(kind, *key)
        patched = self._patched(kind, stored, patch, media_type)
        try:
            obj = self.decode(kind, patched, options, patch=patch, media_type=media_type)
        except DecodeError as error:
            raise bad_patch(patched, str(error)) from error
        metadata = obj.get("metadata") or {}
        check_body_name(key[1], metadata.get("name", ""))
        check_version(kind, key[1], metadata.get("resourceVersion", ""), stored)
        uid = stored.obj["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            # Two layers of the API server check the metadata of an update, and both report.
            cause = bad_value("metadata.uid", metadata["uid"], "field is immutable")
            raise invalid(kind, key[1], [cause, cause])
        return self._replace(kind, stored, obj, options, subresource)

    def modify(
        self, kind: ResourceKind, key: Key, change: Callable[[JsonObject], JsonObject]
    ) -> Entry:
        """Store `change(object)` without the rules of the kind, for callers that know them.

        `change` must not alter its argument. A change that changes nothing keeps the version.

        Raises:
            StatusError: the object does not exist (404).
        """
        stored = self.get(kind, *key)
        return self._store(kind, stored, change(stored.obj))

    # The steps of a write.

    def strategy(self, kind: ResourceKind) -> Strategy:
        """The rules of a kind."""
        if kind.custom:
            return self.custom.strategy(kind)
        return strategy_of(kind.type_name)

    def decode(
        self,
        kind: ResourceKind,
        body: JsonObject,
        options: WriteOptions,
        *,
        patch: JsonValue = None,
        media_type: str = "",
    ) -> JsonObject:
        """The canonical form of a body; unknown fields become warnings or, if strict, errors.

        Raises:
            StatusError: the body is no object of the kind (400; 422 for a patch).
        """
        try:
            if kind.custom:
                other = patch is None and body.get("kind", kind.kind) != kind.kind
                obj, unknown = self.custom.decode(kind, body, other_kind=other)
            else:
                obj, unknown = decode(kind.type_name, body)
        except DecodeError as error:
            if patch is not None:
                raise bad_patch(body, str(error)) from error
            raise cannot_handle(kind, str(error)) from error
        # Kind and apiVersion come first: rendering cuts them off the bytes of list items.
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        if unknown and options.field_validation != "Ignore":
            texts = [f'unknown field "{path}"' for path in unknown]
            if options.field_validation == "Strict":
                text = f"strict decoding error: {', '.join(texts)}"
                if patch is None:
                    raise cannot_handle(kind, text)
                strategic = media_type == patching.STRATEGIC_PATCH
                raise bad_patch(patch if strategic else body, text, as_map=strategic)
            options.warnings.extend(texts)
        return to_storage(kind, obj)

    def _begin_metadata(self, kind: ResourceKind, namespace: str, obj: JsonObject) -> None:
        metadata = obj.get("metadata") or {}
        check_body_namespace(namespace, metadata)
        if metadata.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise internal(message)
        prefix = metadata.get("generateName", "")
        if prefix and not metadata.get("name"):
            metadata["name"] = self._generated_name(prefix)
        for name in NEVER_GIVEN:
            metadata.pop(name, None)
        if namespace:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if kind.generation:
            metadata["generation"] = 1
        metadata["uid"] = str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = timestamp(self.now())
        obj["metadata"] = metadata

    @staticmethod
    def _reset_status(kind: ResourceKind, obj: JsonObject) -> None:
        """The status of a create body is not the client's to set."""
        if kind.custom:
            obj.pop("status", None)
        else:
            obj["status"] = empty_field(kind.type_name, "status")

    def _generated_name(self, prefix: str) -> str:
        suffix = "".join(self._random.choices(NAME_ALPHABET, k=_SUFFIX_LENGTH))
        return prefix[:_LONGEST_PREFIX] + suffix

    def _check_namespace(self, kind: ResourceKind, namespace: str, obj: JsonObject) -> None:
        if not kind.namespaced:
            return
        found = self.find("namespaces", "", namespace)
        if found is None:
            raise not_found(self.kinds.resource("namespaces"), namespace)
        if is_terminating(found):
            raise terminating_namespace(kind, obj["metadata"].get("name", ""), namespace)

    def _patched(
        self, kind: ResourceKind, stored: Entry, patch: JsonValue, media_type: str
    ) -> JsonObject:
        shown = from_storage(kind, stored.obj)
        if media_type == patching.JSON_PATCH:
            return patching.json_patch(shown, patch)
        if not isinstance(patch, dict):
            raise bad_request("error decoding patch: the patch must be an object")
        if media_type == patching.MERGE_PATCH:
            merged: JsonObject = patching.merge_patch(shown, patch)
            return merged
        if media_type == patching.STRATEGIC_PATCH and not kind.custom:
            return patching.strategic_patch(shown, patch, kind.type_name)
        raise unsupported_patch()

    def _replace(
        self,
        kind: ResourceKind,
        stored: Entry,
        obj: JsonObject,
        options: WriteOptions,
        subresource: str,
    ) -> Entry:
        strategy = self.strategy(kind)
        old = stored.obj
        keep_server_owned(obj, old)
        strategy.default(obj)
        if subresource == "status":
            keep_all_but_status(obj, old, with_metadata=strategy.metadata_by_status)
        elif kind.subresource("status"):
            keep_field(obj, old, "status")
        strategy.prepare_update(obj, old, subresource)
        strategy.admit_update(obj, old, self, kind)
        if (
            kind.generation
            and subresource != "status"
            and specification(kind, obj) != specification(kind, old)
        ):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        layers = (1, 0) if subresource == "status" else strategy.metadata_layers
        causes = first_causes(
            metadata_update_causes(obj, old, layers, custom=kind.custom),
            strategy.validate_update(obj, old, subresource),
        )
        if causes:
            raise invalid(kind, stored.key[1], causes)
        usage = {}
        if subresource != "status":
            options.warnings.extend(shown_warnings(strategy.warn(obj, old)))
            usage = self._usage(obj, old, kind)
        if options.dry_run:
            return Entry(stored.key, obj, stored.revision)
        self._store_usage(usage)
        return self._store(kind, stored, obj)

    def _usage(
        self, obj: JsonObject, old: JsonObject | None, kind: ResourceKind
    ) -> dict[Key, JsonObject]:
        """What the quotas of the namespace have used with an object."""
        return new_usage(obj, old, self, kind) if self.enabled("ResourceQuota") else {}

    def _store_usage(self, usage: dict[Key, JsonObject]) -> None:
        """Write what the quotas of a namespace have used now."""
        kind = self.kinds.resource(QUOTAS)
        for key, used in usage.items():
            self.modify(kind, key, partial(with_value, path=("status", "used"), value=used))

    def _store(self, kind: ResourceKind, stored: Entry, obj: JsonObject) -> Entry:
        if obj == stored.obj:
            return stored
        metadata = obj["metadata"]
        gone = (
            is_terminating(obj) and not metadata.get("finalizers") and not waits_for_more(kind, obj)
        )
        if gone:
            return self.store.remove(kind.storage_name, stored, obj)
        return self.store.replace(kind.storage_name, obj, stored)
