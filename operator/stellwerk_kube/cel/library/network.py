"""IP addresses, networks and URLs."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import OpaqueValue, Value

NETWORK: Final = Library()

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAX_ADDRESS_CHARACTERS: Final = 64
"""Characters of an address. IPv6 with an IPv4 address in it has 45."""


@dataclass(frozen=True, slots=True)
class Ip(OpaqueValue):
    """An IP address."""

    type_name: ClassVar[str] = "net.IP"

    address: Address


@dataclass(frozen=True, slots=True)
class Cidr(OpaqueValue):
    """A network: an address and the length of its prefix."""

    type_name: ClassVar[str] = "net.CIDR"

    address: Address
    length: int

    def network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """The network, its host bits cut off."""
        return ipaddress.ip_network(f"{self.address}/{self.length}", strict=False)


def parse_ip(text: str) -> Ip:
    """The address that a text says.

    Raises:
        EvaluationError: it says none, has a zone, or maps IPv4 into IPv6.
    """
    if "%" in text and ":" in text:
        raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
    try:
        address = ipaddress.ip_address(text if len(text) < _MAX_ADDRESS_CHARACTERS else "")
    except ValueError:
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise EvaluationError(
            f'IP Address "{text}" parse error during conversion from string: {why}'
        ) from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return Ip(address)


_PREFIX_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}")


def parse_cidr(text: str) -> Cidr:
    """The network that a text says.

    Raises:
        EvaluationError: it says none, or maps IPv4 into IPv6.
    """
    prefix = "network address parse error during conversion from string: "
    where, slash, length = text.rpartition("/")
    if not slash:
        raise EvaluationError(f"{prefix * 2}netip.ParsePrefix(\"{text}\"): no '/'")
    try:
        address = ipaddress.ip_address(where if "%" not in where else "")
    except ValueError:
        shown = f'netip.ParsePrefix("{text}"): ParseAddr("{where}"): unable to parse IP'
        raise EvaluationError(prefix * 2 + shown) from None
    if not _PREFIX_LENGTH.fullmatch(length):
        raise EvaluationError(
            f'{prefix * 2}netip.ParsePrefix("{text}"): bad bits after slash: "{length}"'
        )
    if int(length) > address.max_prefixlen:
        raise EvaluationError(
            f'{prefix * 2}netip.ParsePrefix("{text}"): prefix length out of range'
        )
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(f'{prefix}IPv4-mapped IPv6 address "{text}" is not allowed')
    return Cidr(address, int(length))


@NETWORK.function("isIP", "(string) -> bool", cost=cost.traversal)
def _is_ip(text: str) -> bool:
    try:
        parse_ip(text)
    except EvaluationError:
        return False
    return True


@NETWORK.function("isCIDR", "(string) -> bool", cost=cost.traversal)
def _is_cidr(text: str) -> bool:
    try:
        parse_cidr(text)
    except EvaluationError:
        return False
    return True


NETWORK.function("ip", "(string) -> net.IP", cost=cost.traversal)(parse_ip)
NETWORK.function("cidr", "(string) -> net.CIDR", cost=cost.traversal)(parse_cidr)


@NETWORK.function("ip.isCanonical", "(string) -> bool", cost=cost.rewriting)
def _is_canonical(text: str) -> bool:
    return str(parse_ip(text).address) == text


@NETWORK.function("string", "(net.IP) -> string")
def _ip_string(value: Ip) -> str:
    return str(value.address)


@NETWORK.function("string", "(net.CIDR) -> string")
def _cidr_string(value: Cidr) -> str:
    return f"{value.address}/{value.length}"


@NETWORK.function("family", ".(net.IP) -> int")
def _family(value: Ip) -> int:
    return value.address.version


@NETWORK.function("isUnspecified", ".(net.IP) -> bool")
def _is_unspecified(value: Ip) -> bool:
    return value.address.is_unspecified


@NETWORK.function("isLoopback", ".(net.IP) -> bool")
def _is_loopback(value: Ip) -> bool:
    return value.address.is_loopback


_LOCAL_MULTICAST: Final = (
    ipaddress.ip_network("224.0.0.0/24"),
    ipaddress.ip_network("ff02::/16"),
)
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")


@NETWORK.function("isLinkLocalMulticast", ".(net.IP) -> bool")
def _is_link_local_multicast(value: Ip) -> bool:
    address = value.address
    if isinstance(address, ipaddress.IPv6Address):
        # The second digit after ff0 is the scope; flags may be set.
        return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2  # noqa: PLR2004
    return address in _LOCAL_MULTICAST[0]


@NETWORK.function("isLinkLocalUnicast", ".(net.IP) -> bool")
def _is_link_local_unicast(value: Ip) -> bool:
    return value.address.is_link_local


@NETWORK.function("isGlobalUnicast", ".(net.IP) -> bool")
def _is_global_unicast(value: Ip) -> bool:
    address = value.address
    special = (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )
    return not special and address != _BROADCAST


def _contains_ip(network: Cidr, ip: Ip) -> bool:
    return ip.address.version == network.address.version and ip.address in network.network()


@NETWORK.function("containsIP", ".(net.CIDR, net.IP) -> bool")
def _contains_address(network: Cidr, ip: Ip) -> bool:
    return _contains_ip(network, ip)


@NETWORK.function("containsIP", ".(net.CIDR, string) -> bool")
def _contains_text(network: Cidr, text: str) -> bool:
    return _contains_ip(network, parse_ip(text))


def _contains_cidr(network: Cidr, other: Cidr) -> bool:
    if network.address.version != other.address.version or network.length > other.length:
        return False
    return other.address in network.network()


@NETWORK.function("containsCIDR", ".(net.CIDR, net.CIDR) -> bool")
def _contains_network(network: Cidr, other: Cidr) -> bool:
    return _contains_cidr(network, other)


@NETWORK.function("containsCIDR", ".(net.CIDR, string) -> bool")
def _contains_network_text(network: Cidr, text: str) -> bool:
    return _contains_cidr(network, parse_cidr(text))


@NETWORK.function("ip", ".(net.CIDR) -> net.IP")
def _cidr_ip(value: Cidr) -> Ip:
    return Ip(value.address)


@NETWORK.function("prefixLength", ".(net.CIDR) -> int")
def _prefix_length(value: Cidr) -> int:
    return value.length


@NETWORK.function("masked", ".(net.CIDR) -> net.CIDR")
def _masked(value: Cidr) -> Cidr:
    return Cidr(value.network().network_address, value.length)


@dataclass(frozen=True, slots=True)
class Url(OpaqueValue):
    """A URL, in its parts."""

    type_name: ClassVar[str] = "kubernetes.URL"

    scheme: str
    host: str
    hostname: str
    port: str
    path: str
    query: str


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}")
_PORT: Final = re.compile(r":[0-9]*")


def parse_url(text: str) -> Url:
    """The URL that a text says: an absolute one, or an absolute path.

    Raises:
        EvaluationError: it says none.
    """
    why = _wrong_with_url(text)
    if why:
        raise EvaluationError(
            f'URL parse error during conversion from string: parse "{text}": {why}'
        )
    try:
        parts = urlsplit(text)
    except ValueError as error:
        shown = f'URL parse error during conversion from string: parse "{text}": {error}'
        raise EvaluationError(shown) from None
    host = parts.netloc.rpartition("@")[2]
    hostname, port = _host_parts(host)
    path = (
        quote(unquote(parts.path), safe="/:@&=+$,;~!*'()-._[]")
        if "%" not in parts.path
        else parts.path
    )
    return Url(parts.scheme, host, hostname, port, path, parts.query)


def _wrong_with_url(text: str) -> str:  # noqa: PLR0911  (one way out for each error)
    if not text:
        return "empty url"
    if _CONTROL.search(text):
        return "net/url: invalid control character in URL"
    scheme = _SCHEME.match(text)
    if text.startswith(":"):
        return "missing protocol scheme"
    if scheme is None and not text.startswith("/"):
        return "invalid URI for request"
    bad = _BAD_ESCAPE.search(text.partition("?")[0])
    if bad:
        return f'invalid URL escape "{bad[0]}"'
    rest = text[scheme.end() :] if scheme else text
    host = re.split(r"[/?#]", rest[2:], maxsplit=1)[0] if rest.startswith("//") else ""
    if " " in host:
        return 'invalid character " " in host name'
    after = host.rpartition("@")[2].rpartition("]")[2]
    port = after[after.index(":") :] if ":" in after else ""
    if port and not _PORT.fullmatch(port):
        return f'invalid port "{port}" after host'
    return ""


def _host_parts(host: str) -> tuple[str, str]:
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name, rest.removeprefix(":")
    name, _, port = host.partition(":")
    return name, port


NETWORK.function("url", "(string) -> kubernetes.URL", cost=cost.traversal)(parse_url)


@NETWORK.function("isURL", "(string) -> bool", cost=cost.traversal)
def _is_url(text: str) -> bool:
    try:
        parse_url(text)
    except EvaluationError:
        return False
    return True


for _name, _attribute in (
    ("getScheme", "scheme"),
    ("getHost", "host"),
    ("getHostname", "hostname"),
    ("getPort", "port"),
    ("getEscapedPath", "path"),
):
    NETWORK.function(_name, ".(kubernetes.URL) -> string")(
        lambda url, attribute=_attribute: getattr(url, attribute)
    )


@NETWORK.function("getQuery", ".(kubernetes.URL) -> map(string, list(string))")
def _query(url: Url) -> dict[Value, Value]:
    result: dict[Value, Value] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        result.setdefault(name, []).append(value)
    return result
