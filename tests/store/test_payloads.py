"""Payloads against literal JSON: what Kafka 3.9 writes at inter-broker protocol 2.6, and reads."""

import json
import uuid

import pytest

from odradek.store import payloads
from odradek.store.payloads import (
    BrokerRegistration,
    Endpoint,
    InvalidPayload,
    LeaderAndIsr,
    TopicNode,
)
from odradek.wire.topic_ids import format_topic_id, parse_topic_id
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


class TestBrokers:
    def test_a_plain_broker(self) -> None:
        broker = BrokerRegistration(1, 77, (Endpoint("h", 9092),))
        data = payloads.encode_broker(broker, 1600000000000)
        assert data == (
            b'{"version":4,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],'
            b'"jmx_port":-1,"timestamp":"1600000000000",'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}'
        )
        assert payloads.decode_broker(1, data, 77) == broker

    def test_a_broker_with_rack_and_named_listeners(self) -> None:
        broker = BrokerRegistration(
            2,
            5,
            (Endpoint("a", 1, "EXTERNAL", "SSL"), Endpoint("::1", 2, "INTERNAL", "PLAINTEXT")),
            rack="r1",
        )
        data = payloads.encode_broker(broker, 1)
        assert data == (
            b'{"version":4,"host":"::1","port":2,"endpoints":["EXTERNAL://a:1",'
            b'"INTERNAL://[::1]:2"],"jmx_port":-1,"timestamp":"1","rack":"r1",'
            b'"listener_security_protocol_map":{"EXTERNAL":"SSL","INTERNAL":"PLAINTEXT"}}'
        )
        assert payloads.decode_broker(2, data, 5) == broker
        assert broker.endpoint("EXTERNAL") == Endpoint("a", 1, "EXTERNAL", "SSL")
        assert broker.endpoint("OTHER") is None

    def test_from_2_7_on_a_broker_registers_its_features(self) -> None:
        broker = BrokerRegistration(1, 77, (Endpoint("h", 9092),), has_features=True)
        data = payloads.encode_broker(broker, 1600000000000)
        assert data == (
            b'{"version":5,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"],'
            b'"jmx_port":-1,"timestamp":"1600000000000",'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}'
        )
        assert payloads.decode_broker(1, data, 77) == broker

    def test_without_a_plaintext_endpoint_there_is_no_host(self) -> None:
        broker = BrokerRegistration(3, 0, (Endpoint("h", 9093, "SSL", "SSL"),))
        assert payloads.encode_broker(broker, 0).startswith(
            b'{"version":4,"host":null,"port":-1,"endpoints":["SSL://h:9093"]'
        )

    @pytest.mark.parametrize(
        ("data", "endpoints", "rack"),
        [
            (
                b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1"}',
                (Endpoint("h", 9092),),
                None,
            ),
            (
                b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1",'
                b'"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}',
                (Endpoint("h", 9092), Endpoint("h", 9093, "SSL", "SSL")),
                None,
            ),
            (
                b'{"version":3,"host":"h","port":9092,"jmx_port":9999,"timestamp":"1",'
                b'"endpoints":["PLAINTEXT://h:9092"],"rack":"dc1"}',
                (Endpoint("h", 9092),),
                "dc1",
            ),
            (
                b'{"listener_security_protocol_map":{"CLIENT":"SSL"},"features":{"f":'
                b'{"min_version":1,"max_version":3}},"endpoints":["CLIENT://h:9092"],'
                b'"jmx_port":9999,"port":9092,"host":"h","version":5,"timestamp":"1",'
                b'"rack":"dc1","unknown":[1]}',
                (Endpoint("h", 9092, "CLIENT", "SSL"),),
                "dc1",
            ),
        ],
        ids=["v1", "v2", "v3", "v5"],
    )
    def test_other_versions_are_read(
        self, data: bytes, endpoints: tuple[Endpoint, ...], rack: str | None
    ) -> None:
        expected = BrokerRegistration(7, 9, endpoints, rack, 9999, b'"version":5' in data)
        assert payloads.decode_broker(7, data, 9) == expected

    @pytest.mark.parametrize(
        "data",
        [
            None,
            b"",
            b"{",
            b"[]",
            b'{"version":"4","jmx_port":-1,"endpoints":[]}',
            b'{"version":4,"endpoints":[]}',
            b'{"version":4,"jmx_port":-1}',
            b'{"version":0,"jmx_port":-1,"endpoints":[]}',
            b'{"version":4,"jmx_port":-1,"endpoints":[7]}',
            b'{"version":4,"jmx_port":-1,"endpoints":["nonsense"]}',
            b'{"version":4,"jmx_port":-1,"endpoints":["X://h:1"]}',
            b'{"version":4,"jmx_port":-1,"endpoints":["X://h:1"],'
            b'"listener_security_protocol_map":{"x":"SSL"}}',
            b'{"version":4,"jmx_port":true,"endpoints":[]}',
        ],
    )
    def test_nonsense_names_the_node(self, data: bytes | None) -> None:
        with pytest.raises(InvalidPayload, match=r"/brokers/ids/4\b") as error:
            payloads.decode_broker(4, data, 0)
        assert error.value.path == "/brokers/ids/4"


