"""Addresses that profiles may name: what is called of them, whatever form they are written in."""

import pytest

from stellwerk_kube.destinations import (
    EVERYWHERE,
    MAX_HOSTS_CHARACTERS,
    Destinations,
    UrlPrefix,
    cluster_domain,
    hosts_refusal,
    without_user,
)


def in_cluster(*granted: str) -> Destinations:
    return Destinations(
        granted=tuple(map(UrlPrefix.parse, granted)),
        namespace="stellwerk",
        server=("10.96.0.1", 443),
    )


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://gpu.tools.svc:8080/x", "gpu.tools.svc.cluster.local."),
        ("https://gpu.tools.svc.cluster.local/x", "gpu.tools.svc.cluster.local."),
        ("https://gpu.tools.svc.cluster.local./x", "gpu.tools.svc.cluster.local."),
        ("https://gpu.tools:8443/scheduler", "gpu.tools.svc.cluster.local."),
        ("http://gpu/filter", "gpu.stellwerk.svc.cluster.local."),
        # A name of two parts is that of a Service and never one of the network outside.
        ("http://stranger.example/", "stranger.example.svc.cluster.local."),
    ],
)
def test_a_service_is_called_by_its_whole_name(url: str, name: str) -> None:
    destinations = in_cluster()
    assert destinations.refusal(url) == ""
    host = url.split("/")[2].partition(":")[0]
    assert destinations.service(host) == name


@pytest.mark.parametrize(
    "url",
    [
        "http://extender.stranger.example/",
        "http://gpu.tools.svc.stranger.example/",
        "http://gpu.tools.svc@stranger.example.com/",
        "http://localhost:8888",
        "http://127.0.0.1:8888",
        "http://[::1]:8888",
        "http://[::ffff:127.0.0.1]:8888",
        "http://2130706433:8888",
        "http://0x7f.1:8888",
        "http://0177.0.0.1",
        "http://127.1",
        "http://8.8.8.8",
        "http://10.1.2.3",
        "http://10.5/filter",
        "http://GPU_.tools.svc",
        "ftp://gpu.tools.svc",
        "http://[nonsense",
    ],
)
def test_in_a_cluster_all_else_needs_the_flag(url: str) -> None:
    said = in_cluster().refusal(url)
    assert "--extender-allow" in said or said == "it is not a URL"


NEVER = [
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[::169.254.169.254]/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://169.16689662/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://0.0.0.0:8080/",
    "http://[::]/",
    "http://224.0.0.1/",
    "https://10.96.0.1/api",
    "https://[::ffff:10.96.0.1]/api",
    "https://kubernetes.default.svc/api",
    "https://kubernetes.default/api",
]


@pytest.mark.parametrize("url", NEVER)
def test_some_are_never_called_whatever_is_granted(url: str) -> None:
    assert "--extender-allow" in in_cluster("http://", "https://", url.rstrip("/")).refusal(url)


@pytest.mark.parametrize(
    ("granted", "url", "allowed"),
    [
        ("http://127.0.0.1:8888", "http://127.0.0.1:8888/filter", True),
        ("http://127.0.0.1:8888", "http://127.0.0.1:8889/filter", False),
        ("http://127.0.0.1:8888", "https://127.0.0.1:8888/filter", False),
        ("http://localhost:8888", "http://LOCALHOST:8888/filter", True),
        ("https://a.b.example", "https://a.b.example:443/x", True),
        ("https://a.b.example", "https://a.b.example.stranger.com/x", False),
        ("https://a.b.example", "https://a.b.example@stranger.x.com/x", False),
        ("https://a.b.example", "https://user:word@a.b.example/x", True),
        ("https://a.b.example/v1", "https://a.b.example/v1/filter", True),
        ("https://a.b.example/v1", "https://a.b.example/v1", True),
        ("https://a.b.example/v1/", "https://a.b.example/v1", True),
        ("https://a.b.example/v1", "https://a.b.example/v10/filter", False),
        ("https://a.b.example/v1", "https://a.b.example/v1/../admin", False),
        ("https://a.b.example/v1", "https://a.b.example/v1/%2e%2e/admin", False),
        ("https://a.b.example/v1", "https://a.b.example/v1/%2e%2e%2fadmin", False),
        ("https://", "https://anything.at.all/x", True),
        ("https://", "http://anything.at.all/x", False),
    ],
)
def test_a_prefix_grants_scheme_host_port_and_folder(
    granted: str, url: str, *, allowed: bool
) -> None:
    assert (in_cluster(granted).refusal(url) == "") == allowed


