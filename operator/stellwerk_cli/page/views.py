"""The pages: each asks the operator, and renders a template.

`server` adds the routes; an explanation is shown as heat maps of nodes × plugins, with nothing that
is not in the operator's answer; a step of their colour scale is one of eleven, so that a style
sheet can name each. Invariant: a list is shown a page at a time, and an answer that cannot be had
is a page that says why, with the status that belongs to it; each answer stands beside the command
that asks for it, in which a shell takes every name as one word.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from stellwerk.answers.devices import ClaimExplanation, DeviceExplanation, DevicesPage
from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.nodes import NodeExplanation, NodeFields, NodesPage
from stellwerk.answers.pod import (
    PodExplanation,
    RecomputedVerdicts,
    ScoreFields,
    read_names_near,
)
from stellwerk.answers.profiles import ProfilesPage
from stellwerk.answers.queue import QueueHistoryPage, QueuePage
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.workload import OwnedPods
from stellwerk.client.operator_port import PortRefusal
from stellwerk.models.troubleshooting import entry_of, sections
from stellwerk_cli.page.queue_chart import HEIGHT, QUEUES, WIDTH, queue_chart
from stellwerk_cli.page.supposition_form import (
    ACTS,
    FIELDS,
    acts_of,
    as_shadow,
    as_yaml,
    supposition,
    with_weights,
)
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.errors import ApiError, ConfigurationError, SchedulerError
from stellwerk_kube.untrusted_text import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk_cli.page.answers import Answers, ApiReader
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
        words += [option, f"{name}.yaml"]
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


# --- heat maps ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One node and one plugin."""

    text: str
    step: int
    """The step of the colour scale."""
    title: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One node."""

    node: str
    label: str
    """Its rank, or how many plugins turn it away."""
    total: str
    chosen: bool
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Nodes in rows, plugins in columns."""

    plugins: Sequence[str]
    rows: Sequence[HeatRow]


def score_map(explanation: PodExplanation) -> HeatMap | None:
    """The scores of the best nodes; None: nothing was scored."""
    best = explanation.decision.best if explanation.decision is not None else ()
    if not best:
        return None
    plugins = list(best[0].scores)
    rows = [
        HeatRow(
            each.node,
            f"{each.rank}",
            f"{each.total}",
            each.node == explanation.node,
            [_score(plugin, each.scores[plugin]) for plugin in plugins],
        )
        for each in best
    ]
    return HeatMap(plugins, rows)


def _score(plugin: str, score: ScoreFields) -> Cell:
    numbers = f"raw {score.raw}, normalised {score.normalized}, weighted {score.weighted}"
    return Cell(f"{score.weighted}", step(score.normalized), f"{plugin}: {numbers}")


def rejection_map(verdicts: RecomputedVerdicts | None) -> HeatMap | None:
    """The nodes nearest to taking the pod, with what turns them away; None: none was looked at."""
    if verdicts is None:
        return None
    nearest = verdicts.nearest or ()
    turning_away = {plugin for each in nearest for plugin in each.rejected_by}
    order = [each.plugin for each in verdicts.by_plugin or ()]
    plugins = [plugin for plugin in order if plugin in turning_away]
    if not plugins:
        return None
    rows = [
        HeatRow(
            each.node,
            f"{len(each.rejected_by)}",
            "",
            chosen=False,
            cells=[_rejection(plugin, each.rejected_by.get(plugin)) for plugin in plugins],
        )
        for each in nearest
    ]
    return HeatMap(plugins, rows)


def _rejection(plugin: str, reasons: Sequence[str] | None) -> Cell:
    if reasons is None:
        return Cell("", 0, f"{plugin}: lets the pod in")
    return Cell("✕", 1, f"{plugin}: {', '.join(reasons)}")


# --- the table of pages ---------------------------------------------------------------------------

_TEMPLATES: Final = Path(__file__).parent / "templates"
_PER_PAGE: Final = 50
_LONGEST: Final = 320
"""Characters of a filter: a label's key and value."""
_FEW: Final = 12
_NOT_FOUND: Final = 404
_NEGATIVE: Final = frozenset({"Reconciling", "Stalled", "Overlapping", "InlineCredentials"})
"""Conditions of a profile that are bad when they are true."""
_LONGEST_QUERY: Final = 6000
"""Characters of an address with a query; a longer one is answered without its query."""
_MOST_PAGES: Final = 1_000_000
_MOST_RESOURCES: Final = 10
FOLLOW_SECONDS: Final = 2
FOLLOW_SLOWLY_SECONDS: Final = 10
"""Seconds between two questions where the operator computes the answer anew each time."""
_COMPUTED: Final = frozenset({"waiting", "scheduling"})
_NO_API: Final = "this page has no way to the API server"


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