class TestController:
    def test_the_controller(self) -> None:
        data = payloads.encode_controller(1, 1600000000000)
        assert data == (
            b'{"version":2,"brokerid":1,"timestamp":"1600000000000","kraftControllerEpoch":-1}'
        )
        assert payloads.decode_controller(data) == (1, -1)

    def test_other_versions_are_read(self) -> None:
        old = b'{"version":1,"brokerid":3,"timestamp":"1"}'
        assert payloads.decode_controller(old) == (3, -1)
        migrating = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}'
        assert payloads.decode_controller(migrating) == (3000, 5)
        with pytest.raises(InvalidPayload, match="brokerid"):
            payloads.decode_controller(b'{"version":1,"brokerid":"3"}')

    def test_the_epoch_is_decimal_text(self) -> None:
        assert payloads.encode_controller_epoch(12) == b"12"
        assert payloads.decode_controller_epoch(b"12") == 12
        for wrong in (None, b"", b"x"):
            with pytest.raises(InvalidPayload, match="/controller_epoch"):
                payloads.decode_controller_epoch(wrong)

    def test_features(self) -> None:
        for fine in (
            b'{"version":1,"status":0,"features":{}}',
            b'{"version":2,"status":1,"features":{"metadata.version":{"max_version_level":5}}}',
            b'{"version":1,"status":1,"features":'
            b'{"f":{"min_version_level":1,"max_version_level":2}}}',
        ):
            assert payloads.encode_features(payloads.decode_features(fine)) == fine
        for wrong in (
            b"",
            b'{"version":3,"status":0,"features":{}}',
            b'{"version":1,"features":{}}',
            b'{"version":1,"status":2,"features":{}}',
            b'{"version":1,"status":0}',
            b'{"version":1,"status":1,"features":{"f":{"max_version_level":2}}}',
            b'{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}',
            b'{"version":2,"status":1,"features":{"f":7}}',
        ):
            with pytest.raises(InvalidPayload, match="/feature"):
                payloads.decode_features(wrong)


