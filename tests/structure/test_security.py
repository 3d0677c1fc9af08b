"""The table of findings in docs/security.md: what bounds each, what was measured, what shows it."""

import sys

import pytest

from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "security.md"
_EXTENDERS = "tests/unit/client/test_extender.py::"
_PORT = "tests/unit/serving/test_port.py::"

FINDINGS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    (
        "1, 16: connections of strangers fill the port's memory",
        "256 connections, 16 MiB, and times for each part of a request",
        "3,500 peers: 104 → 110 MiB, `/livez` in 19 ms (median)",
        (
            "tests/flows/test_limits.py::test_what_is_no_request_of_the_port_is_refused_before_a_handler",
            "tests/flows/test_limits.py::test_a_slow_peer_is_answered_and_closed_in_time",
            "tests/flows/test_limits.py::test_a_flood_of_connections_costs_no_memory_and_nobody_elses_probe",
            "tests/flows/test_limits.py::test_a_flood_of_the_page_costs_no_memory_and_nobody_elses_request",
        ),
    ),
    (
        "2: one group keeps every node from all others",
        "room that a profile grants by namespace, where pods are known to end",
        "ten pods of another tenant bound in 1 s; groups made anew keep 2 of 20 nodes at most",
        (
            "tests/unit/scheduler/gangs/test_group_cycle.py::test_a_group_keeps_no_node_from_others_that_was_not_granted",
            "tests/unit/scheduler/gangs/test_group_cycle.py::test_groups_that_are_made_anew_keep_no_more_than_the_share_of_their_namespace",
            "tests/flows/test_tenants.py::test_four_tenants_wait_at_most_twice_as_long_beside_a_hostile_one",
        ),
    ),
    (
        "3, 13: a question stops the leader, or other readers",
        "2 s of CPU in steps of 20 ms; users take turns",
        "longest step of 50 questions at 5,000 nodes: 16 ms; `/livez` beside sixteen askers: 47 ms",
        (
            "tests/flows/test_costs_of_questions.py::test_no_step_of_an_answer_takes_long_at_5000_nodes",
            "tests/flows/test_costs_of_questions.py::test_eight_bodies_that_once_stopped_the_leader_are_refused_or_answered_in_time",
            "tests/flows/test_sixteen_askers.py::test_sixteen_askers_never_cost_the_lease",
        ),
    ),
    (
        "4, 5: files of profiles",
        "regular files of 1 MiB below `--extender-files-dir`, two at a time for 2 s",
        "9 odd files: refused within 2 s; SIGTERM beside them ends within 5 s",
        (
            "tests/flows/test_files_and_addresses.py::test_what_profiles_name_is_refused_in_conditions_and_holds_up_nothing",
            f"{_EXTENDERS}test_two_files_are_read_at_a_time",
            f"{_EXTENDERS}test_the_end_of_the_process_waits_for_no_file",
        ),
    ),
    (
        "6: a pattern stops the embedded cluster",
        "RE2",
        "linear in the text",
        (
            "tests/unit/stellwerk_cluster/apimachinery/test_structural.py::test_a_pattern_takes_time_linear_in_the_text",
        ),
    ),
    (
        "7, 14: deep and large bodies stop the embedded cluster",
        "10,000 levels counted before anything is made; long YAML in a thread",
        "`/version` within 200 ms beside each",
        (
            "tests/flows/stellwerk_cluster/test_api_rules.py::test_deep_bodies_are_refused",
            "tests/flows/stellwerk_cluster/test_api_rules.py::test_others_are_answered_soon_beside_a_costly_body",
        ),
    ),
    (
        "15: connections of the embedded API never end",
        "1,000 connections, 256 of unknown peers, 16 MiB; watchers that do not read are cut off",
        "3,500 peers: 118 → 137 MiB",
        (
            "tests/flows/test_limits.py::test_a_flood_of_the_embedded_api_costs_no_memory_and_nobody_elses_request",
            "tests/unit/stellwerk_cluster/apiserver/test_watching.py::test_a_client_that_does_not_read_is_cut_off",
        ),
    ),
    (
        "8: the user's token goes to what answers",
        "the key whose SHA-256 the leader writes into the lease, in the handshake",
        "no request reaches another key",
        (
            "tests/unit/commands/test_operator_port.py::test_another_key_gets_neither_token_nor_request",
            "tests/unit/commands/test_operator_port.py::test_a_lease_without_a_key_is_refused_with_the_flag_that_goes_on",
            "tests/flows/test_high_availability.py::test_a_clean_stop_hands_over_at_once",
        ),
    ),
    (
        "9: sequences for terminals",
        "one door of all texts for people",
        "no control character passes",
        (
            "tests/flows/test_marked_texts.py::test_no_text_of_any_object_moves_a_terminal_or_breaks_a_line_of_the_log",
            "tests/unit/test_cli.py::test_nothing_that_a_terminal_would_obey_leaves_a_command",
            "tests/unit/test_cli.py::test_hostile_files_move_no_terminal",
            "tests/unit/test_logs.py::test_a_line_stays_one_line_and_moves_no_terminal",
        ),
    ),
    (
        "10, 17: credentials in recordings",
        "the fields that decisions read; hashed: no text",
        "none of 5,000 marks, one in every text of 21 kinds",
        (
            "tests/unit/journal/test_kept.py::test_no_text_of_any_field_of_any_kind_is_in_a_hashed_recording",
            "tests/unit/journal/test_kept.py::test_a_plain_recording_has_what_decisions_read_and_no_credentials",
        ),
    ),
    (
        "11: an authority that was taken away",
        "60 s, open connections too",
        "the next look",
        (
            f"{_PORT}test_an_authority_that_was_taken_away_is_trusted_no_more",
            f"{_PORT}test_the_authority_that_the_cluster_publishes_is_followed_within_a_period",
        ),
    ),
    (
        "12: pods are sent to any address",
        "Services by name and `--extender-allow`; the address that was checked is connected to",
        "9 forms of addresses: refused within 2 s, no call",
        (
            "tests/unit/models/test_destinations.py::test_some_are_never_called_whatever_is_granted",
            "tests/flows/test_files_and_addresses.py::test_what_profiles_name_is_refused_in_conditions_and_holds_up_nothing",
            "tests/flows/test_files_and_addresses.py::test_a_name_that_leads_elsewhere_when_it_is_called_is_not_called",
        ),
    ),
    (
        "18: keys in profiles",
        "`secretRef`; a type that shows `***`, a warning, a condition",
        "none in logs at trace, events, conditions, metrics, dumps, answers",
        (
            "tests/flows/test_marked_texts.py::test_marks_are_in_no_log_event_condition_metric_dump_or_answer",
            "tests/unit/models/test_config_model.py::test_nothing_that_prints_a_profile_shows_a_credential",
            "tests/structure/test_manifests.py::test_a_profile_is_warned_of_where_a_credential_stands_in_it",
        ),
    ),
    (
        "19: any pod names any profile; every Secret of the namespace",
        "`spec.namespaces`; `resourceNames`",
        "a pod of another namespace gets a condition",
        (
            "tests/unit/scheduler/profiles/test_profile_moves.py::test_a_profile_takes_pods_of_its_namespaces_and_says_so_to_others",
            "tests/structure/test_manifests.py::test_secrets_are_those_of_the_own_namespace",
        ),
    ),
    (
        "20: roles and network",
        "viewer and editor of profiles; `networkPolicy` values",
        "each direction is closed by its value",
        (
            "tests/flows/test_installations.py::test_each_direction_of_the_network_is_open_until_its_addresses_are_named",
        ),
    ),
)


def table() -> str:
    """The table as the page has it."""
    lines = ["| finding | bound | measured | shown by |", "|---|---|---|---|"]
    for finding, bound, measured, tests in FINDINGS:
        files = dict.fromkeys(each.partition("::")[0] for each in tests)
        named = {
            file: [each.partition("::")[2] for each in tests if each.startswith(file)]
            for file in files
        }
        names = "; ".join(
            f"`{file}`" + "".join(f" `{each}`" for each in named[file] if each) for file in files
        )
        lines.append(f"| {finding} | {bound} | {measured} | {names} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text().endswith(table()), "python -m tests.structure.test_security"


@pytest.mark.parametrize("named", [each for row in FINDINGS for each in row[3]])
def test_each_test_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


if __name__ == "__main__":
    sys.stdout.write(table())
