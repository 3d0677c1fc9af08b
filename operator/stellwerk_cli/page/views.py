"""The pages: each asks the operator, and renders a template.

`server` adds the routes. Invariant: a list is shown a page at a time, and an answer that cannot be
had is a page that says why, with the status that belongs to it; each answer stands beside the
command that asks for it, in which a shell takes every name as one word.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import orjson
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stellwerk import __version__
from stellwerk.answers.answer import PortAnswer, codec
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.devices import (
    ClaimExplanation,
    DeviceExplanation,
    DeviceFields,
    DevicesPage,
)
from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.nodes import NodeExplanation, NodeFields, NodesPage
from stellwerk.answers.observed import CLASS_WORDS, ONE_STEP, ObservedPage, ObservedProfile
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.profiles import ProfilesPage, ServingProfile
from stellwerk.answers.queue import (
    BY_CONTROLLER,
    QUEUE_COLUMNS,
    PendingGroup,
    QueueHistoryPage,
    QueuePage,
)
from stellwerk.answers.search import FoundObject, SearchPage
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.words import latency, percent
from stellwerk.answers.workload import OwnedPods
from stellwerk.client.operator_port import PortRefusal
from stellwerk.models.troubleshooting import Section, entry_of, sections
from stellwerk.profiles.spec.defaults import DEFAULT_PLUGINS
from stellwerk.profiles.spec.profile import API_VERSION, KIND
from stellwerk_cli.page.node_grid import FULL_PERCENT, NodeGrid, colour, node_grid
from stellwerk_cli.page.queue_chart import HEIGHT, QUEUES, WIDTH, queue_chart
from stellwerk_cli.page.rate_chart import milliseconds, rate_charts
from stellwerk_cli.page.score_view import rejection_map, score_map, step, why_there
from stellwerk_cli.page.suggestion_form import (
    changes_text,
    filled_form,
    nodes_of,
    read_changes,
)
from stellwerk_cli.page.supposition_form import (
    ACTS,
    FIELDS,
    acts_of,
    as_shadow,
    as_yaml,
    supposition,
    with_weights,
)
from stellwerk_cli.page.what_if_view import (
    counted_templates,
    kinds_of_nodes,
    nodes_with_most,
    placed_alike,
    summary,
    template_name,
    unplaced_alike,
)
from stellwerk_kube.clock import SystemClock, parse_moment
from stellwerk_kube.compatibility import decided_as, decided_by_default
from stellwerk_kube.errors import ApiError, ConfigurationError, SchedulerError
from stellwerk_kube.untrusted_text import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk_cli.page.answers import Answers, ApiReader, PodEvent
    from stellwerk_kube.json_values import JsonObject

    View = Callable[[web.Request], Awaitable[web.Response]]


_END = "END"
_FILES = {"profile": "--profile", "nodes": "--add-nodes", "pod": "--pod"}
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


def command(*words: str) -> str:
    """The words as a shell reads them; empty ones are left out."""
    return " ".join(shlex.quote(word) for word in words if word)


def what_if_command(form: Mapping[str, str], pod: str = "") -> str:
    """The question of a form, with its manifests as files that are written before.

    `pod`: NAMESPACE/NAME of a live one.
    """
    lines, words = [], ["stellwerk", "what-if"]
    for name, option in _FILES.items():
        text = form.get(name, "").replace("\r\n", "\n").strip("\n")
        if not text.strip():
            continue
        end = _END
        while f"\n{end}\n" in f"\n{text}\n":
            end += _END
        lines.append(f"cat > {name}.yaml <<'{end}'\n{text}\n{end}\n")
        copies = form.get("copies", "").strip() if name == "pod" else ""
        words += [option, f"{name}.yaml={copies}" if copies else f"{name}.yaml"]
        if name == "nodes" and form.get("count", "1").strip() not in {"", "1"}:
            words += ["--count", form["count"].strip()]
    drain = form.get("drain", "").strip()
    words += ["--drain", drain] if drain else []
    for name in ACTS:
        for act in acts_of(form, name):
            # Labels and taints are words of their own, as for kubectl.
            words += [f"--{name}", *(act.split() if name in {"relabel", "taint"} else [act])]
    namespace, _, pod_name = pod.partition("/")
    words += ["--pod", pod_name, "-n", namespace] if pod else []
    return "".join(lines) + command(*words)


def file_name(path: str) -> str:
    """The name of the file for the answer of a page."""
    return (_UNSAFE.sub("-", path).strip("-.") or "overview")[:100] + ".json"


# --- the table of pages ---------------------------------------------------------------------------

_TEMPLATES: Final = Path(__file__).parent / "templates"
_ROWS_PER_PAGE: Final = 50
"""Rows of a list on one page: about two screens."""
_DEVICES_PER_PAGE: Final = 400
"""Devices of a page, which are squares: those of 50 nodes with eight each."""
_MAX_OFFERED_NAMES: Final = 200
"""Nodes and waiting pods that a form offers. Others can be typed."""
OFFERS_FRESH_SECONDS: Final = 10.0
"""Seconds for which the names that a form offers are not asked for again."""
GRID_FRESH_SECONDS: Final = 10.0
"""Seconds for which the picture of all nodes is not made anew, however many windows follow it."""
_MAX_FILTER_CHARACTERS: Final = 320
"""Characters of a filter: a label's key and value."""
_MAX_PREVIEW_ROWS: Final = 12
"""Rows of a list that another page shows the beginning of."""
_NOT_FOUND: Final = 404
_NEGATIVE: Final = frozenset({"Reconciling", "Stalled", "Overlapping", "InlineCredentials"})
"""Conditions of a profile that are bad when they are true."""
_MAX_QUERY_CHARACTERS: Final = 6000
"""Characters of an address with a query; a longer one is answered without its query."""
_MAX_PAGE_NUMBER: Final = 1_000_000
"""The highest number of a page: offsets stay small numbers, whatever an address says."""
_MAX_RESOURCE_COLUMNS: Final = 10
"""Resources of nodes that have a column each in the list."""
EVENTS_FRESH_SECONDS: Final = 10.0
"""Seconds for which the events of a pod are not asked for again, however many windows follow it."""
OBSERVED_SECONDS: Final = 10.0
"""Seconds for which the names of observed schedulers are not asked for again."""
_OBSERVING: Final[web.RequestKey[Sequence[ObservedProfile]]] = web.RequestKey("observing", Sequence)
"""The profiles that observe, while a request is answered."""
FOLLOW_SECONDS: Final = 2
"""Seconds between two questions of a page that follows an answer."""
FOLLOW_SLOWLY_SECONDS: Final = 10
"""Seconds between two questions where the operator computes the answer anew each time."""
RANGES: Final = {"5m": "5 minutes", "1h": "1 hour", "all": "12 hours"}
"""Ranges of the charts: the operator's name → words."""
_COMPUTED: Final = frozenset({"waiting", "scheduling"})
_MAX_COMPARISONS: Final = 1000
"""Comparisons that are asked for: as many as an operator keeps of a profile."""
_NOT_ALIKE: Final = frozenset({"differs", "foundNone"})
"""Classes of bindings that are listed unless the address asks for another one."""
_NO_API: Final = "this page cannot reach the API server"


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list that the operator answers a page at a time; its filters are in the address."""

    address: str
    kind: type[QueuePage | DecisionsPage | NodesPage | DevicesPage]
    words: tuple[str, ...]
    """The command that prints it."""
    filters: Mapping[str, str]
    """Filter of the address → the command's option."""
    asks: str = ""
    """The path of the operator's port; empty: the same as the page's."""
    unless_asked: Mapping[str, str] = field(default_factory=dict)
    """Asked for as well, unless the address says otherwise."""
    per_page: int = _ROWS_PER_PAGE
    """Entries of a page."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns that the list can be sorted by: key → title."""


