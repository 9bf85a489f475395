"""How the output of other people's test programs is read, and how exceptions count."""

from tests.suites import franz_go, librdkafka
from tests.suites.results import Outcome, Result, judged, summary

PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED

GO = """\
=== RUN   TestPing
--- PASS: TestPing (0.04s)
    client_test.go:289: no SCRAM here
--- SKIP: TestSCRAMAuth (0.00s)
    --- FAIL: TestTxnEtl/sticky (1.00s)
--- FAIL: TestTxnEtl (1.00s)
"""
C = """\
| <MAIN>                          |     PASSED |   2.000s |
| 0001_multiobj                   |     PASSED |   1.345s |
| 0110_batch_size                 |    SKIPPED |   0.000s | RapidJSON not available
| 0031_get_offsets_mock           |    SKIPPED |   0.000s | Filtered due to negative test flags
"""


def test_of_go_the_tests_of_the_highest_level_count() -> None:
    assert franz_go.parsed(GO, "a.log") == [
        Result("TestPing", PASSED),
        Result("TestSCRAMAuth", SKIPPED, "client_test.go:289: no SCRAM here"),
        Result("TestTxnEtl", FAILED, "a.log"),
    ]


def test_of_librdkafka_tests_without_brokers_do_not_count() -> None:
    assert librdkafka.parsed("0001", C, "a.log") == [
        Result("0001_multiobj", PASSED),
        Result("0110_batch_size", SKIPPED, "RapidJSON not available"),
    ]
    assert librdkafka.parsed("0002", "Aborted", "a.log") == [Result("0002", FAILED, "a.log")]


def test_an_exception_is_skipped_while_it_fails_and_fails_once_it_passes() -> None:
    results = [Result("a", PASSED), Result("b", FAILED, "b.log"), Result("c", PASSED)]
    of_two = judged(results, {"b": "old", "c": "old"})
    assert [result.outcome for result in of_two] == [PASSED, SKIPPED, FAILED]
    assert summary(of_two) == "1 passed, 1 failed, 1 skipped"
