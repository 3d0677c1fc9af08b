"""The extenders of a profile: HTTP services that filter, score, preempt or bind.

Part of SchedulerProfileSpec; `client.extender` is built from it. Invariant: fields,
defaults and rules are those of kubescheduler.config.k8s.io/v1, but for httpTimeout, and with a
Secret as one more source of certificates. It is read, if its owner allows the extender's address,
by `framework.secret_reading.read_secret`.
"""

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from stellwerk.profiles.spec.config_model import (
    INT32_MAX,
    ConfigModel,
    Duration,
    Items,
    Secret,
    invalid,
)
from stellwerk_kube.destinations import without_user
from stellwerk_kube.names import (
    LABEL,
    MAX_LABEL_CHARACTERS,
    MAX_SUBDOMAIN_CHARACTERS,
    SUBDOMAIN,
    is_extended_resource,
    parse_duration,
)

DEFAULT_TIMEOUT_SECONDS: Final = 0.5
"""Time limit of one call if the profile sets none. kube-scheduler has 5 s, but here pods of other
profiles wait meanwhile."""
MAX_MANAGED_RESOURCES: Final = 64
"""Resources that one extender may name, so that the schema bounds what a rule of it costs."""
_USER_INFO: Final = re.compile(r"^(https?://)([^/?#]*)@")


class SecretReference(ConfigModel):
    """A Secret; keys that it lacks count as empty."""

    namespace: Annotated[
        str, Field(min_length=1, max_length=MAX_LABEL_CHARACTERS, pattern=f"^{LABEL}$")
    ]
    """Namespace of the Secret."""

    name: Annotated[
        str, Field(min_length=1, max_length=MAX_SUBDOMAIN_CHARACTERS, pattern=f"^{SUBDOMAIN}$")
    ]
    """Name of the Secret."""


_FilePath = Annotated[str, Field(max_length=4096)]
_Base64 = Annotated[str, Field(max_length=131072, json_schema_extra={"format": "byte"})]


class ExtenderTLSConfig(ConfigModel):
    """TLS settings of an extender. Data goes before files."""

    insecure: bool = False
    """Whether to trust any certificate of the extender. For tests only."""

    server_name: Annotated[str, Field(max_length=253)] = ""
    """Server name to request and to verify in the certificate, instead of the host of urlPrefix."""

    cert_file: _FilePath = ""
    """File with the client certificate, in the operator's container. The file hosts in its folder
    has to name the extender's address."""

    key_file: _FilePath = ""
    """File with the client key, in the operator's container."""

    ca_file: _FilePath = ""
    """File with the trusted root certificates, in the operator's container."""

    cert_data: _Base64 = ""
    """Client certificate, PEM in base64."""

    key_data: Annotated[Secret[_Base64], Field(default_factory=lambda: Secret(""))]
    """Client key, PEM in base64. All who may read profiles can read it: name a Secret instead."""

    ca_data: _Base64 = ""
    """Trusted root certificates, PEM in base64."""

    secret_ref: SecretReference | None = None
    """Secret with tls.crt, tls.key and ca.crt, instead of files and data. Each of the three may be
    missing. Its annotation scheduling.stellwerk.dev/hosts has to name the extender's address."""

    @model_validator(mode="after")
    def _one_source_and_whole_pairs(self) -> "ExtenderTLSConfig":
        has_certificate = bool(self.cert_file or self.cert_data)
        has_key = bool(self.key_file or self.key_data)
        has_roots = bool(self.ca_file or self.ca_data)
        if has_certificate and not has_key:
            raise invalid("keyFile", "required with a client certificate")
        if has_key and not has_certificate:
            raise invalid("certFile", "required with a client key")
        if self.insecure and has_roots:
            raise invalid("insecure", "not allowed together with root certificates")
        if self.secret_ref is not None and (has_certificate or has_roots):
            raise invalid("secretRef", "not allowed together with certificate files or data")
        return self

    @property
    def named_files(self) -> tuple[str, str, str]:
        """The files that are read: certificate, key, roots; empty: none, because data stands."""
        return (
            "" if self.cert_data else self.cert_file,
            "" if self.key_data else self.key_file,
            "" if self.ca_data else self.ca_file,
        )


