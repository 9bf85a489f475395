"""The ways to break a cluster and the behaviours of docs/spec/protocol-ladder.md, sections 8.1 and
8.2, and the tests that show each. Those in tests/interop run beside Apache Kafka, and some of them
are slow: `make peers-test`."""

from tests.named_tests import check_tests

ALTER_PARTITION = "controller/test_alter_partition.py"
CONTROLLER = "controller/test_controller.py"
TOPIC_IDS = "controller/test_topic_ids.py"
FETCH_BY_ID = "broker/test_fetch_by_id.py"
IDS_ON_BROKERS = "broker/test_topic_ids.py"
IDS_OF_REPLICAS = "replica/test_topic_ids.py"
ISR_PATH = "replica/test_controller_isr_path.py"
REPLICATION = "replica/test_replication.py"
PARTITION_METADATA = "log/test_partition_metadata.py"
PLANTED = "sim/test_planted.py"
ONE_CLUSTER = "interop/test_one_cluster.py"
ISR_CHANGES = "interop/test_isr_changes.py"
UPGRADE = "interop/test_upgrade.py"
JOINING = "interop/test_joining.py"

# What would break a cluster, and what shows that ours does not do it.
BREAKAGES: dict[int, list[str]] = {
    1: [
        f"{FETCH_BY_ID}::test_records_and_errors_by_id",
        "broker/test_admin.py::test_what_brokers_of_any_protocol_send_is_advertised",
        f"{ONE_CLUSTER}::test_each_leads_and_each_is_killed",
    ],
    2: [
        f"{REPLICATION}::test_a_divergent_answer_says_nothing_else",
        "replica/test_fetch.py::test_divergence_is_reported_and_changes_nothing",
        f"{PLANTED}::test_a_planted_bug_is_found",
        f"{ONE_CLUSTER}::test_a_tail_that_only_a_dead_leader_had_is_given_up",
    ],
    3: [
        "broker/test_admin.py::test_what_brokers_of_any_protocol_send_is_advertised",
        f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind",
    ],
    4: [
        "broker/test_admin.py::test_what_brokers_of_any_protocol_send_is_advertised",
        f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind",
    ],
    5: [
        f"{CONTROLLER}::test_control_requests_leave_at_the_versions_of_the_protocol",
        "controller/test_control_request_batch.py::test_ids_go_with_the_topics",
    ],
    6: [
        f"{TOPIC_IDS}::test_an_id_lost_from_the_node_is_written_back",
        f"{TOPIC_IDS}::test_a_controller_of_an_older_protocol_keeps_ids",
        f"{IDS_ON_BROKERS}::test_an_id_survives_changes_of_the_topic_and_of_the_controller",
    ],
    7: [
        f"{TOPIC_IDS}::test_an_id_that_another_writes_meanwhile_is_the_topics",
        f"{TOPIC_IDS}::test_an_id_that_cannot_be_read_is_not_replaced",
        f"{TOPIC_IDS}::test_an_id_is_given_beside_a_concurrent_expansion",
    ],
    8: [
        "store/test_cluster.py::test_the_feature_node_of_each_protocol",
        f"{CONTROLLER}::test_features_are_written_once_after_a_change_of_protocol",
    ],
    9: [
        f"{ISR_PATH}::test_the_leader_epoch_ends_while_the_connection_is_opened",
        f"{ALTER_PARTITION}::test_every_refusal_in_its_order",
        f"{PLANTED}::test_a_planted_bug_is_found",
    ],
    10: [
        f"{ALTER_PARTITION}::test_a_change_is_written_announced_and_answered",
        "broker/test_control.py::test_alter_partition_over_the_wire_in_every_version",
        f"{PLANTED}::test_a_planted_bug_is_found",
    ],
    11: [f"{ISR_PATH}::test_one_partition_that_is_never_decided_does_not_hold_up_the_others"],
    12: [
        f"{ALTER_PARTITION}::test_every_refusal_in_its_order",
        f"{ISR_PATH}::test_what_cannot_be_decided_now_is_asked_again_after_a_pause",
    ],
    13: [
        f"{ISR_PATH}::test_who_has_caught_up_joins_by_one_request_and_no_notification",
        f"{PLANTED}::test_a_planted_bug_is_found",
    ],
    14: [
        f"{FETCH_BY_ID}::test_a_session_is_by_id_or_by_name_for_life",
        f"{FETCH_BY_ID}::test_records_and_errors_by_id",
        f"{FETCH_BY_ID}::test_a_topic_made_again_is_another",
        f"{IDS_OF_REPLICAS}::test_a_session_renames_a_topic_whose_id_changed",
    ],
    15: [
        "replica/test_control_decisions.py::test_topic_ids_decide_where_both_are_known",
        f"{IDS_OF_REPLICAS}::test_a_topic_made_again_while_a_broker_was_down",
        f"{PARTITION_METADATA}::test_an_id_that_is_being_written_when_records_come_or_the_log_goes",
        f"{PLANTED}::test_a_planted_bug_is_found",
    ],
}

