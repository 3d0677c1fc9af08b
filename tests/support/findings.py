"""The findings of the review of security: what bounds each, what tests measure of it, what it was.

`make security-table` runs the tests that are named here and writes docs/security/measured.json and
the table of docs/security-findings.md anew; `python -m tests.support.findings --render` writes the
table alone. Invariant: a bound is here and nowhere else; a test takes it from here by `hold`.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.support.repository import ROOT

PAGE: Final = ROOT / "docs/security-findings.md"
MEASURED: Final = ROOT / "docs/security/measured.json"
START, END = "<!-- findings: make security-table -->", "<!-- end of findings -->"
_FILE_VARIABLE: Final = "STELLWERK_FINDINGS"
"""The file to which tests append what they measure, where it is set."""


@dataclass(frozen=True)
class Bound:
    """A quantity that a test measures, and the most that it may come to."""

    measured: str
    most: float
    unit: str = ""

    def text(self, value: float) -> str:
        """What was measured, and the bound in brackets, unless it is none."""
        if not self.most:
            return f"{self.measured}: {_shown(value) if value else 'none'}"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.measured}: {_shown(value)}{unit} (at most {_shown(self.most)})"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2g}"


@dataclass(frozen=True)
class Finding:
    """One finding: the rule that it is mended by, the bounds that hold it, and the tests."""

    what: str
    rule: str
    before: str
    """What was measured at 6190be7."""
    bounds: tuple[str, ...]
    tests: tuple[str, ...]


_LIMITS, _FILES = "tests/flows/test_limits.py::", "tests/flows/test_files_and_addresses.py::"
_QUESTIONS, _ASKERS = (
    "tests/flows/test_costs_of_questions.py::",
    "tests/flows/test_sixteen_askers.py::",
)
_GROUPS, _PORT = (
    "tests/unit/scheduler/gangs/test_group_cycle.py::",
    "tests/unit/serving/test_port.py::",
)
_RULES, _MARKS = (
    "tests/flows/stellwerk_cluster/test_api_rules.py::",
    "tests/flows/test_marked_texts.py::",
)
_KEPT, _MANIFESTS = (
    "tests/unit/journal/test_recorded_fields.py::",
    "tests/structure/test_manifests.py::",
)
_EXTENDERS = "tests/unit/client/test_extender.py::"
_WRITER = "tests/unit/journal/test_writer.py::"
_REFUSED_FILES = f"{_FILES}test_what_profiles_name_is_refused_in_conditions_and_holds_up_nothing"
_SIXTEEN = f"{_ASKERS}test_sixteen_askers_never_cost_the_lease"

BOUNDS: Final[dict[str, Bound]] = {
    "operator flood memory": Bound("a flood adds to the operator", 32, "MiB"),
    "operator flood descriptors": Bound("its descriptors", 300),
    "operator flood wait": Bound("others wait for `/livez` (median)", 200, "ms"),
    "page flood memory": Bound("a flood adds to the page", 32, "MiB"),
    "page flood descriptors": Bound("its descriptors", 300),
    "page flood wait": Bound("others wait for the page (median)", 200, "ms"),
    "nodes kept ungranted": Bound("nodes of 20 kept without a grant", 0),
    "nodes kept granted": Bound("nodes of 20 kept by a tenth", 2),
    # Calls of functions are counted, those of CEL's parser, too, since that is written in Python.
    # In CPU time a wait is no longer than it was with the parser in C++.
    "tenants p99": Bound("99 % of the others wait so many times as long", 2.5),
    "question step": Bound("longest step of an answer at 5,000 nodes", 20, "ms"),
    "question memory": Bound("an answer adds", 64, "MiB"),
    "eight bodies": Bound("dearest of eight bodies, CPU", 2000, "ms"),
    "askers memory": Bound("sixteen askers add", 64, "MiB"),
    "askers leases": Bound("leases lost", 0),
    "askers probes": Bound("`/livez` beside them, but for waits for a CPU (longest)", 100, "ms"),
    "files refused": Bound("until nine odd files are conditions", 2000, "ms"),
    "other extender": Bound("until another profile's extender is called", 1000, "ms"),
    "files ending": Bound("SIGTERM beside them", 5000, "ms"),
    "pattern": Bound("41 characters against `^(a+)+$`", 50, "ms"),
    "deep bodies": Bound("until a body of 1,000,000 brackets is refused", 1000, "ms"),
    "deep YAML": Bound("until 100,000 of them in YAML are refused", 5000, "ms"),
    "requests to another key": Bound("requests that another key received", 0),
    "control characters": Bound("control characters in 21 answers of commands and in the log", 0),
    "marks in hashed": Bound("marks of texts in a hashed recording", 0),
    "credentials in plain": Bound("credentials in a plain recording", 0),
    "authority": Bound("requests let in after the next look", 0),
    "expired": Bound("requests let in after a certificate's time, on its connection", 0),
    "strangers called": Bound("calls to what is not granted", 0),
    "addresses refused": Bound("until nine forms of addresses are refused", 2000, "ms"),
    "readers": Bound("answers of others before each of a second reader's", 1),
    "beside bodies": Bound("others wait for `/version` beside the dearest", 200, "ms"),
    "embedded flood memory": Bound("a flood adds to the embedded API", 32, "MiB"),
    "embedded flood descriptors": Bound("its descriptors", 1100),
    "embedded flood wait": Bound("others wait for `/version` (median)", 200, "ms"),
    "lines of log": Bound("lines of 58 malformed requests in the log", 10),
    "tracebacks": Bound("tracebacks among them", 0),
    "recording mode": Bound("rights of others to a recording, over an old file of mode 0644", 0),
    "links followed": Bound("links, pipes and directories written through", 0),
    "credentials in texts": Bound("credentials in logs, events, conditions and other texts", 0),
    "marks in texts": Bound("marks that no decision reads in these", 0),
    "foreign pods": Bound("pods of other namespaces that a profile served", 0),
    "Secrets": Bound("Secrets that the role names no name for", 0),
    "directions": Bound("directions open whose addresses are named, but for names (DNS)", 0),
    "roles": Bound("roles that hold a profile editor's rights by themselves", 0),
}  # fmt: skip

FINDINGS: Final[dict[int, Finding]] = {
    1: Finding(
        "connections of strangers fill the memory of the operator's port",
        "256 connections, 16 MiB, and times for each part of a request",
        "3,500 peers: 108 → 1,351 MiB, 3,224 descriptors; the page 60 → 1,010 MiB; "
        "66 pods a second instead of 98",
        (
            "operator flood memory",
            "operator flood descriptors",
            "operator flood wait",
            "page flood memory",
            "page flood descriptors",
            "page flood wait",
        ),
        (
            f"{_LIMITS}test_a_slow_peer_is_answered_and_closed_in_time",
            f"{_LIMITS}test_a_flood_of_connections_costs_no_memory_and_nobody_elses_probe",
            f"{_LIMITS}test_a_flood_of_the_page_costs_no_memory_and_nobody_elses_request",
        ),
    ),
    2: Finding(
        "one group keeps every node from all others",
        "room that a profile grants by namespace, where pods are known to end",
        "20 of 20 nodes kept for 300 s, no pod of others bound in them; ten groups made anew: 10",
        ("nodes kept ungranted", "nodes kept granted", "tenants p99"),
        (
            f"{_GROUPS}test_a_group_keeps_no_node_from_others_that_was_not_granted",
            f"{_GROUPS}test_groups_that_are_made_anew_keep_no_more_than_the_share_of_their_namespace",
            "tests/flows/test_tenants.py::test_four_tenants_wait_little_longer_beside_a_hostile_one",
        ),
    ),
    3: Finding(
        "a question stops the leader",
        "the checks of what comes from the API; 2 s of CPU, in steps",
        "a body of 766 KiB held the loop for 44 s, with +1,610 MiB; one of 751 KiB cost the lease; "
        "sixteen askers: +97 MiB",
        (
            *("question step", "question memory", "eight bodies"),
            *("askers memory", "askers leases", "askers probes"),
        ),
        (
            f"{_QUESTIONS}test_no_step_of_an_answer_takes_long_at_5000_nodes",
            f"{_QUESTIONS}test_eight_bodies_that_once_stopped_the_leader_are_refused_or_answered_in_time",
            _SIXTEEN,
        ),
    ),
    4: Finding(
        "a file that a profile names ends the operator",
        "regular files of 1 MiB below `--extender-files-dir`",
        "98 → 1,176 MiB in 0.8 s, with `Accepted=True`",
        ("files refused",),
        (_REFUSED_FILES,),
    ),
    5: Finding(
        "a file that does not end to be read takes all threads",
        "two at a time, each for 2 s; the end waits for none",
        "SIGTERM beside eight pipes: goes on after 30 s",
        ("other extender", "files ending"),
        (
            _REFUSED_FILES,
            f"{_EXTENDERS}test_two_files_are_read_at_a_time",
            f"{_EXTENDERS}test_the_end_of_the_process_waits_for_no_file",
        ),
    ),
    6: Finding(
        "a pattern of a custom resource stops the embedded cluster",
        "RE2",
        "22 characters: 0.14 s, 24: 0.56 s, and so on",
        ("pattern",),
        (
            "tests/unit/stellwerk_cluster/apimachinery/test_structural.py::test_a_pattern_takes_time_linear_in_the_text",
        ),
    ),
    7: Finding(
        "200 KB of YAML crash the embedded cluster",
        "400 levels, counted before anything is made",
        "ended by a signal (−11)",
        ("deep YAML",),
        (f"{_RULES}test_deep_bodies_are_refused",),
    ),
    8: Finding(
        "the user's token goes to any peer that answers",
        "the key whose SHA-256 the leader writes into the lease, in the handshake",
        "`Bearer admin` was received, and the invented answer printed",
        ("requests to another key",),
        (
            "tests/unit/stellwerk_cli/commands/test_operator_port.py::test_another_key_gets_neither_token_nor_request",
            "tests/unit/stellwerk_cli/commands/test_operator_port.py::test_a_lease_without_a_key_is_refused_with_the_flag_that_goes_on",
            "tests/flows/test_high_availability.py::test_a_clean_stop_hands_over_at_once",
        ),
    ),
    9: Finding(
        "sequences of tenants reach the administrator's terminal",
        "one door of all texts for people",
        "48 in what seven commands said of one odd file",
        ("control characters",),
        (
            f"{_MARKS}test_no_text_of_any_object_moves_a_terminal_or_breaks_a_line_of_the_log",
            "tests/unit/stellwerk_cli/test_cli.py::test_nothing_that_a_terminal_would_obey_leaves_a_command",
            "tests/unit/stellwerk_cli/test_cli.py::test_arguments_that_are_refused_move_no_terminal",
            "tests/unit/stellwerk_cli/test_cli.py::test_hostile_files_move_no_terminal",
            "tests/unit/test_logs.py::test_a_line_stays_one_line_and_moves_no_terminal",
        ),
    ),
    10: Finding(
        "hashed recordings hold credentials",
        "the fields that decisions read, and no others; hashed: no text",
        "2,566 of 4,808 marks when hashed, keys and passwords among them; 4,760 in a plain one",
        ("marks in hashed", "credentials in plain"),
        (
            f"{_KEPT}test_no_text_of_any_field_of_any_kind_is_in_a_hashed_recording",
            f"{_KEPT}test_a_plain_recording_has_what_decisions_read_and_no_credentials",
        ),
    ),
    11: Finding(
        "an authority that was taken away stays trusted",
        "a new context each minute that it changes; open connections of the old one are closed",
        "all of them, on open connections and on new ones, even after all authorities were gone",
        ("authority", "expired"),
        (
            f"{_PORT}test_an_authority_that_was_taken_away_is_trusted_no_more",
            f"{_PORT}test_an_authority_whose_file_goes_is_trusted_no_more",
            f"{_PORT}test_the_authority_that_the_cluster_publishes_is_followed_within_a_period",
            f"{_PORT}test_an_expired_certificate_is_refused_on_the_connection_that_it_opened",
        ),
    ),
    12: Finding(
        "a profile's editor has pods sent to any address",
        "Services by name and `--extender-allow`; the address that was checked is connected to",
        "the stranger was called, with the pod's environment",
        ("strangers called", "addresses refused"),
        (
            _REFUSED_FILES,
            f"{_FILES}test_a_name_that_leads_elsewhere_when_it_is_called_is_not_called",
            "tests/unit/stellwerk_kube/test_destinations.py::test_some_are_never_called_whatever_is_granted",
        ),
    ),
    13: Finding(
        "one reader turns the other readers away",
        "readers take turns; 8 requests at once of one user",
        "8 of 10 requests beside 16 of another reader: 429",
        ("readers",),
        (
            "tests/unit/serving/test_explanations.py::test_users_take_turns",
            f"{_LIMITS}test_one_user_and_all_users_have_so_many_requests_at_once",
        ),
    ),
    14: Finding(
        "deep or large bodies hold the embedded API",
        "levels and tokens counted first; long YAML in a thread",
        "others wait 1.1 s beside brackets, 0.6 s beside a deep patch",
        ("deep bodies", "beside bodies"),
        (
            f"{_RULES}test_deep_bodies_are_refused",
            f"{_RULES}test_others_are_answered_soon_beside_a_costly_body",
        ),
    ),
    15: Finding(
        "connections of the embedded API never end",
        "1,000 connections, 256 of unknown peers, 16 MiB; watchers that do not read are cut off",
        "3,500 peers: 94 → 1,448 MiB, 906 afterwards, 3,515 descriptors",
        ("embedded flood memory", "embedded flood descriptors", "embedded flood wait"),
        (
            f"{_LIMITS}test_a_flood_of_the_embedded_api_costs_no_memory_and_nobody_elses_request",
            "tests/unit/stellwerk_cluster/apiserver/test_watching.py::test_a_client_that_does_not_read_is_cut_off",
        ),
    ),
    16: Finding(
        "odd methods are errors of the operator, and each writes a traceback",
        "400 or 405 before any handler; a line a minute",
        "`CONNECT` and `OPTIONS *`: 500; 58 requests: 58 tracebacks in 647 lines",
        ("lines of log", "tracebacks"),
        (f"{_LIMITS}test_what_is_no_request_of_the_port_is_refused_before_a_handler",),
    ),
    17: Finding(
        "a recording keeps the mode of the file that was there, and follows links",
        "a new file of mode 0600 in its place, or none",
        "mode 0644 stayed; a link's target was overwritten",
        ("recording mode", "links followed"),
        (
            f"{_WRITER}test_a_journal_is_replaced_and_readable_to_its_owner_alone",
            f"{_WRITER}test_links_and_what_is_no_file_are_refused",
        ),
    ),
    18: Finding(
        "who reads profiles reads the passwords and keys in them",
        "`secretRef`; a type that shows `***`; a warning and a condition for inline ones",
        "by reading: keys and passwords in profiles and their history, without a warning",
        ("credentials in texts", "marks in texts"),
        (
            f"{_MARKS}test_marks_are_in_no_log_event_condition_metric_dump_or_answer",
            "tests/unit/profiles/spec/test_config_model.py::test_nothing_that_prints_a_profile_shows_a_credential",
            f"{_MANIFESTS}test_a_profile_is_warned_of_where_a_credential_stands_in_it",
        ),
    ),
    19: Finding(
        "any pod names any profile; the operator reads every Secret of its namespace",
        "`spec.namespaces`; `resourceNames`",
        "by reading: no such field; a role for all Secrets of the namespace",
        ("foreign pods", "Secrets"),
        (
            "tests/unit/profiles/test_moves.py::test_a_profile_takes_pods_of_its_namespaces_and_says_so_to_others",
            f"{_MANIFESTS}test_secrets_are_those_of_the_own_namespace",
        ),
    ),
    20: Finding(
        "no roles for profiles; the network open in all directions",
        "viewers' role in `view`, the editors' in none; `networkPolicy` values",
        "by reading: no such roles; the network open to all",
        ("directions", "roles"),
        (
            "tests/flows/test_installations.py::test_each_direction_of_the_network_is_open_until_its_addresses_are_named",
            f"{_MANIFESTS}test_viewers_of_profiles_are_part_of_view_and_editors_of_nothing",
        ),
    ),
}


def hold(name: str, value: float) -> None:
    """Fail where more was measured than the bound of that name; write it down where asked to."""
    bound = BOUNDS[name]
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].partition("[")[0]
    assert any(name in each.bounds and test in each.tests for each in FINDINGS.values()), test
    if file := os.environ.get(_FILE_VARIABLE):
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"name": name, "value": value, "test": test}) + "\n")
    assert value <= bound.most, f"{bound.measured}: {value:g}, at most {bound.most:g} {bound.unit}"


def table(measured: dict[str, dict[str, Any]]) -> str:
    """The table as the page has it."""
    lines = [
        "| finding | bound | measured | at 6190be7 | shown by |",
        "|---|---|---|---|---|",
    ]
    for number, each in FINDINGS.items():
        values = "; ".join(BOUNDS[name].text(measured[name]["value"]) for name in each.bounds)
        tests = "; ".join(_named(each.tests))
        cells = (f"{number}: {each.what}", each.rule, values, each.before, tests)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _named(tests: Sequence[str]) -> Iterator[str]:
    for file in dict.fromkeys(each.partition("::")[0] for each in tests):
        names = [each.partition("::")[2] for each in tests if each.startswith(f"{file}::")]
        yield " ".join(f"`{each}`" for each in (file, *names))


def documented(page: str, found: dict[str, Any]) -> str:
    """The page with the table of what was found, and where and when that was."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    machine = f"{found['cores']} cores, Python {found['python']}"
    when = f"Measured on {found['date']} at {found['commit']}, {machine}."
    return f"{before}{START}\n\n{when}\n\n{table(found['measured'])}\n{END}{after}"


