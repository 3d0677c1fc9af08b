"""The addresses that profiles may have the operator call, for extenders and plugins' numbers.

`app` makes them of `--extender-allow`; the profile loader asks about URLs, `client.web` about each
address that is about to be connected to. Invariant: in a cluster nothing is called that is neither
a Service by name nor granted by the operator's owner, and link-local addresses, the metadata of
clouds and the API server never are, whatever a name leads to. `hosts_refusal` reads the second
list, by which the owner of a Secret says where its content may go: `secret_reading.read_secret`
asks it about Secrets, and `client.extender_tls` about mounted files.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.request import getproxies, proxy_bypass

from yarl import URL

from stellwerk_kube.names import is_dns_1035_label, is_label
from stellwerk_kube.untrusted_text import shown

FLAG: Final = "--extender-allow"
HOSTS_ANNOTATION: Final = "scheduling.stellwerk.dev/hosts"
"""The annotation of a Secret that lists the addresses to which its content may be sent."""
HOSTS_FILE: Final = "hosts"
"""The file with such a list, for the other files of its folder: a mounted Secret shows no
annotations."""
MAX_HOSTS_CHARACTERS: Final = 4096
"""Characters of such a list. A longer one allows nothing, because reading it would take time from
the event loop."""
_USER_INFO: Final = re.compile(r"^(https?://)[^/?#]*@")
_SCHEMES: Final = frozenset({"http", "https"})
_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_NEVER: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "169.254.0.0/16",
            "224.0.0.0/4",
            "255.255.255.255/32",
            "::/128",
            "fe80::/10",
            "ff00::/8",
            # The metadata of clouds that is not link-local: Alibaba, Azure, Oracle, AWS, Google.
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
        ),
    )
)
_TRANSLATED: Final = ip_network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates to IPv4 (RFC 6052)."""

_Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class UrlPrefix:
    """A URL whose scheme, host, port and beginning of the path have to be met."""

    scheme: str
    host: str
    """Empty: every host."""
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> "UrlPrefix":
        """Read the value of the flag.

        Raises:
            ValueError: it is no such URL.
        """
        if text.rstrip("/") in {"http:", "https:"}:
            return cls(text.partition(":")[0], "", 0, "/")
        url = URL(text)
        if url.scheme not in _SCHEMES or not url.host or url.query_string or url.fragment:
            raise ValueError(
                f"{text!r} is not an http or https URL of a host, with or without a path"
            )
        if url.user is not None:
            raise ValueError("a URL prefix must not have a user")
        return cls(url.scheme, _host(url), url.port or 0, url.path)

    def begins(self, url: URL) -> bool:
        """Whether the URL begins with this."""
        if not self.host:
            return url.scheme == self.scheme
        folder = self.path.rstrip("/") + "/"
        return (
            (url.scheme, _host(url), url.port) == (self.scheme, self.host, self.port)
            and f"{url.path}/".startswith(folder)
            # As a server might read it that decodes once more.
            and ".." not in url.path
            and "\\" not in url.path
        )


@dataclass(frozen=True, slots=True)
class Destinations:
    """The rule, and what it needs to know of the cluster."""

    restricted: bool = True
    """False: everything may be called."""
    granted: tuple[UrlPrefix, ...] = ()
    namespace: str = ""
    """The operator's own; empty outside a cluster, where no Service has a name."""
    domain: str = "cluster.local"
    """The domain of the cluster."""
    server: tuple[str, int] = ("", 0)
    """Host and port of the API server."""

    def refusal(self, text: str) -> str:
        """The reason why a URL may not be called, whatever its name leads to; empty: it may be."""
        if not self.restricted:
            return ""
        url = _url(text)
        if url is None:
            return "it is not a URL"
        host = _host(url)
        literal, service = _literal(host), self.service(host)
        if literal is not None and (reason := self._never(literal, url.port or 0)):
            return reason
        if service.startswith("kubernetes.default.svc."):
            return f'"{host}" is the API server, which is never called ({FLAG} cannot grant it)'
        if service or self._grant(url) is not None:
            return ""
        what = "Services by name (NAME.NAMESPACE.svc) and " if self.namespace else ""
        return (
            f'"{shown(str(url.origin()))}" is not allowed: the '
            f"operator calls {what}what {FLAG} of stellwerk run grants"
        )

    def service(self, host: str) -> str:
        """The whole name of the Service that a host means, to be resolved; empty: it means none."""
        if not self.restricted or not self.namespace or _literal(host) is not None:
            return ""
        name = host.rstrip(".").removesuffix(f".svc.{self.domain}").removesuffix(".svc")
        parts = name.split(".")
        if len(parts) == 1:
            parts.append(self.namespace)
        if host in _LOOPBACK_NAMES or len(parts) != 2:  # noqa: PLR2004 name and namespace
            return ""
        if not (is_dns_1035_label(parts[0]) and is_label(parts[1])):
            return ""
        return f"{parts[0]}.{parts[1]}.svc.{self.domain}."

    def unknown(self, text: str) -> str:
        """The remark on a URL whose name leads nowhere; empty where it is granted by itself."""
        if self.by_proxy(text):
            return ""
        service = self.service(_host(URL(text))).rstrip(".")
        return f"{service} is not a Service now; {FLAG} of stellwerk run grants other addresses"

    def by_proxy(self, text: str) -> bool:
        """Whether the environment's proxy may be asked for a URL: it is not for Services."""
        return not self.restricted or self._grant(URL(text)) is not None

    def address_refusal(self, text: str, address: str, port: int) -> str:
        """The reason why a URL that may be called may not be at this address."""
        if not self.restricted:
            return ""
        try:
            found = _plain(ip_address(address.partition("%")[0]))
        except ValueError:
            return f"{shown(address)} is not written as addresses are"
        if reason := self._never(found, port):
            return reason
        grant = self._grant(URL(text))
        if grant is None:
            if found.is_loopback or found.is_global:
                return (
                    f"{found} is the address of no Service: {FLAG} of stellwerk run grants others"
                )
        elif found.is_loopback and grant.host and not _is_loopback(grant.host):
            return f"{found} is this pod itself: {FLAG} of stellwerk run has to name it so"
        return ""

    def _grant(self, url: URL) -> UrlPrefix | None:
        """The prefix that grants a URL; one that names its host goes before one that names none."""
        fitting = (each for each in self.granted if each.begins(url))
        return max(fitting, key=lambda each: bool(each.host), default=None)

    def _never(self, address: _Address, port: int) -> str:
        server = _literal(self.server[0])
        if address == server and port == self.server[1]:
            return f"{address} is the API server, which is never called ({FLAG} cannot grant it)"
        if any(address in each for each in _NEVER):
            return (
                f"{address} is link-local or not a server's, which is never called "
                f"({FLAG} cannot grant it)"
            )
        return ""


