"""Component statuses: what is asked, and what is said of it."""

import socket

from stellwerk_cluster.apiserver.computed_kinds import ComponentStatuses, port_health


def test_each_look_asks_anew() -> None:
    wrong = ["", "it has ended"]
    statuses = ComponentStatuses({"scheduler": lambda: wrong.pop(0), "etcd-0": str})
    (scheduler, storage) = statuses.all(None)
    assert scheduler["metadata"] == {"name": "scheduler"}
    assert scheduler["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    assert storage["conditions"][0]["message"] == "ok"
    later = statuses.one(("", "scheduler")) or {}
    condition = {"type": "Healthy", "status": "False", "message": "it has ended"}
    assert later["conditions"] == [condition]
    assert statuses.one(("", "none")) is None


def test_a_port_is_well_while_it_takes_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port_health(port) == ""
    at = f"127.0.0.1:{port}"
    assert port_health(port) == (
        f'Get "https://{at}/healthz": dial tcp {at}: connect: connection refused'
    )
