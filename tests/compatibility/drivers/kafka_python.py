"""kafka-python."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kafka
import kafka.codec
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.structs import TopicPartition
from tests.compatibility.drivers import Got, Placement, Sent, Unsupported, nothing

WAIT_MS = 30_000


class KafkaPython:
    name = "kafka-python"

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self.bootstrap = bootstrap
        self.settings = {"bootstrap_servers": bootstrap.split(","), "client_id": client_id}

    def version(self) -> str:
        version: str = kafka.__version__
        return version

    def produce(
        self,
        topic: str,
        records: Sequence[Sent],
        *,
        codec: str = "none",
        idempotent: bool = False,
        between: Callable[[], None] = nothing,
    ) -> None:
        if codec != "none" and not getattr(kafka.codec, f"has_{codec}")():
            raise Unsupported(f"finds no library for {codec} here")
        producer = kafka.KafkaProducer(
            **self.settings,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
        )
        half = len(records) // 2
        for number, some in enumerate((records[:half], records[half:])):
            sent = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    list(record.headers),
                    record.partition,
                    record.timestamp_ms,
                )
                for record in some
            ]
            for future in sent:
                future.get(WAIT_MS / 1000)
            if number == 0 and half:
                between()
        producer.close()

    def _consumer(self) -> Any:
        return kafka.KafkaConsumer(**self.settings, group_id=None, auto_offset_reset="earliest")

    def _take(self, consumer: Any, count: int) -> list[Got]:
        found: list[Got] = []
        while len(found) < count:
            polled = consumer.poll(timeout_ms=WAIT_MS, max_records=count - len(found))
            assert polled, f"{len(found)} of {count} records came"
            found += [
                Got(
                    record.partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    tuple(record.headers),
                )
                for records in polled.values()
                for record in records
            ]
        return found

    def consume(self, topic: str, starts: Mapping[int, int], count: int) -> list[Got]:
        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, part) for part in starts])
        for part, offset in starts.items():
            consumer.seek(TopicPartition(topic, part), offset)
        found = self._take(consumer, count)
        consumer.close()
        return found

    def seek(self, topic: str, first: int, then: int) -> list[int]:
        consumer = self._consumer()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        offsets = []
        for offset in (first, then):
            consumer.seek(partition, offset)
            offsets.append(self._take(consumer, 1)[0].offset)
        consumer.close()
        return offsets

    def pause(self, topic: str) -> tuple[set[int], set[int]]:
        consumer = self._consumer()
        partitions = [TopicPartition(topic, part) for part in (0, 1)]
        consumer.assign(partitions)
        consumer.pause(partitions[0])
        consumer.seek_to_beginning(*partitions)
        before = {record.partition for record in self._take(consumer, 3)}
        consumer.resume(partitions[0])
        after = {record.partition for record in self._take(consumer, 3)}
        consumer.close()
        return before, after

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        consumer = self._consumer()
        wanted = TopicPartition(topic, partition)
        found = consumer.offsets_for_times({wanted: timestamp_ms})
        consumer.close()
        offset: int = found[wanted].offset
        return offset

    def member_command(self, group: str, topic: str, session_ms: int) -> list[str]:
        names = ["kafka-python", self.bootstrap, group, topic, str(session_ms)]
        return [sys.executable, "-m", "tests.compatibility.members", *names]

    @property
    def _admin(self) -> Any:
        return kafka.KafkaAdminClient(**self.settings)

    def create_topic(self, topic: str, partitions: int, copies: int) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, copies)])

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe(self, topic: str) -> dict[int, Placement]:
        (known,) = self._admin.describe_topics([topic])
        return {
            part["partition_index"]: Placement(
                part["leader_id"], part["replica_nodes"], part["isr_nodes"]
            )
            for part in known["partitions"]
        }

    def add_partitions(self, topic: str, count: int) -> None:
        self._admin.create_partitions({topic: count})

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def set_config(self, topic: str, name: str, value: str) -> None:
        self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})])

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, [name])
        found = self._admin.describe_configs([resource], config_filter="all")
        value = found["topic"][topic][name]
        return str(value["value"] if isinstance(value, dict) else value)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def group_offset(self, group: str, topic: str, partition: int) -> int:
        found = self._admin.list_group_offsets({group: [TopicPartition(topic, partition)]})
        offset: int = found[group][TopicPartition(topic, partition)].offset
        return offset

    def delete_group(self, group: str) -> None:
        self._admin.delete_groups([group])

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._admin.delete_records({TopicPartition(topic, partition): before})