class TestTopics:
    def test_a_topic(self) -> None:
        topic = TopicNode({0: (1, 2), 1: (2, 1)})
        data = payloads.encode_topic(topic)
        assert data == (
            b'{"version":3,"partitions":{"0":[1,2],"1":[2,1]},'
            b'"adding_replicas":{},"removing_replicas":{}}'
        )
        assert payloads.decode_topic("t", data) == topic

    def test_only_lists_that_are_not_empty_are_written(self) -> None:
        topic = TopicNode({0: (3, 1), 10: (1,), 2: (1,)}, {0: (3,), 2: ()}, {0: (1,), 10: ()})
        assert payloads.encode_topic(topic) == (
            b'{"version":3,"partitions":{"0":[3,1],"2":[1],"10":[1]},'
            b'"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
        )

    def test_an_id_is_kept(self) -> None:
        data = (
            b'{"removing_replicas":{},"partitions":{"0":[1]},"topic_id":"TWRvYm5hbWUtY2hlY2su_g",'
            b'"adding_replicas":{},"version":3}'
        )
        topic = payloads.decode_topic("t", data)
        assert topic.topic_id is not None
        assert format_topic_id(topic.topic_id) == "TWRvYm5hbWUtY2hlY2su_g"
        assert b'"topic_id":"TWRvYm5hbWUtY2hlY2su_g"' in payloads.encode_topic(topic)

    def test_an_id_is_22_characters(self) -> None:
        assert format_topic_id(uuid.UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
        assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ") == uuid.UUID(int=1)
        assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ==") == uuid.UUID(int=1)
        for wrong in ("", "AAAA", "A" * 23, "A" * 24, "????", "é" * 22, "+" * 22, " " + "A" * 21):
            data = json.dumps({"version": 3, "partitions": {}, "topic_id": wrong}).encode()
            with pytest.raises(InvalidPayload, match="/brokers/topics/t"):
                payloads.decode_topic("t", data)

    def test_older_versions_are_read(self) -> None:
        assert payloads.decode_topic(
            "t", b'{"version":1,"partitions":{"1":[3],"0":[1,2]}}'
        ) == TopicNode({0: (1, 2), 1: (3,)})

    def test_what_is_no_json_is_no_assignment(self, caplog: pytest.LogCaptureFixture) -> None:
        assert payloads.decode_topic("t", None) == TopicNode({})
        assert payloads.decode_topic("t", b"nonsense") == TopicNode({})
        assert "/brokers/topics/t" in caplog.text

    @pytest.mark.parametrize(
        "data",
        [
            b'{"partitions":null}',
            b'{"partitions":[]}',
            b'{"partitions":{"x":[1]}}',
            b'{"partitions":{"0":["1"]}}',
            b'{"partitions":{"0":[1]},"adding_replicas":null}',
            b'{"partitions":{},"topic_id":7}',
            b"7",
        ],
    )
    def test_nonsense_names_the_node(self, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match="/brokers/topics/t"):
            payloads.decode_topic("t", data)


class TestPartitionStates:
    def test_a_state(self) -> None:
        state = LeaderAndIsr(1, 0, (1, 2), 3, 4)
        data = payloads.encode_state(state)
        assert data == (
            b'{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":3,"isr":[1,2]}'
        )
        assert payloads.decode_state(T0, data, 4) == state

    def test_kafka_writes_the_keys_in_its_own_order(self) -> None:
        data = b'{"controller_epoch":3,"leader":-1,"version":1,"leader_epoch":7,"isr":[]}'
        assert payloads.decode_state(T0, data, 9) == LeaderAndIsr(-1, 7, (), 3, 9)

    def test_recovery(self) -> None:
        state = LeaderAndIsr(1, 2, (1,), 3, recovering=True)
        data = payloads.encode_state(state)
        assert data.endswith(b'"isr":[1],"leader_recovery_state":1}')
        assert payloads.decode_state(T0, data, 0) == state
        recovered = data.replace(b'state":1', b'state":0')
        read = payloads.decode_state(T0, recovered, 0)
        assert read is not None and not read.recovering

    def test_what_is_no_json_is_no_state(self, caplog: pytest.LogCaptureFixture) -> None:
        assert payloads.decode_state(T0, None, 0) is None
        assert payloads.decode_state(T0, b"x", 0) is None
        assert "/brokers/topics/t/partitions/0/state" in caplog.text

    @pytest.mark.parametrize(
        "data",
        [
            b'{"leader":1,"leader_epoch":0,"controller_epoch":3}',
            b'{"leader":1,"leader_epoch":0,"isr":[1]}',
            b'{"leader":"1","leader_epoch":0,"controller_epoch":3,"isr":[1]}',
            b'{"leader":1.5,"leader_epoch":0,"controller_epoch":3,"isr":[1]}',
            b'{"leader":4294967296,"leader_epoch":0,"controller_epoch":3,"isr":[1]}',
            b'{"leader":1,"leader_epoch":0,"controller_epoch":3,"isr":"1"}',
            b'{"leader":1,"leader_epoch":0,"controller_epoch":3,"isr":[],'
            b'"leader_recovery_state":2}',
            b"[1]",
        ],
    )
    def test_nonsense_names_the_node(self, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match="/brokers/topics/t/partitions/0/state"):
            payloads.decode_state(T0, data, 0)


class TestRequestsAndNotifications:
    def test_partitions(self) -> None:
        data = payloads.encode_partitions([T0, TopicPartition("ü", 1)])
        assert data == (
            '{"version":1,"partitions":[{"topic":"t","partition":0},'
            '{"topic":"ü","partition":1}]}'.encode()
        )
        assert payloads.decode_partitions(data, "/p") == {T0, TopicPartition("ü", 1)}
        for wrong in (b"", b"{}", b'{"partitions":[1]}', b'{"partitions":[{"topic":"t"}]}'):
            with pytest.raises(InvalidPayload, match="/p"):
                payloads.decode_partitions(wrong, "/p")

    def test_a_reassignment(self) -> None:
        data = payloads.encode_reassignment({T0: [1, 2]})
        assert data == (
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
        )
        assert payloads.decode_reassignment(data) == {T0: (1, 2)}

    @pytest.mark.parametrize(
        "data",
        [
            b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],'
            b'"log_dirs":["any"]}]}',
            b'{"version":1,"partitions":[],"more":1}',
            b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
            b'{"version":1}',
        ],
    )
    def test_a_reassignment_has_only_its_own_keys(self, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match="/admin/reassign_partitions"):
            payloads.decode_reassignment(data)

    def test_a_log_dir_event(self) -> None:
        data = payloads.encode_log_dir_event(7)
        assert data == b'{"version":1,"broker":7,"event":1}'
        assert payloads.decode_log_dir_event(data, "/p") == 7


