"""The forty-one behaviours of docs/spec/transactions.md, section 8, and the tests that show each.

Those in `interop` run beside Apache Kafka, in `make peers-test`.
"""

from tests.named_tests import check_tests

BEHAVIOURS: dict[int, list[str]] = {
    # Coordinator
    1: [
        "broker/test_transactions.py::test_the_topic_is_created_when_it_is_first_needed",
        "broker/test_transactions.py::test_without_enough_brokers_there_is_no_coordinator",
    ],
    2: [
        "coordinator/test_transaction_coordinator.py"
        "::test_ids_have_the_partitions_that_kafka_gives_them",
        "interop/test_transactions.py::test_each_kind_names_the_same_coordinators",
    ],
    3: [
        "coordinator/test_transaction_coordinator.py"
        "::test_each_producer_of_an_id_has_an_epoch_of_its_own",
        "broker/test_transactions.py"
        "::test_a_predecessor_is_fenced_by_the_coordinator_and_by_partitions",
    ],
    4: [
        "coordinator/test_transaction_coordinator.py"
        "::test_the_repeat_of_a_lost_answer_gets_the_same_epoch_until_a_failover"
    ],
    5: [
        "coordinator/test_transaction.py::test_epochs_that_are_used_up_make_a_new_producer_id",
        "coordinator/test_transaction_coordinator.py"
        "::test_the_last_epoch_is_for_the_fence_and_no_client_has_it",
    ],
    6: [
        "coordinator/test_transaction_coordinator.py::test_a_timeout_must_be_acceptable",
        "broker/test_transactions.py::test_what_is_wrong_with_a_producer",
    ],
    7: [
        "coordinator/test_transaction_coordinator.py::test_two_at_once_never_get_the_same_epoch",
    ],
    8: [
        "coordinator/test_transaction_coordinator.py"
        "::test_a_new_producer_aborts_the_open_transaction_first"
    ],
    9: [
        "coordinator/test_transaction_coordinator.py"
        "::test_partitions_that_are_known_are_not_written_again",
        "coordinator/test_transaction_coordinator.py"
        "::test_markers_are_waited_for_no_longer_than_a_second",
        "broker/test_transactions.py::test_what_is_wrong_with_partitions",
    ],
    10: [
        "coordinator/test_transaction.py::test_ending_a_transaction_in_every_state",
        "coordinator/test_transaction_coordinator.py"
        "::test_the_outcome_is_answered_before_any_marker_is_written",
    ],
    11: [
        "coordinator/test_transaction_coordinator.py"
        "::test_a_partition_without_a_leader_is_waited_for"
    ],
    12: [
        "coordinator/test_transaction_coordinator.py"
        "::test_a_decided_transaction_is_finished_by_the_next_coordinator",
        "coordinator/test_transaction_coordinator.py"
        "::test_no_marker_is_sent_of_a_decision_that_not_every_replica_has",
        "broker/test_transactions.py::test_markers_are_answered_for_every_partition",
    ],
    13: [
        "coordinator/test_transaction_coordinator.py::test_time_outs",
        "log/test_producers.py::test_a_marker_without_a_transaction_only_moves_the_epoch",
        "compatibility/test_transactions.py::test_a_transaction_that_takes_too_long_is_aborted",
    ],
    14: [
        "coordinator/test_transaction_coordinator.py"
        "::test_an_idle_id_expires_and_its_producer_id_with_it"
    ],
    15: [
        "broker/test_transactions.py"
        "::test_a_topic_that_is_deleted_in_a_transaction_does_not_keep_it_undecided",
        "coordinator/test_transaction_coordinator.py"
        "::test_a_partition_is_dropped_only_when_it_is_gone",
    ],
    16: [
        "broker/test_transactions.py"
        "::test_without_enough_replicas_of_its_topic_nothing_is_begun_or_ended",
        "coordinator/test_transaction_coordinator.py"
        "::test_a_fence_that_fails_raises_the_epoch_once",
    ],
    17: [
        "broker/test_transactions.py::test_a_partition_that_is_not_loaded_is_waited_for",
        "broker/test_transactions.py"
        "::test_who_does_not_lead_an_ids_partition_is_not_its_coordinator",
    ],
    18: [
        "broker/test_transactions.py::test_listing_and_describing",
        "broker/test_transactions.py::test_a_follower_serves_what_is_committed",
        "broker/test_admin.py::test_describe_log_dirs_and_producers",
        "broker/test_admin.py::test_producers_are_described_by_those_who_have_a_replica",
        "interop/test_tools.py::test_tools_print_the_same",
    ],
    # Offsets
    19: [
        "coordinator/test_transactional_offsets.py"
        "::test_pending_offsets_are_not_seen_until_the_marker",
        "broker/test_transactions.py::test_offsets_in_a_transaction",
    ],
    20: ["coordinator/test_transactional_offsets.py::test_pending_offsets_survive_a_failover"],
    21: [
        "coordinator/test_transactional_offsets.py"
        "::test_a_later_plain_commit_wins_live_and_after_a_reload"
    ],
    22: [
        "coordinator/test_transactional_offsets.py::test_who_may_commit",
        "coordinator/test_transactional_offsets.py"
        "::test_a_static_member_whose_place_was_taken_may_not_commit",
        "coordinator/test_transactional_offsets.py"
        "::test_a_group_that_divides_its_work_commits_in_transactions_only",
    ],
    # Log
    23: [
        "wire/test_records.py::test_the_end_of_a_transaction_is_kafkas_bytes",
        "interop/test_dump_log.py::test_the_transactions_ours_wrote",
        "log/test_validation.py::test_clients_write_no_control_batches_and_no_negative_sequences",
    ],
    24: ["log/test_log.py::test_the_index_of_overlapping_transactions_is_kafkas"],
    25: [
        "compatibility/test_transactions.py"
        "::test_every_client_reads_what_is_committed_and_nothing_undecided",
        "interop/test_clients.py::test_java_reads_what_is_committed_and_nothing_undecided",
        "broker/test_transactions.py::test_a_follower_serves_what_is_committed",
        "log/test_log.py::test_aborted_transactions_are_found_across_segments",
    ],
    26: [
        "broker/test_transactions.py::test_a_commit_and_an_abort_as_readers_see_them",
        "broker/test_transactions.py::test_offsets_by_time_end_before_the_open_transaction",
    ],
    27: [
        "broker/test_transactions.py::test_a_fetch_that_waits_ends_with_the_transaction_before_it",
        "log/test_log.py::test_open_transactions_hold_the_last_stable_offset_back",
    ],
    28: [
        "log/test_crash.py::test_a_crash_at_every_change",
        "log/test_crash.py::test_transactions_are_the_same_after_a_kill_at_any_step",
        "interop/test_directories.py::test_transactions_in_a_directory_of_two_programs",
    ],
    29: [
        "log/test_log.py::test_truncating_leaves_ended_transactions_stable",
        "log/test_log.py::test_the_start_takes_the_last_stable_offset_with_it",
    ],
    30: [
        "log/test_compaction.py"
        "::test_aborted_records_go_and_their_marker_follows_in_three_cleanings",
        "log/test_compaction.py::test_a_commit_marker_stays_while_its_records_do",
        "log/test_compaction.py::test_the_last_batch_of_a_live_producer_stays_as_a_bare_header",
        "log/test_compaction.py::test_the_marker_of_a_producer_with_nothing_else_stays",
        "log/test_cleaner.py::test_an_open_transaction_is_not_cleaned",
        "interop/test_directories.py::test_what_one_has_compacted_the_other_opens_and_compacts",
    ],
    31: [
        "client/test_transactions.py::test_a_hanging_transaction_is_found_and_aborted",
        "interop/test_tools.py::test_tools_print_the_same",
        "broker/test_transactions.py::test_a_transaction_that_is_never_ended_is_counted_as_late",
    ],
    32: [
        "broker/test_transactions.py::test_a_batch_of_a_partition_that_was_not_added",
        "broker/test_transactions.py::test_a_batch_that_comes_after_the_abort",
        "broker/test_transactions.py::test_an_abort_that_comes_between_the_answer_and_the_batch",
        "log/test_producers.py::test_a_marker_ends_it",
    ],
    # Mixed
    33: [
        "interop/test_transactions.py"
        "::test_every_other_transaction_is_aborted_with_each_kind_in_each_role"
    ],
    34: ["interop/test_transactions.py::test_each_kind_in_each_role"],
    35: ["interop/test_transactions.py::test_a_transaction_outlives_the_moves_of_its_coordinator"],
    36: [
        "interop/test_dump_log.py::test_the_transactions_ours_wrote",
        "interop/test_directories.py::test_transactions_in_a_directory_of_two_programs",
        "interop/test_transactions.py::test_a_transaction_outlives_the_moves_of_its_coordinator",
    ],
    37: [
        "coordinator/test_verification.py::test_a_coordinator_that_cannot_be_asked_is_believed",
        "interop/test_transactions.py"
        "::test_every_other_transaction_is_aborted_with_each_kind_in_each_role",
    ],
    # Simulator and Spark
    38: [
        "coordinator/test_transactions_on_brokers.py::test_transactions_are_whole_whatever_dies",
        "sim/test_seeds.py::test_seed",
        "sim/test_planted.py::test_a_planted_bug_is_found",
        "sim/test_planted.py::test_every_invariant_has_a_bug_that_it_finds",
    ],
    39: [
        "spark/test_exactly_once.py::test_tasks_that_are_killed_before_each_of_their_steps",
        "spark/test_spark.py::test_a_stream_is_exactly_once_although_all_who_write_it_die",
    ],
    40: ["spark/test_exactly_once.py::test_a_repeated_batch_with_other_rows_is_noticed"],
    41: [
        "interop/test_read_process_write.py"
        "::test_each_record_is_copied_once_while_brokers_are_killed",
        "compatibility/test_transactions.py::test_offsets_are_committed_with_the_records",
    ],
}


def test_every_behaviour_has_its_tests() -> None:
    assert set(BEHAVIOURS) == set(range(1, 42))
    check_tests(BEHAVIOURS)
