"""Where a cluster is and who we are there, as one look at a configuration says it.

`credentials` looks again when that may have changed. Kubeconfigs with plain credentials and the
service account of a pod are read here; those with plugins by kubernetes_asyncio, which is large and
loaded for them alone. Invariant: what cannot be used raises a ConfigurationError of one line.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import yaml
from typing_extensions import override

from stellwerk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from stellwerk.clock import Clock

REREAD_SECONDS: Final = 60.0
"""Token and certificate files rotate; kubelet replaces a token long before the old one ends."""
SHORTEST_SECONDS: Final = 10.0
_EXPIRY_MARGIN_SECONDS: Final = 30.0
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGINS: Final = ("exec", "auth-provider")
_ROTATING: Final = ("tokenFile", "auth-provider", "client-certificate")

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
    tls_server_name: str | None = None
    proxy: str | None = None
    stale_after_seconds: float | None = None
    """When to look again; None = only after the server has refused these credentials."""

    def __post_init__(self) -> None:
        """Refuse a server that cannot be one.

        Raises:
            ConfigurationError: it is not an address.
        """
        if urlsplit(self.server).scheme not in {"http", "https"}:
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
        )


class Kubeconfig(Source):
    """One context of a kubeconfig, or of several joined as in $KUBECONFIG."""

    def __init__(self, paths: str, context: str | None, clock: Clock) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock

    @override
    async def load(self) -> Access:
        documents = [_Document.read(path) for path in self._files()]
        context = self._chosen(documents)
        user = _named(documents, "users", "user").get(str(context.fields.get("user")))
        if user is not None and any(key in user.fields for key in _PLUGINS):
            return await self._with_plugin(user.fields)
        cluster = _named(documents, "clusters", "cluster").get(str(context.fields.get("cluster")))
        if cluster is None:
            raise self._unusable(f'it has no cluster "{context.fields.get("cluster")}"')
        try:
            return _plain_access(cluster, user or _Entry({}, cluster.directory))
        except (OSError, ValueError, TypeError) as error:
            raise self._unusable(one_line(error)) from error

    def _files(self) -> list[Path]:
        paths = [Path(path).expanduser() for path in self._paths.split(os.pathsep) if path]
        present = [path for path in paths if path.exists()]
        if not present:
            raise ConfigurationError(
                f"no kubeconfig at {self._paths}: name one with --kubeconfig, "
                "or start an embedded cluster with `stellwerk cluster`"
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

    async def _with_plugin(self, user: Mapping[str, Any]) -> Access:
        from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 see above
        from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415 see above

        # What the loader logs it also raises, and a start-up mistake is one line.
        logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)
        configuration = Configuration()
        try:
            loader = await load_kube_config(
                config_file=self._paths,
                context=self._context,
                client_configuration=configuration,
                persist_config=False,
            )
        except OSError as error:
            command = (user.get("exec") or {}).get("command")
            raise self._unusable(f"credential plugin {command}: {one_line(error)}") from error
        except Exception as error:
            # The loader lets whatever a broken file makes it stumble over come through.
            raise self._unusable(one_line(error)) from error
        # Tokens may end with a newline, which no header may hold.
        authorization = one_line(configuration.api_key.get("BearerToken") or "") or None
        return Access(
            (configuration.host or "").rstrip("/"),
            authorization,
            _file(configuration.ssl_ca_cert),
            _file(configuration.cert_file),
            _file(configuration.key_file),
            verify=configuration.verify_ssl,
            tls_server_name=configuration.tls_server_name,
            proxy=configuration.proxy,
            stale_after_seconds=self._stale_after(user, loader),
        )

    def _stale_after(self, user: Mapping[str, Any], loader: object) -> float | None:
        if "exec" not in user:
            return REREAD_SECONDS
        expiry: datetime | None = getattr(loader, "exec_plugin_expiry", None)
        if expiry is None:
            return None  # as for kubectl: good until refused
        aware = expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=UTC)
        left_seconds = (aware - self._clock.now()).total_seconds()
        return max(SHORTEST_SECONDS, left_seconds - _EXPIRY_MARGIN_SECONDS)

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
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
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
    """Return the entries of a section by name; as for kubectl, the first file wins."""
    entries: dict[str, _Entry] = {}
    for document in documents:
        for item in document.fields.get(section) or ():
            if isinstance(item, dict):
                fields = item.get(kind)
                entry = _Entry(fields if isinstance(fields, dict) else {}, document.directory)
                entries.setdefault(str(item.get("name")), entry)
    return entries


def _plain_access(cluster: _Entry, user: _Entry) -> Access:
    rotates = any(key in user.fields for key in _ROTATING)
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
    )


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


def _file(path: str | None) -> Path | None:
    return None if path is None else Path(path)


def one_line(text: BaseException | str) -> str:
    """Return a text without its line breaks."""
    return " ".join(str(text).split())
