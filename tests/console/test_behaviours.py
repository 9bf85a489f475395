"""The forty points of docs/spec/console.md, section 7, and what shows each: tests, and benchmarks
where it is a figure."""

from tests.named_tests import check_tests

BROWSER = "browser/test_console.py"
BENCHMARK = "../benchmarks/console.py"

BEHAVIOURS: dict[int, list[str]] = {
    1: ["cli/test_up.py::test_a_console_comes_with_the_cluster_and_goes_with_it"],
    2: [
        f"{BROWSER}::test_the_link_signs_in_and_the_first_screen_is_light",
        "console/test_page.py::test_a_first_screen_is_light",
        f"{BENCHMARK}::in_a_browser",
    ],
    3: [
        f"{BROWSER}::test_every_screen_passes_axe_in_light_and_dark_and_fits",
        f"{BROWSER}::test_the_link_signs_in_and_the_first_screen_is_light",
        "console/test_page.py::test_no_file_names_another_host",
    ],
    4: [f"{BENCHMARK}::measure", f"{BENCHMARK}::in_a_browser"],
    5: [
        f"{BENCHMARK}::measure",
        f"{BENCHMARK}::oldest_s",
        "console/test_groups.py::test_lag_in_time_is_the_age_of_the_first_record_that_was_not_read",
    ],
    6: [
        f"{BENCHMARK}::in_a_browser",
        f"{BROWSER}::test_the_grid_is_walked_by_keys_and_opens_a_partition",
    ],
    7: [f"{BENCHMARK}::stall_ms", "../tools/soak_console.py::main"],
    8: [f"{BENCHMARK}::refresh"],
    9: [f"{BENCHMARK}::main"],
    10: [
        "console/test_cluster_state.py"
        "::test_10_a_broker_that_is_gone_is_a_problem_with_the_reason_of_the_journal",
        f"{BROWSER}::test_a_killed_broker_is_on_the_overview_with_the_reason",
    ],
    11: [
        "console/test_cluster_state.py"
        "::test_11_no_screen_is_blank_while_another_controller_is_elected"
    ],
    12: [
        "console/test_cluster_state.py::test_12_without_brokers_it_says_so_and_recovers_by_itself"
    ],
    13: [
        "console/test_scenarios.py"
        "::test_13_every_change_of_a_leader_is_in_the_history_with_its_cause",
        "console/test_journal.py::test_13_a_partition_knows_why_it_moved",
    ],
    14: [
        "console/test_journal.py::test_14_the_state_at_any_moment_is_the_one_that_was_recorded_then"
    ],
    15: ["console/test_journal.py::test_15_the_order_is_that_of_decisions_whatever_the_clocks_say"],
    16: [
        "console/test_cluster_state.py"
        "::test_16_the_drawing_is_that_of_the_tables_and_the_counts_those_of_the_controller"
    ],
    17: [
        "console/test_changes.py"
        "::test_a_plan_is_that_of_the_command_line_and_is_void_when_its_basis_changes"
    ],
    18: [
        "console/test_changes.py"
        "::test_a_move_is_throttled_survives_the_console_and_is_cancelled_to_where_it_was"
    ],
    19: [
        "console/test_changes.py"
        "::test_a_move_is_throttled_survives_the_console_and_is_cancelled_to_where_it_was"
    ],
    20: [
        "console/test_changes.py"
        "::test_a_plan_is_that_of_the_command_line_and_is_void_when_its_basis_changes"
    ],
    21: [
        "console/test_changes.py"
        "::test_offsets_become_what_the_preview_said_and_live_members_are_named",
        "console/test_changes.py::test_a_read_only_console_has_no_route_that_changes_anything",
        f"{BROWSER}::test_offsets_are_reset_by_keys_alone_and_become_what_the_preview_said",
    ],
    22: [
        "console/test_groups.py::test_time_left_is_lag_over_the_rate_at_which_it_shrinks",
        "console/test_groups.py::test_lag_in_time_is_the_age_of_the_first_record_that_was_not_read",
    ],
    23: [
        "console/test_records.py::test_23_a_record_is_a_fetch_away_by_offset_and_by_time",
        f"{BENCHMARK}::records",
    ],
    24: [
        "console/test_records.py"
        "::test_what_is_taken_away_is_neither_formula_nor_page_and_searches_end",
        f"{BENCHMARK}::search",
    ],
    25: [
        "console/test_records.py"
        "::test_what_is_taken_away_is_neither_formula_nor_page_and_searches_end"
    ],
    26: [
        "console/test_records.py::test_26_a_tail_counts_what_it_does_not_show",
        f"{BENCHMARK}::records",
    ],
    27: [
        "console/test_changes.py::test_a_record_is_read_back_as_it_was_produced",
        f"{BROWSER}::test_a_record_is_produced_read_back_and_found",
    ],
    28: [
        "console/test_page.py::test_no_module_makes_markup_or_code_from_text",
        f"{BROWSER}::test_what_clients_send_is_text_on_every_screen",
    ],
    29: [f"{BROWSER}::test_what_clients_send_is_text_on_every_screen"],
    30: ["console/test_decoders.py::test_30_hostile_values_end_in_a_message"],
    31: [
        "console/test_records.py"
        "::test_what_is_taken_away_is_neither_formula_nor_page_and_searches_end"
    ],
    32: [
        "console/test_api.py::test_every_route_answers_as_it_is_described",
        f"{BROWSER}::test_what_clients_send_is_text_on_every_screen",
    ],
    33: [
        "console/test_access.py::test_33_what_does_not_come_from_our_own_page_is_refused",
        "console/test_access.py::test_33_it_does_not_start_open_to_others",
    ],
    34: [
        "console/test_changes.py"
        "::test_a_move_is_throttled_survives_the_console_and_is_cancelled_to_where_it_was"
    ],
    35: [
        f"{BROWSER}::test_every_screen_passes_axe_in_light_and_dark_and_fits",
        f"{BROWSER}::test_keys_reach_everything",
        f"{BROWSER}::test_offsets_are_reset_by_keys_alone_and_become_what_the_preview_said",
    ],
    36: [
        f"{BROWSER}::test_what_is_chosen_on_any_screen_is_in_the_address",
        f"{BROWSER}::test_what_was_opened_or_begun_is_in_the_address",
        f"{BROWSER}::test_what_is_typed_and_not_sent_is_in_the_address",
        f"{BROWSER}::test_what_is_opened_paused_or_walked_to_is_in_the_address",
        f"{BROWSER}::test_how_far_a_screen_is_scrolled_is_in_the_address",
        f"{BROWSER}::test_what_is_secret_or_of_a_record_is_not_in_the_address",
        f"{BROWSER}::test_filters_and_order_are_in_the_address",
        f"{BROWSER}::test_the_time_bar_goes_to_the_change_before",
    ],
    37: [
        "broker/test_metrics.py::test_37_no_partition_is_looked_at_where_there_are_many",
        "broker/test_metrics.py::test_counters_never_fall",
        "../benchmarks/metrics.py::large",
    ],
    38: [
        "broker/test_metrics.py::test_without_the_setting_there_is_no_listener",
        "../benchmarks/metrics.py::compare",
        "../benchmarks/metrics.py::scrape_cost_ms",
    ],
    39: [
        "console/test_dashboards.py::test_39_every_panel_shows_data",
        "console/test_exporter.py::test_39_every_name_of_kafka_exporter_has_a_value",
        "broker/test_shipped.py::test_no_panel_names_a_metric_that_is_not_exported",
    ],
    40: [
        "console/test_drills.py"
        "::test_a_drill_loses_nothing_and_its_timeline_is_that_of_signal_journal_and_probe",
        f"{BROWSER}::test_a_drill_is_run_and_its_timeline_read",
    ],
}


def test_every_point_has_its_tests() -> None:
    assert set(BEHAVIOURS) == set(range(1, 41))
    check_tests(BEHAVIOURS)
