"""The command line: parses arguments and calls the rest; no logic of its own.

Invariant: a mistake of the user is one clear line on standard error and exit status 2, never a
traceback; a server that does not answer is one line and 3, any other failure one line and 1.
"""

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, TextIO, cast

from typing_extensions import override

from stellwerk import __version__
from stellwerk.logs import LEVELS, configure
from stellwerk.models.number_options import WholeNumber
from stellwerk_cli.commands import (
    bench,
    cluster,
    completion,
    convert,
    decide,
    demo,
    doctor,
    down,
    dump,
    explain,
    leave,
    listings,
    observe,
    page,
    plan,
    profile,
    promote,
    record,
    run,
    shadow,
    simulate,
    up,
    version,
    what_if,
)
from stellwerk_kube import file_limits
from stellwerk_kube.errors import (
    AccessRefusedError,
    ConfigurationError,
    RightsMissingError,
    SchedulerError,
    Unavailable,
    UnreachableError,
)
from stellwerk_kube.names import misspelt, suggestion
from stellwerk_kube.untrusted_text import PrintableText, shown

USAGE_ERROR: Final = 2
UNREACHABLE: Final = 3


class _Command(Protocol):
    """A module of `commands`, or an object that has the same; what is heavy it imports in `run`."""

    @property
    def HELP(self) -> str:  # noqa: N802 a constant of modules
        """The line that the list of commands has of it."""
        ...

    @property
    def EXAMPLES(self) -> tuple[str, ...]:  # noqa: N802 a constant of modules
        """Command lines without the program's name."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the arguments of the command."""

    def run(self, options: argparse.Namespace, /) -> int:
        """Run, and return the exit status."""
        ...


_GROUPS: Final[Mapping[str, Mapping[str, _Command]]] = {
    "look at a cluster": {
        "explain": explain,
        "queue": listings.QUEUE,
        "decisions": listings.DECISIONS,
        "nodes": listings.NODES,
        "devices": listings.DEVICES,
        "page": page,
        "observe": observe,
        "doctor": doctor,
        "dump": dump,
    },
    "predict a change": {"what-if": what_if, "shadow": shadow, "plan": plan, "decide": decide},
    "try it on this machine": {"up": up, "down": down, "demo": demo, "cluster": cluster},
    "change profiles": {"profile": profile, "promote": promote, "convert": convert},
    "measure": {"simulate": simulate, "record": record, "bench": bench},
    "run the operator": {"run": run, "leave": leave},
    "other commands": {"version": version, "completion": completion},
}
"""The commands by what one wants of them, in the order in which help lists them."""
_COMMANDS: Final[Mapping[str, _Command]] = {
    name: command for group in _GROUPS.values() for name, command in group.items()
}
_ELSEWHERE: Final[Mapping[str, str]] = {
    "--verbose": "--log-level=debug",
    "--quiet": "--log-level=error",
    "--format": "--output",
}
"""Options of other programs, and those that do it here."""
_STANDARD_OUTPUT: Final = 1
"""The file descriptor that libraries in C write to."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EFBIG, errno.EDQUOT})
"""The errors of a disk that takes no more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, whose output passes `PrintableText`; returns the exit status."""
    with _answers() as answers:
        output, errors = PrintableText(answers), PrintableText(sys.stderr)
        with redirect_stdout(cast("TextIO", output)), redirect_stderr(cast("TextIO", errors)):
            return _main(arguments)


@contextmanager
def _answers() -> Iterator[TextIO]:
    """Yield the stream for the answers of commands, which nothing else can write to.

    Libraries in C write banners and warnings to file descriptor 1, for example the solver of plans.
    Inside, that descriptor leads to standard error, also in the processes that a command starts.
    """
    stream: TextIO | None = sys.stdout
    if stream is None:  # the user has closed it
        with Path(os.devnull).open("w", encoding="utf-8") as nothing:
            yield nothing
        return
    try:
        is_shared = stream.fileno() == _STANDARD_OUTPUT
        errors = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # standard error is closed, or both are a test's
        is_shared = False
    if not is_shared:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    os.dup2(errors, _STANDARD_OUTPUT)
    # Buffered as Python buffered the stream before: by lines on a terminal, not at all with
    # PYTHONUNBUFFERED.
    is_unbuffered = getattr(stream, "write_through", False)
    answers = io.TextIOWrapper(
        os.fdopen(kept, "wb", buffering=0 if is_unbuffered else -1),
        encoding=stream.encoding,
        # A character that the user's encoding lacks is written as its escape.
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=is_unbuffered,
    )
    try:
        yield answers
    finally:
        os.dup2(kept, _STANDARD_OUTPUT)
        answers.close()


def _main(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == [completion.REQUEST]:
        return completion.print_candidates(build_parser(), words[1:])
    try:
        try:
            # The program's name alone asks what there is.
            options = build_parser().parse_args(words or ["--help"])
            options.command_line = words  # for a command that starts itself again (`up --detach`)
            configure(options.log_level, options.log_format)
            file_limits.allow(options.file_limits)
            status: int = options.command(options)
        except SystemExit:
            sys.stdout.flush()  # the help
            raise
        sys.stdout.flush()
    except SchedulerError as error:
        print(shown(f"stellwerk: {error}"), file=sys.stderr)
        if isinstance(error, RightsMissingError):
            _print_manifests(error.manifests)
        return status_of(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _end_output()
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _end_output()
        print(f"stellwerk: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1
    return status


def status_of(error: SchedulerError) -> int:
    """The exit status of a command that ends with an error."""
    match error:
        case ConfigurationError():
            return USAGE_ERROR
        case AccessRefusedError():
            return 1
        case UnreachableError() | Unavailable(status=None):
            return UNREACHABLE
        case _:
            return 1


def _print_manifests(manifests: Sequence[Mapping[str, Any]]) -> None:
    """Print manifests for `kubectl apply -f -`, which an administrator may run."""
    import yaml  # noqa: PLC0415 only a refusal needs it

    print(yaml.safe_dump_all(manifests, sort_keys=False), end="")


def _end_output() -> None:
    """Let what is left in the buffer go nowhere: nothing can be written any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Once(argparse._StoreAction):  # noqa: SLF001 the one that argparse has
    """Stores a value; an option that is given again is refused, for it would drop the first one."""

    @override
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given: set[str] = namespace.__dict__.setdefault("given_options", set())
        if option_string is not None:
            if self.dest in given:
                raise argparse.ArgumentError(self, "is given twice")
            given.add(self.dest)
        super().__call__(parser, namespace, values, option_string)


