from pathlib import Path

import pytest

from stellwerk_cluster.access_flags import AccessFlags, chosen_controllers
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.controllers.catalogue import CONTROLLERS
from stellwerk_kube.errors import ConfigurationError


@pytest.mark.parametrize(
    ("flag", "runs", "rests"),
    [
        pytest.param("*", "job-controller", "", id="all"),
        pytest.param("*,-job-controller", "disruption-controller", "job-controller", id="but one"),
        pytest.param("job-controller", "job-controller", "disruption-controller", id="one"),
        pytest.param("none", "", "job-controller", id="none"),
    ],
)
def test_controllers_are_chosen_by_name(flag: str, runs: str, rests: str) -> None:
    chosen = chosen_controllers(flag)
    assert not runs or runs in chosen
    assert not rests or rests not in chosen


@pytest.mark.parametrize("flag", ["nosuch", "*,-nosuch", "", "none,job-controller"])
def test_names_of_no_controller_are_refused(flag: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--controllers .* is none of none"):
        chosen_controllers(flag)


def test_a_bare_api_runs_nothing() -> None:
    options = AccessFlags(controllers="none").applied(ClusterOptions())
    assert (options.controllers, options.kubelet, options.heartbeats) == (False, None, False)


def test_without_flags_everything_runs_over_plain_http() -> None:
    options = AccessFlags().applied(ClusterOptions())
    assert options.chosen_controllers == CONTROLLERS
    assert options.kubelet is not None
    assert not options.tls
    assert options.identity.anonymous
    assert not options.identity.service_accounts


def test_over_tls_clients_show_credentials_or_are_anonymous_under_rules(tmp_path: Path) -> None:
    allowed = AccessFlags(tls=True).applied(ClusterOptions())
    assert (allowed.tls, allowed.identity.anonymous) == (True, False)
    enforced = AccessFlags("rbac").applied(ClusterOptions())
    assert (enforced.tls, enforced.identity.anonymous) == (True, True)
    assert enforced.identity.service_accounts
    (tmp_path / "tokens.csv").write_text("t,alice,1\n")
    known = AccessFlags(token_file=tmp_path / "tokens.csv").applied(ClusterOptions())
    assert (known.tls, known.identity.anonymous) == (True, False)


def test_certificates_of_clients_need_tls(tmp_path: Path) -> None:
    flags = AccessFlags(client_authorities=tmp_path / "ca.pem")
    with pytest.raises(ConfigurationError, match="need --tls"):
        flags.applied(ClusterOptions())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"no certificate", "ca.pem: ", id="no PEM"),
        pytest.param(b"\xff\xfe", "not PEM", id="no text"),
        pytest.param(b"", "not PEM", id="empty"),
    ],
)
def test_a_file_of_authorities_that_is_none_is_named(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=why):
        AccessFlags(client_authorities=file, tls=True).applied(ClusterOptions())
