"""Fingerprints of pods are those that exporters write."""

import importlib.util

import pytest

from stellwerk_plugins.numa.fingerprint import fingerprint
from stellwerk_plugins.numa.plugin import NodeResourceTopologyMatch
from tests.support.plugin_runs import make_plugin


def test_a_known_set_of_pods_has_the_fingerprint_that_exporters_write() -> None:
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"
    assert fingerprint([("default", "a"), ("kube-system", "dns-7d4f")]) == (
        "pfp0v0010984eea3b4df5e8b"
    )


def test_the_order_of_pods_does_not_matter() -> None:
    pods = [("default", "a"), ("default", "b"), ("web", "a")]
    assert fingerprint(pods) == fingerprint(pods[::-1])
    assert fingerprint(pods) != fingerprint(pods[:2])
    assert fingerprint(pods).startswith("pfp0v001")
    assert len(fingerprint(pods)) == 24


def test_without_the_package_a_profile_that_needs_it_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    make_plugin(NodeResourceTopologyMatch)
    with pytest.raises(ModuleNotFoundError, match=r"stellwerk\[plugins\]"):
        make_plugin(NodeResourceTopologyMatch, args={"cacheResyncPeriodSeconds": 5})
