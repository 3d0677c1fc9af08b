"""The verbs: create, read, update and patch objects, under the rules of their kinds.

The HTTP layer, the controllers and the hollow kubelets all write through `Api`. Every method is
synchronous and runs to its end without yielding, so that each request is atomic without a lock.
Invariant: whatever is in the store went through decode, default, prepare, admit, validate.
"""

from __future__ import annotations

import copy
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.admission.resource_quota import QUOTAS, new_usage
from stellwerk_cluster.apimachinery import patching
from stellwerk_cluster.apimachinery.conversion import for_storage, from_storage
from stellwerk_cluster.apimachinery.failures import (
    already_exists,
    bad_value,
    first_errors,
    internal,
    invalid,
    not_found,
    unsupported_patch,
)
from stellwerk_cluster.apimachinery.names import NAME_ALPHABET
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    check_object_parts,
    is_terminating,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.strategy import Reader
from stellwerk_cluster.registry.custom_kinds import CustomKinds
from stellwerk_cluster.registry.decoding import check_patched_kind, decode_body
from stellwerk_cluster.registry.entries import Entry
from stellwerk_cluster.registry.field_manager import FieldManager
from stellwerk_cluster.registry.kind_strategy import strategy_of
from stellwerk_cluster.registry.lease_cache import LeaseCache
from stellwerk_cluster.registry.write_options import WriteOptions
from stellwerk_cluster.registry.write_rules import (
    NEVER_GIVEN,
    check_body_name,
    check_body_namespace,
    check_version,
    in_order,
    keep_all_but_status,
    keep_field,
    keep_server_owned,
    kind_as_given,
    kind_errors,
    set_entries,
    shown_warnings,
    specification,
    terminating_definition,
    terminating_namespace,
    waits_for_more,
    wrong_uid,
)
from stellwerk_cluster.validation.gated import drop_disabled, forbidden_errors
from stellwerk_cluster.validation.metadata import metadata_create_errors, metadata_update_errors
from stellwerk_kube.schema.decoder import empty_field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from random import Random  # noqa: TID251  (its type only: the generator is injected)

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.apimachinery.strategy import KindStrategy
    from stellwerk_cluster.registry.store import Store
    from stellwerk_cluster.registry.user_admission import DeleteAdmission, WriteAdmission
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject, JsonValue


_SUFFIX_CHARACTERS: Final = 5
"""Characters that are added to a generateName (`randomLength`)."""
_MAX_PREFIX_CHARACTERS: Final = 58
"""Characters of a generateName that are kept (`maxGeneratedNameLength`)."""
_MAX_GENERATED_NAMES: Final = 8
"""Names that are tried before one that is taken is refused."""
STATUS_PARTS: Final = ("status", "approval")
"""The subresources through which only the status is written."""
DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
"""The place of definitions in the store."""

_MIN_COUNTED_BYTES: Final = 32 << 10
"""Bytes of an object from which its parts are counted when it is changed; a pod has 4 KiB."""