@pytest.mark.parametrize(
    ("granted", "url", "address", "allowed"),
    [
        ((), "http://gpu.tools.svc", "10.96.4.4", True),
        ((), "http://gpu.tools.svc", "fd12::1", True),
        ((), "http://gpu.tools.svc", "8.8.8.8", False),
        ((), "http://gpu.tools.svc", "127.0.0.1", False),
        ((), "http://gpu.tools.svc", "::1", False),
        ((), "http://gpu.tools.svc", "169.254.169.254", False),
        ((), "http://gpu.tools.svc", "fe80::1%eth0", False),
        ((), "http://gpu.tools.svc", "2852039166", False),
        (("https://x.y.example",), "https://x.y.example/v", "8.8.8.8", True),
        (("https://x.y.example",), "https://x.y.example/v", "10.0.0.1", True),
        (("https://x.y.example",), "https://x.y.example/v", "127.0.0.1", False),
        (("https://x.y.example",), "https://x.y.example/v", "::ffff:127.0.0.1", False),
        (("https://x.y.example",), "https://x.y.example/v", "::ffff:169.254.1.1", False),
        (("http://localhost",), "http://localhost/v", "127.0.0.1", True),
        (("http://[::1]:81",), "http://[::1]:81/v", "::1", True),
        (("http://",), "http://localhost/v", "127.0.0.1", True),
        (("http://",), "http://x.y.example/v", "169.254.169.254", False),
        (("http://", "http://x.y.example"), "http://x.y.example/v", "127.0.0.1", False),
    ],
)
def test_the_address_that_a_name_leads_to_is_held_to_the_same(
    granted: tuple[str, ...], url: str, address: str, *, allowed: bool
) -> None:
    destinations = in_cluster(*granted)
    assert destinations.refusal(url) == ""
    assert (destinations.address_refusal(url, address, 80) == "") == allowed


def test_the_api_server_is_no_extender_by_whatever_name() -> None:
    destinations = in_cluster("https://")
    assert "API server" in destinations.address_refusal("https://x.y.example", "10.96.0.1", 443)
    assert destinations.address_refusal("https://x.y.example", "10.96.0.1", 8443) == ""


def test_outside_a_cluster_everything_is_called_unless_something_is_granted() -> None:
    assert EVERYWHERE.refusal("http://169.254.169.254") == ""
    assert EVERYWHERE.address_refusal("http://x", "169.254.169.254", 80) == ""
    some = Destinations(granted=(UrlPrefix.parse("http://127.0.0.1:1"),))
    assert some.refusal("http://127.0.0.1:1/x") == ""
    assert "what --extender-allow" in some.refusal("http://gpu.tools.svc")


@pytest.mark.parametrize(
    "text",
    ["", "gpu.tools.svc", "ftp://x", "http://u:p@x", "http://x?y=1", "http://x#y", "file:///"],
)
def test_a_prefix_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL"):
        UrlPrefix.parse(text)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        (
            "search stellwerk.svc.k8s.corp svc.k8s.corp k8s.corp corp\nnameserver 10.0.0.1",
            "k8s.corp",
        ),
        ("search corp\nnameserver 10.0.0.1", "cluster.local"),
        ("", "cluster.local"),
    ],
)
def test_the_domain_of_the_cluster_is_that_of_the_pods_resolver(text: str, domain: str) -> None:
    assert cluster_domain(text) == domain


