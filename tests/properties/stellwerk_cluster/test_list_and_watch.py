"""A list and the watch that begins at its version show what is stored, whatever happens then."""

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apiserver.listing import ListOptions, list_page, parse_list_options
from stellwerk_cluster.apiserver.rendering import PLAIN, Renderer
from stellwerk_cluster.apiserver.tables import TableConvertors
from stellwerk_cluster.apiserver.watching import WatchFeed
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.store import Collection, Store
from stellwerk_cluster.registry.watchers import Watcher
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject

if TYPE_CHECKING:
    from stellwerk_cluster.registry.entries import Entry

NAMESPACES: Final = ("default", "other")
NODES: Final = ("", "n1", "n2")
SELECTIONS: Final[list[tuple[str | None, dict[str, str]]]] = [
    (None, {}),
    ("default", {}),
    (None, {"fieldSelector": "spec.nodeName=n1"}),
    (None, {"fieldSelector": "spec.nodeName="}),
    (None, {"fieldSelector": "spec.nodeName!=n1,metadata.namespace=other"}),
    ("other", {"fieldSelector": "metadata.name=a"}),
    (None, {"labelSelector": "app in (x,y),!gone"}),
    ("default", {"labelSelector": "app!=x", "fieldSelector": "status.phase=Running"}),
]


@dataclass
class Client:
    """What one client knows from a list and its watch."""

    namespace: str | None
    options: ListOptions
    known: dict[tuple[str, str], JsonObject]
    watcher: Watcher
    feed: WatchFeed
    versions: list[int] = field(default_factory=list)

    def read(self, lines: list[bytes]) -> None:
        for line in lines:
            event = orjson.loads(line)
            obj = event["object"]
            metadata = obj["metadata"]
            key = (metadata["namespace"], metadata["name"])
            assert (key in self.known) is (event["type"] != "ADDED")
            if event["type"] == "DELETED":
                del self.known[key]
            else:
                self.known[key] = obj
            self.versions.append(int(metadata["resourceVersion"]))
        assert self.versions == sorted(set(self.versions))


class ListAndWatch(RuleBasedStateMachine):
    """Pods come, change and go, while clients list and watch selections of them."""

    @initialize(window=st.sampled_from([3, 100]))
    def begin(self, window: int) -> None:
        self.store = Store(window=window)
        self.kinds = KindTable()
        self.kind = self.kinds.resource("pods")
        api = Api(self.store, self.kinds, VirtualClock(), Random(1))
        self.renderer = Renderer(TableConvertors(VirtualClock(), api.custom))
        self.clients: list[Client] = []

    @property
    def pods(self) -> Collection:
        return self.store.collection("pods")

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from("abc"),
        node=st.sampled_from(NODES),
        labels=st.dictionaries(st.sampled_from(["app", "gone"]), st.sampled_from("xyz")),
        phase=st.sampled_from(["Pending", "Running"]),
    )
    def put(self, namespace: str, name: str, node: str, labels: dict[str, str], phase: str) -> None:
        pod: dict[str, Any] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"nodeName": node} if node else {},
            "status": {"phase": phase},
        }
        present = self.pods.get((namespace, name))
        if present is None:
            self.store.create("pods", pod)
        else:
            self.store.replace("pods", pod, present)

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from("abc"))
    def drop(self, namespace: str, name: str) -> None:
        present = self.pods.get((namespace, name))
        if present is not None:
            self.store.remove("pods", present)

    @rule()
    def change_something_else(self) -> None:
        self.store.create("nodes", {"metadata": {"name": f"n{self.store.revision}"}})

    @rule(selection=st.sampled_from(SELECTIONS), limit=st.sampled_from([0, 1, 2]))
    def list_and_watch(self, selection: tuple[str | None, dict[str, str]], limit: int) -> None:
        namespace, query = selection
        paged = {**query, **({"limit": str(limit)} if limit else {})}
        entries: list[Entry] = []
        page = list_page(self.store, self.kind, self._options(namespace, paged))
        entries += page.entries
        while page.token:
            paged["continue"] = page.token
            page = list_page(self.store, self.kind, self._options(namespace, paged))
            entries += page.entries
        begun = {**query, "watch": "true", "resourceVersion": str(page.revision)}
        options = self._options(namespace, begun)
        feed = WatchFeed(self.store, self.kind, options, PLAIN, self.renderer)
        lines, goes_on = feed.first_lines()
        assert goes_on
        watcher = Watcher(lambda: None, lambda: None, trigger=options.selection.trigger)
        self.pods.watchers.append(watcher)
        known = {each.key: orjson.loads(each.data) for each in entries}
        client = Client(namespace, options, known, watcher, feed)
        client.read(list(lines))
        self.clients.append(client)

    @rule(number=st.integers(0, 20))
    def go_on_with_another_watch(self, number: int) -> None:
        """A connection breaks, and the client goes on from the last version that it knows."""
        if not self.clients:
            return
        client = self.clients[number % len(self.clients)]
        self.pods.watchers.remove(client.watcher)
        last = max(client.versions, default=client.options.revision)
        query = {"watch": "true", "resourceVersion": str(last)}
        query |= dict(next(q for ns, q in SELECTIONS if self._same(client, ns, q)))
        options = self._options(client.namespace, query)
        client.feed = WatchFeed(self.store, self.kind, options, PLAIN, self.renderer)
        lines, goes_on = client.feed.first_lines()
        if not goes_on:
            assert b'"code":410' in b"".join(lines)
            assert self.pods.forgotten > last
            self.clients.remove(client)
            return
        client.watcher = Watcher(lambda: None, lambda: None, trigger=options.selection.trigger)
        self.pods.watchers.append(client.watcher)
        client.read(list(lines))

    @invariant()
    def every_client_knows_what_is_selected(self) -> None:
        for client in getattr(self, "clients", ()):
            client.read(client.feed.lines(client.watcher.drain()))
            selection = client.options.selection
            wanted = {
                entry.key: orjson.loads(entry.data)
                for entry in self.pods.entries()
                if selection.selects(entry)
            }
            assert client.known == wanted

    def _options(self, namespace: str | None, query: dict[str, str]) -> ListOptions:
        return parse_list_options(self.kind, namespace, "", query)

    def _same(self, client: Client, namespace: str | None, query: dict[str, str]) -> bool:
        return self._options(namespace, query).selection == client.options.selection


TestListAndWatch = pytest.mark.timeout(120)(ListAndWatch.TestCase)