class ExtenderManagedResource(ConfigModel):
    """An extended resource that an extender manages."""

    name: Annotated[str, Field(min_length=1, max_length=317)]
    """Name of the extended resource, such as example.com/gpu."""

    ignored_by_scheduler: bool = False
    """Whether NodeResourcesFit leaves this resource to the extender."""

    @model_validator(mode="after")
    def _is_extended(self) -> "ExtenderManagedResource":
        if not is_extended_resource(self.name):
            raise invalid("name", f'"{self.name}" is not an extended resource name')
        return self


_Verb = Annotated[str, Field(max_length=253)]


class Extender(ConfigModel):
    """An HTTP service that takes part in decisions, called as kube-scheduler calls it."""

    url_prefix: Secret[
        Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^https?://[^/\s]+")]
    ]
    """URL to which verbs are appended, such as http://extender.tools.svc:8080/scheduler. A user and
    password in it can be read by all who may read profiles: name a Secret instead."""

    secret_ref: SecretReference | None = None
    """Secret with the keys username and password, sent to the extender (basic authentication). Its
    annotation scheduling.stellwerk.dev/hosts has to name the extender's address."""

    filter_verb: _Verb = ""
    """Verb of the filter call; empty if the extender does not filter."""

    prioritize_verb: _Verb = ""
    """Verb of the prioritize call; empty if the extender does not score."""

    preempt_verb: _Verb = ""
    """Verb of the preempt call; empty if the extender takes no part in preemption."""

    bind_verb: _Verb = ""
    """Verb of the bind call; empty if the extender does not bind. At most one extender may bind."""

    weight: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """Factor of the extender's scores. Required with prioritizeVerb."""

    enable_https: Annotated[bool, Field(alias="enableHTTPS")] = False
    """Whether to use TLS with the settings of tlsConfig."""

    tls_config: ExtenderTLSConfig | None = None
    """TLS settings."""

    http_timeout: Duration = "500ms"
    """Time limit of one call. 0 means 500ms."""

    node_cache_capable: bool = False
    """Whether the extender caches nodes itself, so that only their names are sent."""

    managed_resources: Annotated[
        Items[ExtenderManagedResource], Field(max_length=MAX_MANAGED_RESOURCES)
    ] = ()
    """If given, only pods that request one of these resources are sent to the extender."""

    ignorable: bool = False
    """Whether a pod is scheduled without the extender when a call fails."""

    @model_validator(mode="after")
    def _is_usable(self) -> "Extender":
        if self.prioritize_verb and not self.weight:
            raise invalid("weight", "must be at least 1 with prioritizeVerb")
        try:
            urlsplit(self.url_prefix.reveal()).port  # noqa: B018 asked for what it raises
        except ValueError:
            # The message shows nothing of it: it may hold a password.
            raise invalid("urlPrefix", "its host or port is invalid") from None
        if self.secret_ref is not None and self.user_info:
            raise invalid("secretRef", "not allowed together with a user in urlPrefix")
        if parse_duration(self.http_timeout) < 0:
            raise invalid("httpTimeout", "must not be negative")
        return self

    @property
    def shown_url_prefix(self) -> str:
        """The URL prefix without user and password, for texts and metrics."""
        return without_user(self.url_prefix.reveal())

    @property
    def called_urls(self) -> tuple[str, ...]:
        """The URLs that the operator calls, without user and password: the prefix, each verb."""
        prefix = self.shown_url_prefix.rstrip("/")
        verbs = (self.filter_verb, self.prioritize_verb, self.preempt_verb, self.bind_verb)
        return tuple(f"{prefix}/{verb}" for verb in ("", *filter(None, verbs)))

    @property
    def user_info(self) -> Secret[str]:
        """User and password of the URL prefix as they stand there; empty without any."""
        match = _USER_INFO.match(self.url_prefix.reveal())
        return Secret(match[2] if match else "")

    @property
    def timeout_seconds(self) -> float:
        """The limit of one call, above 0."""
        return parse_duration(self.http_timeout) or DEFAULT_TIMEOUT_SECONDS
