"""Addresses that profiles may name: what is called of them, whatever form they are written in."""

import pytest

from stellwerk_kube.destinations import (
    EVERYWHERE,
    Destinations,
    UrlPrefix,
    cluster_domain,
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
