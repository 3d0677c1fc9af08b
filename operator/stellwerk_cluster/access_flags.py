"""The flags of `stellwerk cluster` about users and controllers, as options of a cluster.

Read by the command. Invariant: flags that contradict each other, or name what does not exist, are
refused before anything is served.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.controllers.catalogue import CONTROLLERS
from stellwerk_cluster.identity.assembly import IdentityOptions, Mode
from stellwerk_cluster.identity.token_file import read_token_file
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import read_small_file

if TYPE_CHECKING:
    from pathlib import Path

    from stellwerk_cluster.cluster import ClusterOptions

_KUBELET: Final = "hollow-kubelet"
_HEARTBEAT: Final = "node-heartbeat"
_ALL: Final = (*CONTROLLERS, _KUBELET, _HEARTBEAT)


@dataclass(frozen=True, slots=True)
class AccessFlags:
    """The options of access: users, authorization, TLS, and the controllers that run."""

    authorization: Mode = "always-allow"
    token_file: Path | None = None
    client_authorities: Path | None = None
    controllers: str = "*"
    tls: bool = False

    @property
    def enforced(self) -> bool:
        """Whether roles and bindings decide what users may do."""
        return self.authorization == "rbac"

    def applied(self, options: ClusterOptions) -> ClusterOptions:
        """The options with what the flags say.

        kubectl shows credentials over TLS alone, so RBAC and tokens bring TLS with them. Over TLS,
        clients without credentials are anonymous under RBAC and refused otherwise, where they could
        do everything: as in kube-apiserver. Under RBAC pods have service accounts.

        Raises:
            ConfigurationError: a flag makes no sense, or a file cannot be used.
        """
        running = chosen_controllers(self.controllers)
        enforced = self.enforced
        tls = self.tls or enforced or self.token_file is not None
        return replace(
            options,
            controllers=bool(running),
            chosen_controllers=tuple(name for name in running if name in CONTROLLERS),
            kubelet=options.kubelet if _KUBELET in running else None,
            heartbeats=_HEARTBEAT in running,
            tls=tls,
            client_authorities=self._client_authorities(tls=tls),
            identity=IdentityOptions(
                self.authorization,
                anonymous=enforced or not tls,
                tokens=() if self.token_file is None else read_token_file(self.token_file),
                service_accounts=enforced,
            ),
        )

    def _client_authorities(self, *, tls: bool) -> bytes:
        file = self.client_authorities
        if file is None:
            return b""
        if not tls:
            raise ConfigurationError("--client-ca-file: certificates of clients need --tls")
        try:
            content = read_small_file(file)
            # The default context would take those of the system where the text is empty.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(
                cadata=content.decode("ascii")
            )
        except OSError as error:
            why = error.strerror or "no certificate in it"
            raise ConfigurationError(f"--client-ca-file {file}: {why}") from error
        except ValueError as error:
            raise ConfigurationError(f"--client-ca-file {file}: not PEM") from error
        return content


def chosen_controllers(flag: str) -> tuple[str, ...]:
    """The names that a flag like kube-controller-manager's --controllers lets run.

    `*` stands for all; a name for itself, and `-name` for not that one; `none` for none.

    Raises:
        ConfigurationError: a name is none of a controller.
    """
    words = [word.strip() for word in flag.split(",") if word.strip()]
    if words == ["none"]:
        return ()
    unknown = [word for word in words if word != "*" and word.removeprefix("-") not in _ALL]
    if unknown or not words:
        raise ConfigurationError(
            f"--controllers {flag}: {', '.join(unknown) or 'nothing'} is none of none, *, "
            f"{', '.join(_ALL)}"
        )
    return tuple(
        name for name in _ALL if name in words or ("*" in words and f"-{name}" not in words)
    )