class Api(Reader):
    """The verbs on one object; delete and the subresources have modules of their own."""

    def __init__(self, store: Store, kinds: KindTable, clock: Clock, random: Random) -> None:
        """Serve `kinds` from `store`; `random` makes the suffixes of generated names."""
        self.store = store
        self.kinds = kinds
        self.clock = clock
        self.plugins = DEFAULT_PLUGINS
        """The admission plugins that are on."""
        self.features: frozenset[str] = frozenset()
        """The feature gates that are on."""
        self.custom = CustomKinds(kinds)
        self.write_admission: list[WriteAdmission] = []
        self.delete_admission: list[DeleteAdmission] = []
        self.field_manager = FieldManager(self.custom, clock)
        self.lease_cache = LeaseCache(clock)
        self._random = random
        self._manager = ""

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
    def feature(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return gate in self.features

    @property
    @override
    def release(self) -> str:
        """The release of Kubernetes that the cluster is."""
        return self.kinds.release

    @override
    def now(self) -> datetime:
        """The wall-clock time."""
        return self.clock.now()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Entry:
        """The present version of an object.

        Raises:
            StatusError: it does not exist (404).
        """
        entry = self.store.collection(kind.storage_name).get((namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry

    def written_by(self, manager: str) -> Api:
        """The API for a writer in process that owns the fields it writes."""
        own = copy.copy(self)
        own._manager = manager  # noqa: SLF001  (of the copy)
        return own

    def create(
        self,
        kind: ResourceKind,
        namespace: str,
        body: JsonObject,
        options: WriteOptions | None = None,
        *,
        applied: list[JsonObject] | None = None,
    ) -> Entry:
        """Store a new object; `applied` is its ownership if it comes from an apply.

        Raises:
            StatusError: the body is malformed, refused by admission, invalid, or exists.
        """
        options = options or WriteOptions()
        obj = decode_body(self.custom, kind, body, options)
        strategy = self.strategy(kind)
        given = (obj.get("metadata") or EMPTY).get("managedFields")
        self._begin_metadata(kind, namespace, obj)
        if not strategy.status_in_create and kind.subresource("status"):
            self._reset_status(kind, obj)
        strategy.default(obj)
        manager = options.manager or self._manager
        if applied is None and manager:
            applied = self.field_manager.created(kind, obj, manager, given)
        drop_disabled(kind.type_name, obj, EMPTY, self.features)
        strategy.prepare_create(obj, self)
        self._check_definition(kind)
        self.check_namespace(kind, namespace, obj["metadata"].get("name", ""))
        for plugin in self.write_admission:
            plugin.admit(kind, obj, None, options.user)
        strategy.admit_create(obj, self, kind)
        errors = first_errors(
            kind_errors(kind, body),
            forbidden_errors(kind.type_name, obj, EMPTY, self.features),
            metadata_create_errors(obj, strategy.name_errors, custom=kind.custom),
            strategy.validate(obj),
        )
        if errors:
            raise invalid(kind_as_given(kind, body), obj["metadata"].get("name", ""), errors)
        strategy.check_create(obj, self, kind)
        usage = self._usage(obj, None, kind)
        key: Key = (namespace, obj["metadata"]["name"])
        existing = self.store.collection(kind.storage_name).get(key)
        if existing is not None:
            raise already_exists(kind, key[1], terminating=is_terminating(existing.obj))
        options.warnings.extend(shown_warnings(strategy.warn(obj, None)))
        if applied:
            obj["metadata"]["managedFields"] = applied
        if options.dry_run:
            obj["metadata"] = in_order(obj["metadata"])
            return Entry(key, obj, self.store.revision)
        self._store_usage(usage)
        # The store sets the version where it stands already.
        obj["metadata"] = in_order({**obj["metadata"], "resourceVersion": ""})
        return self.store.create(kind.storage_name, for_storage(kind, obj))

    def ensure(self, kind: ResourceKind, namespace: str, body: JsonObject) -> Entry:
        """The object of that name, made from the body if it does not exist.

        Raises:
            StatusError: as for create.
        """
        found = self.store.collection(kind.storage_name).get((namespace, body["metadata"]["name"]))
        return found or self.create(kind, namespace, body)

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
        obj = decode_body(self.custom, kind, body, options)
        metadata = obj.get("metadata") or {}
        check_body_namespace(namespace, metadata)
        check_body_name(name, metadata.get("name", ""))
        stored = self.store.collection(kind.storage_name).get(key)
        if stored is None:
            raise not_found(kind, name)
        check_version(kind, name, metadata.get("resourceVersion", ""), stored)
        if metadata.get("uid", stored.obj["metadata"]["uid"]) != stored.obj["metadata"]["uid"]:
            raise wrong_uid(kind, key, metadata["uid"], stored)
        wrong_kind = kind_errors(kind, body)
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
        shown = from_storage(kind, stored.obj)
        patched = patching.patched(shown, patch, media_type, "" if kind.custom else kind.type_name)
        if patched is None:
            raise unsupported_patch(kind)
        if media_type != patching.STRATEGIC_PATCH and not kind.custom:
            check_patched_kind(patched, patch, kind, self.kinds)
        obj = decode_body(self.custom, kind, patched, options, patch=patch, media_type=media_type)
        metadata = obj.get("metadata") or {}
        check_body_namespace(key[0], metadata)
        check_body_name(key[1], metadata.get("name", ""))
        check_version(kind, key[1], metadata.get("resourceVersion", ""), stored)
        uid = stored.obj["metadata"]["uid"]
        if metadata.get("uid", uid) != uid:
            # Two layers of the API server check the metadata of an update, and both report.
            error = bad_value("metadata.uid", metadata["uid"], "field is immutable")
            raise invalid(kind, key[1], [error, error])
        return self._replace(kind, stored, obj, options, subresource)

    def replace_applied(
        self,
        kind: ResourceKind,
        stored: Entry,
        body: JsonObject,
        entries: list[JsonObject],
        options: WriteOptions,
        subresource: str,
    ) -> Entry:
        """Replace an object by what an apply made of it; raises StatusError as update does."""
        check_body_namespace(stored.key[0], body.get("metadata") or {})
        obj = decode_body(self.custom, kind, body, options)
        return self._replace(kind, stored, obj, options, subresource, entries)

    def modify(
        self,
        kind: ResourceKind,
        key: Key,
        change: Callable[[JsonObject], JsonObject],
        *,
        owned_under: str | None = None,
    ) -> Entry:
        """Store `change(object)` without the rules of the kind, for callers that know them.

        `change` must not alter its argument. A change that changes nothing keeps the version.
        Ownership is kept as it is, unless the writer owns what it writes under a subresource (or
        under none: the empty text).

        Raises:
            StatusError: the object does not exist (404).
        """
        stored = self.get(kind, *key)
        obj = change(stored.obj)
        if owned_under is not None and obj is not stored.obj:
            old, owner = stored.obj, (self._manager, owned_under)
            managed = self.field_manager.updated(
                kind, old, obj, owner, None, owned_under, self.strategy(kind)
            )
            obj = {**obj, "metadata": dict(obj["metadata"])}
            set_entries(obj, managed, stored.obj)
        return self._store(kind, stored, obj)

    # The steps of a write.

    def strategy(self, kind: ResourceKind) -> KindStrategy:
        """The rules of a kind."""
        if kind.custom:
            return self.custom.strategy(kind)
        return strategy_of(kind.type_name)

    def _begin_metadata(self, kind: ResourceKind, namespace: str, obj: JsonObject) -> None:
        metadata = obj.get("metadata") or {}
        check_body_namespace(namespace, metadata)
        if metadata.get("resourceVersion"):
            message = "resourceVersion should not be set on objects to be created"
            raise internal(message)
        prefix = metadata.get("generateName", "")
        if prefix and not metadata.get("name"):
            metadata["name"] = self._generated_name(kind, namespace, prefix)
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

    def random_name(self, prefix: str) -> str:
        """A name that begins with the prefix and ends like hardly another."""
        suffix = "".join(self._random.choices(NAME_ALPHABET, k=_SUFFIX_CHARACTERS))
        return prefix[:_MAX_PREFIX_CHARACTERS] + suffix

    def _generated_name(self, kind: ResourceKind, namespace: str, prefix: str) -> str:
        """A random name that is free, unless luck fails several times."""
        collection = self.store.collection(kind.storage_name)
        name = ""
        for _ in range(_MAX_GENERATED_NAMES):
            name = self.random_name(prefix)
            if collection.get((namespace, name)) is None:
                break
        return name

    def _check_definition(self, kind: ResourceKind) -> None:
        definition = self.find(DEFINITIONS, "", kind.storage_name) if kind.custom else None
        if definition is not None and is_terminating(definition):
            raise terminating_definition(kind)

    def check_namespace(self, kind: ResourceKind, namespace: str, name: str) -> None:
        """Whether the namespace of what is created is there and stays: NamespaceLifecycle.

        What is created below an object counts: a binding, an eviction, a token.

        Raises:
            StatusError: it is missing (404), or terminating (403).
        """
        if not kind.namespaced or not self.enabled("NamespaceLifecycle"):
            return
        found = self.find("namespaces", "", namespace)
        if found is None:
            raise not_found(self.kinds.resource("namespaces"), namespace)
        if is_terminating(found):
            raise terminating_namespace(kind, name, namespace)

    def _replace(
        self,
        kind: ResourceKind,
        stored: Entry,
        obj: JsonObject,
        options: WriteOptions,
        subresource: str,
        applied: list[JsonObject] | None = None,
    ) -> Entry:
        if len(stored.data) > _MIN_COUNTED_BYTES:
            # Patch after patch could make an object of more parts than any one body may have.
            metadata = {**(obj.get("metadata") or EMPTY), "managedFields": None}
            check_object_parts({**obj, "metadata": metadata})
        strategy = self.strategy(kind)
        old = from_storage(kind, stored.obj) if kind.converted else stored.obj
        given = (obj.get("metadata") or EMPTY).get("managedFields")
        keep_server_owned(obj, old)
        strategy.default(obj)
        managed = applied
        if managed is None:
            owner = self._owner(options, subresource)
            managed = self.field_manager.updated(
                kind, old, obj, owner, given, subresource, strategy
            )
        if subresource in STATUS_PARTS:
            keep_all_but_status(obj, old, strategy.kept_by_status)
        elif kind.subresource("status"):
            keep_field(obj, old, "status")
        strategy.prepare_update(obj, old, subresource)
        for plugin in self.write_admission:
            plugin.admit(kind, obj, old, options.user)
        drop_disabled(kind.type_name, obj, old, self.features)
        strategy.admit_update(obj, old, self, kind)
        if (
            kind.generation
            and subresource not in STATUS_PARTS
            and specification(kind, obj) != specification(kind, old)
        ):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        layers = (1, 0) if subresource in STATUS_PARTS else strategy.metadata_layers
        errors = first_errors(
            metadata_update_errors(obj, old, layers, custom=kind.custom),
            forbidden_errors(kind.type_name, obj, old, self.features),
            strategy.validate_update(obj, old, subresource),
        )
        if errors:
            raise invalid(kind, stored.key[1], errors)
        set_entries(obj, managed, old)
        usage = {}
        if subresource not in STATUS_PARTS:
            options.warnings.extend(shown_warnings(strategy.warn(obj, old)))
            usage = self._usage(obj, old, kind)
        if options.dry_run:
            return Entry(stored.key, obj, stored.revision)
        self._store_usage(usage)
        return self._store(kind, stored, obj)

    def _owner(self, options: WriteOptions, subresource: str) -> tuple[str, str]:
        """The manager that owns what is written, and the subresource that the ownership names."""
        return options.manager or self._manager, options.shown_subresource or subresource

    def _usage(
        self, obj: JsonObject, old: JsonObject | None, kind: ResourceKind
    ) -> dict[Key, JsonObject]:
        """The usage of the namespace's quotas with an object."""
        return new_usage(obj, old, self, kind) if self.enabled("ResourceQuota") else {}

    def _store_usage(self, usage: dict[Key, JsonObject]) -> None:
        """Write what the quotas of a namespace have used now."""
        kind = self.kinds.resource(QUOTAS)
        for key, used in usage.items():
            self.modify(kind, key, partial(with_value, path=("status", "used"), value=used))

    def _store(self, kind: ResourceKind, stored: Entry, obj: JsonObject) -> Entry:
        obj = for_storage(kind, obj)
        if obj == stored.obj:
            return stored
        metadata = obj["metadata"]
        gone = (
            is_terminating(obj) and not metadata.get("finalizers") and not waits_for_more(kind, obj)
        )
        if gone:
            return self.store.remove(kind.storage_name, stored, obj)
        return self.store.replace(kind.storage_name, obj, stored)