BEHAVIOURS: dict[int, list[str]] = {
    1: [
        "wire/test_protocol_version.py::test_a_release_is_its_latest_version",
        "broker/test_config.py::test_the_inter_broker_protocol_takes_what_kafka_takes_in_our_range",
    ],
    2: [
        "wire/test_protocol_version.py::test_each_version_sends_what_the_ladder_says",
        f"{IDS_OF_REPLICAS}::test_each_protocol_fetches_at_its_version",
        f"{IDS_OF_REPLICAS}::test_each_protocol_asks_for_offsets_at_its_versions",
        f"{CONTROLLER}::test_control_requests_leave_at_the_versions_of_the_protocol",
        "broker/test_transactions.py"
        "::test_what_a_broker_sends_of_itself_leaves_at_the_versions_of_the_protocol",
        f"{ISR_PATH}::test_topics_by_id_and_the_newcomer_by_its_incarnation",
    ],
    3: [
        f"{UPGRADE}::test_a_rolling_upgrade_loses_nothing",
        f"{ONE_CLUSTER}::test_each_leads_and_each_is_killed",
    ],
    4: [
        f"{IDS_ON_BROKERS}::test_a_new_topic_has_one_id_everywhere",
        f"{IDS_ON_BROKERS}::test_each_replica_of_a_new_topic_keeps_its_id",
    ],
    5: [
        f"{IDS_ON_BROKERS}::test_an_id_survives_changes_of_the_topic_and_of_the_controller",
        f"{TOPIC_IDS}::test_a_controller_of_an_older_protocol_keeps_ids",
        f"{UPGRADE}::test_a_rolling_upgrade_loses_nothing",
    ],
    6: [
        f"{TOPIC_IDS}::test_old_topics_get_an_id_at_the_first_election_and_keep_it",
        f"{IDS_ON_BROKERS}"
        "::test_what_was_made_at_2_6_is_upgraded_by_its_first_start_at_the_default",
        f"{UPGRADE}::test_a_rolling_upgrade_loses_nothing",
    ],
    7: [
        f"{IDS_OF_REPLICAS}::test_an_upgraded_controller_brings_ids_at_the_unchanged_epoch",
        f"{IDS_OF_REPLICAS}::test_a_follower_fetches_by_id_where_every_partition_has_one",
        "replica/test_control_decisions.py::test_ids_at_the_epoch_that_is_known",
    ],
    8: [
        f"{IDS_OF_REPLICAS}::test_another_id_is_refused_at_any_epoch_and_nothing_changes",
        "replica/test_control_decisions.py::test_topic_ids_decide_where_both_are_known",
    ],
    9: [
        f"{PARTITION_METADATA}::test_the_id_is_on_disk_before_the_first_record",
        f"{PARTITION_METADATA}::test_no_record_is_written_before_the_id",
        f"{UPGRADE}::test_a_rolling_upgrade_loses_nothing",
        "interop/test_directories.py::test_one_directory_two_programs",
    ],
    10: [
        f"{FETCH_BY_ID}::test_a_topic_made_again_is_another",
        "client/test_topic_ids.py::test_a_topic_created_again_is_read_from_its_start",
    ],
    11: [f"{IDS_OF_REPLICAS}::test_a_topic_made_again_while_a_broker_was_down"],
    12: [
        f"{IDS_OF_REPLICAS}::test_an_id_that_was_lost_and_made_again_sets_no_log_aside",
        f"{PLANTED}::test_topics_that_got_another_id_lose_nothing_but_their_service",
    ],
    13: [
        f"{FETCH_BY_ID}::test_a_session_is_by_id_or_by_name_for_life",
        f"{IDS_OF_REPLICAS}"
        "::test_a_follower_whose_session_is_of_the_other_kind_opens_another_at_once",
        f"{UPGRADE}::test_a_rolling_upgrade_loses_nothing",
    ],
    14: [
        f"{FETCH_BY_ID}::test_an_unknown_id_is_delivered_once_its_topic_is_known",
        "broker/test_metadata_cache.py::test_each_update_sets_the_id_and_a_zero_id_takes_it_back",
    ],
    15: [
        f"{ONE_CLUSTER}::test_a_tail_that_only_a_dead_leader_had_is_given_up",
        f"{ONE_CLUSTER}::test_each_leads_and_each_is_killed",
        f"{REPLICATION}::test_logs_that_diverged_more_than_once_are_truncated_in_several_steps",
    ],
    16: [
        f"{IDS_OF_REPLICAS}::test_each_protocol_fetches_at_its_version",
        f"{IDS_OF_REPLICAS}::test_each_protocol_asks_for_offsets_at_its_versions",
        f"{REPLICATION}::test_records_that_only_a_deposed_leader_has_are_truncated",
    ],
    17: [f"{REPLICATION}::test_a_divergent_answer_says_nothing_else"],
    18: [f"{REPLICATION}::test_batches_above_the_fetchs_leader_epoch_are_not_appended"],
    19: [
        f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind",
        f"{ISR_PATH}::test_one_request_in_flight_and_the_rest_together",
        f"{ISR_PATH}::test_who_has_caught_up_joins_by_one_request_and_no_notification",
    ],
    20: [
        f"{ALTER_PARTITION}::test_every_refusal_in_its_order",
        f"{ALTER_PARTITION}::test_the_sender_must_be_registered_as_it_says",
        f"{ALTER_PARTITION}::test_the_same_change_twice_moves_the_epoch_once",
        f"{ALTER_PARTITION}::test_a_member_that_shuts_down_or_is_gone_is_not_let_in",
        f"{ALTER_PARTITION}::test_a_state_written_behind_the_controllers_back_is_read_again",
        f"{ALTER_PARTITION}::test_by_topic_id",
        "broker/test_control.py::test_alter_partition_over_the_wire_in_every_version",
    ],
    21: [f"{ALTER_PARTITION}::test_the_same_change_twice_moves_the_epoch_once"],
    22: [
        f"{ALTER_PARTITION}::test_a_member_that_shuts_down_or_is_gone_is_not_let_in",
        "broker/test_control.py::test_alter_partition_over_the_wire_in_every_version",
        f"{ISR_PATH}::test_refused_for_an_ineligible_replica_it_is_tried_again_later",
    ],
    23: [f"{ISR_PATH}::test_refused_by_a_controller_that_knows_better_it_waits_to_hear_it"],
    24: [
        f"{ALTER_PARTITION}::test_the_controller_moves_and_the_change_lands_once",
        f"{ALTER_PARTITION}::test_a_deposed_controller_writes_nothing",
        f"{ISR_PATH}::test_while_the_answer_is_out_the_maximal_isr_holds_the_mark",
        f"{ISR_PATH}::test_written_and_the_controller_died_before_it_answered",
    ],
    25: [
        f"{ALTER_PARTITION}::test_an_unclean_leader_recovers_with_its_next_change",
        "broker/test_control.py"
        "::test_the_leader_of_an_unclean_election_is_recovered_by_its_next_isr_change",
    ],
    26: [
        f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind",
        f"{ALTER_PARTITION}::test_a_move_is_finished_without_any_notification",
    ],
    27: [
        f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind",
        "broker/test_producer_ids.py"
        "::test_no_id_twice_while_the_controller_moves_and_brokers_differ",
        f"{ALTER_PARTITION}::test_a_block_of_producer_ids_for_a_registered_broker",
    ],
    28: [
        f"{CONTROLLER}::test_features_are_written_once_after_a_change_of_protocol",
        "store/test_cluster.py::test_the_feature_node_of_each_protocol",
        "store/test_cluster.py::test_a_feature_node_is_compared_after_decoding",
        "broker/test_features.py::test_the_epoch_of_the_features_is_shown_from_2_7_on",
    ],
    29: [f"{ISR_CHANGES}::test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind"],
    30: [
        f"{JOINING}::test_ours_joins_controls_leads_and_leaves",
        f"{ONE_CLUSTER}::test_each_leads_and_each_is_killed",
    ],
}


def test_every_breakage_has_its_tests() -> None:
    assert set(BREAKAGES) == set(range(1, 16))
    check_tests(BREAKAGES)


def test_every_behaviour_has_its_tests() -> None:
    assert set(BEHAVIOURS) == set(range(1, 31))
    check_tests(BEHAVIOURS)
