"""Names of objects as kubectl takes them, and the namespace that is meant without one."""

import argparse
from pathlib import Path

import pytest
import yaml

from stellwerk_cli.cli import USAGE_ERROR, main
from stellwerk_cli.commands.port_arguments import (
    add_namespace_argument,
    add_port_arguments,
    port_address,
    split_name,
)
from stellwerk_kube.errors import ConfigurationError


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two contexts, of which the current one has a namespace."""
    contexts = {"plain": {"cluster": "c", "user": "u"}}
    contexts["team"] = contexts["plain"] | {"namespace": "team"}
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "team",
                "contexts": [{"name": k, "context": v} for k, v in contexts.items()],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_namespace_argument(parser)
    add_port_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize(
    ("arguments", "name", "expected"),
    [
        ((), "web", ("team", "web")),
        (("-n", "other"), "web", ("other", "web")),
        (("--context", "plain"), "web", ("default", "web")),
        (("-n", "other"), "third/web", ("third", "web")),
    ],
)
def test_the_namespace_is_the_one_of_the_context(
    arguments: tuple[str, ...], name: str, expected: tuple[str, str]
) -> None:
    assert split_name(options(*arguments), name) == expected


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", ["", "/web", "team/", "a/b/c"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected NAME or NAMESPACE/NAME"):
        split_name(options(), name)


def test_without_any_kubeconfig_it_is_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert split_name(options(), "web") == ("default", "web")


def test_the_environment_names_the_port_and_the_operators_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STELLWERK_URL", "http://127.0.0.1:7")
    monkeypatch.setenv("STELLWERK_NAMESPACE", "scheduling")
    address = port_address(options())
    assert (address.url, address.lease_namespace) == ("http://127.0.0.1:7", "scheduling")
    assert port_address(options("--url", "https://h:1")).url == "https://h:1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "deploymen/web",
            "cannot explain 'deploymen': expected KIND NAME; did you mean \"deployment\"?",
        ),
        (
            "widget/web",
            "expected KIND NAME; kinds are daemonset, deployment, device, job, node, pod,",
        ),
        ("podgrop x", "cannot explain 'podgrop': expected KIND NAME; did you mean \"podgroup\"?"),
        ("pod", "explain pod: expected one name of a pod"),
        ("pod a b", "explain pod a b: expected one name of a pod"),
        ("pod/", "explain pod/: expected one name of a pod"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments.split(), "--url", "http://127.0.0.1:1"]) == USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
