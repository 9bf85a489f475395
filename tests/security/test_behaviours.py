"""The forty behaviours of docs/spec/security.md, section 11, and the tests that show each."""

from tests.named_tests import check_tests

BEHAVIOURS: dict[int, list[str]] = {
    1: ["interop/test_secure_cluster.py::test_either_leads_controls_and_is_killed"],
    2: [
        "store/test_payloads.py::test_without_a_plaintext_endpoint_there_is_no_host",
        "interop/test_secure_cluster.py::test_either_leads_controls_and_is_killed",
    ],
    3: [
        "broker/test_security.py::test_metadata_names_the_endpoints_of_its_listener",
        "broker/test_metadata_cache.py::test_a_leader_without_the_listener",
    ],
    4: ["broker/test_config.py::test_wrong_listeners_refuse_the_start"],
    5: [
        "broker/test_config.py::test_wrong_listeners_refuse_the_start",
        "broker/test_config.py::test_an_ipv4_and_an_ipv6_address_may_share_a_port",
    ],
    6: ["security/test_tls.py::test_pem_on_one_line_in_a_file_and_pkcs12_called_jks_all_serve"],
    7: ["security/test_tls.py::test_a_real_jks_file_is_refused_with_the_command_that_converts_it"],
    8: ["security/test_tls.py::test_client_authentication"],
    9: ["security/test_principal.py::test_a_name_reads_as_java_prints_it"],
    10: ["security/test_principal.py::test_the_first_rule_that_matches_the_whole_subject_wins"],
    11: ["broker/test_security.py::test_a_new_certificate_counts_for_new_connections"],
    12: [
        "broker/test_connection.py::test_garbage_ends_its_own_connection_and_no_other",
        "security/test_tls.py::test_what_is_no_handshake_closes_the_connection_and_disturbs_no_other",
        "security/test_fuzz.py::test_no_bytes_break_a_handshake_or_outlive_it",
    ],
    13: ["../benchmarks/security.py::idle"],
    14: ["security/test_tls.py::test_a_client_that_does_not_read_bounds_what_is_encrypted"],
    15: [
        "broker/test_authentication.py::test_an_unknown_version_is_answered_and_tried_again",
        "broker/test_authentication.py::test_api_versions_twice_closes_at_once",
    ],
    16: [
        "broker/test_authentication.py"
        "::test_any_other_request_before_the_login_is_not_answered_and_closes_late"
    ],
    17: [
        "broker/test_authentication.py"
        "::test_a_mechanism_that_is_not_enabled_is_refused_late_with_the_list"
    ],
    18: ["broker/test_authentication.py::test_bare_tokens_after_a_handshake_of_version_0"],
    19: [
        "broker/test_security.py::test_a_wrong_login_is_refused_and_closed",
        "security/test_exchanges.py::test_plain_does_not_say_whether_the_user_exists",
    ],
    20: [
        "security/test_exchanges.py::test_an_unknown_user_and_a_wrong_password_look_the_same",
        "security/test_exchanges.py"
        "::test_what_an_unknown_user_is_shown_looks_like_what_the_others_are",
    ],
    21: [
        "security/test_exchanges.py::test_a_login_succeeds_with_the_right_password",
        "compatibility/test_logins.py::test_a_client_logs_in_with_every_mechanism_it_has",
    ],
    22: [
        "security/test_exchanges.py::test_a_login_succeeds_with_the_right_password",
        "interop/test_secure_cluster.py"
        "::test_users_are_made_by_either_controller_and_keep_their_quotas",
    ],
    23: [
        "interop/test_secure_cluster.py"
        "::test_users_are_made_by_either_controller_and_keep_their_quotas"
    ],
    24: [
        "broker/test_security.py::test_scram_users_are_altered_and_described_and_log_in",
        "broker/test_security.py::test_only_the_active_controller_changes_users",
    ],
    25: ["security/test_exchanges.py::test_a_rejected_token_is_challenged_and_then_fails"],
    26: [
        "security/test_exchanges.py::test_signed_tokens_are_checked_against_the_key_set",
        "broker/test_key_sets.py::test_a_new_key_is_fetched_once_and_then_accepted",
    ],
    27: [
        "interop/test_secure_cluster.py::test_a_token_made_by_one_logs_in_on_the_other",
        "broker/test_delegation_tokens.py::test_owner_and_renewers_move_the_expiry",
    ],
    28: ["broker/test_delegation_tokens.py::test_the_active_controller_deletes_what_has_expired"],
    29: [
        "broker/test_security.py::test_a_session_is_renewed_under_requests_and_ends_without",
        "compatibility/test_logins.py::test_clients_log_in_again_before_their_session_ends",
        "interop/test_logins.py::test_kafkas_producer_logs_in_again_on_its_connections",
    ],
    30: ["broker/test_authentication.py::test_a_second_login_as_another_user_fails"],
    31: [
        "security/test_acls.py::test_a_deny_beats_every_allow_wherever_it_stands",
        "security/test_acls.py::test_without_an_entry_the_setting_decides_and_super_users_always_may",
    ],
    32: ["security/test_acls.py::test_describe_is_implied_by_allow_and_not_by_deny"],
    33: [
        "interop/test_secure_cluster.py::test_the_tools_print_the_same",
        "interop/test_secure_cluster.py::test_each_sees_the_acls_that_the_other_wrote",
    ],
    34: ["broker/test_permissions.py::test_each_api_asks_for_its_permissions"],
    35: ["broker/test_security.py::test_metadata_shows_only_what_may_be_described"],
    36: [
        "broker/test_security.py::test_listings_show_what_may_be_described_without_an_error",
        "broker/test_security.py::test_a_topic_deleted_by_id_is_named_to_those_who_may_describe_it",
    ],
    37: ["broker/test_security.py::test_an_idempotent_producer_needs_write_on_some_topic"],
    38: [
        "broker/test_connection.py::test_too_many_connections",
        "broker/test_connection.py::test_clients_do_not_keep_the_other_brokers_out",
        "broker/test_admission.py::test_the_rate_of_an_address_is_set_described_and_enforced",
    ],
    39: [
        "broker/test_security.py::test_a_users_quota_counts_over_connections_and_client_ids",
        "interop/test_secure_cluster.py::test_the_tools_print_the_same",
    ],
    40: [
        "broker/test_secrets.py::test_secrets_stay_inside",
        "broker/test_secrets.py::test_a_start_that_fails_prints_no_secret",
        "spark/test_security_options.py::test_secrets_are_not_in_the_text_of_options",
        "spark/test_secure_cluster.py::test_rows_go_round_and_no_secret_is_in_what_spark_keeps",
    ],
}


def test_every_behaviour_has_its_tests() -> None:
    assert set(BEHAVIOURS) == set(range(1, 41))
    check_tests(BEHAVIOURS)