class _Parser(argparse.ArgumentParser):
    """A parser that knows options by their whole names alone, and refuses in one line.

    The parsers of its commands are of this class, too: argparse makes them with the parent's.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})
        for action in (None, "store"):
            self.register("action", action, _Once)
        # A value like -1s or -inf: argparse would take it for an option, and would not say which
        # numbers the option before it takes.
        self._negative_number_matcher = re.compile(r"-(?:\.?[0-9]|inf)")

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what a command does not know in its own name, and not in that of its parent."""
        first = next(iter(args or ()), "")
        if self._subparsers is not None and first.startswith("--") and self._is_unknown(first):
            # argparse would say that the command is missing.
            self.error(f"unrecognized arguments: {first}{self._meant(first)}")
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0])}")
        return found, unknown

    @override
    def error(self, message: str) -> NoReturn:
        """End with one line that names the command and where its options are listed."""
        line = " ".join(message.split())
        print(f"{self.prog}: {line}; see '{self.prog} --help'", file=sys.stderr)
        sys.exit(USAGE_ERROR)

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the choice that is nearly the value in place of all of them."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError:
            near = suggestion(str(value), map(str, action.choices or ()))
            if not near:
                raise
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near}") from None

    def _is_unknown(self, word: str) -> bool:
        return word.partition("=")[0] not in {"--", *self._option_string_actions}

    def _meant(self, word: str) -> str:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        option = word.partition("=")[0]
        if not option.startswith("--"):
            return ""
        elsewhere = misspelt(option, _ELSEWHERE)
        if elsewhere is not None and _ELSEWHERE[elsewhere].partition("=")[0] in known:
            return suggestion(option, known) or f"; did you mean {_ELSEWHERE[elsewhere]}?"
        return suggestion(option, known)


class _Program(_Parser):
    """The parser of the program itself, whose help lists the commands in groups."""

    @override
    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        listed = {
            each.dest: each
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 lines of its list
            for each in action._get_subactions()  # noqa: SLF001 as above
        }
        for title, group in _GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([listed.pop(name) for name in group])
            is_last = title == [*_GROUPS][-1]
            formatter.add_arguments(listed.values() if is_last else ())
            formatter.end_section()
        formatter.add_text(
            f"`{self.prog} COMMAND --help` prints the options of a command, with examples; "
            f"`{self.prog} --version` prints the version."
        )
        return formatter.format_help()


_EXAMPLES: Final = "examples:"


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps the description, and leaves the examples a line each."""

    @override
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parser = _Program(
        prog="stellwerk", description="A Kubernetes scheduler that explains its decisions."
    )
    parser.add_argument("--version", action="version", version=f"stellwerk {__version__}")
    # The parsers of commands are of the class that lists no groups.
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=_Parser
    )
    for name, module in _COMMANDS.items():
        text = module.HELP
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_epilog(module.EXAMPLES),
            formatter_class=_HelpFormatter,
        )
        command.add_argument(
            "--log-level",
            choices=list(LEVELS),
            default="info",
            help="log level (default: %(default)s)",
        )
        command.add_argument(
            "--log-format",
            choices=["text", "json"],
            default="text",
            help="log format: lines for people, or one JSON object per line (default: text)",
        )
        command.add_argument(
            file_limits.OPTION,
            type=WholeNumber(1, file_limits.MAX_TIMES),
            default=1,
            metavar="TIMES",
            help="multiply the size limits of input files by this number (default: %(default)s)",
        )
        module.add_arguments(command)
        _add_examples_of_actions(command, module.EXAMPLES)
        command.set_defaults(command=module.run)
    text = "print the options of a command, with examples"
    helping = commands.add_parser("help", help=text, description=f"{text[0].upper()}{text[1:]}.")
    helping.add_argument(
        "words", nargs="*", metavar="COMMAND", help="a command, such as `plan defrag`"
    )
    helping.set_defaults(
        log_level="warning",
        log_format="text",
        file_limits=1,
        command=lambda given: _help(parser, given.words),
    )
    return parser


def _add_examples_of_actions(command: argparse.ArgumentParser, examples: Sequence[str]) -> None:
    """Show each action of a command its own examples."""
    for actions in command._actions:  # noqa: SLF001 argparse tells it nowhere else
        if isinstance(actions, argparse._SubParsersAction):  # noqa: SLF001 as above
            for parser in actions.choices.values():
                words = parser.prog.removeprefix("stellwerk ")
                own = [each for each in examples if f"{each} ".startswith(f"{words} ")]
                parser.epilog, parser.formatter_class = _epilog(own), _HelpFormatter


def _epilog(examples: Sequence[str]) -> str:
    return "\n".join([_EXAMPLES, *(f"  stellwerk {line}" for line in examples)])


def _help(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print the help of a command, or of all; an unknown one is a usage error."""
    parser.parse_args([*words, "--help"])
    return 0
