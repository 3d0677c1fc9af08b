"""The support bundle of `stellwerk doctor --bundle`: a tar.gz made of listed fields.

`examination` fills an `Observed`, this module writes it. Invariant: no object of the API is
copied. Each file is built field by field from what stands in this module, and each text passes
`allowed_text`; so a field that the API gets tomorrow is not in it.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import stat
import tarfile
from typing import TYPE_CHECKING, Any, Final

import orjson

from stellwerk import __version__
from stellwerk.models.unserved_pods import moment_of
from stellwerk_cli.commands.diagnosis.allowed_text import (
    LEFT_OUT,
    dump_line,
    image,
    log_line,
    metric_lines,
    named,
    version,
    word,
)
from stellwerk_cli.commands.diagnosis.survey import Unseen
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from stellwerk.answers.dump import CacheDump
    from stellwerk.answers.queue import QueuePage
    from stellwerk_cli.commands.diagnosis.examination import Observed
    from stellwerk_kube.json_values import JsonObject

_DIRECTORY: Final = "stellwerk-bundle"
_PRIVATE: Final = 0o600
_README: Final = f"""\
A support bundle of Stellwerk {__version__}, written by `stellwerk doctor --bundle`.

It holds names of namespaces, nodes, pods and profiles, amounts of resources, versions, reasons,
counts and times. It holds no objects of the API, no arguments and environment of containers, no
labels, annotations and messages, no addresses of extenders and no arguments of plugins. In logs,
{LEFT_OUT} stands for what is not a sentence of Stellwerk, a short number or a name from above.

diagnosis.json  findings of `stellwerk doctor`, without the messages that it quotes
versions.json   of the program, the operator's images and the API server
pods.json       of the operator: node, image, state, restarts, exit status
leases.json     of the schedulers: holder, alive or not
profiles.json   SchedulerProfiles: schedulerName, plugins, weights, conditions
queue.json      waiting pods: queue, attempts, plugins that rejected them
dump.txt        cache and queues compared with the API, as of `stellwerk dump`
metrics.txt     families of Stellwerk, with labels that are names
log-*.txt       last lines of each pod of the operator, and of its run before
"""


# --- files --------------------------------------------------------------------------------------


def files_of(observed: Observed) -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    yield "README.txt", _README
    findings = [
        {"check": each.check, "state": each.state, "what": each.what, "remedy": each.remedy}
        for each in observed.findings
    ]
    yield "diagnosis.json", _json({"state": observed.diagnosis.state, "findings": findings})
    pods = [*map(_pod, _seen(observed.installed.pods))]
    images = sorted({each["image"] for pod in pods for each in pod["containers"]})
    api = observed.profiles.api_server if observed.profiles is not None else None
    versions = {
        "program": __version__,
        "apiServer": version(observed.server),
        "images": images,
        "compatibility": version(api.compatibility) if api is not None else None,
        "kinds": _names(api.versions_in_use) if api is not None else None,
    }
    yield "versions.json", _json(versions)
    yield "pods.json", _json(pods)
    leases = [
        {
            "lease": f"{named(each.namespace)}/{named(each.name)}",
            "holder": named(each.holder),
            "stellwerk": each.is_stellwerk,
            "alive": each.is_alive,
        }
        for each in _seen(observed.installed.leases)
    ]
    yield "leases.json", _json(leases)
    yield "profiles.json", _json(_profiles(observed))
    if observed.queue is not None:
        yield "queue.json", _json(_queue(observed.queue))
    if observed.dump is not None:
        yield (
            "dump.txt",
            "\n".join([_comparison(observed.dump), *map(dump_line, observed.dump.items), ""]),
        )
    if observed.metrics:
        yield "metrics.txt", "\n".join([*metric_lines(observed.metrics), ""])
    known = frozenset(_known_names(observed))
    for name, lines in observed.logs.items():
        yield f"log-{named(name)}.txt", "\n".join([*(log_line(each, known) for each in lines), ""])


def _pod(pod: JsonObject) -> JsonObject:
    metadata, status = pod["metadata"], pod.get("status") or {}
    return {
        "name": named(metadata["name"]),
        "namespace": named(metadata["namespace"]),
        "node": named(pod["spec"].get("nodeName") or "none"),
        "schedulerName": named(pod["spec"].get("schedulerName")),
        "phase": word(status.get("phase")),
        "created": _time(metadata.get("creationTimestamp")),
        "conditions": [*map(_condition, status.get("conditions") or ())],
        "containers": [*map(_container, status.get("containerStatuses") or ())],
    }


def _container(status: JsonObject) -> JsonObject:
    runs = [
        {
            "state": state,
            "now": when == "state",
            "reason": word(run["reason"]) if run.get("reason") else None,
            "exitCode": run.get("exitCode") if isinstance(run.get("exitCode"), int) else None,
            "startedAt": _time(run.get("startedAt")),
            "finishedAt": _time(run.get("finishedAt")),
        }
        for when in ("state", "lastState")
        for state in ("waiting", "running", "terminated")
        if (run := (status.get(when) or {}).get(state)) is not None
    ]
    return {
        "name": named(status.get("name")),
        "image": image(status.get("image")),
        "ready": status.get("ready") is True,
        "restarts": int(status.get("restartCount") or 0),
        "runs": runs,
    }


def _condition(condition: Mapping[str, Any]) -> JsonObject:
    """A condition without its message, which may quote anything."""
    return {
        "type": word(condition.get("type")),
        "status": word(condition.get("status")),
        "reason": word(condition["reason"]) if condition.get("reason") else None,
        "since": _time(condition.get("lastTransitionTime")),
    }


def _profiles(observed: Observed) -> JsonObject:
    """Profiles as the API has them, and what serves by the operator's own words."""
    objects = []
    for each in _seen(observed.installed.profiles):
        metadata, spec = each["metadata"], each.get("spec") or {}
        conditions = (each.get("status") or {}).get("conditions") or ()
        objects.append(
            {
                "name": named(metadata["name"]),
                "generation": metadata.get("generation"),
                "schedulerName": named(spec.get("schedulerName")),
                "shadowOf": named(spec["shadowOf"]) if spec.get("shadowOf") else None,
                "hasSelector": bool(spec.get("selector")),
                "extenders": len(spec.get("extenders") or ()),
                "configuredPlugins": [
                    named(each.get("name")) for each in spec.get("pluginConfig") or ()
                ],
                "conditions": [*map(_condition, conditions)],
            }
        )
    serving = [
        {
            "name": named(each.name),
            "schedulerName": named(each.scheduler_name),
            "generation": each.generation,
            "plugins": {
                word(point): [*map(named, plugins)] for point, plugins in each.plugins.items()
            },
            "weights": {named(plugin): weight for plugin, weight in each.weights.items()},
            "scheduledPods": each.scheduled_pods,
            "extenders": each.extenders,
        }
        for each in (observed.profiles.items if observed.profiles is not None else ())
    ]
    return {"objects": objects, "serving": serving}