LISTS: Final = (
    ListPage(
        "/queue",
        QueuePage,
        ("stellwerk", "queue", "--all-namespaces"),
        {"q": "--match", "queue": "--queue", "plugin": "--plugin"},
        columns=QUEUE_COLUMNS,
    ),
    ListPage(
        "/decisions",
        DecisionsPage,
        ("stellwerk", "decisions", "--all-namespaces"),
        {"q": "--match", "node": "--node"},
    ),
    ListPage(
        "/nodes",
        NodesPage,
        ("stellwerk", "nodes"),
        {"q": "--match", "label": "--selector", "sort": "--sort-by"},
        unless_asked={"totals": "yes", "sort": "name"},
    ),
    ListPage(
        "/devices",
        DevicesPage,
        ("stellwerk", "devices"),
        {"q": "--match", "node": "--node", "state": "--state"},
        asks="/explain/devices",
        per_page=_DEVICES_PER_PAGE,
    ),
)


@dataclass(frozen=True, slots=True)
class SubjectPage:
    """A page about one thing, with one answer of the operator.

    Names in braces are parts of the address.
    """

    address: str
    asks: str
    """The path of the operator's port."""
    kind: type[ClaimExplanation | DeviceExplanation | GroupExplanation]
    name: str
    """The name of the template, and of the answer in it."""
    words: tuple[str, ...]
    """The command that asks the same."""
    follow: int


SUBJECTS: Final = (
    SubjectPage(
        "/claims/{namespace}/{name}",
        "/explain/{namespace}/resourceclaims/{name}",
        ClaimExplanation,
        "claim",
        ("stellwerk", "explain", "resourceclaim/{name}", "-n", "{namespace}"),
        FOLLOW_SECONDS,
    ),
    SubjectPage(
        "/devices/{name:(?s:.+)}",
        "/explain/devices?explain={name}",
        DeviceExplanation,
        "device",
        ("stellwerk", "explain", "device/{name}"),
        FOLLOW_SECONDS,
    ),
    SubjectPage(
        "/groups/{namespace}/{name}",
        "/explain/{namespace}/podgroups/{name}",
        GroupExplanation,
        "group",
        ("stellwerk", "explain", "podgroup/{name}", "-n", "{namespace}"),
        FOLLOW_SLOWLY_SECONDS,
    ),
)
_LISTED: Final = frozenset(each.address for each in LISTS)


@dataclass(frozen=True, slots=True)
class WeightsTrial:
    """A profile with other weights, decided on a copy."""

    pod: str = ""
    """The one that it decides for, NAMESPACE/NAME; empty: all that wait."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """Those that were typed and are others, by plugin."""
    answer: WhatIf | None = None
    now_on: str = ""
    """The node that the pod is on."""
    command: str = ""
    as_shadow: str = ""
    """The profile beside itself, as a manifest."""
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The question that the address of a list asks."""

    page: ListPage
    number: int
    """The page of the list, from 1."""
    words: Mapping[str, str]
    """The text of each filter, perhaps empty."""
    kept: Mapping[str, str]
    """The query of links to other pages of the same list."""

    @classmethod
    def of(cls, page: ListPage, request: web.Request) -> Asked:
        """Read the address of a request for a list."""
        words = {
            key: request.query.get(key, "").strip()[:_MAX_FILTER_CHARACTERS] for key in page.filters
        }
        return cls(page, _page_number(request), words, {key: it for key, it in words.items() if it})

    @property
    def filters(self) -> dict[str, str]:
        """The filters that are set."""
        return {key: word for key, word in self.words.items() if word}

    def path(self, more: Mapping[str, str]) -> str:
        """The question to the operator; filters go before what else is asked for."""
        size = self.page.per_page
        part = {"limit": size, "offset": (self.number - 1) * size}
        query = urlencode({**part, **more, **self.filters}, quote_via=quote)
        return f"{self.page.asks or self.page.address}?{query}"

    @property
    def command(self) -> str:
        """The command that asks the question in a terminal."""
        options = (f"{self.page.filters[key]}={word}" for key, word in self.filters.items())
        return command(*self.page.words, *options)

    @property
    def shown(self) -> dict[str, Any]:
        """The names that the templates of all lists have."""
        return {
            "number": self.number,
            "asked": self.words,
            "filters": self.kept,
            "kept": address_of(self.kept),
            "columns": self.page.columns,
        }


