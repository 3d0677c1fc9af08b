"""The address of a cluster and our credentials, from one look at a configuration.

`credentials` looks again when that may have changed. Kubeconfigs and the service account of a pod
are read here; those with an `auth-provider` by kubernetes_asyncio, which is large and loaded for
them alone. Invariant: a look ends in time, and what cannot be used raises a ConfigurationError of
one line.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import quote, urlsplit

import yaml
from typing_extensions import override

from stellwerk.client.exec_plugin import PLUGIN_SECONDS, ExecPlugin
from stellwerk_kube.destinations import EVERYWHERE, Destinations, cluster_domain
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.user_files import NO_HOME, expanded
from stellwerk_kube.yaml_file import parse_yaml, read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stellwerk_kube.clock import Clock
    from stellwerk_kube.destinations import UrlPrefix

REREAD_SECONDS: Final = 60.0
"""Time after which token and certificate files are read again, because they rotate. kubelet
replaces a token long before the old one ends."""
MIN_REREAD_SECONDS: Final = 10.0
"""Shortest time between two readings of credentials, however soon they end."""
_EXPIRY_MARGIN_SECONDS: Final = 120.0
"""Time before their end at which credentials are read again: enough for a plugin that hangs, and
for another attempt."""
_EXPIRY_MARGIN_SHARE: Final = 0.25
"""Largest share of the validity of credentials that this margin takes."""
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ROTATING: Final = ("tokenFile", "client-certificate")

Pem: TypeAlias = Path | bytes
"""A certificate or key: the file that holds it, or its text."""


@dataclass(frozen=True, slots=True)
class Access:
    """An address and credentials for it, as one look at the configuration found them."""

    server: str
    authorization: str | None = None
    authority: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    verify: bool = True
    public_key: str = ""
    """The fingerprint of the key that the server must show, by any authority; empty: any."""
    tls_server_name: str | None = None
    proxy: str | None = None
    stale_after_seconds: float | None = None
    """Time after which to read them again; None: only after the server has refused them."""
    valid_seconds: float = 0.0
    """Time for which requests may use them while a reading that takes long is under way."""
    impersonation: tuple[tuple[str, str], ...] = ()
    """Headers by which a request acts for another user, group by group; empty: it does not."""
    namespace: str | None = None
    """The one of the pod that we run in; None: outside a cluster, or it is not known."""

    def __post_init__(self) -> None:
        """Refuse a server that cannot be one.

        Raises:
            ConfigurationError: it is not an address.
        """
        try:
            address = urlsplit(self.server)
            is_address = address.scheme in {"http", "https"} and (address.port or 1) > 0
        except ValueError:  # a port that is no number, brackets that end nowhere
            is_address = False
        if not is_address:
            raise ConfigurationError(f'the server "{self.server}" is not an http or https address')


class Source(Protocol):
    """A configuration that can be read again and again, for what has changed in it."""

    async def load(self) -> Access:
        """Read it.

        Raises:
            ConfigurationError: what is there cannot be used.
        """
        ...


class InCluster(Source):
    """The service account of the pod that we run in."""

    def __init__(self, environ: Mapping[str, str], directory: Path = _SERVICE_ACCOUNT) -> None:
        self._environ = environ
        self._directory = directory

    @override
    async def load(self) -> Access:
        host = self._environ.get("KUBERNETES_SERVICE_HOST", "")
        port = self._environ.get("KUBERNETES_SERVICE_PORT", "")
        authority = self._directory / "ca.crt"
        try:
            token = (self._directory / "token").read_text(encoding="utf-8").strip()
            content = authority.read_bytes()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"cannot read this pod's service account: {one_line(error)}"
            ) from error
        needed = {"KUBERNETES_SERVICE_PORT": port, "its token": token, "its ca.crt": content}
        for name, value in needed.items():
            if not value:
                raise ConfigurationError(f"cannot use this pod's service account: {name} is empty")
        return Access(
            f"https://{f'[{host}]' if ':' in host else host}:{port}",
            f"Bearer {token}",
            authority,
            stale_after_seconds=REREAD_SECONDS,
            namespace=self._namespace(),
        )

    def _namespace(self) -> str | None:
        """Nothing that requests need: where it is missing, nothing is kept in it."""
        try:
            return (self._directory / "namespace").read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None


def destinations_from(
    access: Access,
    granted: Sequence[UrlPrefix],
    account: Path = _SERVICE_ACCOUNT,
    resolver: Path = Path("/etc/resolv.conf"),
    *,
    in_pod: bool = False,
) -> Destinations:
    """The destinations that profiles may have called from here.

    In a pod with a service account: Services by name, and what is granted. In a pod without one,
    which is a static pod of the control plane: what is granted alone, as its network is the node's.
    Elsewhere what is granted, or everything where nothing is.
    """
    in_cluster = (account / "token").exists()
    if not (in_cluster or in_pod or granted):
        return EVERYWHERE
    server = urlsplit(access.server)
    port = server.port or (443 if server.scheme == "https" else 80)
    domain = namespace = ""
    if in_cluster:
        domain = cluster_domain(_read(resolver))
        namespace = access.namespace or _read(account / "namespace").strip() or "default"
    return Destinations(
        granted=tuple(granted),
        namespace=namespace,
        domain=domain,
        server=(server.hostname or "", port),
    )


def _read(path: Path) -> str:
    """The text of a file; of one that cannot be read, none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class Kubeconfig(Source):
    """One context of a kubeconfig, or of several joined as in $KUBECONFIG."""

    def __init__(
        self,
        paths: str,
        context: str | None,
        clock: Clock,
        plugin_seconds: float = PLUGIN_SECONDS,
    ) -> None:
        """Name files and context; a plugin is given so many seconds to answer."""
        self._paths = paths
        self._context = context
        self._clock = clock
        self._plugin_seconds = plugin_seconds

    @override
    async def load(self) -> Access:
        documents = [_Document.read(path) for path in self._files()]
        context = self._chosen(documents)
        user = _named(documents, "users", "user").get(str(context.fields.get("user")))
        if user is not None and "auth-provider" in user.fields:
            return await self._with_provider()
        cluster = _named(documents, "clusters", "cluster").get(str(context.fields.get("cluster")))
        if cluster is None:
            raise self._unusable(f'it has no cluster "{context.fields.get("cluster")}"')
        try:
            plain = _plain_access(cluster, user or _Entry({}, cluster.directory))
        except (OSError, ValueError, TypeError) as error:
            raise self._unusable(one_line(error)) from error
        if user is None or "exec" not in user.fields:
            return plain
        section = user.fields["exec"]
        fields = section if isinstance(section, dict) else {}
        plugin = ExecPlugin(fields, cluster.fields, user.directory, self._plugin_seconds)
        return await self._with_exec(plain, plugin)

    def context_namespace(self) -> str:
        """The namespace of the context, or the one that kubectl takes without.

        Raises:
            ConfigurationError: the file cannot be read, or has no such context.
        """
        context = self._chosen([_Document.read(path) for path in self._files()])
        return context.text("namespace") or "default"

    def _files(self) -> list[Path]:
        """A path that exists may hold colons; one that does not is a list, as in $KUBECONFIG."""
        whole = expanded(self._paths)
        listed = [expanded(path) for path in self._paths.split(os.pathsep) if path]
        present = [whole] if whole.is_file() else [path for path in listed if path.exists()]
        if not present:
            raise ConfigurationError(
                f"no kubeconfig at {self._paths}: name one with --kubeconfig, "
                "or start an embedded cluster with its scheduler: `stellwerk up`"
            )
        return present

    def _chosen(self, documents: list[_Document]) -> _Entry:
        name = self._context or next(
            (current for each in documents if (current := each.fields.get("current-context"))), None
        )
        if name is None:
            raise ConfigurationError(
                f"kubeconfig {self._paths} names no current context: choose one with --context"
            )
        contexts = _named(documents, "contexts", "context")
        if name not in contexts:
            raise ConfigurationError(
                f'kubeconfig {self._paths} has no context "{name}": '
                f"it has {', '.join(sorted(contexts)) or 'none'}"
            )
        return contexts[name]

    async def _with_exec(self, plain: Access, plugin: ExecPlugin) -> Access:
        try:
            credential = await plugin.run()
        except ConfigurationError as error:
            raise self._unusable(str(error)) from error
        access = replace(
            plain,
            # Tokens may end with a newline, which no header may hold.
            authorization=f"Bearer {one_line(credential.token)}" if credential.token else None,
            certificate=credential.certificate or plain.certificate,
            key=credential.key or plain.key,
        )
        if credential.expires_at is None:
            return replace(access, valid_seconds=float("inf"))  # as for kubectl: until refused
        left_seconds = (credential.expires_at - self._clock.now()).total_seconds()
        margin_seconds = min(_EXPIRY_MARGIN_SECONDS, left_seconds * _EXPIRY_MARGIN_SHARE)
        return replace(
            access,
            stale_after_seconds=max(MIN_REREAD_SECONDS, left_seconds - margin_seconds),
            valid_seconds=max(0.0, left_seconds),
        )

    async def _with_provider(self) -> Access:
        with _some_home():
            from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 see above
            from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415 see above

        # What the loader logs it also raises, and a start-up mistake is one line.
        logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)
        configuration = Configuration()
        try:
            async with asyncio.timeout(self._plugin_seconds):
                await load_kube_config(
                    config_file=self._paths,
                    context=self._context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except TimeoutError as error:
            why = f"the auth-provider gave no answer within {self._plugin_seconds:g} s"
            raise self._unusable(why) from error
        except Exception as error:
            # The loader lets whatever a broken file makes it stumble over come through.
            raise self._unusable(one_line(error)) from error
        return Access(
            (configuration.host or "").rstrip("/"),
            one_line(configuration.api_key.get("BearerToken") or "") or None,
            _file(configuration.ssl_ca_cert),
            _file(configuration.cert_file),
            _file(configuration.key_file),
            verify=configuration.verify_ssl,
            tls_server_name=configuration.tls_server_name,
            proxy=configuration.proxy,
            stale_after_seconds=REREAD_SECONDS,
            valid_seconds=float("inf"),
        )

    def _unusable(self, why: str) -> ConfigurationError:
        return ConfigurationError(f"cannot use kubeconfig {self._paths}: {why}")


@dataclass(frozen=True, slots=True)
class _Document:
    """A kubeconfig file, parsed, and the directory that its relative paths begin at."""

    fields: Mapping[str, Any]
    directory: Path

    @classmethod
    def read(cls, path: Path) -> _Document:
        try:
            documents = parse_yaml(read_small_file(path))
            document = documents[0] if documents else None
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigurationError(f"cannot read kubeconfig {path}: {one_line(error)}") from error
        if not isinstance(document, dict):
            raise ConfigurationError(f"cannot read kubeconfig {path}: it is not a kubeconfig")
        return cls(document, path.absolute().parent)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A cluster, user or context, and the directory that relative paths in it begin at."""

    fields: Mapping[str, Any]
    directory: Path

    def text(self, key: str) -> str | None:
        value = self.fields.get(key)
        return None if value is None else str(value)

    def path(self, key: str) -> Path | None:
        value = self.fields.get(key)
        return self.directory / str(value) if value else None

    def pem(self, key: str) -> Pem | None:
        """A certificate or key; as for kubectl, data goes before a file."""
        data = self.fields.get(f"{key}-data")
        if not data:
            return self.path(key)
        try:
            return base64.b64decode("".join(str(data).split()), validate=True)
        except binascii.Error as error:
            raise ValueError(f"{key}-data is not base64: {error}") from error


def _named(documents: list[_Document], section: str, kind: str) -> dict[str, _Entry]:
    """Return the entries of a section by name; as for kubectl, the first file wins.

    Raises:
        ConfigurationError: the section is not a list.
    """
    entries: dict[str, _Entry] = {}
    for document in documents:
        listed = document.fields.get(section) or ()
        if not isinstance(listed, list | tuple):
            raise ConfigurationError(f"cannot read the kubeconfig: {section} is not a list")
        for item in listed:
            if isinstance(item, dict):
                fields = item.get(kind)
                entry = _Entry(fields if isinstance(fields, dict) else {}, document.directory)
                entries.setdefault(str(item.get("name")), entry)
    return entries


def _plain_access(cluster: _Entry, user: _Entry) -> Access:
    rotates = any(key in user.fields for key in _ROTATING) or (
        "certificate-authority" in cluster.fields
    )
    return Access(
        (cluster.text("server") or "").rstrip("/"),
        _authorization(user),
        cluster.pem("certificate-authority"),
        user.pem("client-certificate"),
        user.pem("client-key"),
        verify=not cluster.fields.get("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=cluster.text("proxy-url"),
        stale_after_seconds=REREAD_SECONDS if rotates else None,
        impersonation=tuple(_impersonation(user)),
    )


def _impersonation(user: _Entry) -> Iterator[tuple[str, str]]:
    """The headers of kubectl's `--as`, as a kubeconfig has it in `as`, `as-groups` and others.

    Raises:
        ValueError: groups or further fields are given and no user, or they have another form.
    """
    fields, name = user.fields, user.text("as")
    groups, extra = fields.get("as-groups") or (), fields.get("as-user-extra") or {}
    if not isinstance(groups, list | tuple) or not isinstance(extra, dict):
        raise ValueError("as-groups is no list, or as-user-extra no object")  # noqa: TRY004
    if not name and (groups or extra or user.text("as-uid")):
        raise ValueError("it acts for a group of a user, and names no user (as)")
    if name:
        yield "Impersonate-User", one_line(name)
    if uid := user.text("as-uid"):
        yield "Impersonate-Uid", one_line(uid)
    for group in groups:
        yield "Impersonate-Group", one_line(str(group))
    for key, values in extra.items():
        for value in values if isinstance(values, list | tuple) else ():
            yield f"Impersonate-Extra-{quote(str(key), safe='')}", one_line(str(value))


def _authorization(user: _Entry) -> str | None:
    token, token_file = user.text("token"), user.path("tokenFile")
    if not token and token_file is not None:
        token = token_file.read_text(encoding="utf-8")
    if token:
        return f"Bearer {one_line(token)}"  # files end with a newline, which no header may hold
    name, password = user.text("username"), user.text("password")
    if name and password:
        return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode('ascii')}"
    return None


@contextmanager
def _some_home() -> Iterator[None]:
    """Give the process a home inside the block if its user has none.

    kubernetes_asyncio asks for the home when it is imported, and raises without one. Only the
    import needs it: a credential plugin, which inherits the environment, would try to write there.
    """
    if expanded("~") != NO_HOME:
        yield
        return
    os.environ["HOME"] = str(NO_HOME)
    try:
        yield
    finally:
        del os.environ["HOME"]


def _file(path: str | None) -> Path | None:
    return None if path is None else Path(path)


def one_line(text: BaseException | str) -> str:
    """Return a text without its line breaks."""
    return " ".join(str(text).split())
