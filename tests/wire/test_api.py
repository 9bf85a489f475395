"""The table of APIs, error codes and topic names."""

import subprocess
import sys

import pytest

from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition, metric_name, validate_topic_name


def test_every_api_has_its_two_messages() -> None:
    assert set(APIS) == set(ApiKey)
    for key, api in APIS.items():
        for message in (api.request, api.response):
            assert key == api.key == message.API_KEY
            assert api.flexible_from == message.FLEXIBLE_FROM
            assert api.min_version in message.VERSIONS
            assert api.max_version in message.VERSIONS


def test_ranges_that_others_rely_on() -> None:
    # Followers at inter-broker protocol 3.9 send the last without asking.
    assert (APIS[ApiKey.FETCH].min_version, APIS[ApiKey.FETCH].max_version) == (0, 17)
    assert APIS[ApiKey.PRODUCE].min_version == 0  # librdkafka compresses only then


def test_what_clients_must_not_see_is_not_there() -> None:
    assert not set(APIS) & {55, 64, 68, 69, 71, 72, 74, 75, 80}


def test_importing_the_table_imports_no_message() -> None:
    code = (
        "import sys; from odradek.wire.api import APIS;"
        "print([name for name in sys.modules if 'wire.messages.' in name or 'coder' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_error_codes() -> None:
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(ErrorCode) == 128
    assert str(KafkaError(ErrorCode.INVALID_REQUEST)) == "INVALID_REQUEST"
    assert str(KafkaError(ErrorCode.INVALID_REQUEST, "no")) == "INVALID_REQUEST: no"


@pytest.mark.parametrize(
    "name", ["a", "topic.with_all-of_1", "x" * 249, "...", "__consumer_offsets"]
)
def test_legal_topic_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "é", "a\n", "a\0"])
def test_illegal_topic_names(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_name(name)
    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partitions_print_like_their_directory() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
    assert TopicPartition("a", 1) < TopicPartition("a", 2)


def test_names_that_metrics_cannot_tell_apart() -> None:
    assert metric_name("a.b") == metric_name("a_b")
    assert metric_name("a.b") != metric_name("a-b")
