"""What docs/spec/planner.md asks for, point by point, and the tests that show each: the complaints
of section 1.6, the invariants of section 5, behaviours and scenarios of section 8."""

from tests.named_tests import check_tests

COMPLAINTS: dict[str, list[str]] = {
    "no plan for hours": ["balance/test_load.py::test_there_is_always_an_answer"],
    "a part of the partitions silently in the model": [
        "balance/test_search.py"
        "::test_with_two_of_five_brokers_silent_there_is_a_plan_that_says_what_it_knows"
    ],
    "slow": [
        "balance/test_complaints.py"
        "::test_thousands_of_replicas_take_less_than_a_million_evaluations",
        "balance/test_search.py::test_a_count_of_evaluations_gives_the_same_plan_again",
        "../benchmarks/planner.py::measure",
    ],
    "memory": ["balance/test_search.py::test_a_replica_takes_less_than_two_hundred_bytes"],
    "CPU wrong": [
        "broker/test_telemetry.py::test_processors_are_those_that_the_process_may_use",
        "balance/test_load.py::test_the_cost_of_bytes_records_and_requests_is_found_again",
    ],
    "disk wrong": [
        "balance/test_complaints.py::test_a_replica_that_compaction_has_left_large_counts_as_large",
        "balance/test_load.py::test_disk_is_the_latest_size_and_its_growth",
        "balance/test_poll.py::test_a_file_system_that_directories_share_counts_once",
    ],
    "failures that are not understood": [
        "balance/test_explain.py::test_a_replica_that_is_too_large_is_named",
        "balance/test_explain.py::test_a_rack_with_one_broker_is_named",
        "balance/test_explain.py::test_missing_capacity_and_missing_brokers_are_counted",
        "balance/test_explain.py::test_what_was_not_found_is_not_called_impossible",
        "balance/test_burden.py::test_what_a_broker_must_have_besides_may_be_too_much",
        "balance/test_burden.py::test_no_replicas_fill_up_a_resource_with_less_of_another",
    ],
    "a restart forgets the run": [
        "controller/test_plan_moves.py::test_the_next_controller_continues",
        "cli/test_rebalance_run.py::test_a_plan_outlives_the_terminal_and_the_controller",
    ],
    "throttles left behind, removed too early, waiting for centuries": [
        "controller/test_plan_moves.py"
        "::test_the_next_controller_puts_a_throttle_back_and_sets_what_is_missing",
        "controller/test_plan_moves.py"
        "::test_a_throttle_stays_until_the_last_step_of_a_stopped_plan_has_ended",
        "controller/test_plan_moves.py"
        "::test_a_setting_that_another_changed_meanwhile_is_left_and_said",
        "replica/test_rules.py::test_who_waits_as_long_as_it_is_exceeded_uses_it_whole",
    ],
    "moves cripple the cluster, or are far too slow": [
        "controller/test_plan_pace.py::test_limits_hold_and_room_is_used",
        "controller/test_plan_pace.py::test_bytes_are_limited_and_a_large_move_starts_alone",
        "controller/test_plan_pace.py::test_one_replica_comes_at_a_time",
        "controller/test_plan_pace.py"
        "::test_the_pace_grows_by_one_where_it_is_used_up_and_falls_by_half",
    ],
}

INVARIANTS: dict[str, list[str]] = {
    "replicas and racks never fewer": [
        "controller/test_plan_pace.py"
        "::test_steps_arrive_with_no_fewer_replicas_or_racks_at_any_moment",
        "../src/odradek/sim/checkers.py::MovesKeepReplicas",
    ],
    "no partition under min ISR because of a move": [
        "../src/odradek/sim/checkers.py::MovesKeepMinIsr"
    ],
    "limits hold across controllers": ["../src/odradek/sim/checkers.py::MovesWithinLimits"],
    "stop and roll back is where it was": [
        "balance/test_execution.py::test_stop_and_roll_back_is_where_it_was",
        "cli/test_rebalance_run.py::test_stop_rollback_and_stale_plans",
    ],
}

