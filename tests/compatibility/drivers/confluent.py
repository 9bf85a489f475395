"""confluent-kafka, and so librdkafka."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.compatibility.drivers import Got, Placement, Sent, nothing

WAIT_S = 30.0


class Confluent:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.bootstrap = bootstrap
        self.settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id}
        # Its futures live only as long as it does.
        self._admin = AdminClient(self.settings)

    def version(self) -> str:
        return f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})"

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        failures: list[Exception] = []

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                failures.append(KafkaException(error))

        producer = Producer(
            {
                **self.settings,
                "compression.codec": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "log_level": 0,
            }
        )
        half = len(records) // 2
        for number, some in enumerate((records[:half], records[half:])):
            for record in some:
                placed: dict[str, Any] = {}
                if record.partition is not None:
                    placed["partition"] = record.partition
                if record.timestamp_ms is not None:
                    placed["timestamp"] = record.timestamp_ms
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=delivered,
                    **placed,
                )
            assert producer.flush(WAIT_S) == 0
            if number == 0 and half:
                between()
        if failures:
            raise failures[0]

    def _consumer(self) -> Consumer:
        return Consumer({**self.settings, "group.id": "unused", "auto.offset.reset": "error"})

    def _take(self, consumer: Consumer, count: int) -> list[Got]:
        found: list[Got] = []
        while len(found) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{len(found)} of {count} records came"
            if message.error():
                raise KafkaException(message.error())
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found.append(
                Got(
                    partition,
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),  # type: ignore[arg-type]  # librdkafka: a list
                )
            )
        return found

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, part, at) for part, at in starts.items()])
        found = self._take(consumer, count)
        consumer.close()
        return found

    def seek(self, topic: str, first: int, then: int) -> list[int]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, 0, first)])
        found = self._take(consumer, 1)
        consumer.seek(TopicPartition(topic, 0, then))
        found += self._take(consumer, 1)
        consumer.close()
        return [record.offset for record in found]

    def pause(self, topic: str) -> tuple[set[int], set[int]]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, part, 0) for part in (0, 1)])
        consumer.pause([TopicPartition(topic, 0)])
        before = {record.partition for record in self._take(consumer, 3)}
        consumer.resume([TopicPartition(topic, 0)])
        after = {record.partition for record in self._take(consumer, 3)}
        consumer.close()
        return before, after

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        consumer = self._consumer()
        wanted = [TopicPartition(topic, partition, timestamp_ms)]
        (found,) = consumer.offsets_for_times(wanted, WAIT_S)
        consumer.close()
        offset: int = found.offset
        return offset

    def member_command(self, group: str, topic: str, session_ms: int) -> list[str]:
        names = ["confluent", self.bootstrap, group, topic, str(session_ms)]
        return [sys.executable, "-m", "tests.compatibility.members", *names]

    def create_topic(self, topic: str, partitions: int, copies: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, copies)])[topic].result(WAIT_S)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=WAIT_S).topics)

    def describe(self, topic: str) -> dict[int, Placement]:
        known = self._admin.list_topics(topic, timeout=WAIT_S).topics[topic]
        return {
            part.id: Placement(part.leader, part.replicas, part.isrs)
            for part in known.partitions.values()
        }

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, count)])[topic].result(WAIT_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(WAIT_S)

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(WAIT_S)
        value: str = found[name].value
        return value

    def groups(self) -> set[str]:
        found = self._admin.list_consumer_groups().result(WAIT_S)
        return {group.group_id for group in found.valid}

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(
            group, [TopicPartition(topic, partition)]
        )
        found = self._admin.list_consumer_group_offsets([wanted])[group].result(WAIT_S)
        offset: int = found.topic_partitions[0].offset
        return offset

    def delete_group(self, group: str) -> None:
        self._admin.delete_consumer_groups([group])[group].result(WAIT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = TopicPartition(topic, partition, before)
        self._admin.delete_records([wanted])[wanted].result(WAIT_S)