class TestConfigurations:
    def test_a_configuration(self) -> None:
        data = payloads.encode_config({"retention.ms": "1", "cleanup.policy": "compact"})
        assert data == (b'{"version":1,"config":{"retention.ms":"1","cleanup.policy":"compact"}}')
        assert payloads.decode_config(data, "/p") == {
            "retention.ms": "1",
            "cleanup.policy": "compact",
        }
        assert payloads.encode_config({}) == b'{"version":1,"config":{}}'

    def test_nothing_is_an_empty_configuration(self) -> None:
        for nothing in (None, b"", b'{"version":1}', b'{"version":1,"config":null}'):
            assert payloads.decode_config(nothing, "/p") == {}

    def test_values_are_strings(self) -> None:
        with pytest.raises(InvalidPayload, match=r"/p: the value of a"):
            payloads.decode_config(b'{"version":1,"config":{"a":1}}', "/p")

    def test_a_change(self) -> None:
        data = payloads.encode_config_change("topics/t")
        assert data == b'{"version":2,"entity_path":"topics/t"}'
        assert payloads.decode_config_change(data, "/p") == "topics/t"
        old = b'{"version":1,"entity_type":"clients","entity_name":"c"}'
        assert payloads.decode_config_change(old, "/p") == "clients/c"

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b'{"version":3,"entity_path":"topics/t"}',
            b'{"version":2}',
            b'{"version":2,"entity_path":"nothing/t"}',
            b'{"version":2,"entity_path":"topics"}',
        ],
    )
    def test_nonsense_names_the_node(self, data: bytes) -> None:
        with pytest.raises(InvalidPayload, match="/config/changes/x"):
            payloads.decode_config_change(data, "/config/changes/x")


class TestTheCluster:
    def test_the_id_and_its_quoted_version(self) -> None:
        data = payloads.encode_cluster_id("4L6g3nShT-eMCtK--X86sw")
        assert data == b'{"version":"1","id":"4L6g3nShT-eMCtK--X86sw"}'
        assert payloads.decode_cluster_id(data) == "4L6g3nShT-eMCtK--X86sw"
        with pytest.raises(InvalidPayload, match="/cluster/id"):
            payloads.decode_cluster_id(b'{"version":"1","id":1}')

    def test_a_block_of_producer_ids(self) -> None:
        data = payloads.encode_producer_ids(1, range(1000))
        assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
        assert payloads.decode_producer_ids(data) == range(1000)
        for wrong in (
            b"",
            b'{"version":1,"broker":1,"block_start":0,"block_end":999}',
            b'{"version":1,"broker":1,"block_start":"a","block_end":"b"}',
            b'{"version":1,"broker":"1","block_start":"0","block_end":"999"}',
        ):
            with pytest.raises(InvalidPayload, match="/latest_producer_id_block"):
                payloads.decode_producer_ids(wrong)