@dataclass(frozen=True, slots=True)
class GridOf:
    """The picture of all nodes by one resource."""

    resource: str
    total: int
    """Nodes that there are. The picture has as many of them as one answer may have."""
    grid: NodeGrid


async def _nothing() -> None:
    return None


def address_of(query: Mapping[str, str], **changed: str) -> str:
    """The rest of an address behind another part of its query; what is changed to "" is left out.

    A page of the list and an opened row belong to the one order in which they were seen.
    """
    whole = {key: text for key, text in {**query, **changed}.items() if text or key == "reason"}
    return "".join(f"&{urlencode({key: text}, quote_via=quote)}" for key, text in whole.items())


def group_key(group: PendingGroup) -> str:
    """The name of a row of pods in an address."""
    return "|".join([group.namespace, group.controller or "", *(group.rejected_by or ())])


def group_filter(group: PendingGroup) -> dict[str, str]:
    """The filter of the pods of a row."""
    return {
        "controller": f"{group.namespace}/{group.controller}",
        "reason": ",".join(group.rejected_by or ()),
    }


@dataclass(frozen=True, slots=True)
class Offers:
    """Names that a what-if form offers."""

    nodes: Sequence[str]
    """Some of them, by name."""
    pods: Sequence[str]
    """NAMESPACE/NAME of waiting pods, one of each row of the queue."""
    profiles: Sequence[str]