EVERYWHERE: Final = Destinations(restricted=False)
"""The destinations outside a cluster, as long as nothing is granted in particular."""


def cluster_domain(resolver: str) -> str:
    """The domain of the cluster by the text of a pod's /etc/resolv.conf."""
    for line in resolver.splitlines():
        words = line.split()
        if words[:1] == ["search"]:
            for word in words[1:]:
                if word.startswith("svc."):
                    return word.removeprefix("svc.").rstrip(".").lower()
    return "cluster.local"


def hosts_refusal(hosts: str, where: str, urls: Iterable[str]) -> str:
    """The reason why credentials may not be sent to URLs; empty: their owner allows it.

    Args:
        hosts: the owner's list of addresses, parted by spaces, commas or line breaks. Each is
            compared as `UrlPrefix` compares; an address without a host allows nothing.
        where: the place of the list, in words.
        urls: all URLs that are to be called with the credentials.
    """
    allowed, unread = [], False
    for text in re.split(r"[\s,]+", hosts.strip()) if len(hosts) <= MAX_HOSTS_CHARACTERS else ():
        try:
            prefix = UrlPrefix.parse(text)
        except ValueError:
            unread = unread or bool(text)
        else:
            unread = unread or not prefix.host
            allowed += [prefix] if prefix.host else []
    for text in urls:
        url = _url(text)
        if url is None:
            return "it is no URL"
        if any(each.begins(url) for each in allowed):
            continue
        # The list itself is not shown: who edits profiles may not read it.
        doubt = "; an entry there is no http or https URL with a host" if unread else ""
        if len(hosts) > MAX_HOSTS_CHARACTERS:
            doubt = f"; the list there is longer than {MAX_HOSTS_CHARACTERS} characters"
        return f"{where} has to name {shown(str(url.origin()))}{doubt}"
    return ""


def environment_proxy(url: str) -> URL | None:
    """Return the proxy of the environment for a URL; asked once, it is slow to ask.

    aiohttp's `trust_env` would ask for each request, and would send the user and password that a
    `.netrc` has for the host, or for any host, to an address that a profile names.
    """
    parsed = URL(url)
    proxy = getproxies().get(parsed.scheme)
    if proxy is None or parsed.host is None or proxy_bypass(parsed.host):
        return None
    return URL(proxy)


def without_user(url: str) -> str:
    """A URL without user and password, for texts."""
    return _USER_INFO.sub(r"\1", url)


def _url(text: str) -> URL | None:
    try:
        url = URL(text)
    except ValueError:
        return None
    return url if url.scheme in _SCHEMES and url.host else None


def _host(url: URL) -> str:
    # As it is resolved: of a name in another alphabet the form with xn--.
    return (url.raw_host or "").lower()


def _is_loopback(host: str) -> bool:
    literal = _literal(host)
    return host in _LOOPBACK_NAMES if literal is None else literal.is_loopback


def _literal(host: str) -> _Address | None:
    """The address that a host is in itself, in any of the forms that the C library takes."""
    try:
        return _plain(ip_address(host.partition("%")[0]))
    except ValueError:
        pass
    try:
        # Decimal, octal and hexadecimal forms, and those with fewer than four parts.
        return IPv4Address(socket.inet_aton(host)) if host and not host.isspace() else None
    except (OSError, ValueError):
        return None


def _plain(address: _Address) -> _Address:
    """The IPv4 address that an IPv6 address stands for, else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _TRANSLATED or (int(address) >> 32 == 0 and int(address) > 1):
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address