LISTS: Final = (
    ListPage(
        "/queue",
        QueuePage,
        ("stellwerk", "queue", "--all-namespaces"),
        {"q": "--match", "queue": "--queue", "plugin": "--plugin"},
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


class Views:
    """Handlers of every page."""

    def __init__(self, answers: Answers, api: ApiReader | None = None) -> None:
        """`api` reads the API server; None: nothing does."""
        self._answers = answers
        self._api = api
        self._templates = _environment()
        self.routes = [
            web.get("/", self._shown(self._overview)),
            *(web.get(each.address, self._shown(partial(self._list, each))) for each in LISTS),
            *(
                web.get(each.address, self._shown(partial(self._subject, each)))
                for each in SUBJECTS
            ),
            web.get("/nodes/{name}", self._shown(self._node)),
            web.get("/owners/{namespace}/{kind}/{name}", self._shown(self._owner)),
            web.get("/profiles", self._shown(self._profiles)),
            web.get("/profiles/{name}", self._shown(self._profile)),
            web.get("/pods", self._look_up),
            web.get("/pods/{namespace}/{name}", self._shown(self._pod)),
            web.get("/help", self._shown(self._help)),
            web.get("/what-if", self._shown(self._form)),
            web.post("/what-if", self._shown(self._what_if)),
            web.get("/{path:(?s:.*)}", self._shown(self._no_page)),
        ]

    # --- pages ----------------------------------------------------------------------------------

    async def _overview(self, request: web.Request) -> web.Response:
        ask = self._answers.get
        history, decisions, waiting, nodes = await asyncio.gather(
            ask("/queue/history", QueueHistoryPage),
            ask(f"/decisions?limit={_FEW}", DecisionsPage),
            ask(f"/queue?limit={_FEW}", QueuePage),
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
            decisions=decisions,
            waiting=waiting,
            nodes=nodes,
        )

    async def _list(self, page: ListPage, request: web.Request) -> web.Response:
        number = _page_number(request)
        words = {key: request.query.get(key, "").strip()[:_LONGEST] for key in page.filters}
        filters = {key: word for key, word in words.items() if word}
        part = {"limit": _PER_PAGE, "offset": (number - 1) * _PER_PAGE}
        query = urlencode({**part, **page.unless_asked, **filters}, quote_via=quote)
        listed = await self._answers.get(f"{page.asks or page.address}?{query}", page.kind)
        options = (f"{page.filters[key]}={word}" for key, word in filters.items())
        return self._page(
            request,
            f"{page.address[1:]}.html",
            answer=listed,
            command=command(*page.words, *options),
            listed=listed,
            number=number,
            last=max(1, -(-listed.total // _PER_PAGE)),
            asked=words,
            filters=filters,
            kept=f"&{urlencode(filters, quote_via=quote)}" if filters else "",
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
            self._answers.get(f"/explain/devices?limit={_FEW}&node={quote(name, '')}", DevicesPage),
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
            request, "profiles.html", answer=listed, command=words, listed=listed, serving=serving
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

    async def _read_history(self, name: str) -> tuple[ProfileHistory | None, str]:
        """The accepted specs of a profile, or the reason why they cannot be read."""
        api = self._api
        if api is None:
            return None, _NO_API
        try:
            return await self._answers.ask(lambda: api.history(name)), ""
        except SchedulerError as error:
            return None, f"{error}"

    async def _look_up(self, request: web.Request) -> web.Response:
        """From what was typed into the search field to the pod's own page."""
        namespace, name = _pod_names(request.query.get("name", "").strip())
        if not name:
            raise web.HTTPSeeOther("/queue")
        raise web.HTTPSeeOther(f"/pods/{quote(namespace, '')}/{quote(name, '')}")

    async def _pod(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        path = f"/explain/{quote(namespace, '')}/{quote(name, '')}"
        try:
            explanation = await self._answers.get(path, PodExplanation)
        except PortRefusal as refusal:
            if refusal.status != _NOT_FOUND:
                raise
            near = [f"{namespace}/{each}" for each in read_names_near(f"{refusal}")]
            error = f"{refusal}".partition("; ")[0]
            return self._page(
                request,
                "error.html",
                status=_NOT_FOUND,
                error=error,
                near=near,
                typed=name,
                whole="",
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
        computed = explanation.state in _COMPUTED
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
            rejections=rejection_map(explanation.verdicts),
        )

    async def _no_page(self, request: web.Request) -> web.Response:
        return self._failed(request, _NOT_FOUND, f"there is no page {request.path}")

    async def _help(self, request: web.Request) -> web.Response:
        found = await asyncio.to_thread(sections)
        return self._page(request, "help.html", follow=0, sections=found)

    async def _form(self, request: web.Request) -> web.Response:
        """The form, or with `decide` in the address the answer to what stands there."""
        form = {field: request.query.get(field, "") for field in FIELDS}
        if "decide" not in request.query:
            return self._supposed(request, form)
        return await self._decided(request, form)

    async def _what_if(self, request: web.Request) -> web.Response:
        """The answer at an address of its own, where the question is short enough for one."""
        posted = await request.post()
        form = {field: str(posted.get(field, "")) for field in FIELDS}
        filled = {field: text for field, text in form.items() if text.strip()}
        query = urlencode({**filled, "decide": "yes"}, quote_via=quote, errors="replace")
        if len(query) <= _LONGEST_QUERY:
            raise web.HTTPSeeOther(f"/what-if?{query}")
        return await self._decided(request, form)

    async def _decided(self, request: web.Request, form: Mapping[str, str]) -> web.Response:
        try:
            # Reading YAML takes long enough to be done beside the loop.
            body = await asyncio.to_thread(supposition, form)
            answer = await self._answers.post("/what-if", body, WhatIf)
        except (ConfigurationError, PortRefusal) as error:
            return self._supposed(request, form, mistake=f"{error}", status=422)
        return self._supposed(request, form, answer=answer)

    def _supposed(
        self,
        request: web.Request,
        form: Mapping[str, str],
        *,
        answer: WhatIf | None = None,
        mistake: str = "",
        status: int = 200,
    ) -> web.Response:
        """The form as it was filled in, with what came of it."""
        explanation = answer.explanation if answer is not None else None
        return self._page(
            request,
            "what_if.html",
            status=status,
            follow=0,
            answer=answer,
            command=what_if_command(form) if answer is not None else "",
            form=form,
            mistake=mistake,
            pod=explanation,
            held_back=False,
            rejections=rejection_map(explanation.verdicts if explanation is not None else None),
        )

    # --- rendering ------------------------------------------------------------------------------

    def _shown(self, view: View) -> View:
        """A view that becomes a page with the reason where there is no answer."""

        async def handler(request: web.Request) -> web.Response:
            try:
                return await view(request)
            except PortRefusal as refusal:
                status = refusal.status if refusal.status in {401, 403, 404, 422, 429} else 502
                return self._failed(request, status, f"{refusal}")
            except SchedulerError as error:
                return self._failed(request, 503, f"{error}")

        return handler

    def _failed(self, request: web.Request, status: int, error: str) -> web.Response:
        whole = request.path if request.query and request.path in _LISTED else ""
        return self._page(
            request, "error.html", status=status, error=error, near=[], typed="", whole=whole
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
        "local_time": local_time,
        "segment": _segment,
        "device_path": _device_path,
        "lines": _lines,
        "words": _words,
        "yaml": as_yaml,
    }
    environment.globals |= {
        "version": __version__,
        "share": share,
        "step": step,
        "unit": lambda resource: " cores" if resource == "cpu" else "",
        "resources_of": lambda nodes: resources_of(nodes, _MOST_RESOURCES),
        "chart_size": (WIDTH, HEIGHT),
        "queues": QUEUES,
        "negative_conditions": _NEGATIVE,
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
    return max(1, min(_MOST_PAGES, int(text[:9])))


# --- numbers as the page shows them ---------------------------------------------------------------

STEPS: Final = 10
_HIGHEST_SCORE: Final = 100
_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})


def step(value: float, highest: float = _HIGHEST_SCORE) -> int:
    """A share of the highest value, from 0 to STEPS."""
    if highest <= 0:
        return 0
    return max(0, min(STEPS, int(value * STEPS / highest)))


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


def local_time(text: str) -> str:
    """A moment of the operator's answers as the clock of this machine shows it."""
    try:
        moment = parse_moment(text).astimezone()
    except (ValueError, OverflowError):
        return text
    return f"{moment:%H:%M:%S}"