BEHAVIOURS: dict[str, list[str]] = {
    "the three load models agree": [
        "spark/test_load_jobs.py::test_one_process_batch_and_stream_make_the_same_tables"
    ],
    "plan twice, plan after apply, permuted rows": [
        "balance/test_search.py::test_no_plan_breaks_a_hard_rule_and_none_follows_it"
    ],
    "a hostile frame is skipped with a line": [
        "balance/test_frames.py::test_what_is_no_frame_is_skipped_and_said",
        "balance/test_frames.py::test_a_frame_beyond_belief_is_skipped",
        "wire/test_telemetry.py::test_each_lie_has_its_reason",
    ],
    "telemetry costs little": ["../benchmarks/telemetry.py::measure"],
    "kill -9 of the controller": [
        "soak/plans.py::test_a_hot_topic_is_levelled_under_load_while_the_controller_dies",
        "cli/test_rebalance_run.py::test_a_plan_outlives_the_terminal_and_the_controller",
    ],
    "kill -9 of the watcher": [
        "cli/test_rebalance_run.py::test_a_watcher_is_killed_while_it_raises_a_replication_factor"
    ],
    "kill -9 of the command": [
        "cli/test_rebalance_run.py::test_a_plan_outlives_the_terminal_and_the_controller"
    ],
    "an Apache broker, and an Apache controller": [
        "interop/test_plans.py::test_plans_beside_apache_kafka"
    ],
    "a dead broker of five is replaced, one that returns moves nothing": [
        "soak/plans.py::test_of_five_brokers_one_stays_away_and_one_comes_back_in_time"
    ],
    "an uneven cluster and a slow broker, if asked for": [
        "cli/test_rebalance_watch.py::test_what_is_uneven_for_three_looks_is_levelled",
        "balance/test_healing.py"
        "::test_what_is_uneven_or_slow_is_acted_on_where_the_settings_ask_for_it",
        "balance/test_healing.py::test_levelling_waits_for_every_repair_and_gives_way_to_it",
    ],
    "cost for producers, and the throttle": [
        "soak/plans.py::test_what_a_plan_costs_producers_and_how_its_throttle_is_kept"
    ],
    "in cells": [
        "balance/test_cells.py"
        "::test_it_costs_little_more_than_a_search_of_the_whole_and_meets_the_same_rules",
        "spark/test_plan_cells.py::test_tasks_find_what_one_process_finds",
    ],
    "the demo": [
        "demo/test_leveller.py"
        "::test_a_stream_that_one_broker_leads_ends_on_all_of_them_and_loses_nothing"
    ],
}

SCENARIOS: dict[int, list[str]] = {
    1: ["balance/test_search.py::test_one_hot_partition_among_many"],
    2: ["balance/test_search.py::test_retention_pulls_disk_and_network_apart"],
    3: ["balance/test_search.py::test_three_racks_of_unequal_size"],
    4: ["balance/test_search.py::test_a_broker_twice_as_large_bears_twice_as_much"],
    5: [
        "controller/test_plan_moves.py"
        "::test_a_broker_that_comes_while_a_plan_runs_gets_what_a_new_plan_gives_it"
    ],
    6: [
        "controller/test_plan_moves.py"
        "::test_a_step_to_a_broker_that_is_gone_is_taken_back_and_waits_for_it"
    ],
    7: [
        "balance/test_complaints.py::test_load_that_turns_with_the_hour_does_not_turn_the_plan",
        "balance/test_load.py::test_the_peak_is_levelled_and_adds_up",
    ],
    8: [
        "controller/test_plan_moves.py::test_moves_of_a_deleted_topic_are_dropped",
        "cli/test_rebalance_run.py::test_a_watcher_is_killed_while_it_raises_a_replication_factor",
    ],
    9: [
        "balance/test_search.py"
        "::test_with_two_of_five_brokers_silent_there_is_a_plan_that_says_what_it_knows"
    ],
    10: ["balance/test_search.py::test_everything_on_one_broker_of_a_hundred"],
}


def test_every_point_has_its_tests() -> None:
    assert len(COMPLAINTS) == 10
    assert set(SCENARIOS) == set(range(1, 11))
    for table in (COMPLAINTS, INVARIANTS, BEHAVIOURS, SCENARIOS):
        check_tests(table)
