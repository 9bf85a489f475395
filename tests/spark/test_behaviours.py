"""The seventeen behaviours of docs/spec/tables.md, section 14, and the tests that show each.

Where a behaviour is one of numbers, its test does fewer on its own and as many as it is told by the
environment: ODRADEK_KILLS (1), ODRADEK_RIVALS_S (2), ODRADEK_BATCHES (3), ODRADEK_EXAMPLES (16).
"""

from tests.named_tests import check_tests

BEHAVIOURS: dict[int, list[str]] = {
    1: [
        "spark/tables/test_crash.py"
        "::test_every_row_once_after_kills_at_each_step_and_in_random_places",
        "spark/pipeline/test_kills.py"
        "::test_exactly_once_through_the_death_of_java_and_of_the_driver",
    ],
    2: [
        "spark/pipeline/test_rivals.py"
        "::test_two_drivers_land_nothing_twice_and_one_ends_with_the_reason",
        "spark/tables/test_spark_tables.py::test_two_drivers_on_one_checkpoint_land_nothing_twice",
        "spark/tables/test_table.py::test_two_drivers_land_one_batch_once",
    ],
    3: [
        "spark/tables/test_table.py::test_writers_and_compactors_at_once_leave_every_row_once",
        "spark/tables/test_table.py::test_without_our_own_compare_and_swap_rows_would_come_twice",
        "spark/tables/test_table.py::test_the_library_lets_two_compactions_of_one_version_through",
    ],
    4: [
        "spark/tables/test_table.py::test_a_torn_last_entry_is_put_aside_and_its_batch_lands_once",
        "spark/tables/test_table.py::test_a_torn_entry_that_is_not_the_last_is_refused_by_name",
        "spark/tables/test_table.py::test_a_torn_checkpoint_is_put_aside",
    ],
    5: [
        "spark/tables/test_table.py"
        "::test_data_is_synced_before_the_put_and_the_entry_before_the_acknowledgement"
    ],
    6: [
        "spark/tables/test_crash.py"
        "::test_every_row_once_after_kills_at_each_step_and_in_random_places",
        "spark/tables/test_spark_tables.py"
        "::test_spark_reads_whole_batches_while_they_land_and_are_compacted",
    ],
    7: [
        "spark/tables/test_statistics.py"
        "::test_a_filter_finds_the_same_rows_with_statistics_and_without"
    ],
    8: [
        "spark/tables/test_upkeep.py"
        "::test_every_partition_value_through_every_reader_and_compaction",
        "spark/tables/test_spark_tables.py"
        "::test_every_type_through_sparks_writer_and_reader_and_compaction",
    ],
    9: [
        "spark/tables/test_table.py::test_columns_that_do_not_fit_are_refused_with_both_types",
        "spark/tables/test_table.py::test_a_new_column_is_added_and_null_before",
        "spark/tables/test_spark_tables.py::test_tables_are_chained_joined_updated_and_replaced",
    ],
    10: [
        "spark/tables/test_crash.py"
        "::test_every_row_once_after_kills_at_each_step_and_in_random_places",
        "spark/tables/test_upkeep.py::test_an_upsert_replaces_what_has_its_keys",
        "spark/tables/test_spark_tables.py::test_tables_are_chained_joined_updated_and_replaced",
    ],
    11: [
        "spark/tables/test_table.py::test_hundreds_of_batches_keep_few_files_and_a_short_log",
        "../benchmarks/table.py::thousands",
    ],
    12: [
        "spark/tables/test_upkeep.py::test_vacuum_leaves_what_is_young_and_what_the_history_needs",
        "spark/tables/test_crash.py"
        "::test_every_row_once_after_kills_at_each_step_and_in_random_places",
    ],
    13: [
        "spark/tables/test_upkeep.py::test_versions_and_times_gone_by",
        "cli/test_table.py::test_rows_now_and_then",
        "spark/tables/test_spark_tables.py"
        "::test_every_type_through_sparks_writer_and_reader_and_compaction",
    ],
    14: [
        "spark/tables/test_table.py::test_a_table_written_by_the_library_is_appended_to",
        "spark/tables/test_table.py::test_a_table_that_needs_what_we_lack_is_refused_by_name",
    ],
    15: [
        "spark/test_on_cluster.py"
        "::test_stopped_here_and_gone_on_with_on_a_cluster_without_this_package"
    ],
    16: [
        "spark/pipeline/test_avro_program.py::test_any_value_of_any_schema_and_bytes_that_are_none"
    ],
    17: [
        "spark/pipeline/test_pipeline.py"
        "::test_the_demo_balances_its_books_although_a_broker_is_killed"
    ],
}


def test_every_behaviour_has_its_tests() -> None:
    assert set(BEHAVIOURS) == set(range(1, 18))
    check_tests(BEHAVIOURS)