class Views:
    """Handlers of every page."""

    def __init__(
        self,
        answers: Answers,
        api: ApiReader | None = None,
        remarks: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Prepare the pages.

        Args:
            answers: of the operator.
            api: reads the API server; None: nothing does.
            remarks: what is assumed of a cluster that is followed without an operator.
        """
        self._answers = answers
        self._api = api
        self._remarks = remarks
        self._templates = _environment()
        self.routes = [
            web.get("/", self._shown(self._overview)),
            web.get("/queue", self._shown(self._queue)),
            *(web.get(each.address, self._shown(partial(self._list, each))) for each in LISTS[1:]),
            *(
                web.get(each.address, self._shown(partial(self._subject, each)))
                for each in SUBJECTS
            ),
            web.get("/nodes/{name}", self._shown(self._node)),
            web.get("/owners/{namespace}/{kind}/{name}", self._shown(self._owner)),
            web.get("/profiles", self._shown(self._profiles)),
            web.get("/profiles/{name}", self._shown(self._profile)),
            web.get("/observed", self._shown(self._observed)),
            web.get("/search", self._shown(self._search)),
            web.get("/pods/{namespace}/{name}", self._shown(self._pod)),
            web.get("/help", self._shown(self._help)),
            web.get("/what-if", self._shown(self._form)),
            web.post("/what-if", self._shown(self._what_if)),
            web.get("/{path:(?s:.*)}", self._shown(self._no_page)),
        ]

    # --- pages ----------------------------------------------------------------------------------

    async def _overview(self, request: web.Request) -> web.Response:
        ask = self._answers.get
        wanted = request.query.get("range", "")
        wanted = wanted if wanted in RANGES else "5m"
        history, decisions, waiting, nodes = await asyncio.gather(
            ask(f"/queue/history?range={wanted}", QueueHistoryPage),
            ask(f"/decisions?limit={_MAX_PREVIEW_ROWS}", DecisionsPage),
            ask(f"/queue?limit={_MAX_PREVIEW_ROWS}&by={BY_CONTROLLER}", QueuePage),
            ask("/nodes?limit=1&totals=yes", NodesPage),
        )
        return self._page(
            request,
            "overview.html",
            answer={
                "history": history,
                "decisions": decisions,
                "waiting": waiting,
                "nodes": nodes,
            },
            command="\n".join(command(*each.words) for each in LISTS[:3]),
            chart=queue_chart(history.items),
            lines=rate_charts(history.items, local_time),
            history=history,
            ranges=RANGES,
            wanted=wanted,
            decisions=decisions,
            waiting=waiting,
            nodes=nodes,
        )

    async def _list(self, page: ListPage, request: web.Request) -> web.Response:
        asked = Asked.of(page, request)
        listed, picture = await asyncio.gather(
            self._answers.get(asked.path({**page.unless_asked}), page.kind),
            self._grid(asked, request) if page.kind is NodesPage else _nothing(),
        )
        return self._page(
            request,
            f"{page.address[1:]}.html",
            answer=listed,
            command=asked.command,
            listed=listed,
            last=max(1, -(-listed.total // page.per_page)),
            picture=picture,
            **asked.shown,
        )

    async def _grid(self, asked: Asked, request: web.Request) -> GridOf:
        """The picture of all nodes that the list has, on this page or not."""
        resource = request.query.get("grid", "").strip()[:_MAX_FILTER_CHARACTERS] or "cpu"
        words = {**asked.page.unless_asked, **asked.filters, "totals": "", "shares": resource}
        query = urlencode({**words, "limit": 1}, quote_via=quote)
        shown = await self._answers.get(f"/nodes?{query}", NodesPage, GRID_FRESH_SECONDS)
        return GridOf(resource, shown.total, node_grid(shown.shares or (), asked.page.per_page))

    async def _queue(self, request: web.Request) -> web.Response:
        """The pods that wait, by controller, of which one may be open, or one by one."""
        asked = Asked.of(LISTS[0], request)
        kept = {
            key: request.query[key]
            for key in ("view", "controller", "reason", "sort")
            if key in request.query
        }
        one_by_one = kept.get("view") == "pods" or "controller" in kept
        by = {} if one_by_one else {"by": BY_CONTROLLER}
        of = {key: text for key, text in kept.items() if key != "view"}
        listed = await self._answers.get(asked.path({**by, **of}), QueuePage)
        opened, of_opened = request.query.get("open", ""), None
        for each in listed.groups or ():
            if group_key(each) == opened:
                query = urlencode({"limit": _ROWS_PER_PAGE, **group_filter(each)}, quote_via=quote)
                of_opened = await self._answers.get(f"/queue?{query}", QueuePage)
        rows = listed.total if listed.groups_total is None else listed.groups_total
        asked = replace(asked, kept={**asked.filters, **kept})
        return self._page(
            request,
            "queue.html",
            answer=listed,
            command=asked.command,
            listed=listed,
            last=max(1, -(-rows // _ROWS_PER_PAGE)),
            one_by_one=one_by_one,
            opened=opened,
            of_opened=of_opened,
            of={key: kept.get(key, "") for key in ("view", "controller", "sort")},
            **asked.shown,
        )

    async def _subject(self, page: SubjectPage, request: web.Request) -> web.Response:
        names = request.match_info
        path = page.asks.format_map({key: quote(name, "") for key, name in names.items()})
        answer = await self._answers.get(path, page.kind)
        shown: dict[str, Any] = {page.name: answer}
        return self._page(
            request,
            f"{page.name}.html",
            follow=page.follow,
            answer=answer,
            command=command(*(word.format_map(names) for word in page.words)),
            **shown,
        )

    async def _node(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        explanation, devices = await asyncio.gather(
            self._answers.get(f"/nodes?explain={quote(name, '')}", NodeExplanation),
            self._answers.get(
                f"/explain/devices?limit={_DEVICES_PER_PAGE}&node={quote(name, '')}", DevicesPage
            ),
        )
        return self._page(
            request,
            "node.html",
            follow=FOLLOW_SLOWLY_SECONDS,
            answer=explanation,
            command=command("stellwerk", "explain", f"node/{name}"),
            explained=explanation,
            devices=devices,
        )

    async def _owner(self, request: web.Request) -> web.Response:
        found = request.match_info
        namespace, kind, name = found["namespace"], found["kind"], found["name"]
        path = "/".join(quote(each, "") for each in (namespace, "owners", kind, name))
        pods = await self._answers.get(f"/explain/{path}", OwnedPods)
        explains = kind in {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"}
        words = ("stellwerk", "explain") if explains else ("kubectl", "describe")
        return self._page(
            request,
            "owner.html",
            answer=pods,
            command=command(*words, f"{kind.lower()}/{name}", "-n", namespace),
            owned=pods,
        )

    async def _profiles(self, request: web.Request) -> web.Response:
        listed = await self._answers.get("/profiles", ProfilesPage)
        serving = {each.name: each for each in listed.items}
        words = command("kubectl", "get", "schedulerprofiles")
        return self._page(
            request,
            "profiles.html",
            answer=listed,
            command=words,
            listed=listed,
            serving=serving,
            differences={each.name: differences(each) for each in listed.items},
        )

    async def _profile(self, request: web.Request) -> web.Response:
        """A profile with its shadow's differences, its history, and a trial of other weights."""
        name = request.match_info["name"]
        listed, shadow, (history, no_history) = await asyncio.gather(
            self._answers.get("/profiles", ProfilesPage),
            self._shadow_of(name),
            self._read_history(name),
        )
        profile = next((each for each in listed.objects if each.name == name), None)
        if profile is None:
            raise PortRefusal(_NOT_FOUND, f'there is no SchedulerProfile "{name}" here')
        served = next((each for each in listed.items if each.name == name), None)
        newest = history.revisions[0] if history is not None and history.revisions else None
        spec = newest.spec if newest is not None else None
        pod = request.query.get("pod", "").strip()
        trial = WeightsTrial(
            pod="/".join(_pod_names(pod)) if pod else "",
            weights={
                plugin: request.query[plugin].strip()
                for plugin, weight in (served.weights.items() if served is not None else ())
                if request.query.get(plugin, f"{weight}").strip() != f"{weight}"
            },
        )
        if "try" in request.query and spec is not None:
            trial = await self._tried(trial, spec, name)
        parts = {"profile": profile, "serving": served, "shadow": shadow, "history": history}
        whole = {key: part for key, part in parts.items() if part is not None}
        commands = [command("stellwerk", "profile", "history", name)]
        commands += [command("stellwerk", "shadow", "diff", name)] if shadow is not None else []
        return self._page(
            request,
            "profile.html",
            status=422 if trial.mistake else 200,
            follow=0,
            answer=trial.answer or whole,
            command=trial.command or "\n".join(commands),
            profile=profile,
            served=served,
            shadow=shadow,
            history=history,
            no_history=no_history,
            can_try=spec is not None,
            trial=trial,
        )

    async def _observed(self, request: web.Request) -> web.Response:
        """The comparison with each observed scheduler, of whose bindings one class may be open."""
        wanted = request.query.get("result", "")
        wanted = wanted if wanted in CLASS_WORDS else ""
        path = f"/observed?limit={_MAX_COMPARISONS}"
        observed = await self._answers.get(path, ObservedPage)
        rows = {
            each.name: [
                one
                for one in each.comparisons
                if (one.result == wanted if wanted else one.result in _NOT_ALIKE)
            ][:_ROWS_PER_PAGE]
            for each in observed.items
        }
        return self._page(
            request,
            "observed.html",
            answer=observed,
            command=command("stellwerk", "observe", "report"),
            observed=observed,
            wanted=wanted,
            rows=rows,
        )

    async def _tried(self, trial: WeightsTrial, spec: JsonObject, name: str) -> WeightsTrial:
        """The trial with its answer, or the reason why there is none."""
        try:
            changed = with_weights(spec, name, trial.weights)
            body: dict[str, Any] = {"profile": changed}
            if trial.pod:
                body["pod"] = await self._live_pod(trial.pod)
            answer = await self._answers.post("/what-if", body, WhatIf)
        except (ConfigurationError, PortRefusal, ApiError) as error:
            return replace(trial, mistake=f"{error}")
        written = {"profile": as_yaml(changed)}
        return replace(
            trial,
            answer=answer,
            now_on=(body.get("pod") or {}).get("spec", {}).get("nodeName", ""),
            command=what_if_command(written, trial.pod),
            as_shadow=as_shadow(changed),
        )

    async def _live_pod(self, key: str) -> JsonObject:
        """The manifest of a pod, NAMESPACE/NAME."""
        api, (namespace, name) = self._api, _pod_names(key)
        if api is None:
            raise ConfigurationError(_NO_API)
        return await self._answers.ask(lambda: api.pod(namespace, name))

    async def _shadow_of(self, name: str) -> ShadowDiff | None:
        """Decisions that a profile would have made otherwise; None: it decides itself."""
        try:
            return await self._answers.get(f"/shadow/{quote(name, '')}", ShadowDiff)
        except PortRefusal as refusal:
            # An older role does not give the right to ask that.
            if refusal.status in {403, 404}:
                return None
            raise

    async def _events(self, namespace: str, name: str) -> tuple[Sequence[PodEvent], str]:
        """The newest events of a pod, or the reason why they cannot be read."""
        api = self._api
        if api is None:
            return (), ""
        try:
            found = await self._answers.kept(
                f"events {namespace}/{name}",
                lambda: api.events(namespace, name),
                EVENTS_FRESH_SECONDS,
            )
        except SchedulerError as error:
            return (), f"{error}"
        return found, ""

    async def _read_history(self, name: str) -> tuple[ProfileHistory | None, str]:
        """The accepted specs of a profile, or the reason why they cannot be read."""
        api = self._api
        if api is None:
            return None, _NO_API
        try:
            return await self._answers.ask(lambda: api.history(name)), ""
        except SchedulerError as error:
            return None, f"{error}"

    async def _search(self, request: web.Request) -> web.Response:
        """Objects by a part of their name; where only one is meant, its own page."""
        text = " ".join(request.query.get("q", "").split())[:_MAX_FILTER_CHARACTERS]
        is_typing = "suggest" in request.query
        found = await self._found(text, _MAX_PREVIEW_ROWS if is_typing else _ROWS_PER_PAGE)
        so_called = [each for each in found.items if text in {each.name, _last_part(each.name)}]
        is_shown = is_typing or request.query.get("format") == "json"
        if not is_shown and (found.total == 1 or len(so_called) == 1):
            raise web.HTTPSeeOther(place_of((so_called or found.items)[0]))
        return self._page(
            request,
            "search.html",
            status=200 if found.total or not text or is_typing else _NOT_FOUND,
            follow=0,
            answer=found,
            command="\n".join(command(*each.words, f"--match={text}") for each in LISTS[:3])
            if text
            else "",
            found=found,
            text=text,
        )

    async def _found(self, text: str, limit: int) -> SearchPage:
        query = urlencode({"q": text, "limit": limit}, quote_via=quote)
        return await self._answers.get(f"/explain/search?{query}", SearchPage)

    async def _pod(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        path = f"/explain/{quote(namespace, '')}/{quote(name, '')}"
        explanation, (events, no_events) = await asyncio.gather(
            self._answers.get(path, PodExplanation), self._events(namespace, name)
        )
        served = (await self._answers.get("/profiles", ProfilesPage)).items
        by = explanation.selected_by
        profile = next(
            (
                each.name
                for each in served
                if (each.name == by if by else each.scheduler_name == explanation.scheduler_name)
            ),
            "",
        )
        computed = explanation.state in _COMPUTED or explanation.placement_now is not None
        return self._page(
            request,
            "pod.html",
            follow=FOLLOW_SLOWLY_SECONDS if computed else FOLLOW_SECONDS,
            answer=explanation,
            command=command("stellwerk", "explain", f"pod/{name}", "-n", namespace),
            pod=explanation,
            namespace=namespace,
            profile=profile,
            held_back=explanation.queue is not None and explanation.queue.gated_by is not None,
            scores=score_map(explanation),
            sentence=why_there(explanation),
            events=events,
            no_events=no_events,
            rejections=rejection_map(explanation.verdicts),
        )

    async def _no_page(self, request: web.Request) -> web.Response:
        return self._failed(request, _NOT_FOUND, f"there is no page {request.path}")

    async def _help(self, request: web.Request) -> web.Response:
        text = " ".join(request.query.get("q", "").split())[:_MAX_FILTER_CHARACTERS]
        found = await asyncio.to_thread(searched_sections, text)
        count = sum(len(each.entries) for each in found)
        return self._page(request, "help.html", follow=0, sections=found, text=text, count=count)

    async def _form(self, request: web.Request) -> web.Response:
        """The form, or with `decide` in the address the answer to what stands there."""
        form = {field: request.query.get(field, "") for field in FIELDS}
        if "of" in request.query:
            return await self._tried_suggestion(request)
        if "decide" not in request.query:
            return await self._supposed(request, form)
        return await self._decided(request, form)

    async def _tried_suggestion(self, request: web.Request) -> web.Response:
        """The form filled in as a suggestion for a pod says, and decided where all of it is in."""
        form = dict.fromkeys(FIELDS, "")
        profile = request.query.get("profile_of", "").strip()
        try:
            if profile:
                form["profile"] = as_yaml(await self._profile_manifest(profile))
            if not request.query["of"]:
                return await self._supposed(request, form)
            changes = read_changes(request.query.get("changes", "[]"))
            pod = await self._live_pod(request.query["of"])
            names = nodes_of(changes)
            paths = (f"/nodes?explain={quote(name, '')}" for name in names)
            asked = await asyncio.gather(
                *(self._answers.get(path, NodeExplanation) for path in paths)
            )
            known = {name: each.node for name, each in zip(names, asked, strict=True)}
            filled = filled_form(changes, pod, known)
        except (ConfigurationError, PortRefusal, ApiError) as error:
            return await self._supposed(request, form, mistake=f"{error}", status=422)
        form |= {name: text for name, text in filled.form.items() if text}
        if filled.by_hand or not changes:
            return await self._supposed(request, form, by_hand=filled.by_hand)
        return await self._decided(request, form)

    async def _profile_manifest(self, name: str) -> JsonObject:
        """The accepted spec of a profile as a manifest.

        Raises:
            ConfigurationError: it cannot be read.
        """
        history, why = await self._read_history(name)
        newest = history.revisions[0] if history is not None and history.revisions else None
        if newest is None or newest.spec is None:
            raise ConfigurationError(why or f"profile: no spec of {name} has been accepted yet")
        metadata = {"name": name}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": newest.spec}

    async def _offers(self) -> Offers:
        """Names to choose from, so that none has to be typed."""
        ask = self._answers.get
        nodes, waiting, profiles = await asyncio.gather(
            ask(f"/nodes?limit={_MAX_OFFERED_NAMES}&sort=name", NodesPage, OFFERS_FRESH_SECONDS),
            ask(
                f"/queue?limit={_MAX_OFFERED_NAMES}&by={BY_CONTROLLER}",
                QueuePage,
                OFFERS_FRESH_SECONDS,
            ),
            ask("/profiles", ProfilesPage),
        )
        return Offers(
            [each.name for each in nodes.items],
            [each.longest_waiting for each in waiting.groups or ()],
            [each.name for each in profiles.items],
        )

    async def _what_if(self, request: web.Request) -> web.Response:
        """The answer at an address of its own, where the question is short enough for one."""
        posted = await request.post()
        form = {field: str(posted.get(field, "")) for field in FIELDS}
        filled = {field: text for field, text in form.items() if text.strip()}
        query = urlencode({**filled, "decide": "yes"}, quote_via=quote, errors="replace")
        if len(query) <= _MAX_QUERY_CHARACTERS:
            raise web.HTTPSeeOther(f"/what-if?{query}")
        return await self._decided(request, form)

    async def _decided(self, request: web.Request, form: Mapping[str, str]) -> web.Response:
        try:
            # Reading YAML takes long enough to be done beside the loop.
            body = await asyncio.to_thread(supposition, form)
            answer = await self._answers.post("/what-if", body, WhatIf)
        except (ConfigurationError, PortRefusal) as error:
            return await self._supposed(request, form, mistake=f"{error}", status=422)
        return await self._supposed(request, form, answer=answer)

    async def _supposed(
        self,
        request: web.Request,
        form: Mapping[str, str],
        *,
        answer: WhatIf | None = None,
        mistake: str = "",
        by_hand: Sequence[str] = (),
        status: int = 200,
    ) -> web.Response:
        """The form as it was filled in, with what came of it."""
        explanation = answer.explanation if answer is not None else None
        offers = await self._offers()
        return self._page(
            request,
            "what_if.html",
            status=status,
            follow=0,
            answer=answer,
            command=what_if_command(form) if answer is not None else "",
            form=form,
            mistake=mistake,
            by_hand=by_hand,
            tried=request.query.get("of", ""),
            offers=offers,
            summary=summary(answer) if answer is not None else "",
            placed=placed_alike(answer) if answer is not None else (),
            unplaced=unplaced_alike(answer) if answer is not None else (),
            templates=[
                (each, template_name(each), kinds_of_nodes(each), nodes_with_most(each, 20))
                for each in (counted_templates(answer) if answer is not None else ())
            ],
            pod=explanation,
            held_back=False,
            rejections=rejection_map(explanation.verdicts if explanation is not None else None),
        )

    # --- rendering ------------------------------------------------------------------------------

    def _shown(self, view: View) -> View:
        """A view that becomes a page with the reason where there is no answer."""

        async def handler(request: web.Request) -> web.Response:
            request[_OBSERVING] = await self._observing()
            try:
                return await view(request)
            except PortRefusal as refusal:
                status = refusal.status if refusal.status in {401, 403, 404, 422, 429} else 502
                near = await self._near(request) if status == _NOT_FOUND else ()
                return self._failed(request, status, f"{refusal}", near)
            except SchedulerError as error:
                return self._failed(request, 503, f"{error}")

        return handler

    async def _observing(self) -> Sequence[ObservedProfile]:
        """The profiles that observe, for the line above every page."""
        try:
            found = await self._answers.get("/observed?limit=1", ObservedPage, OBSERVED_SECONDS)
        except SchedulerError:
            # An older operator observes nothing, an older role does not give the right to ask. The
            # page itself says whether the operator answers.
            return ()
        return found.items

    async def _near(self, request: web.Request) -> Sequence[FoundObject]:
        """Objects whose names are like that of a page whose subject is not there."""
        name = _last_part(request.match_info.get("name", ""))[:_MAX_FILTER_CHARACTERS]
        if not name or request.path.startswith("/search"):
            return ()
        try:
            found = await self._found(name, _MAX_PREVIEW_ROWS)
        except SchedulerError:
            # They are an offer. The page says without them that there is nothing of that name.
            return ()
        return found.items or found.near or ()

    def _failed(
        self, request: web.Request, status: int, error: str, near: Sequence[FoundObject] = ()
    ) -> web.Response:
        return self._page(
            request,
            "error.html",
            status=status,
            # The names that the operator tells in one line are links below it.
            error=error.partition("; ")[0] if near else error,
            is_missing=status == _NOT_FOUND,
            near=near,
            whole=request.path if request.query and request.path in _LISTED else "",
        )

    def _page(
        self,
        request: web.Request,
        template: str,
        *,
        status: int = 200,
        follow: int = FOLLOW_SECONDS,
        answer: PortAnswer | Mapping[str, PortAnswer] | None = None,
        command: str = "",
        **shown: Any,
    ) -> web.Response:
        """A rendered template; 304 where the browser has the same already.

        `answer`: what it shows, which is the whole response where the address asks for JSON;
        several answers have a name each.
        `command`: the same question in a terminal.
        """
        if answer is not None and request.query.get("format") == "json":
            return _download(request, answer)
        own = [(name, text) for name, text in request.query.items() if name != "format"]
        is_at_its_address = answer is not None and request.method == "GET"
        text = self._templates.get_template(template).render(
            path=request.path,
            follow=follow,
            observing=sorted({each.scheduler_name for each in request.get(_OBSERVING, ())}),
            observed_waiting=sum(each.waiting for each in request.get(_OBSERVING, ())),
            remarks=list(self._remarks()),
            answer=answer,
            command=command,
            as_json=f"?{urlencode([*own, ('format', 'json')], quote_via=quote, errors='replace')}"
            if is_at_its_address
            else "",
            **shown,
        )
        tag = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
        if status == 200 and request.headers.get("If-None-Match") == f'"{tag}"':  # noqa: PLR2004 OK
            return web.Response(status=304)
        body = text.encode(errors="replace")
        headers = {"ETag": f'"{tag}"'}
        return web.Response(
            status=status, body=body, content_type="text/html", charset="utf-8", headers=headers
        )


def _environment() -> Environment:
    """Templates that escape whatever they show, and fail where a name is missing."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {
        "amount": amount,
        "decided_as": decided_as,
        "decided_by_default": decided_by_default,
        "local_time": local_time,
        "local_date": local_date,
        "segment": _segment,
        "place_of": place_of,
        "pod_path": lambda key: "/".join(quote(part, "") for part in _pod_names(key)),
        "group_key": group_key,
        "group_filter": group_filter,
        "changes_text": changes_text,
        "owner_path": owner_path,
        "for_words": for_words,
        "queue_words": lambda queue: _QUEUE_WORDS.get(queue, queue),
        "holders_of": holders_of,
        "milliseconds": milliseconds,
        "percent_of": percent,
        "latency": latency,
        "json": lambda value: orjson.dumps(value).decode(),
        "device_path": _device_path,
        "lines": _lines,
        "words": _words,
        "yaml": as_yaml,
    }
    environment.globals |= {
        "version": __version__,
        "share": share,
        "step": step,
        "address_of": address_of,
        "colour": colour,
        "full_percent": FULL_PERCENT,
        "rows_of_devices": rows_of_devices,
        "unit": lambda resource: " cores" if resource == "cpu" else "",
        "resources_of": lambda nodes: resources_of(nodes, _MAX_RESOURCE_COLUMNS),
        "chart_size": (WIDTH, HEIGHT),
        "queues": QUEUES,
        "negative_conditions": _NEGATIVE,
        "class_words": CLASS_WORDS,
        "one_step": ONE_STEP,
        "zone_label": "topology.kubernetes.io/zone",
        "shell": command,
        "entry_of": entry_of,
    }
    return environment


def _lines(text: str) -> Markup:
    """A text of several lines, which stay apart."""
    return escape(printable_lines(text))


def _words(name: str) -> Markup:
    """A name that may be broken between its words, which begin with capitals."""
    return Markup("<wbr>").join(_WORD.split(printable(name)))


def _download(request: web.Request, answer: PortAnswer | Mapping[str, PortAnswer]) -> web.Response:
    """The answer itself, as a file."""
    written: Any
    if isinstance(answer, Mapping):
        written = {name: codec(type(each)).as_json(each) for name, each in answer.items()}
    else:
        written = codec(type(answer)).as_json(answer)
    name = file_name(request.path)
    return web.Response(
        body=orjson.dumps(written, option=orjson.OPT_INDENT_2),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _pod_names(key: str) -> tuple[str, str]:
    """(namespace, name) of a pod that was typed: its name alone is one in the namespace default."""
    namespace, slash, name = key.rpartition("/")
    return namespace if slash else "default", name


def rows_of_devices(
    devices: Sequence[DeviceFields],
) -> list[tuple[str, str, Sequence[DeviceFields]]]:
    """(node, driver and pool, devices) for devices in a row that belong together."""

    def place(device: DeviceFields) -> tuple[str, str]:
        return device.node or "", device.device.rpartition("/")[0]

    return [(*where, list(found)) for where, found in groupby(devices, place)]


def holders_of(devices: Sequence[DeviceFields]) -> dict[str, list[int]]:
    """Claim → the numbers of the devices in the row that it holds, from 1."""
    found: dict[str, list[int]] = {}
    for number, device in enumerate(devices, 1):
        for claim in device.claims:
            found.setdefault(claim, []).append(number)
    return found


def owner_path(controller: str, namespace: str) -> str:
    """The address of a controller's page, or of a group's; the controller is KIND/NAME."""
    kind, _, name = controller.partition("/")
    return place_of(FoundObject(kind=kind, name=f"{namespace}/{name}"))


def place_of(found: FoundObject) -> str:
    """The address of an object's page."""
    namespace, _, name = found.name.rpartition("/")
    parts = [quote(each, "") for each in (namespace, name) if each]
    below = _PLACES.get(found.kind) or f"owners/{quote(namespace, '')}/{quote(found.kind, '')}"
    return f"/{'/'.join([below, *(parts if found.kind in _PLACES else parts[-1:])])}"


_QUEUE_WORDS: Final = {
    "activeQ": "active",
    "backoffQ": "backoff",
    "errorBackoffQ": "backoff after an error",
    "unschedulablePods": "unschedulable",
    "unschedulablePods (gated)": "gated",
}
"""kube-scheduler's names of the queues → those of the tiles and of the filter."""
_PLACES: Final = {
    "Pod": "pods",
    "Node": "nodes",
    "PodGroup": "groups",
    "ResourceClaim": "claims",
    "SchedulerProfile": "profiles",
}
"""Folders of the pages by kind; other kinds are controllers."""


def _last_part(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("/")[2]


def _device_path(name: str) -> str:
    """DRIVER/POOL/DEVICE as parts of a path; a pool's name may have several."""
    return quote(name, safe="/")


def _segment(text: str) -> str:
    """A name as one part of a path."""
    return quote(text, safe="")


def _page_number(request: web.Request) -> int:
    text = request.query.get("page", "1")
    if not (text.isascii() and text.isdecimal()):
        return 1
    return max(1, min(_MAX_PAGE_NUMBER, int(text[:9])))


# --- numbers as the page shows them ---------------------------------------------------------------

_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})


def amount(resource: str, value: int) -> str:
    """An amount of a resource in the unit that kubectl shows it in."""
    if resource == "cpu":
        return f"{value / 1000:g}" if value >= 1000 or not value else f"{value}m"  # noqa: PLR2004
    if resource in _BYTES or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if value >= size:
                return f"{value / size:.3g} {unit}"
    return f"{value}"


def share(used: int, offered: int) -> int:
    """Percent of what is offered; what is used of nothing is all of it."""
    if offered <= 0:
        return 100 if used > 0 else 0
    return used * 100 // offered


def resources_of(nodes: Sequence[NodeFields], most: int) -> list[str]:
    """The resources that any of the nodes offers: the native ones first, then by name."""
    native = ["cpu", "memory", "pods", "ephemeral-storage"]
    offered = {name for node in nodes for name, value in node.allocatable.items() if value}
    return [*(name for name in native if name in offered), *sorted(offered - {*native})][:most]


def searched_sections(text: str) -> list[Section]:
    """The sections of the help with the entries that have every word of a text."""
    words, found = text.casefold().split(), []
    for section in sections():
        entries = [
            entry
            for entry in section.entries
            if all(word in " ".join(entry.cells).casefold() for word in words)
        ]
        if entries:
            found.append(replace(section, entries=entries))
    return found


def differences(served: ServingProfile) -> list[str]:
    """The plugins and weights of a profile that one without settings does not have, in words."""
    usual = {name: weight for name, weight in DEFAULT_PLUGINS.items() if weight is not None}
    own = served.weights
    used = {name for names in served.plugins.values() for name in names} | {*own}
    lines = [
        f"{name} has weight {own[name]} instead of {weight}"
        for name, weight in usual.items()
        if own.get(name, weight) != weight
    ]
    lines += [
        f"with {name}{f' at weight {own[name]}' if name in own else ''}"
        for name in sorted(used - {*DEFAULT_PLUGINS})
    ]
    lines += [f"without {name}" for name in DEFAULT_PLUGINS if used and name not in used]
    lines += [
        f"{name} gives no points" for name in usual if own and name in used and name not in own
    ]
    return lines + ["with extenders"] * served.extenders


def local_date(text: str) -> str:
    """A moment of days or months ago, with its date, as the clock of this machine shows it."""
    try:
        return f"{parse_moment(text).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return text


def local_time(text: str) -> str:
    """A moment of the operator's answers as the clock of this machine shows it."""
    try:
        moment = parse_moment(text).astimezone()
    except (ValueError, OverflowError):
        return text
    return f"{moment:%H:%M:%S}"


_PERIODS: Final = ((86_400, "d", 2), (3600, "h", 2), (60, "min", 1))
"""(seconds, unit, units from which it is used)."""


def for_words(text: str) -> str:
    """The time since a moment, in one unit: a figure that stays while one reads the row."""
    try:
        seconds = SystemClock().now().timestamp() - parse_moment(text).timestamp()
    except (ValueError, OverflowError):
        return text
    for period, unit, least in _PERIODS:
        if seconds >= period * least:
            return f"{int(seconds // period)} {unit}"
    return "< 1 min"