def test_a_url_is_shown_without_user_and_password() -> None:
    assert without_user("https://user:p@ss@host/x") == "https://host/x"


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        ("https://a.example:8443", "https://a.example:8443/scheduler/filter"),
        ("https://a.example", "https://a.example:443/filter"),
        ("http://a.example:80", "http://a.example/filter"),
        ("https://A.Example", "https://a.example/filter"),
        ("http://b.example, https://a.example", "https://a.example/filter"),
        ("http://b.example\nhttps://a.example\n", "https://a.example/filter"),
        ("nonsense https://a.example", "https://a.example/filter"),
        ("https://a.example/gpu", "https://a.example/gpu/filter"),
        ("http://[::1]:8080", "http://[0:0:0:0:0:0:0:1]:8080/filter"),
        ("https://faß.example", "https://xn--fa-hia.example/filter"),
    ],
)
def test_credentials_go_where_their_owner_says(hosts: str, url: str) -> None:
    assert hosts_refusal(hosts, "the list", [url]) == ""


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        pytest.param("", "https://a.example/", id="nothing is written"),
        pytest.param("https://", "https://a.example/", id="a scheme alone"),
        pytest.param("https:", "https://a.example/", id="a scheme without slashes"),
        pytest.param("*", "https://a.example/", id="a star"),
        pytest.param("https://*", "https://a.example/", id="a star as the host"),
        pytest.param("https://*.example", "https://a.example/", id="a star in the host"),
        pytest.param("a.example", "https://a.example/", id="no scheme"),
        pytest.param("https://a.example", "http://a.example/", id="no TLS"),
        pytest.param("http://a.example", "https://a.example/", id="TLS"),
        pytest.param("https://a.example", "https://a.example:8443/", id="another port"),
        pytest.param("https://a.example:8443", "https://a.example/", id="the default port"),
        pytest.param("https://a.example:8443", "https://a.example:84430/", id="a longer port"),
        pytest.param("https://a.example", "https://a.example.evil.example/", id="a longer name"),
        pytest.param("https://a.example", "https://evila.example/", id="a name before it"),
        pytest.param("https://a.example", "https://b.a.example/", id="a name below it"),
        pytest.param("https://a.example", "https://a.example./", id="a dot at its end"),
        pytest.param("https://a.example", "https://a.example@evil.example/", id="as a user"),
        pytest.param("https://a.example", "https://a.example:443@evil.example/", id="a password"),
        pytest.param("https://a.example", "https://evil.example/a.example", id="in the path"),
        pytest.param("https://a.example", "https://evil.example/?https://a.example", id="query"),
        pytest.param("https://a.example", "https://evil.example#a.example", id="fragment"),
        pytest.param("https://a.example", "https://evil.example\\@a.example/", id="backslash"),
        pytest.param("https://a.example", "https://\u0430.example/", id="a letter alike"),
        pytest.param("https://a.example", "https://a%2eexample/", id="an encoded dot"),
        pytest.param("https://user@a.example", "https://a.example/", id="a user in the list"),
        pytest.param("https://a.example/gpu", "https://a.example/gpu2/filter", id="longer path"),
        pytest.param("https://a.example/gpu", "https://a.example/gpu/../x", id="a path upwards"),
        pytest.param("https://a.example/gpu", "https://a.example/gpu/%2e%2e/x", id="encoded"),
        pytest.param("https://a.example/gpu", "https://a.example/", id="above the path"),
        pytest.param("http://127.0.0.1", "http://[::ffff:127.0.0.1]/", id="mapped to IPv6"),
        pytest.param("http://127.0.0.1", "http://2130706433/", id="an address as a number"),
        pytest.param("http://[::1]:80", "http://[::2]:80/", id="another IPv6 address"),
        pytest.param("http://[fe80::1]", "http://[fe80::1%25eth0]/", id="a zone"),
        pytest.param(
            "https://a.example " * MAX_HOSTS_CHARACTERS, "https://a.example/", id="a long list"
        ),
    ],
)
def test_credentials_go_nowhere_else(hosts: str, url: str) -> None:
    assert hosts_refusal(hosts, "the list", [url]) != ""
    assert hosts_refusal(f"{hosts} https://fine.example", "", ["https://fine.example", url]) != ""


def test_what_the_owner_has_to_write_is_said_and_what_stands_there_is_not() -> None:
    url = "https://user:word@gpu.tools.svc:8443/scheduler/filter"
    said = hosts_refusal("https://inner.example wrong", "the annotation x", [url])
    assert said == (
        "the annotation x has to name https://gpu.tools.svc:8443; an entry there is no http or "
        "https URL with a host"
    )


def test_a_name_in_another_alphabet_is_resolved_as_it_was_compared() -> None:
    # As text it is no label, in the form that is resolved it is one.
    assert in_cluster().service("xn--gd-fmca.tools") == "xn--gd-fmca.tools.svc.cluster.local."
    assert in_cluster().refusal("http://g\u043e\u043ed.tools/") == ""
