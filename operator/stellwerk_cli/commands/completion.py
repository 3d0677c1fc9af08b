"""`stellwerk completion bash|zsh|fish`, and the words that may come next on a command line.

The shells' scripts and kubectl (`kubectl_complete-stellwerk`) call `stellwerk __complete WORDS`.
Invariant: completing only reads, says nothing on standard error, and gives up after two seconds.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.client.kubernetes import KubernetesClient

HELP: Final = "print the script that completes this command in a shell"
EXAMPLES: Final = (
    "completion bash",
    "completion zsh",
)
REQUEST: Final = "__complete"
"""The first word of a request for what may come next."""
_SECONDS: Final = 2.0
_MAX_NAMES: Final = 500
"""Names that a shell is offered: more are not read."""
_NO_FILES: Final = ":4"
"""The last line of an answer to kubectl: files are no candidates (ShellCompDirectiveNoFileComp)."""
_PATHS: Final = {
    "pod": "/api/v1/namespaces/{namespace}/pods",
    "node": "/api/v1/nodes",
    "namespace": "/api/v1/namespaces",
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "replicaset": "/apis/apps/v1/namespaces/{namespace}/replicasets",
    "statefulset": "/apis/apps/v1/namespaces/{namespace}/statefulsets",
    "daemonset": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "podgroup": "/apis/scheduling.k8s.io/{version}/namespaces/{namespace}/podgroups",
    "resourceclaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
    "schedulerprofile": "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles",
}
_OPTIONS: Final = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--drain": "node",
    "--node": "node",
    "--pod": "pod",
    "--relabel": "node",
    "--taint": "node",
}
_NAMED: Final = {
    "shadow": "schedulerprofile",
    "observe": "schedulerprofile",
    "promote": "schedulerprofile",
}
_SCRIPTS: Final = {
    "bash": """_stellwerk() {
    local IFS=$'\\n'
    COMPREPLY=($(stellwerk __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | grep -v '^:'))
}
complete -o default -F _stellwerk stellwerk
""",
    "zsh": """#compdef stellwerk
_stellwerk() {
    local -a found
    local answer="$(stellwerk __complete "${words[@]:1:$((CURRENT - 1))}" 2>/dev/null)"
    found=("${(@f)$(print -r -- "$answer" | grep -v '^:')}")
    compadd -a found || _files
}
compdef _stellwerk stellwerk
""",
    "fish": """function __stellwerk_complete
    set -l words (commandline -opc) (commandline -ct)
    stellwerk __complete $words[2..-1] 2>/dev/null | string match -v ':*'
end
complete -c stellwerk -a '(__stellwerk_complete)'
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument(
        "shell", choices=sorted(_SCRIPTS), help="the shell; source the script in it"
    )
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    sys.stdout.write(_SCRIPTS[options.shell])
    return 0


def print_candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print what may come in place of the last word; returns the exit status."""
    found = candidates(parser, words, names_in_cluster)
    sys.stdout.write("\n".join([*found[:_MAX_NAMES], _NO_FILES]) + "\n")
    return 0


def candidates(
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    names: Callable[[str, str | None], Iterable[str]],
) -> list[str]:
    """The words that may come in place of the last one.

    `names` tells the names of a kind in a namespace (None: the context's).
    """
    *before, last = words or [""]
    at, path = parser, list[str]()
    for word in before:
        below = _commands(at)
        if word in below:
            at = below[word]
            path.append(word)
    found = list(_words(at, path, before, last, names))
    return sorted({each for each in found if each.startswith(last)})


def _words(
    at: argparse.ArgumentParser,
    path: Sequence[str],
    before: Sequence[str],
    last: str,
    names: Callable[[str, str | None], Iterable[str]],
) -> Iterable[str]:
    previous = before[-1] if before else ""
    option = at._option_string_actions.get(previous)  # noqa: SLF001 argparse tells it nowhere else
    if option is not None and option.nargs != 0:
        if previous in _OPTIONS:
            return names(_OPTIONS[previous], _namespace(before))
        return map(str, option.choices or ())
    if last.startswith("-"):
        return (each for each in at._option_string_actions if each.startswith("--"))  # noqa: SLF001 as above
    below = _commands(at)
    if below:
        return below
    return _arguments(at, path, _positionals(at, before), (_namespace(before), last), names)


def _positionals(at: argparse.ArgumentParser, before: Sequence[str]) -> list[str]:
    """The words before the last one that are no options, and no values of options."""
    found, words = list[str](), iter(before)
    for word in words:
        option = at._option_string_actions.get(word)  # noqa: SLF001 as above
        if option is not None and option.nargs != 0:
            next(words, "")
        elif not word.startswith("-"):
            found.append(word)
    return found


def _arguments(
    at: argparse.ArgumentParser,
    path: Sequence[str],
    before: Sequence[str],
    word: tuple[str | None, str],
    names: Callable[[str, str | None], Iterable[str]],
) -> Iterable[str]:
    """The words that arguments without a dash may be.

    `before`: the arguments before, without options; `word`: the namespace, and the word's start.
    """
    command = path[0] if path else ""
    namespace, last = word
    if command == "explain":
        from stellwerk_cli.commands.explain import KINDS  # noqa: PLC0415 the kinds alone

        kind, slash, _ = last.partition("/")
        if slash and kind in KINDS:
            return (f"{kind}/{name}" for name in names(KINDS[kind], namespace))
        if before[-1] in KINDS and len(before) > len(path):
            return names(KINDS[before[-1]], namespace)
        return sorted(set(KINDS.values()))
    if command in _NAMED or path[:1] == ["profile"]:
        given = _choices(at)
        if given and before[-1] not in given:
            return given
        return names("schedulerprofile", None)
    return _choices(at)


def _choices(parser: argparse.ArgumentParser) -> list[str]:
    """The words among which arguments without a dash choose."""
    actions = [each for each in parser._actions if not each.option_strings]  # noqa: SLF001 as above
    return [str(choice) for action in actions for choice in action.choices or ()]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 as above
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 as above
            return dict(action.choices)
    return {}


def _namespace(before: Sequence[str]) -> str | None:
    """The namespace of a command line; None: none is named."""
    for place, word in enumerate(before):
        if word in {"-n", "--namespace"} and place + 1 < len(before):
            return before[place + 1]
        if word.startswith("--namespace="):
            return word.partition("=")[2]
    return None


def names_in_cluster(kind: str, namespace: str | None) -> list[str]:
    """The names of a kind, asked of the API server; none where it does not answer in time."""
    from stellwerk.client.credentials import context_namespace  # noqa: PLC0415 aiohttp
    from stellwerk.models.api_kinds import API_KINDS  # noqa: PLC0415
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 as above
    from stellwerk_kube.errors import NotFound, SchedulerError  # noqa: PLC0415

    async def listed(client: "KubernetesClient") -> list[str]:
        where = namespace or context_namespace(None, None)
        for version in API_KINDS["PodGroup"].versions:  # the newest that the server has
            with suppress(NotFound):
                items, _ = await client.list(_PATHS[kind].format(namespace=where, version=version))
                return [str(item["metadata"]["name"]) for item in items]
        return []

    async def read() -> list[str]:
        async with asyncio.timeout(_SECONDS):
            return await with_client(None, None, listed)

    # Devices have names in slices alone.
    with suppress(SchedulerError, TimeoutError, OSError):
        return asyncio.run(read()) if kind in _PATHS else []
    return []