def _queue(queue: QueuePage) -> JsonObject:
    pods = [
        {
            "pod": named(each.pod),
            "queue": word(each.queue),
            "schedulerName": named(each.scheduler_name),
            "priority": each.priority,
            "since": _time(each.since),
            "attempts": each.attempts,
            "rejectedBy": [*map(named, each.rejected_by or ())],
        }
        for each in queue.items
    ]
    return {"total": queue.total, "pods": pods}


def _comparison(dump: CacheDump) -> str:
    if not dump.compared:
        return "the cache could not be compared with the API"
    found = [
        f"{each.count} {each.kind}: {', '.join(map(named, each.names))}"
        for each in dump.differences
    ]
    return "; ".join(found) or "no discrepancies"


def _known_names(observed: Observed) -> Iterator[str]:
    """Names that other files of the bundle hold, so that a log line may show them."""
    yield observed.server
    for pod in _seen(observed.installed.pods):
        yield pod["metadata"]["name"]
        yield str(pod["spec"].get("nodeName") or "")
    for profile in _seen(observed.installed.profiles):
        yield profile["metadata"]["name"]
        yield str((profile.get("spec") or {}).get("schedulerName") or "")
    for lease in _seen(observed.installed.leases):
        yield from (lease.holder, lease.name, f"{lease.namespace}/{lease.name}")
    if observed.queue is not None:
        yield from (each.pod for each in observed.queue.items)
    if observed.dump is not None:
        for line in observed.dump.items:
            first, _, rest = line.strip().partition(" ")
            yield rest.partition(":")[0] if first == "node" else first.removesuffix(":")


def _seen(found: Sequence[Any] | Unseen) -> Sequence[Any]:
    return () if isinstance(found, Unseen) else found


def _names(given: Mapping[str, str]) -> JsonObject:
    return {named(key): named(text) for key, text in given.items()}


def _time(text: object) -> str | None:
    moment = moment_of(text)
    return moment.isoformat() if moment is not None else None


def _json(value: Any) -> str:  # noqa: ANN401 any JSON
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


# --- the archive --------------------------------------------------------------------------------


def check_writable(path: Path, *, force: bool) -> None:
    """Refuse a path that holds something else than an older bundle.

    Raises:
        ConfigurationError: it may not be written there.
    """
    if not path.parent.is_dir():
        raise ConfigurationError(f"cannot write {path}: there is no directory {path.parent}")
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise ConfigurationError(f"cannot write {path}: {reason}") from error
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise ConfigurationError(f"cannot write {path}: it is not a file")
    with os.fdopen(opened, "rb") as file:
        if force:
            return
        try:
            with tarfile.open(fileobj=file, mode="r:gz") as archive:
                first = archive.next()
        except (tarfile.TarError, OSError, EOFError):
            first = None
    if first is None or first.name != f"{_DIRECTORY}/README.txt":
        raise ConfigurationError(
            f"cannot write {path}: it exists and is not a bundle of Stellwerk; --force "
            "overwrites it"
        )


def write_bundle(path: Path, observed: Observed, *, force: bool) -> None:
    """Write the archive; it appears whole, and only its user may read it.

    Raises:
        ConfigurationError: it may not be written there, or the disk refuses it.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, text in files_of(observed):
            content = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{_DIRECTORY}/{name}")
            entry.size, entry.mode = len(content), _PRIVATE
            archive.addfile(entry, io.BytesIO(content))
    check_writable(path, force=force)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, _PRIVATE), "wb") as file:
            file.write(buffer.getvalue())
        new.replace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error
    finally:
        new.unlink(missing_ok=True)