def read() -> dict[str, Any]:
    """What was measured last."""
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def _measure() -> dict[str, Any]:
    """Run the tests; each bound has the largest value that its test has measured.

    Raises:
        SystemExit: a test failed, or has measured nothing of a bound.
    """
    tests = dict.fromkeys(test for each in FINDINGS.values() for test in each.tests)
    chosen = ("-m", "not soak and not benchmark and not all_versions", "-p", "no:cacheprovider")
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "measured"
        status = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", *chosen, *tests),
            env={**os.environ, _FILE_VARIABLE: str(file)},
            cwd=ROOT,
            check=False,
        ).returncode
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    if status:
        sys.exit(status)
    rows.sort(key=lambda row: row["value"])
    measured = {row["name"]: {"value": round(row["value"], 4), "test": row["test"]} for row in rows}
    if missing := BOUNDS.keys() - measured.keys():
        sys.exit(f"nothing was measured of {sorted(missing)}")
    commit = subprocess.run(
        ("git", "rev-parse", "--short=8", "HEAD"),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return {
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "measured": {name: measured[name] for name in BOUNDS},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--render", action="store_true", help="write the table of what was measured last"
    )
    if not parser.parse_args(arguments).render:
        MEASURED.write_text(json.dumps(_measure(), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(documented(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


if __name__ == "__main__":
    main()
